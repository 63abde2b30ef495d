"""Compute padded windows and copies without their condition where it holds, then correct the rest: the outputs along the border.

Partially equivalent transformation with correction: Wang et al., "PET: optimizing tensor programs with partially equivalent transformations and automated
corrections" (2021). Identity: for an output whose terms all meet the condition ``c``, ``sum_r select(c,x_r,z)`` is ``sum_r x_r``, term for term; the
others are computed as before.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

from steptp.ir import Const, DType, Expr, If, Loop, LoopKind, Op, Path, Program, Size, Store, Var, call, identity_of, ix, op, print_expr, simplify_index
from steptp.ir.index import Poly, poly_of
from steptp.ir.nodes import Stmt
from steptp.ir.resets import conjuncts
from steptp.ir.walk import free_vars, loads, map_expr, subexprs
from steptp.rewrite.base import Applied, Exactness, Family, Forwarding, NotApplicable, Outcome
from steptp.rewrite.context import Context, path_text
from steptp.rewrite.fact_kinds import fact
from steptp.rewrite.loop_pattern import LoopPattern
from steptp.rewrite.online import Nest, inside_nest, nest_at, splice, wrap
from steptp.rewrite.tools import accumulation_facts, instance_map, lower_bound, substitute_body

__all__ = ["PartiallyEquivalentThenCorrect", "STRATEGY"]

_KINDS = (LoopKind.SERIAL, LoopKind.PARALLEL)


@dataclass(frozen=True, slots=True)
class _Range:
    """Iterations ``low`` up to ``high`` of a loop, over sizes and as numbers at the present sizes."""

    low: Expr
    high: Expr
    first: int
    end: int


@dataclass(frozen=True, slots=True)
class _Match:
    """``outputs`` (outer) and ``terms`` (inner; none around an assignment) of a nest, the interior per output loop, and the value without decided conditions."""

    nest: Nest
    outputs: tuple[Loop, ...]
    terms: tuple[Loop, ...]
    box: dict[str, _Range]
    inside: Expr
    corrected: int


class PartiallyEquivalentThenCorrect(LoopPattern[_Match]):
    """Site: path of a perfect nest that stores ``select(condition,…,…)``, or accumulates such terms with the reductions innermost.

    Conditions that compare an affine index of one output loop with sizes (``0<=2*k+r-1<H``) hold for all terms of an interval of that loop. A first nest
    computes these outputs without the condition; a second one visits the others and accumulates as before. Order and terms of every output
    stay the same.
    """

    name = "partially_equivalent_then_correct"
    family = Family.ALGEBRA
    classes = (Exactness.BITWISE,)
    summary = "drop the condition of a padded window where it holds, then correct the border"

    def match(self, ctx: Context, path: Path) -> _Match | NotApplicable:
        return _match(ctx, path)

    def rewrite(self, ctx: Context, path: Path, found: _Match) -> Outcome:
        return _apply(ctx, found)


def _match(ctx: Context, path: Path) -> _Match | NotApplicable:
    nest = nest_at(ctx, path)
    if nest is None or nest.store.carry:
        return NotApplicable("pattern", f"the statement at {path_text(path)} is no perfect nest around an assignment or an accumulation that resets")
    if (problem := inside_nest(ctx, path)) is not None:
        return problem
    store = nest.store
    indexing = frozenset().union(*map(free_vars, store.indices))
    outputs = tuple(loop for loop in nest.loops if loop.var in indexing)
    terms = nest.loops[len(outputs) :]
    if nest.loops[: len(outputs)] != outputs or (terms == ()) != (store.reduce is None):
        return NotApplicable("order", f"the loops that do not index {store.buffer} are not the innermost ones, or nothing sums over them")
    if store.reduce is None and not {Var(loop.var) for loop in outputs} <= set(store.indices):
        return NotApplicable("indices", f"{store.buffer} is not indexed by each loop of the nest alone, so it may be written twice")
    if any(e.buffer == store.buffer for e in loads(store.value)):
        return NotApplicable("indices", f"{store.buffer} reads itself, so its elements have an order")
    if any(loop.kind not in _KINDS for loop in nest.loops):
        return NotApplicable("loop-kind", "only serial and parallel loops are cut into an interior and a border")
    if terms and ctx.reset_loop(nest.store_path) != (*path, *(0,) * len(outputs)):
        return NotApplicable("reset", f"{store.buffer} does not start anew for every output: its reset stands outside of loop {terms[0].var}")
    varying = next((loop.var for loop in nest.loops if ctx.value(loop.extent) is None), None)
    if varying is not None:
        return NotApplicable("extent-varies", f"the extent of {varying} changes with the loops around it")
    decided = _box(ctx, outputs, terms, store.value)
    if isinstance(decided, NotApplicable):
        return decided
    box, inside = decided
    counts = {loop.var: ctx.value(loop.extent) or 0 for loop in outputs}
    whole = math.prod(counts.values())
    interior = math.prod(max(box[v].end - box[v].first, 0) if v in box else n for v, n in counts.items())
    if not 0 < interior < whole:
        what = "no output has all of its terms inside" if not interior else "no output has a term outside, so there is nothing to correct"
        return NotApplicable("interior", f"{what} at the present sizes")
    repeats = [ctx.value(extent) for var, extent in ctx.extents_around(path).items() if var in indexing]
    if None in repeats:
        return NotApplicable("extent-varies", f"the extent of a loop around {path_text(path)} changes with the loops around it")
    return _Match(nest, outputs, terms, box, inside, (whole - interior) * math.prod(n for n in repeats if n is not None))


def _box(ctx: Context, outputs: tuple[Loop, ...], terms: tuple[Loop, ...], value: Expr) -> tuple[dict[str, _Range], Expr] | NotApplicable:
    """The interior, and the value with the selects gone whose conditions it decides."""
    selects = {e.args[0] for e in subexprs(value) if isinstance(e, Op) and e.name == "select"}
    limits: dict[str, list[tuple[bool, Expr]]] = {}
    gone: set[Expr] = set()
    refused = "no term has a condition"
    for cond in sorted(selects, key=print_expr):
        found = [_limit(outputs, terms, part) for part in conjuncts(cond)]
        wrong = next((f for f in found if isinstance(f, str)), None)
        if wrong is not None:
            refused = wrong
            continue
        gone.add(cond)
        for limit in found:
            assert not isinstance(limit, str)
            limits.setdefault(limit[0], []).append(limit[1:])
    if not gone:
        return NotApplicable("condition", refused)
    box: dict[str, _Range] = {}
    for loop in outputs:
        if loop.var in limits:
            low, high = _ends(ctx.program, loop, limits[loop.var])
            first, end = ctx.value(low), ctx.value(high)
            if first is None or end is None:
                return NotApplicable("extent-varies", f"the iterations of {loop.var} inside the condition change with the loops around it")
            box[loop.var] = _Range(low, high, first, end)
    return box, map_expr(value, lambda e: e.args[1] if isinstance(e, Op) and e.name == "select" and e.args[0] in gone else e)


def _limit(outputs: tuple[Loop, ...], terms: tuple[Loop, ...], cond: Expr) -> tuple[str, bool, Expr] | str:
    """(output loop, whether it is the first iteration or the one behind the last, that iteration), or why there is none."""
    shown = print_expr(cond)
    if not (isinstance(cond, Op) and cond.name in ("<", "<=", ">", ">=") and cond.args[0].dtype is DType.I64) or any(loads(cond)):
        return f"{shown} is no bound on an index"
    a, b = cond.args if cond.name in ("<", "<=") else cond.args[::-1]
    slack = poly_of(op("-", b, a) if cond.name in ("<=", ">=") else op("-", op("-", b, a), 1))  # the condition: slack >= 0
    names, extents = {loop.var for loop in outputs}, {loop.var: loop.extent for loop in terms}
    rest: Expr = ix(0)
    own: dict[str, int] = {}
    for mono, factor in slack.items():
        used = frozenset().union(*map(free_vars, mono))
        if not used & {*names, *extents}:
            rest = op("+", rest, _sum({mono: factor}))
        elif len(mono) == 1 and isinstance(mono[0], Var) and mono[0].name in names:
            own[mono[0].name] = factor
        elif len(mono) == 1 and isinstance(mono[0], Var) and mono[0].name in extents:
            rest = op("+", rest, op("*", op("-", extents[mono[0].name], 1), factor)) if factor < 0 else rest
        else:
            return f"{shown} is not affine in the loops"
    if len(own) != 1:
        return f"{shown} depends on {', '.join(sorted(own)) or 'no loop over outputs'}; one loop over outputs is wanted"
    ((var, step),) = own.items()
    if step > 0:  # step*k + rest >= 0
        return var, True, simplify_index(op("//", op("+", op("*", rest, -1), step - 1), ix(step)))
    return var, False, simplify_index(op("+", op("//", rest, ix(-step)), 1))


def _ends(program: Program, loop: Loop, limits: list[tuple[bool, Expr]]) -> tuple[Expr, Expr]:
    low: Expr = ix(0)
    high: Expr = loop.extent
    for is_low, end in dict.fromkeys(limits):
        if is_low and not _at_least(program, low, end):
            low = end if _at_least(program, end, low) else call("max", low, end)
        elif not is_low and not _at_least(program, end, high):
            high = end if _at_least(program, high, end) else call("min", high, end)
    return simplify_index(low), simplify_index(high)


def _at_least(program: Program, a: Expr, b: Expr) -> bool:
    """Whether ``a>=b`` follows from arithmetic, whatever the sizes: also ``w//q+r>=u//q`` from ``w+r*q>=u``."""
    derived = {s.name: s.expr for s in program.sizes if s.expr is not None}

    def written_out(expr: Expr) -> Expr:
        while any(isinstance(e, Size) and e.name in derived for e in subexprs(expr)):
            expr = map_expr(expr, lambda e: derived[e.name] if isinstance(e, Size) and e.name in derived else e)
        return expr

    difference = poly_of(written_out(op("-", a, b)))
    quotients = {f: m[0] for m, f in difference.items() if len(m) == 1 and isinstance(m[0], Op) and m[0].name == "//"}
    up, down = quotients.get(1), quotients.get(-1)
    if isinstance(up, Op) and isinstance(down, Op) and isinstance(up.args[1], Const) and up.args[1] == down.args[1] and up.args[1].value > 0:
        rest = _sum({m: f for m, f in difference.items() if m not in ((up,), (down,))})
        if _never_negative(op("+", op("-", up.args[0], down.args[0]), op("*", rest, up.args[1]))):
            return True
    return _never_negative(_sum(difference))


