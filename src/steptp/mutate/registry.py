"""What a mutation operator is, the table of all operators, and seeded choice among their mutants.

A mutation operator makes one small wrong change to a program (DeMillo, Lipton and Sayward, "Hints on test data selection", 1978). Operators work on
LEIR nodes and are pure: the same program gives the same mutants in the same order.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from difflib import get_close_matches
from importlib import import_module
from itertools import islice
from typing import TypeAlias

from steptp.errors import LeirError, UsageError
from steptp.ir import problems, program_hash
from steptp.ir.nodes import Program
from steptp.ir.seeds import derive_seed

__all__ = ["FAMILIES", "Mutant", "Make", "Operator", "operator", "operators", "get", "every_mutant", "sample_mutants"]

Make: TypeAlias = Callable[[Program], Iterator[tuple[str, Program]]]
"""Program → (place, mutated program) pairs, in serial order of the program."""

FAMILIES = (
    "index", "axis", "layout", "bound", "tail", "guard", "init", "identity", "accumulation", "constant", "operand", "operator", "dtype",
    "scope", "kind", "order", "stale", "alias", "interface",
)  # fmt: skip
_MODULES = ("index", "bounds", "values", "branches", "reductions", "dtypes", "order", "memory", "interface")
_MOST = 400  # mutants of one operator that a choice looks at


@dataclass(frozen=True, slots=True)
class Mutant:
    """A wrong program: which operator made it, and where."""

    operator: str
    place: str
    program: Program

    @property
    def name(self) -> str:
        return f"{self.operator}@{self.place}"


@dataclass(frozen=True, slots=True)
class Operator:
    """One way to go wrong. ``construction``: why each of its mutants is wrong whatever the program is, where that is certain; only then may a mutant be
    malformed."""

    name: str
    family: str
    summary: str
    make: Make
    construction: str = ""

    def mutants(self, program: Program) -> Iterator[Mutant]:
        """Every mutant that really is another program, and a valid one unless the operator is wrong by construction."""
        own = program_hash(program)
        for place, made in self.make(program):
            if self.construction or (not _invalid(made) and program_hash(made) != own):
                yield Mutant(self.name, place, made)


def _invalid(program: Program) -> bool:
    try:
        return bool(problems(program))
    except LeirError:
        return True


_TABLE: dict[str, Operator] = {}


def operator(name: str, family: str, summary: str, construction: str = "") -> Callable[[Make], Make]:
    """Enter a function into the table."""
    assert family in FAMILIES, family

    def enter(make: Make) -> Make:
        _TABLE[name] = Operator(name, family, summary, make, construction)
        return make

    return enter


def operators() -> tuple[Operator, ...]:
    """All operators, by family and then by name."""
    for module in _MODULES:
        import_module(f"steptp.mutate.{module}")
    return tuple(sorted(_TABLE.values(), key=lambda o: (FAMILIES.index(o.family), o.name)))


def get(name: str) -> Operator:
    """One operator; raises :class:`UsageError` ``usage-operator``."""
    table = {o.name: o for o in operators()}
    if name not in table:
        near = get_close_matches(name, table, 1)
        raise UsageError(
            "usage-operator", f"there is no mutation operator {name}", hint=f"did you mean {near[0]}?" if near else f"operators: {', '.join(table)}"
        )
    return table[name]


def every_mutant(program: Program, chosen: Iterable[str] | None = None) -> Iterator[Mutant]:
    """All mutants of a program, operator after operator; programs that two operators give are kept once."""
    seen: set[str] = set()
    for one in operators() if chosen is None else map(get, chosen):
        for mutant in one.mutants(program):
            key = _key(mutant)
            if key not in seen:
                seen.add(key)
                yield mutant


def _key(mutant: Mutant) -> str:
    try:
        return program_hash(mutant.program)
    except LeirError:
        return mutant.name  # malformed by design: it has no canonical form


def sample_mutants(program: Program, limit: int, seed: int = 0, chosen: Iterable[str] | None = None) -> list[Mutant]:
    """At most ``limit`` mutants, drawn evenly over the operators that have any, then evenly over their places."""
    names = [o.name for o in operators()] if chosen is None else list(chosen)
    rng = random.Random(derive_seed("mutants", seed, program_hash(program)))
    rng.shuffle(names)
    queues: dict[str, list[Mutant]] = {}
    for name in names:
        found = list(islice(get(name).mutants(program), _MOST))
        rng.shuffle(found)
        queues[name] = found
    out: list[Mutant] = []
    seen: set[str] = set()
    while len(out) < limit and any(queues.values()):
        for name in names:
            while queues[name] and len(out) < limit:
                mutant = queues[name].pop()
                if (key := _key(mutant)) not in seen:
                    seen.add(key)
                    out.append(mutant)
                    break
    return out
