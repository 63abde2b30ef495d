"""Split one loop into two: ``i`` becomes ``i0*T+i1``."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from steptp.ir import DType, Expr, If, Loop, LoopKind, Path, Program, Size, Stmt, Store, Var, ix, op, print_expr, simplify_cond, simplify_index
from steptp.ir.facts import Fact
from steptp.ir.walk import body_at, free_vars, replace_at, substitute
from steptp.rewrite.base import Applied, Exactness, Family, Forwarding, InstanceMap, NotApplicable, Outcome, Site, Strategy
from steptp.rewrite.context import Context, no_loop, path_text
from steptp.rewrite.fact_kinds import fact
from steptp.rewrite.injective import reset_index_problem, resets_in_question
from steptp.rewrite.tools import (
    accumulation_facts,
    add_constraint,
    add_size,
    declares_tmps,
    instance_map,
    lower_bound,
    quotient,
    set_carry,
    substitute_body,
    tile_sizes,
)

__all__ = ["LoopSplit", "STRATEGY", "FACTORS", "Factor", "factor_choices", "read_factor", "guard_problem"]

FACTORS = (2, 4, 8, 16, 32, 64)
_KINDS = (LoopKind.SERIAL, LoopKind.PARALLEL)
_TAILS = ("exact", "guard", "peel")
_ANY = 1 << 40  # stands for every tile size: a tile as long as this reaches whatever a shorter one would


@dataclass(frozen=True, slots=True)
class Factor:
    """A tile size: the expression in the program, its present value, and the name to declare when it is new."""

    size: Expr
    value: int
    new: str | None


def factor_choices(extent: int) -> tuple[int, ...]:
    """Powers of two from 2 to 64 below the extent, then the smallest of 3, 5 and 7 that does not divide it."""
    odd = next((f for f in (3, 5, 7) if f < extent and extent % f), None)
    return tuple(f for f in FACTORS if f < extent) + ((odd,) if odd else ())


def read_factor(ctx: Context, value: object, taken: tuple[str, ...] = ()) -> Factor | NotApplicable:
    """A site's factor: a number (declared as a new size) or the name of a free size of the program."""
    if isinstance(value, int) and not isinstance(value, bool):
        if value < 2:
            return NotApplicable("factor", f"a tile of {value} iterations splits nothing; the factor must be at least 2")
        name = next(n for n in ctx.fresh_global(*["T0"] * (len(taken) + 1)) if n not in taken)
        return Factor(Size(name), value, name)
    free = {s.name: s.value for s in ctx.program.sizes}
    if isinstance(value, str) and value in free:
        if free[value] < 2:
            return NotApplicable("factor", f"the size {value} is {free[value]} now; a tile must have at least 2 iterations")
        return Factor(Size(value), free[value], None)
    return NotApplicable("factor", f"the factor {value!r} is neither a number nor a size of the program")


