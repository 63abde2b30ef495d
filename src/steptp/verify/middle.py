"""The part of a step that differs: what both programs do alike before and after it is cut off.

Nests in front that are the same in both programs give the same values, so their tensors may take any value, as inputs; nests behind that are the
same turn equal values into equal values. So if the middles are equal for all inputs, the programs are. The converse does not hold: a
value that an input of the middle takes may never come up.
"""

from __future__ import annotations

from collections.abc import Iterator

from steptp.ir.kernels import bytes_of
from steptp.ir.nodes import Body, Buffer, Expr, Load, Loop, Program, Stmt, Store, Var
from steptp.ir.walk import buffer_table, loads, stmt_exprs, visit

__all__ = ["middle"]


def middle(parent: Program, child: Program) -> tuple[Program, Program] | None:
    """Both middles under one interface, or ``None`` where nothing can be cut off. Programs with loop-local temporaries are left alone."""
    a, b = parent.body, child.body
    if parent.sizes or child.sizes or any(isinstance(m.stmt, Loop) and m.stmt.tmps for p in (parent, child) for m in visit(p)):
        return None
    front, back = _alike(a, b)
    while front and _written(a[:front]) & (_written(a[front : len(a) - back]) | _written(b[front : len(b) - back])):
        front -= 1
    if not front and not back:
        return None
    ours, theirs, after = a[front : len(a) - back], b[front : len(b) - back], a[len(a) - back :]
    here, there = buffer_table(parent), buffer_table(child)
    finals = {o.name for o in parent.outputs}
    changed = _written(ours) | _written(theirs)
    live = sorted(n for n in changed if n in finals or n in _touched(after))
    if not ours or not theirs or not live or not all(n in _written(ours) and n in _written(theirs) for n in live):
        return None
    entering = sorted((_touched(ours) | _touched(theirs)) - changed)
    if any(n in here and n in there and here[n] != there[n] for n in (*live, *entering)):
        return None
    known = {**there, **here}
    given = {i.name for i in parent.inputs}
    if any(known[n].dtype.is_int and n not in given for n in entering):
        return None  # a table without known bounds
    inputs, outputs = tuple(known[n] for n in entering), tuple(known[n] for n in live)
    pair = _part(parent, ours, inputs, outputs, here), _part(child, theirs, inputs, outputs, there)
    return _termwise(*pair) or pair


def _part(program: Program, body: Body, inputs: tuple[Buffer, ...], outputs: tuple[Buffer, ...], table: dict[str, Buffer]) -> Program:
    taken = {b.name for b in (*inputs, *outputs)}
    tmps = tuple(table[n] for n in sorted(_written(body) - taken))
    return Program((), inputs, outputs, body, tmps)


def _alike(a: Body, b: Body) -> tuple[int, int]:
    """How many nests are the same in front and behind."""
    most = min(len(a), len(b))
    front = next((n for n in range(most) if a[n] != b[n]), most)
    back = next((n for n in range(most - front) if a[-1 - n] != b[-1 - n]), most - front)
    return front, back


def _stores(body: Body) -> Iterator[Store]:
    return (m.stmt for m in visit(body) if isinstance(m.stmt, Store))


def _written(body: Body) -> set[str]:
    return {s.buffer for s in _stores(body)}


def _touched(body: Body) -> set[str]:
    reads = {load.buffer for m in visit(body) for e in stmt_exprs(m.stmt) for load in loads(e)}
    return reads | _written(body)


def _termwise(parent: Program, child: Program) -> tuple[Program, Program] | None:
    """Two accumulations over the same loops add equal sums if they add equal terms: the terms, one element each."""
    if len(parent.body) != 1 or len(child.body) != 1 or len(parent.outputs) != 1:
        return None
    (loops, ours), (others, theirs) = _nest(parent.body[0]), _nest(child.body[0])
    if ours is None or theirs is None or ours.reduce is None or not loops or [(x.var, x.extent) for x in loops] != [(x.var, x.extent) for x in others]:
        return None
    same = (ours.buffer, ours.indices, ours.reduce, ours.carry) == (theirs.buffer, theirs.indices, theirs.reduce, theirs.carry)
    if not same or any(isinstance(e, Load) and e.buffer == ours.buffer for s in (ours, theirs) for e in loads(s.value)):
        return None
    name, extents = ours.buffer, tuple(x.extent for x in loops)
    terms = Buffer(name, parent.outputs[0].dtype, extents)
    if bytes_of(terms, {}) > 1 << 40:
        return None
    place: tuple[Expr, ...] = tuple(Var(x.var) for x in loops)
    made = []
    for program, store in ((parent, ours), (child, theirs)):
        body: Stmt = Store(name, place, store.value)
        for loop in reversed(loops):
            body = Loop(loop.var, loop.extent, (body,))
        made.append(Program((), program.inputs, (terms,), (body,)))
    return made[0], made[1]


def _nest(stmt: Stmt) -> tuple[list[Loop], Store | None]:
    loops: list[Loop] = []
    while isinstance(stmt, Loop) and len(stmt.body) == 1:
        loops.append(stmt)
        stmt = stmt.body[0]
    return loops, stmt if isinstance(stmt, Store) else None
