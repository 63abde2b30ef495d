"""Will a resetting accumulation still be valid after a step rewrites the loops that index it?"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from steptp.ir.affine import NotAffine, form_of, interval, is_injective
from steptp.ir.nodes import Expr, Path, Var
from steptp.ir.walk import declaring_path, free_vars
from steptp.rewrite.base import NotApplicable
from steptp.rewrite.context import Context

__all__ = ["resets_in_question", "reset_index_problem", "reset_layout_problem"]

Change = Callable[[Expr, Mapping[str, Expr]], Expr]


def resets_in_question(ctx: Context, replaced: Iterable[Path]) -> bool:
    """Whether loops at these paths index a resetting accumulation in a way that is not plainly fine: otherwise :func:`reset_index_problem` finds nothing."""
    paths = tuple(replaced)
    return ctx.kept("resets_in_question", paths, lambda: _resets_in_question(ctx, paths))


def _resets_in_question(ctx: Context, paths: tuple[Path, ...]) -> bool:
    gone = {loop.var for path in paths if (loop := ctx.loop(path)) is not None}
    resetting = (s.indices for _, s in ctx.stores_under(min(paths)) if s.reduce is not None and not s.carry)
    return any(not _plainly_fine(i, mine) for i in resetting if (mine := gone & frozenset().union(*map(free_vars, i))))


def reset_index_problem(ctx: Context, replaced: Mapping[Path, Mapping[str, Expr]], change: Change) -> NotApplicable | None:
    """A resetting accumulation whose new index the validity table could not show to be injective (guards do not count there).

    ``replaced`` gives, for the path of every loop that goes, the loops (variable → extent) that stand for it; ``change`` rewrites an index
    with the extents around it.
    """
    outermost = min(replaced)
    all_gone = {loop.var for path in replaced if (loop := ctx.loop(path)) is not None}
    for path, store in ctx.stores_under(outermost):
        gone = all_gone & frozenset().union(*(free_vars(i) for i in store.indices))
        if store.reduce is None or store.carry or not gone:
            continue
        if _plainly_fine(store.indices, gone):
            continue
        extents: dict[str, Expr] = {}
        for at, loop in ctx.enclosing_loops(path):
            extents.update(replaced.get(at, {loop.var: loop.extent}))
        ranges = {v: (0, span[1] - 1) for v, e in extents.items() if (span := interval(e, ctx.env, {})) is not None}
        indices = [change(i, extents) for i in store.indices]
        mine = frozenset().union(*(free_vars(i) for i in indices))
        outside = len(declaring_path(ctx.program, store.buffer))
        inside = {loop.var for at, loop in ctx.enclosing_loops(path) if len(at) > outside and at not in replaced}
        new = {v for at, made in replaced.items() if len(at) > outside for v in made}
        try:
            fine = is_injective([form_of(i, ctx.env, ranges) for i in indices], [v for v in extents if v in mine and v in inside | new], ranges)
        except NotAffine:
            fine = False
        if not fine:
            return NotApplicable(
                "reset-injective",
                f"{store.buffer} resets, and its new index could not be shown to hit every element once (guards do not count), as a reset needs",
            )
    return None


def _plainly_fine(indices: tuple[Expr, ...], gone: set[str]) -> bool:
    """Every variable that goes is an index of its own: ``i0*T+i1`` shows both parts, ``f//M`` and ``f%M`` show ``f``."""
    return {Var(v) for v in gone} <= set(indices)


def reset_layout_problem(
    ctx: Context, name: str, place: Callable[[tuple[Expr, ...], Mapping[str, Expr]], tuple[Expr, ...]], sizes: Mapping[str, int]
) -> NotApplicable | None:
    """A resetting accumulation into ``name`` whose indices, once rewritten by ``place``, could not be shown to be injective at ``sizes``."""
    for path, store in ctx.stores:
        if store.buffer != name or store.reduce is None or store.carry:
            continue
        extents = ctx.extents_around(path)
        indices = place(store.indices, extents)
        mine = frozenset().union(*(free_vars(i) for i in indices))
        ranges: dict[str, tuple[int, int]] = {}
        for var, extent in extents.items():
            if (span := interval(extent, sizes, ranges)) is not None:
                ranges[var] = (0, max(span[1] - 1, 0))
        outside = len(declaring_path(ctx.program, name))
        inside = [loop.var for at, loop in ctx.enclosing_loops(path) if len(at) > outside and loop.var in mine]
        try:
            fine = is_injective([form_of(i, sizes, ranges) for i in indices], inside, ranges)
        except NotAffine:
            fine = False
        if not fine:
            return NotApplicable("reset-injective", f"{name} resets, and its new index could not be shown to hit every element once, as a reset needs")
    return None
