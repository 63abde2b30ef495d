"""Temporaries that live elsewhere in the child: does every read still get the value that its parent instance gets?

Moving a declaration into a loop makes the temporary private to an iteration (values that cross iterations would be lost);
moving it out shares one array between iterations (values may be overwritten before they are read).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import islpy as isl

from steptp.analysis.affine import CTX, DIM, sample
from steptp.analysis.definedness import copies, schedule_map
from steptp.analysis.dependence import Dependence, dependences
from steptp.analysis.equal import Place
from steptp.analysis.mapping import Link, Links
from steptp.analysis.model import Model, Statement
from steptp.analysis.order import later_or_equal
from steptp.ir.nodes import Program, Var

__all__ = ["StorageProblem", "storage_problem", "last_writes"]


@dataclass(frozen=True)
class StorageProblem:
    """``lost``: a value surely does not reach its reader. Otherwise the question is open."""

    message: str
    lost: bool


def storage_problem(parent: Program, child: Program, links: Links, places: Mapping[str, Place]) -> StorageProblem | None:
    """The first temporary whose move loses (or may lose) a value, if any. Index maps are expected to be injective."""
    before, after = Model.of(parent), Model.of(child)
    for name, place in places.items():
        if before.declarations[name].role != "tmp":
            continue
        touching = [ln for ln in links.links if any(a.buffer == name for a in ln.parent.accesses)]
        if all(_same_privacy(before, after, ln, name, place.buffer) for ln in touching):
            continue
        problem = _into_loop(before, after, links, name, place.buffer) or _out_of_loop(parent, child, links, place.buffer)
        if problem is not None:
            return problem
    return None


def _same_privacy(before: Model, after: Model, link: Link, name: str, place: str) -> bool:
    """The first loops of both statements, those the temporary is private to, correspond one to one."""
    k = before.private_depth(link.parent, name)
    if k != after.private_depth(link.child, place):
        return False
    return all(isinstance(e, Var) and e.name == v for e, v in zip(link.iters[:k], link.child.vars[:k], strict=True))


def _into_loop(before: Model, after: Model, links: Links, name: str, place: str) -> StorageProblem | None:
    """Values that pass from one iteration of the child's declaring loop to another."""
    for d in dependences(before.program):
        if d.buffer != name or "flow" not in d.kinds:
            continue
        for first in links.by_parent.get(d.src.id, ()):
            for second in links.by_parent.get(d.dst.id, ()):
                k = after.private_depth(first.child, place)
                if k and _crossing(d.relation, first, second, k) is not None:
                    precise = d.relation.intersect(last_writes(before, d.src, d.dst, name))
                    pair = _crossing(precise, first, second, k)
                    if pair is not None:
                        lost = d.exact
                        text = d.explain((first.parent_point(pair[0]), second.parent_point(pair[1])))
                        return StorageProblem(f"{place} is private to one iteration in the child, but {text}", lost)
    return None


def _crossing(relation: isl.Map, first: Link, second: Link, private: int) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
    pairs = first.relation.apply_range(relation).apply_range(second.relation.reverse())
    same = pairs
    for k in range(private):
        same = same.equate(DIM.in_, k, DIM.out, k)
    return sample(pairs.subtract(same))


def last_writes(model: Model, src: Statement, dst: Statement, name: str) -> isl.Map:
    """Instances of ``src`` → instances of ``dst`` that read what they wrote, nothing else having written it since (or possibly so).

    Source of the method: array dataflow analysis (Feautrier 1991) as implemented by isl.
    """
    writers = [s for s in model.statements if s.store.buffer == name and not s.never_runs]
    length = max(len(s.time) for s in (*writers, dst))
    schedule = isl.UnionMap.from_map(schedule_map(dst, length).intersect_domain(dst.domain).set_tuple_name(DIM.in_, "R"))
    out = isl.Map.empty(isl.Space.alloc(CTX, 0, len(src.vars), len(dst.vars)))
    must = isl.UnionMap.empty(isl.Space.params_alloc(CTX, 0))
    may = isl.UnionMap.empty(isl.Space.params_alloc(CTX, 0))
    for w in writers:
        tuple_name = f"W{w.id}"
        relation = isl.UnionMap.from_map(copies(model, w.write).set_tuple_name(DIM.in_, tuple_name).set_tuple_name(DIM.out, "E"))
        must, may = (must.union(relation), may) if w.write.must else (must, may.union(relation))
        schedule = schedule.union(isl.UnionMap.from_map(schedule_map(w, length).intersect_domain(w.domain).set_tuple_name(DIM.in_, tuple_name)))
    for access in dst.reads:
        if access.buffer != name:
            continue
        sink = isl.UnionMap.from_map(copies(model, access).set_tuple_name(DIM.in_, "R").set_tuple_name(DIM.out, "E"))
        info = isl.UnionAccessInfo.from_sink(sink).set_must_source(must).set_may_source(may).set_schedule_map(schedule)
        found = info.compute_flow().get_may_dependence()
        parts: list[isl.Map] = []
        found.foreach_map(parts.append)
        for part in parts:
            if part.get_tuple_name(DIM.in_) == f"W{src.id}":
                out = out.union(part.reset_tuple_id(DIM.in_).reset_tuple_id(DIM.out))
    return out


def _out_of_loop(parent: Program, child: Program, links: Links, place: str) -> StorageProblem | None:
    """Conflicts on the child's storage that the parent runs in the other order."""
    by_child: dict[int, list[Link]] = {}
    for link in links.links:
        by_child.setdefault(link.child.id, []).append(link)
    for d in dependences(child):
        if d.buffer != place or d.reduction:
            continue
        for first in by_child.get(d.src.id, ()):
            for second in by_child.get(d.dst.id, ()):
                bad = _reversed(d, first, second)
                if bad is not None:
                    return StorageProblem(f"{place} is shared by iterations in the child that ran in another order in the parent: {bad}", False)
    return None


def _reversed(d: Dependence, first: Link, second: Link) -> str | None:
    pairs = first.relation.reverse().apply_range(d.relation).apply_range(second.relation)
    a, b = first.parent, second.parent
    wrong = later_or_equal(pairs, (a.frame, a.time), (b.frame, b.time))
    return None if wrong is None else d.explain()
