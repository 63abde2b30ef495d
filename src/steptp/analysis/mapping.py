"""Two programs whose statement instances correspond: does the second keep the first one's dependences?

A *link* says that a statement of the child runs instances of a statement of the parent. Resets of accumulations are
statements too; their links follow from those of their accumulations. Nothing here looks at expressions.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property

import islpy as isl

from steptp.analysis.affine import map_between, sample
from steptp.analysis.dependence import Dependence, dependences
from steptp.analysis.model import Model, Statement, common_loops
from steptp.analysis.order import Order, Violation, later_or_equal
from steptp.ir.nodes import Const, Expr, Path, Program, Var, identity_of
from steptp.ir.sizes import eval_index
from steptp.ir.walk import free_vars

__all__ = ["Link", "Links", "link_statements", "check_order", "order_of_links"]

Entry = tuple[Path, Path, Mapping[str, Expr]]
"""Child store path, parent store path, parent loop variable → expression over the child's loop variables."""


@dataclass(frozen=True)
class Link:
    """``child`` runs the instances ``iters`` of ``parent``; expressions in the order of the parent's loop variables."""

    child: Statement
    parent: Statement
    iters: tuple[Expr, ...]

    @cached_property
    def same_position(self) -> bool:
        """Both statements have equally many loops and the k-th variables correspond."""
        return len(self.iters) == len(self.child.vars) and all(isinstance(e, Var) and e.name == v for e, v in zip(self.iters, self.child.vars, strict=True))

    @cached_property
    def functions(self) -> tuple[isl.PwAff | None, ...]:
        """Each iteration expression as a function of the child's variables; ``None`` outside of the quasi-affine fragment."""
        return tuple(self.child.frame.aff(e) for e in self.iters)

    @cached_property
    def relation(self) -> isl.Map:
        """Child instances (of its domain) → parent instances."""
        return map_between(self.child.frame, self.functions, [None] * len(self.functions))[0].intersect_domain(self.child.domain)

    def parent_point(self, point: tuple[int, ...]) -> tuple[int, ...]:
        """The parent's instance of one child instance."""
        env = {**self.child.frame.sizes, **dict(zip(self.child.vars, point, strict=True))}
        return tuple(eval_index(e, env) for e in self.iters)


@dataclass(frozen=True)
class Links:
    """All links, or a sentence in ``problem`` saying why they could not be made."""

    links: tuple[Link, ...] = ()
    problem: str = ""
    by_parent: dict[int, list[Link]] = field(default_factory=dict)


def link_statements(parent: Model, child: Model, entries: Iterable[Entry]) -> Links:
    """Links of the stores named in ``entries`` and of their resets."""
    out: list[Link] = []
    for child_path, parent_path, iters in entries:
        try:
            c, p = child.at(child_path), parent.at(parent_path)
        except KeyError:
            return Links(problem=f"the instance map names a store that does not exist: child {child_path}, parent {parent_path}")
        reset = parent._by_origin.get((parent_path, True))
        if p.is_accumulation and not c.is_accumulation and reset is not None and _is_identity(p, c):
            p, reset = reset, None  # an explicit initial store stands for the reset
        missing = [v for v in p.vars if v not in iters]
        if missing:
            return Links(problem=f"the instance map gives no value for loop {missing[0]} around {p.name}")
        out.append(Link(c, p, tuple(iters[v] for v in p.vars)))
        own = child._by_origin.get((child_path, True))
        if own is None:
            continue
        if reset is None:
            return Links(problem=f"{c.name} resets {c.store.buffer} in the child, but {p.name} does not in the parent")
        values = tuple(iters[v] for v in reset.vars if v in iters)
        if len(values) != len(reset.vars) or any(free_vars(e) - set(own.vars) for e in values):
            return Links(problem=f"the reset of {c.store.buffer} in the child does not follow from the instance map")
        out.append(Link(own, reset, values))
    for link in out:
        unknown = {v for e in link.iters for v in free_vars(e)} - set(link.child.vars)
        if unknown:
            return Links(problem=f"the instance map of {link.child.name} uses {sorted(unknown)[0]}, which is not a loop around it")
        if any(f is None for f in link.functions):
            return Links(problem=f"the instance map of {link.child.name} is not quasi-affine")
    by_parent: dict[int, list[Link]] = {}
    for link in out:
        by_parent.setdefault(link.parent.id, []).append(link)
    return Links(tuple(out), "", by_parent)


def _is_identity(accumulation: Statement, init: Statement) -> bool:
    reduce, value = accumulation.store.reduce, init.store.value
    return reduce is not None and isinstance(value, Const) and value == identity_of(reduce, value.type)


def order_of_links(parent: Program, links: Links) -> Order:
    """Check every dependence of the parent under the child's order of execution."""
    broken: list[Violation] = []
    soft: list[Violation] = []
    checked = 0
    for d in dependences(parent):
        checked += 1
        for first in links.by_parent.get(d.src.id, ()):
            for second in links.by_parent.get(d.dst.id, ()):
                if not unchanged(d, first, second):
                    bad = _wrong(d, first, second)
                    if bad is not None:
                        (soft if d.reduction else broken).append(bad)
    return Order(tuple(broken), tuple(soft), checked)


def unchanged(d: Dependence, first: Link, second: Link) -> bool:
    """The two statements stand to each other in the child as in the parent, loop for loop."""
    if not (first.same_position and second.same_position):
        return False
    a, b = first.child, second.child
    if d.src.id == d.dst.id:
        return a is b
    return common_loops(a, b) == common_loops(d.src, d.dst) and (a.path < b.path) == (d.src.path < d.dst.path)


def _wrong(d: Dependence, first: Link, second: Link) -> Violation | None:
    pairs = first.relation.apply_range(d.relation).apply_range(second.relation.reverse())
    a, b = first.child, second.child
    wrong = later_or_equal(pairs, (a.frame, a.time), (b.frame, b.time))
    if wrong is None:
        return None
    pair = sample(wrong)
    assert pair is not None
    return Violation(d, (first.parent_point(pair[0]), second.parent_point(pair[1])))


def check_order(parent: Program, child: Program, entries: Iterable[Entry]) -> Order | str:
    """Whether the child keeps the parent's dependences, given which child stores run which parent instances.

    A string says why the question has no answer (an instance map outside of the fragment). That the entries cover every
    instance exactly once, and that expressions agree, is not checked here.
    """
    links = link_statements(Model.of(parent), Model.of(child), entries)
    return links.problem or order_of_links(parent, links)
