"""Visiting and rebuilding programs by path."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

from steptp.errors import internal
from steptp.ir.lexer import RESERVED
from steptp.ir.nodes import Body, Buffer, Cast, Const, Expr, If, Load, Loop, Op, Path, Program, Size, Stmt, Store, Var

__all__ = [
    "Visit", "visit", "stores", "get", "body_at", "replace_at", "replace_body", "enclosing",
    "map_expr", "subexprs", "substitute", "free_vars", "free_sizes", "loads", "map_stmt_exprs", "map_program_exprs", "map_loops",
    "rename_buffer", "stmt_exprs", "buffers", "buffer_table", "all_tmps", "declaring_path", "fresh_name", "used_names",
    "drop_unused_tmps",
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class Visit:
    """One statement met on a walk: its path and what encloses it, outermost first."""

    path: Path
    stmt: Stmt
    parents: tuple[Loop | If, ...]

    @property
    def loops(self) -> tuple[Loop, ...]:
        return tuple(p for p in self.parents if isinstance(p, Loop))

    @property
    def guards(self) -> tuple[Expr, ...]:
        return tuple(p.cond for p in self.parents if isinstance(p, If))


def visit(root: Program | Body, prefix: Path = (), parents: tuple[Loop | If, ...] = ()) -> Iterator[Visit]:
    """Every statement in serial order, parents before children; those of a program are kept with it."""
    if not isinstance(root, Program):
        return iter(_met(root, prefix, parents))
    if prefix or parents:
        return iter(_met(root.body, prefix, parents))
    cached = root._cache.get("visits")
    if not isinstance(cached, list):
        cached = root._cache["visits"] = _met(root.body, (), ())
    return iter(cached)


def _met(body: Body, prefix: Path, parents: tuple[Loop | If, ...]) -> list[Visit]:
    found: list[Visit] = []
    pending = [((*prefix, n), stmt, parents) for n, stmt in enumerate(body)][::-1]
    while pending:
        path, stmt, around = here = pending.pop()
        found.append(Visit(*here))
        if not isinstance(stmt, Store):
            inner = (*around, stmt)
            pending += [((*path, n), below, inner) for n, below in enumerate(stmt.body)][::-1]
    return found


def stores(root: Program | Body) -> Iterator[Visit]:
    """Every :class:`Store`, in serial order."""
    return (v for v in visit(root) if isinstance(v.stmt, Store))


def get(program: Program, path: Path) -> Stmt:
    """The statement at ``path``; raises ``KeyError`` when there is none."""
    body, stmt = program.body, None
    for step in path:
        if not 0 <= step < len(body):
            raise KeyError(path)
        stmt = body[step]
        body = stmt.body if isinstance(stmt, (Loop, If)) else ()
    if stmt is None:
        raise KeyError(path)
    return stmt


def body_at(program: Program, path: Path) -> Body:
    """The body of the loop or guard at ``path``; the program's body for ``()``."""
    if not path:
        return program.body
    owner = get(program, path)
    if isinstance(owner, Store):
        raise KeyError(path)
    return owner.body


def enclosing(program: Program, path: Path) -> tuple[Loop | If, ...]:
    """The loops and guards around the statement at ``path``, outermost first."""
    found: list[Loop | If] = []
    body = program.body
    for step in path[:-1]:
        owner = body[step] if 0 <= step < len(body) else None
        if owner is None or isinstance(owner, Store):
            raise KeyError(path)
        found.append(owner)
        body = owner.body
    return tuple(found)


def _splice(body: Body, path: Path, make: Callable[[Stmt], tuple[Stmt, ...]]) -> Body:
    head, rest = path[0], path[1:]
    stmt = body[head]
    if not rest:
        new = make(stmt)
    elif isinstance(stmt, (Loop, If)):
        new = (replace(stmt, body=_splice(stmt.body, rest, make)),)
    else:
        raise KeyError(path)
    return body[:head] + new + body[head + 1 :]


def replace_at(program: Program, path: Path, *new: Stmt) -> Program:
    """The program with the statement at ``path`` replaced by ``new`` (none deletes it)."""
    return program.with_(body=_splice(program.body, path, lambda _: new))


