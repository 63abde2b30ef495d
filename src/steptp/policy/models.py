"""Language models in this process, through transformers: batched sampling with a seed for each sample, and grammars.

Sampling is done here and not by ``generate``: the samples of one prompt share its forward pass, each draws from its own generator, one that is finished
leaves the batch, and one that went wrong goes back.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from steptp.errors import UsageError
from steptp.policy.chat import Chat
from steptp.policy.constrained import Constraints
from steptp.policy.faults import Faults
from steptp.policy.rewinding import Rewinding
from steptp.policy.weights import dtype_of, find_weights, load_model, load_tokenizer
from steptp.policy.written import Lost, Written

if TYPE_CHECKING:
    import torch

__all__ = ["LocalModel", "LocalRequest"]


@dataclass(frozen=True, slots=True)
class LocalRequest:
    """One conversation. ``seeds``: one for each sample wanted; ``temperature`` 0 takes the likeliest token; ``grammar``: of the answers
    (:mod:`steptp.policy.grammars`); ``faults``: of the answer as far as it is written (:mod:`steptp.policy.faults`), and ``rewinds``: how often it may go back
    to one. ``max_tokens`` counts what was written and taken back too."""

    messages: Sequence[Mapping[str, str]]
    seeds: tuple[int, ...]
    temperature: float = 0.8
    max_tokens: int = 1024
    grammar: str | None = None
    faults: Faults | None = None
    rewinds: int = 0


@dataclass(slots=True)
class _Sample:
    """``at``: request and number in it; ``left``: tokens that it may still write, ``spent``: those it wrote; ``columns``: of the cache, one for each token of the
    answer that the model has read, after that of the prompt's last token."""

    at: tuple[int, int]
    prompt: tuple[int, ...]
    temperature: float
    left: int
    rng: random.Random
    matcher: Any | None
    rewinding: Rewinding | None
    tokens: list[int] = field(default_factory=list)
    columns: list[int] = field(default_factory=list)
    spent: int = 0

    @property
    def read(self) -> tuple[int, ...]:
        return (*self.prompt, *self.tokens)


