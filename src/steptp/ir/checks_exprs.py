"""Validity of expressions: depth, what is in view, ranks, dtypes, and the shape of indices."""

from __future__ import annotations

from collections.abc import Iterator

from steptp.ir.affine import MAX_TERMS, NotAffine, Range, form_of, term_count
from steptp.ir.exprparser import MAX_DEPTH, counted, depth_of
from steptp.ir.nodes import Buffer, Cast, Const, Expr, If, Load, Loop, Op, Program, Size, SizeDecl, Stmt, Store, Var
from steptp.ir.ops import OPS, OpRule
from steptp.ir.printer import print_expr
from steptp.ir.survey import Met, Problem, Survey
from steptp.ir.types import DType, round_literal

__all__ = ["too_deep", "views", "ranks", "types", "indices", "MAX_NEST"]

MAX_NEST = 64
"""Deepest nest of loops and guards."""


def too_deep(program: Program) -> Problem | None:
    """Trees so high that recursive walks over them could fail; found without recursion."""
    exprs: list[Expr] = [*program.constraints]
    decls: list[Buffer | SizeDecl] = [*program.sizes, *program.inputs, *program.outputs, *program.tmps]
    stack: list[tuple[Stmt, int]] = [(stmt, 0) for stmt in program.body]
    while stack:
        stmt, level = stack.pop()
        if isinstance(stmt, Store):
            exprs.extend(stmt.indices)
            exprs.append(stmt.value)
            continue
        if level >= MAX_NEST:
            return Problem(f"more than {MAX_NEST} loops and guards inside one another")
        if isinstance(stmt, Loop):
            decls.extend(stmt.tmps)
        exprs.append(stmt.extent if isinstance(stmt, Loop) else stmt.cond)
        stack.extend((inner, level + 1) for inner in stmt.body)
    for decl in decls:
        if isinstance(decl, SizeDecl):
            exprs.extend((decl.expr,) if decl.expr is not None else ())
        else:
            exprs.extend((*decl.shape, *(decl.range or ())))
    if any(isinstance(e, (Op, Load, Cast)) and depth_of(e) > MAX_DEPTH for e in exprs):
        return Problem(f"an expression nests deeper than {MAX_DEPTH} levels", hint="split it with a temporary or a loop")
    return None


def views(survey: Survey) -> Iterator[Problem]:
    for met in survey.met:
        variables: set[str] | None = None
        if isinstance(met.stmt, Store):
            yield from _buffer_in_view(survey, met, met.stmt.buffer)
        for node in met.nodes:
            if isinstance(node, Var):
                if variables is None:
                    variables = {loop.var for loop in met.loops}
                if node.name not in variables:
                    yield Problem(f"no loop variable {node.name} around this statement", met.path)
            elif isinstance(node, Size):
                if node.name not in survey.env:
                    yield Problem(f"no size named {node.name}", met.path)
            elif isinstance(node, Load):
                yield from _buffer_in_view(survey, met, node.buffer)


def _buffer_in_view(survey: Survey, met: Met, name: str) -> Iterator[Problem]:
    declared = survey.declared.get(name)
    if declared is None:
        yield Problem(f"no array named {name}", met.path)
    elif declared and (met.path[: len(declared)] != declared or len(met.path) == len(declared)):
        yield Problem(f"{name} is declared inside another loop", met.path, hint="declare it in a loop around every use, or in the program")


def ranks(survey: Survey) -> Iterator[Problem]:
    for met in survey.met:
        accesses = [(n.buffer, n.indices) for n in met.nodes if isinstance(n, Load)]
        if isinstance(met.stmt, Store):
            accesses.append((met.stmt.buffer, met.stmt.indices))
        for name, index in accesses:
            buffer = survey.table.get(name)
            if buffer is not None and len(buffer.shape) != len(index):
                yield Problem(f"{name} has {counted(len(buffer.shape), 'dimension')}, but is given {counted(len(index), 'index')}", met.path)


