"""Views of the steps for training: *named*, *free* and *action*, as chat messages and prompt/completion.

Views select; the tables keep everything. ``named`` takes every verified step. ``free`` takes verified steps that were not measured
slower. ``action`` takes states with at least :data:`MIN_SIBLINGS` measured steps and asks for the best of them.
"""

from __future__ import annotations

import json
import os
import random
import string
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

from steptp.dataset.schema import StepRecord
from steptp.ir.seeds import derive_seed, digest

__all__ = ["MIN_SIBLINGS", "VIEWS", "prompt_file", "write_views", "opaque_ids", "step_views", "action_view"]

MIN_SIBLINGS = 8
VIEWS = ("named", "free", "action")


@cache
def prompt_file(name: str) -> str:
    """The text of one prompt file of this package."""
    return resources.files("steptp.dataset").joinpath("prompts", f"{name}.txt").read_text()


def prompt_versions() -> dict[str, str]:
    """Prompt name → hash of its text."""
    return {name: digest(prompt_file(name)) for name in ("system", *VIEWS)}


def _sample(step_id: str, split: str, prompt: str, completion: str, **extra: Any) -> dict[str, Any]:
    messages = [
        {"role": "system", "content": prompt_file("system").strip()},
        {"role": "user", "content": prompt},
        {"role": "assistant", "content": completion},
    ]
    return {"id": step_id, "split": split, "messages": messages, "prompt": prompt, "completion": completion, **extra}


def step_views(step: StepRecord, parent_text: str, child_text: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """(view, sample) of one verified step."""
    if step.verdict != "ok" or not step.child:
        return
    answer = f"{step.reason.strip()}\n\nNext program:\n{child_text.strip()}"
    prompt = prompt_file("named").strip().format(program=parent_text.strip(), strategy=step.strategy, site=step.site)
    yield "named", _sample(step.id, step.split, prompt, answer, answer=child_text, strategy=step.strategy, site=step.site)
    if not (step.measured and step.label == "slower"):
        prompt = prompt_file("free").strip().format(program=parent_text.strip())
        completion = f"Strategy: {step.strategy}\nSite: {step.site}\n{answer}"
        yield "free", _sample(step.id, step.split, prompt, completion, answer=child_text, strategy=step.strategy, site=step.site)


def opaque_ids(count: int, seed: int) -> list[str]:
    """Distinct two-letter ids that say nothing about order or content."""
    rng = random.Random(seed)
    letters = string.ascii_uppercase
    return rng.sample([a + b for a in letters for b in letters], count)


def action_view(state: str, text: str, group: Sequence[StepRecord], host: str) -> dict[str, Any] | None:
    """The action sample of one state, or ``None`` when too few of its steps were measured."""
    timed = sorted((s for s in group if s.measured and s.verdict == "ok"), key=lambda s: s.id)
    if len(timed) < MIN_SIBLINGS:
        return None
    best = next((s for s in timed if s.best_sibling), None) or max(timed, key=lambda s: (s.ratio or 0.0, s.id))
    shown = dict.fromkeys(s.site for s in timed)
    for site in timed[0].candidates:
        if len(shown) >= 24:
            break
        shown.setdefault(site)
    sites = list(shown)
    seed = derive_seed("action", state)
    random.Random(seed).shuffle(sites)
    names = opaque_ids(len(sites), seed)
    listing = "\n".join(f"{name}: {site}" for name, site in zip(names, sites, strict=True))
    prompt = prompt_file("action").strip().format(program=text.strip(), host=host, candidates=listing)
    by_site = {s.site: s for s in timed}
    ratios = {name: by_site[site].ratio for name, site in zip(names, sites, strict=True) if site in by_site}
    return _sample(state, best.split, prompt, names[sites.index(best.site)], ratios=ratios, best=best.id)


def write_views(out: Path, steps: Iterable[StepRecord], texts: Mapping[str, str], host: str) -> dict[str, dict[str, int]]:
    """Write every view; returns view → split → lines. ``steps`` is read once."""
    counts: dict[str, dict[str, int]] = {v: defaultdict(int) for v in VIEWS}
    files: dict[tuple[str, str], Any] = {}
    states: dict[str, list[StepRecord]] = defaultdict(list)

    def put(view: str, sample: Mapping[str, Any]) -> None:
        key = (view, str(sample["split"]))
        if key not in files:
            path = out / "views" / view / f".{key[1]}.jsonl.tmp"
            path.parent.mkdir(parents=True, exist_ok=True)
            files[key] = path.open("w")
        files[key].write(json.dumps(sample, ensure_ascii=False) + "\n")
        counts[view][key[1]] += 1

    try:
        for step in steps:
            if step.child:
                for view, sample in step_views(step, texts[step.parent], texts[step.child]):
                    put(view, sample)
            if step.measured:
                states[step.parent].append(step)
        for state, group in states.items():
            if (chosen := action_view(state, texts[state], group, host)) is not None:
                put("action", chosen)
    finally:
        for file in files.values():
            file.close()
    for view in VIEWS:
        for old in (out / "views" / view).glob("*.jsonl"):
            old.unlink()
    for view, split in files:
        os.replace(out / "views" / view / f".{split}.jsonl.tmp", out / "views" / view / f"{split}.jsonl")
    return {v: dict(c) for v, c in counts.items()}
