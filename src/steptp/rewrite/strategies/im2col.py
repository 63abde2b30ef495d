"""Turn a convolution into a matrix product: copy every window into a column of a matrix (unfold), the kernel into rows of another.

Chellapilla, Puri and Simard, "High performance convolutional neural networks for document processing" (2006); the layout of the columns is Caffe's.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from steptp.ir import Buffer, Expr, Load, Loop, Op, Store, Var, ix, op, print_expr, simplify_index
from steptp.ir.index import poly_of
from steptp.ir.nodes import Path, Program
from steptp.ir.sizes import shape_of
from steptp.ir.walk import body_at, free_vars, loads, replace_at
from steptp.rewrite.base import Applied, Exactness, Family, Forwarding, InstanceMap, NotApplicable, Outcome
from steptp.rewrite.context import Context
from steptp.rewrite.fact_kinds import fact
from steptp.rewrite.loop_pattern import LoopPattern
from steptp.rewrite.sums import SumNest, declare, sum_nest, too_big, wrapped
from steptp.rewrite.tools import instance_map

__all__ = ["Im2col", "STRATEGY"]


@dataclass(frozen=True, slots=True)
class _Convolution:
    """``image`` and ``kernel`` are the factors; ``pixels`` are the loops over output positions, ``batch`` and ``filters`` the other ones of each."""

    nest: SumNest
    image: Expr
    kernel: Expr
    image_first: bool
    pixels: tuple[Loop, ...]
    batch: tuple[Loop, ...]
    filters: tuple[Loop, ...]


class Im2col(LoopPattern[_Convolution]):
    """Site: path of a nest that sums image*kernel over windows; no parameters. Its outer loops may stay outside of the site.

    A window is an index of the image that a loop over the output and one of the sum move together. The padding's condition goes into the copy.
    """

    name = "im2col"
    family = Family.MEMORY
    classes = (Exactness.BITWISE,)
    summary = "copy the windows of a convolution into a matrix, so that it becomes a matrix product"

    def match(self, ctx: Context, path: Path) -> _Convolution | NotApplicable:
        nest = sum_nest(ctx, path)
        return nest if isinstance(nest, NotApplicable) else _convolution(ctx, nest)

    def rewrite(self, ctx: Context, path: Path, found: _Convolution) -> Outcome:
        return _apply(ctx, found)


def _convolution(ctx: Context, nest: SumNest) -> _Convolution | NotApplicable:
    value = nest.store.value
    if not isinstance(value, Op) or value.name != "*":
        return NotApplicable("not-a-product", f"{nest.store.buffer} does not sum products of an image and a kernel")
    sides = value.args
    if any(True for e in loads(value) for i in e.indices for _ in loads(i)):
        return NotApplicable("look-up", "a factor is indexed through memory")
    summed = {loop.var for loop in nest.reduction}
    moved = [_moved_with(side, summed) for side in sides]
    if bool(moved[0]) == bool(moved[1]):
        which = "both factors are" if moved[0] else "no factor is"
        return NotApplicable("no-window", f"{which} indexed by a loop of the sum and one over {nest.store.buffer} together, as an image in windows is")
    image, kernel = (sides[0], sides[1]) if moved[0] else (sides[1], sides[0])
    names = free_vars(image)
    pixels = tuple(loop for loop in nest.spatial if loop.var in (moved[0] or moved[1]))
    if len(pixels) != len(moved[0] or moved[1]):
        return NotApplicable("outside", "a loop over output positions stands outside of the nest")
    for loop in nest.reduction:
        if loop.var not in names or loop.var not in free_vars(kernel):
            return NotApplicable("broadcast", f"{loop.var} is summed over, but only one factor depends on it")
    if outside := [loop.var for _, loop in ctx.enclosing_loops(nest.path) if loop.var not in names]:
        return NotApplicable("copied-again", f"each iteration of {outside[0]} would copy the same windows")
    if free_vars(kernel) & {loop.var for loop in pixels}:
        return NotApplicable("local", "the kernel depends on the output position")
    batch = tuple(loop for loop in nest.spatial if loop.var in names and loop not in pixels)
    filters = tuple(loop for loop in nest.spatial if loop.var in free_vars(kernel))
    found = _Convolution(nest, image, kernel, bool(moved[0]), pixels, batch, filters)
    for what, loops in (("the matrix of windows", (*batch, *nest.reduction, *pixels)), ("the matrix of kernels", (*filters, *nest.reduction))):
        if (problem := too_big(ctx, what, [loop.extent for loop in loops])) is not None:
            return problem
    return found


def _moved_with(expr: Expr, summed: set[str]) -> frozenset[str]:
    """Loop variables that stand in one index with a loop of the sum."""
    found: frozenset[str] = frozenset()
    for load in loads(expr):
        for index in load.indices:
            names = free_vars(index)
            if names & summed and names - summed:
                found |= names - summed - _tiles(index, summed)
    return found


def _tiles(index: Expr, summed: set[str]) -> frozenset[str]:
    """Variables that pick a block of the summed axis, as the group of a grouped convolution does: ``g*C+c`` with ``c`` below ``C``."""
    out: set[str] = set()
    for mono in poly_of(index):
        names = {a.name for a in mono if isinstance(a, Var)}
        if len(mono) > 1 and names - summed:
            out |= names - summed
    return frozenset(out)


def _flat(loops: Sequence[Loop]) -> Expr:
    """The number of an iteration in a nest of these loops."""
    out: Expr = ix(0)
    for loop in loops:
        out = out * loop.extent + Var(loop.var)
    return simplify_index(out, {loop.var: loop.extent for loop in loops})


def _extent(loops: Sequence[Loop]) -> Expr:
    out: Expr = ix(1)
    for loop in loops:
        out = out * loop.extent
    return simplify_index(out)


def _apply(ctx: Context, found: _Convolution) -> Applied:
    nest, program = found.nest, ctx.program
    store, summed = nest.store, nest.reduction
    dtype = store.value.dtype
    columns, rows = ctx.fresh_global(f"{store.buffer}_col", f"{store.buffer}_ker")
    (var,) = ctx.fresh_vars(nest.path, "k")
    length, positions = _extent(summed), _extent(found.pixels)
    batch, filters = (tuple(Var(loop.var) for loop in loops) for loops in (found.batch, found.filters))
    serial = {loop.var: Loop(loop.var, loop.extent, ()) for loop in nest.nest.loops}
    copies = (
        wrapped([serial[x.var] for x in (*found.batch, *summed, *found.pixels)], Store(columns, (*batch, _flat(summed), _flat(found.pixels)), found.image)),
        wrapped([serial[x.var] for x in (*found.filters, *summed)], Store(rows, (*filters, _flat(summed)), found.kernel)),
    )
    factors: list[Expr] = [Load(columns, (*batch, Var(var), _flat(found.pixels)), dtype), Load(rows, (*filters, Var(var)), dtype)]
    value = op("*", *(factors if found.image_first else factors[::-1]))
    product = wrapped((*nest.spatial, Loop(var, length, ())), Store(store.buffer, store.indices, value, "+"))
    child = replace_at(program, nest.path, *copies, product)
    shapes = [
        Buffer(columns, dtype, (*(loop.extent for loop in found.batch), length, positions)),
        Buffer(rows, dtype, (*(loop.extent for loop in found.filters), length)),
    ]
    child = declare(child, ctx, nest.path, *shapes)
    owner, n = nest.path[:-1], nest.path[-1]
    last = (*owner, n + 2, *(0,) * (len(nest.spatial) + 1))
    moves = [((*owner, k), (*owner, k + 2)) for k in range(n + 1, len(body_at(program, owner)))]
    return Applied(
        child,
        Exactness.BITWISE,
        (
            fact("named", "child", name=columns, text=print_expr(found.image)),
            fact("named", "child", name=rows, text=print_expr(found.kernel)),
            fact("unfolded", "child", name=columns, rows=ctx.value(length) or 0, columns=ctx.value(positions) or 0, loops=tuple(x.var for x in found.pixels)),
            fact("flattened", "child", loops=tuple(loop.var for loop in summed), loop=var, extent=ctx.value(length) or 0),
            fact("order_kept", "dependence", buffer=store.buffer, reduce="+"),
            *(fact("buffer_added", "child", name=b.name, dtype=str(dtype), elements=math.prod(shape_of(b.shape, program))) for b in shapes),
        ),
        _instances(ctx, child, nest, last, var),
        Forwarding(((nest.nest.store_path, last), (nest.path, (*owner, n + 2)), *moves)),
    )


def _instances(ctx: Context, child: Program, nest: SumNest, product: Path, var: str) -> InstanceMap:
    """The product runs the sum's instances, its loop counting through the summed ones; the copies are read through."""
    iters: dict[str, Expr] = {}
    rest: Expr = Var(var)
    for loop in reversed(nest.reduction):
        iters[loop.var] = op("%", rest, loop.extent)
        rest = op("//", rest, loop.extent)
    owner, n = nest.path[:-1], nest.path[-1]

    def source(path: Path) -> Path | None:
        if path[: len(owner)] != owner or path[len(owner)] < n:
            return path
        if path == product:
            return nest.nest.store_path
        return None if path[len(owner)] < n + 2 else (*owner, path[len(owner)] - 2, *path[len(owner) + 1 :])

    return instance_map(ctx.program, child, source, lambda path: iters if path == product else {})


STRATEGY = Im2col()
