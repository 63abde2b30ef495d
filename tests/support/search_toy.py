"""A toy space for search tests: programs are words, a move appends a letter, times and verdicts are given."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from steptp.ir import Program, parse, print_program, program_hash
from steptp.policy.scripted import Scripted
from steptp.search.budget import Limits
from steptp.search.checkpoint import Store
from steptp.search.evaluator import Made, OutOfTime
from steptp.search.moves import Action, Failed, Move
from steptp.search.session import Algorithm, Found, Search, run_search
from steptp.search.tree import Node

LETTERS = "abcdefgh"


def program_of(word: str) -> Program:
    """The program that stands for a word: its letters are factors."""
    factors = "".join(f"*{LETTERS.index(c) + 1}" for c in word)
    return parse(f"in X f32[N=4]\nout Y[N]\nfor i Y[i]=X[i]*9{factors}\n")


def word_of(text: str) -> str:
    factors = text.rsplit("X[i]*", 1)[1].split("*")[1:]
    return "".join(LETTERS[int(float(f)) - 1] for f in factors)


class Toy:
    """An evaluator. ``times``: word → time (default 1); ``same``: words that give another word's program; ``bad``: word → verdict kind; ``stop``: called before
    every verdict."""

    def __init__(
        self, times: Mapping[str, float] | Callable[[str], float], same: Mapping[str, str] | None = None, bad: Mapping[str, str] | None = None,
        stop: Callable[[int], None] = lambda n: None,
    ) -> None:  # fmt: skip
        self.times = times if callable(times) else lambda word: times.get(word, 1.0)
        self.same, self.bad, self.stop = same or {}, bad or {}, stop
        self.judged: list[str] = []

    def make(self, parent: str, moves: Sequence[Move], left: float | None) -> list[Made]:
        out = []
        for move in moves:
            assert isinstance(move, Action)
            if move.site == "-":
                out.append(Made(refused="refused", message="no such place"))
                continue
            word = word_of(parent) + move.site if move.site != "=" else word_of(parent)
            child = program_of(self.same.get(word, word))
            out.append(Made(print_program(child), program_hash(child)))
        return out

    def judge(self, parent: str, found: Sequence[Made], left: float | None, done: Callable[[int, dict[str, Any]], None]) -> None:
        for n, made in enumerate(found):
            self.stop(len(self.judged))
            word = word_of(made.text)
            self.judged.append(word)
            kind = self.bad.get(word, "ok")
            timing = {"ratio": self.times(word_of(parent)) / self.times(word)} if kind == "ok" else None
            done(n, {"kind": kind, "tier": 4, "message": kind, "evidence": [], "timing": timing, "seconds": {}})


class Slow(Toy):
    """Every verdict takes ``cost`` seconds of a clock that the test reads."""

    def __init__(self, cost: float) -> None:
        super().__init__({})
        self.cost, self.now = cost, 0.0

    def judge(self, parent: str, found: Sequence[Made], left: float | None, done: Callable[[int, dict[str, Any]], None]) -> None:
        for n, made in enumerate(found):
            if left is not None and left < self.cost:
                self.now += left
                raise OutOfTime
            left = None if left is None else left - self.cost
            self.now += self.cost
            super().judge(parent, [made], None, lambda _, judged, n=n: done(n, judged))  # type: ignore[misc]


def words(nodes: Iterable[Node]) -> list[str]:
    return [word_of(n.text) for n in nodes]


def asked(policy: Scripted) -> list[str]:
    """The states that were asked, as words."""
    return [word_of(s.text) for s in policy.seen]


def searched(
    algorithm: Algorithm, script: Mapping[str, Sequence[str | Move | Failed]], toy: Toy, *, samples: int | None = None, limits: Limits | None = None, seed: int = 0,
    store: Store | None = None, clock: Callable[[], float] = lambda: 0.0,
) -> tuple[Found, Scripted]:  # fmt: skip
    """Run a search from the empty word."""
    policy = Scripted(script)
    search = Search(program_of(""), policy, toy, limits=limits or Limits(samples=samples or 100), seed=seed, store=store, clock=clock)
    return run_search(algorithm, search), policy
