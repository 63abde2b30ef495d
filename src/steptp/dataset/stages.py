"""What runs in the workers: check a step's compiled code, describe its programs, time it. Plain data in and out."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache, partial
from time import process_time
from typing import Any

from steptp.ir import Program, shape_hash
from steptp.measure.subjects import time_programs
from steptp.measure.timing import PairedTiming, TimingOptions
from steptp.verify.isolation import StepResult, StepTask, Timer, check_and_measure, known_program
from steptp.verify.verdict import report_json

__all__ = ["CheckTask", "check_step", "describe", "timer_of", "timing_task", "timing_json", "PRELOAD"]

PRELOAD = (
    "numpy",
    "islpy",
    "flint",
    "tvm",
    "steptp.lower",
    "steptp.verify.tier1",
    "steptp.verify.tier2",
    "steptp.verify.tier3",
    "steptp.verify.tier4",
    "steptp.dataset.stages",
)


@dataclass(frozen=True)
class CheckTask:
    """One admitted step with the texts of its programs; ``id``, ``root_hash`` and ``hashes`` (parent, child) are for bookkeeping. ``ahead``: the
    children of the tasks that come next, whose code is compiled along with this one's."""

    id: str
    root_hash: str
    hashes: tuple[str, str]
    step: StepTask[PairedTiming]
    ahead: tuple[str, ...] = ()


def check_step(task: CheckTask) -> dict[str, Any]:
    """Tiers 4 and 5 of a step, its timing where the task asks for one, and the descriptions of both programs."""
    from steptp.lower.nests import BUILDS, prebuild
    from steptp.lower.options import BuildOptions

    before = dict(BUILDS)
    began = process_time()
    if task.ahead:
        prebuild(known_program(task.step.child), [known_program(text) for text in task.ahead], BuildOptions())
    built = process_time() - began
    result: StepResult[PairedTiming] = check_and_measure(task.step)
    builds = {k: n - before[k] for k, n in BUILDS.items()}
    timing = None if result.timing is None else timing_json(result.timing)
    found = verdict_json(result)
    found["seconds"]["build"] = built
    return {**found, "timing": timing, "builds": builds, "programs": dict(zip(task.hashes, map(describe, (task.step.parent, task.step.child)), strict=True))}


def verdict_json(result: StepResult[PairedTiming]) -> dict[str, Any]:
    """Verdict, deciding tier, evidence; seconds by tier apart."""
    verdict = result.verdict
    return {
        "verdict": str(verdict.kind),
        "tier": verdict.tier,
        "evidence": [report_json(r) for r in verdict.reports],
        "seconds": {f"tier{r.tier}": r.seconds for r in verdict.reports} | {k: s for k, s in result.seconds.items() if k == "measure"},
    }


@lru_cache(maxsize=64)
def describe(text: str) -> Mapping[str, Any]:
    """The columns of ``programs`` that depend on the program alone."""
    from steptp.analysis.features import features
    from steptp.lower import structural_hash

    program = known_program(text)
    f = features(program)
    return {
        "shape_hash": shape_hash(program),
        "dtype": str(program.outputs[0].dtype),
        "sizes": json.dumps(program.size_env),
        "flops": f.flops,
        "bytes_moved": f.bytes_read + f.bytes_written,
        "bytes_compulsory": f.compulsory_bytes,
        "intensity": f.intensity,
        "instances": f.instances,
        "parallelism": f.parallelism,
        "lines": len(text.splitlines()),
        "tir_hash": structural_hash(program),
    }


def timing_task(parent: str, child: str, root: str, seed: int, margin: float, budget_s: float) -> StepTask[PairedTiming]:
    """A task that only times two programs which the verifier has accepted."""
    return StepTask(parent=parent, child=child, root=root, seed=seed, tiers=(), timer=timer_of(margin, budget_s, seed))


def timer_of(margin: float, budget_s: float, seed: int) -> Timer[PairedTiming]:
    """The timer of a task: two programs, placed and ordered by ``seed``."""
    return partial(_timed, options=TimingOptions(margin=margin, budget_s=budget_s, seed=seed))


def _timed(parent: Program, child: Program, inputs: Mapping[str, Any], seed: int, *, options: TimingOptions) -> PairedTiming:
    return time_programs(parent, child, inputs, options.seed, options=options)


def timing_json(timing: PairedTiming) -> dict[str, Any]:
    """The JSON form of a timing with the medians beside the samples."""
    return {**timing.to_json(), "parent_us": timing.parent_us, "child_us": timing.child_us}
