"""The canonical text of a program (``docs/leir.md``, *Grammar*).

``parse(print_program(p)) == p`` for every valid program; programs that are not valid print too, for error messages.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache

from steptp.ir.extents import declared_in_shapes, indexed_dimensions
from steptp.ir.nodes import Body, Buffer, Cast, Const, Expr, If, Load, Loop, Op, Path, Program, Size, SizeDecl, Stmt, Store, Var
from steptp.ir.ops import OPS, REDUCERS, OpForm, OpRule
from steptp.ir.types import DType, Scope, literal_text, looks_like_dtype
from steptp.ir.walk import buffers, get

__all__ = ["print_program", "print_expr", "print_stmt", "program_lines", "statement_place"]

_PREFIX = {"neg": "-", "not": "not "}
_INFIX = {name: f" {name} " if name in ("and", "or") else name for name, row in OPS.items() if row.form is OpForm.INFIX}
_PRECEDENCE = {name: row.precedence for name, row in OPS.items()}
_SETS_DTYPE = frozenset(name for name, row in OPS.items() if row.rule in (OpRule.NUMERIC, OpRule.FLOAT, OpRule.INTEGER))
_ATOM = 9
_COMPARISONS = frozenset(name for name, row in OPS.items() if row.rule is OpRule.COMPARE)
_CHAINS = frozenset({"<", "<="})
_Piece = tuple[str, int, bool]  # text, precedence, whether its dtype must come from the context


@lru_cache(maxsize=4096)
def _literal(literal: Const) -> str:
    try:
        return literal_text(literal.value, literal.type)
    except AssertionError:  # not rounded to its dtype: an invalid node, shown as it is
        return repr(literal.value)


def print_expr(expr: Expr, context: DType | None = None) -> str:
    """The canonical text of an expression. ``context`` is the dtype that its surroundings give to bare literals."""
    text, _, bare = _piece(expr)
    return _forced(expr)[0] if bare and context is None else text


def _wrap(piece: _Piece, least: int) -> str:
    return piece[0] if piece[1] >= least else f"({piece[0]})"


def _piece(expr: Expr) -> _Piece:
    """Text with literals bare, as in a context that gives their dtype."""
    if isinstance(expr, (Var, Size)):
        return expr.name, _ATOM, False
    if isinstance(expr, Const):
        return _literal(expr), _ATOM, expr.type is not DType.BOOL
    if isinstance(expr, Load):
        return f"{expr.buffer}[{','.join([_piece(i)[0] for i in expr.indices])}]", _ATOM, False
    if isinstance(expr, Cast):
        return f"{expr.type.value}({print_expr(expr.arg)})", _ATOM, False
    assert isinstance(expr, Op)
    if expr.name == "and":
        return _conjunction(expr)
    return _op(expr.name, expr, [_piece(a) for a in expr.args])


def _conjunction(expr: Op) -> _Piece:
    """Conditions joined by ``and``, with neighbours such as ``a<b and b<c`` written as ``a<b<c``."""
    row: list[Expr] = []
    node: Expr = expr
    while isinstance(node, Op) and node.name == "and":
        row.append(node.args[1])
        node = node.args[0]
    row.append(node)
    row.reverse()
    texts: list[str] = []
    for position, cond in enumerate(row):
        if position and (more := _continued(row[position - 1], cond)):
            texts[-1] += more
        else:
            texts.append(_wrap(_piece(cond), _PRECEDENCE["and"] + (position > 0)))
    return " and ".join(texts), _PRECEDENCE["and"], False


def _continued(before: Expr, cond: Expr) -> str:
    """``<c`` where ``a<b`` stands before ``b<c``, so that the two make a chain; else nothing."""
    if not (isinstance(before, Op) and isinstance(cond, Op) and before.name in _CHAINS and cond.name in _CHAINS and before.args[1] == cond.args[0]):
        return ""
    return cond.name + _wrap(_piece(cond.args[1]), _PRECEDENCE[cond.name] + 1)


def _op(name: str, expr: Op, parts: list[_Piece]) -> _Piece:
    if name in _SETS_DTYPE:
        bare = all(p[2] for p in parts)
    elif name == "select":
        bare = parts[1][2] and parts[2][2]
    else:
        bare = False
        if parts[0][2] and (len(parts) == 1 or parts[1][2]):  # a comparison or test of literals: nothing gives a dtype
            parts[0] = _forced(expr.args[0])
    rank = _PRECEDENCE[name]
    if name in _INFIX:
        return f"{_wrap(parts[0], rank + (name in _COMPARISONS))}{_INFIX[name]}{_wrap(parts[1], rank + 1)}", rank, bare
    if name in _PREFIX:
        literal = name == "neg" and isinstance(expr.args[0], Const) and parts[0][2]
        return f"{_PREFIX[name]}{f'({parts[0][0]})' if literal else _wrap(parts[0], rank)}", rank, bare
    return f"{name}({','.join([p[0] for p in parts])})", _ATOM, bare


def _forced(expr: Expr) -> _Piece:
    """Text with the dtype written at the first literal, for an expression of literals only."""
    if isinstance(expr, Const):
        return f"{expr.type.value}({_literal(expr)})", _ATOM, False
    assert isinstance(expr, Op)
    parts = [_piece(a) for a in expr.args]
    first = 1 if expr.name == "select" else 0
    parts[first] = _forced(expr.args[first])
    return _op(expr.name, expr, parts)


# declarations


def _size(decl: SizeDecl) -> str:
    return f"{decl.name}={decl.value if decl.expr is None else print_expr(decl.expr, DType.I64)}"


class _Writer:
    """State of one printing: the dtype written last, sizes still to be declared in shapes, and shapes by buffer."""

    def __init__(self, program: Program | None) -> None:
        self.dtype: DType | None = None
        self.shapes = {b.name: b.shape for b in buffers(program)} if program is not None else {}
        self.waiting = {s.name: s for s in declared_in_shapes(program)} if program is not None else {}

    def dim(self, expr: Expr) -> str:
        decl = self.waiting.pop(expr.name, None) if isinstance(expr, Size) else None
        return _size(decl) if decl is not None else print_expr(expr, DType.I64)

    def leaves_out(self, loop: Loop) -> bool:
        """Whether the extent is the one that the parser would take for this loop."""
        return [*indexed_dimensions(loop.var, loop.body, self.shapes)] == [loop.extent]


def _declarations(word: str, group: tuple[Buffer, ...], writer: _Writer) -> str:
    parts = [word]
    for position, b in enumerate(group):
        parts.append(b.name)
        after = group[position + 1] if position + 1 < len(group) else None
        if after is not None and replace(after, name=b.name) == b and not looks_like_dtype(after.name):
            continue  # neighbours of one kind and shape share one description
        shape = ",".join(writer.dim(s) for s in b.shape)
        dtype = "" if b.dtype is writer.dtype else f" {b.dtype.value}"
        scope = "" if b.scope is Scope.GLOBAL else f" {b.scope.value}"
        limits = f" {print_expr(b.range[0], DType.I64)}..{print_expr(b.range[1], DType.I64)}" if b.range else ""
        parts[-1] += f"{dtype}[{shape}]{scope}{limits}"
        writer.dtype = b.dtype
    return " ".join(parts)


# statements


def _store(stmt: Store) -> str:
    target = f"{stmt.buffer}[{','.join([_piece(i)[0] for i in stmt.indices])}]"
    assign = "=" if stmt.reduce is None else row.token if (row := REDUCERS.get(stmt.reduce)) else f"{stmt.reduce}="
    gap = " " if assign[0].isalpha() else ""
    return f"{'carry ' if stmt.carry else ''}{target}{gap}{assign}{_piece(stmt.value)[0]}"


def _block(body: Body, level: int, path: Path, out: list[str], lines: dict[Path, int], writer: _Writer) -> None:
    for position, first in enumerate(body):
        here: Path = (*path, position)
        parts: list[str] = []
        kind = None
        stmt: Stmt = first
        inner: Body = ()
        tmps: tuple[Buffer, ...] = ()
        while True:
            lines[here] = len(out) + 1
            if isinstance(stmt, Store):
                parts.append(_store(stmt))
                inner, tmps = (), ()
                break
            if isinstance(stmt, If):
                parts.append(f"if {print_expr(stmt.cond)}:")
                kind, tmps = None, ()
            else:
                if stmt.kind is not kind:
                    parts.append(stmt.kind.value)
                parts.append(stmt.var if writer.leaves_out(stmt) else f"{stmt.var}:{print_expr(stmt.extent, DType.I64)}")
                kind, tmps = stmt.kind, stmt.tmps
            inner = stmt.body
            if tmps or len(inner) != 1:
                break
            stmt, here = inner[0], (*here, 0)
        out.append(" " * level + " ".join(parts))
        if tmps:
            out.append(" " * (level + 1) + _declarations("tmp", tmps, writer))
        if inner:
            _block(inner, level + 1, here, out, lines, writer)


def print_stmt(stmt: Stmt, level: int = 0) -> str:
    """The canonical lines of one statement, without a final newline."""
    out: list[str] = []
    _block((stmt,), level, (), out, {}, _Writer(None))
    return "\n".join(out)


def statement_place(program: Program, path: Path, lines: Mapping[Path, int]) -> str:
    """Where a statement stands, for people: its line (of :func:`program_lines`) and, if it is a loop, the loop; the empty path is the whole program."""
    if not path:
        return "whole program"
    stmt = get(program, path)
    return f"line {lines[path]}" + (f", loop {stmt.var}" if isinstance(stmt, Loop) else "")


def program_lines(program: Program) -> tuple[list[str], dict[Path, int]]:
    """The lines of the canonical text, and the 1-based line on which each statement stands."""
    out: list[str] = []
    writer = _Writer(program)
    if shown := [s for s in program.sizes if s.name not in writer.waiting]:
        out.append(" ".join(["size", *map(_size, shown)]))
    for word, group in (("in", program.inputs), ("out", program.outputs), ("tmp", program.tmps)):
        if group:
            out.append(_declarations(word, group, writer))
    if program.constraints:
        out.append("where " + ", ".join(map(print_expr, program.constraints)))
    lines: dict[Path, int] = {}
    _block(program.body, 0, (), out, lines, writer)
    return out, lines


def print_program(program: Program) -> str:
    """The canonical text of a program; every line ends with a newline. Kept with the program, which never changes."""
    cached = program._cache.get("text")
    if isinstance(cached, str):
        return cached
    text = "\n".join([*program_lines(program)[0], ""])
    program._cache["text"] = text
    return text
