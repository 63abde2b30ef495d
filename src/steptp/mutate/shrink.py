"""Survivors made small: the same mutation at the smallest sizes at which it still has a witness and is still accepted."""

from __future__ import annotations

from steptp.errors import LeirError
from steptp.ir.nodes import Program
from steptp.ir.sizes import free_size_names, rebind
from steptp.mutate.registry import Mutant
from steptp.mutate.witness import Witnesses
from steptp.verify.ladder import verify_step

__all__ = ["shrink"]


def shrink(parent: Program, mutant: Mutant, seed: int = 0) -> tuple[Program, Program]:
    """Parent and mutant with each size as small as it goes, one size after the other, until nothing more can shrink."""
    best = parent, mutant.program
    while (smaller := _smaller(*best, mutant, seed)) is not None:
        best = smaller
    return best


def _smaller(parent: Program, child: Program, mutant: Mutant, seed: int) -> tuple[Program, Program] | None:
    values = parent.size_env | child.size_env
    for name in dict.fromkeys((*free_size_names(parent), *free_size_names(child))):
        for value in range(1, values[name]):
            try:
                pair = _at(parent, {name: value}), _at(child, {name: value})
                if _survives(*pair, mutant, seed):
                    return pair
            except LeirError:
                continue
    return None


def _at(program: Program, values: dict[str, int]) -> Program:
    own = set(free_size_names(program))
    return rebind(program, {n: v for n, v in values.items() if n in own})


def _survives(parent: Program, child: Program, mutant: Mutant, seed: int) -> bool:
    witness = Witnesses(parent, seed, 12).of(Mutant(mutant.operator, mutant.place, child))
    return witness is not None and verify_step(parent, child, seed=seed).ok