class LocalModel:
    """``model``: a Hugging Face folder or name, a ``.gguf`` file, or ``smollm2``; ``adapter``: a PEFT folder. ``dtype``: ``auto``, ``float32``, ``bfloat16``
    or ``float16``; ``device``: ``auto`` (a GPU where there is one), or as torch names it. Raises :class:`UsageError` ``usage-model``."""

    def __init__(self, model: str, *, adapter: Path | None = None, dtype: str = "auto", device: str = "auto") -> None:
        self.name = model if adapter is None else f"{model}+{adapter}"
        self.weights = find_weights(model, adapter)
        self.tokenizer = load_tokenizer(self.weights)
        self._chat = Chat(self.tokenizer)
        import torch

        try:
            self.device = torch.device(device if device != "auto" else "cuda" if torch.cuda.is_available() else "cpu")
        except RuntimeError as err:
            raise UsageError("usage-model", f"there is no device {device!r}: {str(err).splitlines()[0]}") from None
        self.dtype = dtype_of(dtype, self.device.type)
        self._model = load_model(self.weights, self.dtype).to(self.device)
        text = self._model.config.get_text_config()
        self._width = int(text.vocab_size)
        self.context = min(int(getattr(text, "max_position_embeddings", None) or self.tokenizer.model_max_length), int(self.tokenizer.model_max_length))
        self._ends = frozenset(self._end_tokens())
        kinds = {*(getattr(text, "layer_types", None) or ())}
        self._can_forget = not getattr(self._model, "_is_stateful", False) and kinds <= {"full_attention"}

    def digest(self) -> str:
        """The identity of the weights and of how they are computed with."""
        return f"{self._digest}/{str(self.dtype).removeprefix('torch.')}"

    @cached_property
    def _digest(self) -> str:
        return self.weights.digest()

    def prompt_tokens(self, messages: Sequence[Mapping[str, str]]) -> int:
        """Tokens of a conversation with the template around it."""
        return len(self._chat.encoded(messages))

    def generate(
        self, requests: Sequence[LocalRequest], *, batch: int = 8, seconds: float | None = None, done: Callable[[int, int, Written], None] | None = None
    ) -> list[list[Written | Lost]]:
        """An answer for each seed of each request; ``batch`` samples at most are written at once.

        A prompt longer than the context is lost (``policy-context``), as is what is not finished after ``seconds`` (``policy-timeout``). ``done(request,
        sample, answer)`` is called as answers are finished. What a sample says depends on the weights, its request and its seed; what stands beside it in
        the batch changes no more than the rounding.
        """
        ends = None if seconds is None else time.monotonic() + seconds
        out: dict[tuple[int, int], Written | Lost] = {}

        def note(sample: _Sample, truncated: bool) -> None:
            tokens = sample.tokens[:-1] if sample.tokens and sample.tokens[-1] in self._ends else sample.tokens
            made = Written(self._text(tokens), truncated, sample.spent)
            out[sample.at] = made
            if done is not None:
                done(*sample.at, made)

        waiting = list(self._samples(requests, out))
        while waiting:
            again: list[_Sample] = []
            for group in _batches(waiting, batch):
                for sample in self._decode(group, ends, note, again):
                    out[sample.at] = Lost("policy-timeout", f"not finished after {seconds:.3g} seconds" if seconds is not None else "not finished")
            waiting = again
        return [[out[r, n] for n in range(len(request.seeds))] for r, request in enumerate(requests)]

    # prompts

    def _samples(self, requests: Sequence[LocalRequest], out: dict[tuple[int, int], Written | Lost]) -> Iterator[_Sample]:
        for r, request in enumerate(requests):
            prompt = tuple(self._chat.encoded(request.messages))
            room = self.context - len(prompt)
            for n, seed in enumerate(request.seeds):
                if room < 1:
                    out[r, n] = Lost("policy-context", f"the prompt has {len(prompt)} tokens, the model's context {self.context}")
                    continue
                matcher = None if request.grammar is None else self._constraints.matcher(request.grammar)
                rewinding = None if request.faults is None or not request.rewinds else Rewinding(request.faults, request.rewinds, self._text)
                yield _Sample((r, n), prompt, request.temperature, min(request.max_tokens, room), random.Random(seed), matcher, rewinding)

    @cached_property
    def _constraints(self) -> Constraints:
        return Constraints(self.tokenizer, self._width, sorted(self._ends))

    def _end_tokens(self) -> Iterator[int]:
        """What ends an answer: the model's and the tokenizer's end tokens, and what the template puts after an answer."""
        own = None if self._model.generation_config is None else self._model.generation_config.eos_token_id
        yield from own if isinstance(own, list) else [] if own is None else [own]
        if self.tokenizer.eos_token_id is not None:
            yield self.tokenizer.eos_token_id
        yield self._chat.end_of_turn

    def _text(self, tokens: Sequence[int]) -> str:
        return str(self.tokenizer.decode(list(tokens), skip_special_tokens=True, clean_up_tokenization_spaces=False))

    # decoding

    def _decode(self, samples: list[_Sample], ends: float | None, note: Callable[[_Sample, bool], None], again: list[_Sample]) -> list[_Sample]:
        """Write a batch to its end; what is returned was not finished in time, what is put into ``again`` went back where the cache cannot."""
        import torch

        with torch.inference_mode():
            prompts = list(dict.fromkeys(s.read for s in samples))
            longest = max(map(len, prompts))
            pad = next(iter(self._ends))
            ids = torch.tensor([[pad] * (longest - len(p)) + list(p) for p in prompts])
            mask = torch.tensor([[0] * (longest - len(p)) + [1] * len(p) for p in prompts])
            first = self._forward(ids, mask, (mask.cumsum(1) - 1).clamp(min=0), None)
            rows = torch.tensor([prompts.index(s.read) for s in samples])
            scores, cache, mask = first.logits[:, -1][rows.to(self.device)], first.cache, mask[rows]
            cache.reorder_cache(rows.to(self.device))
            for sample in samples:
                sample.columns = list(range(longest - 1 - len(sample.tokens), longest))
            while True:
                chosen = self._choose(scores, samples)
                kept: list[int] = []
                for row, (sample, token) in enumerate(zip(samples, chosen, strict=True)):
                    sample.tokens.append(token)
                    sample.left -= 1
                    sample.spent += 1
                    back = self._back(sample, token)
                    if back is not None:
                        self._forget(sample, back, mask[row])
                    if sample.left == 0:
                        note(sample, token not in self._ends or back is not None)
                    elif back is not None and not self._can_forget:
                        again.append(sample)
                    elif back is None and token in self._ends:
                        note(sample, False)
                    else:
                        if back is None and sample.matcher is not None:
                            sample.matcher.consume_token(token)
                        kept.append(row)
                if len(kept) < len(samples):
                    samples = [samples[row] for row in kept]
                    if not samples:
                        return []
                    cache.reorder_cache(torch.tensor(kept, device=self.device))
                    mask = mask[kept]
                if ends is not None and time.monotonic() >= ends:
                    return samples
                for sample in samples:
                    sample.columns.append(mask.shape[1])
                mask = torch.cat([mask, torch.ones(len(samples), 1, dtype=mask.dtype)], 1)
                made = self._forward(torch.tensor([[s.read[-1]] for s in samples]), mask, mask.sum(1, keepdim=True) - 1, cache)
                scores, cache = made.logits[:, -1], made.cache

    def _back(self, sample: _Sample, token: int) -> int | None:
        """How many tokens stay of an answer that went wrong. It is looked at when a line or the whole is finished."""
        if sample.rewinding is None or not (token in self._ends or "\n" in self._text([token])):
            return None
        return sample.rewinding.back_to(sample.tokens, token in self._ends)

    def _forget(self, sample: _Sample, back: int, mask: torch.Tensor) -> None:
        """Cut an answer. Its last token is read anew, for what comes after it is not kept; in the cache nobody sees any more what was cut."""
        if sample.matcher is not None and len(sample.tokens) - 1 > back:
            sample.matcher.rollback(len(sample.tokens) - 1 - back)
        del sample.tokens[back:]
        mask[sample.columns[back:]] = 0
        del sample.columns[back:]

    def _forward(self, ids: torch.Tensor, mask: torch.Tensor, positions: torch.Tensor, cache: Any) -> Any:
        return self._model(
            input_ids=ids.to(self.device), attention_mask=mask.to(self.device), position_ids=positions.to(self.device), cache=cache,
            use_cache=True, logits_to_keep=1,
        )  # fmt: skip

    def _choose(self, scores: torch.Tensor, samples: list[_Sample]) -> list[int]:
        """The next token of each sample: by inverting the distribution at one number of the sample's own generator."""
        import torch

        scores = scores.double()
        if any(s.matcher is not None for s in samples):
            scores = scores.masked_fill(~self._constraints.allowed([s.matcher for s in samples]).to(self.device), -torch.inf)
        unbarred = torch.log_softmax(scores, 1) if any(s.rewinding is not None for s in samples) else None
        for row, sample in enumerate(samples):
            barred = () if sample.rewinding is None else sorted(sample.rewinding.barred(sample.tokens))
            if barred:
                others = scores[row].clone()
                others[list(barred)] = -torch.inf
                if bool(others.isfinite().any()):  # a grammar may leave nothing else
                    scores[row] = others
        likeliest: list[int] = scores.argmax(1).tolist()
        if all(s.temperature == 0 for s in samples):
            return self._noted(samples, likeliest, unbarred)
        heat = torch.tensor([[s.temperature or 1.0] for s in samples], dtype=torch.float64, device=self.device)
        below = torch.softmax(scores / heat, 1).cumsum(1)
        drawn = torch.tensor([[s.rng.random()] for s in samples], dtype=torch.float64, device=self.device) * below[:, -1:]
        drawn = torch.minimum(drawn, torch.nextafter(below[:, -1:], torch.zeros_like(drawn)))  # strictly below the end, so never a token of probability 0
        found: list[int] = torch.searchsorted(below, drawn, right=True)[:, 0].tolist()
        chosen = [best if s.temperature == 0 else token for s, best, token in zip(samples, likeliest, found, strict=True)]
        return self._noted(samples, chosen, unbarred)

    @staticmethod
    def _noted(samples: list[_Sample], chosen: list[int], unbarred: torch.Tensor | None) -> list[int]:
        """The chosen tokens; samples that may go back remember how sure the model was of them."""
        for row, (sample, token) in enumerate(zip(samples, chosen, strict=True)):
            if sample.rewinding is not None and unbarred is not None:
                sample.rewinding.sure.append(float(unbarred[row, token].exp()))
        return chosen


def _batches(samples: list[_Sample], size: int) -> Iterator[list[_Sample]]:
    """Neighbours in length together, long ones first: what does not fit in memory fails at once."""
    ordered = sorted(samples, key=lambda s: (-len(s.read), s.at))
    for start in range(0, len(ordered), size):
        yield ordered[start : start + size]
