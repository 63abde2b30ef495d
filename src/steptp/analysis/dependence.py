"""Exact memory dependences between statement instances, at real sizes.

Two instances depend on each other when both touch one element, at least one writes it, and one runs before the other.
Each :class:`Dependence` holds the pairs carried at one loop (or at none), as one isl map. Cheap tests on the linear
index forms (equal outer iterations, intervals, gcd) exclude most levels before isl sees them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property

import islpy as isl

from steptp.analysis.affine import DIM, Linear, sample
from steptp.analysis.intervals import Interval
from steptp.analysis.model import Access, LoopRef, Model, Statement, common_loops
from steptp.errors import LeirError
from steptp.ir.nodes import Path, Program
from steptp.ir.sizes import eval_index

__all__ = ["Dependence", "dependences", "carried_by", "may_carry", "is_parallel", "KINDS"]

KINDS = ("flow", "anti", "output")


@dataclass(frozen=True)
class Dependence:
    """Instances of ``src`` that must run before instances of ``dst``.

    ``kinds``: flow (write then read), anti (read then write), output (write then write); several when the accesses
    coincide, as in an accumulation. ``loop`` is the loop that carries the pairs in ``relation`` (outer loops equal, this one
    later), ``None`` when all common loops are equal. ``reduction``: both ends accumulate with one reducer, so another order
    only reassociates. ``exact`` is unset when look-ups or data-dependent conditions made the relation too large.
    """

    src: Statement
    dst: Statement
    buffer: str
    kinds: tuple[str, ...]
    loop: LoopRef | None
    relation: isl.Map = field(repr=False, compare=False)
    reduction: bool
    exact: bool
    ends: tuple[Access, Access] = field(repr=False, compare=False)

    @property
    def carrier(self) -> Path | None:
        """Path in the program of the carrying loop, ``None`` when no loop (or one of a reset's own) carries it."""
        return self.loop.origin if self.loop else None

    @property
    def level(self) -> int | None:
        """Position of the carrying loop among the loops of ``src``, ``None`` when loop-independent."""
        return None if self.loop is None else next(k for k, loop in enumerate(self.src.loops) if loop.path == self.loop.path)

    @cached_property
    def sample(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """The lexicographically smallest pair of instances."""
        pair = sample(self.relation)
        assert pair is not None
        return pair

    def explain(self, pair: tuple[tuple[int, ...], tuple[int, ...]] | None = None) -> str:
        """A sentence with one pair of instances (``pair``, else :attr:`sample`)."""
        first, second = pair or self.sample
        kind = self.kinds[0]
        did, does = {"flow": ("writes", "reads"), "anti": ("reads", "overwrites"), "output": ("writes", "overwrites")}[kind]
        if self.reduction:
            did = does = "accumulates into"
        element = _element(self.ends[0], first) or _element(self.ends[1], second)
        where = f" (carried by loop {self.loop.var})" if self.loop else ""
        return f"{self.src.instance(first)} {did} {self.buffer}{element}, which {self.dst.instance(second)} {does} later{where}"


def _element(access: Access, point: tuple[int, ...]) -> str:
    st = access.statement
    env = {**st.frame.sizes, **dict(zip(st.vars, point, strict=True))}
    try:
        return "[" + ",".join(str(eval_index(i, env)) for i in access.indices) + "]"
    except LeirError:
        return ""


def dependences(program: Program) -> tuple[Dependence, ...]:
    """All dependences of the materialised program, in serial order of their sources then sinks; cached on the program."""
    cached = program._cache.get("dependences")
    if isinstance(cached, tuple):
        return cached
    model = Model.of(program)
    out: list[Dependence] = []
    for name, group in _touching(model).items():
        for a in group:
            for b in group:
                if a.store.buffer == name or b.store.buffer == name:
                    out.extend(_pair(model, a, b, name))
    out.sort(key=lambda d: (d.src.id, d.dst.id))
    program._cache["dependences"] = tuple(out)
    return tuple(out)


def _pair(model: Model, a: Statement, b: Statement, name: str) -> Iterator[Dependence]:
    common = common_loops(a, b)
    private = model.private_depth(a, name)
    levels: list[int | None] = [k for k in range(private, common) if a.intervals[a.loops[k].var][1] > 0]
    if a.path < b.path:
        levels.append(None)
    if not levels:
        return
    for ends, kinds in _groups(a, b, name).items():
        src, dst = ends
        possible = [k for k in levels if _possible(src, dst, common, k)]
        if not possible:
            continue
        base = src.map.apply_range(dst.map.reverse())
        reduction = _is_reduction(a, b, src, dst)
        done = 0
        for k in possible:
            upto = common if k is None else k
            while done < upto:
                base = base.equate(DIM.in_, done, DIM.out, done)
                done += 1
            relation = base if k is None else base.order_lt(DIM.in_, k, DIM.out, k)
            if not relation.is_empty():
                yield Dependence(a, b, name, kinds, None if k is None else a.loops[k], relation, reduction, src.must and dst.must, ends)


def _groups(a: Statement, b: Statement, name: str) -> dict[tuple[Access, Access], tuple[str, ...]]:
    """Pairs of accesses with at least one write; pairs with the same indices share one entry with several kinds."""
    merged: dict[tuple[object, ...], tuple[tuple[Access, Access], list[str]]] = {}
    for x in a.accesses:
        for y in b.accesses:
            if x.buffer != name or y.buffer != name or not (x.is_write or y.is_write):
                continue
            kind = "output" if x.is_write and y.is_write else "flow" if x.is_write else "anti"
            key = (x.indices, x.conditions, x.load is None, y.indices, y.conditions, y.load is None)
            kinds = merged.setdefault(key, ((x, y), []))[1]
            if kind not in kinds:
                kinds.append(kind)
    return {ends: tuple(k for k in KINDS if k in kinds) for ends, kinds in merged.values()}


def _possible(src: Access, dst: Access, common: int, level: int | None) -> bool:
    """Whether the linear indices can be equal with outer common loops equal and the one at ``level`` later in ``dst``."""
    a, b = src.statement, dst.statement
    same = {loop.var for loop in a.loops[: common if level is None else level]}
    later = None if level is None else a.loops[level].var
    return not any(
        f is not None and g is not None and _never_equal(f, g, a.intervals, b.intervals, same, later) for f, g in zip(src.forms, dst.forms, strict=True)
    )


def _never_equal(f: Linear, g: Linear, left: Mapping[str, Interval], right: Mapping[str, Interval], same: set[str], later: str | None) -> bool:
    low = high = f[1] - g[1]
    divisor = 0
    second = dict(g[0])
    terms: list[tuple[int, Interval]] = []
    for var, c in f[0]:
        if var in same:
            terms.append((c - second.pop(var, 0), left[var]))
        elif var == later:
            other = second.pop(var, 0)
            terms += [(c - other, left[var]), (-other, (1, left[var][1]))]
        else:
            terms.append((c, left[var]))
    for var, c in second.items():
        if var == later:
            terms += [(-c, left[var]), (-c, (1, left[var][1]))]
        else:
            terms.append((-c, right[var]))
    for c, (start, end) in terms:
        if c:
            divisor = math.gcd(divisor, c)
            low += min(c * start, c * end)
            high += max(c * start, c * end)
    return not low <= 0 <= high or (divisor > 1 and (f[1] - g[1]) % divisor != 0)


def may_carry(program: Program) -> dict[Path, str]:
    """Materialised path of each loop that may carry a dependence → ``reduction`` or ``dependence``; needs no isl.

    Only the cheap tests are asked, so a loop that carries nothing may be listed; a loop not listed carries nothing.
    """
    model = Model.of(program)
    out: dict[Path, str] = {}
    for name, group in _touching(model).items():
        for a in group:
            for b in group:
                if a.store.buffer != name and b.store.buffer != name:
                    continue
                common = common_loops(a, b)
                levels = [k for k in range(model.private_depth(a, name), common) if out.get(a.loops[k].path) != "dependence"]
                if not levels:
                    continue
                for (src, dst), _ in _groups(a, b, name).items():
                    how = "reduction" if _is_reduction(a, b, src, dst) else "dependence"
                    for k in levels:
                        if a.intervals[a.loops[k].var][1] > 0 and _possible(src, dst, common, k):
                            path = a.loops[k].path
                            out[path] = how if out.get(path) != "dependence" else "dependence"
    return out


def _is_reduction(a: Statement, b: Statement, src: Access, dst: Access) -> bool:
    return src.load is None and dst.load is None and a.store.reduce is not None and a.store.reduce == b.store.reduce


def _touching(model: Model) -> dict[str, list[Statement]]:
    """Buffer → the statements that access it, for buffers that some statement writes."""
    out: dict[str, list[Statement]] = {}
    written = {st.store.buffer for st in model.statements if not st.never_runs}
    for st in model.statements:
        if not st.never_runs:
            for name in dict.fromkeys(a.buffer for a in st.accesses if a.buffer in written):
                out.setdefault(name, []).append(st)
    return out


def carried_by(program: Program, loop_path: Path, kinds: tuple[str, ...] = KINDS) -> tuple[Dependence, ...]:
    """Dependences carried at the loop at ``loop_path`` (a path of the program)."""
    return tuple(d for d in dependences(program) if d.carrier == loop_path and any(k in kinds for k in d.kinds))


def is_parallel(program: Program, loop_path: Path) -> tuple[bool, Dependence | None]:
    """Whether the loop at ``loop_path`` carries no dependence, and if not, one that it carries (a reduction only if there is no other)."""
    found = sorted(carried_by(program, loop_path), key=lambda d: d.reduction)
    return (False, found[0]) if found else (True, None)
