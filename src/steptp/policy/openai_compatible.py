"""A policy over any OpenAI-compatible endpoint: vLLM, SGLang, llama.cpp, or a hosted model.

Tokens are those that the server counts in the answers it delivers; where it counts none, the bound is charged. A request that brought no answer is charged
nothing: no server says what it cost.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from steptp.errors import UsageError
from steptp.policy.answers import answer_schema, read_answer
from steptp.policy.asking import Asking, Keep
from steptp.policy.endpoint import Endpoint, Request
from steptp.policy.prompting import Form, Question
from steptp.policy.written import Lost, Written
from steptp.search.moves import Answer, Failed

__all__ = ["POLICY", "OpenAICompatible", "tokens_at_most"]

KEY_VARIABLE = "OPENAI_API_KEY"
_AROUND = 64  # tokens of a chat template around the messages


def tokens_at_most(asked: Question, max_tokens: int, schema: dict[str, Any] | None) -> int:
    """A bound on one request's tokens: a token stands for at least one byte of the messages (and of the schema, which some servers put before them)."""
    texts = [m["content"] for m in asked.messages] + ([] if schema is None else [json.dumps(schema)])
    return sum(len(t.encode()) for t in texts) + _AROUND + max_tokens


class OpenAICompatible(Asking):
    """``base_url`` is the API's root (``http://127.0.0.1:8000/v1``; left out, OpenAI's own); the key comes from the environment variable ``key``.

    ``structured`` asks the server for JSON of a schema and goes without where it refuses. The other settings are
    those of :class:`Endpoint`. Raises :class:`UsageError`: ``usage-policy`` for settings that make no sense, ``usage-openai`` without the package.
    """

    name = "openai"

    def __init__(
        self, model: str = "", base_url: str | None = None, *, form: Form = "action", reasons: bool = False, temperature: float = 0.8,
        max_tokens: int = 1024, structured: bool = True, key: str = KEY_VARIABLE, cache: Path | None = None, timeout: float = 120.0,
        deadline: float = 300.0, tries: int = 5, parallel: int = 4,
    ) -> None:  # fmt: skip
        if not model:
            raise UsageError("usage-policy", "the policy openai needs a model's name", hint="give --model NAME (and --base-url URL for a server of your own)")
        if tries < 1 or parallel < 1:
            raise UsageError("usage-policy", "tries and parallel are at least 1")
        super().__init__(form, reasons, temperature, max_tokens, cache)
        secret = os.environ.get(key, "")
        if not secret and base_url is None:
            raise UsageError("usage-policy", f"{key} is not set", hint="put the key in it, or give --base-url for a server without keys")
        self.model, self.structured = model, structured
        self.endpoint = Endpoint(base_url, secret or "none", timeout=timeout, deadline=deadline, tries=tries, parallel=parallel)

    @property
    def settings(self) -> dict[str, Any]:
        return {"model": self.model, "structured": self.structured, **super().settings}

    def _schema(self, asked: Question) -> dict[str, Any] | None:
        return answer_schema(asked) if self.structured else None

    def _ask(self, asked: Question, seeds: tuple[int, ...], keep: Keep, left: float | None) -> Sequence[Written | Lost]:
        request = Request(self.model, asked.messages, self.temperature, self.max_tokens, seeds, self._schema(asked))
        return self.endpoint.ask(request, keep, left)

    def _read(self, asked: Question, found: Sequence[Written | Lost]) -> Sequence[Answer]:
        bound = self._bound(asked, 1)
        return _charged([_read(asked, each, bound) for each in found], bound)

    def _bound(self, asked: Question, k: int) -> int:
        return k * tokens_at_most(asked, self.max_tokens, self._schema(asked))


def _read(asked: Question, found: Written | Lost, bound: int) -> Answer:
    if isinstance(found, Lost):
        return Failed(found.code, found.message)
    return read_answer(asked, found.text, truncated=found.truncated, tokens=bound if found.tokens is None else found.tokens)


def _charged(answers: list[Answer], bound: int) -> list[Answer]:
    """The answers, unless the server used more than was announced: then it does not keep to ``max_tokens``, and none of them is taken."""
    used, granted = sum(a.tokens for a in answers), bound * len(answers)
    if used <= granted:
        return answers
    return [Failed("policy-tokens", f"the server counts {used} tokens where {granted} were the most: it does not keep to max_tokens", bound) for _ in answers]


POLICY = OpenAICompatible
