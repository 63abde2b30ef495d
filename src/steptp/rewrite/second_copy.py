"""A second copy of statements behind the first: which of its accumulations carry on, and which need their reset written out.

Only one resetting accumulation into a buffer is allowed, so in the copy an accumulation carries; where it reset inside of the copied
statements, a plain store of the operator's identity stands where the reset was. Temporaries of the copy get new names.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from steptp.ir import Body, DType, Expr, If, Loop, Path, Program, Stmt, Store, Var, ix, simplify_index
from steptp.ir.index import Poly, expr_of, poly_of
from steptp.ir.nodes import Op
from steptp.ir.resets import reset_plan
from steptp.ir.walk import declaring_path, enclosing, free_vars, loads, map_expr, map_stmt_exprs, rename_buffer, substitute
from steptp.rewrite.base import InstanceEntry
from steptp.rewrite.context import Context
from steptp.rewrite.tools import lower_bound, poly_lower_bound

__all__ = ["SecondCopy", "second_copy", "copy_entries", "decided", "fold_choices"]


@dataclass(frozen=True, slots=True)
class SecondCopy:
    """``origin``: path in ``body`` → the parent's store and whether this is its reset, written out."""

    body: Body
    origin: tuple[tuple[Path, Path, bool], ...]
    resets: tuple[str, ...]
    renamed: tuple[tuple[str, str], ...]


def second_copy(ctx: Context, place: Path, *, resets: bool) -> SecondCopy:
    """The statement at ``place`` once more. ``resets``: an accumulation that resets just before it does so again before the copy."""

    def inside(path: Path) -> bool:
        return path[: len(place)] == place

    inits: dict[Path, list[tuple[Path, Stmt]]] = {}
    for path, store in ctx.stores:
        before = ctx.reset_loop(path)
        if before is not None and inside(before) and (resets or before != place) and not inside(declaring_path(ctx.program, store.buffer)):
            inits.setdefault(before, []).append((path, reset_plan(ctx.program, path).nest))
    origin: list[tuple[Path, Path, bool]] = []

    def rebuild(stmt: Stmt, old: Path, out: list[Stmt], new: Path) -> None:
        for source, nest in inits.get(old, ()):
            origin.append((_store_below(nest, (*new, len(out))), source, True))
            out.append(nest)
        there = (*new, len(out))
        if isinstance(stmt, Store):
            origin.append((there, old, False))
            own = inside(declaring_path(ctx.program, stmt.buffer))
            out.append(replace(stmt, carry=True) if stmt.reduce is not None and not own else stmt)
            return
        body: list[Stmt] = []
        for n, child in enumerate(stmt.body):
            rebuild(child, (*old, n), body, there)
        out.append(replace(stmt, body=tuple(body)))

    made: list[Stmt] = []
    stmt = ctx.stmt(place)
    assert stmt is not None
    rebuild(stmt, place, made, ())
    private = [b.name for _, loop in ctx.loops_under(place) for b in loop.tmps]
    names = tuple(zip(private, ctx.fresh_global(*private), strict=True))
    body = tuple(made)
    for a, b in names:
        body = rename_buffer(body, a, b)
    written = {source for _, source, is_reset in origin if is_reset}
    return SecondCopy(_redeclared(body, dict(names)), tuple(origin), tuple(dict.fromkeys(s.buffer for p, s in ctx.stores if p in written)), names)


def _store_below(nest: Stmt, path: Path) -> Path:
    while not isinstance(nest, Store):
        nest, path = nest.body[0], (*path, 0)
    return path


def _redeclared(body: Body, names: dict[str, str]) -> Body:
    def one(stmt: Stmt) -> Stmt:
        if isinstance(stmt, Store):
            return stmt
        inner = tuple(one(s) for s in stmt.body)
        if isinstance(stmt, If):
            return If(stmt.cond, inner)
        return replace(stmt, body=inner, tmps=tuple(replace(b, name=names.get(b.name, b.name)) for b in stmt.tmps))

    return tuple(one(s) for s in body)


def copy_entries(parent: Program, copy: SecondCopy, place: Callable[[Path], Path], by: dict[str, Expr]) -> list[InstanceEntry]:
    """Instance entries of the copy's stores; ``place`` takes a path below the copy to the child's, ``by`` replaces loop variables."""
    out = []
    for below, source, is_reset in copy.origin:
        around = [p.var for p in enclosing(parent, source) if isinstance(p, Loop)]
        if is_reset:
            nest = reset_plan(parent, source)
            gone = {p.var for p in enclosing(parent, source)[len(nest.before) - 1 :] if isinstance(p, Loop)} - _loops_of(nest.nest)
            around = [v for v in around if v not in gone]
        out.append(InstanceEntry(place(below), source, tuple((v, by.get(v, Var(v))) for v in around)))
    return out


