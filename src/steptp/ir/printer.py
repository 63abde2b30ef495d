"""The canonical text of a program (``docs/leir.md``, *Grammar*).

``parse(print_program(p)) == p`` for every valid program; programs that are not valid print too, for error messages.
"""

from __future__ import annotations

from functools import lru_cache

from steptp.ir.nodes import Body, Buffer, Cast, Const, Expr, If, Load, Op, Path, Program, Size, SizeDecl, Stmt, Store, Var
from steptp.ir.ops import OPS, REDUCERS, OpForm, OpRule
from steptp.ir.types import DType, Scope, literal_text

__all__ = ["print_program", "print_expr", "print_stmt", "program_lines"]

_PREFIX = {"neg": "-", "not": "not "}
_INFIX = {name: f" {name} " if name in ("and", "or") else name for name, row in OPS.items() if row.form is OpForm.INFIX}
_PRECEDENCE = {name: row.precedence for name, row in OPS.items()}
_SETS_DTYPE = frozenset(name for name, row in OPS.items() if row.rule in (OpRule.NUMERIC, OpRule.FLOAT, OpRule.INTEGER))
_ATOM = 9
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
    return _op(expr.name, expr, [_piece(a) for a in expr.args])


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
        return f"{_wrap(parts[0], rank)}{_INFIX[name]}{_wrap(parts[1], rank + 1)}", rank, bare
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


def _declarations(word: str, buffers: tuple[Buffer, ...]) -> str:
    parts, last = [word], None
    for b in buffers:
        shape = ",".join(print_expr(s, DType.I64) for s in b.shape)
        dtype = "" if b.dtype is last else f" {b.dtype.value}"
        scope = "" if b.scope is Scope.GLOBAL else f" {b.scope.value}"
        limits = f" {print_expr(b.range[0], DType.I64)}..{print_expr(b.range[1], DType.I64)}" if b.range else ""
        parts.append(f"{b.name}{dtype}[{shape}]{scope}{limits}")
        last = b.dtype
    return " ".join(parts)


# statements


def _store(stmt: Store) -> str:
    target = f"{stmt.buffer}[{','.join([_piece(i)[0] for i in stmt.indices])}]"
    assign = "=" if stmt.reduce is None else row.token if (row := REDUCERS.get(stmt.reduce)) else f"{stmt.reduce}="
    return f"{'carry ' if stmt.carry else ''}{target} {assign} {_piece(stmt.value)[0]}"


def _block(body: Body, level: int, path: Path, out: list[str], lines: dict[Path, int]) -> None:
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
                parts.append(f"{stmt.var}:{print_expr(stmt.extent, DType.I64)}")
                kind, tmps = stmt.kind, stmt.tmps
            inner = stmt.body
            if tmps or len(inner) != 1:
                break
            stmt, here = inner[0], (*here, 0)
        out.append(" " * level + " ".join(parts))
        if tmps:
            out.append(" " * (level + 1) + _declarations("tmp", tmps))
        if inner:
            _block(inner, level + 1, here, out, lines)


def print_stmt(stmt: Stmt, level: int = 0) -> str:
    """The canonical lines of one statement, without a final newline."""
    out: list[str] = []
    _block((stmt,), level, (), out, {})
    return "\n".join(out)


def program_lines(program: Program) -> tuple[list[str], dict[Path, int]]:
    """The lines of the canonical text, and the 1-based line on which each statement stands."""
    out: list[str] = []
    if program.sizes:
        out.append(" ".join(["size", *map(_size, program.sizes)]))
    if program.constraints:
        out.append("where " + ", ".join(print_expr(c) for c in program.constraints))
    for word, group in (("in", program.inputs), ("out", program.outputs), ("tmp", program.tmps)):
        if group:
            out.append(_declarations(word, group))
    lines: dict[Path, int] = {}
    _block(program.body, 0, (), out, lines)
    return out, lines


def print_program(program: Program) -> str:
    """The canonical text of a program; every line ends with a newline. Kept with the program, which never changes."""
    cached = program._cache.get("text")
    if isinstance(cached, str):
        return cached
    text = "\n".join([*program_lines(program)[0], ""])
    program._cache["text"] = text
    return text
