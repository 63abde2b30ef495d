"""Claims about where temporaries live: cut and fused dimensions, storage scopes, tables of indices."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator
from itertools import product

from steptp.ir.nodes import Buffer, Cast, Const, Expr, Load, Loop, Op, Path, Program, Store, Var
from steptp.ir.printer import print_expr
from steptp.ir.sizes import eval_index
from steptp.ir.types import DType, LoopKind
from steptp.ir.walk import enclosing, free_vars, get, loads
from steptp.reason.patterns import Claim
from steptp.reason.rederive.context import CheckContext, Rederivation
from steptp.reason.rederive.figures import _below, _declared
from steptp.reason.rederive.structure import _walk
from steptp.reason.rederive.symbolic import Element, Event

__all__ = ["STORAGE", "coordinates", "laid_out"]

_BYTES_LOCAL, _BYTES_SHARED = 32768, 49152


def _find(program: Program, name: str) -> Buffer | None:
    return next((b for b in _declared(program) if b.name == name), None)


def _lengths(program: Program, name: str) -> list[int]:
    found = _find(program, name)
    return [] if found is None else [eval_index(s, program.size_env) for s in found.shape]


def laid_out(ctx: CheckContext) -> str:
    """The dimensions that the site's temporary must have after set_storage_layout, as text (``4x3x8``)."""
    dims = _lengths(ctx.parent, ctx.params["buffer"])
    at = int(ctx.params["dim"])
    if ctx.params["op"] == "fuse":
        dims[at : at + 2] = [dims[at] * dims[at + 1]]
    else:
        tile = _tile(ctx)
        tiles = dims[at] // tile
        dims[at : at + 1] = {"split": [tiles, tile], "last": [tiles], "first": [tile]}[ctx.params.get("to", "split")]
        dims = [*dims, tile] if ctx.params.get("to") == "last" else [tiles, *dims] if ctx.params.get("to") == "first" else dims
    return "x".join(map(str, dims))


def _tile(ctx: CheckContext) -> int:
    factor = ctx.params["factor"]
    return int(factor) if factor.isdigit() else ctx.parent.size_env[factor]


def _dimension_split(c: Claim, ctx: CheckContext) -> str | None:
    if (c["buffer"], c["dim"]) != (ctx.params.get("buffer"), ctx.params.get("dim")) or ctx.params.get("op") not in ("block", "split"):
        return "not the dimension of this step"
    extent, tile = _lengths(ctx.parent, c["buffer"])[c.number("dim")], _tile(ctx)
    if (c.number("extent"), c.number("factor")) != (extent, tile) or extent % tile:
        return f"tiles of {tile} and {extent} elements"
    stated = {print_expr(x) for x in ctx.child.constraints}
    return None if not c["constraint"] or c["constraint"] in stated else f"the header does not state {c['constraint']}"


def _tile_contiguous(c: Claim, ctx: CheckContext) -> str | None:
    if (c["buffer"], c["dim"]) != (ctx.params.get("buffer"), ctx.params.get("dim")) or ctx.params.get("op") != "block":
        return "not the dimension of this step"
    dims = _lengths(ctx.child, c["buffer"])
    run = dims[-1] if ctx.params.get("to") == "last" else math.prod(dims[1:])
    return None if c.number("elements") == run else f"{run} elements"


def _dimensions_fused(c: Claim, ctx: CheckContext) -> str | None:
    if (c["buffer"], c["dim"], "fuse") != (ctx.params.get("buffer"), ctx.params.get("dim"), ctx.params.get("op")):
        return "not the dimensions of this step"
    dims, at = _lengths(ctx.parent, c["buffer"]), c.number("dim")
    want = (dims[at], dims[at + 1], dims[at] * dims[at + 1])
    return None if (c.number("rows"), c.number("columns"), c.number("extent")) == want else f"they are {want}"


# tables of indices


def _replaced(ctx: CheckContext) -> tuple[str, str]:
    """Name of the new table and the text of what it holds."""
    new = {b.name for b in _declared(ctx.child)} - {b.name for b in _declared(ctx.parent)}
    stored = [s for _, s, _ in _walk(ctx.child) if isinstance(s, Store) and s.buffer in new]
    if len(stored) != 1:
        raise ValueError("there is no one new table")
    return stored[0].buffer, print_expr(stored[0].value)