def replace_body(program: Program, path: Path, body: Body, tmps: tuple[Buffer, ...] | None = None) -> Program:
    """The program with the body (and, if given, the temporaries) of the owner at ``path`` replaced; ``()`` is the program."""
    if not path:
        return program.with_(body=body) if tmps is None else program.with_(body=body, tmps=tmps)

    def make(stmt: Stmt) -> tuple[Stmt, ...]:
        if isinstance(stmt, Loop):
            return (replace(stmt, body=body, tmps=stmt.tmps if tmps is None else tmps),)
        if isinstance(stmt, If) and tmps is None:
            return (replace(stmt, body=body),)
        raise internal(f"no body at {path}")

    return program.with_(body=_splice(program.body, path, make))


# expressions


def map_expr(expr: Expr, leave: Callable[[Expr], Expr]) -> Expr:
    """Rebuild bottom-up: children first, then ``leave`` on the rebuilt node. Unchanged nodes are shared."""
    if isinstance(expr, Op):
        args = tuple(map_expr(a, leave) for a in expr.args)
        if any(a is not b for a, b in zip(args, expr.args, strict=True)):
            expr = Op(expr.name, args, expr.type)
    elif isinstance(expr, Load):
        indices = tuple(map_expr(a, leave) for a in expr.indices)
        if any(a is not b for a, b in zip(indices, expr.indices, strict=True)):
            expr = Load(expr.buffer, indices, expr.type)
    elif isinstance(expr, Cast):
        arg = map_expr(expr.arg, leave)
        if arg is not expr.arg:
            expr = Cast(expr.type, arg)
    return leave(expr)


def subexprs(expr: Expr) -> Iterator[Expr]:
    """The expression and everything below it, top first."""
    return iter(_nodes(expr))


def _nodes(expr: Expr) -> list[Expr]:
    found: list[Expr] = []
    pending = [expr]
    while pending:
        here = pending.pop()
        found.append(here)
        if isinstance(here, Op):
            pending += here.args[::-1]
        elif isinstance(here, Load):
            pending += here.indices[::-1]
        elif isinstance(here, Cast):
            pending.append(here.arg)
    return found


def substitute(expr: Expr, by: Mapping[str, Expr]) -> Expr:
    """Replace loop variables by expressions (no simplification)."""
    return map_expr(expr, lambda e: by.get(e.name, e) if isinstance(e, Var) else e) if by else expr


_NOTHING: frozenset[str] = frozenset()


def free_vars(expr: Expr) -> frozenset[str]:
    """Names of the loop variables in the expression."""
    if isinstance(expr, Var):
        return frozenset((expr.name,))
    if isinstance(expr, (Size, Const)):
        return _NOTHING
    return frozenset([e.name for e in _nodes(expr) if isinstance(e, Var)])


def free_sizes(expr: Expr) -> frozenset[str]:
    """Names of the sizes in the expression."""
    return frozenset([e.name for e in _nodes(expr) if isinstance(e, Size)])


def loads(expr: Expr) -> Iterator[Load]:
    """Every read in the expression, also those inside indices."""
    if isinstance(expr, (Var, Size, Const)):
        return iter(())
    return iter([e for e in _nodes(expr) if isinstance(e, Load)])


def stmt_exprs(stmt: Stmt) -> tuple[Expr, ...]:
    """The statement's own expressions (not its body's): target indices then value; condition; extent."""
    if isinstance(stmt, Store):
        return (*stmt.indices, stmt.value)
    return (stmt.cond,) if isinstance(stmt, If) else (stmt.extent,)


def map_stmt_exprs(stmt: Stmt, change: Callable[[Expr], Expr]) -> Stmt:
    """Apply ``change`` to every whole expression in a statement tree (indices, values, conditions, extents)."""
    if isinstance(stmt, Store):
        return replace(stmt, indices=tuple(change(i) for i in stmt.indices), value=change(stmt.value))
    body = tuple(map_stmt_exprs(s, change) for s in stmt.body)
    if isinstance(stmt, If):
        return If(change(stmt.cond), body)
    return replace(stmt, extent=change(stmt.extent), body=body)


def map_program_exprs(program: Program, change: Callable[[Expr], Expr]) -> Program:
    """Apply ``change`` to every whole expression in the program's statements."""
    return program.with_(body=tuple(map_stmt_exprs(s, change) for s in program.body))


