"""A program as the goals of tuning see it: one entry for each store, with its loops, strides and modelled cost."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from steptp.analysis.features import AccessFeatures, LoopFeatures, StatementFeatures, features
from steptp.analysis.host import HostInfo
from steptp.ir.nodes import Path, Program, Store
from steptp.ir.walk import free_vars, loads
from steptp.policy.roofline import statement_cycles
from steptp.rewrite.base import ParamValue
from steptp.rewrite.context import Context
from steptp.rewrite.tools import tile_sizes

__all__ = ["TILE", "View", "Work"]

TILE = 64
"""Extent up to which a loop is taken for the inner part of a split."""


@dataclass(frozen=True, slots=True)
class Work:
    """A store: its loops outermost first, of which ``own`` from some depth on hold nothing else; ``parts``: (outer, inner) variables of split loops."""

    row: StatementFeatures
    path: Path
    loops: tuple[LoopFeatures, ...]
    own: tuple[LoopFeatures, ...]
    cycles: float
    share: float
    reduces: bool
    parts: frozenset[tuple[str, str]]

    @property
    def top(self) -> int:
        return self.path[0]

    @property
    def target(self) -> AccessFeatures:
        return self.row.accesses[-1]

    @property
    def reads(self) -> tuple[AccessFeatures, ...]:
        return self.row.accesses[:-1]

    @property
    def itemsize(self) -> int:
        return max((a.bytes // a.elements for a in self.row.accesses if a.elements), default=4)

    @property
    def parallel(self) -> tuple[LoopFeatures, ...]:
        """Own loops that index the target."""
        return tuple(ln for ln in self.own if stride(self.target, ln.var) != 0)

    @property
    def reductions(self) -> tuple[LoopFeatures, ...]:
        return tuple(ln for ln in self.own if stride(self.target, ln.var) == 0)

    def inner(self) -> frozenset[str]:
        """Variables of loops that are the inner part of a split."""
        return frozenset(b for _, b in self.parts)

    def outer(self) -> frozenset[str]:
        """Variables of the other loops of such splits."""
        return frozenset(a for a, _ in self.parts)


def stride(access: AccessFeatures, var: str) -> int | None:
    """Elements between neighbouring iterations of ``var``; ``None``: not linear."""
    return dict(access.strides).get(var, 0)


def _parts(store: Store, row: StatementFeatures, loops: tuple[LoopFeatures, ...]) -> frozenset[tuple[str, str]]:
    """Pairs of loops that index one dimension together, the outer one by steps of the inner one's extent, as ``i0*T+i1``."""
    found: set[tuple[str, str]] = set()
    for buffer, indices in [(store.buffer, store.indices), *((e.buffer, e.indices) for e in loads(store.value))]:
        steps = [dict(a.strides) for a in row.accesses if a.buffer == buffer]
        for together in map(free_vars, indices):
            mine = [ln for ln in loops if ln.var in together]
            for b in mine:
                for a in mine:
                    if a is not b and b.extent <= TILE and any((s.get(b.var) or 0) and s.get(a.var) == b.extent * (s.get(b.var) or 0) for s in steps):
                        found.add((a.var, b.var))
    return frozenset(found)


class View:
    """One state. ``choice`` picks among register tiles, best first."""

    def __init__(self, program: Program, host: HostInfo, threads: int, choice: int = 0) -> None:
        self.program, self.host, self.threads, self.choice = program, host, threads, choice
        self.ctx = Context.of(program)
        self.found = features(program)

    @cached_property
    def works(self) -> tuple[Work, ...]:
        """Stores in program order; resets are left out."""
        priced = [(st, c) for st, c in statement_cycles(self.program, self.host, self.threads) if not st.is_reset]
        total = sum(c for _, c in priced) or 1.0
        out = []
        for st, cycles in priced:
            loops = tuple(sorted((ln for ln in self.found.loops if st.path[: len(ln.path)] == ln.path), key=lambda ln: len(ln.path)))
            chain = set(self.ctx.chain(loops[-1].path)) if loops else set()
            own = tuple(ln for ln in loops if ln.path in chain and len(self.ctx.stores_under(ln.path)) == 1)
            store = dict(self.ctx.stores)[st.path]
            out.append(Work(st, st.path, loops, own, cycles, cycles / total, store.reduce is not None, _parts(store, st, loops)))
        return tuple(out)

    def factor(self, size: int) -> ParamValue:
        """A tile size of that value that the program has already, by name; else the number."""
        return next((name for name in tile_sizes(self.program) if self.ctx.env[name] == size), size)
