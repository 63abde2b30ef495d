"""Fold the scale of a normalisation (or of any affine map) into the weights of the product before it.

Batch-norm folding: Jacob et al., "Quantization and training of neural networks for efficient integer-arithmetic-only inference" (2018), section 3.2.
``(sum(x*w)-mean)*r*g+b`` becomes ``sum(x*(w*(r*g)))-mean*r*g+b``; small nests compute the folded weights and the shift.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from steptp.analysis.values import scope_of
from steptp.ir import Buffer, Expr, Load, Loop, LoopKind, Op, Path, Store, Var, print_expr
from steptp.ir.facts import Fact
from steptp.ir.nodes import Stmt, op
from steptp.ir.sizes import shape_of
from steptp.ir.walk import body_at, buffer_table, free_vars, get, loads, replace_at, substitute
from steptp.rewrite.base import Applied, Exactness, Family, Forwarding, NotApplicable, Outcome, Site, Strategy
from steptp.rewrite.context import Context, path_text
from steptp.rewrite.exprs import Place, expr_at, exprs_of, replace_expr_at
from steptp.rewrite.fact_kinds import fact
from steptp.rewrite.moving import stores_between
from steptp.rewrite.online import nonempty
from steptp.rewrite.strategies.expression_splitting import conditional
from steptp.rewrite.sums import SumNest, declare, finite, multiplied, product_of, same_target, sole_read, sum_nest, wrapped

__all__ = ["BatchNormFolding", "STRATEGY"]


@dataclass(frozen=True, slots=True)
class _Affine:
    """``scale*c+shift``: factors and divisors of the scale, signed terms of the shift, and the place of the whole below the store."""

    place: Place
    scale: tuple[tuple[bool, Expr], ...]  # (divides, factor)
    shift: tuple[tuple[int, Expr], ...]


@dataclass(frozen=True, slots=True)
class _Plan:
    store: Store
    producer: SumNest
    load: Load
    affine: _Affine
    operand: Expr
    number: int
    dims: tuple[Loop, ...]
    scaled: Expr  # the operand times the scale, over the producer's loops
    shift_loops: tuple[Loop, ...]
    facts: tuple[Fact, ...]
    constraints: tuple[Expr, ...]


class BatchNormFolding(Strategy):
    """Site: path of a store that maps a sum of products affinely, ``buffer`` = that sum, ``into`` = number of the factor that takes the scale.

    The scale may depend on what the factor depends on, and on nothing that the sum has a part in: a batch norm in training is refused.
    Where a scale is not proven finite, an empty sum has to be excluded, which the header states.
    """

    name = "batch_norm_folding"
    family = Family.ALGEBRA
    classes = (Exactness.ALGEBRAIC,)
    summary = "fold the scale of a normalisation into the weights of the product before it"

    def sites(self, ctx: Context) -> Iterator[Site]:
        for path, store in ctx.stores:
            for buffer in dict.fromkeys(e.buffer for e in loads(store.value)):
                for number in range(4):
                    if isinstance(_plan(ctx, path, buffer, number), _Plan):
                        yield Site.of(self.name, path, buffer=buffer, into=number)

    def apply(self, ctx: Context, site: Site) -> Outcome:
        params = dict(site.params)
        buffer, number = params.get("buffer"), params.get("into")
        if not isinstance(ctx.stmt(site.path), Store) or not isinstance(buffer, str) or not isinstance(number, int) or set(params) != {"buffer", "into"}:
            return NotApplicable("bad-site", f"{self.name} takes the path of a store, buffer=<the sum it reads> and into=<number of a factor>")
        plan = _plan(ctx, site.path, buffer, number)
        return plan if isinstance(plan, NotApplicable) else _apply(ctx, site.path, plan)


def _plan(ctx: Context, path: Path, buffer: str, number: int) -> _Plan | NotApplicable:
    store = ctx.stmt(path)
    assert isinstance(store, Store)
    if store.reduce is not None or store.buffer == buffer:
        return NotApplicable("not-pointwise", f"the store at {path_text(path)} is no plain store of a function of {buffer}")
    where = [p for p, s in ctx.stores if s.buffer == buffer]
    owner = where[0][: _shared(where[0], path)] if len(where) == 1 else ()
    if len(where) != 1 or where[0] >= path:
        return NotApplicable("producer", f"{buffer} is not computed by one nest before the store at {path_text(path)}")
    producer = sum_nest(ctx, where[0][: len(owner) + 1])
    if isinstance(producer, NotApplicable):
        return producer
    if (problem := sole_read(ctx, buffer, path)) is not None:
        return problem
    place, load = next((p, e) for p, e in exprs_of(store) if isinstance(e, Load) and e.buffer == buffer)
    affine = _affine(store, place)
    if isinstance(affine, NotApplicable):
        return affine
    by = same_target(ctx, producer, load)
    if isinstance(by, NotApplicable):
        return by
    return _folded(ctx, path, store, producer, load, affine, by, number)


def _shared(a: Path, b: Path) -> int:
    return next(n for n, (x, y) in enumerate(zip(a, b, strict=False)) if x != y)


def _affine(store: Store, place: Place) -> _Affine | NotApplicable:
    """The largest expression around the read at ``place`` that is affine in it."""
    scale: list[tuple[bool, Expr]] = []
    shift: list[tuple[int, Expr]] = []
    sign = 1
    while len(place) > 1:
        above, side = expr_at(store, place[:-1]), place[-1]
        if not isinstance(above, Op) or above.name not in ("+", "-", "*", "/", "neg") or (above.name == "/" and side == 1):
            break
        other = above.args[1 - side] if len(above.args) == 2 else above
        if above.name in ("*", "/"):
            scale.append((above.name == "/", other))
            shift = [(s, op(above.name, t, other)) for s, t in shift]
        elif above.name == "neg" or (above.name == "-" and side == 1):
            sign, shift = -sign, [(-s, t) for s, t in shift]
            shift += [(1, other)] if above.name == "-" else []
        else:
            shift.append((-1 if above.name == "-" else 1, other))
        place = place[:-1]
    if sign < 0:
        return NotApplicable("negated", "the sum is subtracted, and a sign is not folded")
    if not scale:
        return NotApplicable("no-scale", f"the sum that is read at {store.buffer}'s store is not scaled")
    return _Affine(place, tuple(scale), tuple(shift))


def _folded(ctx: Context, path: Path, store: Store, producer: SumNest, load: Load, affine: _Affine, by: dict[str, Expr], number: int) -> _Plan | NotApplicable:
    operands = tuple(multiplied(producer.store.value))
    if len(operands) < 2 or number >= len(operands):
        return NotApplicable("no-factor", f"{load.buffer} sums products of {len(operands)} factors; there is no factor {number} to fold into")
    operand = operands[number]
    around = {loop.var: loop for _, loop in ctx.enclosing_loops(path)}
    own = {loop.var: loop for loop in producer.spatial}
    back = {index.name: v for v, index in by.items() if isinstance(index, Var) and index.name in around and around[index.name].extent == own[v].extent}
    outer = {loop.var for _, loop in ctx.enclosing_loops(producer.path)}
    factors = [f for _, f in affine.scale]
    for v in sorted(frozenset().union(*map(free_vars, factors)) - outer):
        if v not in back or back[v] not in free_vars(operand):
            texts = ", ".join(f"`{print_expr(f, f.dtype)}`" for f in factors)
            return NotApplicable("varies", f"the scale {texts} depends on {v}, and `{print_expr(operand, operand.dtype)}` does not")
    if ctx.guards_around(path):
        return NotApplicable("guarded", f"a guard stands around the store into {store.buffer}")
    read = {e.buffer for f in factors for e in loads(f)}
    if read and conditional(store, affine.place):
        return NotApplicable("conditional", "the scale is evaluated under a condition only")
    written = {s.buffer for _, s in stores_between(ctx, producer.path, path[: len(producer.path)])} | {load.buffer}
    if changed := sorted(read & written):
        return NotApplicable("depends", f"{changed[0]}, which scales {load.buffer}, is computed after it")
    used = free_vars(operand)
    order = dict.fromkeys(v for e in loads(operand) for i in e.indices for v in sorted(free_vars(i)))
    dims = tuple(loop for v in order for loop in producer.nest.loops if loop.var == v and v in used)
    if all(loop.var in used for loop in producer.spatial):
        return NotApplicable("not-shared", f"every element of {load.buffer} has its own `{print_expr(operand, operand.dtype)}`, so folding would save nothing")
    held = max((math.prod(shape_of(buffer_table(ctx.program)[e.buffer].shape, ctx.program)) for e in loads(operand)), default=0)
    if math.prod(shape_of(tuple(loop.extent for loop in dims), ctx.program)) > held:
        return NotApplicable("larger", f"the scaled copy of `{print_expr(operand, operand.dtype)}` would be larger than what it reads")
    facts = _domain(ctx, path, producer, affine, load)
    if isinstance(facts, NotApplicable):
        return facts
    constraints: list[Expr] = []
    for loop in producer.reduction if any(f.kind == "scales_whole" for f in facts) else ():
        stated = nonempty(ctx, loop)
        if isinstance(stated, NotApplicable):
            return stated
        if stated is not None and stated not in constraints:
            constraints.append(stated)
            facts += (fact("row_not_empty", "child", loop=loop.var, constraint=print_expr(stated)),)
    scaled = operand
    for divides, factor in affine.scale:
        scaled = op("/" if divides else "*", scaled, substitute(factor, {v: Var(p) for v, p in back.items()}))
    names = frozenset().union(*(free_vars(t) for _, t in affine.shift))
    loops = tuple(loop for v, loop in around.items() if v in names and v not in outer)
    return _Plan(store, producer, load, affine, operand, number, dims, scaled, loops, facts, tuple(constraints))


def _domain(ctx: Context, path: Path, producer: SumNest, affine: _Affine, load: Load) -> tuple[Fact, ...] | NotApplicable:
    """Operands and terms of the shift are finite; a factor of the scale may be infinite or undefined, but then the mapped value is, too."""
    proofs = finite(ctx, producer.nest.store_path, tuple(multiplied(producer.store.value)))
    if isinstance(proofs, NotApplicable):
        return proofs
    scope = scope_of(ctx.program, path)
    unproven = [f for _, f in affine.scale if not scope.of(f).finite]
    proven = finite(ctx, path, [f for _, f in affine.scale if f not in unproven])
    assert not isinstance(proven, NotApplicable)
    if any(divides and not scope.of(f).nonzero for divides, f in affine.scale):
        unproven += [f for divides, f in affine.scale if divides and f not in unproven]
    facts = tuple(fact("scales_whole", "parent", text=print_expr(f, f.dtype), buffer=load.buffer, at=path_text(path)) for f in dict.fromkeys(unproven))
    return (*proofs, *proven, *facts)


def _apply(ctx: Context, path: Path, plan: _Plan) -> Applied:
    program, store, producer = ctx.program, plan.store, plan.producer
    dtype = plan.load.dtype
    weights, bias = ctx.fresh_global(f"{plan.load.buffer}_w", f"{plan.load.buffer}_b")
    cell = tuple(Var(loop.var) for loop in plan.dims)
    serial = [Loop(loop.var, loop.extent, ()) for loop in plan.dims]
    nests: list[Stmt] = [wrapped(serial, Store(weights, cell, plan.scaled))]
    made = [Buffer(weights, dtype, tuple(loop.extent for loop in plan.dims))]
    parts = list(multiplied(producer.store.value))
    parts[plan.number] = Load(weights, cell, dtype)
    new: Expr = plan.load
    shift = sorted(plan.affine.shift, key=lambda term: -term[0])
    inner = [loop for _, loop in ctx.enclosing_loops(path) if len(ctx.enclosing_loops(producer.path)) <= _depth(ctx, path, loop)]
    small = len(plan.shift_loops) < len(inner) and any(isinstance(t, Op) for _, t in shift) and _early(ctx, path, plan)
    if small and shift:
        places = tuple(Var(loop.var) for loop in plan.shift_loops)
        nests.append(wrapped([Loop(x.var, x.extent, ()) for x in plan.shift_loops], Store(bias, places, _sum(shift))))
        made.append(Buffer(bias, dtype, tuple(x.extent for x in plan.shift_loops)))
        new = new + Load(bias, places, dtype)
    else:
        for sign, term in shift:
            new = op("+" if sign > 0 else "-", new, term)
    changed = replace_expr_at(store, plan.affine.place, new)
    child = replace_at(program, path, changed)
    summed = Store(producer.store.buffer, producer.store.indices, product_of(parts), "+")
    child = replace_at(child, producer.nest.store_path, summed)
    child = replace_at(child, producer.path, *nests, get(child, producer.path))
    child = declare(child, ctx, producer.path, *made)
    child = child.with_(constraints=(*child.constraints, *plan.constraints))
    owner, n = producer.path[:-1], producer.path[-1]
    count = len(nests)
    siblings = len(body_at(program, owner))
    return Applied(
        child,
        Exactness.ALGEBRAIC,
        (
            fact("scale_folded", "child", name=weights, text=print_expr(plan.scaled, dtype), buffer=producer.store.buffer),
            *([fact("named", "child", name=bias, text=print_expr(_sum(shift)))] if len(made) > 1 else []),
            *plan.facts,
            fact("distributive", "rule", buffer=store.buffer),
            *(fact("buffer_added", "child", name=b.name, dtype=str(dtype), elements=math.prod(shape_of(b.shape, program))) for b in made),
        ),
        None,
        Forwarding(tuple(((*owner, k), (*owner, k + count)) for k in range(n, siblings))),
    )


def _depth(ctx: Context, path: Path, loop: Loop) -> int:
    return next(n for n, (_, other) in enumerate(ctx.enclosing_loops(path)) if other is loop)


def _early(ctx: Context, path: Path, plan: _Plan) -> bool:
    """Whether the shift can be computed before the sum: nothing that it reads is written from there on, and it is evaluated everywhere."""
    read = {e.buffer for _, t in plan.affine.shift for e in loads(t)}
    top = path[: len(plan.producer.path)]
    written = {s.buffer for _, s in stores_between(ctx, plan.producer.path, top)} | {plan.load.buffer}
    fixed = all(not free_vars(x.extent) and x.kind in (LoopKind.SERIAL, LoopKind.PARALLEL) for x in plan.shift_loops)
    private = {b.name for _, loop in ctx.loops_under(top) for b in loop.tmps}
    return not read & (written | private) and fixed and not conditional(plan.store, plan.affine.place)


def _sum(terms: list[tuple[int, Expr]]) -> Expr:
    sign, out = terms[0]
    if sign < 0:
        out = op("neg", out)
    for sign, term in terms[1:]:
        out = op("+" if sign > 0 else "-", out, term)
    return out


STRATEGY = BatchNormFolding()
