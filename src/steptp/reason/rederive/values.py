"""Claims about who writes and reads what, counted by scanning the two trees."""

from __future__ import annotations

from collections import Counter

from steptp.ir.nodes import Load, Loop, Path, Program, Store
from steptp.ir.printer import print_expr
from steptp.ir.sizes import eval_index
from steptp.ir.walk import get
from steptp.reason.patterns import Claim
from steptp.reason.rederive.context import CheckContext, Rederivation, loop_at
from steptp.reason.rederive.figures import _below, _declared
from steptp.reason.rederive.structure import _elements, _walk

__all__ = ["VALUES"]


def _stores(program: Program, buffer: str) -> list[tuple[Path, Store]]:
    return [(p, s) for p, s, _ in _walk(program) if isinstance(s, Store) and s.buffer == buffer]


def _reads(program: Program) -> Counter[str]:
    """Reads of each buffer in the text; a store reading its own target is not counted."""
    found: Counter[str] = Counter()
    for _, stmt, _ in _walk(program):
        exprs = [*stmt.indices, stmt.value] if isinstance(stmt, Store) else [stmt.extent] if isinstance(stmt, Loop) else [stmt.cond]
        own = stmt.buffer if isinstance(stmt, Store) else ""
        found.update(e.buffer for x in exprs for e in _below(x) if isinstance(e, Load) and e.buffer != own)
    return found


def _reads_at(program: Program, place: Path, buffer: str) -> int:
    stmt = get(program, place)
    if not isinstance(stmt, Store):
        return 0
    return sum(1 for e in _below(stmt.value) if isinstance(e, Load) and e.buffer == buffer)


def _same_header(c: Claim, ctx: CheckContext) -> str | None:
    first, second = c.place("first"), c.place("second")
    if first != ctx.path or second != (*first[:-1], first[-1] + 1):
        return "not the site and its right neighbour"
    for n, name in enumerate(c.names("loops")):
        a, b = loop_at(ctx.parent, (*first, *(0,) * n)), loop_at(ctx.parent, (*second, *(0,) * n))
        if a is None or b is None or a.var != name:
            return f"{name} is no loop of both nests"
        if not (
            a.kind is b.kind
            and (print_expr(a.extent) == print_expr(b.extent) or eval_index(a.extent, ctx.parent.size_env) == eval_index(b.extent, ctx.parent.size_env))
        ):
            return f"{a.var} and {b.var} differ"
    depth = ctx.params.get("depth")
    return None if depth == str(len(c.names("loops"))) else f"{depth} loops are shared"


def _cut(c: Claim, ctx: CheckContext) -> str | None:
    loop = loop_at(ctx.parent, c.place("at"))
    if c.place("at") != ctx.path or loop is None or loop.var != c["loop"]:
        return f"the site is no loop {c['loop']}"
    want = (int(ctx.params.get("at", "0")), len(loop.body) - int(ctx.params.get("at", "0")))
    return None if (c.number("front"), c.number("back")) == want else f"{want[0]} in front, {want[1]} behind"


def _expanded(c: Claim, ctx: CheckContext) -> str | None:
    old = next((b for b in _declared(ctx.parent) if b.name == c["name"]), None)
    new = next((b for b in _declared(ctx.child) if b.name == c["name"]), None)
    if old is None or new is None or len(new.shape) <= len(old.shape):
        return f"{c['name']} has no new dimension"
    loop = next((s for _, s, _ in _walk(ctx.parent) if isinstance(s, Loop) and s.var == c["loop"] and any(b.name == c["name"] for b in s.tmps)), None)
    if loop is None:
        return f"loop {c['loop']} does not declare {c['name']}"
    grown = len(new.shape) - len(old.shape)
    return (
        None if eval_index(new.shape[grown - 1], ctx.child.size_env) == eval_index(loop.extent, ctx.parent.size_env) else "the new dimension has another extent"
    )


def _never_read(c: Claim, ctx: CheckContext) -> str | None:
    name = c["buffer"]
    if ctx.params.get("buffer") != name or name in {b.name for b in (*ctx.parent.outputs, *ctx.parent.inputs)} or not _stores(ctx.parent, name):
        return f"{name} is not the temporary of this step"
    return None if not _reads(ctx.parent)[name] else f"{name} is read {_reads(ctx.parent)[name]} times"


def _stores_removed(c: Claim, ctx: CheckContext) -> str | None:
    before, after = len(_stores(ctx.parent, c["buffer"])), len(_stores(ctx.child, c["buffer"]))
    return None if before == c.number("count") and before and not after else f"{before} stores before, {after} after"


def _written_once(c: Claim, ctx: CheckContext) -> str | None:
    writers = _stores(ctx.parent, c["buffer"])
    if ctx.params.get("buffer") not in (None, c["buffer"]):
        return f"{c['buffer']} is not the buffer of this step"
    ok = len(writers) == 1 and writers[0][0] == c.place("at") and writers[0][1].reduce is None
    return None if ok else f"it is written at {['.'.join(map(str, p)) for p, _ in writers]}"


def _reads_replaced(c: Claim, ctx: CheckContext) -> str | None:
    before, after = _reads_at(ctx.parent, ctx.path, c["buffer"]), _reads_at(ctx.child, ctx.path, c["buffer"])
    return None if c.number("count") == before - after > 0 else f"{before} reads before, {after} after"


def _unchanged_between(c: Claim, ctx: CheckContext) -> str | None:
    first, second = c.place("first"), c.place("second")
    if second != ctx.path or first >= second:
        return "not the places of this step"
    producer = get(ctx.parent, first)
    named = c.names("buffers")
    if not isinstance(producer, Store) or list(named) != sorted({e.buffer for e in _below(producer.value) if isinstance(e, Load)}):
        return f"the statement at {c['first']} reads other buffers"
    for name in named:
        for place, _ in _stores(ctx.parent, name):
            if first < place <= second:
                return f"{name} is written at {'.'.join(map(str, place))}"
    return None


def _buffer_removed(c: Claim, ctx: CheckContext) -> str | None:
    kept = {b.name for b in _declared(ctx.child)}
    old = next((b for b in _declared(ctx.parent) if b.name == c["name"]), None)
    if old is None or old.name in kept:
        return f"{c['name']} is not a temporary that goes"
    want = (_elements(old, ctx.parent), old.dtype.value)
    return None if (c.number("elements"), c["dtype"]) == want else f"it has {want[0]} elements of {want[1]}"


VALUES: dict[str, Rederivation] = {
    "same_header": _same_header,
    "cut": _cut,
    "expanded": _expanded,
    "never_read": _never_read,
    "stores_removed": _stores_removed,
    "written_once": _written_once,
    "reads_replaced": _reads_replaced,
    "unchanged_between": _unchanged_between,
    "buffer_removed": _buffer_removed,
}