class LoopSplit(Strategy):
    """Site: path of the loop, ``factor`` (number or size name), ``tail`` = ``exact``, ``guard`` or ``peel``."""

    name = "loop_split"
    family = Family.LOOP
    classes = (Exactness.BITWISE,)
    summary = "split one loop into an outer and an inner one"

    def sites(self, ctx: Context) -> Iterator[Site]:
        for path, loop in ctx.loops:
            extent = ctx.value(loop.extent)
            if extent is None or loop.kind not in _KINDS:
                continue
            peel = _peel_problem(ctx, path, loop) is None
            guarded = False
            for f in factor_choices(extent):
                tails: tuple[str, ...] = ("exact",) if extent % f == 0 else ("guard", "peel") if peel else ("guard",)
                if extent % f == 0 and not guarded:  # one guarded choice shows what a guard costs where none is needed
                    tails, guarded = ("exact", "guard"), True
                for tail in tails:
                    if tail != "guard" or guard_problem(ctx, {path: f}) is None:
                        yield Site.of(self.name, path, factor=f, tail=tail)
            for name in tile_sizes(ctx.program):
                if ctx.env[name] >= 2 and ctx.env[name] < extent and extent % ctx.env[name] == 0:
                    yield Site.of(self.name, path, factor=name, tail="exact")

    def apply(self, ctx: Context, site: Site) -> Outcome:
        loop = ctx.loop(site.path)
        if loop is None:
            return no_loop(site.path)
        params = dict(site.params)
        tail = params.get("tail", "exact")
        if set(params) - {"factor", "tail"} or tail not in _TAILS or "factor" not in params:
            return NotApplicable("bad-site", "loop_split takes factor=<number or size> and tail=exact, guard or peel")
        if loop.kind not in _KINDS:
            return NotApplicable("loop-kind", f"{loop.var} is a {loop.kind} loop; only serial and parallel loops are split")
        extent = ctx.value(loop.extent)
        if extent is None:
            return NotApplicable(
                "extent-varies",
                f"{loop.var} runs {print_expr(loop.extent, DType.I64)} times, which changes with the loops around it; split a loop whose extent depends on sizes only",
            )
        factor = read_factor(ctx, params["factor"])
        if isinstance(factor, NotApplicable):
            return factor
        if factor.value >= extent:
            return NotApplicable("factor", f"{loop.var} runs {extent} times, so a tile of {factor.value} would hold the whole loop")
        if tail == "exact":
            return _exact(ctx, site, loop, extent, factor)
        if tail == "guard":
            return _guard(ctx, site, loop, extent, factor)
        return _peel(ctx, site, loop, extent, factor)


def _declare(program: Program, factor: Factor) -> Program:
    return add_size(program, factor.new, factor.value) if factor.new else program


def _pair(ctx: Context, path: Path, loop: Loop) -> tuple[str, str]:
    stem = loop.var.rstrip("0123456789") or loop.var
    first, second = ctx.fresh_vars(path, f"{stem}0", f"{stem}1")
    return first, second


def _common_facts(ctx: Context, site: Site, loop: Loop, extent: int, factor: Factor) -> tuple[Fact, ...]:
    out = [fact("loop_extent", "parent", loop=loop.var, at=path_text(site.path), extent=extent, text=print_expr(loop.extent, DType.I64))]
    if factor.new:
        out.append(fact("tile_size", "child", name=factor.new, value=factor.value))
    return tuple(out)


def _map(parent: Program, child: Program, path: Path, depth: int, var: str, becomes: Expr) -> InstanceMap:
    """Stores below ``path`` lie ``depth`` levels deeper in the child; their ``var`` is ``becomes``."""

    def inside(p: Path) -> bool:
        return p[: len(path)] == path

    return instance_map(
        parent,
        child,
        lambda p: path + p[len(path) + depth :] if inside(p) else p,
        lambda p: {var: becomes} if inside(p) else {},
    )


def _exact(ctx: Context, site: Site, loop: Loop, extent: int, factor: Factor) -> Outcome:
    if extent % factor.value:
        return NotApplicable("not-divisible", f"{factor.value} does not divide the {extent} iterations of {loop.var}; use tail=guard or tail=peel")
    path, program = site.path, ctx.program
    outer, inner = _pair(ctx, path, loop)
    becomes = simplify_index(Var(outer) * factor.size + Var(inner))
    declared = _declare(program, factor)
    limited = add_constraint(declared, loop.extent, factor.size)
    trips = quotient(limited, loop.extent, factor.size)
    assert trips is not None
    extents = {outer: trips, inner: factor.size}
    body = substitute_body(loop.body, {loop.var: becomes}, {**ctx.extents_around(path), **extents})
    nest = Loop(outer, extents[outer], (Loop(inner, factor.size, body, LoopKind.SERIAL, loop.tmps),), loop.kind)
    stated = len(limited.constraints) > len(declared.constraints)
    child = replace_at(limited, path, nest)
    return Applied(
        child,
        Exactness.BITWISE,
        (
            *_common_facts(ctx, site, loop, extent, factor),
            fact("divides", "parent", extent=extent, factor=factor.value, constraint=print_expr(limited.constraints[-1]) if stated else ""),
            fact("index_map", "child", loop=loop.var, becomes=print_expr(becomes)),
            *accumulation_facts(s for _, s in ctx.stores_under(path)),
        ),
        _map(program, child, path, 1, loop.var, becomes),
        Forwarding(tuple(((*path, n), (*path, 0, n)) for n in range(len(loop.body)))),
        (Site.of("loop_fusion", path),) if factor.new or not stated else (),
    )


