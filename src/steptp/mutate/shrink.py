"""Survivors made small: the same mutation at the smallest sizes at which it still has a witness and is still accepted."""

from __future__ import annotations

from steptp.ir.nodes import Program
from steptp.mutate.registry import Mutant
from steptp.mutate.witness import Witnesses
from steptp.verify.ladder import verify_step
from steptp.verify.shrink import smallest

__all__ = ["shrink"]


def shrink(parent: Program, mutant: Mutant, seed: int = 0) -> tuple[Program, Program]:
    """Parent and mutant with each size as small as it goes, one size after the other, until nothing more can shrink."""

    def survives(ours: Program, theirs: Program) -> bool:
        witness = Witnesses(ours, seed, 12).of(Mutant(mutant.operator, mutant.place, theirs))
        return witness is not None and verify_step(ours, theirs, seed=seed).ok

    return smallest(parent, mutant.program, survives)
