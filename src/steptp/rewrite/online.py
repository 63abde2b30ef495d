"""Softmax rows: where a program holds the maximum of a row, or the sum of its exponentials, in plain, prefix and running form.

The prefix form keeps one value per position: ``P[i,j]`` for the first ``j`` elements of the row, so ``P[i,0]`` is the value of none. The running
form keeps the last one only. Both follow Milakov and Gimelshein, "Online normalizer calculation for softmax" (2018), section 3.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass

from steptp.ir import (
    Buffer,
    DType,
    Expr,
    Load,
    Loop,
    LoopKind,
    Op,
    Path,
    Program,
    Scope,
    Size,
    Store,
    Var,
    call,
    const,
    ix,
    op,
    print_expr,
    select,
    simplify_index,
)
from steptp.ir.facts import Fact
from steptp.ir.nodes import Stmt
from steptp.ir.sizes import shape_of
from steptp.ir.walk import body_at, buffer_table, declaring_path, free_vars, get, loads, replace_body, substitute
from steptp.rewrite.base import NotApplicable
from steptp.rewrite.context import Context, path_text
from steptp.rewrite.fact_kinds import fact
from steptp.rewrite.tools import lower_bound

__all__ = [
    "Nest", "Row", "nest_at", "row_nest", "inside_nest", "wrap", "splice", "find_row", "prefix_of", "exponential", "exponent_parts", "rescaled", "minus_infinity", "size_extent",
    "prefix_buffer", "added", "declare", "nonempty", "bind",
]  # fmt: skip

_KINDS = (LoopKind.SERIAL, LoopKind.PARALLEL)
_IDENTITY = {"max": float("-inf"), "+": 0.0}


@dataclass(frozen=True, slots=True)
class Nest:
    """A perfect nest of ``loops`` at ``path`` around one store."""

    path: Path
    loops: tuple[Loop, ...]
    store: Store

    @property
    def store_path(self) -> Path:
        return (*self.path, *(0,) * len(self.loops))

    @property
    def rows(self) -> tuple[Loop, ...]:
        """All loops but the innermost."""
        return self.loops[:-1]

    @property
    def row(self) -> Loop:
        """The innermost loop."""
        return self.loops[-1]


@dataclass(frozen=True, slots=True)
class Row:
    """``buffer[indices]`` is the maximum of ``x`` over ``row``, or the sum of ``exp(x-maximum)``; ``indices`` and ``x`` are over ``rows`` and ``row``.

    ``last``: the position, in the body that was searched, of the statement that completes it.
    """

    buffer: str
    indices: tuple[Expr, ...]
    rows: tuple[Loop, ...]
    row: Loop
    x: Expr
    last: int

    def agrees(self, indices: tuple[Expr, ...], x: Expr, row: Loop) -> bool:
        """Whether the element at ``indices`` is about the very values ``x`` over ``row``."""
        by = bind(self.indices, indices, [loop.var for loop in self.rows])
        if by is None or row.var in frozenset().union(*map(free_vars, indices)):
            return False
        by[self.row.var] = Var(row.var)
        return substitute(self.x, by) == x and substitute(self.row.extent, by) == row.extent


def nest_at(ctx: Context, path: Path) -> Nest | None:
    """The perfect nest at ``path``, at least one loop; loops with temporaries of their own end no perfect nest."""
    loops: list[Loop] = []
    stmt = ctx.stmt(path)
    while isinstance(stmt, Loop) and len(stmt.body) == 1 and not stmt.tmps:
        loops.append(stmt)
        stmt = stmt.body[0]
    return Nest(path, tuple(loops), stmt) if loops and isinstance(stmt, Store) else None


def row_nest(ctx: Context, path: Path, reduce: str, what: str) -> Nest | NotApplicable:
    """The nest at ``path`` if it reduces its innermost loop with ``reduce`` into one element per iteration of the others; ``what`` names that in refusals."""
    nest = nest_at(ctx, path)
    if nest is None or nest.store.reduce != reduce or nest.store.carry:
        return NotApplicable("pattern", f"the statement at {path_text(path)} is no perfect nest around {what}")
    if (problem := inside_nest(ctx, path)) is not None:
        return problem
    store, row = nest.store, nest.row.var
    if any(loop.kind not in _KINDS for loop in nest.loops) or nest.row.kind is not LoopKind.SERIAL:
        return NotApplicable("loop-kind", f"{row} must be a serial loop, and the loops around it serial or parallel")
    if not _plain(store.indices, nest.rows, row):
        return NotApplicable("indices", f"{store.buffer} is to be indexed by {_named(nest.rows)}, each alone, and not by {row}")
    if ctx.reset_loop(nest.store_path) != nest.store_path[:-1]:
        return NotApplicable("reset", f"{store.buffer} does not start anew for every row: its reset stands outside of loop {row}")
    if any(e.buffer == store.buffer for e in loads(store.value)):
        return NotApplicable("indices", f"the values that {store.buffer} takes up read {store.buffer} itself")
    return nest


def inside_nest(ctx: Context, path: Path) -> NotApplicable | None:
    """The refusal of a site whose step the outermost loop of its perfect nest names already."""
    top = ctx.chain(path)[0]
    return (
        None
        if top == path
        else NotApplicable("inside-nest", f"the loop at {path_text(path)} is part of a perfect nest; its outermost loop, at {path_text(top)}, is the site")
    )


def _named(loops: Iterable[Loop]) -> str:
    return ", ".join(loop.var for loop in loops) or "no loop"


def _plain(indices: tuple[Expr, ...], rows: tuple[Loop, ...], row: str) -> bool:
    """Every loop over rows is an index of its own; the other indices mention no loop of the nest."""
    names = [loop.var for loop in rows]
    own = [i.name for i in indices if isinstance(i, Var) and i.name in names]
    others = frozenset().union(*(free_vars(i) for i in indices if not (isinstance(i, Var) and i.name in names)))
    return sorted(own) == sorted(names) and not others & {*names, row}


def bind(pattern: tuple[Expr, ...], indices: tuple[Expr, ...], names: Collection[str]) -> dict[str, Expr] | None:
    """What stands in ``indices`` where ``pattern`` has the variables ``names``; ``None`` when the rest differs."""
    if len(pattern) != len(indices):
        return None
    by: dict[str, Expr] = {}
    for a, b in zip(pattern, indices, strict=True):
        if isinstance(a, Var) and a.name in names:
            by[a.name] = b
        elif a != b:
            return None
    return by


# what the online forms are made of


def minus_infinity(dtype: DType) -> Expr:
    return const(float("-inf"), dtype)


def exponential(x: Expr, peak: Expr) -> Expr:
    """``exp(x-peak)``."""
    return call("exp", x - peak)


def rescaled(old: Expr, total: Expr, factor: Expr) -> Expr:
    """``total*factor``, which brings it from the maximum ``old`` to the present one; nothing while ``old`` is -inf, where it held no finite term."""
    return select(old.eq(minus_infinity(old.dtype)), const(0, total.dtype), total * factor)


def wrap(loops: Iterable[Loop], body: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
    """``body`` inside of the given loops, outermost first."""
    for loop in reversed(tuple(loops)):
        body = (Loop(loop.var, loop.extent, body, loop.kind),)
    return body


def splice(program: Program, path: Path, count: int, block: tuple[Stmt, ...]) -> tuple[Program, tuple[tuple[Path, Path], ...]]:
    """The program with ``count`` statements from ``path`` on replaced by ``block``, and the moves of the statements behind them."""
    owner, n = path[:-1], path[-1]
    body = body_at(program, owner)
    moves = tuple(((*owner, k), (*owner, k - count + len(block))) for k in range(n + count, len(body)) if len(block) != count)
    return replace_body(program, owner, (*body[:n], *block, *body[n + count :])), moves


def size_extent(ctx: Context, row: Loop) -> NotApplicable | None:
    """Why there can't be one array element for each iteration of ``row``: its extent varies, or may be negative at other sizes."""
    if ctx.value(row.extent) is None:
        return NotApplicable("extent-varies", f"{row.var} runs {print_expr(row.extent, DType.I64)} times, which changes with the loops around it")
    shapes = {d for b in buffer_table(ctx.program).values() for d in b.shape}
    least = lower_bound(row.extent)
    if row.extent in shapes or (least is not None and least >= 0):
        return None
    return NotApplicable(
        "extent-negative", f"the extent {print_expr(row.extent, DType.I64)} of {row.var} may be negative at other sizes, and no array has that as a dimension"
    )


