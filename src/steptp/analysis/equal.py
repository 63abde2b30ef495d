"""Are the expressions of two linked statements the same operator trees, instance by instance?

Indices are compared as functions on the instances that evaluate them: as linear forms where possible, exactly by isl otherwise.
Values are compared as trees: the same operators on the same operands in the same order, so equal bits.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import islpy as isl

from steptp.analysis.affine import linear, point_of
from steptp.analysis.literals import exact_literal
from steptp.analysis.mapping import Link
from steptp.ir.index import ix, same_index
from steptp.ir.nodes import Cast, Const, Expr, Load, Op, Size, Var
from steptp.ir.printer import print_expr
from steptp.ir.types import DType
from steptp.ir.walk import map_expr

__all__ = ["Place", "Difference", "compare_statements"]


@dataclass(frozen=True)
class Place:
    """Where a parent buffer lives in the child: the buffer, and index expressions over ``Var('d0')`` … (``None``: the same indices).

    They may also use the parent's loop variables around the declaration, when a private temporary becomes a larger array, and loops of
    the child around its declaration (``Var('@i0')``), when an array becomes a temporary that is private to their iterations.
    """

    buffer: str
    indices: tuple[Expr, ...] | None = None


@dataclass(frozen=True)
class Difference:
    """What is not the same, with an instance where it shows (``None`` for different operators).

    ``certain`` is unset when it need not change the result (a reset of more elements).
    """

    message: str
    point: tuple[int, ...] | None = None
    certain: bool = True


@dataclass
class _Compare:
    link: Link
    places: Mapping[str, Place]
    by: Mapping[str, Expr]
    where: tuple[tuple[Expr, bool], ...] = ()
    found: list[Difference] = field(default_factory=list)

    def under(self, cond: Expr, holds: bool) -> _Compare:
        return _Compare(self.link, self.places, self.by, (*self.where, (cond, holds)), self.found)

    def domain(self) -> isl.Set:
        out = self.link.child.domain
        for cond, holds in self.where:
            out = out.intersect(self.link.child.frame.cond(cond, holds)[0])
        return out

    def moved(self, expr: Expr) -> Expr:
        """A parent expression over the child's loop variables and buffers."""

        def leave(e: Expr) -> Expr:
            if isinstance(e, Var):
                return self.by.get(e.name, e)
            if isinstance(e, Size) and e.name not in self.link.child.model.sizes:
                return ix(self.link.parent.model.sizes[e.name])  # a tile size that the child no longer declares
            return self.load(e) if isinstance(e, Load) else e

        return map_expr(expr, leave)

    def load(self, read: Load) -> Load:
        """The child's read of the same element; ``read`` has moved indices."""
        return Load(self.places[read.buffer].buffer, self.element(read.buffer, read.indices), read.type)

    def element(self, buffer: str, indices: tuple[Expr, ...]) -> tuple[Expr, ...]:
        layout = self.places[buffer].indices
        if layout is None:
            return indices
        private = {f"@{v}": Var(v) for v in self.link.child.vars}
        names = {**self.by, **private, **{f"d{k}": index for k, index in enumerate(indices)}}
        return tuple(map_expr(e, lambda x: names.get(x.name, x) if isinstance(x, Var) else x) for e in layout)

    def differ(self, child: Expr, parent: Expr, point: tuple[int, ...] | None = None) -> bool:
        st = self.link.child
        at = f" at {st.instance(point)}" if point is not None else ""
        self.found.append(Difference(f"{st.name} computes {print_expr(child)} where the parent computes {print_expr(parent)}{at}", point))
        return False

    def same(self, child: Expr, parent: Expr) -> bool:
        """``parent`` still speaks of the parent's variables and buffers."""
        if child.dtype is not parent.dtype:
            return self.differ(child, self.moved(parent))
        if child.dtype is DType.I64 and not (isinstance(child, Load) or isinstance(parent, Load)):
            return self.index(child, self.moved(parent))
        if isinstance(parent, Op) and parent.name == "select" and not (isinstance(child, Op) and child.name == "select"):
            side = self.decided(self.moved(parent.args[0]))
            if side is not None:
                return self.same(child, parent.args[1 if side else 2])
        if isinstance(child, Op) and child.name == "select" and not (isinstance(parent, Op) and parent.name == "select"):
            side = self.decided(child.args[0])
            if side is not None:
                return self.same(child.args[1 if side else 2], parent)
        if isinstance(child, Const) and isinstance(parent, Const):
            return child == parent or self.differ(child, parent)
        if isinstance(child, Const) and exact_literal(parent, self.link.parent.model.sizes) == child:
            return True  # what IEEE arithmetic gives without rounding
        if isinstance(child, Load) and isinstance(parent, Load):
            return self.read(child, parent)
        if isinstance(child, Cast) and isinstance(parent, Cast):
            return self.same(child.arg, parent.arg)
        if isinstance(child, Op) and isinstance(parent, Op):
            return self.operator(child, parent)
        return self.differ(child, self.moved(parent))

    def operator(self, child: Op, parent: Op) -> bool:
        if child.type is DType.BOOL and child.name != "select" and self.same_condition(child, parent):
            return True
        if child.name != parent.name or len(child.args) != len(parent.args):
            return self.differ(child, self.moved(parent))
        if child.name == "select":
            cond = child.args[0]
            return (
                self.same(cond, parent.args[0])
                and self.under(cond, True).same(child.args[1], parent.args[1])
                and self.under(cond, False).same(child.args[2], parent.args[2])
            )
        return all(self.same(a, b) for a, b in zip(child.args, parent.args, strict=True))

    def same_condition(self, child: Op, parent: Op) -> bool:
        """Quasi-affine conditions that hold for the same instances."""
        other = self.moved(parent)
        if child == other:
            return True
        frame = self.link.child.frame
        (a, exact_a), (b, exact_b) = frame.cond(child), frame.cond(other)
        if not (exact_a and exact_b):
            return False
        domain = self.domain()
        return bool(a.intersect(domain).is_equal(b.intersect(domain)))

    def decided(self, cond: Expr) -> bool | None:
        """Whether a quasi-affine condition is the same for every instance, and which."""
        frame, domain = self.link.child.frame, self.domain()
        yes, exact = frame.cond(cond)
        if not exact:
            return None
        if domain.is_subset(yes):
            return True
        return False if domain.intersect(yes).is_empty() else None

    def read(self, child: Load, parent: Load) -> bool:
        place = self.places.get(parent.buffer)
        if place is None or place.buffer != child.buffer or child.type is not parent.type:
            return self.differ(child, parent)
        if place.indices is None and len(child.indices) == len(parent.indices):
            return all(self.same(a, b) for a, b in zip(child.indices, parent.indices, strict=True))
        return self.elements(child.buffer, child.indices, self.element(parent.buffer, tuple(map(self.moved, parent.indices))))

    def elements(self, buffer: str, child: tuple[Expr, ...], parent: tuple[Expr, ...]) -> bool:
        if len(child) != len(parent):
            self.found.append(Difference(f"{self.link.child.name} accesses {buffer} with {len(child)} indices instead of {len(parent)}"))
            return False
        return all(self.index(a, b) for a, b in zip(child, parent, strict=True))

    def index(self, child: Expr, moved: Expr) -> bool:
        """Both over the child's variables: equal for every instance that evaluates them?"""
        if child == moved:
            return True
        frame = self.link.child.frame
        a, b = linear(child, frame.sizes), linear(moved, frame.sizes)
        if a is not None and a == b:
            return True
        if same_index(child, moved):
            return True
        f, g = frame.aff(child), frame.aff(moved)
        if f is None or g is None:
            return self.lookup(child, moved)
        apart = f.ne_set(g).intersect(self.domain())
        if apart.is_empty():
            return True
        return self.differ(child, moved, point_of(apart.lexmin().sample_point(), len(frame.names)))

    def lookup(self, child: Expr, moved: Expr) -> bool:
        """Indices with reads inside: the same trees with equal quasi-affine parts."""
        if isinstance(child, Load) and isinstance(moved, Load) and child.buffer == moved.buffer:
            return self.elements(child.buffer, child.indices, moved.indices)
        if isinstance(child, Cast) and isinstance(moved, Cast) and child.type is moved.type:
            return self.lookup(child.arg, moved.arg)
        if isinstance(child, Op) and isinstance(moved, Op) and child.name == moved.name and child.type is moved.type:
            return all(self.lookup(a, b) if a.dtype is not DType.I64 else self.index(a, b) for a, b in zip(child.args, moved.args, strict=True))
        return child == moved or self.differ(child, moved)


