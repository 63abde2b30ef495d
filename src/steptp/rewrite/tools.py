"""Building blocks of schedule strategies: substitution, sizes and constraints, instance maps."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from steptp.ir.facts import Fact
from steptp.ir.index import Poly, ix, poly_of, same_index, simplify_cond, simplify_index
from steptp.ir.nodes import Body, Const, Expr, If, Loop, Op, Path, Program, Size, SizeDecl, Stmt, Store, Var, op
from steptp.ir.types import DType
from steptp.ir.walk import buffers, enclosing, free_sizes, free_vars, loads, stmt_exprs, stores, substitute, visit
from steptp.rewrite.base import InstanceEntry, InstanceMap
from steptp.rewrite.exprs import children, with_children
from steptp.rewrite.fact_kinds import fact

__all__ = [
    "tidy", "change_body", "divisibility", "tile_sizes", "accumulation_facts", "substitute_body", "substitute_expr", "add_size", "add_constraint", "quotient", "is_multiple", "lower_bound", "poly_lower_bound", "fold_multiples", "drop_unused_sizes",
    "used_sizes", "instance_map", "identity_map", "set_carry", "declares_tmps",
    "buffers_touched",
]  # fmt: skip


def tidy(expr: Expr, extents: Mapping[str, Expr]) -> Expr:
    """The expression with its index arithmetic (``i64``, no reads) in canonical form, also inside reads and conditions."""
    if expr.dtype is DType.I64 and not any(loads(expr)):
        return simplify_index(expr, extents)
    below = children(expr)
    new = tuple(tidy(c, extents) for c in below)
    return expr if all(a is b for a, b in zip(below, new, strict=True)) else with_children(expr, new)


def _tidy_index(expr: Expr, extents: Mapping[str, Expr]) -> Expr:
    return simplify_index(tidy(expr, extents), extents)


def change_body(body: Body, change: Callable[[Expr, Mapping[str, Expr]], Expr], extents: Mapping[str, Expr]) -> Body:
    """Apply ``change(expression, extents of the loops around it)`` to every whole expression of the statements."""

    def one(stmt: Stmt, around: Mapping[str, Expr]) -> Stmt:
        if isinstance(stmt, Store):
            return replace(stmt, indices=tuple(change(i, around) for i in stmt.indices), value=change(stmt.value, around))
        if isinstance(stmt, If):
            return If(change(stmt.cond, around), tuple(one(s, around) for s in stmt.body))
        extent = change(stmt.extent, around)
        inner = {**around, stmt.var: extent}
        return replace(stmt, extent=extent, body=tuple(one(s, inner) for s in stmt.body))

    return tuple(one(s, extents) for s in body)


def substitute_body(body: Body, by: Mapping[str, Expr], extents: Mapping[str, Expr]) -> Body:
    """Replace loop variables everywhere in ``body`` and bring the indices that change into canonical form.

    ``extents`` holds the loops around ``body``, new ones included.
    """
    return change_body(body, lambda expr, around: substitute_expr(expr, by, around), extents)


def substitute_expr(expr: Expr, by: Mapping[str, Expr], extents: Mapping[str, Expr]) -> Expr:
    """One whole expression of :func:`substitute_body`, inside the loops of ``extents``."""
    if free_vars(expr).isdisjoint(by):
        return expr
    new = substitute(expr, by)
    if new.dtype is DType.BOOL:
        return simplify_cond(tidy(new, extents), extents)
    return _tidy_index(new, extents) if new.dtype is DType.I64 and not any(loads(new)) else tidy(new, extents)


# sizes


def add_size(program: Program, name: str, value: int) -> Program:
    """The program with one more free size."""
    return program.with_(sizes=(SizeDecl(name, value), *program.sizes))


def quotient(program: Program, whole: Expr, part: Expr) -> Expr | None:
    """``whole//part`` without rest, as far as arithmetic and the header show it: ``H*T0`` by ``T1`` is ``T0*(H//T1)`` where ``H%T1==0``.

    ``None`` when they do not show that ``part`` divides ``whole``.
    """
    stated = [w for c in program.constraints if (found := divisibility(c)) is not None for w, p in [found] if same_index(p, part)]
    if any(same_index(w, whole) for w in stated):
        return simplify_index(op("//", whole, part))
    out: Expr = ix(0)
    for mono, value in poly_of(whole).items():
        term = _product(value, mono)
        if simplify_index(op("%", term, part)) == ix(0):
            term = op("//", term, part)
        else:
            owner = next((n for n, atom in enumerate(mono) if atom in stated), None)
            if owner is None:
                return None
            term = _product(value, (*mono[:owner], op("//", mono[owner], part), *mono[owner + 1 :]))
        out = op("+", out, term)
    return simplify_index(out)


def _product(value: int, atoms: Iterable[Expr]) -> Expr:
    out: Expr = ix(value)
    for atom in atoms:
        out = op("*", out, atom)
    return out


def is_multiple(program: Program, whole: Expr, part: Expr) -> bool:
    """Whether the header states (or arithmetic shows) that ``part`` divides ``whole``."""
    return quotient(program, whole, part) is not None


def divisibility(cond: Expr) -> tuple[Expr, Expr] | None:
    """``(whole, part)`` of a constraint ``whole%part==0``."""
    if isinstance(cond, Op) and cond.name == "==" and cond.args[1] == ix(0):
        left = cond.args[0]
        if isinstance(left, Op) and left.name == "%":
            return left.args[0], left.args[1]
    return None


def tile_sizes(program: Program) -> tuple[str, ...]:
    """Free sizes that some constraint ``X%T==0`` names as the divisor: the tile sizes in use, in order of appearance."""
    free = {s.name for s in program.sizes if s.expr is None}
    parts = [found[1] for c in program.constraints if (found := divisibility(c)) is not None]
    return tuple(dict.fromkeys(p.name for p in parts if isinstance(p, Size) and p.name in free))


def add_constraint(program: Program, whole: Expr, part: Expr) -> Program:
    """The program with ``whole%part==0`` in its header, unless it already follows."""
    if is_multiple(program, whole, part):
        return program
    return program.with_(constraints=(*program.constraints, op("==", op("%", whole, part), 0)))


def lower_bound(expr: Expr) -> int | None:
    """A value that a size expression never goes below, whatever the sizes (0 or more; divisors 1 or more); ``None`` when none is seen."""
    return poly_lower_bound(poly_of(expr))


def poly_lower_bound(poly: Poly) -> int | None:
    """The same for a polynomial over sizes."""
    total = 0
    for mono, value in poly.items():
        lows = [_atom_lower_bound(atom) for atom in mono]
        if not mono:
            total += value
        elif value < 0 or any(low is None for low in lows):
            return None
        elif len(mono) == 1:
            total += value * (lows[0] or 0)
        elif any(low is not None and low < 0 for low in lows):
            return None
    return total


def _atom_lower_bound(atom: Expr) -> int | None:
    if isinstance(atom, Size):
        return 0
    if not isinstance(atom, Op) or atom.name not in ("//", "%", "max", "min"):
        return None
    lows = [lower_bound(a) for a in atom.args]
    if atom.name == "%":
        return 0 if lows[1] is not None and lows[1] >= 0 else None
    if atom.name == "//":
        top, bottom = lows
        return None if top is None or bottom is None or bottom < 0 else min(top, 0)
    known = [low for low in lows if low is not None]
    return None if len(known) < (2 if atom.name == "min" else 1) else max(known) if atom.name == "max" else min(known)


def fold_multiples(program: Program, expr: Expr) -> Expr:
    """Use the header: ``N//T*T`` is ``N`` where ``N%T==0``. Canonical form otherwise."""
    if isinstance(expr, (Size, Var, Const)):
        return expr
    expr = simplify_index(expr)
    for mono, value in poly_of(expr).items():
        for atom in mono:
            if not (isinstance(atom, Op) and atom.name == "//"):
                continue
            whole, part = atom.args
            rest = list(mono)
            rest.remove(atom)
            if part in rest and is_multiple(program, whole, part):
                rest.remove(part)
                term: Expr = whole
                old: Expr = op("*", atom, part)
                for other in rest:
                    term, old = op("*", term, other), op("*", old, other)
                return fold_multiples(program, op("+", op("-", expr, op("*", old, value)), op("*", term, value)))
    return expr


