"""Whether a step keeps the order of dependent accesses, also where loops that run once today run more often."""

from __future__ import annotations

from collections.abc import Iterator

from steptp.analysis.mapping import check_order
from steptp.errors import LeirError
from steptp.ir import rebind
from steptp.ir.nodes import Program
from steptp.rewrite.base import InstanceMap, NotApplicable

__all__ = ["grown", "order_problem"]


def grown(*programs: Program) -> Iterator[tuple[Program, ...]]:
    """The programs with sizes below 2 set to 2, when there are any and the headers allow it: a loop that runs once hides what it carries."""
    small = {s.name: 2 for s in programs[0].sizes if s.expr is None and s.value < 2}
    if not small:
        return
    try:
        yield tuple(rebind(p, small) for p in programs)
    except LeirError:
        return  # the header forbids these sizes


def order_problem(parent: Program, child: Program, instances: InstanceMap, doing: str) -> NotApplicable | None:
    """Why the step may not be taken, or ``None``. ``doing`` names it: ``fusing``. The programs have the same sizes."""
    entries = [(e.child, e.parent, dict(e.iters)) for e in instances.entries]
    order = check_order(parent, child, entries)
    if isinstance(order, str):
        return NotApplicable("undecided", f"whether {doing} keeps every dependence cannot be decided: {order}")
    if order.broken:
        return NotApplicable("dependent", f"{doing} would reverse a dependence: {order.broken[0].explain()}")
    if order.reassociated:
        return NotApplicable("reassociates", f"{doing} would change an order of accumulation: {order.reassociated[0].explain()}")
    for before, after in grown(parent, child):
        order = check_order(before, after, entries)
        if isinstance(order, str) or order.broken or order.reassociated:
            return NotApplicable("size-dependent", f"{doing} is legal only while a loop runs at most once")
    return None
