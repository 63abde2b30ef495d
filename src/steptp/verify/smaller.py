"""Smaller sizes at which the compiled code of slow programs is checked: the same tiles, fewer of them."""

from __future__ import annotations

from collections.abc import Mapping

from steptp.errors import LeirError
from steptp.interp.cost import access_check
from steptp.ir.nodes import Program
from steptp.ir.sizes import free_size_names, shape_of
from steptp.verify.bindings import apply_binding, factor_pairs
from steptp.verify.tier4_inputs import work

__all__ = ["SLOW", "smaller_sizes"]

SLOW = 2e7
"""Stores of one run above which smaller sizes are looked for."""
_ENOUGH = SLOW / 8
_LEAST = 8


def smaller_sizes(*programs: Program) -> dict[str, int]:
    """Values of free sizes at which the programs stay valid, have one interface and do little work; empty where none of them is slow or there are no such
    sizes. The largest size that is not a factor is halved, again and again, so what divided it goes on dividing it mostly."""
    if max(work(p) for p in programs) <= SLOW:
        return {}
    sizes = {name: p.size_env[name] for p in programs for name in free_size_names(p)}
    fixed = {factor for p in programs for _, factor in factor_pairs(p)}
    fits = [access_check(p) for p in programs]
    stuck: set[str] = set()

    def holds(values: Mapping[str, int]) -> bool:
        try:
            bound = [apply_binding(p, values) for p in programs]
            shapes = [[shape_of(b.shape, p) for b in (*p.inputs, *p.outputs)] for p in bound]
        except LeirError:
            return False
        return all(s == shapes[0] for s in shapes[1:]) and all(fit(p.size_env) for fit, p in zip(fits, bound, strict=True))

    while max(work(apply_binding(p, sizes)) for p in programs) > _ENOUGH:
        name = max((n for n in sizes if n not in fixed | stuck and sizes[n] % 2 == 0 and sizes[n] >= 2 * _LEAST), key=sizes.__getitem__, default=None)
        if name is None:
            return {}
        if holds(halved := {**sizes, name: sizes[name] // 2}):
            sizes = halved
        else:
            stuck.add(name)
    return sizes
