"""A program as the goals of tuning see it: one entry for each store, with its loops, strides and modelled cost."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from functools import cached_property

from steptp.analysis.features import AccessFeatures, LoopFeatures, StatementFeatures, features
from steptp.analysis.host import HostInfo
from steptp.ir.nodes import Path, Program, Store
from steptp.ir.walk import free_vars, loads
from steptp.policy.roofline import statement_cycles
from steptp.rewrite import engine
from steptp.rewrite.base import Applied, ParamValue, Site
from steptp.rewrite.context import Context
from steptp.rewrite.tools import tile_sizes

__all__ = ["TILE", "View", "Work", "after"]

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
        return self.row.itemsize

    @property
    def parallel(self) -> tuple[LoopFeatures, ...]:
        """Own loops that index the target."""
        return tuple(ln for ln in self.own if self.target.stride(ln.var) != 0)

    @property
    def reductions(self) -> tuple[LoopFeatures, ...]:
        return tuple(ln for ln in self.own if self.target.stride(ln.var) == 0)

    def inner(self) -> frozenset[str]:
        """Variables of loops that are the inner part of a split."""
        return frozenset(b for _, b in self.parts)

    def outer(self) -> frozenset[str]:
        """Variables of the other loops of such splits."""
        return frozenset(a for a, _ in self.parts)


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


def after(program: Program, site: Site) -> Program | None:
    """The program that a step leads to; ``None`` where it does not apply."""
    outcome = engine.apply(program, site)
    return outcome.program if isinstance(outcome, Applied) else None


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
        stores = dict(self.ctx.stores)
        out = []
        for st, cycles in priced:
            loops = self.found.around(st)
            chain = set(self.ctx.chain(loops[-1].path)) if loops else set()
            own = tuple(ln for ln in loops if ln.path in chain and len(self.ctx.stores_under(ln.path)) == 1)
            store = stores[st.path]
            out.append(Work(st, st.path, loops, own, cycles, cycles / total, store.reduce is not None, _parts(store, st, loops)))
        return tuple(out)

    @cached_property
    def feeds(self) -> dict[int, frozenset[int]]:
        """Each top-level nest, and those that write what it reads."""
        writers: dict[str, set[int]] = defaultdict(set)
        reads: dict[int, set[str]] = defaultdict(set)
        for w in self.works:
            writers[w.target.buffer].add(w.top)
            reads[w.top] |= {r.buffer for r in w.reads}
        return {top: frozenset(t for name in names for t in writers.get(name, ())) for top, names in reads.items()}

    def factor(self, size: int) -> ParamValue:
        """A tile size of that value that the program has already, by name; else the number."""
        return next((name for name in tile_sizes(self.program) if self.ctx.env[name] == size), size)
