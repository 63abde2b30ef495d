"""Views of the steps for training elsewhere, as chat messages and prompt/completion: *named*, *named_edit*, *free* and *action*.

Views select; the tables keep everything, and :mod:`steptp.dataset.samples` makes every other task and form of answer from them.
"""

from __future__ import annotations

import json
import os
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from steptp.dataset.questions import Form, Task
from steptp.dataset.samples import Sample, action_sample, step_sample
from steptp.dataset.schema import StepRecord

__all__ = ["VIEWS", "write_views"]

_STEPS: dict[str, tuple[Task, Form]] = {"named": ("named", "rewrite"), "named_edit": ("named", "edit"), "free": ("free", "rewrite")}
VIEWS = (*_STEPS, "action")
"""The first three with reasons, *action* without."""


def _step_views(row: Mapping[str, Any], parent: str, child: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """(view, line) of one step."""
    for view, (task, form) in _STEPS.items():
        if (made := step_sample(row, parent, child, task, form, reasons=True)) is not None:
            yield view, _line(made, answer=child, strategy=row["strategy"], site=row["site"])


def _line(sample: Sample, **extra: Any) -> dict[str, Any]:
    return {"id": sample.id, "split": sample.split, "messages": sample.messages(), "prompt": sample.prompt, "completion": sample.completion, **extra}


def write_views(out: Path, steps: Iterable[StepRecord], texts: Mapping[str, str], host: str) -> dict[str, dict[str, int]]:
    """Write every view; returns view → split → lines. ``steps`` is read once."""
    counts: dict[str, dict[str, int]] = {v: defaultdict(int) for v in VIEWS}
    files: dict[tuple[str, str], Any] = {}
    states: dict[str, list[dict[str, Any]]] = defaultdict(list)

    def put(view: str, line: Mapping[str, Any]) -> None:
        key = (view, str(line["split"]))
        if key not in files:
            path = out / "views" / view / f".{key[1]}.jsonl.tmp"
            path.parent.mkdir(parents=True, exist_ok=True)
            files[key] = path.open("w")
        files[key].write(json.dumps(line, ensure_ascii=False) + "\n")
        counts[view][key[1]] += 1

    try:
        for step in steps:
            row = dict(step)
            if step.child:
                for view, line in _step_views(row, texts[step.parent], texts[step.child]):
                    put(view, line)
            if step.measured:
                states[step.parent].append(row)
        for state, group in states.items():
            if (chosen := action_sample(texts[state], group, host)) is not None:
                best = next(row["id"] for row in group if row["site"] == chosen.site and row["measured"])
                put("action", _line(chosen, ratios=dict(chosen.ratios), best=best))
    finally:
        for file in files.values():
            file.close()
    for view in VIEWS:
        for old in (out / "views" / view).glob("*.jsonl"):
            old.unlink()
    for view, split in files:
        os.replace(out / "views" / view / f".{split}.jsonl.tmp", out / "views" / view / f"{split}.jsonl")
    return {v: dict(c) for v, c in counts.items()}
