"""Does a set of links run every instance of a parent statement exactly once?"""

from __future__ import annotations

from collections.abc import Sequence

import islpy as isl

from steptp.analysis.affine import point_of, sample
from steptp.analysis.equal import Difference
from steptp.analysis.mapping import Link
from steptp.analysis.model import Statement
from steptp.ir.nodes import Var
from steptp.ir.walk import substitute

__all__ = ["coverage_problem", "is_plain_permutation"]


def is_plain_permutation(link: Link) -> bool:
    """Cheap sufficient test: the parent's loops in some order, with equal constant extents and the same guards."""
    child, parent = link.child, link.parent
    if child.rectangular is None or parent.rectangular is None or len(child.vars) != len(parent.vars):
        return False
    names = [e.name for e in link.iters if isinstance(e, Var)]
    if len(names) != len(link.iters) or set(names) != set(child.vars):
        return False
    extents = dict(zip(child.vars, child.rectangular, strict=True))
    if any(extents[n] != e for n, e in zip(names, parent.rectangular, strict=True)):
        return False
    if not child.guards and not parent.guards:
        return True
    by = dict(zip(parent.vars, link.iters, strict=True))
    return set(child.guards) == {substitute(g, by) for g in parent.guards}


def coverage_problem(parent: Statement, links: Sequence[Link]) -> Difference | None:
    """Why the links do not run each instance of ``parent`` exactly once (for a reset: at least once), with the smallest instance.

    ``point`` of the result is an instance of the parent. Instances are those of the domains; data-dependent guards are compared elsewhere.
    """
    if parent.never_runs and not links:
        return None
    if len(links) == 1 and is_plain_permutation(links[0]):
        return None
    done = isl.Set.empty(parent.domain.get_space())
    for link in links:
        if link.child.never_runs:
            continue
        relation = link.relation
        if not parent.is_reset and not relation.is_injective():
            point = _doubled(link)
            return Difference(f"the child runs {parent.instance(point)} more than once (in {link.child.name})", point)
        image = relation.range()
        if not image.is_subset(parent.domain):
            point = _first(image.subtract(parent.domain), parent)
            return Difference(f"the child runs {parent.instance(point)}, which the parent does not run (in {link.child.name})", point, not parent.is_reset)
        if not parent.is_reset and not image.is_disjoint(done):
            point = _first(image.intersect(done), parent)
            return Difference(f"the child runs {parent.instance(point)} more than once (in {link.child.name} and another store)", point)
        done = done.union(image)
    if parent.domain.is_subset(done):
        return None
    point = _first(parent.domain.subtract(done), parent)
    return Difference(f"the child never runs {parent.instance(point)} of the parent", point)


def _first(points: isl.Set, st: Statement) -> tuple[int, ...]:
    return point_of(points.lexmin().sample_point(), len(st.vars))


def _doubled(link: Link) -> tuple[int, ...]:
    """A parent instance that two different child instances run."""
    pairs = link.relation.apply_range(link.relation.reverse())
    pair = sample(pairs.subtract(isl.Map.identity(pairs.get_space())))
    assert pair is not None
    return link.parent_point(pair[0])