def _loops_of(nest: Stmt) -> set[str]:
    found: set[str] = set()
    while not isinstance(nest, Store):
        if isinstance(nest, Loop):
            found.add(nest.var)
        nest = nest.body[0]
    return found


# conditions that a narrower range decides


def decided(cond: Expr, extents: Mapping[str, Expr], known: dict[Expr, bool | None] | None = None) -> bool | None:
    """Whether a comparison of indices holds for every iteration of the loops in ``extents``, or for none, whatever the sizes.

    ``known`` keeps the answers for comparisons.
    """
    if not isinstance(cond, Op) or any(loads(cond)):
        return None
    if cond.name in ("and", "or"):
        strong = cond.name == "or"
        first = decided(cond.args[0], extents, known)
        second = first if first is strong else decided(cond.args[1], extents, known)
        return strong if second is strong else not strong if first is second is (not strong) else None
    if cond.name not in ("<", "<=", ">", ">=") or cond.args[0].dtype is not DType.I64:
        return None
    if known is None:
        return _compared(cond, extents)
    if cond not in known:
        known[cond] = _compared(cond, extents)
    return known[cond]


def _compared(cond: Op, extents: Mapping[str, Expr]) -> bool | None:
    low, high = map(poly_of, cond.args if cond.name in ("<", "<=") else cond.args[::-1])
    room = dict(high)
    for mono, value in (*low.items(), *(((), 1),) * (cond.name in ("<", ">"))):
        room[mono] = room.get(mono, 0) - value
    if _never_negative(room, extents):
        return True
    rest = {mono: -value for mono, value in room.items()}
    rest[()] = rest.get((), 0) - 1
    return False if _never_negative(rest, extents) else None


def _never_negative(poly: Poly, extents: Mapping[str, Expr]) -> bool:
    """At the corner where it is smallest, variables with negative factors at their ends."""
    poly = {mono: value for mono, value in poly.items() if value}
    signs: dict[Expr, bool] = {}
    least: Poly = {}
    for mono, value in poly.items():
        moving = [atom for atom in mono if isinstance(atom, Var) or free_vars(atom)]
        if not moving:
            least[mono] = least.get(mono, 0) + value
            continue
        var = moving[0]
        if not isinstance(var, Var) and not any(isinstance(atom, Var) for other in poly for atom in other):
            return False
        if len(moving) > 1 or not isinstance(var, Var) or signs.setdefault(var, value < 0) != (value < 0):
            return _never_negative_expr(expr_of(poly), extents)  # not linear: one variable after the other
        extent = extents.get(var.name)
        if extent is None or free_vars(extent):
            return False
        if value < 0:
            rest: Expr = ix(value)
            for atom in mono:
                rest = rest * atom if atom is not var else rest
            for other, count in poly_of(rest * (extent - 1)).items():
                least[other] = least.get(other, 0) + count
    low = poly_lower_bound({mono: value for mono, value in least.items() if value})
    return low is not None and low >= 0


def _never_negative_expr(expr: Expr, extents: Mapping[str, Expr]) -> bool:
    for mono, value in poly_of(expr).items():
        for atom in mono:
            if isinstance(atom, Var):
                extent = extents.get(atom.name)
                if extent is None or free_vars(extent):
                    return False
                corner = extent - 1 if value < 0 else ix(0)
                return _never_negative_expr(simplify_index(substitute(expr, {atom.name: corner})), extents)
            if free_vars(atom):
                return False
    low = lower_bound(expr)
    return low is not None and low >= 0


def fold_choices(body: Body, var: str, extents: dict[str, Expr]) -> Body:
    """Take the side of every ``select`` on ``var`` that the range of the loops decides."""

    def in_expr(expr: Expr, around: dict[str, Expr]) -> Expr:
        def leave(e: Expr) -> Expr:
            if isinstance(e, Op) and e.name == "select" and var in free_vars(e.args[0]):
                side = decided(e.args[0], around)
                return e if side is None else e.args[1 if side else 2]
            return e

        return map_expr(expr, leave)

    def one(stmt: Stmt, around: dict[str, Expr]) -> Stmt:
        if isinstance(stmt, Store):
            return map_stmt_exprs(stmt, lambda e: in_expr(e, around))
        if isinstance(stmt, If):
            return If(in_expr(stmt.cond, around), tuple(one(s, around) for s in stmt.body))
        return replace(stmt, body=tuple(one(s, {**around, stmt.var: stmt.extent}) for s in stmt.body))

    return tuple(one(s, dict(extents)) for s in body)
