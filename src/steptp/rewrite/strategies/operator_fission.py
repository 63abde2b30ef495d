"""Cut a loop nest in two between two statements of its body."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

from steptp.ir import Buffer, If, Load, Loop, Path, Scope, Store, Var
from steptp.ir.nodes import Body, Expr, Stmt
from steptp.ir.sizes import shape_of
from steptp.ir.walk import body_at, free_vars, map_expr, replace_body
from steptp.rewrite.base import Applied, BufferMap, Exactness, Family, Forwarding, NotApplicable, Outcome, Site, Strategy
from steptp.rewrite.context import Context, no_loop, path_text
from steptp.rewrite.fact_kinds import fact
from steptp.rewrite.orders import order_problem
from steptp.rewrite.tools import accumulation_facts, buffers_touched, instance_map

__all__ = ["OperatorFission", "STRATEGY"]

MAX_ELEMENTS = 1 << 24


class OperatorFission(Strategy):
    """Site: path of the loop whose body is cut, ``at`` = number of statements that stay in front, ``depth`` = loops that both parts get.

    With ``depth`` above 1 the loops around, which must hold nothing else, are copied too. A temporary of a cut loop that both
    parts use gets that loop as a new outermost dimension.
    """

    name = "operator_fission"
    family = Family.GRAPH
    classes = (Exactness.BITWISE,)
    summary = "cut a nest in two between statements of its body"

    def sites(self, ctx: Context) -> Iterator[Site]:
        for path, loop in ctx.loops:
            for at in range(1, len(loop.body)):
                for depth in range(1, len(path) + 1):
                    chain = _chain(ctx, path, depth)
                    if isinstance(chain, NotApplicable):
                        break  # deeper ones are no perfect nest either
                    site = Site.of(self.name, path, at=at, depth=depth)
                    kept = None if isinstance(_expand(ctx, path, at, chain), NotApplicable) else _order_kept(ctx, path, at, depth)
                    if kept or (kept is None and isinstance(self.apply(ctx, site), Applied)):
                        yield site

    def apply(self, ctx: Context, site: Site) -> Outcome:
        path, params = site.path, dict(site.params)
        at, depth = params.get("at"), params.get("depth", 1)
        loop = ctx.loop(path)
        if loop is None:
            return no_loop(path)
        if not isinstance(at, int) or not isinstance(depth, int) or depth < 1 or set(params) - {"at", "depth"}:
            return NotApplicable("bad-site", "operator_fission takes at=<statements in front> and depth=<loops to copy>")
        if not 0 < at < len(loop.body):
            return NotApplicable("no-cut", f"the body of {loop.var} cannot be cut after {at} of its {len(loop.body)} statements")
        chain = _chain(ctx, path, depth)
        if isinstance(chain, NotApplicable):
            return chain
        expanded = _expand(ctx, path, at, chain)
        if isinstance(expanded, NotApplicable):
            return expanded
        body, moved = expanded
        top = path[: len(path) - depth + 1]
        gone = {b.name for b, _ in moved}
        front, back = _wrap(chain, body[:at], gone, body[at:]), _wrap(chain, body[at:], gone, body[:at])
        owner, n = top[:-1], top[-1]
        around = body_at(ctx.program, owner)
        child = replace_body(ctx.program, owner, (*around[:n], front, back, *around[n + 1 :]))
        if moved:
            home = _home(ctx, owner)
            holder = ctx.loop(home)
            child = replace_body(child, home, body_at(child, home), (*(holder.tmps if holder else child.tmps), *(b for b, _ in moved)))
        after = (*owner, n + 1)
        inner = (*after, *path[len(top) :])

        def source(p: Path) -> Path:
            if p[: len(inner)] == inner:
                return (*path, p[len(inner)] + at, *p[len(inner) + 1 :])
            if p[: len(owner)] == owner and len(p) > len(owner) and p[len(owner)] > n + 1:
                return (*owner, p[len(owner)] - 1, *p[len(owner) + 1 :])
            return p

        places = tuple(
            BufferMap(b.name, b.name, (*(Var(o.var) for o in outer), *(Var(f"d{k}") for k in range(len(b.shape) - len(outer))))) for b, outer in moved
        )
        instances = replace(instance_map(ctx.program, child, source, lambda _: {}), buffers=places)
        if not _order_kept(ctx, path, at, depth) and (problem := order_problem(ctx.program, child, instances, "cutting")) is not None:
            return problem
        stmts = [s for _, s in ctx.stores_under(top)]
        return Applied(
            child,
            Exactness.BITWISE,
            (
                fact("cut", "parent", loop=loop.var, at=path_text(path), front=at, back=len(loop.body) - at),
                fact("no_order_reversed", "dependence", buffers=tuple(sorted({s.buffer for s in stmts} - gone))),
                *(fact("expanded", "child", name=b.name, loop=outer[-1].var) for b, outer in moved),
                *accumulation_facts(s for s in stmts if s.buffer not in gone),
            ),
            instances,
            Forwarding(
                (
                    *(((*path, k), (*inner, k - at)) for k in range(at, len(loop.body))),
                    *(((*owner, k), (*owner, k + 1)) for k in range(n + 1, len(around))),
                )
            ),
            () if moved or any(c.kind.is_bound for c in chain) else (Site.of("operator_fusion", top, depth=depth),),
        )


def _chain(ctx: Context, path: Path, depth: int) -> list[Loop] | NotApplicable:
    """The ``depth`` loops that end at ``path``, outermost first; each but the last holds just the next one."""
    loops: list[Loop] = []
    for n in range(depth - 1, -1, -1):
        loop = ctx.loop(path[: len(path) - n])
        if loop is None or (n and len(loop.body) != 1):
            return NotApplicable("imperfect", f"the {depth} loops that end at {path_text(path)} are no perfect nest")
        loops.append(loop)
    return loops


def _order_kept(ctx: Context, path: Path, at: int, depth: int) -> bool | None:
    """Whether the cut keeps the order of all dependences, as far as their masks show it; ``None``: compare the programs.

    It does where no cut loop carries one from the back to the front (Allen and Kennedy, *Optimizing Compilers for Modern Architectures*, section 2.4), and no
    reset of the back moves behind what the front does to its buffer.
    """
    top, found = len(path) - depth + 1, False
    front = frozenset().union(*(names for n in range(at) for names in ctx.touched((*path, n))))
    for at_store, store in ctx.stores_under(path):
        before = ctx.reset_loop(at_store)
        if at_store[len(path)] >= at and before is not None and top <= len(before) <= len(path) and store.buffer in front:
            return None
    for length in range(top, len(path) + 1):
        for dep in ctx.legality.carried_deps(path[:length]):
            source, sink = dep.source.statement.origin, dep.sink.statement.origin
            if source[: len(path)] == path == sink[: len(path)] and sink[len(path)] < at <= source[len(path)]:
                found = True
                if ctx.legality.exists(dep, ()) is not None:
                    return False
    return None if found else True


def _wrap(chain: list[Loop], body: Body, gone: set[str], other: Body) -> Stmt:
    """``body`` under copies of the loops, each with the temporaries that only this part uses."""
    used = _used(body)
    elsewhere = _used(other)
    made: Stmt | None = None
    for n, loop in enumerate(reversed(chain)):
        tmps = tuple(b for b in loop.tmps if b.name not in gone and (b.name in used or b.name not in elsewhere))
        made = replace(loop, body=body if n == 0 else (made,) if made is not None else (), tmps=tmps)
    assert made is not None
    return made


def _used(body: Body) -> frozenset[str]:
    return frozenset().union(*(r | w for r, w in map(buffers_touched, body)))


def _home(ctx: Context, owner: Path) -> Path:
    """The innermost loop (or the program) that can declare a temporary visible in the body at ``owner``."""
    while owner and ctx.loop(owner) is None:
        owner = owner[:-1]
    return owner


def _expand(ctx: Context, path: Path, at: int, chain: list[Loop]) -> tuple[Body, tuple[tuple[Buffer, list[Loop]], ...]] | NotApplicable:
    """Give temporaries that both parts use one more dimension per cut loop around their declaration: new body, (buffer, those loops)."""
    body = body_at(ctx.program, path)
    shared = _used(body[:at]) & _used(body[at:])
    moved: list[tuple[Buffer, list[Loop]]] = []
    for depth, loop in enumerate(chain):
        for buffer in loop.tmps:
            if buffer.name not in shared:
                continue
            outer = chain[: depth + 1]
            for o in outer:
                if free_vars(o.extent):
                    return NotApplicable("extent-varies", f"{buffer.name} would need one copy per iteration of {o.var}, whose extent varies")
            larger = replace(buffer, shape=(*(o.extent for o in outer), *buffer.shape), scope=Scope.GLOBAL)
            elements = math.prod(shape_of(larger.shape, ctx.program))
            if elements > MAX_ELEMENTS:
                return NotApplicable("too-big", f"{buffer.name}, one copy per iteration, would have {elements} elements, more than {MAX_ELEMENTS}")
            moved.append((larger, outer))
            body = _index(body, buffer.name, tuple(Var(o.var) for o in outer))
    return body, tuple(moved)


def _index(body: Body, name: str, outer: tuple[Expr, ...]) -> Body:
    def in_expr(expr: Expr) -> Expr:
        return map_expr(expr, lambda e: Load(name, (*outer, *e.indices), e.type) if isinstance(e, Load) and e.buffer == name else e)

    def one(stmt: Stmt) -> Stmt:
        if isinstance(stmt, Store):
            indices = tuple(in_expr(i) for i in stmt.indices)
            return replace(stmt, indices=(*outer, *indices) if stmt.buffer == name else indices, value=in_expr(stmt.value))
        inner = tuple(one(s) for s in stmt.body)
        return If(in_expr(stmt.cond), inner) if isinstance(stmt, If) else replace(stmt, body=inner)

    return tuple(one(s) for s in body)


STRATEGY = OperatorFission()
