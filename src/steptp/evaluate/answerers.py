"""Who answers questions: a model in this process or behind an API, or a rule without weights."""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from steptp.analysis.host import HostInfo
from steptp.dataset.samples import Sample, samples_of
from steptp.dataset.store import Dataset
from steptp.dataset.walk import MAX_CANDIDATES, list_sites, spread
from steptp.errors import LeirError, UsageError
from steptp.evaluate.states import Asked
from steptp.ir import parse
from steptp.ir.seeds import derive_seed
from steptp.policy.answers import read_answer
from steptp.policy.prompting import sample_question
from steptp.policy.written import Lost, Written
from steptp.rewrite import registry
from steptp.rewrite.base import Family
from steptp.search.moves import Action, Answer, Failed, Proposal, Rewrite

__all__ = ["RULES", "Answerer", "LocalAnswerer", "RuleAnswerer", "ServedAnswerer", "Wanted"]

Wanted = tuple[Asked, int]
"""A question and the number of the sample: 0 is greedy, the others are drawn."""


class Answerer(ABC):
    """``answer`` gives every answer to ``done(place in wanted, raw)`` as soon as it is there; ``read`` makes a move of what was given."""

    name: str
    deterministic = False

    @property
    @abstractmethod
    def settings(self) -> dict[str, Any]:
        """What answers depend on, apart from question and sample."""

    @abstractmethod
    def answer(self, wanted: Sequence[Wanted], done: Callable[[int, dict[str, Any]], None]) -> None: ...

    def read(self, asked: Asked, raw: dict[str, Any]) -> Answer:
        """The move in an answer, or why there is none."""
        if "lost" in raw:
            return Failed(*raw["lost"])
        return read_answer(sample_question(asked.sample), raw["text"], truncated=raw["truncated"], tokens=raw["tokens"] or 0)


def _raw(answer: Written | Lost) -> dict[str, Any]:
    if isinstance(answer, Lost):
        return {"lost": [answer.code, answer.message]}
    return {"text": answer.text, "truncated": answer.truncated, "tokens": answer.tokens}


def _seed(seed: int, asked: Asked, number: int) -> int:
    return derive_seed("sample", seed, asked.sample.id, number)


class LocalAnswerer(Answerer):
    """A model in this process (:class:`steptp.policy.models.LocalModel`); ``constrained`` keeps answers to the grammar of the question."""

    name = "local"

    def __init__(
        self,
        model: str,
        *,
        adapter: Path | None = None,
        constrained: bool = True,
        temperature: float = 0.8,
        max_tokens: int = 512,
        batch: int = 8,
        seed: int = 0,
    ) -> None:
        if not model:
            raise UsageError("usage-policy", "the policy local needs a model", hint="give --model with a model folder, a .gguf file or smollm2")
        from steptp.policy.models import LocalModel

        self.model = LocalModel(model, adapter=adapter)
        self.constrained, self.temperature, self.max_tokens, self.batch, self.seed = constrained, temperature, max_tokens, batch, seed

    @property
    def settings(self) -> dict[str, Any]:
        names = ("constrained", "temperature", "max_tokens", "seed")
        return {"model": self.model.name, "digest": self.model.digest(), **{name: getattr(self, name) for name in names}}

    def answer(self, wanted: Sequence[Wanted], done: Callable[[int, dict[str, Any]], None]) -> None:
        from steptp.policy.grammars import grammar
        from steptp.policy.models import LocalRequest

        requests = [
            LocalRequest(
                asked.messages, (_seed(self.seed, asked, number),), self.temperature if number else 0.0, self.max_tokens,
                grammar(sample_question(asked.sample)) if self.constrained else None,
            )
            for asked, number in wanted
        ]  # fmt: skip
        found = self.model.generate(requests, batch=self.batch, done=lambda place, _, written: done(place, _raw(written)))
        for place, answers in enumerate(found):
            if isinstance(answers[0], Lost):
                done(place, _raw(answers[0]))