def _sum(poly: Poly) -> Expr:
    """The polynomial as an expression."""
    out: Expr = ix(0)
    for mono, factor in poly.items():
        term: Expr = ix(factor)
        for atom in mono:
            term = op("*", term, atom)
        out = op("+", out, term)
    return out


def _never_negative(expr: Expr) -> bool:
    least = lower_bound(expr)
    return least is not None and least >= 0


def _apply(ctx: Context, found: _Match) -> Outcome:
    nest, store = found.nest, found.nest.store
    shifted: dict[str, Expr] = {v: simplify_index(op("+", Var(v), r.low)) for v, r in found.box.items()}
    inner = tuple(
        replace(loop, extent=simplify_index(op("-", found.box[loop.var].high, found.box[loop.var].low))) if loop.var in found.box else loop
        for loop in found.outputs
    )
    extents = {**ctx.extents_around(nest.path), **{loop.var: loop.extent for loop in (*inner, *found.terms)}}
    moved = {v: e for v, e in shifted.items() if e != Var(v)}
    interior = wrap((*inner, *found.terms), substitute_body((replace(store, value=found.inside),), moved, extents))
    border: tuple[Stmt, ...] = (store,)
    if store.reduce is not None:
        start = Store(store.buffer, store.indices, identity_of(store.reduce, store.value.dtype))
        border = (start, *wrap(found.terms, (replace(store, carry=True),)))
    block = (*interior, *wrap(found.outputs, (If(_outside(found), border),)))
    child, moves = splice(ctx.program, nest.path, 1, block)
    owner, n = nest.path[:-1], nest.path[-1]
    second = (*owner, n + 1)

    def back(path: Path) -> Path | None:
        if path[: len(second)] == second or path[: len(nest.path)] == nest.path:
            return nest.store_path
        gone = next((old for old, new in moves if path[: len(new)] == new), None)
        return path if gone is None else (*gone, *path[len(gone) :])

    def iters(path: Path) -> Mapping[str, Expr]:
        return moved if path[: len(nest.path)] == nest.path else {}

    ranges = [(loop.var, found.box[loop.var]) for loop in found.outputs if loop.var in found.box]
    return Applied(
        child,
        Exactness.BITWISE,
        (
            *(fact("interior", "parent", loop=v, low=r.first, high=r.end) for v, r in ranges),
            fact("boundary_corrected", "child", buffer=store.buffer, count=found.corrected),
            *accumulation_facts((store,)),
        ),
        instance_map(ctx.program, child, back, iters),
        Forwarding(moves),
    )


def _outside(found: _Match) -> Expr:
    """Whether an output is outside of the interior."""
    parts: list[Expr] = []
    for loop in found.outputs:
        r = found.box.get(loop.var)
        if r is not None:
            parts += [op("<", Var(loop.var), r.low)] if r.low != ix(0) else []
            parts += [op("<=", r.high, Var(loop.var))] if r.high != loop.extent else []
    out = parts[0]
    for part in parts[1:]:
        out = op("or", out, part)
    return out


STRATEGY = PartiallyEquivalentThenCorrect()