def used_sizes(program: Program) -> frozenset[str]:
    """Sizes that shapes, ranges, statements or derived sizes mention (constraints do not count); kept with the program."""
    cached = program._cache.get("used_sizes")
    if not isinstance(cached, frozenset):
        pending = [e for buffer in buffers(program) for e in (*buffer.shape, *(buffer.range or ()))]
        pending += (expr for met in visit(program) for expr in stmt_exprs(met.stmt))
        pending += (size.expr for size in program.sizes if size.expr is not None)
        found: set[str] = set()
        while pending:
            expr = pending.pop()
            if isinstance(expr, Size):
                found.add(expr.name)
            else:
                pending += children(expr)
        cached = program._cache["used_sizes"] = frozenset(found)
    return cached


def drop_unused_sizes(before: Program, after: Program) -> Program:
    """Drop the sizes that this step left without a use, with their divisibility constraints.

    Sound because 1 divides everything: for every binding of the other sizes some value of the dropped one satisfies
    ``X%T==0``, and the program no longer depends on that value.
    """
    gone = used_sizes(before) - used_sizes(after)
    drop: set[str] = set()
    for name in gone:
        about = [divisibility(c) for c in after.constraints if name in free_sizes(c)]
        if all(d is not None and d[1] == Size(name) and name not in free_sizes(d[0]) for d in about):
            drop.add(name)
    if not drop:
        return after
    return after.with_(
        sizes=tuple(s for s in after.sizes if s.name not in drop),
        constraints=tuple(c for c in after.constraints if not free_sizes(c) & drop),
    )


