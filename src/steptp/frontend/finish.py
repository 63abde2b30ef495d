"""From a builder to a :class:`~steptp.ir.Program`: outputs, dead nests, names of loops and of compound extents."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from steptp.frontend.builder import Builder
from steptp.frontend.names import fresh, fresh_tmp, loop_names
from steptp.frontend.value import Value
from steptp.ir import Buffer, Cast, Const, DType, Expr, If, Load, Loop, Op, Program, Size, SizeDecl, Stmt, Store, Var, eval_index, ix, simplify_index
from steptp.ir.extents import shape_order
from steptp.ir.walk import free_sizes, loads, map_expr, rename_buffer, stmt_exprs, visit

__all__ = ["finish"]


def finish(
    b: Builder,
    inputs: Sequence[Buffer],
    results: Sequence[tuple[str, Value]],
    sizes: Mapping[str, int],
    *,
    derived: Mapping[str, Expr] | None = None,
    constraints: Sequence[Expr] = (),
    hints: Mapping[Expr, str] | None = None,
) -> Program:
    """The finished program.

    ``results`` are (output name, value); ``derived`` says which of ``sizes`` follow from earlier ones; ``hints`` suggest names for
    other compound extents.
    """
    given = derived or {}
    constraints = [*constraints, *b.constraints]
    outputs = [_output(b, name, value) for name, value in results]
    body = _drop_dead(tuple(b.body), {o.name for o in outputs})
    written = {v.stmt.buffer for v in visit(body) if isinstance(v.stmt, Store)}
    body, tmps = _renumber(body, [t for t in b.tmps.values() if t.name in written], b.fixed)
    taken = {x.name for x in (*inputs, *outputs, *tmps)} | set(sizes)
    more = _compound(body, [*inputs, *outputs, *tmps], sizes, hints or {}, taken)
    deepest = max((len(v.loops) for v in visit(body)), default=0) + 1
    names = loop_names(taken | {n for n, _, _ in more}, deepest)
    short = {expr: Size(name) for name, expr, _ in more}
    done = tuple(_rename(s, {}, {}, names, short) for s in body)
    program = Program(
        sizes=(),
        inputs=tuple(_reshape(x, short) for x in inputs),
        outputs=tuple(_reshape(x, short) for x in outputs),
        body=done,
        tmps=tuple(_reshape(x, short) for x in tmps),
    )
    used = _sizes_used(program)
    used |= {name for condition in constraints if free_sizes(condition) & used for name in free_sizes(condition)}
    for name, expr in reversed([*given.items(), *((n, e) for n, e, _ in more)]):
        if name in used:
            used |= free_sizes(expr)
    decls = [SizeDecl(n, v, given.get(n)) for n, v in sorted(sizes.items(), key=lambda item: item[0] in given) if n in used]
    decls += [SizeDecl(n, v, e) for n, e, v in more if n in used]
    shapes = {d.expr or Size(d.name) for d in decls} | {s for b in (*program.inputs, *program.outputs) for s in b.shape}
    kept = tuple(c for c in constraints if free_sizes(c) <= used and not _follows(c, shapes))
    return program.with_(sizes=shape_order(program, decls), constraints=kept)


def _follows(condition: Expr, shapes: Iterable[Expr]) -> bool:
    """Whether a constraint ``a>=b`` only says that one of the ``shapes`` is not negative, or not empty."""
    if not (isinstance(condition, Op) and condition.name == ">=" and condition.dtype is DType.BOOL):
        return False
    slack = simplify_index(condition.args[0] - condition.args[1])
    return any(simplify_index(s - slack) in (ix(0), ix(1)) for s in shapes)


def _output(b: Builder, name: str, value: Value) -> Buffer:
    """Make ``value`` the output ``name``: rename the temporary that holds it, or copy."""
    if value.buffer is not None and value.buffer in b.tmps:
        old = b.tmps.pop(value.buffer)
        b.body[:] = rename_buffer(tuple(b.body), old.name, name)
        b.renamed[old.name] = name
        return replace(old, name=name)
    if value.units_of is not None and value.units_of in b.tmps and (whole := _with_units(b, value)) is not None:
        return _output(b, name, whole)
    target = Buffer(name, value.dtype, tuple(simplify_index(s) for s in value.shape))
    variables, indices = b.axes(value.shape, b.common_factors(value.shape, (value,)))
    element = map_expr(value.at(indices), lambda e: _moved(b, e))
    b.emit(b.loops(variables, b.store(b.array(target), indices, element)))
    return target


def _renumber(body: tuple[Stmt, ...], tmps: list[Buffer], fixed: set[str]) -> tuple[tuple[Stmt, ...], list[Buffer]]:
    """Final names of temporaries: their stem, or a free letter, without the gaps that dead nests and outputs left."""
    taken = set(fixed) | {t.tmps[0].name for v in visit(body) if isinstance(t := v.stmt, Loop) and t.tmps}
    stems = [tmp.name.rstrip("0123456789") or tmp.name for tmp in tmps]
    names = [fresh_tmp(stem, taken, stems) for stem in stems]
    for position, tmp in enumerate(tmps):  # through names that nothing has, since new names may be old ones of others
        body = rename_buffer(body, tmp.name, f"{position}")
    for position, name in enumerate(names):
        body = rename_buffer(body, f"{position}", name)
    return body, [replace(tmp, name=name) for tmp, name in zip(tmps, names, strict=True)]


def _moved(b: Builder, expr: Expr) -> Expr:
    """A read of an array as it is now, after it became an output."""
    if not isinstance(expr, Load):
        return expr
    widen = b.widened.get(expr.buffer)
    return Load(b.renamed.get(expr.buffer, expr.buffer), widen(expr.indices) if widen else expr.indices, expr.type)


def _with_units(b: Builder, value: Value) -> Value | None:
    """Give the array behind ``value`` its dims of extent 1, in the declaration and in every access."""
    old = b.tmps[value.units_of or ""]
    places: list[int | None] = []
    for extent in value.shape:
        there = sum(p is not None for p in places)
        places.append(there if there < len(old.shape) and extent == old.shape[there] else None)
    if sum(p is not None for p in places) != len(old.shape):
        return None

    def widen(indices: tuple[Expr, ...]) -> tuple[Expr, ...]:
        return tuple(ix(0) if p is None else indices[p] for p in places)

    def in_expr(expr: Expr) -> Expr:
        return map_expr(expr, lambda e: Load(e.buffer, widen(e.indices), e.type) if isinstance(e, Load) and e.buffer == old.name else e)

    def in_stmt(stmt: Stmt) -> Stmt:
        if isinstance(stmt, Store):
            indices = tuple(map(in_expr, stmt.indices))
            return replace(stmt, indices=widen(indices) if stmt.buffer == old.name else indices, value=in_expr(stmt.value))
        inner = tuple(in_stmt(s) for s in stmt.body)
        return If(in_expr(stmt.cond), inner) if isinstance(stmt, If) else replace(stmt, body=inner)

    b.body[:] = [in_stmt(s) for s in b.body]
    b.tmps[old.name] = replace(old, shape=value.shape)
    b.widened[old.name] = widen
    return b.array(b.tmps[old.name])


def _drop_dead(body: tuple[Stmt, ...], live: set[str]) -> tuple[Stmt, ...]:
    """Remove top-level statements whose stores nothing later reads."""
    kept: list[Stmt] = []
    live = set(live)
    for stmt in reversed(body):
        inside = list(visit((stmt,)))
        if not any(v.stmt.buffer in live for v in inside if isinstance(v.stmt, Store)):
            continue
        kept.append(stmt)
        live |= {load.buffer for v in inside for e in stmt_exprs(v.stmt) for load in loads(e)}
    return tuple(reversed(kept))


def _compound(
    body: tuple[Stmt, ...], arrays: Sequence[Buffer], sizes: Mapping[str, int], hints: Mapping[Expr, str], taken: set[str]
) -> list[tuple[str, Expr, int]]:
    """(name, expression, value) for each extent that is an expression and is used more than once."""
    count: dict[Expr, int] = {}
    extents = [s for a in arrays for s in a.shape] + [v.stmt.extent for v in visit(body) if isinstance(v.stmt, Loop)]
    for extent in extents:
        if isinstance(extent, Op):
            count[extent] = count.get(extent, 0) + 1
    out: list[tuple[str, Expr, int]] = []
    for expr, times in count.items():
        if times < 2:
            continue
        stem = hints.get(expr) or _stem(expr)
        name = fresh(stem, taken) if stem not in taken else fresh(next((x for x in "UVEFGJDXZA" if x not in taken), stem), taken)
        out.append((name, expr, eval_index(expr, sizes)))
    return out


def _stem(expr: Expr) -> str:
    """``OH`` for ``H-R+1`` and the like (a window's positions), else the next letter."""
    names = sorted(free_sizes(expr))
    whole = [n for n in names if n in ("H", "W", "D", "T", "L")]
    return f"O{whole[0]}" if len(whole) == 1 and isinstance(expr, Op) and expr.name in ("+", "-") else "U"


def _reshape(buffer: Buffer, short: Mapping[Expr, Size]) -> Buffer:
    return replace(buffer, shape=tuple(short.get(s, s) for s in buffer.shape))


def _rename(stmt: Stmt, by: dict[str, Expr], extents: dict[str, Expr], names: Sequence[str], short: Mapping[Expr, Size]) -> Stmt:
    """Name loop variables by depth and bring every index into canonical form under the new names."""

    def change(expr: Expr) -> Expr:
        return tidy_indices(map_expr(expr, lambda e: by.get(e.name, e) if isinstance(e, Var) else e), extents)

    if isinstance(stmt, Store):
        return replace(stmt, indices=tuple(map(change, stmt.indices)), value=change(stmt.value))
    if isinstance(stmt, If):
        return If(change(stmt.cond), tuple(_rename(s, by, extents, names, short) for s in stmt.body))
    name = names[len(extents)]
    extent = change(stmt.extent)
    inner = {**by, stmt.var: Var(name)}
    below = tuple(_rename(s, inner, {**extents, name: extent}, names, short) for s in stmt.body)
    return replace(stmt, var=name, extent=short.get(stmt.extent, extent), body=below, tmps=tuple(_reshape(t, short) for t in stmt.tmps))


def tidy_indices(expr: Expr, extents: Mapping[str, Expr]) -> Expr:
    """Canonical form for every integer part of an expression, inside look-ups too."""
    if isinstance(expr, Load):
        return Load(expr.buffer, tuple(tidy_indices(i, extents) for i in expr.indices), expr.type)
    if expr.dtype is DType.I64 and not isinstance(expr, (Var, Size, Const)):
        inner = map_expr(expr, lambda e: tidy_indices(e, extents) if isinstance(e, Load) else e)
        return simplify_index(inner, extents)
    if isinstance(expr, Op):
        return Op(expr.name, tuple(tidy_indices(a, extents) for a in expr.args), expr.type)
    return Cast(expr.type, tidy_indices(expr.arg, extents)) if isinstance(expr, Cast) else expr


def _sizes_used(program: Program) -> set[str]:
    used: set[str] = set()
    for buffer in (*program.inputs, *program.outputs, *program.tmps):
        for extent in (*buffer.shape, *(buffer.range or ())):
            used |= free_sizes(extent)
    for met in visit(program):
        for expr in stmt_exprs(met.stmt):
            used |= free_sizes(expr)
        if isinstance(met.stmt, Loop):
            for tmp in met.stmt.tmps:
                for extent in tmp.shape:
                    used |= free_sizes(extent)
    return used
