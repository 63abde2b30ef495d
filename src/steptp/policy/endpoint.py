"""One question to an OpenAI-compatible server: bounded parallel requests, retries, a total deadline, and what the server takes.

What goes wrong is a value (:class:`Lost`), never an exception. Requests run on an event loop of their own, so they can be cancelled and the caller may have
a loop running (a notebook).
"""

from __future__ import annotations

import asyncio
import random
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from concurrent import futures
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any, TypeVar

from steptp.errors import UsageError
from steptp.policy.written import Lost, Written

if TYPE_CHECKING:
    import openai

__all__ = ["Endpoint", "Request"]

T = TypeVar("T")
_FIRST_WAIT = 0.5
_LONGEST_WAIT = 20.0
_REFUSED = (400, 404, 405, 415, 422, 501)  # what servers answer to a field that they do not take


@dataclass(frozen=True, slots=True)
class Request:
    """``seeds``: one for each sample wanted."""

    model: str
    messages: Sequence[Any]
    temperature: float
    max_tokens: int
    seeds: tuple[int, ...]
    schema: dict[str, Any] | None = None


class Endpoint:
    """A server. ``deadline``: seconds for all of a question's requests together; ``timeout``: for one; ``tries``: of one request; ``parallel``: at once.

    Whether the server takes ``n``, ``response_format`` and ``seed`` is found out by asking: a field that it refuses is left out from then on.
    """

    def __init__(self, base_url: str | None, key: str, *, timeout: float = 120.0, deadline: float = 300.0, tries: int = 5, parallel: int = 4) -> None:
        try:
            import openai
        except ModuleNotFoundError as err:
            raise UsageError("usage-openai", f"this policy needs the package openai ({err})", hint="pip install 'steptp[llm]'") from None
        self._openai, self._base_url, self._key = openai, base_url, key
        self.timeout, self.deadline, self.tries, self.parallel = timeout, deadline, tries, parallel
        self._without: set[str] = set()
        self._loop = _Loop()
        self._kept: openai.AsyncOpenAI | None = None

    def ask(self, request: Request, done: Callable[[int, Written], None], left: float | None = None) -> list[Written | Lost]:
        """An answer for each seed, in their order; ``done(index, answer)`` is called as they arrive. ``left``: seconds, where that is less than the deadline."""
        return self._loop.run(self._ask(request, done, self.deadline if left is None else min(left, self.deadline)))

    def check(self) -> None:
        """Raise :class:`UsageError` ``usage-endpoint`` when nothing listens there or the key is refused."""
        self._loop.run(self._check())

    async def _check(self) -> None:
        hint = "give the server's address with --base-url (it usually ends in /v1) and its key in the environment"
        client = self._client()
        try:
            await client.with_options(timeout=min(self.timeout, 20.0)).models.list()
        except self._openai.APIConnectionError as err:
            raise UsageError("usage-endpoint", f"no answer from {client.base_url}: {_reason(err)}", hint=hint) from None
        except (self._openai.AuthenticationError, self._openai.PermissionDeniedError) as err:
            raise UsageError("usage-endpoint", f"{client.base_url} refuses the key: {_reason(err)}", hint=hint) from None
        except self._openai.OpenAIError:
            pass  # not every server lists its models

    def _client(self) -> openai.AsyncOpenAI:
        if self._kept is None:  # its certificates take longer to load than a question
            self._kept = self._openai.AsyncOpenAI(base_url=self._base_url, api_key=self._key, max_retries=0, timeout=self.timeout)
        return self._kept

    async def _ask(self, request: Request, done: Callable[[int, Written], None], seconds: float) -> list[Written | Lost]:
        out: dict[int, Written | Lost] = {}
        ends = time.monotonic() + seconds

        def note(index: int, answer: Written | Lost) -> None:
            out[index] = answer
            if isinstance(answer, Written):
                done(index, answer)

        client = self._client()
        wanted, refused = list(range(len(request.seeds))), False
        if len(wanted) > 1 and "n" not in self._without:
            found = await self._sent(client, request, request.seeds[0], len(wanted), ends)
            if isinstance(found, Lost):
                refused = found.code == "policy-refused"
                if not refused and found.code != "policy-server":  # llama.cpp answers 500 when one sample of several breaks its format
                    return [found for _ in wanted]
            else:
                for index, answer in enumerate(found[: len(wanted)]):
                    note(index, answer)
                if len(found) < len(wanted):
                    self._without.add("n")  # taken and ignored
        gate = asyncio.Semaphore(self.parallel)

        async def one(index: int) -> None:
            async with gate:
                found = await self._sent(client, request, request.seeds[index], 1, ends)
            note(index, found if isinstance(found, Lost) else found[0])

        await asyncio.gather(*(one(index) for index in wanted if index not in out))
        if refused and any(isinstance(answer, Written) for answer in out.values()):
            self._without.add("n")
        return [out[index] for index in wanted]

    async def _sent(self, client: openai.AsyncOpenAI, request: Request, seed: int, n: int, ends: float) -> list[Written] | Lost:
        """One request, sent again without the fields that the server refuses. A request for several is given up instead when ``n`` may be the reason."""
        dropped: list[str] = []
        while True:
            fields: dict[str, Any] = {"n": n} if n > 1 else {}
            if request.schema is not None and "response_format" not in {*self._without, *dropped}:
                fields["response_format"] = {"type": "json_schema", "json_schema": {"name": "step", "strict": True, "schema": request.schema}}
            if "seed" not in {*self._without, *dropped}:
                fields["seed"] = seed % (1 << 31)

            async def call(fields: dict[str, Any] = fields) -> list[Written]:
                made = await client.chat.completions.create(
                    model=request.model, messages=list(request.messages), temperature=request.temperature, max_tokens=request.max_tokens, **fields
                )  # fmt: skip
                return _written(made, n)

            found = await self._tried(call, ends)
            if not isinstance(found, Lost) or found.code != "policy-refused":
                if not isinstance(found, Lost):
                    self._without.update(dropped)
                return found
            if n > 1 and not any(name in found.message for name in ("response_format", "json_schema", "seed")):
                return found
            optional = [name for name in ("response_format", "seed") if name in fields]
            if not optional:
                return found
            dropped.append(next((name for name in optional if name in found.message), optional[0]))

    async def _tried(self, call: Callable[[], Awaitable[list[Written]]], ends: float) -> list[Written] | Lost:
        """A request, again after what may pass: 429 (as long as the server says), 5xx, a lost connection, a timeout. The deadline covers waits, too."""
        lost = Lost("policy-timeout", "the question's time was over before it was asked")
        for number in range(self.tries):
            left = ends - time.monotonic()
            if left <= 0:
                return lost
            try:
                async with asyncio.timeout(min(left, self.timeout)):
                    return await call()
            except (TimeoutError, self._openai.APITimeoutError):
                lost, wait = Lost("policy-timeout", f"no answer within {min(left, self.timeout):.3g} seconds"), 0.0
            except self._openai.RateLimitError as err:
                lost = Lost("policy-rate", f"the server takes no more requests for now: {_reason(err)}")
                wait = _asked_wait(err.response.headers.get("retry-after")) or _backoff(number)
            except (self._openai.AuthenticationError, self._openai.PermissionDeniedError) as err:
                return Lost("policy-key", f"the server refuses the key: {_reason(err)}")
            except self._openai.APIStatusError as err:
                lost = Lost("policy-refused" if err.status_code in _REFUSED else "policy-server", f"the server answers {err.status_code}: {_reason(err)}")
                if err.status_code == 501 or (err.status_code < 500 and err.status_code not in (408, 409)):
                    return lost
                wait = _asked_wait(err.response.headers.get("retry-after")) or _backoff(number)
            except self._openai.APIConnectionError as err:
                lost, wait = Lost("policy-connection", f"the connection failed: {_reason(err)}"), _backoff(number)
            except (self._openai.OpenAIError, ValueError, TypeError, LookupError, AttributeError) as err:
                lost, wait = Lost("policy-server", f"the server's answer is no chat completion: {_reason(err)}"), _backoff(number)
            if number + 1 == self.tries or wait >= ends - time.monotonic():
                return lost
            await asyncio.sleep(wait)
        return lost


