"""A guess at the instance map of a pair that no strategy has made: which store of the child runs which instances of a parent's store.

Stores of one buffer are laid side by side; where the parent's tree has a loop variable as an index, the child's tree has an expression at the same
place, and that is what the variable becomes. Nothing here needs to be right: tier 2 proves a map or discards it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from steptp.ir.nodes import Cast, Const, Expr, Load, Loop, Op, Program, Store, Var
from steptp.ir.types import DType
from steptp.ir.walk import Visit, free_vars, stores, substitute
from steptp.rewrite.base import BufferMap, InstanceEntry, InstanceMap

__all__ = ["guess_instances"]


def guess_instances(parent: Program, child: Program) -> InstanceMap | None:
    """The likely instance map; ``None`` where no store of the child resembles one of the parent's."""
    moved: dict[str, BufferMap] = {}
    entries = _entries(parent, child, moved)
    if moved:  # once more, without indices of buffers whose layout has changed
        entries = _entries(parent, child, moved)
    return InstanceMap(tuple(entries), tuple(moved.values())) if entries else None


def _entries(parent: Program, child: Program, moved: dict[str, BufferMap]) -> list[InstanceEntry]:
    by_buffer: dict[str, list[Visit]] = {}
    for met in stores(parent):
        assert isinstance(met.stmt, Store)
        by_buffer.setdefault(met.stmt.buffer, []).append(met)
    private = {b.name for b in parent.tmps} & {b.name for b in child.tmps}
    out: list[InstanceEntry] = []
    for met in stores(child):
        assert isinstance(met.stmt, Store)
        found = [_Match.of(other, met, frozenset(moved)) for other in by_buffer.get(met.stmt.buffer, ())]
        if not found:
            continue
        best = max(found, key=lambda m: m.score)
        if met.stmt.buffer in private and met.stmt.buffer not in moved and (layout := best.layout()) is not None:
            moved[met.stmt.buffer] = layout
        out.append(InstanceEntry(met.path, best.parent.path, tuple(best.iters().items())))
    return out


@dataclass
class _Match:
    """A store of the parent beside one of the child. ``bound`` says what the parent's loop variables are over the child's."""

    parent: Visit
    child: Visit
    skip: frozenset[str]
    bound: dict[str, Expr] = field(default_factory=dict)
    score: int = 0

    @staticmethod
    def of(parent: Visit, child: Visit, skip: frozenset[str]) -> _Match:
        out = _Match(parent, child, skip)
        a, b = parent.stmt, child.stmt
        assert isinstance(a, Store)
        assert isinstance(b, Store)
        out.score += 4 * (a.reduce == b.reduce) + (a.carry == b.carry)
        out.trees(a.value, b.value)
        if a.buffer not in skip and len(a.indices) == len(b.indices):
            for x, y in zip(a.indices, b.indices, strict=True):
                out.index(x, y)
        return out

    def trees(self, a: Expr, b: Expr) -> None:
        if isinstance(a, Var):
            self.index(a, b)
        elif isinstance(a, Load) and isinstance(b, Load):
            if a.buffer == b.buffer and a.buffer not in self.skip and len(a.indices) == len(b.indices):
                self.score += 1
                for x, y in zip(a.indices, b.indices, strict=True):
                    self.index(x, y)
        elif isinstance(a, Op) and isinstance(b, Op) and a.name == b.name:
            self.score += 1
            for x, y in zip(a.args, b.args, strict=True):
                self.trees(x, y)
        elif isinstance(a, Cast) and isinstance(b, Cast):
            self.trees(a.arg, b.arg)
        elif isinstance(a, Const) and a == b:
            self.score += 1

    def index(self, a: Expr, b: Expr) -> None:
        if isinstance(a, Var):
            self.bound.setdefault(a.name, b)
        elif a == b:
            self.score += isinstance(a, Const)
            for name in free_vars(a):
                self.bound.setdefault(name, Var(name))
        elif isinstance(a, Op) and isinstance(b, Op) and a.name == b.name:
            for x, y in zip(a.args, b.args, strict=True):
                self.index(x, y)

    def iters(self) -> dict[str, Expr]:
        """Every loop variable around the parent's store; one that no index shows keeps its name, or is 0."""
        around = {p.var for p in self.child.parents if isinstance(p, Loop)}
        out: dict[str, Expr] = {}
        for loop in self.parent.parents:
            if isinstance(loop, Loop):
                found = self.bound.get(loop.var)
                known = found is not None and free_vars(found) <= around
                out[loop.var] = found if known and found is not None else Var(loop.var) if loop.var in around else Const(0, DType.I64)
        return out

    def layout(self) -> BufferMap | None:
        """Where an element of the parent's buffer is in the child's, if the values show another layout than the indices do."""
        a, b = self.parent.stmt, self.child.stmt
        assert isinstance(a, Store)
        assert isinstance(b, Store)
        values = _Match(self.parent, self.child, self.skip)
        values.trees(a.value, b.value)
        plain: Mapping[str, Expr] = {v: e for v, e in values.bound.items() if isinstance(e, Var)}
        places: dict[str, Expr] = {}
        for dim, index in enumerate(a.indices):
            if not isinstance(index, Var) or index.name not in plain:
                return None
            there = plain[index.name]
            assert isinstance(there, Var)
            places[there.name] = Var(f"d{dim}")
        if len(places) < len(a.indices) or any(not free_vars(i) <= places.keys() for i in b.indices):
            return None
        if len(a.indices) == len(b.indices) and all(plain[x.name] == y for x, y in zip(a.indices, b.indices, strict=True) if isinstance(x, Var)):
            return None
        return BufferMap(a.buffer, b.buffer, tuple(substitute(i, places) for i in b.indices))
