"""Output elements that a change reaches: the image of the statements that differ, and both sides of conditions on indices.

What the changed statements write is carried forward through their readers to the outputs by isl, at real sizes. Of each such region the first and the
last element are taken: the corner of a tail, the seam of two halves, the row that padding touches. Sets may be too large where
look-ups are in the way; nothing here decides anything, so that only costs precision.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import islpy as isl

from steptp.analysis.affine import box, point_of
from steptp.analysis.model import Model, Statement
from steptp.analysis.problems import BudgetExceeded, budget
from steptp.errors import LeirError
from steptp.ir.nodes import Expr, Op, Program, Var
from steptp.ir.walk import subexprs, substitute
from steptp.verify.cache import Lru, program_key

__all__ = ["touched_elements"]

Index = tuple[int, ...]
_CHANGED, _SPLITS = 5, 4  # statements and conditions looked at, of each program
_OPERATIONS = 300_000  # of isl, by its own counter


_kept: Lru[dict[str, list[Index]]] = Lru(256)


def touched_elements(parent: Program, child: Program) -> dict[str, list[Index]]:
    """Output → elements, in the order of the statements; regions that are a whole output give nothing."""
    return _kept.get((program_key(parent), program_key(child)), lambda: _elements(parent, child))


def _elements(parent: Program, child: Program) -> dict[str, list[Index]]:
    found: dict[str, list[Index]] = {}
    try:
        with budget(_OPERATIONS):
            for name, index in _touched(parent, child):
                here = found.setdefault(name, [])
                if index not in here:
                    here.append(index)
    except (BudgetExceeded, LeirError):
        pass  # what was found so far
    return found


def _touched(parent: Program, child: Program) -> Iterator[tuple[str, Index]]:
    models = (Model.of(child), Model.of(parent))
    keys = [Counter(_key(s) for s in m.statements) for m in models]
    for model, other in zip(models, reversed(keys), strict=True):
        for st in [s for s in model.statements if not s.never_runs and not s.is_reset and not other[_key(s)]][:_CHANGED]:
            yield from _ends(model, st.store.buffer, st.write.map.range(), st)
    for model in models:
        seen: set[Expr] = set()
        for st in model.statements:
            for cond in _conditions(st) if not st.never_runs else ():
                if cond in seen or len(seen) >= _SPLITS:
                    continue
                where, exact = st.frame.cond(cond)
                if not exact:
                    continue
                seen.add(cond)
                for part in (where, where.complement()):
                    yield from _ends(model, st.store.buffer, st.write.map.intersect_domain(part).range(), st)


def _conditions(st: Statement) -> Iterator[Expr]:
    yield from st.guards
    for expr in (*st.store.indices, st.store.value):
        yield from (e.args[0] for e in subexprs(expr) if isinstance(e, Op) and e.name == "select")


def _key(st: Statement) -> tuple[object, ...]:
    """A statement up to the names of its loops."""
    names = {loop.var: Var(f"#{depth}") for depth, loop in enumerate(st.loops)}
    extents = tuple(substitute(loop.extent, names) for loop in st.loops)
    indices = tuple(substitute(i, names) for i in st.store.indices)
    guards = tuple(substitute(g, names) for g in st.guards)
    return st.store.buffer, indices, st.store.reduce, substitute(st.store.value, names), extents, guards


def _ends(model: Model, buffer: str, region: isl.Set, source: Statement) -> Iterator[tuple[str, Index]]:
    """First and last elements of the outputs' regions that depend on ``region`` of ``buffer``, and of what lies outside of a region that is written directly."""
    if region.is_empty():
        return
    whole = box(model.declarations[buffer].shape)
    if region.is_equal(whole) and model.declarations[buffer].role != "out":
        return  # nothing about it is special
    reached = {buffer: region}
    for st in model.statements:
        if st.path < source.path and st.store.buffer == buffer:
            continue
        for access in st.reads:
            if access.buffer in reached and st.store.buffer != access.buffer:
                image = st.write.map.intersect_domain(access.map.intersect_range(reached[access.buffer]).domain()).range()
                reached[st.store.buffer] = reached[st.store.buffer].union(image) if st.store.buffer in reached else image
    for output in model.program.outputs:
        if (found := reached.get(output.name)) is None or found.is_empty():
            continue
        shape = model.declarations[output.name].shape
        if found.is_equal(box(shape)):
            continue
        rest = box(shape).subtract(found)
        for part in (found, rest) if output.name == buffer else (found,):
            for end in (part.lexmax(), part.lexmin()):
                yield output.name, point_of(end.sample_point(), len(shape))
