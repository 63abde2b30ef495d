"""A policy over any OpenAI-compatible endpoint: vLLM, SGLang, llama.cpp, or a hosted model.

Tokens are those that the server counts in the answers it delivers; where it counts none, the bound is charged. A request that brought no answer is charged
nothing: no server says what it cost. Answers from the cache are charged what they cost the first time, so a search comes out the same with or without it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from steptp.errors import UsageError
from steptp.ir.seeds import derive_seed, digest
from steptp.policy.answer_cache import AnswerCache
from steptp.policy.answers import answer_schema, read_answer
from steptp.policy.endpoint import Endpoint, Lost, Request, Written
from steptp.policy.prompting import FORMS, Form, Question, prompt_versions, question
from steptp.search.moves import Answer, Failed
from steptp.search.policy import State

__all__ = ["POLICY", "OpenAICompatible", "tokens_at_most"]

KEY_VARIABLE = "OPENAI_API_KEY"
_AROUND = 64  # tokens of a chat template around the messages


def tokens_at_most(asked: Question, max_tokens: int, schema: dict[str, Any] | None) -> int:
    """A bound on one request's tokens: a token stands for at least one byte of the messages (and of the schema, which some servers put before them)."""
    texts = [m["content"] for m in asked.messages] + ([] if schema is None else [json.dumps(schema)])
    return sum(len(t.encode()) for t in texts) + _AROUND + max_tokens


class OpenAICompatible:
    """``base_url`` is the API's root (``http://127.0.0.1:8000/v1``; left out, OpenAI's own); the key comes from the environment variable ``key``.

    ``structured`` asks the server for JSON of a schema and goes without where it refuses. ``cache`` is a file, shared by searches. The other settings are
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
        if form not in FORMS:
            raise UsageError("usage-policy", f"there is no answer format {form!r}", hint=f"formats: {', '.join(FORMS)}")
        if max_tokens < 1 or tries < 1 or parallel < 1 or temperature < 0:
            raise UsageError("usage-policy", "max_tokens, tries and parallel are at least 1, the temperature is at least 0")
        secret = os.environ.get(key, "")
        if not secret and base_url is None:
            raise UsageError("usage-policy", f"{key} is not set", hint="put the key in it, or give --base-url for a server without keys")
        self.model, self.form, self.reasons, self.structured = model, form, reasons, structured
        self.temperature, self.max_tokens = temperature, max_tokens
        self.endpoint = Endpoint(base_url, secret or "none", timeout=timeout, deadline=deadline, tries=tries, parallel=parallel)
        self.cache = AnswerCache(cache)
        self._last: tuple[State, Question | None] | None = None

    @property
    def settings(self) -> dict[str, Any]:
        return {
            "model": self.model, "format": self.form, "reasons": self.reasons, "temperature": self.temperature, "max_tokens": self.max_tokens,
            "structured": self.structured, "prompts": digest(sorted(prompt_versions().items())),
        }  # fmt: skip

    def propose(self, state: State, k: int) -> Sequence[Answer]:
        asked = self._question(state)
        if asked is None:
            return []
        schema = answer_schema(asked) if self.structured else None
        bound = tokens_at_most(asked, self.max_tokens, schema)
        about = digest(asked.prompt, asked.messages, sorted(self.settings.items()), state.seed, length=40)
        keys = [f"{about}/{n}" for n in range(k)]
        found: dict[int, Written | Lost] = {n: Written(**held) for n, key in enumerate(keys) if (held := self.cache.get(key)) is not None}
        missing = [n for n in range(k) if n not in found]

        def keep(index: int, written: Written) -> None:
            self.cache.put(keys[missing[index]], {"text": written.text, "truncated": written.truncated, "tokens": written.tokens})

        if missing:
            seeds = tuple(derive_seed("sample", state.seed, n) for n in missing)
            request = Request(self.model, asked.messages, self.temperature, self.max_tokens, seeds, schema)
            found |= dict(zip(missing, self.endpoint.ask(request, keep, state.seconds_left), strict=True))
        return _charged([_read(asked, found[n], bound) for n in range(k)], bound)

    def tokens_at_most(self, state: State, k: int) -> int:
        asked = self._question(state)
        return 0 if asked is None else k * tokens_at_most(asked, self.max_tokens, answer_schema(asked) if self.structured else None)

    def _question(self, state: State) -> Question | None:
        """The question at a state; the last one is kept, for the budget asks about it first."""
        if self._last is None or self._last[0] is not state:
            self._last = state, question(state, self.form, reasons=self.reasons)
        return self._last[1]


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
