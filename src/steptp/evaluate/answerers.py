"""Who answers questions: a model in this process or behind an API, or a rule without weights."""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from steptp.analysis.host import HostInfo
from steptp.dataset.samples import Sample, samples_of
from steptp.dataset.store import Dataset
from steptp.dataset.walk import MAX_CANDIDATES, list_sites, spread
from steptp.errors import UsageError
from steptp.evaluate.states import Asked
from steptp.ir import parse
from steptp.ir.seeds import derive_seed
from steptp.policy.answers import read_answer
from steptp.policy.prompting import Question, sample_question
from steptp.policy.written import Lost, Written
from steptp.rewrite import registry
from steptp.rewrite.base import Site
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
    return answer.to_dict()


def _seed(seed: int, asked: Asked, number: int) -> int:
    return derive_seed("sample", seed, asked.sample.id, number)


@dataclass(frozen=True, slots=True)
class _Batch:
    """The samples of one question at one temperature. ``places``: theirs in what was wanted."""

    asked: Asked
    temperature: float
    places: tuple[int, ...]
    seeds: tuple[int, ...]

    @property
    def question(self) -> Question:
        return sample_question(self.asked.sample)

    def tell(self, done: Callable[[int, dict[str, Any]], None], n: int, answer: Written | Lost) -> None:
        """Give the ``n``-th answer to who wanted it."""
        done(self.places[n], _raw(answer))

    def tell_lost(self, done: Callable[[int, dict[str, Any]], None], answers: Sequence[Written | Lost]) -> None:
        """What was lost; what was written has been told as it arrived."""
        for n, answer in enumerate(answers):
            if isinstance(answer, Lost):
                self.tell(done, n, answer)


def _batches(wanted: Sequence[Wanted], temperature: float, seed: int) -> list[_Batch]:
    """A question is put once for its greedy answer and once for all drawn ones."""
    groups: dict[tuple[str, bool], list[int]] = defaultdict(list)
    for place, (asked, number) in enumerate(wanted):
        groups[asked.sample.id, number > 0].append(place)
    return [
        _Batch(wanted[places[0]][0], temperature if drawn else 0.0, tuple(places), tuple(_seed(seed, *wanted[place]) for place in places))
        for (_, drawn), places in groups.items()
    ]


class LocalAnswerer(Answerer):
    """A model in this process (:class:`steptp.policy.models.LocalModel`); ``constrained`` keeps answers to the grammar of the question, ``rewinds`` is
    how often one may go back to a fault."""

    name = "local"

    def __init__(
        self,
        model: str,
        *,
        adapter: Path | None = None,
        constrained: bool = True,
        rewinds: int = 24,
        temperature: float = 0.8,
        max_tokens: int = 512,
        batch: int = 8,
        seed: int = 0,
    ) -> None:
        from steptp.policy.local import Local

        self.model = Local(model, adapter=adapter, max_tokens=max_tokens, batch=batch, rewinds=rewinds).model  # which checks the settings and finds the weights
        self.constrained, self.rewinds, self.temperature, self.max_tokens, self.batch, self.seed = constrained, rewinds, temperature, max_tokens, batch, seed

    @property
    def settings(self) -> dict[str, Any]:
        names = ("constrained", "rewinds", "temperature", "max_tokens", "seed")
        return {"model": self.model.name, "digest": self.model.digest(), **{name: getattr(self, name) for name in names}}

    def answer(self, wanted: Sequence[Wanted], done: Callable[[int, dict[str, Any]], None]) -> None:
        from steptp.policy.local import request_for

        batches = _batches(wanted, self.temperature, self.seed)
        requests = [
            replace(
                request_for(one.question, one.seeds, one.temperature, self.max_tokens, constrained=self.constrained, rewinds=self.rewinds),
                messages=one.asked.messages,
            )
            for one in batches
        ]
        found = self.model.generate(requests, batch=self.batch, done=lambda batch, n, written: batches[batch].tell(done, n, written))
        for one, answers in zip(batches, found, strict=True):
            one.tell_lost(done, answers)


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

        for one in _batches(wanted, self.temperature, self.seed):
            shape = answer_schema(one.question) if self.structured else None
            request = Request(self.model, one.asked.messages, one.temperature, self.max_tokens, one.seeds, shape)
            one.tell_lost(done, self.endpoint.ask(request, partial(one.tell, done)))


class RuleAnswerer(Answerer):
    """A baseline without weights, by name (:data:`RULES`). *action*: one of the listed candidates, or staying put; else a site of the engine."""

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
        from steptp.policy.heuristic import cycles_after
        from steptp.policy.roofline import predicted_cycles

        program = parse(sample.program)
        threads = max(self._host.cores, 1)
        best: tuple[float, str | None] = (predicted_cycles(program, self._host, threads), None)
        for site in sites:
            cycles = cycles_after(program, Site.parse(site), self._host, threads)
            if cycles is not None and cycles < best[0]:
                best = (cycles, site)
        return best[1]


RULES = ("copy", "unroll", "parallelise", "prior", "random", "heuristic")
"""``copy``: the program as it is; ``unroll`` and ``parallelise``: the first such site; ``prior``: a site of the strategy that was best most often where it was
on offer in the train split; ``random``: uniform; ``heuristic``: what the roofline model of the policy of that name expects to be fastest."""


def _strategy(site: str) -> str:
    return site.partition("@")[0]


def _listed(sample: Sample, rng: random.Random) -> Iterator[str]:
    for site in spread(list_sites(parse(sample.program), registry.names_for("cpu"), rng, MAX_CANDIDATES), rng, MAX_CANDIDATES):
        yield site.id


def _prior(data: Dataset) -> dict[str, float]:
    """Strategy → how often it was the best measured sibling, of the states of the train split where it was on offer."""
    offered: Counter[str] = Counter()
    best: Counter[str] = Counter()
    for sample in samples_of(data, "action", "action", reasons=False, split="train"):
        offered.update({_strategy(site) for site in sample.sites.values()})
        best[sample.strategy] += 1
    return {name: best[name] / offered[name] for name in offered}