class ServedAnswerer(Answerer):
    """A model behind an OpenAI-compatible API; ``structured`` asks for JSON of the answer's schema."""

    name = "openai"

    def __init__(
        self, model: str, *, base_url: str | None = None, structured: bool = True, temperature: float = 0.8, max_tokens: int = 1024, seed: int = 0
    ) -> None:
        from steptp.policy.openai_compatible import OpenAICompatible

        self.endpoint = OpenAICompatible(model, base_url, max_tokens=max_tokens, structured=structured).endpoint  # which checks the settings and finds the key
        self.endpoint.check()
        self.model, self.base_url = model, base_url
        self.structured, self.temperature, self.max_tokens, self.seed = structured, temperature, max_tokens, seed

    @property
    def settings(self) -> dict[str, Any]:
        names = ("model", "base_url", "structured", "temperature", "max_tokens", "seed")
        return {name: getattr(self, name) for name in names}

    def answer(self, wanted: Sequence[Wanted], done: Callable[[int, dict[str, Any]], None]) -> None:
        from steptp.policy.answers import answer_schema
        from steptp.policy.endpoint import Request

        for place, (asked, number) in enumerate(wanted):
            shape = answer_schema(sample_question(asked.sample)) if self.structured else None
            heat = self.temperature if number else 0.0
            request = Request(self.model, asked.messages, heat, self.max_tokens, (_seed(self.seed, asked, number),), shape)
            (found,) = self.endpoint.ask(request, lambda index, written: None)
            done(place, _raw(found))


class RuleAnswerer(Answerer):
    """A baseline without weights, by name (:data:`RULES`). *action*: one of the listed candidates, or staying put; else a site of the engine."""

    deterministic = True

    def __init__(self, name: str, data: Dataset, *, seed: int = 0) -> None:
        if name not in RULES:
            raise UsageError("usage-policy", f"there is no policy {name!r} to evaluate", hint=f"policies: local, openai, {', '.join(RULES)}")
        self.name, self.seed = name, seed
        self.deterministic = name != "random"
        self._host = HostInfo.from_dict(data.info["host_info"])
        self._prior = _prior(data) if name == "prior" else {}

    @property
    def settings(self) -> dict[str, Any]:
        return {"seed": self.seed}

    def answer(self, wanted: Sequence[Wanted], done: Callable[[int, dict[str, Any]], None]) -> None:
        for place, (asked, number) in enumerate(wanted):
            done(place, {"site": self._site(asked.sample, number)})

    def read(self, asked: Asked, raw: dict[str, Any]) -> Answer:
        return Proposal(Rewrite(asked.sample.program) if raw["site"] is None else Action(raw["site"]))

    def _site(self, sample: Sample, number: int) -> str | None:
        if self.name == "copy" or sample.task == "named":
            return None
        rng = random.Random(_seed(self.seed, Asked(sample), number))
        sites = sorted(sample.sites.values()) if sample.task == "action" else list(_listed(sample, rng))
        if self.name == "random":
            return rng.choice(sites) if sites else None
        if self.name == "heuristic":
            return self._modelled(sample, sites)
        if self.name == "prior":
            return max(sites, key=lambda s: (self._prior.get(_strategy(s), 0.0), s), default=None)
        wanted = {"unroll": "loop_unrolling", "parallelise": "loop_parallelization"}[self.name]
        return next((s for s in sites if _strategy(s) == wanted), None)

    def _modelled(self, sample: Sample, sites: Sequence[str]) -> str | None:
        """The candidate that the roofline model of the heuristic expects to be fastest, where it expects a gain."""
        from steptp.policy.roofline import predicted_cycles
        from steptp.rewrite import engine
        from steptp.rewrite.base import NotApplicable

        program = parse(sample.program)
        threads = max(self._host.cores, 1)
        best: tuple[float, str | None] = (predicted_cycles(program, self._host, threads), None)
        for site in sites:
            made = engine.apply(program, site)
            if isinstance(made, NotApplicable):
                continue
            try:
                best = min(best, (predicted_cycles(made.program, self._host, threads), site), key=lambda row: row[0])
            except LeirError:
                continue
        return best[1]


RULES = ("copy", "unroll", "parallelise", "prior", "random", "heuristic")
"""``copy``: the program as it is; ``unroll`` and ``parallelise``: the first such site; ``prior``: a site of the strategy that was best most often where it was
on offer in the train split; ``random``: uniform; ``heuristic``: what the roofline model of the policy of that name expects to be fastest."""


def _strategy(site: str) -> str:
    return site.partition("@")[0]


def _listed(sample: Sample, rng: random.Random) -> Iterator[str]:
    names = [s.name for s in registry.all_strategies() if s.family is not Family.GPU]
    for site in spread(list_sites(parse(sample.program), names, rng, MAX_CANDIDATES), rng, MAX_CANDIDATES):
        yield site.id


def _prior(data: Dataset) -> dict[str, float]:
    """Strategy → how often it was the best measured sibling, of the states of the train split where it was on offer."""
    offered: Counter[str] = Counter()
    best: Counter[str] = Counter()
    for sample in samples_of(data, "action", "action", reasons=False, split="train"):
        offered.update({_strategy(site) for site in sample.sites.values()})
        best[sample.strategy] += 1
    return {name: best[name] / offered[name] for name in offered}