def prefix_buffer(ctx: Context, name: str, of: str, row: Loop) -> Buffer | NotApplicable:
    """The declaration of the prefix form ``name`` of ``of``: one more dimension, one element more than ``row`` has iterations."""
    whole = buffer_table(ctx.program)[of]
    if whole.scope is not Scope.GLOBAL:
        return NotApplicable("scope", f"{of} is a {whole.scope} temporary; its prefix form would need an array there")
    return Buffer(name, whole.dtype, (*whole.shape, simplify_index(op("+", row.extent, 1))))


def added(program: Program, buffer: Buffer) -> Fact:
    """The fact that ``program`` has the new temporary ``buffer``."""
    return fact("buffer_added", "child", name=buffer.name, dtype=buffer.dtype.value, elements=math.prod(shape_of(buffer.shape, program)))


def declare(program: Program, buffer: Buffer, beside: str) -> Program:
    """The program with one more temporary, declared where ``beside`` is (interface tensors: at the top)."""
    owner = declaring_path(program, beside)
    if not owner:
        return program.with_(tmps=(*program.tmps, buffer))
    loop = get(program, owner)
    assert isinstance(loop, Loop)
    return replace_body(program, owner, loop.body, (*loop.tmps, buffer))


def nonempty(ctx: Context, row: Loop) -> Expr | NotApplicable | None:
    """What the header must state so that ``row`` runs at least once: nothing (``None``), or a constraint on sizes."""
    least = lower_bound(substitute(row.extent, {v: Size(v) for v in free_vars(row.extent)}))
    if least is not None and least > 0:
        return None
    if ctx.value(row.extent) is None:
        return NotApplicable("extent-varies", f"{row.var} may run no iteration in some rows, and dividing by their sum would make NaN of their 0")
    stated = op("<", ix(0), row.extent)
    return None if stated in ctx.program.constraints else stated