def types(survey: Survey) -> Iterator[Problem]:
    for met in survey.met:
        for node in met.nodes:
            if isinstance(node, (Op, Load, Const)) and (why := _mistyped(node, survey)):
                yield Problem(why, met.path)
        stmt = met.stmt
        if isinstance(stmt, If):
            if stmt.cond.dtype is not DType.BOOL:
                yield Problem(f"the condition of a guard must be bool, but this is {stmt.cond.dtype}", met.path, hint="compare it with something")
        elif isinstance(stmt, Loop):
            if stmt.extent.dtype is not DType.I64:
                yield Problem(f"the extent of loop {stmt.var} must be i64, but this is {stmt.extent.dtype}", met.path)
        else:
            target = survey.table.get(stmt.buffer)
            if target is not None and target.dtype is not stmt.value.dtype:
                yield Problem(f"{stmt.buffer} holds {target.dtype}, but the value is {stmt.value.dtype}", met.path, hint=f"cast it: {target.dtype}(...)")
            if any(i.dtype is not DType.I64 for i in stmt.indices):
                yield Problem(f"an index of {stmt.buffer} is not i64", met.path)


_TAKES = {
    OpRule.NUMERIC: frozenset(d for d in DType if d is not DType.BOOL),
    OpRule.FLOAT: frozenset(d for d in DType if d.is_float),
    OpRule.INTEGER: frozenset(d for d in DType if d.is_int),
    OpRule.COMPARE: frozenset(DType),
    OpRule.LOGIC: frozenset({DType.BOOL}),
    OpRule.TEST: frozenset(d for d in DType if d.is_float),
    OpRule.SELECT: frozenset(DType),
}
_SAME = frozenset({OpRule.NUMERIC, OpRule.FLOAT, OpRule.INTEGER, OpRule.SELECT})


def _mistyped(node: Op | Load | Const, survey: Survey) -> str:
    if isinstance(node, Load):
        buffer = survey.table.get(node.buffer)
        if buffer is not None and buffer.dtype is not node.type:
            return f"{node.buffer} holds {buffer.dtype}, but is read as {node.type}"
        return f"an index of {node.buffer} is not i64" if any(i.dtype is not DType.I64 for i in node.indices) else ""
    if isinstance(node, Const):
        try:
            held = round_literal(node.value, node.type)
        except (ValueError, OverflowError):
            return f"{node.value!r} is not a value of {node.type}"
        return "" if repr(held) == repr(node.value) else f"the literal {node.value!r} is not rounded to {node.type}"
    row = OPS.get(node.name)
    if row is None or row.arity != len(node.args):
        return f"{node.name} with {counted(len(node.args), 'operand')} is not an operator"
    is_select = row.rule is OpRule.SELECT
    operands = node.args[1:] if is_select else node.args
    main = operands[0].dtype
    result = main if row.rule in _SAME else DType.BOOL
    fits = main in _TAKES[row.rule] and all(a.dtype is main for a in operands) and not (is_select and node.args[0].dtype is not DType.BOOL)
    if fits and node.type is result:
        return ""
    shown = ", ".join(str(a.dtype) for a in node.args)
    return f"{node.name} does not take ({shown}) to {node.type}"


def indices(survey: Survey) -> Iterator[Problem]:
    for met in survey.met:
        spans: dict[str, Range] = {}  # bounds do not decide whether a form is quasi-affine
        stmt = met.stmt
        if isinstance(stmt, Store):
            for index in stmt.indices:
                yield from _index(index, f"an index of {stmt.buffer}", met, survey, spans)
        elif isinstance(stmt, Loop):
            yield from _index(stmt.extent, f"the extent of loop {stmt.var}", met, survey, spans)
        for node in met.nodes:
            if isinstance(node, Load):
                for index in node.indices:
                    yield from _index(index, f"an index of {node.buffer}", met, survey, spans)


def _index(expr: Expr, what: str, met: Met, survey: Survey, spans: dict[str, Range]) -> Iterator[Problem]:
    if isinstance(expr, (Var, Size, Const)):
        return
    if term_count(expr) > MAX_TERMS:
        yield Problem(f"{what} has more than {MAX_TERMS} terms", met.path)
        return
    try:
        form_of(expr, survey.env, spans)
    except NotAffine as why:
        yield Problem(f"{what} {why}: {print_expr(expr, DType.I64)}", met.path, hint="indices are quasi-affine in loop variables, or look-ups X[T[i]]")
