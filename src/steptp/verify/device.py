"""Tiers 4 and 5 on a GPU, and the task that runs them, with a timer, in an isolated worker.

Tier 4 is the same comparison as on the CPU: oracle, error estimates and the root's own result come from CPU builds, only the child runs on the
device. Tier 5 compares two device builds made without FMA contraction. Every array, temporaries too, lies between guard zones that are looked at afterwards.
A kernel that fails ends the use of the device in its process, so each task needs a worker of its own (``Limits(tasks=1)``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from time import perf_counter
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import numpy.typing as npt

from steptp.errors import StepTPError
from steptp.ir.nodes import Program
from steptp.rewrite.base import Exactness
from steptp.verify.compiled import POISON, GuardedRun
from steptp.verify.isolation import StepResult, StepTask, kind_of_failure, known_program
from steptp.verify.tier4 import tier4
from steptp.verify.tier4_inputs import make_inputs, work
from steptp.verify.tier5 import TIER5_REGIMES, same_bits
from steptp.verify.verdict import TierReport, Verdict, VerdictKind

if TYPE_CHECKING:
    from steptp.lower.gpu import DeviceBuilt

__all__ = ["check_on_device", "guarded_device_run", "tier4_on_device", "tier5_on_device"]

Array = npt.NDArray[Any]
T = TypeVar("T")
_ZONE = 4096  # bytes on either side


def guarded_device_run(built: DeviceBuilt, inputs: Mapping[str, Array], poison: int = POISON) -> GuardedRun:
    """One run on fresh guarded arrays on the device; raises :class:`steptp.lower.BuildError` ``device-memory``, ``device-failed``."""
    from steptp.lower.build import stored_input

    run = built.prepare(zone=_ZONE, poison=poison)
    given = {b.name: stored_input(built.program, b, inputs) for b in built.program.inputs}
    for name, value in given.items():
        run.write(name, value)
    run()
    built.device.wait()
    broken = []
    zone = np.empty(_ZONE, np.uint8)
    for name, memory in run.memory.items():
        for offset in (0, _ZONE + built.code.sizes[name]):
            memory.read(zone, offset)
            if (zone != poison).any() and name not in broken:
                broken.append(name)
    changed = [name for name, value in given.items() if run.read(name).tobytes() != value.tobytes()]
    damage = f"wrote outside {', '.join(broken)}" if broken else f"changed input {', '.join(changed)}" if changed else ""
    return GuardedRun({b.name: run.read(b.name) for b in built.program.outputs}, damage)


def tier4_on_device(root: Program, child: Program, *, seed: int = 0, regimes: Sequence[str] | None = None, equal_over_reals: bool = False) -> TierReport:
    """:func:`steptp.verify.tier4.tier4` of a child with bound loops that runs on this process's GPU.

    Raises :class:`steptp.lower.BuildError` ``device-missing``, ``build-no-nvcc``, ``build-failed``, ``device-memory``, ``device-failed``.
    """
    from steptp.lower.gpu import build_for_device

    built = build_for_device(child)
    report = tier4(
        root,
        root,
        child,
        seed=seed,
        regimes=regimes,
        equal_over_reals=equal_over_reals,
        runner=lambda inputs, poison: guarded_device_run(built, inputs, poison),
    )
    report.evidence.update(build="device", device=built.device.name, arch=built.device.arch)
    return report


def tier5_on_device(parent: Program, child: Program, *, seed: int = 0) -> TierReport:
    """Whether two programs with bound loops give the same bits on this process's GPU, both built without FMA contraction. Raises as :func:`tier4_on_device`."""
    from steptp.lower.gpu import build_for_device

    before, after = (build_for_device(p, fma=False) for p in (parent, child))
    regimes = TIER5_REGIMES if work(parent) < 5e8 else TIER5_REGIMES[:2]
    evidence = {"build": "device no-fma", "device": before.device.name, "arch": before.device.arch}
    return same_bits(parent, lambda inputs, _: guarded_device_run(before, inputs), lambda inputs, _: guarded_device_run(after, inputs), regimes, seed, evidence)


def check_on_device(task: StepTask[T], regimes: Sequence[str] | None = None) -> StepResult[T]:
    """The verdict of a step's ``tiers`` (4 and 5; 5 only for a step that claims ``bitwise``) on this process's GPU and, when they accept, what its timer says.

    ``root`` may be unbound; ``proven`` says that the child is known to equal it over the reals. Runs in a worker; what the device does wrong is the verdict.
    """
    parent, child, root = (known_program(text) for text in (task.parent, task.child, task.root))
    seed = task.seed if task.input_seed is None else task.input_seed
    reports: list[TierReport] = []
    checks: dict[int, Callable[[], TierReport]] = {4: lambda: tier4_on_device(root, child, seed=seed, regimes=regimes, equal_over_reals=task.proven)}
    if Exactness(task.exactness) is Exactness.BITWISE:
        checks[5] = lambda: tier5_on_device(parent, child, seed=seed)
    chosen = [(tier, check) for tier, check in checks.items() if tier in task.tiers]
    seconds: dict[str, float] = {}
    tier = 4
    try:
        for tier, check in chosen:
            start = perf_counter()
            reports.append(check())
            seconds[f"tier{tier}"] = perf_counter() - start
            if reports[-1].kind is not VerdictKind.OK:
                return StepResult(Verdict(reports[-1].kind, tier, tuple(reports)), None, seconds)
        timing = None
        if task.timer is not None and chosen:
            start = perf_counter()
            timing = task.timer(parent, child, make_inputs(parent, task.regime, seed), task.seed)
            seconds["measure"] = perf_counter() - start
    except StepTPError as err:
        kind = kind_of_failure(err.code)
        return StepResult(Verdict(kind, tier, (*reports, TierReport(tier, kind, err.message, {"code": err.code}))), None, seconds)
    if not chosen:
        return StepResult(Verdict(VerdictKind.UNKNOWN, 0), None, seconds)
    return StepResult(Verdict(VerdictKind.OK, tier, tuple(reports)), timing, seconds)
