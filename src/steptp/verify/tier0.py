"""Tier 0: does the candidate parse and type-check, and does it keep the interface of its parent?"""

from __future__ import annotations

from steptp.errors import LeirError
from steptp.ir import Expr, Program, parse, print_expr, problems, same_index, shape_of
from steptp.ir.nodes import Buffer, Size
from steptp.ir.walk import map_expr
from steptp.verify.verdict import TierReport, VerdictKind

__all__ = ["tier0", "parse_candidate", "interface_difference"]


def parse_candidate(text: str) -> Program | TierReport:
    """The program of a text, or the ``malformed`` report that says what is wrong with it and where."""
    try:
        return parse(text, "<candidate>")
    except LeirError as err:
        return _malformed(err)
    except RecursionError:
        return TierReport(0, VerdictKind.MALFORMED, "the text nests too deeply", {"code": "syntax-depth"})


def tier0(parent: Program, child: Program) -> TierReport:
    """Check the child against the validity table, then its interface against the parent's.

    Evidence of an accepted child: ``family`` says whether its interface shapes are the same functions of the sizes as the
    parent's (False: only equal at the present sizes), ``constraints`` lists size constraints that the parent does not have.
    """
    found = problems(child)
    if found:
        return _malformed(found[0], len(found))
    difference = interface_difference(parent, child)
    if difference:
        return TierReport(0, VerdictKind.MALFORMED, difference, {"code": "interface"})
    known = {print_expr(c) for c in parent.constraints}
    added = [text for c in child.constraints if (text := print_expr(c)) not in known]
    return TierReport(0, VerdictKind.OK, "well-formed, same interface", {"family": _same_family(parent, child), "constraints": added})


def _malformed(err: LeirError, count: int = 1) -> TierReport:
    evidence: dict[str, object] = {"code": err.code, "problems": count}
    if err.place is not None and err.place.line:
        evidence |= {"line": err.place.line, "column": err.place.column}
    if err.hint:
        evidence["hint"] = err.hint
    return TierReport(0, VerdictKind.MALFORMED, err.message, evidence)


def interface_difference(parent: Program, child: Program) -> str:
    """The first way in which inputs or outputs differ (names, order, dtypes, shapes, value ranges); empty when they agree."""
    for role, ours, theirs in (("input", parent.inputs, child.inputs), ("output", parent.outputs, child.outputs)):
        names, others = [b.name for b in ours], [b.name for b in theirs]
        if names != others:
            missing = [n for n in names if n not in others]
            extra = [n for n in others if n not in names]
            if missing:
                return f"the {role} {missing[0]} is missing"
            if extra:
                return f"{extra[0]} is not an {role} of the parent"
            return f"the {role}s are in another order: {', '.join(others)} instead of {', '.join(names)}"
        for a, b in zip(ours, theirs, strict=True):
            if a.dtype is not b.dtype:
                return f"the {role} {a.name} has dtype {b.dtype} instead of {a.dtype}"
            if a.scope is not b.scope:
                return f"the {role} {a.name} is {b.scope} instead of {a.scope}"
            here, there = shape_of(a.shape, parent), shape_of(b.shape, child)
            if here != there:
                return f"the {role} {a.name} has shape {_shown(there)} instead of {_shown(here)}"
            if _range(parent, a) != _range(child, b):
                return f"the {role} {a.name} has value range {_range(child, b)} instead of {_range(parent, a)}"
    return ""


def _shown(shape: tuple[int, ...]) -> str:
    return f"[{','.join(map(str, shape))}]"


def _range(program: Program, buffer: Buffer) -> tuple[int, int] | None:
    if buffer.range is None:
        return None
    low, high = shape_of(buffer.range, program)
    return low, high


def _expand(program: Program, expr: Expr) -> Expr:
    """``expr`` over the sizes that are given, with derived sizes written out."""
    table = {s.name: s.expr for s in program.sizes if s.expr is not None}

    def leave(node: Expr) -> Expr:
        if isinstance(node, Size) and (definition := table.get(node.name)) is not None:
            return _expand(program, definition)
        return node

    return map_expr(expr, leave)


def _same_family(parent: Program, child: Program) -> bool:
    values, others = parent.size_env, child.size_env
    for a, b in zip((*parent.inputs, *parent.outputs), (*child.inputs, *child.outputs), strict=True):
        for x, y in zip((*a.shape, *(a.range or ())), (*b.shape, *(b.range or ())), strict=True):
            if not same_index(_expand(parent, x), _expand(child, y)):
                return False
    return all(others.get(name, value) == value for name, value in values.items())
