"""Roots of a build: the naive programs of the workloads, and the same workloads at other shapes."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from steptp.errors import LeirError
from steptp.frontend import load_workload
from steptp.frontend.skeleton import skeleton_hash
from steptp.ir import Program, parse, print_program, program_hash, rebind
from steptp.ir.seeds import derive_seed
from steptp.ir.sizes import free_size_names

__all__ = ["Root", "make_roots", "shape_variants"]


@dataclass(frozen=True)
class Root:
    """A naive program that walks start from. ``family`` is its skeleton's hash; ``hash`` its identity."""

    hash: str
    text: str
    workload: str
    family: str


def make_roots(specs: Sequence[str], variants: int, seed: int) -> tuple[Root, ...]:
    """Load every workload and its shape variants. Raises the frontend's errors; equal programs are kept once."""
    roots: dict[str, Root] = {}
    for spec in specs:
        workload = load_workload(spec)
        # the text is what everything later starts from, so read it back once here
        program = parse(print_program(workload.program))
        family = skeleton_hash(program)
        for shaped in (program, *shape_variants(program, variants, derive_seed(seed, workload.name))):
            name = program_hash(shaped)
            roots.setdefault(name, Root(name, print_program(shaped), workload.name, family))
    return tuple(roots.values())


def shape_variants(program: Program, count: int, seed: int) -> list[Program]:
    """Up to ``count`` re-bindings to other sizes, each between half and twice the cost of the original.

    Sizes below 4 stay (they are kernels, strides and groups); others are scaled or moved off powers of two.
    """
    rng = random.Random(seed)
    present = program.size_env
    movable = [n for n in free_size_names(program) if present[n] >= 4]
    found: dict[str, Program] = {}
    for _ in range(count * 8):
        if len(found) >= count or not movable:
            break
        picked = rng.sample(movable, rng.randint(1, min(3, len(movable))))
        scales = {n: rng.choice((0.5, 0.75, 1.25, 1.5, 2.0)) for n in picked}
        product = 1.0
        for scale in scales.values():
            product *= scale
        if not 0.5 <= product <= 2.0:
            continue
        try:
            shaped = rebind(program, {n: max(2, round(present[n] * s)) for n, s in scales.items()})
        except LeirError:
            continue  # a constraint of the program does not allow these sizes
        name = program_hash(shaped)
        if name != program_hash(program):
            found.setdefault(name, shaped)
    return list(found.values())
