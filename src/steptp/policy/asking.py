"""What policies over language models have in common: the question at a state, answers that are kept, and the budget's bound."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from steptp.errors import UsageError
from steptp.ir.seeds import derive_seed, digest
from steptp.policy.answer_cache import AnswerCache
from steptp.policy.prompting import FORMS, Form, Question, prompt_versions, question
from steptp.policy.written import Lost, Written
from steptp.search.moves import Answer
from steptp.search.policy import State

__all__ = ["Asking", "Keep"]

Keep = Callable[[int, Written], None]


class Asking(ABC):
    """``cache`` is a file, shared by searches; an answer is kept by prompt, settings, seed and number, and is charged what it cost the first time, so a search
    comes out the same with or without it. Raises :class:`UsageError` ``usage-policy`` for settings that make no sense."""

    name: str

    def __init__(self, form: Form, reasons: bool, temperature: float, max_tokens: int, cache: Path | None) -> None:
        if form not in FORMS:
            raise UsageError("usage-policy", f"there is no answer format {form!r}", hint=f"formats: {', '.join(FORMS)}")
        if max_tokens < 1 or temperature < 0:
            raise UsageError("usage-policy", "max_tokens is at least 1, the temperature at least 0")
        self.form, self.reasons, self.temperature, self.max_tokens = form, reasons, temperature, max_tokens
        self.cache = AnswerCache(cache)
        self._last: tuple[State, Question | None] | None = None

    @property
    def settings(self) -> dict[str, Any]:
        return {
            "format": self.form, "reasons": self.reasons, "temperature": self.temperature, "max_tokens": self.max_tokens,
            "prompts": digest(sorted(prompt_versions().items())),
        }  # fmt: skip

    def propose(self, state: State, k: int) -> Sequence[Answer]:
        asked = self._question(state)
        if asked is None:
            return []
        about = digest(asked.prompt, asked.messages, sorted(self.settings.items()), state.seed, length=40)
        keys = [f"{about}/{n}" for n in range(k)]
        found: dict[int, Written | Lost] = {n: Written(**held) for n, key in enumerate(keys) if (held := self.cache.get(key)) is not None}
        missing = [n for n in range(k) if n not in found]

        def keep(index: int, written: Written) -> None:
            self.cache.put(keys[missing[index]], written.to_dict())

        if missing:
            seeds = tuple(derive_seed("sample", state.seed, n) for n in missing)
            found |= dict(zip(missing, self._ask(asked, seeds, keep, state.seconds_left), strict=True))
        return self._read(asked, [found[n] for n in range(k)])

    def tokens_at_most(self, state: State, k: int) -> int:
        asked = self._question(state)
        return 0 if asked is None else self._bound(asked, k)

    @abstractmethod
    def _ask(self, asked: Question, seeds: tuple[int, ...], keep: Keep, left: float | None) -> Sequence[Written | Lost]:
        """An answer for each seed, each given to ``keep`` as it arrives; ``left``: seconds."""

    @abstractmethod
    def _read(self, asked: Question, found: Sequence[Written | Lost]) -> Sequence[Answer]:
        """The moves of all answers to a question, with what each is charged."""

    @abstractmethod
    def _bound(self, asked: Question, k: int) -> int:
        """Tokens that ``k`` answers are charged at most."""

    def _question(self, state: State) -> Question | None:
        """The question at a state; the last one is kept, for the budget asks about it first."""
        if self._last is None or self._last[0] is not state:
            self._last = state, question(state, self.form, reasons=self.reasons)
        return self._last[1]