def map_loops(body: Body, change: Callable[[Loop], Loop]) -> Body:
    """The statements with every loop changed, inner loops first; ``change`` sees the loop with its new body."""

    def one(stmt: Stmt) -> Stmt:
        if isinstance(stmt, Store):
            return stmt
        inner = replace(stmt, body=map_loops(stmt.body, change))
        return change(inner) if isinstance(inner, Loop) else inner

    return tuple(map(one, body))


def rename_buffer(body: Body, old: str, new: str) -> Body:
    """Rename a buffer in reads and writes (declarations stay)."""

    def in_expr(expr: Expr) -> Expr:
        return map_expr(expr, lambda e: Load(new, e.indices, e.type) if isinstance(e, Load) and e.buffer == old else e)

    def in_stmt(stmt: Stmt) -> Stmt:
        stmt = map_stmt_exprs(stmt, in_expr) if isinstance(stmt, Store) else stmt
        if isinstance(stmt, Store):
            return replace(stmt, buffer=new) if stmt.buffer == old else stmt
        inner = tuple(in_stmt(s) for s in stmt.body)
        return If(in_expr(stmt.cond), inner) if isinstance(stmt, If) else replace(stmt, extent=in_expr(stmt.extent), body=inner)

    return tuple(in_stmt(s) for s in body)


# buffers and names


def all_tmps(program: Program) -> Iterator[tuple[Path, Buffer]]:
    """Every temporary with the path of the loop that declares it (``()`` for the program)."""
    for buffer in program.tmps:
        yield (), buffer
    for met in visit(program):
        if isinstance(met.stmt, Loop) and met.stmt.tmps:
            for buffer in met.stmt.tmps:
                yield met.path, buffer


def buffers(program: Program) -> Iterator[Buffer]:
    """Inputs, outputs, then temporaries in order of declaration."""
    yield from program.inputs
    yield from program.outputs
    yield from (b for _, b in all_tmps(program))


def buffer_table(program: Program) -> dict[str, Buffer]:
    """Buffer name → buffer (names are unique in a program)."""
    cached = program._cache.get("buffer_table")
    if not isinstance(cached, dict):
        cached = program._cache["buffer_table"] = {b.name: b for b in buffers(program)}
    return dict(cached)


def declaring_path(program: Program, name: str) -> Path:
    """Path of the loop that declares temporary ``name``; ``()`` for program temporaries and interface tensors."""
    cached = program._cache.get("declaring")
    if not isinstance(cached, dict):
        cached = program._cache["declaring"] = {b.name: path for path, b in reversed(list(all_tmps(program)))}
    found = cached.get(name, ())
    assert isinstance(found, tuple)
    return found


def used_names(program: Program) -> frozenset[str]:
    """Every size, buffer and loop variable name."""
    names = {s.name for s in program.sizes} | {b.name for b in buffers(program)}
    return frozenset(names | {v.stmt.var for v in visit(program) if isinstance(v.stmt, Loop)})


def fresh_name(stem: str, taken: frozenset[str] | set[str]) -> str:
    """``stem`` or the first of ``stem0, stem1, …`` that is neither taken nor reserved (trailing digits of ``stem`` are dropped first)."""
    if stem not in taken and stem not in RESERVED:
        return stem
    base = stem.rstrip("0123456789") or stem
    number = 0
    while (name := f"{base}{number}") in taken or name in RESERVED:  # i8, f16, … are dtypes
        number += 1
    return name


def drop_unused_tmps(program: Program) -> Program:
    """Remove declarations of temporaries that no statement reads or writes."""
    used: set[str] = set()
    for met in visit(program):
        if isinstance(met.stmt, Store):
            used.add(met.stmt.buffer)
        for expr in stmt_exprs(met.stmt):
            used.update(e.buffer for e in loads(expr))

    def prune(stmt: Stmt) -> Stmt:
        if isinstance(stmt, Store):
            return stmt
        inner = tuple(prune(s) for s in stmt.body)
        if isinstance(stmt, If):
            return If(stmt.cond, inner)
        return replace(stmt, body=inner, tmps=tuple(b for b in stmt.tmps if b.name in used))

    return program.with_(body=tuple(prune(s) for s in program.body), tmps=tuple(b for b in program.tmps if b.name in used))
