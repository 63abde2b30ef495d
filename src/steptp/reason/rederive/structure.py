"""Claims about loops, sizes, guards and buffers, read off the two trees."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from zlib import crc32

from steptp.errors import LeirError
from steptp.ir.index import ix, same_index, simplify_index
from steptp.ir.nodes import Buffer, Expr, If, Load, Loop, Op, Path, Program, Size, Stmt, Store, Var
from steptp.ir.printer import print_expr
from steptp.ir.sizes import constraint_holds, eval_index
from steptp.ir.types import DType, LoopKind
from steptp.ir.walk import free_vars, map_expr, substitute
from steptp.reason.patterns import Claim
from steptp.reason.rederive.context import CheckContext, Rederivation, loop_at
from steptp.reason.rederive.figures import _declared, _moves

__all__ = ["STRUCTURE"]


def _walk(program: Program) -> Iterator[tuple[Path, Stmt, tuple[Loop | If, ...]]]:
    def below(body: tuple[Stmt, ...], prefix: Path, around: tuple[Loop | If, ...]) -> Iterator[tuple[Path, Stmt, tuple[Loop | If, ...]]]:
        for n, stmt in enumerate(body):
            yield (*prefix, n), stmt, around
            if not isinstance(stmt, Store):
                yield from below(stmt.body, (*prefix, n), (*around, stmt))

    return below(program.body, (), ())


def _named_loop(c: Claim, ctx: CheckContext) -> Loop | str:
    """The parent's loop that a claim names, if it is the site's."""
    place = c.place("at")
    loop = loop_at(ctx.parent, place)
    if loop is None or loop.var != c["loop"]:
        return f"there is no loop {c['loop']} at {c['at']}"
    return loop if place == ctx.path else f"{c['at']} is not the step's site"


def _loop_extent(c: Claim, ctx: CheckContext) -> str | None:
    loop = _named_loop(c, ctx)
    if isinstance(loop, str):
        return loop
    want = (eval_index(loop.extent, ctx.parent.size_env), print_expr(loop.extent, DType.I64))
    return None if (c.number("extent"), c["text"]) == want else f"its extent is `{want[1]}`, {want[0]} iterations"


def _perfect_nest(c: Claim, ctx: CheckContext) -> str | None:
    place = c.place("at")
    loop = loop_at(ctx.parent, place)
    if not ctx.near(place):
        return "not at the step's site"
    for position, name in enumerate(c.names("loops")):
        if loop is None or loop.var != name:
            return f"{name} is not next in the nest"
        if position + 1 < len(c.names("loops")):
            if len(loop.body) != 1 or loop.tmps:
                return f"something stands between {name} and the next loop"
            inner = loop.body[0]
            loop = inner if isinstance(inner, Loop) else None
    return None


def _new_sizes(ctx: CheckContext) -> dict[str, int]:
    old = {s.name for s in ctx.parent.sizes}
    return {s.name: s.value for s in ctx.child.sizes if s.name not in old}


def _tile_size(c: Claim, ctx: CheckContext) -> str | None:
    return None if _new_sizes(ctx).get(c["name"]) == c.number("value") else f"new sizes: {_new_sizes(ctx)}"


def _factor_known(ctx: CheckContext, factor: int) -> bool:
    """Whether a factor is one of the step: among its parameters, by value or by the name of a size."""
    env = {**ctx.parent.size_env, **ctx.child.size_env}
    return any(str(factor) == v or env.get(v) == factor for v in ctx.params.values()) or factor in _new_sizes(ctx).values()


def _site_extents(ctx: CheckContext) -> set[int]:
    """Extents of the loops at and around the site."""
    found = set()
    for path, stmt, _ in _walk(ctx.parent):
        if isinstance(stmt, Loop) and ctx.near(path) and not free_vars(stmt.extent):
            found.add(eval_index(stmt.extent, ctx.parent.size_env))
    return found


def _factor_and_extent(c: Claim, ctx: CheckContext) -> str | None:
    if not _factor_known(ctx, c.number("factor")):
        return f"{c['factor']} is no factor of this step"
    return None if c.number("extent") in _site_extents(ctx) else f"no loop at the site runs {c['extent']} iterations"


def _divides(c: Claim, ctx: CheckContext) -> str | None:
    if (problem := _factor_and_extent(c, ctx)) is not None:
        return problem
    if c.number("extent") % c.number("factor"):
        return f"{c['factor']} does not divide {c['extent']}"
    stated = {print_expr(x) for x in ctx.child.constraints}
    return None if not c["constraint"] or c["constraint"] in stated else f"the header does not state {c['constraint']}"


def _tail_guard(c: Claim, ctx: CheckContext) -> str | None:
    if (problem := _factor_and_extent(c, ctx)) is not None:
        return problem
    if c["cond"] not in _conditions(ctx.child) - _conditions(ctx.parent):
        return f"no new guard `{c['cond']}`"
    tiles = -(-c.number("extent") // c.number("factor"))
    idle = tiles * c.number("factor") - c.number("extent")
    return None if idle == c.number("idle") else f"{idle} iterations are idle"


def _conditions(program: Program) -> set[str]:
    """Every guard and every part of one joined by ``and``."""
    found: set[str] = set()
    pending = [s.cond for _, s, _ in _walk(program) if isinstance(s, If)]
    while pending:
        cond = pending.pop()
        found.add(print_expr(cond))
        if isinstance(cond, Op) and cond.name == "and":
            pending += cond.args
    return found


def _tail_peeled(c: Claim, ctx: CheckContext) -> str | None:
    if (problem := _factor_and_extent(c, ctx)) is not None:
        return problem
    rest = c.number("extent") % c.number("factor")
    if not rest or rest != c.number("iterations"):
        return f"{rest} iterations are left"
    env = ctx.child.size_env
    return (
        None
        if any(isinstance(s, Loop) and not free_vars(s.extent) and eval_index(s.extent, env) == rest for _, s, _ in _walk(ctx.child))
        else "no loop runs them"
    )


def _same_value(a: Expr, b: Expr, loops: Sequence[Loop], program: Program) -> bool:
    """Equal as polynomials, or at two dozen iterations at the present sizes and at others (``f//N*N + f%N`` is ``f``)."""
    if same_index(a, b):
        return True
    rng = random.Random(0)
    agreed = 0
    for point in range(48):
        env: dict[str, int] = {}
        try:
            for size in program.sizes:
                env[size.name] = eval_index(size.expr, env) if size.expr is not None else size.value + (rng.randrange(1, 9) if point % 2 else 0)
            if min(env.values(), default=1) < 1 or not constraint_holds(program, env):
                continue
            for loop in loops:
                env[loop.var] = rng.randrange(max(eval_index(loop.extent, env), 1))
            if _looked_up(a, env) != _looked_up(b, env):
                return False
        except LeirError:
            return False
        agreed += 1
    return agreed >= 24


def _without(expr: Expr, gone: Mapping[str, int]) -> Expr:
    """Sizes that the child no longer has stand for their present values."""
    return map_expr(expr, lambda e: ix(gone[e.name]) if isinstance(e, Size) and e.name in gone else e)


def _looked_up(expr: Expr, env: dict[str, int]) -> int:
    """The value of an index; what a table holds at a place is a fixed number."""

    def leave(e: Expr) -> Expr:
        return ix(crc32(repr((e.buffer, [eval_index(i, env) for i in e.indices])).encode())) if isinstance(e, Load) else e

    return eval_index(map_expr(expr, leave), env)


def _index_map(c: Claim, ctx: CheckContext) -> str | None:
    """Some store under the site, with the variable replaced, is a store of the child (indices equal as polynomials)."""
    from steptp.ir.parser import parse_expr

    if not any(isinstance(s, Loop) and s.var == c["loop"] and ctx.near(p) for p, s, _ in _walk(ctx.parent)):
        return f"no loop {c['loop']} at the site"
    names = tuple({s.var for _, s, _ in _walk(ctx.child) if isinstance(s, Loop)})
    together = {m["loop"]: parse_expr(m["becomes"], ctx.child, names) for m in ctx.said if m.kind == "index_map"} or {
        c["loop"]: parse_expr(c["becomes"], ctx.child, names)
    }
    if together.get(c["loop"]) in (None, Var(c["loop"])) or sum(m.kind == "index_map" and m["loop"] == c["loop"] for m in ctx.said) > 1:
        return "that changes nothing, or is said twice"
    kept = {s.name for s in ctx.child.sizes}
    gone = {s.name: s.value for s in ctx.parent.sizes if s.name not in kept}
    for path, store, around in _walk(ctx.parent):
        if not isinstance(store, Store) or not ctx.near(path) or not any(isinstance(p, Loop) and p.var == c["loop"] for p in around):
            continue
        for _, other, outside in _walk(ctx.child):
            if isinstance(other, Store) and other.buffer == store.buffer and len(other.indices) == len(store.indices):
                extents = {p.var: p.extent for p in outside if isinstance(p, Loop)}
                if c["loop"] in extents:
                    continue
                mine = [simplify_index(_without(substitute(e, together), gone), extents) for e in _all_indices(store)]
                theirs = [simplify_index(e, extents) for e in _all_indices(other)]
                uses = any(c["loop"] in free_vars(e) for e in _all_indices(store))
                loops = [p for p in outside if isinstance(p, Loop)]
                if uses and len(mine) == len(theirs) and all(_same_value(a, b, loops, ctx.child) for a, b in zip(mine, theirs, strict=True)):
                    return None
    return f"no store of the child has {c['becomes']} where the parent has {c['loop']}"


def _all_indices(store: Store) -> list[Expr]:
    from steptp.reason.rederive.figures import _below

    return [*store.indices, *(i for e in _below(store.value) if isinstance(e, Load) for i in e.indices)]


def _loop_moved(c: Claim, ctx: CheckContext) -> str | None:
    loop = _named_loop(c, ctx)
    if isinstance(loop, str):
        return loop
    place, source, target = c.place("at"), c.number("source"), c.number("target")
    nests = _nests(ctx.child)
    order = list(c.names("order"))
    if any(sorted(m.names("loops")) != sorted(order) for m in ctx.said if m.kind == "perfect_nest"):
        return "the nest has other loops"
    if source == target or not 0 <= target < len(order) or order[target] != c["loop"]:
        return f"{c['loop']} is not at position {target} of {order}"
    old = order[:target] + order[target + 1 :]
    old.insert(source, c["loop"])
    if not any(names[: len(old)] == old or _contains(names, old) for names in _nests(ctx.parent)):
        return f"the parent has no nest {', '.join(old)}"
    if len(place) < source + 1:
        return f"no nest has {c['loop']} at position {source} of {c['at']}"
    return None if any(_contains(names, order) for names in nests) else f"the child has no nest {', '.join(order)}"


def _contains(names: list[str], run: list[str]) -> bool:
    return any(names[n : n + len(run)] == run for n in range(len(names) - len(run) + 1))


def _nests(program: Program) -> list[list[str]]:
    """Variables of the loops around every store, outermost first."""
    return [[p.var for p in around if isinstance(p, Loop)] for _, s, around in _walk(program) if isinstance(s, Store)]


def _loop_kind(c: Claim, ctx: CheckContext) -> str | None:
    loop = _named_loop(c, ctx)
    if isinstance(loop, str):
        return loop
    after = loop_at(ctx.child, c.place("at"))
    if loop.kind.value != c["old"] or after is None or after.var != loop.var:
        return f"it is a {loop.kind} loop"
    return None if after.kind.value == c["new"] != c["old"] else f"it becomes a {after.kind} loop"


def _loops_collapsed(c: Claim, ctx: CheckContext) -> str | None:
    outer, inner, extent = c.number("outer"), c.number("inner"), c.number("extent")
    loop = loop_at(ctx.parent, ctx.path)
    below = loop.body[0] if loop is not None and loop.body else None
    if loop is None or not isinstance(below, Loop):
        return "the site is no pair of loops"
    env = ctx.parent.size_env
    if (eval_index(loop.extent, env), eval_index(below.extent, env)) != (outer, inner) or outer * inner != extent:
        return f"the loops run {eval_index(loop.extent, env)} and {eval_index(below.extent, env)} iterations"
    after = loop_at(ctx.child, ctx.path)
    return None if after is not None and eval_index(after.extent, ctx.child.size_env) == extent else f"no loop of {extent} iterations at the site"


def _parallel_iterations(c: Claim, ctx: CheckContext) -> str | None:
    loop = _named_loop(c, ctx)
    if isinstance(loop, str):
        return loop
    count = eval_index(loop.extent, ctx.parent.size_env)
    after = {s.kind for _, s, _ in _walk(ctx.child) if isinstance(s, Loop) and s.var == loop.var} - {loop.kind}
    if not any(kind is LoopKind.PARALLEL or kind.is_bound for kind in after):
        return f"{loop.var} becomes no parallel loop"
    return None if count == c.number("iterations") else f"it runs {count} iterations"


def _body_copies(c: Claim, ctx: CheckContext) -> str | None:
    """Copies of the body: this loop's iterations, times those of unrolled loops around."""
    loop = _named_loop(c, ctx)
    if isinstance(loop, str):
        return loop
    place = c.place("at")
    env = ctx.parent.size_env
    count = eval_index(loop.extent, env)
    for n in range(1, len(place)):
        outer = loop_at(ctx.parent, place[:n])
        if outer is not None and outer.kind.value == "unroll":
            count *= eval_index(outer.extent, env)
    return None if c.number("copies") == count else f"the body stands there {count} times"


def _stride(c: Claim, ctx: CheckContext) -> str | None:
    loop = _named_loop(c, ctx)
    if isinstance(loop, str):
        return loop
    place = c.place("at")
    for path, store, _ in _walk(ctx.parent):
        if isinstance(store, Store) and path[: len(place)] == place:
            from steptp.reason.rederive.figures import _distinct

            access = _distinct(store).get(c["access"])
            if access is not None:
                moved = _moves(access, loop, ctx.parent)
                return None if moved == c.number("elements") else f"it moves by {moved}"
    return f"no access `{c['access']}` under the loop"


def _guard_in_vector(c: Claim, ctx: CheckContext) -> str | None:
    loop = _named_loop(c, ctx)
    if isinstance(loop, str):
        return loop
    place = c.place("at")
    guards = [s for p, s, _ in _walk(ctx.parent) if isinstance(s, If) and p[: len(place)] == place]
    return None if any(print_expr(g.cond) == c["cond"] and loop.var in free_vars(g.cond) for g in guards) else "no such guard in the loop"


def _elements(b: Buffer, program: Program) -> int:
    total = 1
    for s in b.shape:
        total *= eval_index(s, program.size_env)
    return total


def _buffer_added(c: Claim, ctx: CheckContext) -> str | None:
    old = {b.name for b in _declared(ctx.parent)}
    new = {b.name: b for b in _declared(ctx.child) if b.name not in old}
    made = new.get(c["name"])
    if made is None:
        return f"new temporaries: {sorted(new) or 'none'}"
    want = (_elements(made, ctx.child), made.dtype.value)
    return None if (c.number("elements"), c["dtype"]) == want else f"it has {want[0]} elements of {want[1]}"


def _partial_accumulators(c: Claim, ctx: CheckContext) -> str | None:
    """In the child one element combines ``copies`` elements of a new temporary; terms × copies is the number of terms of one element in the parent."""
    old = {b.name for b in _declared(ctx.parent)}
    if c["buffer"] not in old:
        return f"no buffer {c['buffer']}"
    copies, terms = c.number("copies"), c.number("terms")
    combined = {
        _turns(store, around, (c["buffer"], store.value.buffer), ctx.child)
        for _, store, around in _walk(ctx.child)
        if isinstance(store, Store) and (store.buffer, store.reduce is None) == (c["buffer"], False)
        if isinstance(store.value, Load) and store.value.buffer not in old
    }
    if copies not in combined:
        return f"{c['buffer']} combines {sorted(combined) or 'no'} partial accumulators"
    totals = {
        _turns(store, around, (c["buffer"],), ctx.parent)
        for _, store, around in _walk(ctx.parent)
        if isinstance(store, Store) and (store.buffer, store.reduce is None) == (c["buffer"], False)
    }
    return None if any(copies * terms == t or terms == -(-t // copies) for t in totals) else f"terms of one element: {sorted(totals)}"


def _turns(store: Store, around: Sequence[Loop | If], buffers: Sequence[str], program: Program) -> int:
    """How often one element is accumulated to: each iteration of a loop that declares one of ``buffers`` starts anew."""
    indexing = set().union(*(free_vars(i) for i in store.indices))
    start = max((n + 1 for n, p in enumerate(around) if isinstance(p, Loop) and any(b.name in buffers for b in p.tmps)), default=0)
    count = 1
    for p in around[start:]:
        if isinstance(p, Loop) and p.var not in indexing and not free_vars(p.extent):
            count *= eval_index(p.extent, program.size_env)
    return count


STRUCTURE: dict[str, Rederivation] = {
    "loop_extent": _loop_extent,
    "perfect_nest": _perfect_nest,
    "tile_size": _tile_size,
    "divides": _divides,
    "tail_guard": _tail_guard,
    "tail_peeled": _tail_peeled,
    "index_map": _index_map,
    "loop_moved": _loop_moved,
    "loop_kind": _loop_kind,
    "loops_collapsed": _loops_collapsed,
    "parallel_iterations": _parallel_iterations,
    "body_copies": _body_copies,
    "stride": _stride,
    "guard_in_vector": _guard_in_vector,
    "buffer_added": _buffer_added,
    "partial_accumulators": _partial_accumulators,
}
