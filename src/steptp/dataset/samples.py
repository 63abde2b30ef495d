"""Questions with known answers out of a dataset: what training learns from and evaluation asks.

Equal arguments give equal samples, in the order of their ids, whatever the order of rows in the tables.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from steptp.analysis.host import HostInfo
from steptp.dataset.questions import Form, Task, candidate_line, conversation, describe_host, forms_of, task_prompt, with_opaque_ids
from steptp.dataset.store import Dataset
from steptp.dataset.walk import MAX_CANDIDATES
from steptp.errors import UsageError
from steptp.ir.edits import edit_between
from steptp.ir.seeds import derive_seed

__all__ = [
    "BLIND",
    "MIN_SIBLINGS",
    "Sample",
    "action_sample",
    "examples_for",
    "read_samples",
    "samples_of",
    "short_reason",
    "step_sample",
]

MIN_SIBLINGS = 8
"""Measured steps that a state needs for an *action* sample."""

BLIND = "(the program is not shown)"
"""What stands for the program in a blinded question."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One question and its answer.

    ``id``: of the step, of the state for *action*; ``state``: hash of the program that is asked about, ``program`` its text, of ``lines`` lines. ``strategy``
    and ``site``: of the recorded step (of the best one for *action*); ``child``: the text that it leads to (empty for *action*). For *action*: ``sites``
    (opaque id → site), ``listed`` (opaque id → what the question shows of the site), ``ratios`` (opaque id → measured time before over time after, for the
    measured ones) and ``best`` (opaque id).
    """

    id: str
    task: Task
    form: Form
    reasons: bool
    split: str
    root: str
    workload: str
    family: str
    state: str
    program: str
    strategy: str
    site: str
    prompt: str
    completion: str
    child: str = ""
    lines: int = 0
    sites: Mapping[str, str] = field(default_factory=dict)
    listed: Mapping[str, str] = field(default_factory=dict)
    ratios: Mapping[str, float] = field(default_factory=dict)
    best: str = ""

    def asked(self, examples: Sequence[Sample] = ()) -> list[dict[str, str]]:
        """The conversation up to the question; ``examples`` are earlier turns."""
        return conversation(*(turn for e in examples for turn in (e.prompt, e.completion)), self.prompt)

    def messages(self, examples: Sequence[Sample] = ()) -> list[dict[str, str]]:
        """The whole conversation, answer included."""
        return conversation(*(turn for e in (*examples, self) for turn in (e.prompt, e.completion)))


def read_samples(
    folder: Path, task: Task, form: Form, *, reasons: bool, split: str | None = None, shuffle: int = 0, blind: bool = False, reason_words: int | None = None
) -> Iterator[Sample]:
    """The samples of a dataset folder (:func:`samples_of`). Raises what :meth:`Dataset.open` raises."""
    return samples_of(Dataset.open(folder), task, form, reasons=reasons, split=split, shuffle=shuffle, blind=blind, reason_words=reason_words)


def samples_of(
    data: Dataset, task: Task, form: Form, *, reasons: bool, split: str | None = None, shuffle: int = 0, blind: bool = False, reason_words: int | None = None
) -> Iterator[Sample]:
    """Samples of one task and form of answer, in the order of their ids.

    *named*: every verified step; *free*: those not measured slower; *action*: states with at least :data:`MIN_SIBLINGS` measured steps.
    ``reason_words`` shortens recorded reasons (:func:`short_reason`). ``shuffle`` other than 0 gives the candidates of *action* another order and other ids.
    ``blind`` shows :data:`BLIND` for the program, and of candidates no more than their strategies: what is left is what a prior over strategies knows.
    Raises :class:`UsageError` ``usage-form`` for a form that the task has not.
    """
    if form not in forms_of(task):
        raise UsageError("usage-form", f"the task {task} has no answers of the form {form!r}", hint=f"forms: {', '.join(forms_of(task))}")
    rows = sorted((s for s in data.steps if split is None or s["split"] == split), key=lambda s: s["id"])
    if task == "action":
        host = describe_host(HostInfo.from_dict(data.info["host_info"]))
        states: dict[str, list[dict[str, Any]]] = defaultdict(list)
        for row in rows:
            states[row["parent"]].append(row)
        for state in sorted(states):
            text = data.program(state)["text"]
            if (made := action_sample(text, states[state], host, reasons=reasons, shuffle=shuffle, blind=blind, reason_words=reason_words)) is not None:
                yield made
        return
    for row in rows:
        if not row["child"]:
            continue
        texts = data.program(row["parent"])["text"], data.program(row["child"])["text"]
        if (step := step_sample(row, *texts, task, form, reasons=reasons, blind=blind, reason_words=reason_words)) is not None:
            yield step


def step_sample(
    step: Mapping[str, Any], parent: str, child: str, task: Task, form: Form, *, reasons: bool, blind: bool = False, reason_words: int | None = None
) -> Sample | None:
    """The *named* or *free* sample of a recorded step; ``None`` for one that is no example: not verified, or, for *free*, measured slower."""
    if step["verdict"] != "ok" or not step["child"] or (task == "free" and step["measured"] and step["label"] == "slower"):
        return None
    parts = [f"Strategy: {step['strategy']}\nSite: {step['site']}"] if task == "free" and reasons else []
    if reasons:
        said = short_reason(step["reason"], reason_words)
        parts = ["\n".join([*parts, said])] if said else parts
    if form == "edit":
        parts.append("\n".join([*(["Edit:"] if reasons else []), *edit_between(parent, child)]))
    else:
        parts.append(("Next program:\n" if reasons else "") + child.strip())
    prompt = task_prompt(task, form, reasons, BLIND if blind else parent, strategy=step["strategy"], site=step["site"])
    return Sample(
        id=step["id"], task=task, form=form, reasons=reasons, split=step["split"], root=step["root"], workload=step["workload"], family=step["family"],
        state=step["parent"], program=parent, strategy=step["strategy"], site=step["site"], prompt=prompt, completion="\n\n".join(parts), child=child,
        lines=len(parent.splitlines()),
    )  # fmt: skip


def action_sample(
    text: str, group: Iterable[Mapping[str, Any]], host: str, *, reasons: bool = False, shuffle: int = 0, blind: bool = False, reason_words: int | None = None
) -> Sample | None:
    """The *action* sample of one state with the recorded steps from it, or ``None`` when too few of them were measured."""
    timed = sorted((s for s in group if s["measured"] and s["verdict"] == "ok"), key=lambda s: str(s["id"]))
    if len(timed) < MIN_SIBLINGS:
        return None
    best = next((s for s in timed if s["best_sibling"]), None) or max(timed, key=lambda s: (s["ratio"] or 0.0, s["id"]))
    shown = dict.fromkeys(s["site"] for s in timed)
    for site in timed[0]["candidates"]:
        if len(shown) >= MAX_CANDIDATES:
            break
        shown.setdefault(site)
    sites = list(shown)
    state = best["parent"]
    seed = derive_seed("action", state, *([shuffle] if shuffle else []))
    random.Random(seed).shuffle(sites)
    by_id = with_opaque_ids(sites, seed)
    ids = {site: name for name, site in by_id.items()}
    listed = {name: site.partition("@")[0] if blind else site for name, site in by_id.items()}
    answer = ids[best["site"]]
    line = candidate_line(listed[answer], answer)
    said = [short_reason(best["reason"], reason_words), f"Step: {line}"] if reasons else [line]
    return Sample(
        id=state, task="action", form="action", reasons=reasons, split=best["split"], root=best["root"], workload=best["workload"], family=best["family"],
        state=state, program=text, strategy=best["strategy"], site=best["site"],
        prompt=task_prompt("action", "action", reasons, BLIND if blind else text, host=host, candidates=listed),
        completion="\n\n".join(filter(None, said)), lines=len(text.splitlines()),
        sites=by_id, listed=listed, ratios={ids[s["site"]]: float(s["ratio"]) for s in timed if s["ratio"] is not None}, best=answer,
    )  # fmt: skip


def short_reason(reason: str, words: int | None) -> str:
    """A recorded reason, or at most ``words`` words of it, whole sentences: why the step is legal, then what it changes, then the rest but for the rewritten
    lines (the answer itself) and what was drawn. Empty when not even the first fits."""
    if words is None:
        return reason.strip()
    sections: dict[str, list[str]] = defaultdict(list)
    name = ""
    for line in reason.strip().splitlines():
        if line.startswith("- "):
            sections[name].append(line)
        else:
            name = line.rstrip(":")
    kept: list[str] = []
    for line in (line for part in ("Legal", "Effect", "Dominant") for line in sections[part]):
        size = len(line.split()) - 1
        if size > words:
            break
        kept.append(line)
        words -= size
    return "\n".join(kept)


def examples_for(sample: Sample, pool: Sequence[Sample], count: int, *, seed: int, characters: int = 6000) -> list[Sample]:
    """``count`` examples from ``pool`` (samples of the training split) for a question: of other roots and other families, drawn by the question's id and
    ``seed`` from those that fit ``characters`` together; fewer where there are not enough."""
    others = [s for s in pool if s.root != sample.root and s.family != sample.family and len(s.prompt) + len(s.completion) <= characters // max(count, 1)]
    rng = random.Random(derive_seed("examples", sample.id, seed))
    return rng.sample(others, min(count, len(others)))