_LOOK_S = 0.2


class _Loop:
    """An event loop in a thread of its own, started on first use."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
            threading.Thread(target=self._loop.run_forever, name="steptp-endpoint", daemon=True).start()
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            while not futures.wait([future], timeout=_LOOK_S).done:
                pass  # the system may give a Ctrl-C to another thread; this one handles it when it wakes
            return future.result()
        except BaseException:  # Ctrl-C: the requests end, too
            future.cancel()
            raise


def _written(completion: Any, n: int) -> list[Written]:
    """The choices of a completion, ``n`` at most, with what each cost: the prompt once, the rest in equal shares."""
    choices, usage = completion.choices[:n], completion.usage
    if not choices:
        raise ValueError("it has no choices")
    total = None if usage is None else max(0, int(usage.total_tokens or (usage.prompt_tokens + usage.completion_tokens)))
    shares: list[int | None] = [None] * len(choices)
    if total is not None:
        prompt = min(max(0, int(usage.prompt_tokens)), total)
        share, rest = divmod(total - prompt, len(choices))
        shares = [share + (prompt + rest if n == 0 else 0) for n in range(len(choices))]
    return [Written(c.message.content or "", c.finish_reason == "length", s) for c, s in zip(choices, shares, strict=True)]


def _asked_wait(header: str | None) -> float:
    """Seconds that a ``Retry-After`` header asks for: a number or a date; 0 without one."""
    if not header:
        return 0.0
    try:
        return max(0.0, float(header))
    except ValueError:
        pass
    try:
        return max(0.0, parsedate_to_datetime(header).timestamp() - time.time())
    except (ValueError, TypeError):
        return 0.0


def _backoff(number: int) -> float:
    return min(_FIRST_WAIT * 2.0**number, _LONGEST_WAIT) * random.uniform(0.75, 1.0)


def _reason(err: BaseException) -> str:
    cause = err.__cause__ if err.__cause__ is not None else err
    text = " ".join(str(cause).split()) or type(cause).__name__
    return text if len(text) <= 300 else text[:299] + "…"
