"""Products with softmax weights, ``Y[i,l] += exp(x[i,j]-m[i])/s[i]*v[j,l]``: finding them, and their running form.

The running form rescales the whole output row whenever the maximum moves and divides once, at the end: Dao et al., "FlashAttention" (2022),
algorithm 1, with tiles of one key and the division deferred.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import reduce

from steptp.ir import Buffer, Cast, Expr, Load, Loop, LoopKind, Op, Path, Scope, Store, Var, const, print_expr
from steptp.ir.facts import Fact
from steptp.ir.nodes import Program, Stmt
from steptp.ir.sizes import shape_of
from steptp.ir.walk import buffer_table, free_vars, loads, stmt_exprs, substitute
from steptp.rewrite.base import NotApplicable
from steptp.rewrite.context import Context, path_text
from steptp.rewrite.fact_kinds import fact
from steptp.rewrite.online import Nest, bind, exponent_parts, exponential, find_row, inside_nest, nest_at, nonempty, rescaled, wrap

__all__ = ["Product", "product_at", "Scalars", "start_outputs", "step_outputs", "finish_outputs", "scalars", "product_facts", "divided_once"]

_KINDS = (LoopKind.SERIAL, LoopKind.PARALLEL)


@dataclass(frozen=True, slots=True)
class Product:
    """``store`` sums, over ``row``, the weights ``exp(x-peak)/total`` times ``factor``; ``peak`` and ``total`` vary with ``rows``, not with ``columns``.

    ``weights``: the buffer with the weights, ``made``: where it is stored, ``reads``: how many reads of it the program has. ``constraint``: what the
    header has to state, so that no row is empty.
    """

    nest: Nest
    rows: tuple[Loop, ...]
    columns: tuple[Loop, ...]
    row: Loop
    x: Expr
    peak: Load
    total: Load
    factor: Expr
    weights: str
    made: Path
    reads: int
    constraint: Expr | None

    @property
    def store(self) -> Store:
        return self.nest.store

    @property
    def target(self) -> Load:
        return Load(self.store.buffer, self.store.indices, self.store.value.dtype)


@dataclass(frozen=True, slots=True)
class Scalars:
    """Locals of one iteration: ``scale`` holds exp(old maximum - new maximum), ``weight`` exp(x - new maximum)."""

    scale: Load
    weight: Load

    @property
    def buffers(self) -> tuple[Buffer, ...]:
        return tuple(Buffer(e.buffer, e.dtype, (), Scope.LOCAL) for e in (self.scale, self.weight))

    def stores(self, old: Expr, x: Expr, now: Expr) -> tuple[Stmt, ...]:
        return Store(self.scale.buffer, (), exponential(old, now)), Store(self.weight.buffer, (), exponential(x, now))


def product_at(ctx: Context, path: Path) -> Product | NotApplicable:
    """The product at ``path``; the weights are stored by a nest to the left of it in the same body."""
    nest = nest_at(ctx, path)
    if nest is None or nest.store.reduce != "+" or nest.store.carry:
        return NotApplicable("pattern", f"the statement at {path_text(path)} is no perfect nest around a sum")
    if (problem := inside_nest(ctx, path)) is not None:
        return problem
    store = nest.store
    indexing = frozenset().union(*map(free_vars, store.indices))
    summed = [loop for loop in nest.loops if loop.var not in indexing]
    if len(summed) != 1:
        return NotApplicable("pattern", f"{store.buffer} sums over {', '.join(loop.var for loop in summed) or 'no loop of the nest'}; one loop is wanted")
    (row,) = summed
    if any(loop.kind not in _KINDS for loop in nest.loops) or row.kind is not LoopKind.SERIAL:
        return NotApplicable("loop-kind", f"{row.var} must be a serial loop, and the others serial or parallel")
    if ctx.reset_loop(nest.store_path) != (*path, *(0,) * nest.loops.index(row)):
        return NotApplicable("reset", f"{store.buffer} does not start anew before loop {row.var}")
    found = next(_weights(ctx, path, store.value), None)
    if found is None:
        return NotApplicable("no-weights", f"no factor of {print_expr(store.value)} is a softmax weight exp(x-m)/s that a nest beside {path_text(path)} stores")
    load, made, value, factor = found
    return _checked(ctx, nest, row, load, made, value, factor)


def _factors(value: Expr) -> list[Expr]:
    return [*_factors(value.args[0]), *_factors(value.args[1])] if isinstance(value, Op) and value.name == "*" else [value]


def _uncast(expr: Expr) -> Expr:
    """The operand beneath casts between floats, which are the identity over the reals."""
    while isinstance(expr, Cast) and expr.type.is_float and expr.arg.dtype.is_float:
        expr = expr.arg
    return expr


def _weights(ctx: Context, path: Path, value: Expr) -> Iterator[tuple[Load, Path, Op, Expr]]:
    """Factors that read a stored ``exp(x-m)/s``: the read, the place of the store, what it stores (over the reader's loops), the product of the others."""
    every = _factors(value)
    depth = len(path) - 1
    for n, part in enumerate(every):
        load = _uncast(part)
        if not isinstance(load, Load) or len(every) < 2:
            continue
        writers = [(p, s) for p, s in ctx.stores if s.buffer == load.buffer]
        if len(writers) != 1 or writers[0][0][:depth] != path[:-1] or writers[0][0][depth] >= path[depth] or writers[0][1].reduce is not None:
            continue
        nest = nest_at(ctx, writers[0][0][: depth + 1])
        names = [loop.var for loop in nest.loops] if nest is not None else []
        if nest is None or nest.store_path != writers[0][0] or sum(isinstance(i, Var) and i.name in names for i in nest.store.indices) != len(names):
            continue
        by = bind(nest.store.indices, load.indices, names)
        stored = _uncast(substitute(nest.store.value, by)) if by is not None and len(by) == len(names) else None
        if isinstance(stored, Op) and stored.name == "/" and isinstance(stored.args[1], Load) and exponent_parts(stored.args[0]) is not None:
            rest = [*every[:n], *every[n + 1 :]]
            yield load, nest.path, stored, reduce(lambda a, b: a * b, rest)


def _checked(ctx: Context, nest: Nest, row: Loop, load: Load, made: Path, value: Op, factor: Expr) -> Product | NotApplicable:
    parts, total, store = exponent_parts(value.args[0]), value.args[1], nest.store
    assert parts is not None
    assert isinstance(total, Load)
    x, peak = parts
    if not peak.dtype is total.dtype is factor.dtype is store.value.dtype:
        return NotApplicable("dtype", f"{store.buffer} sums in {store.value.dtype}, the maximum is {peak.dtype} and the sum of exponentials {total.dtype}")
    top, bottom = find_row(ctx, made, peak.buffer, "max"), find_row(ctx, made, total.buffer, "+")
    if top is None or not top.agrees(peak.indices, x, row):
        return NotApplicable(
            "not-the-maximum", f"no statement beside {path_text(made)} shows that {print_expr(peak)} is the maximum of {print_expr(x)} over {row.var}"
        )
    if bottom is None or not bottom.agrees(total.indices, x, row):
        return NotApplicable(
            "not-the-sum",
            f"no statement beside {path_text(made)} shows that {print_expr(total)} is the sum of exp({print_expr(x)}-{print_expr(peak)}) over {row.var}",
        )
    if not frozenset().union(*map(free_vars, total.indices)) <= frozenset().union(*map(free_vars, peak.indices)):
        return NotApplicable("rows", f"{print_expr(total)} varies with more loops than {print_expr(peak)}")
    reads = {e.buffer for e in loads(x)} | {peak.buffer, total.buffer}
    depth = len(nest.path) - 1
    changed = sorted({s.buffer for p, s in ctx.stores if s.buffer in reads and p[:depth] == made[:-1] and made[-1] <= p[depth] < nest.path[-1]})
    if changed:
        return NotApplicable("written-between", f"{changed[0]}, which the weights are made of, is written between {path_text(made)} and {path_text(nest.path)}")
    by_row = frozenset().union(*map(free_vars, peak.indices))
    rows = tuple(loop for loop in nest.loops if loop.var in by_row)
    columns = tuple(loop for loop in nest.loops if loop.var not in by_row and loop is not row)
    inner = {row.var, *(loop.var for loop in columns)}
    wrong = [loop.var for loop in rows if free_vars(loop.extent) & inner] + [loop.var for loop in columns if row.var in free_vars(loop.extent)]
    if wrong or free_vars(row.extent) & inner:
        return NotApplicable("extent-varies", f"the extent of {wrong[0] if wrong else row.var} depends on a loop that has to run inside of it")
    if {store.buffer, load.buffer} & {e.buffer for e in (*loads(factor), *loads(x))}:
        return NotApplicable("pattern", f"{store.buffer} or {load.buffer} is read beside the weight")
    constraint = nonempty(ctx, row)
    if isinstance(constraint, NotApplicable):
        return constraint
    every = sum(e.buffer == load.buffer for met in ctx.visits for expr in stmt_exprs(met.stmt) for e in loads(expr))
    columns = tuple(replace(loop, kind=LoopKind.SERIAL, body=()) for loop in columns)
    return Product(nest, rows, columns, row, x, peak, total, factor, load.buffer, made, every, constraint)


# the running form


def scalars(ctx: Context, found: Product) -> Scalars:
    """Names for the scale and the weight of one iteration."""
    scale, weight = ctx.fresh_global("a", "w")
    dtype = found.peak.dtype
    return Scalars(Load(scale, (), dtype), Load(weight, (), dtype))


def start_outputs(found: Product) -> tuple[Stmt, ...]:
    """The outputs of a row start from 0."""
    return wrap(found.columns, (Store(found.store.buffer, found.store.indices, const(0, found.peak.dtype)),))


def step_outputs(found: Product, old: Expr, local: Scalars) -> tuple[Stmt, ...]:
    """One element of the row: outputs so far rescaled, and its own part added."""
    value = rescaled(old, found.target, local.scale) + local.weight * found.factor
    return wrap(found.columns, (Store(found.store.buffer, found.store.indices, value),))


def finish_outputs(found: Product) -> tuple[Stmt, ...]:
    """One division per output."""
    return wrap(found.columns, (Store(found.store.buffer, found.store.indices, found.target / found.total),))


def product_facts(found: Product) -> tuple[Fact, ...]:
    """What the product is in the parent, and what the running form rests on."""
    out = [
        fact(
            "weighted_by_softmax",
            "parent",
            buffer=found.store.buffer,
            weights=found.weights,
            sum=found.total.buffer,
            other=found.peak.buffer,
            loop=found.row.var,
            text=print_expr(found.factor),
        ),
    ]
    if found.constraint is not None:
        out.append(fact("row_not_empty", "child", loop=found.row.var, constraint=print_expr(found.constraint)))
    return tuple(out)


def divided_once(child: Program, found: Product) -> Fact:
    """How many divisions the running form does."""
    whole = buffer_table(child)[found.store.buffer]
    return fact("divided_once", "child", buffer=found.store.buffer, sum=found.total.buffer, count=math.prod(shape_of(whole.shape, child)))