def guard_problem(ctx: Context, factors: Mapping[Path, int], exact: Collection[Path] = ()) -> NotApplicable | None:
    """Why the loops at these paths cannot be split with a guard: behind the end, a resetting accumulation's index may meet other elements.

    This happens where a tile loop is split again: ``i0*T0+(i2*T1+i3)`` repeats elements unless ``T1`` divides ``T0``. The tile sizes may be
    re-bound, so each guarded loop must stand any; those at ``exact`` keep a size that divides.
    """
    if not resets_in_question(ctx, factors):
        return None
    if (problem := _split_problem(ctx, factors)) is not None:
        return problem
    if _split_problem(ctx, {path: f if path in exact else _ANY for path, f in factors.items()}) is None:
        return None
    return NotApplicable(
        "reset-other-sizes",
        "at a tile size that does not divide the loop, a resetting accumulation's index could not be shown to hit every element once (guards do not count); "
        "use tail=exact, which states that it divides",
    )


def _split_problem(ctx: Context, factors: Mapping[Path, int]) -> NotApplicable | None:
    replaced: dict[Path, dict[str, Expr]] = {}
    by: dict[str, Expr] = {}
    for path, factor in factors.items():
        loop = ctx.loop(path)
        assert loop is not None
        first, second = f"{loop.var}.0", f"{loop.var}.1"  # stand-ins that no program holds
        replaced[path] = {first: op("//", loop.extent + ix(factor - 1), ix(factor)), second: ix(factor)}
        by[loop.var] = Var(first) * ix(factor) + Var(second)
    return reset_index_problem(ctx, replaced, lambda e, _: substitute(e, by))


def _guard(ctx: Context, site: Site, loop: Loop, extent: int, factor: Factor) -> Outcome:
    path, program = site.path, ctx.program
    if (problem := guard_problem(ctx, {path: factor.value})) is not None:
        return problem
    outer, inner = _pair(ctx, path, loop)
    becomes = simplify_index(Var(outer) * factor.size + Var(inner))
    count = simplify_index(op("//", loop.extent + factor.size - ix(1), factor.size))
    extents = {**ctx.extents_around(path), outer: count, inner: factor.size}
    body = substitute_body(loop.body, {loop.var: becomes}, extents)
    cond = simplify_cond(becomes < loop.extent)
    nest = Loop(outer, count, (Loop(inner, factor.size, (If(cond, body),), LoopKind.SERIAL, loop.tmps),), loop.kind)
    child = replace_at(_declare(program, factor), path, nest)
    idle = -extent % factor.value
    return Applied(
        child,
        Exactness.BITWISE,
        (
            *_common_facts(ctx, site, loop, extent, factor),
            fact("tail_guard", "child", cond=print_expr(cond), extent=extent, factor=factor.value, idle=idle),
            fact("index_map", "child", loop=loop.var, becomes=print_expr(becomes)),
            *accumulation_facts(s for _, s in ctx.stores_under(path)),
        ),
        _map(program, child, path, 2, loop.var, becomes),
        Forwarding(tuple(((*path, n), (*path, 0, 0, n)) for n in range(len(loop.body)))),
    )


