"""What a language model is asked at a state: one step, in the words of the dataset's samples, and before it what came of the steps on the way.

The prompts are files: the questions are in ``dataset/prompts``, the rest in ``policy/prompts``.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from steptp.dataset import questions
from steptp.dataset.questions import FORMS, Form, conversation, describe_host, prompt_file, task_prompt, with_opaque_ids
from steptp.dataset.samples import Sample
from steptp.dataset.walk import MAX_CANDIDATES, list_sites, spread
from steptp.ir.edits import edited_places
from steptp.ir.seeds import digest
from steptp.rewrite import registry
from steptp.search.moves import Action, Edit, Move
from steptp.search.policy import State

__all__ = ["FORMS", "Form", "Question", "prompt_versions", "question", "sample_question"]

_FILES = ("facts", "failed", "history", "parent")
_STEPS = 12  # of the history, the last ones
_FAILURES = 8  # the last ones
_MESSAGE = 240  # characters of a failure's message


@dataclass(frozen=True, slots=True)
class Question:
    """A prompt and what is needed to read its answers. ``sites``: opaque id → site, for *action*, and ``listed``: what is shown of
    it instead, if so; ``program``: its text, for *edit* and *rewrite*."""

    format: Form
    reasons: bool
    prompt: str
    sites: Mapping[str, str] = field(default_factory=dict)
    listed: Mapping[str, str] = field(default_factory=dict)
    program: str = ""

    @property
    def lines(self) -> int:
        """Of the program."""
        return len(self.program.splitlines())

    @property
    def messages(self) -> list[dict[str, str]]:
        """The conversation so far, as the dataset's samples have it."""
        return conversation(self.prompt)


def prompt_versions() -> dict[str, str]:
    """Prompt name → hash of its text, those of the dataset included."""
    return {**questions.prompt_versions(), **{name: digest(_file(name)) for name in _FILES}}


def question(state: State, form: Form, *, reasons: bool) -> Question | None:
    """The question at a state; ``None`` when no strategy applies there any more. What is sampled comes from the state's seed."""
    rng = random.Random(state.seed)
    listed = [s for s in list_sites(state.program, registry.names_for("cpu"), rng, MAX_CANDIDATES + len(state.tried)) if s.id not in state.tried]
    if form == "action":
        if not listed:
            return None
        by_name = with_opaque_ids([s.id for s in spread(listed, rng, MAX_CANDIDATES)], state.seed)
        body = task_prompt("action", form, reasons, state.text, host=describe_host(state.host), candidates=by_name)
        return Question(form, reasons, _joined([*_context(state), body]), sites=by_name)
    before = list(_context(state))
    if before:
        before.append(_file("facts").format(host=describe_host(state.host), strategies=", ".join(sorted({s.strategy for s in listed})) or "none"))
    return Question(form, reasons, _joined([*before, task_prompt("free", form, reasons, state.text)]), program=state.text)


def sample_question(sample: Sample) -> Question:
    """The question of a dataset's sample, for reading answers to it."""
    return Question(sample.form, sample.reasons, sample.prompt, sites=sample.sites, listed=sample.listed, program=sample.program)


def _file(name: str) -> str:
    return prompt_file(name, "steptp.policy")


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
        return f"lines edited: {edited_places(move.lines)}"
    return "the whole program rewritten"


def _figures(ratio: float | None, speedup: float | None) -> str:
    if ratio is None:
        return " (not timed)"
    return f" ({ratio:.2f}x the speed" + (")" if speedup is None else f", {speedup:.2f}x of the start)")


def _cut(message: str) -> str:
    line = " ".join(message.split())
    return line if len(line) <= _MESSAGE else line[: _MESSAGE - 1] + "…"
