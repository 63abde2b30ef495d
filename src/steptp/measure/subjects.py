"""Built programs as subjects of timing: placed buffers, prepared calls, outputs that are looked at.

Buffers start at a seeded multiple of 64 bytes within a page, each array in an allocation of its own, so that rounds differ in
cache-set and page placement. Outputs are poisoned before a round; what a timed round leaves in them must be, bit for bit, what the
first round left, so that work skipped or undefined values read while being timed do not go unnoticed.
"""

from __future__ import annotations

import functools
import random
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from steptp.errors import StepTPError
from steptp.ir.nodes import Loop, Program
from steptp.ir.sizes import shape_of
from steptp.ir.types import LoopKind
from steptp.ir.walk import visit
from steptp.lower.build import NUMPY, Built, build, to_storage
from steptp.lower.options import BuildOptions
from steptp.measure.exclusive import exclusive
from steptp.measure.timing import Call, Clock, PairedTiming, TimingOptions, time_pair

__all__ = ["BuiltSubject", "TimingError", "check_unchanged", "measure_pair", "placed", "time_programs", "uses_threads"]

Array = npt.NDArray[Any]
_LINE, _PAGE = 64, 4096
_POISON = 0xFF


class TimingError(StepTPError):
    """A timed program misbehaved (code ``measure-outputs``: its outputs changed between runs on equal inputs)."""


def placed(shape: tuple[int, ...], dtype: type, line: int) -> Array:
    """A poisoned array that starts ``line`` (0 to 63) times 64 bytes into a page."""
    size = int(np.prod(shape, dtype=np.int64)) * np.dtype(dtype).itemsize
    raw = np.empty(size + 2 * _PAGE, np.uint8)
    start = -raw.ctypes.data % _PAGE + _LINE * line
    view = raw[start : start + size]
    view.fill(1 if dtype is np.bool_ else _POISON)
    return view.view(dtype).reshape(shape)


def uses_threads(program: Program) -> bool:
    """Whether the program has a parallel loop."""
    return any(isinstance(v.stmt, Loop) and v.stmt.kind is LoopKind.PARALLEL for v in visit(program))


class BuiltSubject:
    """A built program with inputs by name (bf16 as float32 arrays); see :class:`steptp.measure.timing.Subject`."""

    def __init__(self, built: Built, inputs: Mapping[str, Array]) -> None:
        self.built = built
        program = built.program
        self._inputs = [np.asarray(to_storage(np.asarray(inputs[b.name]), b.dtype), order="C") for b in program.inputs]
        self._outputs = [(shape_of(b.shape, program), NUMPY[b.dtype]) for b in program.outputs]
        self._first: list[Array] | None = None
        self._last: list[Array] = []

    def __call__(self, placement: int) -> Call:
        self.check()
        rng = random.Random(placement)
        arrays: list[Array] = []
        for value in self._inputs:
            array = placed(value.shape, value.dtype.type, rng.randrange(_PAGE // _LINE))
            array[...] = value
            arrays.append(array)
        outputs = [placed(shape, dtype, rng.randrange(_PAGE // _LINE)) for shape, dtype in self._outputs]
        self._last = outputs
        arguments = self.built.prepare([*arrays, *outputs])
        call = functools.partial(self.built.entry, arguments.pointer, arguments.rows)
        call.__dict__["arguments"] = arguments  # the buffers live as long as the call
        return call

    def check(self) -> None:
        """Compare the outputs of the round that just ended with the first round's; raises :class:`TimingError`."""
        if not self._last:
            return
        if self._first is None:
            self._first = self._last
        else:
            check_unchanged(self.built.program, self._first, self._last)
        self._last = []


def check_unchanged(program: Program, first: Sequence[Array], last: Sequence[Array]) -> None:
    """Compare the outputs that two rounds left, bit for bit; raises :class:`TimingError`."""
    for buffer, before, after in zip(program.outputs, first, last, strict=True):
        if before.tobytes() != after.tobytes():
            raise TimingError("measure-outputs", f"the output {buffer.name} changed between timed runs on equal inputs")


def measure_pair(
    parent: Built,
    child: Built,
    inputs: Mapping[str, Array],
    options: TimingOptions,
    *,
    child_inputs: Mapping[str, Array] | None = None,
    clock: Clock | None = None,
) -> PairedTiming:
    """Time two built programs on the same inputs.

    Serial programs are timed by the thread's CPU clock, which stands still while the host gives the core to someone else.
    When either program uses threads both are timed by the wall clock, and no other worker of the pool runs meanwhile.
    Raises :class:`TimingError` (outputs that change) and ``KeyError`` (a missing input).
    """
    subjects = BuiltSubject(parent, inputs), BuiltSubject(child, inputs if child_inputs is None else child_inputs)
    threads = max((b.threads for b in (parent, child) if uses_threads(b.program)), default=1)
    if threads == 1:
        timing = replace(time_pair(*subjects, options, clock or time.thread_time_ns), clock="thread" if clock is None else "given")
    else:
        parent.configure()
        with exclusive() as alone:
            timing = time_pair(*subjects, options, clock or time.perf_counter_ns)
        timing = replace(timing, clock="wall" if clock is None else "given", threads=threads, exclusive=alone)
    for subject in subjects:
        subject.check()
    return timing


def time_programs(
    parent: Program, child: Program, inputs: Mapping[str, Array], seed: int, *, options: TimingOptions, build_options: BuildOptions | None = None
) -> PairedTiming:
    """Build both programs (or take this process's builds of them) and time them; raises as :func:`measure_pair` and ``build``."""
    chosen = build_options or BuildOptions()
    return measure_pair(build(parent, chosen), build(child, chosen), inputs, replace(options, seed=seed))
