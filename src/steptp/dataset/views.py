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

from steptp.analysis.host import HostInfo
from steptp.dataset.schema import StepRecord
from steptp.ir.seeds import derive_seed, digest

__all__ = [
    "MIN_SIBLINGS", "VIEWS", "action_prompt", "action_view", "describe_host", "free_prompt", "list_candidates", "named_prompt", "opaque_ids", "prompt_file",
    "prompt_versions", "step_views", "system_prompt", "write_views",
]  # fmt: skip

MIN_SIBLINGS = 8
VIEWS = ("named", "free", "action")


@cache
def prompt_file(name: str, package: str = "steptp.dataset") -> str:
    """The text of one prompt file of a package."""
    return resources.files(package).joinpath("prompts", f"{name}.txt").read_text()


def prompt_versions() -> dict[str, str]:
    """Prompt name → hash of its text."""
    return {name: digest(prompt_file(name)) for name in ("system", *VIEWS)}


def system_prompt() -> str:
    """What every conversation begins with."""
    return prompt_file("system").strip()


def named_prompt(program: str, strategy: str, site: str) -> str:
    """Ask for the program after a given step."""
    return prompt_file("named").strip().format(program=program.strip(), strategy=strategy, site=site)


def free_prompt(program: str) -> str:
    """Ask for a step, why, and the next program."""
    return prompt_file("free").strip().format(program=program.strip())


def action_prompt(program: str, host: str, candidates: Mapping[str, str]) -> str:
    """Ask for one of the candidates: opaque id → site."""
    return prompt_file("action").strip().format(program=program.strip(), host=host, candidates=list_candidates(candidates))


def list_candidates(candidates: Mapping[str, str]) -> str:
    """A line for each candidate."""
    return "\n".join(f"{name}: {site}" for name, site in candidates.items())


def describe_host(host: HostInfo) -> str:
    """One line about the host, as prompts state it."""
    return ", ".join(f"{name} {value}" for name, value in host.to_dict().items() if value)


def _sample(step_id: str, split: str, prompt: str, completion: str, **extra: Any) -> dict[str, Any]:
    messages = [
        {"role": "system", "content": system_prompt()},
        {"role": "user", "content": prompt},
        {"role": "assistant", "content": completion},
    ]
    return {"id": step_id, "split": split, "messages": messages, "prompt": prompt, "completion": completion, **extra}


def step_views(step: StepRecord, parent_text: str, child_text: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """(view, sample) of one verified step."""
    if step.verdict != "ok" or not step.child:
        return
    answer = f"{step.reason.strip()}\n\nNext program:\n{child_text.strip()}"
    prompt = named_prompt(parent_text, step.strategy, step.site)
    yield "named", _sample(step.id, step.split, prompt, answer, answer=child_text, strategy=step.strategy, site=step.site)
    if not (step.measured and step.label == "slower"):
        prompt = free_prompt(parent_text)
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
    prompt = action_prompt(text, host, dict(zip(names, sites, strict=True)))
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
