"""``steptp verify DIR``: redo recorded steps from their texts and sites, and compare."""

from __future__ import annotations

import random
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from steptp.dataset.build import BUDGET_S, Progress
from steptp.dataset.schema import input_seed, step_id
from steptp.dataset.stages import PRELOAD, timing_task
from steptp.dataset.store import Dataset
from steptp.errors import StepTPError
from steptp.ir import parse, program_hash
from steptp.ir.seeds import derive_seed
from steptp.measure import Limits, Pool
from steptp.rewrite import engine
from steptp.rewrite.base import NotApplicable, Site
from steptp.verify.isolation import check_and_measure
from steptp.verify.ladder import verify_step

__all__ = ["RecheckResult", "recheck", "redo_step"]


@dataclass
class RecheckResult:
    """``mismatches`` are sentences; ``labels_again`` of ``remeasured`` timings gave the recorded label."""

    checked: int = 0
    mismatches: list[str] = field(default_factory=list)
    remeasured: int = 0
    labels_again: int = 0
    changed_labels: list[str] = field(default_factory=list)

    @property
    def label_share(self) -> float:
        return self.labels_again / self.remeasured if self.remeasured else 1.0

    def as_dict(self) -> dict[str, Any]:
        return {**asdict(self), "label_share": self.label_share}


@dataclass(frozen=True)
class RedoTask:
    """A recorded step and the texts that it names."""

    step: dict[str, Any]
    parent: str
    child: str
    root: str
    margin: float
    remeasure: bool


def recheck(folder: Path, *, sample: int | None, remeasure: bool, seed: int, jobs: int, progress: Progress) -> RecheckResult:
    """Verify ``sample`` records (all when ``None``) again, from nothing but texts and site ids. Raises :class:`DatasetError` for a bad folder."""
    data = Dataset.open(folder)
    rng = random.Random(derive_seed("recheck", seed))
    chosen = data.steps if sample is None or sample >= len(data.steps) else rng.sample(data.steps, sample)
    chosen = sorted(chosen, key=lambda s: (s["root"], s["parent"], s["id"]))
    margin = float(data.info["margin"])
    tasks = []
    for step in chosen:
        child = data.program(step["child"])["text"] if step["child"] else ""
        root = data.programs.get(step["root"], data.program(step["parent"]))["text"]
        tasks.append(RedoTask(step, data.program(step["parent"])["text"], child, root, margin, remeasure and step["measured"]))
    result = RecheckResult()
    with Pool(jobs, limits=Limits(timeout=180.0, memory=3 << 30), preload=PRELOAD) as pool:
        for task, outcome in pool.map(redo_step, tasks, group=lambda t: t.step["root"]):
            result.checked += 1
            found: dict[str, Any] = outcome.value if outcome.value is not None else {"problem": f"{outcome.status}: {outcome.message}"}
            if found.get("problem"):
                result.mismatches.append(f"{task.step['id']}: {found['problem']}")
            if found.get("label"):
                result.remeasured += 1
                result.labels_again += found["label"] == task.step["label"]
                if found["label"] != task.step["label"]:
                    result.changed_labels.append(
                        f"{task.step['id']}: {task.step['label']} ({task.step['ratio']:.3f}) → {found['label']} ({found['ratio']:.3f})"
                    )
            progress.stage("records", len(tasks), result.checked)
    return result


def redo_step(task: RedoTask) -> dict[str, Any]:
    """Runs in a worker: parse, hash, apply, verify on every tier, and time if asked. ``problem`` says what differs."""
    step = task.step
    try:
        parent = parse(task.parent)
        if program_hash(parent) != step["parent"]:
            return {"problem": "the parent's text does not have its hash"}
        outcome = engine.apply(parent, Site.parse(step["site"]))
        if not step["child"]:
            refused = isinstance(outcome, NotApplicable) and outcome.message == step["reason"]
            return {} if refused else {"problem": "the engine no longer refuses this site for the recorded reason"}
        if isinstance(outcome, NotApplicable):
            return {"problem": f"the strategy does not apply: {outcome.message}"}
        child, root = parse(task.child), parse(task.root)
        name = program_hash(outcome.program)
        if name != step["child"] or name != program_hash(child) or step_id(step["parent"], step["strategy"], step["site"], name) != step["id"]:
            return {"problem": "applying the strategy gives another program"}
        if str(outcome.exactness) != step["exactness"]:
            return {"problem": f"the strategy claims {outcome.exactness}, the record says {step['exactness']}"}
    except StepTPError as err:
        return {"problem": f"{err.code}: {err.message}"}
    verdict = verify_step(parent, outcome.program, applied=outcome, root=root, seed=step["seed"], input_seed=input_seed(step["root"], step["seed"]))
    if str(verdict.kind) != step["verdict"]:
        return {"problem": f"verdict {verdict.kind} at tier {verdict.tier} ({verdict.message}), the record says {step['verdict']}"}
    if not task.remeasure:
        return {}
    again = check_and_measure(timing_task(task.parent, task.child, task.root, derive_seed("recheck", step["id"]), task.margin, 2 * BUDGET_S))
    return {"problem": "the pair cannot be timed"} if again.timing is None else {"label": again.timing.label, "ratio": again.timing.ratio}
