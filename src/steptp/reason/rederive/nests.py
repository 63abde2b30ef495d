"""The nests behind one accumulation, cut out of parent and child: little work, so loops have room to run several tiles."""

from __future__ import annotations

from collections.abc import Iterator

from steptp.errors import LeirError
from steptp.ir.nodes import Loop, Program, Stmt, Store
from steptp.ir.sizes import rebind
from steptp.ir.walk import loads
from steptp.reason.rederive.context import CheckContext, little_work
from steptp.reason.rederive.figures import _declared

__all__ = ["nests_behind", "roomy"]


def nests_behind(buffer: str, parent: Program, child: Program) -> tuple[Program, Program]:
    """Both programs without the top-level statements that have no part in ``buffer``'s accumulation.

    Kept are those that write it, those that stand in one program only, and whatever else writes the same buffers or one that is declared
    otherwise, and those that fill a table which the kept ones look indices up in. The other buffers hold the same values in both programs, and are read
    as if they were inputs.
    """
    shapes = [{b.name: b.shape for b in _declared(p)} for p in (parent, child)]
    kept = {buffer} | {name for name in shapes[0].keys() | shapes[1].keys() if shapes[0].get(name) != shapes[1].get(name)}
    kept = kept.union(*(_written(s) for s in set(parent.body) ^ set(child.body)))
    while True:
        bodies = [tuple(s for s in p.body if _written(s) & kept) for p in (parent, child)]
        found = kept.union(*(_written(s) | _looked_up(s) for body in bodies for s in body))
        if found == kept:
            return parent.with_(body=bodies[0]), child.with_(body=bodies[1])
        kept = found


def _written(stmt: Stmt) -> set[str]:
    if isinstance(stmt, Store):
        return {stmt.buffer}
    return set().union(*(_written(s) for s in stmt.body))


def _looked_up(stmt: Stmt) -> set[str]:
    """Buffers whose values decide an index, an extent or a guard."""
    if isinstance(stmt, Store):
        return {e.buffer for index in (*stmt.indices, *(i for read in loads(stmt.value) for i in read.indices)) for e in loads(index)}
    return {e.buffer for e in loads(stmt.extent if isinstance(stmt, Loop) else stmt.cond)}.union(*(_looked_up(s) for s in stmt.body))


def roomy(ctx: CheckContext, buffer: str) -> Iterator[tuple[Program, Program]]:
    """The nests behind ``buffer`` as they are if that is little work, at small sizes, and at these with the step's own tile sizes."""
    parent, child = nests_behind(buffer, ctx.parent, ctx.child)
    if little_work(parent, child):
        yield parent, child
    small = ctx.bound(parent, child, preferred=3000)
    yield from reversed(small)
    old = {s.name for s in parent.sizes}
    own = {s.name: s.value for s in child.sizes if s.expr is None and s.name not in old}
    for first, second in small if own else ():
        try:
            yield first, rebind(second, {**{s.name: s.value for s in second.sizes if s.expr is None}, **own})
        except LeirError:  # a constraint ties the tiles to the other sizes
            continue