def _pure_index(c: Claim, ctx: CheckContext) -> str | None:
    store = get(ctx.parent, ctx.path)
    if c.place("at") != ctx.path or not isinstance(store, Store):
        return "not the store of this step"
    found = [e for e in _below(store.value) if not isinstance(e, Load) and print_expr(e) == c["text"]]
    if not found or any(isinstance(e, Load) for e in _below(found[0])):
        return f"the store does not compute `{c['text']}` without reading memory"
    around = [p.var for p in enclosing(ctx.parent, ctx.path) if isinstance(p, Loop)]
    loops = tuple(v for v in around if v in free_vars(found[0]))
    if _replaced(ctx)[1] != c["text"]:
        return "the new table holds something else"
    return None if c.names("loops") == loops else f"it depends on {', '.join(loops)}"


def _index_inside(c: Claim, ctx: CheckContext) -> str | None:
    """Every index that the table now serves, bounded by interval arithmetic over the loops around."""
    table, text = _replaced(ctx)
    dim = c.number("dim")
    after = [e for _, s, _ in _walk(ctx.child) if isinstance(s, Store) for e in _below(s.value) if isinstance(e, Load) and e.buffer == c["buffer"]]
    if not any(isinstance(x, Load) and x.buffer == table for e in after for x in _below(e.indices[dim])):
        return f"index {dim} of {c['buffer']} is not looked up"
    store = get(ctx.parent, ctx.path)
    extent = _lengths(ctx.parent, c["buffer"])[dim]
    ranges: dict[str, tuple[int, int]] = {}
    for p in enclosing(ctx.parent, ctx.path):
        if isinstance(p, Loop):
            ranges[p.var] = (0, max(_span(p.extent, ranges, ctx.parent)[1] - 1, 0))
    for read, limits in _under_conditions(store.value, ()) if isinstance(store, Store) else ():
        if read.buffer == c["buffer"] and any(print_expr(x) == text for x in _below(read.indices[dim])):
            low, high = _span(read.indices[dim], ranges, ctx.parent)
            for cond in limits:
                low, high = _limited(cond, print_expr(read.indices[dim]), low, high, ranges, ctx.parent)
            if low < 0 or high >= extent:
                return f"it may lie anywhere between {low} and {high}"
    return None if c.number("extent") == extent else f"it has {extent} elements"


def _under_conditions(expr: Expr, limits: tuple[Expr, ...]) -> Iterator[tuple[Load, tuple[Expr, ...]]]:
    """Every read with the conditions of the selects whose first side it stands in."""
    if isinstance(expr, Load):
        yield expr, limits
    parts = expr.args if isinstance(expr, Op) else expr.indices if isinstance(expr, Load) else (expr.arg,) if isinstance(expr, Cast) else ()
    for n, part in enumerate(parts):
        chosen = isinstance(expr, Op) and expr.name == "select" and n == 1
        yield from _under_conditions(part, (*limits, parts[0]) if chosen else limits)


def _limited(cond: Expr, text: str, low: int, high: int, ranges: dict[str, tuple[int, int]], program: Program) -> tuple[int, int]:
    """What a condition leaves of the range of the expression that prints as ``text``."""
    if isinstance(cond, Op) and cond.name == "and":
        for part in cond.args:
            low, high = _limited(part, text, low, high, ranges, program)
    elif isinstance(cond, Op) and cond.name in ("<", "<=", ">", ">="):
        small, large = cond.args if cond.name in ("<", "<=") else cond.args[::-1]
        strict = len(cond.name) == 1
        if print_expr(small) == text:
            high = min(high, _span(large, ranges, program)[1] - strict)
        elif print_expr(large) == text:
            low = max(low, _span(small, ranges, program)[0] + strict)
    return low, high


def _span(expr: Expr, ranges: dict[str, tuple[int, int]], program: Program) -> tuple[int, int]:
    """Smallest and largest value of an index, operator by operator."""
    if isinstance(expr, Var):
        return ranges[expr.name]
    if not free_vars(expr) and not any(loads(expr)):
        value = eval_index(expr, program.size_env)
        return value, value
    if not isinstance(expr, Op):
        raise ValueError("no bounds are known")
    args = [_span(a, ranges, program) for a in (expr.args[1:] if expr.name == "select" else expr.args)]
    (a, b), (c, d) = args[0], args[-1]
    if expr.name == "%" and c > 0:
        return (a, b) if c == d and a >= 0 and b < c else (0, d - 1)
    if expr.name == "//" and c <= 0:
        raise ValueError("no bounds are known")
    if expr.name == "select":
        return min(a, c), max(b, d)
    corners = [eval_index(Op(expr.name, tuple(Const(v, DType.I64) for v in ends), DType.I64), {}) for ends in product(*args)]
    return (0 if expr.name == "abs" and a <= 0 <= b else min(corners)), max(corners)