def compare_statements(link: Link, places: Mapping[str, Place]) -> Difference | None:
    """Whether the child's store is the parent's at every linked instance: target element, reducer, value and data-dependent guards.

    ``places`` says where every parent buffer lives in the child.
    """
    child, parent = link.child, link.parent
    by = dict(zip(parent.vars, link.iters, strict=True))
    unmoved = all(isinstance(e, Var) and e.name == v for v, e in by.items())
    if child.store.reduce != parent.store.reduce:
        how = {None: "="} | {r: f"{r}=" for r in ("+", "*", "max", "min", "or", "and")}
        return Difference(f"{child.name} stores with {how[child.store.reduce]} where the parent stores with {how[parent.store.reduce]}")
    plain = all(p.indices is None and p.buffer == name for name, p in places.items())
    compare = _Compare(link, places, by)
    if not (unmoved and plain and child.store == parent.store):
        target = places.get(parent.store.buffer)
        if target is None or target.buffer != child.store.buffer:
            return Difference(f"{child.name} writes {child.store.buffer} where the parent writes {parent.store.buffer}")
        moved = compare.element(parent.store.buffer, tuple(map(compare.moved, parent.store.indices)))
        if not compare.elements(child.store.buffer, child.store.indices, moved) or not compare.same(child.store.value, parent.store.value):
            return compare.found[0]
    return _guards(compare)


def _guards(compare: _Compare) -> Difference | None:
    """Guards outside of the quasi-affine fragment must be the same conditions in the same order; the others belong to the domain."""
    child, parent = compare.link.child, compare.link.parent
    mine = [g for g in child.guards if not child.frame.cond(g)[1]]
    theirs = [g for g in parent.guards if not parent.frame.cond(g)[1]]
    if len(mine) != len(theirs):
        return Difference(f"{child.name} stands under {len(mine)} data-dependent guards, the parent's store under {len(theirs)}")
    for a, b in zip(mine, theirs, strict=True):
        if not compare.same(a, b):
            return compare.found[0]
    return None
