"""A policy over a language model in this process; its answers keep to a grammar, and go back where they leave what a program may be.

Tokens are counted by the model's own tokenizer: the prompt once a question (its first answer bears it), and what each answer wrote.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from steptp.errors import UsageError
from steptp.policy.answers import read_answer
from steptp.policy.asking import Asking, Keep
from steptp.policy.faults import faults_of
from steptp.policy.grammars import grammar
from steptp.policy.models import LocalModel, LocalRequest
from steptp.policy.prompting import Form, Question
from steptp.policy.written import Lost, Written
from steptp.search.moves import Answer, Failed

__all__ = ["POLICY", "Local", "request_for"]


def request_for(asked: Question, seeds: tuple[int, ...], temperature: float, max_tokens: int, *, constrained: bool, rewinds: int) -> LocalRequest:
    """What a local model is asked for a question; the settings are those of :class:`Local`."""
    return LocalRequest(asked.messages, seeds, temperature, max_tokens, grammar(asked) if constrained else None, faults_of(asked) if rewinds else None, rewinds)


class Local(Asking):
    """``model`` and the settings after ``constrained`` are those of :class:`LocalModel`; ``batch``: samples written at once. ``constrained`` keeps answers to
    the grammar of the question; ``rewinds``: how often an answer may go back to a fault (:mod:`steptp.policy.faults`). Raises :class:`UsageError`:
    ``usage-policy`` for settings that make no sense, ``usage-model`` for weights that are not there.
    """

    name = "local"

    def __init__(
        self, model: str = "", *, form: Form = "action", reasons: bool = False, temperature: float = 0.8, max_tokens: int = 1024, constrained: bool = True,
        rewinds: int = 24, adapter: Path | None = None, dtype: str = "auto", device: str = "auto", batch: int = 8, cache: Path | None = None,
    ) -> None:  # fmt: skip
        if not model:
            raise UsageError("usage-policy", "the policy local needs a model", hint="give --model with a model folder, a .gguf file or smollm2")
        if batch < 1 or rewinds < 0:
            raise UsageError("usage-policy", "a batch has at least 1 sample, rewinds are at least 0")
        super().__init__(form, reasons, temperature, max_tokens, cache)
        self.model = LocalModel(model, adapter=adapter, dtype=dtype, device=device)
        self.constrained, self.rewinds, self.batch = constrained, rewinds, batch

    @property
    def settings(self) -> dict[str, Any]:
        return {"model": self.model.digest(), "constrained": self.constrained, "rewinds": self.rewinds, **super().settings}

    def _ask(self, asked: Question, seeds: tuple[int, ...], keep: Keep, left: float | None) -> Sequence[Written | Lost]:
        request = request_for(asked, seeds, self.temperature, self.max_tokens, constrained=self.constrained, rewinds=self.rewinds)
        return self.model.generate([request], batch=self.batch, seconds=left, done=lambda _, index, written: keep(index, written))[0]

    def _read(self, asked: Question, found: Sequence[Written | Lost]) -> Sequence[Answer]:
        owed = self.model.prompt_tokens(asked.messages)
        answers: list[Answer] = []
        for each in found:
            if isinstance(each, Lost):
                answers.append(Failed(each.code, each.message))
                continue
            answers.append(read_answer(asked, each.text, truncated=each.truncated, tokens=owed + (each.tokens or 0)))
            owed = 0
        return answers

    def _bound(self, asked: Question, k: int) -> int:
        return self.model.prompt_tokens(asked.messages) + k * self.max_tokens


POLICY = Local
