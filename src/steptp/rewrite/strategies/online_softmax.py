"""Fuse a row maximum with the sum of exponentials that subtracts it: one pass with a running maximum.

The running form of Milakov and Gimelshein, "Online normalizer calculation for softmax" (2018), section 3. While the maximum is
still -inf the sum holds nothing but terms that the final maximum makes 0 (or NaN, in a row without a finite element), so it is dropped, not scaled.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from steptp.ir import Buffer, Expr, Load, Loop, LoopKind, Op, Path, Scope, Store, Var, call, const, print_expr, select
from steptp.ir.nodes import Stmt
from steptp.ir.walk import body_at, free_vars, loads, map_stmt_exprs, replace_body, substitute
from steptp.rewrite.base import Applied, Exactness, Family, Forwarding, NotApplicable, Outcome
from steptp.rewrite.context import Context, path_text
from steptp.rewrite.fact_kinds import fact
from steptp.rewrite.loop_pattern import LoopPattern

__all__ = ["OnlineSoftmax", "STRATEGY"]


@dataclass(frozen=True)
class _Nest:
    """A perfect nest of ``loops`` around one accumulation; the innermost loop is the reduction."""

    loops: tuple[Loop, ...]
    store: Store


class OnlineSoftmax(LoopPattern[tuple[_Nest, _Nest, Expr]]):
    """Site: path of the nest that takes the maximum; its right neighbour sums ``exp(x-m)`` over the same loop."""

    name = "online_softmax"
    family = Family.ONLINE
    classes = (Exactness.ALGEBRAIC,)
    summary = "take the row maximum and the sum of exponentials in one pass"

    def match(self, ctx: Context, path: Path) -> tuple[_Nest, _Nest, Expr] | NotApplicable:
        return _match(ctx, path)

    def rewrite(self, ctx: Context, path: Path, found: tuple[_Nest, _Nest, Expr]) -> Outcome:
        first, second, x = found
        m, s, dtype = first.store, second.store, first.store.value.dtype
        (name,) = ctx.fresh_global("p")
        running, total, peak = Load(m.buffer, m.indices, dtype), Load(s.buffer, s.indices, dtype), Load(name, (), dtype)
        kept = select(running.eq(const(float("-inf"), dtype)), const(0, dtype), total * call("exp", running - peak))
        inner: tuple[Stmt, ...] = (
            Store(name, (), call("max", running, x)),
            Store(s.buffer, s.indices, kept + call("exp", x - peak)),
            Store(m.buffer, m.indices, peak),
        )
        reduction = replace(first.loops[-1], body=inner, tmps=(Buffer(name, dtype, (), Scope.LOCAL),))
        block: tuple[Stmt, ...] = (Store(m.buffer, m.indices, const(float("-inf"), dtype)), Store(s.buffer, s.indices, const(0, dtype)), reduction)
        for loop in reversed(first.loops[:-1]):
            block = (replace(loop, body=block),)
        owner, n = path[:-1], path[-1]
        body = body_at(ctx.program, owner)
        child = replace_body(ctx.program, owner, (*body[:n], *block, *body[n + 2 :]))
        return Applied(
            child,
            Exactness.ALGEBRAIC,
            (
                fact("running_maximum", "parent", buffer=m.buffer, sum=s.buffer, loop=first.loops[-1].var, text=print_expr(x)),
                fact("rescaled", "child", sum=s.buffer, peak=name),
            ),
            None,
            Forwarding(((path, None), ((*owner, n + 1), None), *(((*owner, k), (*owner, k - 2 + len(block))) for k in range(n + 2, len(body))))),
        )


def _nest(ctx: Context, path: Path) -> _Nest | None:
    loops: list[Loop] = []
    stmt = ctx.stmt(path)
    while isinstance(stmt, Loop) and len(stmt.body) == 1 and not stmt.tmps:
        loops.append(stmt)
        stmt = stmt.body[0]
    return _Nest(tuple(loops), stmt) if loops and isinstance(stmt, Store) and stmt.reduce is not None and not stmt.carry else None


def _match(ctx: Context, path: Path) -> tuple[_Nest, _Nest, Expr] | NotApplicable:
    first, second = _nest(ctx, path), _nest(ctx, (*path[:-1], path[-1] + 1)) if path else None
    if first is None or second is None or first.store.reduce != "max" or second.store.reduce != "+":
        return NotApplicable("pattern", f"{path_text(path)} and its right neighbour are not a maximum and a sum in perfect nests")
    names = {b.var: Var(a.var) for a, b in zip(first.loops, second.loops, strict=False)}
    if len(first.loops) != len(second.loops) or any(
        a.extent != substitute(b.extent, names) or a.kind is not b.kind for a, b in zip(first.loops, second.loops, strict=True)
    ):
        return NotApplicable("header", "the maximum and the sum run over different loops")
    if any(loop.kind not in (LoopKind.SERIAL, LoopKind.PARALLEL) for loop in first.loops) or first.loops[-1].kind is not LoopKind.SERIAL:
        return NotApplicable("loop-kind", "the pass over the row must be a serial loop")
    moved = map_stmt_exprs(second.store, lambda e: substitute(e, names))
    assert isinstance(moved, Store)
    x, value, m = first.store.value, moved.value, first.store
    peak = Load(m.buffer, m.indices, x.dtype)
    if not (isinstance(value, Op) and value.name == "exp" and value.args[0] == Op("-", (x, peak), x.dtype)):
        return NotApplicable("pattern", f"the sum is not over exp(x-{m.buffer}[...]) with the maximum's own x")
    row = first.loops[-1].var
    outer = {loop.var for loop in first.loops[:-1]}
    for store in (m, moved):
        over = frozenset().union(*(free_vars(i) for i in store.indices)) if store.indices else frozenset[str]()
        if row in over or not outer <= over:
            return NotApplicable("indices", f"{store.buffer} is not indexed by all loops of the nest around {row}, and by those only")
    for nest_path, depth, store in ((path, len(first.loops), m), ((*path[:-1], path[-1] + 1), len(second.loops), moved)):
        if ctx.reset_loop((*nest_path, *(0,) * depth)) != (*nest_path, *(0,) * (depth - 1)):
            return NotApplicable("reset", f"{store.buffer} does not start anew for every row: its reset stands outside of the loop over the row")
    if m.indices != moved.indices or any(e.buffer in (m.buffer, moved.buffer) for e in loads(x)):
        return NotApplicable("indices", f"{m.buffer} and {moved.buffer} are indexed differently, or read by the summand")
    return first, replace(second, store=moved), x


STRATEGY = OnlineSoftmax()
