"""Which output elements to look at: corners, edges of tiles, and random ones."""

from __future__ import annotations

import random
from collections.abc import Iterator

from steptp.ir.nodes import Buffer, Program
from steptp.ir.seeds import derive_seed
from steptp.ir.sizes import shape_of
from steptp.verify.bindings import factor_pairs

__all__ = ["sample_indices"]


def _factors(*programs: Program) -> list[int]:
    """Values of the sizes and numbers that the programs divide by."""
    found: set[int] = set()
    for program in programs:
        env = program.size_env
        found |= {f if isinstance(f, int) else env[f] for _, f in factor_pairs(program)}
    return sorted(f for f in found if f > 1)


def sample_indices(parent: Program, child: Program, points: int, seed: int) -> Iterator[tuple[Buffer, tuple[int, ...]]]:
    """Distinct output elements at the parent's sizes: last corner, first corner, tile edges of both programs, ``points`` random ones.

    Outputs take turns, so a budget that ends early has seen each of them.
    """
    factors = _factors(parent, child)
    lists = [_of_output(b, shape_of(b.shape, parent), factors, points, seed) for b in parent.outputs]
    for position in range(max(map(len, lists), default=0)):
        for buffer, found in zip(parent.outputs, lists, strict=True):
            if position < len(found):
                yield buffer, found[position]


def _of_output(buffer: Buffer, shape: tuple[int, ...], factors: list[int], points: int, seed: int) -> list[tuple[int, ...]]:
    if 0 in shape:
        return []
    rng = random.Random(derive_seed("elements", seed, buffer.name))
    last = tuple(n - 1 for n in shape)
    found = [last, tuple(0 for _ in shape)]
    for factor in factors[-3:]:
        found.append(tuple(min(factor, n - 1) for n in shape))
        found.append(tuple(max((n // factor) * factor - 1, 0) for n in shape))
    found += [tuple(rng.randrange(n) for n in shape) for _ in range(points)]
    return list(dict.fromkeys(found))