def _peel_problem(ctx: Context, path: Path, loop: Loop) -> NotApplicable | None:
    """Why a second copy of the body cannot stand behind the first."""
    low = lower_bound(loop.extent)
    if low is None or low < 0:
        return NotApplicable("extent-sign", f"at other sizes {print_expr(loop.extent, DType.I64)} may be negative, and its rest would then run; use tail=guard")
    private = loop.tmps[0].name if loop.tmps else declares_tmps(loop.body)
    if private is not None:
        return NotApplicable("tmp-copied", f"the body declares the temporary {private}, which a peeled tail would declare a second time; use tail=guard")
    for store_path, store in ctx.stores_under(path):
        if ctx.reset_loop(store_path) is not None and any(loop.var in free_vars(i) for i in store.indices):
            return NotApplicable(
                "reset-twice",
                f"{store.buffer} is indexed by {loop.var} and resets inside it, so main loop and tail would be two resetting accumulations into {store.buffer}; use tail=guard",
            )
    return None


def _peel(ctx: Context, site: Site, loop: Loop, extent: int, factor: Factor) -> Outcome:
    if extent % factor.value == 0:
        return NotApplicable("no-tail", f"{factor.value} divides the {extent} iterations of {loop.var}, so there is no tail to peel; use tail=exact")
    if (problem := _peel_problem(ctx, site.path, loop)) is not None:
        return problem
    path, program = site.path, ctx.program
    outer, inner = _pair(ctx, path, loop)
    around = ctx.extents_around(path)
    becomes = simplify_index(Var(outer) * factor.size + Var(inner))
    trips = simplify_index(op("//", loop.extent, factor.size))
    main_body = substitute_body(loop.body, {loop.var: becomes}, {**around, outer: trips, inner: factor.size})
    main: Stmt = Loop(outer, trips, (Loop(inner, factor.size, main_body),), loop.kind)
    rest = simplify_index(op("%", loop.extent, factor.size))
    behind = simplify_index(op("*", trips, factor.size) + Var(loop.var))
    tail_body = substitute_body(loop.body, {loop.var: behind}, {**around, loop.var: rest})
    tail: Stmt = Loop(loop.var, rest, set_carry(tail_body, lambda s: _resets_outside(s, loop)), loop.kind)
    child = replace_at(_declare(program, factor), path, main, tail)
    after = (*path[:-1], path[-1] + 1)

    def is_tail(p: Path) -> bool:
        return p[: len(path)] == after

    def back(p: Path) -> Path:
        if p[: len(path)] == path:
            return path + p[len(path) + 1 :]
        if p[: len(path) - 1] == path[:-1] and p[len(path) - 1] > path[-1]:
            return (*path[:-1], p[len(path) - 1] - 1, *p[len(path) :])
        return p

    def iters(p: Path) -> dict[str, Expr]:
        return {loop.var: behind} if is_tail(p) else {loop.var: becomes} if p[: len(path)] == path else {}

    siblings = range(path[-1] + 1, len(body_at(program, path[:-1])))
    moves = [((*path, n), (*path, 0, n)) for n in range(len(loop.body))] + [((*path[:-1], n), (*path[:-1], n + 1)) for n in siblings]
    return Applied(
        child,
        Exactness.BITWISE,
        (
            *_common_facts(ctx, site, loop, extent, factor),
            fact("tail_peeled", "child", extent=extent, factor=factor.value, iterations=extent % factor.value),
            fact("index_map", "child", loop=loop.var, becomes=print_expr(becomes)),
            *accumulation_facts(s for _, s in ctx.stores_under(path)),
        ),
        instance_map(program, child, back, iters),
        Forwarding(tuple(moves)),
    )


def _resets_outside(store: Store, loop: Loop) -> bool:
    """Whether the reset of an accumulation in the body of ``loop`` stands before the loop: then the tail carries on."""
    return not any(loop.var in free_vars(i) for i in store.indices)


STRATEGY = LoopSplit()
