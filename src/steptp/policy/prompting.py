"""What a language model is asked at a state: one step (the texts of the dataset's views), or a step on the way, with what came of the steps before.

The prompts are files: those of the views in ``dataset/prompts``, the others in ``policy/prompts``.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias, get_args

from steptp.dataset import views
from steptp.dataset.views import action_prompt, describe_host, free_prompt, list_candidates, opaque_ids, prompt_file, system_prompt
from steptp.dataset.walk import MAX_CANDIDATES, list_sites, spread
from steptp.ir.seeds import digest
from steptp.rewrite import registry
from steptp.rewrite.base import Family
from steptp.search.moves import Action, Edit, Move
from steptp.search.policy import State

__all__ = ["FORMATS", "Format", "Question", "numbered", "prompt_versions", "question"]

Format: TypeAlias = Literal["action", "edit", "rewrite"]
FORMATS: tuple[Format, ...] = get_args(Format)
_FILES = ("action_why", "edit", "edit_why", "facts", "failed", "history", "parent", "rewrite")
_STEPS = 12  # of the history, the last ones
_FAILURES = 8  # the last ones
_MESSAGE = 240  # characters of a failure's message


@dataclass(frozen=True, slots=True)
class Question:
    """A prompt and what is needed to read its answers. ``sites``: opaque id → site, for *action*; ``lines``: of the program, for *edit*."""

    format: Format
    reasons: bool
    prompt: str
    sites: Mapping[str, str] = field(default_factory=dict)
    lines: int = 0

    @property
    def messages(self) -> list[dict[str, str]]:
        """The conversation so far, as the views have it."""
        return [{"role": "system", "content": system_prompt()}, {"role": "user", "content": self.prompt}]


def prompt_versions() -> dict[str, str]:
    """Prompt name → hash of its text, those of the views included."""
    return {**views.prompt_versions(), **{name: digest(_file(name)) for name in _FILES}}


def question(state: State, form: Format, *, reasons: bool) -> Question | None:
    """The question at a state; ``None`` when no strategy applies there any more. What is sampled comes from the state's seed."""
    rng = random.Random(state.seed)
    names = [s.name for s in registry.all_strategies() if s.family is not Family.GPU]
    listed = [s for s in list_sites(state.program, names, rng, MAX_CANDIDATES + len(state.tried)) if s.id not in state.tried]
    first = not state.history and not state.failed
    if form == "action":
        if not listed:
            return None
        sites = [s.id for s in spread(listed, rng, MAX_CANDIDATES)]
        by_name = dict(zip(opaque_ids(len(sites), state.seed), sites, strict=True))
        host = describe_host(state.host)
        if reasons:
            body = _file("action_why").format(program=state.text.strip(), host=host, candidates=list_candidates(by_name))
        else:
            body = action_prompt(state.text, host, by_name)
        return Question(form, reasons, _joined([*_context(state), body]), sites=by_name)
    facts = _file("facts").format(host=describe_host(state.host), strategies=", ".join(sorted({s.strategy for s in listed})) or "none")
    if form == "edit":
        body = _file("edit_why" if reasons else "edit").format(program=numbered(state.text))
        return Question(form, reasons, _joined([*_context(state), facts, body]), lines=len(state.text.splitlines()))
    body = free_prompt(state.text) if reasons else _file("rewrite").format(program=state.text.strip())
    return Question(form, reasons, _joined([*_context(state), *([] if first else [facts]), body]))


def numbered(text: str) -> str:
    """A program with the numbers of its lines."""
    return "\n".join(f"{n}| {line}" for n, line in enumerate(text.splitlines(), 1))


def _file(name: str) -> str:
    return prompt_file(name, "steptp.policy").strip()


def _joined(parts: list[str]) -> str:
    return "\n\n".join(parts)


def _context(state: State) -> Iterator[str]:
    """Parent, history and failures, as far as there are any."""
    if state.parent is not None:
        yield _file("parent").format(parent=state.parent.strip())
    if state.history:
        began = max(0, len(state.history) - _STEPS)
        steps = [f"{n}. {_named(t.move)}{_figures(t.ratio, t.speedup)}" for n, t in enumerate(state.history[began:], began + 1)]
        yield _file("history").format(history="\n".join(steps))
    if state.failed:
        tries = [f"- {'an answer' if f.move is None else _named(f.move)}: {f.kind}: {_cut(f.message)}" for f in state.failed[-_FAILURES:]]
        yield _file("failed").format(failed="\n".join(tries))


def _named(move: Move) -> str:
    if isinstance(move, Action):
        return move.site
    if isinstance(move, Edit):
        return f"lines {move.first}-{move.last} replaced by {len(move.lines)} lines" if move.last >= move.first else f"lines put in before line {move.first}"
    return "the whole program rewritten"


def _figures(ratio: float | None, speedup: float | None) -> str:
    if ratio is None:
        return " (not timed)"
    return f" ({ratio:.2f}x the speed" + (")" if speedup is None else f", {speedup:.2f}x of the start)")


def _cut(message: str) -> str:
    line = " ".join(message.split())
    return line if len(line) <= _MESSAGE else line[: _MESSAGE - 1] + "…"