# finding rows


def find_row(ctx: Context, path: Path, buffer: str, reduce: str) -> Row | None:
    """The row that ``buffer`` holds when the statement at ``path`` starts: its ``max``, or (``+``) the sum of exponentials beneath its maximum.

    All writes of ``buffer`` stand to the left of ``path`` in the same body, and nothing from there to ``path`` writes what the row reads.
    """
    writers = _writers(ctx, path, buffer)
    if writers is None:
        return None
    found: Row | None = None
    if len(writers) == 1 and writers[0][1].reduce is not None:
        found = _accumulated(ctx, path, writers[0][0], reduce)
    elif len(writers) == 1 and isinstance(writers[0][1].value, Load):
        found = _copied(ctx, path, *writers[0], reduce)
    elif len(writers) == 2:
        found = _recurrence(ctx, path, writers, reduce, prefix=False)
    return found if found is not None and _unchanged(ctx, path, found) else None


def prefix_of(ctx: Context, path: Path, indices: tuple[Expr, ...], x: Expr, row: Loop) -> str | None:
    """A buffer whose elements ``[*indices,j]`` hold the maximum of the first ``j`` values of ``x`` over ``row`` when ``path`` starts."""
    return next(_prefixes(ctx, path, indices, x, row), None)


def _prefixes(ctx: Context, path: Path, indices: tuple[Expr, ...], x: Expr, row: Loop) -> Iterator[str]:
    depth = len(path) - 1
    for place, store in ctx.stores:
        if place[:depth] != path[:-1] or place[depth] >= path[depth] or store.reduce is not None:
            continue
        value = store.value
        if isinstance(value, Op) and value.name == "max" and isinstance(value.args[0], Load) and value.args[0].buffer == store.buffer:
            writers = _writers(ctx, path, store.buffer)
            found = _recurrence(ctx, path, writers, "max", prefix=True) if writers is not None and len(writers) == 2 else None
            if found is not None and found.agrees(indices, x, row) and _unchanged(ctx, path, found):
                yield store.buffer


def _writers(ctx: Context, path: Path, buffer: str) -> list[tuple[Path, Store]] | None:
    """The stores into ``buffer``, if all stand to the left of ``path`` in the same body."""
    depth = len(path) - 1
    found = [(p, s) for p, s in ctx.stores if s.buffer == buffer]
    return found if found and all(p[:depth] == path[:-1] and p[depth] < path[depth] for p, _ in found) else None


def _unchanged(ctx: Context, path: Path, row: Row) -> bool:
    """Nothing from the row's last statement to ``path`` writes what the row reads; its own statements don't either."""
    depth, reads = len(path) - 1, {e.buffer for e in loads(row.x)}
    return not any(s.buffer in reads and p[:depth] == path[:-1] and row.last <= p[depth] < path[depth] for p, s in ctx.stores)


def _accumulated(ctx: Context, path: Path, store: Path, reduce: str) -> Row | None:
    nest = row_nest(ctx, store[: len(path)], reduce, "")
    if isinstance(nest, NotApplicable) or nest.store_path != store:
        return None
    x = nest.store.value
    if reduce == "+":
        parts = exponent_parts(x)
        if parts is None:
            return None
        x, peak = parts
        top = find_row(ctx, nest.path, peak.buffer, "max")
        if top is None or not top.agrees(peak.indices, x, nest.row):
            return None
    return Row(nest.store.buffer, nest.store.indices, nest.rows, nest.row, x, nest.path[-1])


def exponent_parts(value: Expr) -> tuple[Expr, Load] | None:
    """``x`` and ``m[...]`` of ``exp(x-m[...])``."""
    if isinstance(value, Op) and value.name == "exp" and isinstance(value.args[0], Op) and value.args[0].name == "-":
        x, peak = value.args[0].args
        return (x, peak) if isinstance(peak, Load) else None
    return None


