"""Which output elements to look at: what a change touches, corners, edges of tiles, places of new numbers, and random ones."""

from __future__ import annotations

import random
from collections.abc import Iterator

from steptp.ir.nodes import Buffer, Const, Expr, If, Loop, Program, Store
from steptp.ir.seeds import derive_seed
from steptp.ir.sizes import shape_of
from steptp.ir.walk import loads, subexprs, visit
from steptp.verify.bindings import factor_pairs
from steptp.verify.touched import touched_elements

__all__ = ["sample_indices"]

_TOUCHED, _CUTS = 8, 6  # elements of an output near a change, and numbers around which elements are taken


def _factors(*programs: Program) -> list[int]:
    """Values of the sizes and numbers that the programs divide by."""
    found: set[int] = set()
    for program in programs:
        env = program.size_env
        found |= {f if isinstance(f, int) else env[f] for _, f in factor_pairs(program)}
    return sorted(f for f in found if f > 1)


def sample_indices(parent: Program, child: Program, points: int, seed: int) -> Iterator[tuple[Buffer, tuple[int, ...]]]:
    """Distinct output elements at the parent's sizes: both corners, what the change touches, tile edges of both programs, ``points`` random ones, and
    both sides of numbers that only the child has.

    Outputs take turns, so a budget that ends early has seen each of them.
    """
    factors = _factors(parent, child)
    cuts = sorted(_numbers(child) - _numbers(parent))
    touched = touched_elements(parent, child)
    lists = [_of_output(b, shape_of(b.shape, parent), touched.get(b.name, []), factors, cuts, points, seed) for b in parent.outputs]
    for position in range(max(map(len, lists), default=0)):
        for buffer, found in zip(parent.outputs, lists, strict=True):
            if position < len(found):
                yield buffer, found[position]


def _numbers(program: Program) -> set[int]:
    """Whole numbers in extents, guards and stores: where something may have been cut."""
    exprs: list[Expr] = []
    for met in visit(program):
        if isinstance(met.stmt, Loop):
            exprs.append(met.stmt.extent)
        elif isinstance(met.stmt, If):
            exprs.append(met.stmt.cond)
        elif isinstance(met.stmt, Store):
            exprs += [*met.stmt.indices, *(i for load in loads(met.stmt.value) for i in load.indices)]
            exprs += [e for e in subexprs(met.stmt.value) if e.dtype.is_int]
    return {int(e.value) for expr in exprs for e in subexprs(expr) if isinstance(e, Const) and e.type.is_int}


def _of_output(
    buffer: Buffer, shape: tuple[int, ...], touched: list[tuple[int, ...]], factors: list[int], cuts: list[int], points: int, seed: int
) -> list[tuple[int, ...]]:
    if 0 in shape:
        return []
    rng = random.Random(derive_seed("elements", seed, buffer.name))
    last = tuple(n - 1 for n in shape)
    found = [last, *touched[:_TOUCHED], tuple(0 for _ in shape)]
    for factor in factors[-3:]:
        found.append(tuple(min(factor, n - 1) for n in shape))
        found.append(tuple(max((n // factor) * factor - 1, 0) for n in shape))
    found += [tuple(rng.randrange(n) for n in shape) for _ in range(points)]
    for dim, n in [(dim, n) for n in cuts for dim, size in enumerate(shape) if 0 < n < size][-_CUTS:]:
        found += [tuple(at if d == dim else size - 1 for d, size in enumerate(shape)) for at in (n - 1, n)]
    return list(dict.fromkeys(found))
