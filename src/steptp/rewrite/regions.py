"""Boxes of elements: what the accesses inside a loop touch in one of its iterations, and whether the boxes of all iterations tile a dimension.

Everything is symbolic in the sizes, so it holds for every re-binding.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from steptp.ir import Const, Expr, If, Load, Loop, Op, Path, Program, Size, Store, Var, ix, op, same_index, simplify_index
from steptp.ir.index import poly_of
from steptp.ir.walk import Visit, free_sizes, free_vars, loads, map_expr, stmt_exprs, subexprs
from steptp.rewrite.base import NotApplicable
from steptp.rewrite.context import Context
from steptp.rewrite.tools import fold_multiples

__all__ = [
    "Span",
    "Access",
    "resolved",
    "reads_of",
    "writes_of",
    "accesses_of",
    "table_problem",
    "accesses_under",
    "inner_loops",
    "split_index",
    "span_of",
    "tiling",
    "covers",
]


@dataclass(frozen=True, slots=True)
class Span:
    """The part of one dimension that an iteration touches: ``size`` elements from ``base``, which only the loops outside move."""

    base: Expr
    size: Expr

    @property
    def single(self) -> bool:
        """One element."""
        return self.size == ix(1)


@dataclass(frozen=True, slots=True)
class Access:
    """A read or write of a buffer: where it stands and its indices."""

    met: Visit
    indices: tuple[Expr, ...]
    load: Load | None


def resolved(program: Program, expr: Expr) -> Expr:
    """The index with derived sizes (``M=2*L``) replaced by what derives them, in canonical form."""
    derived = {s.name: s.expr for s in program.sizes if s.expr is not None}
    while any(name in derived for name in free_sizes(expr)):
        expr = map_expr(expr, lambda e: derived.get(e.name, e) if isinstance(e, Size) else e)
    return simplify_index(expr)


def reads_of(program: Program) -> Mapping[str, Sequence[Access]]:
    """Buffer → its reads in serial order, those in indices, guards and extents included; kept with the program."""
    ctx = Context.of(program)
    return ctx.kept("reads_of", (), lambda: {name: [a for a in found if a.load is not None] for name, found in accesses_of(ctx).items()})


def accesses_of(ctx: Context) -> Mapping[str, Sequence[Access]]:
    """Buffer → its reads and writes in serial order, the target of a store after what it reads; kept with the program."""
    return ctx.kept("accesses_of", (), lambda: _accesses_of(ctx))


def _accesses_of(ctx: Context) -> dict[str, list[Access]]:
    out: dict[str, list[Access]] = {}
    for met, found in zip(ctx.visits, ctx.reads, strict=True):
        for e in found:
            out.setdefault(e.buffer, []).append(Access(met, e.indices, e))
        if isinstance(met.stmt, Store):
            out.setdefault(met.stmt.buffer, []).append(Access(met, met.stmt.indices, None))
    return out


def writes_of(ctx: Context) -> Mapping[str, Sequence[tuple[Path, Store]]]:
    """Buffer → the stores into it with their paths, in serial order; kept with the program."""
    known = ctx.program._cache.get("writes_of")
    if not isinstance(known, dict):
        known = dict[str, list[tuple[Path, Store]]]()
        for path, store in ctx.stores:
            known.setdefault(store.buffer, []).append((path, store))
        ctx.program._cache["writes_of"] = known
    return known


def table_problem(ctx: Context, names: Iterable[str]) -> NotApplicable | None:
    """A temporary among ``names`` that indices or conditions look up: proofs of bounds need its one plain definition as it stands."""
    known = ctx.program._cache.get("tables")
    if not isinstance(known, frozenset):
        found: set[str] = set()
        for met in ctx.visits:
            for expr in stmt_exprs(met.stmt):
                for e in subexprs(expr):
                    inner = e.indices if isinstance(e, Load) else e.args[:1] if isinstance(e, Op) and e.name == "select" else ()
                    found.update(x.buffer for i in inner for x in loads(i))
                if isinstance(met.stmt, If):
                    found.update(x.buffer for x in loads(expr))
        pending = list(found)
        while pending:  # what a table is computed from is one too
            for _, store in writes_of(ctx).get(pending.pop(), ()):
                more = {x.buffer for x in loads(store.value)} - found
                found |= more
                pending += more
        known = ctx.program._cache["tables"] = frozenset(b.name for _, b in ctx.tmps if b.name in found and not b.dtype.is_float)
    looked_up = sorted(known & set(names))
    return NotApplicable("table", f"{looked_up[0]} is a table that indices or conditions look up") if looked_up else None


def accesses_under(ctx: Context, path: Path, buffer: str) -> Iterator[Access]:
    """Reads and writes of ``buffer`` at or below ``path``, in serial order; the target of a store comes after what it reads."""
    return (a for a in accesses_of(ctx).get(buffer, ()) if a.met.path[: len(path)] == path)


def inner_loops(met: Visit, depth: int) -> dict[str, Loop]:
    """The loops around a statement from level ``depth`` inwards, by variable."""
    return {p.var: p for p in met.parents[depth:] if isinstance(p, Loop)}


def span_of(indices: Sequence[tuple[Expr, Mapping[str, Loop]]]) -> Span | None:
    """The span that holds these indices, each with the loops inside; ``None`` where they are no sums of an outer part and inner loops.

    Outer parts may differ by constants; all must span equally many elements.
    """
    parts: list[tuple[Expr, Expr]] = []
    for index, inside in indices:
        split = split_index(index, inside)
        if split is None:
            return None
        parts.append(split)
    first, size = parts[0]
    if all(part == parts[0] for part in parts[1:]):
        return Span(first, size)
    offsets: list[int] = []
    for base, other in parts:
        distance = poly_of(simplify_index(base - first))
        if distance.keys() - {()} or not same_index(size, other):
            return None
        offsets.append(distance.get((), 0))
    return Span(simplify_index(first + ix(min(offsets))), simplify_index(size + ix(max(offsets) - min(offsets))))


def split_index(index: Expr, inside: Mapping[str, Loop]) -> tuple[Expr, Expr] | None:
    """(outer part, number of values that the inner part spans)."""
    if isinstance(index, (Var, Size, Const)):
        own = inside.get(index.name) if isinstance(index, Var) else None
        if own is None:
            return index, ix(1)
        return None if free_vars(own.extent) or any(loads(own.extent)) else (ix(0), simplify_index(own.extent))
    if any(loads(index)):
        return None
    outer: Expr = ix(0)
    span: Expr = ix(1)
    for mono, value in poly_of(index).items():
        moving = [a for a in mono if free_vars(a) & inside.keys()]
        term = _product(value, mono)
        if not moving:
            outer = outer + term
            continue
        var = moving[0]
        rest = [a for a in mono if a is not var]
        if len(moving) != 1 or not isinstance(var, Var) or value < 0 or any(free_vars(a) for a in rest):
            return None
        loop = inside[var.name]
        if free_vars(loop.extent) or any(loads(loop.extent)):
            return None
        span = span + _product(value, rest) * (loop.extent - ix(1))
    return simplify_index(outer), simplify_index(span)


def _product(value: int, atoms: Sequence[Expr]) -> Expr:
    if not atoms:
        return ix(value)
    out: Expr = ix(value)
    for atom in atoms:
        out = out * atom
    return simplify_index(out)


def tiling(program: Program, span: Span, outer: Mapping[str, Expr]) -> tuple[tuple[str, ...], Expr] | None:
    """Whether the spans of all iterations of the ``outer`` loops (variable → extent) lie side by side from 0 on, without gap or overlap.

    Returns the loops that move the span, longest stride first, and the length that all spans cover: ``i0*T`` with ``T`` elements covers ``N`` for
    ``N//T`` tiles where the header states ``N%T==0``.
    """
    strides: dict[str, Expr] = {}
    for mono, value in poly_of(span.base).items():
        moving = [a for a in mono if free_vars(a)]
        if len(moving) != 1 or not isinstance(moving[0], Var) or moving[0].name not in outer or moving[0].name in strides:
            return None
        strides[moving[0].name] = _product(value, [a for a in mono if a is not moving[0]])
    moved: list[str] = []
    reach = fold_multiples(program, span.size)
    while strides:
        here = next((v for v, stride in strides.items() if same_index(stride, reach)), None)
        if here is None or free_vars(outer[here]):
            return None
        del strides[here]
        moved.insert(0, here)
        reach = fold_multiples(program, op("*", reach, outer[here]))
    return tuple(moved), reach


def covers(program: Program, reach: Expr, extent: Expr) -> str | None:
    """``exact`` when ``reach`` is ``extent``, ``beyond`` when it is ``extent`` rounded up to a multiple, ``None`` when neither is seen."""
    if reach == extent:
        return "exact"
    reach, extent = fold_multiples(program, reach), fold_multiples(program, extent)
    if same_index(reach, extent) or resolved(program, reach) == resolved(program, extent):
        return "exact"
    for mono in poly_of(reach):
        for atom in mono:
            if isinstance(atom, Op) and atom.name == "//":
                part = atom.args[1]
                rounded = simplify_index(op("*", op("//", op("-", op("+", extent, part), ix(1)), part), part))
                if same_index(reach, rounded):
                    return "beyond"
    return None