def _table_reused(c: Claim, ctx: CheckContext) -> str | None:
    table, _ = _replaced(ctx)
    if table != c["name"]:
        return f"the new table is {table}"
    size = math.prod(_lengths(ctx.child, table))
    reads = 0
    env = ctx.child.size_env
    for path, stmt, around in _walk(ctx.child):
        if not isinstance(stmt, Store):
            continue
        count = sum(isinstance(e, Load) and e.buffer == table for e in _below(stmt.value))
        if count:
            reads += count * _runs(ctx.child, path, [p for p in around if isinstance(p, Loop)], dict(env))
    return None if (c.number("elements"), c.number("reads")) == (size, reads) else f"{size} elements, {reads} reads"


def _runs(program: Program, path: Path, loops: list[Loop], env: dict[str, int]) -> int:
    if not loops:
        return 1
    first, rest = loops[0], loops[1:]
    times = max(eval_index(first.extent, env), 0)
    if not any(first.var in free_vars(p.extent) for p in rest):
        return times * _runs(program, path, rest, env) if times else 0
    return sum(_runs(program, path, rest, {**env, first.var: n}) for n in range(times))


# scopes


def _storage_scope(c: Claim, ctx: CheckContext) -> str | None:
    before, after = _find(ctx.parent, c["buffer"]), _find(ctx.child, c["buffer"])
    if before is None or after is None or c["buffer"] != ctx.params.get("buffer"):
        return f"{c['buffer']} is not the temporary of this step"
    return None if (before.scope.value, after.scope.value) == (c["old"], c["new"]) and c["old"] != c["new"] else f"{before.scope} becomes {after.scope}"


def _scope_bytes(c: Claim, ctx: CheckContext) -> str | None:
    after = _find(ctx.child, c["buffer"])
    if after is None or c["buffer"] != ctx.params.get("buffer") or after.scope.value != c["scope"]:
        return f"{c['buffer']} is not {c['scope']}"
    size = math.prod(_lengths(ctx.child, c["buffer"])) * after.dtype.itemsize
    limit = {"local": _BYTES_LOCAL, "shared": _BYTES_SHARED}.get(c["scope"])
    return None if (c.number("bytes"), c.number("limit")) == (size, limit) else f"it takes {size} of {limit} bytes"


def coordinates(program: Program, event: Event, kinds: frozenset[LoopKind]) -> tuple[tuple[str, int], ...]:
    """Where on the GPU axes an event runs; the loops that repeat a reset are those of its accumulation that it needs."""
    around = [p for p in enclosing(program, event.path) if isinstance(p, Loop) and p.var in event.loops]
    return tuple(sorted((p.kind.value, event.loops[p.var]) for p in around if p.kind in kinds))


_BLOCKS = frozenset(k for k in LoopKind if k.is_block)
_AXES = frozenset(k for k in LoopKind if k.is_bound)


def _one_holder(c: Claim, ctx: CheckContext) -> str | None:
    """At tiny sizes, every element of the temporary is touched from one coordinate only, in one life of the temporary."""
    name, holder = c["buffer"], c["holder"]
    after = _find(ctx.child, name)
    if after is None or name != ctx.params.get("buffer") or holder != {"local": "thread", "shared": "block"}.get(after.scope.value):
        return f"{name} does not belong to one {holder}"
    if not ctx.tiny:
        return "no tiny sizes to try it at"
    for _, program in ctx.tiny:
        home = next((p for p, s, _ in _walk(program) if isinstance(s, Loop) and any(b.name == name for b in s.tmps)), ())
        outside = [s.var for n in range(1, len(home) + 1) if isinstance(s := get(program, home[:n]), Loop)]
        met: dict[tuple[tuple[int, ...], Element], set[tuple[tuple[str, int], ...]]] = defaultdict(set)
        for event in ctx.events(program):
            for element in (*event.reads, event.write):
                if element[0] == name:
                    life = tuple(event.loops.get(v, -1) for v in outside)
                    met[(life, element)].add(coordinates(program, event, _AXES if holder == "thread" else _BLOCKS))
        if (bad := next((e for (_, e), places in met.items() if len(places) > 1), None)) is not None:
            return f"two of them touch {bad[0]}{list(bad[1])}"
    return None


STORAGE: dict[str, Rederivation] = {
    "dimension_split": _dimension_split,
    "tile_contiguous": _tile_contiguous,
    "dimensions_fused": _dimensions_fused,
    "pure_index": _pure_index,
    "index_inside": _index_inside,
    "table_reused": _table_reused,
    "storage_scope": _storage_scope,
    "scope_bytes": _scope_bytes,
    "one_holder": _one_holder,
}