def _copied(ctx: Context, path: Path, place: Path, store: Store, reduce: str) -> Row | None:
    """A plain copy of the last element of a prefix form."""
    source = store.value
    assert isinstance(source, Load)
    writers = _writers(ctx, path, source.buffer)
    if store.reduce is not None or not source.indices or writers is None or len(writers) != 2:
        return None
    found = _recurrence(ctx, path, writers, reduce, prefix=True)
    if found is None or found.last > place[len(path) - 1]:
        return None
    rows = tuple(loop for at, loop in ctx.enclosing_loops(place) if len(at) >= len(path))
    by = bind(found.indices, source.indices[:-1], [loop.var for loop in found.rows])
    if by is None or len(rows) != len(place) - len(path) or not _plain(store.indices, rows, found.row.var) or source.indices[-1] != found.row.extent:
        return None
    return Row(store.buffer, store.indices, rows, found.row, substitute(found.x, by), place[len(path) - 1])


def _recurrence(ctx: Context, path: Path, writers: list[tuple[Path, Store]], reduce: str, *, prefix: bool) -> Row | None:
    """Two stores, the identity before loop ``row`` and the step directly in it."""
    (start, first), (step, second) = writers
    row = ctx.loop(step[:-1])
    if row is None or len(step) <= len(path) or start[:-1] != step[:-2] or start[-1] >= step[-2] or first.reduce is not None or second.reduce is not None:
        return None
    rows = tuple(loop for at, loop in ctx.enclosing_loops(step[:-1]) if len(at) >= len(path))
    indices = first.indices[:-1] if prefix else first.indices
    if first.value != const(_IDENTITY[reduce], first.value.dtype) or len(rows) != len(step) - len(path) - 1 or not _plain(indices, rows, row.var):
        return None
    here = (*indices, Var(row.var)) if prefix else indices
    after = (*indices, op("+", Var(row.var), 1)) if prefix else indices
    if second.indices != after or (prefix and first.indices != (*indices, ix(0))):
        return None
    held = Load(second.buffer, here, second.value.dtype)
    x = _next_maximum(ctx, step, held, second) if reduce == "max" else _next_sum(ctx, path, step, held, second, row)
    if x is None or any(e.buffer == second.buffer for e in loads(x)):
        return None
    return Row(second.buffer, indices, rows, row, x, step[len(path) - 1])


def _next_maximum(ctx: Context, step: Path, held: Load, store: Store) -> Expr | None:
    """``x`` where the step stores ``max(held,x)``, or a local scalar that was set to it in the same iteration."""
    value: Expr | None = store.value
    if isinstance(value, Load):
        value = _scalar(ctx, step, value)
    if isinstance(value, Op) and value.name == "max" and value.args[0] == held:
        return value.args[1]
    return None


def _scalar(ctx: Context, step: Path, read: Load) -> Expr | None:
    """What the only store into ``read``'s buffer, to the left of ``step`` in the same body, has put there."""
    made = [(p, s) for p, s in ctx.stores if s.buffer == read.buffer]
    if len(made) == 1 and made[0][0][:-1] == step[:-1] and made[0][0][-1] < step[-1] and made[0][1].reduce is None and made[0][1].indices == read.indices:
        return made[0][1].value
    return None


def _next_sum(ctx: Context, path: Path, step: Path, held: Load, store: Store, row: Loop) -> Expr | None:
    """``x`` where the step rescales ``held`` to the next maximum and adds the exponential of ``x``."""
    value = store.value
    parts = exponent_parts(value.args[1]) if isinstance(value, Op) and value.name == "+" else None
    if parts is None:
        return None
    x, now = parts
    old = _old_maximum(ctx, path, step, now, x, row)
    return x if old is not None and value == rescaled(old, held, exponential(old, now)) + exponential(x, now) else None


def _old_maximum(ctx: Context, path: Path, step: Path, now: Load, x: Expr, row: Loop) -> Expr | None:
    """The maximum before ``x``, where ``now`` is the one after it: an element of a prefix form, or a running maximum."""
    if now.indices and now.indices[-1] == op("+", Var(row.var), 1):
        indices = now.indices[:-1]
        return Load(now.buffer, (*indices, Var(row.var)), now.dtype) if now.buffer in _prefixes(ctx, path, indices, x, row) else None
    value = _scalar(ctx, step, now)
    if not (isinstance(value, Op) and value.name == "max" and isinstance(value.args[0], Load)):
        return None
    top = find_row(ctx, path, value.args[0].buffer, "max")
    return value.args[0] if top is not None and top.agrees(value.args[0].indices, x, row) else None
