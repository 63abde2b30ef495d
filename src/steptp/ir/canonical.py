"""The canonical form of a program up to the names of loop variables, temporaries and sizes, and hashes of it."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from steptp.ir.affine import MAX_TERMS, term_count
from steptp.ir.index import simplify_index
from steptp.ir.nodes import Body, Buffer, Cast, Const, Expr, If, Load, Loop, Op, Program, Size, SizeDecl, Stmt, Store, Var
from steptp.ir.printer import print_expr, print_program
from steptp.ir.types import DType
from steptp.ir.walk import all_tmps, subexprs

__all__ = ["canonical", "program_hash", "shape_hash", "alpha_equal"]

_ROUNDS = 4


def canonical(program: Program) -> Program:
    """The program with loop variables named ``v0``, ``v1``, … in order of their loops, temporaries ``t0``, … in order of first use, and sizes ``s0``, …
    in order of first appearance (interface shapes, then body).

    Declarations of temporaries and sizes follow those orders, indices are simplified, constraints are sorted, and sizes that nothing uses are gone.
    Interface tensors stay as they are. Programs equal up to such names have equal canonical forms.
    """
    cached = program._cache.get("canonical")
    if isinstance(cached, Program):
        return cached
    current = program
    for _ in range(_ROUNDS):  # simplifying an index can change which size appears first
        names = _names(current)
        if current is not program and names.is_identity:
            break
        current = _rename(current, names)
    current._cache["canonical"] = current
    program._cache["canonical"] = current
    return current


def program_hash(program: Program) -> str:
    """The first 16 hex digits of the SHA-256 of the canonical text, size values included."""
    return _hash(program, "hash", keep_values=True)


def shape_hash(program: Program) -> str:
    """As :func:`program_hash`, but without the values of sizes: equal for all re-bindings of one program."""
    return _hash(program, "shape_hash", keep_values=False)


def alpha_equal(a: Program, b: Program) -> bool:
    """Whether two programs differ only in the names of loop variables, temporaries and sizes, and in the order of their declarations."""
    return canonical(a) == canonical(b)


def _hash(program: Program, key: str, keep_values: bool) -> str:
    cached = program._cache.get(key)
    if isinstance(cached, str):
        return cached
    form = canonical(program)
    if not keep_values:
        form = form.with_(sizes=tuple(replace(s, value=0) if s.expr is None else s for s in form.sizes))
    made = hashlib.sha256(print_program(form).encode()).hexdigest()[:16]
    program._cache[key] = made
    return made


@dataclass
class _Names:
    """Old name → new name; loop variables are numbered as their loops are met, so they need no table."""

    variables: list[str]
    sizes: dict[str, str]
    tmps: dict[str, str]
    is_identity: bool = field(default=False)


def _numbered(stem: str, taken: frozenset[str]) -> Iterator[str]:
    number = 0
    while True:
        if (name := f"{stem}{number}") not in taken:
            yield name
        number += 1


def _names(program: Program) -> _Names:
    interface = (*program.inputs, *program.outputs)
    taken = frozenset(b.name for b in interface)
    derived = {s.name: s.expr for s in program.sizes}
    declared = {b.name: b for _, b in all_tmps(program)}
    new_size, new_tmp, new_var = _numbered("s", taken), _numbered("t", taken), _numbered("v", taken)
    sizes: dict[str, str] = {}
    tmps: dict[str, str] = {}
    variables: list[str] = []
    old_variables: list[str] = []

    def size(name: str) -> None:
        if name in derived and name not in sizes:
            sizes[name] = next(new_size)
            if (expr := derived[name]) is not None:
                scan((expr,))

    def buffer(name: str) -> None:
        if name in declared and name not in tmps:
            tmps[name] = next(new_tmp)

    def scan(exprs: Iterable[Expr]) -> None:
        for expr in exprs:
            for node in subexprs(expr):
                if isinstance(node, Size):
                    size(node.name)
                elif isinstance(node, Load):
                    buffer(node.buffer)

    def body(statements: Body) -> None:
        for stmt in statements:
            if isinstance(stmt, Store):
                buffer(stmt.buffer)
                scan((*stmt.indices, stmt.value))
                continue
            scan((stmt.extent if isinstance(stmt, Loop) else stmt.cond,))
            if isinstance(stmt, Loop):
                variables.append(next(new_var))
                old_variables.append(stmt.var)
            body(stmt.body)

    for b in interface:
        scan((*b.shape, *(b.range or ())))
    body(program.body)
    for name in list(tmps):
        scan(declared[name].shape)
    for name in declared:
        buffer(name)  # temporaries that nothing uses
    scan(program.constraints)
    same = old_variables == variables and all(a == b for a, b in (*sizes.items(), *tmps.items())) and len(sizes) == len(program.sizes)
    return _Names(variables, sizes, tmps, same)


def _rename(program: Program, names: _Names) -> Program:
    variables = iter(names.variables)

    def body(statements: Body, by: Mapping[str, str], extents: Mapping[str, Expr]) -> Body:
        out: list[Stmt] = []
        for stmt in statements:
            if isinstance(stmt, Store):
                target = names.tmps.get(stmt.buffer, stmt.buffer)
                indices = tuple(_expr(i, names, by, extents) for i in stmt.indices)
                out.append(replace(stmt, buffer=target, indices=indices, value=_expr(stmt.value, names, by, extents)))
            elif isinstance(stmt, If):
                out.append(If(_expr(stmt.cond, names, by, extents), body(stmt.body, by, extents)))
            else:
                extent, var = _expr(stmt.extent, names, by, extents), next(variables)
                inner = body(stmt.body, {**by, stmt.var: var}, {**extents, var: extent})
                out.append(Loop(var, extent, inner, stmt.kind, _buffers(stmt.tmps, names)))
        return tuple(out)

    constraints = tuple(sorted({_expr(c, names, {}, {}) for c in program.constraints}, key=print_expr))
    renamed = body(program.body, {}, {})
    inputs, outputs = (tuple(_buffer(b, names) for b in group) for group in (program.inputs, program.outputs))
    return Program(_sizes(program, names), inputs, outputs, renamed, _buffers(program.tmps, names), constraints)


def _buffer(buffer: Buffer, names: _Names) -> Buffer:
    shape = tuple(_expr(s, names, {}, {}) for s in buffer.shape)
    limits = (_expr(buffer.range[0], names, {}, {}), _expr(buffer.range[1], names, {}, {})) if buffer.range is not None else None
    return replace(buffer, name=names.tmps.get(buffer.name, buffer.name), shape=shape, range=limits)


def _buffers(tmps: tuple[Buffer, ...], names: _Names) -> tuple[Buffer, ...]:
    order = {new: position for position, new in enumerate(names.tmps.values())}
    return tuple(sorted((_buffer(b, names) for b in tmps), key=lambda b: order[b.name]))


def _sizes(program: Program, names: _Names) -> tuple[SizeDecl, ...]:
    """Used sizes in order of their new names, each after those it derives from."""
    table = {s.name: s for s in program.sizes}
    out: dict[str, SizeDecl] = {}

    def add(old: str) -> None:
        decl = table[old]
        if names.sizes[old] in out:
            return
        expr = None
        if decl.expr is not None:
            for node in subexprs(decl.expr):
                if isinstance(node, Size) and node.name in table and node.name != old:
                    add(node.name)
            expr = _expr(decl.expr, names, {}, {})
            expr = None if isinstance(expr, Const) else expr
        out[names.sizes[old]] = SizeDecl(names.sizes[old], decl.value, expr)

    for old in names.sizes:
        add(old)
    return tuple(out.values())


def _expr(expr: Expr, names: _Names, by: Mapping[str, str], extents: Mapping[str, Expr]) -> Expr:
    return _simplify(_renamed(expr, names, by), extents)


def _renamed(expr: Expr, names: _Names, by: Mapping[str, str]) -> Expr:
    if isinstance(expr, Var):
        return Var(by.get(expr.name, expr.name))
    if isinstance(expr, Size):
        return Size(names.sizes.get(expr.name, expr.name))
    if isinstance(expr, Load):
        return Load(names.tmps.get(expr.buffer, expr.buffer), tuple(_renamed(i, names, by) for i in expr.indices), expr.type)
    if isinstance(expr, Op):
        return Op(expr.name, tuple(_renamed(a, names, by) for a in expr.args), expr.type)
    return Cast(expr.type, _renamed(expr.arg, names, by)) if isinstance(expr, Cast) else expr


def _simplify(expr: Expr, extents: Mapping[str, Expr]) -> Expr:
    """Indices everywhere, and ``i64`` arithmetic that reads no memory, in canonical form; value arithmetic stays as it is."""
    if isinstance(expr, Load):
        return Load(expr.buffer, tuple(_index(_simplify(i, extents), extents) for i in expr.indices), expr.type)
    if isinstance(expr, Cast):
        return Cast(expr.type, _simplify(expr.arg, extents))
    if not isinstance(expr, Op):
        return expr
    if expr.type is DType.I64 and not any(isinstance(n, (Load, Cast)) for n in subexprs(expr)):
        return _index(expr, extents)
    return Op(expr.name, tuple(_simplify(a, extents) for a in expr.args), expr.type)


def _index(expr: Expr, extents: Mapping[str, Expr]) -> Expr:
    return simplify_index(expr, extents) if not isinstance(expr, (Var, Size, Const)) and term_count(expr) <= MAX_TERMS else expr
