"""Paired timing on a GPU: the same rounds and intervals as on the CPU, with CUDA events as the clock.

An event is recorded before and after each sample in the stream that runs the kernels. A sample is many launches in a row, so that what lies between two
events is the device's work wherever a launch takes less time to queue than to run; below some ten microseconds a kernel, it is the queueing.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from steptp.ir.nodes import Program
from steptp.measure.subjects import check_unchanged
from steptp.measure.timing import Call, PairedTiming, Subject, TimingOptions, time_pair

if TYPE_CHECKING:
    from steptp.lower.gpu import DeviceBuilt, DeviceRun

__all__ = ["DEVICE_OPTIONS", "DeviceSubject", "time_on_device", "time_programs_on_device"]

Array = npt.NDArray[Any]
_LINE = 256  # bytes; what the driver aligns allocations to

DEVICE_OPTIONS = TimingOptions(sample_ns=4_000_000, budget_s=2.0)
"""Samples long enough for the resolution of events and the queueing of the first launch."""


class DeviceSubject:
    """A program loaded into the GPU, with inputs by name; see :class:`steptp.measure.timing.Subject`.

    Each round's arrays start at seeded multiples of 256 bytes; outputs are poisoned before it, and must hold after it, bit for bit, what the first round left.
    """

    def __init__(self, built: DeviceBuilt, inputs: Mapping[str, Array]) -> None:
        from steptp.lower.build import stored_input

        self.built = built
        self._inputs = {b.name: stored_input(built.program, b, inputs) for b in built.program.inputs}
        self._first: list[Array] | None = None
        self._last: DeviceRun | None = None

    def __call__(self, placement: int) -> Call:
        self.check()
        rng = random.Random(placement)
        run = self.built.prepare(lead={name: _LINE * rng.randrange(64) for name in self.built.code.arrays})
        for name, value in self._inputs.items():
            run.write(name, value)
        self._last = run
        return run

    def check(self) -> None:
        """Compare the outputs of the round that just ended with the first round's; raises :class:`TimingError`."""
        if self._last is None:
            return
        found = [self._last.read(b.name) for b in self.built.program.outputs]
        self._last = None
        if self._first is None:
            self._first = found
        check_unchanged(self.built.program, self._first, found)


def time_on_device(parent: Subject, child: Subject, options: TimingOptions = DEVICE_OPTIONS) -> PairedTiming:
    """Time two subjects whose calls queue work on the default stream. Raises :class:`steptp.lower.BuildError` ``device-missing``, ``device-failed``."""
    from steptp.lower.driver import EventClock, device

    timing = replace(time_pair(parent, child, options, EventClock(device())), clock="device")
    for subject in (parent, child):
        if isinstance(subject, DeviceSubject):
            subject.check()
    return timing


def time_programs_on_device(
    parent: Program, child: Program, inputs: Mapping[str, np.ndarray], seed: int, *, options: TimingOptions = DEVICE_OPTIONS
) -> PairedTiming:
    """Build both programs for this process's GPU (or take its builds of them) and time them; raises :class:`TimingError`, and as
    :func:`steptp.lower.gpu.build_for_device`."""
    from steptp.lower.gpu import build_for_device

    return time_on_device(DeviceSubject(build_for_device(parent), inputs), DeviceSubject(build_for_device(child), inputs), replace(options, seed=seed))
