"""Remove a temporary that nothing reads, with every store into it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from steptp.ir import If, Loop, Path, Program, Store
from steptp.ir.nodes import Body, Stmt
from steptp.ir.sizes import shape_of
from steptp.ir.walk import all_tmps, buffer_table, drop_unused_tmps, loads, stmt_exprs, stores, visit
from steptp.rewrite.base import Applied, Exactness, Family, Forwarding, NotApplicable, Outcome, Site, Strategy
from steptp.rewrite.context import Context, path_text
from steptp.rewrite.fact_kinds import fact
from steptp.rewrite.tools import drop_unused_sizes, instance_map

__all__ = ["DeadCodeElimination", "STRATEGY", "readers"]


class DeadCodeElimination(Strategy):
    """Site: path of the first store into the temporary ``buffer``."""

    name = "dead_code_elimination"
    family = Family.GRAPH
    classes = (Exactness.BITWISE,)
    summary = "remove a temporary that nothing reads"

    def sites(self, ctx: Context) -> Iterator[Site]:
        read = readers(ctx.program)
        seen: set[str] = set()
        names = {b.name for _, b in all_tmps(ctx.program)}
        for path, store in ctx.stores:
            if store.buffer in names and store.buffer not in read and store.buffer not in seen:
                seen.add(store.buffer)
                yield Site.of(self.name, path, buffer=store.buffer)

    def apply(self, ctx: Context, site: Site) -> Outcome:
        params = dict(site.params)
        name, store = params.get("buffer"), ctx.stmt(site.path)
        if not isinstance(store, Store) or set(params) != {"buffer"} or store.buffer != name:
            return NotApplicable("bad-site", "dead_code_elimination takes the path of a store and buffer=<the temporary it writes>")
        declared = buffer_table(ctx.program)[store.buffer]
        if store.buffer not in {b.name for _, b in all_tmps(ctx.program)}:
            return NotApplicable("output", f"{name} is an output of the program")
        if name in (read := readers(ctx.program)):
            return NotApplicable("read", f"the statement at {path_text(read[store.buffer])} reads {name}")
        if first := next((p for p, s in ctx.stores if s.buffer == name and p < site.path), None):
            return NotApplicable("bad-site", f"the first store into {name} is at {path_text(first)}")
        moves: list[tuple[Path, Path | None]] = []
        body = _without(ctx.program.body, store.buffer, (), (), moves)
        child = drop_unused_sizes(ctx.program, drop_unused_tmps(ctx.program.with_(body=body)))
        count = sum(1 for _, s in ctx.stores if s.buffer == name)
        elements = 1
        for extent in shape_of(declared.shape, ctx.program):
            elements *= extent
        return Applied(
            child,
            Exactness.BITWISE,
            (
                fact("never_read", "parent", buffer=store.buffer),
                fact("stores_removed", "child", buffer=store.buffer, count=count),
                fact("buffer_removed", "child", name=store.buffer, dtype=str(declared.dtype), elements=elements),
            ),
            instance_map(ctx.program, child, lambda p: _came_from(moves, p), lambda _: {}),
            Forwarding(tuple(moves)),
        )


def readers(program: Program) -> dict[str, Path]:
    """Buffer → path of a statement that reads it (an accumulation reading its own target does not count)."""
    found: dict[str, Path] = {}
    for met in visit(program):
        for expr in stmt_exprs(met.stmt):
            for load in loads(expr):
                if not (isinstance(met.stmt, Store) and met.stmt.buffer == load.buffer):
                    found.setdefault(load.buffer, met.path)
    return found


def _without(body: Body, name: str, old: Path, new: Path, moves: list[tuple[Path, Path | None]]) -> Body:
    """The body without stores into ``name`` and without what then holds nothing; ``moves`` learns where the rest went."""
    out: list[Stmt] = []
    for n, stmt in enumerate(body):
        source, target = (*old, n), (*new, len(out))
        if isinstance(stmt, Store):
            if stmt.buffer == name:
                moves.append((source, None))
                continue
            out.append(stmt)
        else:
            touched = any(s.stmt.buffer == name for s in stores((stmt,)) if isinstance(s.stmt, Store))
            inner = _without(stmt.body, name, source, target, moves) if touched else stmt.body
            if not inner:
                moves.append((source, None))
                continue
            out.append(replace(stmt, body=inner) if isinstance(stmt, Loop) else If(stmt.cond, inner))
        moves.append((source, target))
    return tuple(out)


def _came_from(moves: list[tuple[Path, Path | None]], path: Path) -> Path:
    """Where a statement of the child stood in the parent: the longest target that is a prefix decides."""
    source, target = max(((a, b) for a, b in moves if b is not None and path[: len(b)] == b), key=lambda m: len(m[1]))
    return source + path[len(target) :]


STRATEGY = DeadCodeElimination()