# bodies


def set_carry(body: Body, which: Callable[[Store], bool]) -> Body:
    """Make the accumulations that ``which`` picks carry."""

    def one(stmt: Stmt) -> Stmt:
        if isinstance(stmt, Store):
            return replace(stmt, carry=True) if stmt.reduce is not None and which(stmt) else stmt
        return replace(stmt, body=tuple(one(s) for s in stmt.body))

    return tuple(one(s) for s in body)


def declares_tmps(body: Body) -> str | None:
    """A temporary that some loop in ``body`` declares, or ``None``."""
    return next((s.tmps[0].name for s in (v.stmt for v in visit(body)) if isinstance(s, Loop) and s.tmps), None)


def buffers_touched(stmt: Stmt) -> tuple[frozenset[str], frozenset[str]]:
    """Names of the buffers that a statement tree reads and writes; an accumulation does both."""
    reads: set[str] = set()
    writes: set[str] = set()
    for met in visit((stmt,)):
        for expr in stmt_exprs(met.stmt):
            reads.update(e.buffer for e in loads(expr))
        if isinstance(met.stmt, Store):
            writes.add(met.stmt.buffer)
            if met.stmt.reduce is not None:
                reads.add(met.stmt.buffer)
    return frozenset(reads), frozenset(writes)


# facts


def accumulation_facts(stores_in_scope: Iterable[Store]) -> tuple[Fact, ...]:
    """``order_kept`` for every buffer that these stores accumulate into."""
    found = dict.fromkeys((s.buffer, s.reduce) for s in stores_in_scope)
    return tuple(fact("order_kept", "dependence", buffer=b, reduce=r) for b, r in found if r is not None)


# instance maps


def instance_map(parent: Program, child: Program, back: Callable[[Path], Path | None], iters: Callable[[Path], Mapping[str, Expr]]) -> InstanceMap:
    """The map of a step. ``back`` takes a store's path in the child to the parent's; ``None`` leaves out a store of a temporary that only the child has.

    ``iters(child path)`` gives the loop variables of the parent that changed; the others keep their names.
    """
    entries = []
    for met in stores(child):
        source = back(met.path)
        if source is None:
            continue
        named = iters(met.path)
        around = [p.var for p in enclosing(parent, source) if isinstance(p, Loop)]
        entries.append(InstanceEntry(met.path, source, tuple((v, named.get(v, Var(v))) for v in around)))
    return InstanceMap(tuple(entries))


def identity_map(program: Program) -> InstanceMap:
    """Every store executes its own instances (steps that change only loop kinds)."""
    return instance_map(program, program, lambda p: p, lambda _: {})
