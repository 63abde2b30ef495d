"""Nests that sum products: what strategies that use the distributive law share."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from steptp.analysis.values import scope_of
from steptp.ir import Buffer, Expr, Load, Loop, LoopKind, Op, Path, Program, Stmt, Store, Var, print_expr
from steptp.ir.facts import Fact
from steptp.ir.sizes import shape_of
from steptp.ir.walk import body_at, buffer_table, free_vars, loads, replace_body
from steptp.rewrite.base import NotApplicable
from steptp.rewrite.context import Context, path_text
from steptp.rewrite.fact_kinds import fact
from steptp.rewrite.moving import SingleNest, single_nest
from steptp.rewrite.regions import reads_of

__all__ = ["MAX_ELEMENTS", "SumNest", "declare", "finite", "multiplied", "product_of", "same_target", "sole_read", "sum_nest", "too_big", "wrapped"]

MAX_ELEMENTS = 1 << 24


@dataclass(frozen=True, slots=True)
class SumNest:
    """A nest around one resetting float sum: ``spatial`` loops index its target, ``reduction`` loops do not."""

    nest: SingleNest
    spatial: tuple[Loop, ...]
    reduction: tuple[Loop, ...]

    @property
    def store(self) -> Store:
        return self.nest.store

    @property
    def path(self) -> Path:
        return self.nest.path


def sum_nest(ctx: Context, path: Path) -> SumNest | NotApplicable:
    """The nest at ``path`` if it is a chain of serial or parallel loops of fixed extents around one sum that starts at 0; kept with the program."""
    return ctx.kept("sum_nest", path, lambda: _sum_nest(ctx, path))


def _sum_nest(ctx: Context, path: Path) -> SumNest | NotApplicable:
    nest = single_nest(ctx, path)
    if isinstance(nest, NotApplicable):
        return nest
    store = nest.store
    if store.reduce != "+" or not store.value.dtype.is_float:
        return NotApplicable("not-a-sum", f"the nest at {path_text(path)} is no floating-point sum")
    reset = ctx.reset_loop(nest.store_path)
    if reset is None or reset[: len(path)] != path:
        return NotApplicable("carry", f"the sum into {store.buffer} starts outside of the nest at {path_text(path)}")
    for owner in (*(loop for _, loop in ctx.enclosing_loops(path)), *nest.owners):
        if not isinstance(owner, Loop):
            return NotApplicable("guarded", f"a guard stands around the sum into {store.buffer}")
        if owner.kind not in (LoopKind.SERIAL, LoopKind.PARALLEL):
            return NotApplicable("kind", f"{owner.var} is a loop of kind {owner.kind.value}; serial and parallel ones are taken")
    for loop in nest.loops:
        if free_vars(loop.extent):
            return NotApplicable("extent-varies", f"{loop.var} runs {print_expr(loop.extent)} times, which changes with the loops around it")
    if any(e.buffer == store.buffer for x in (store.value, *store.indices) for e in loads(x)):
        return NotApplicable("reads-itself", f"the summed value reads {store.buffer} itself")
    indexing = frozenset().union(*map(free_vars, store.indices))
    spatial = tuple(loop for loop in nest.loops if loop.var in indexing)
    return SumNest(nest, spatial, tuple(loop for loop in nest.loops if loop.var not in indexing))


def multiplied(expr: Expr) -> Iterator[Expr]:
    """The operands of a product, left to right."""
    if isinstance(expr, Op) and expr.name == "*":
        yield from multiplied(expr.args[0])
        yield from multiplied(expr.args[1])
    else:
        yield expr


def product_of(operands: Sequence[Expr]) -> Expr:
    """Their product, from the left."""
    out = operands[0]
    for operand in operands[1:]:
        out = out * operand
    return out


def wrapped(loops: Sequence[Loop], store: Store) -> Stmt:
    """``store`` in copies of the loops, outermost first; a loop is parallel only if it was and indexes the target."""
    out: Stmt = store
    indexing = frozenset().union(*map(free_vars, store.indices))
    for loop in reversed(loops):
        kind = loop.kind if loop.kind is LoopKind.PARALLEL and loop.var in indexing else LoopKind.SERIAL
        out = Loop(loop.var, loop.extent, (out,), kind)
    return out


def declare(program: Program, ctx: Context, path: Path, *made: Buffer) -> Program:
    """The program with temporaries for the body around ``path``: of the nearest loop, or of the program."""
    home = ctx.enclosing_loops(path)[-1][0] if ctx.enclosing_loops(path) else ()
    holder = ctx.loop(home)
    return replace_body(program, home, body_at(program, home), (*(holder.tmps if holder is not None else program.tmps), *made))


def too_big(ctx: Context, name: str, shape: Sequence[Expr]) -> NotApplicable | None:
    """The refusal of a temporary beyond :data:`MAX_ELEMENTS`."""
    elements = math.prod(shape_of(tuple(shape), ctx.program))
    return NotApplicable("too-big", f"{name} would have {elements} elements, more than {MAX_ELEMENTS}") if elements > MAX_ELEMENTS else None


def finite(ctx: Context, path: Path, exprs: Sequence[Expr]) -> tuple[Fact, ...] | NotApplicable:
    """Facts that these operands of the store at ``path`` are finite (inputs and literals are), or the refusal that names one that may not be."""
    scope, facts = scope_of(ctx.program, path), []
    known = {b.name for b in ctx.program.inputs}
    for expr in dict.fromkeys(exprs):
        if not scope.of(expr).finite:
            text = print_expr(expr, expr.dtype)
            return NotApplicable("not-finite", f"`{text}` may be infinite or undefined, and then the distributive law does not hold")
        read = {e.buffer for e in loads(expr)}
        if read - known:
            facts.append(fact("operand_finite", "rule", text=print_expr(expr, expr.dtype), at=path_text(path)))
    return tuple(facts)


def sole_read(ctx: Context, name: str, where: Path) -> NotApplicable | None:
    """The refusal unless ``name`` is a temporary that only one read, at the store ``where``, uses."""
    if all(b.name != name for b in ctx.program.tmps) and all(b.name != name for _, loop in ctx.loops for b in loop.tmps):
        return NotApplicable("interface", f"{name} is no temporary, so it has to be computed as it is")
    found = reads_of(ctx.program).get(name, ())
    if len(found) != 1 or found[0].met.path != where:
        return NotApplicable("used", f"{name} is read {len(found)} times; it goes only where the store at {path_text(where)} alone reads it, once")
    return None


def same_target(ctx: Context, producer: SumNest, load: Load) -> dict[str, Expr] | NotApplicable:
    """Spatial variable of ``producer`` → index of ``load``, where its target is indexed by them alone and it is the only writer."""
    store = producer.store
    if sum(s.buffer == store.buffer for _, s in ctx.stores) != 1:
        return NotApplicable("many-writers", f"{store.buffer} is written by several statements")
    own = {loop.var: loop.extent for loop in producer.spatial}
    by: dict[str, Expr] = {}
    shape = buffer_table(ctx.program)[store.buffer].shape
    for index, read, size in zip(store.indices, load.indices, shape, strict=True):
        if isinstance(index, Var) and own.get(index.name) == size and index.name not in by:
            by[index.name] = read
        elif free_vars(index) or index != read:
            return NotApplicable("indices", f"{store.buffer} is not written with one loop for each dimension")
    return by
