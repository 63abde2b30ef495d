"""Instance maps written as pairs of paths, and tier 2 on them."""

from __future__ import annotations

from steptp.ir import DType, Loop, Program
from steptp.ir.parser import parse, parse_expr
from steptp.ir.walk import enclosing, stores
from steptp.rewrite.base import BufferMap, Exactness, InstanceEntry, InstanceMap
from steptp.verify.tier2 import tier2
from steptp.verify.verdict import TierReport

__all__ = ["Pair", "check", "instance_entries"]

Pair = tuple[tuple[int, ...], tuple[int, ...], str]


def instance_entries(parent: Program, child: Program, pairs: list[Pair]) -> tuple[InstanceEntry, ...]:
    """Pairs of paths with ``i=i0*8+i1 k=…``; loops not named keep their names."""
    out = []
    for child_path, parent_path, text in pairs:
        inside = [p.var for p in enclosing(child, child_path) if isinstance(p, Loop)]
        named = dict(item.split("=", 1) for item in text.split())
        around = [p.var for p in enclosing(parent, parent_path) if isinstance(p, Loop)]
        iters = tuple((v, parse_expr(named.get(v, v), child, inside, DType.I64)) for v in around)
        out.append(InstanceEntry(child_path, parent_path, iters))
    return tuple(out)


def check(parent_text: str, child_text: str, *pairs: Pair, exactness: Exactness = Exactness.BITWISE, buffers: tuple[BufferMap, ...] = ()) -> TierReport:
    parent, child = parse(parent_text), parse(child_text)
    if not pairs:  # stores correspond in order, loops by name
        pairs = tuple((c.path, p.path, "") for c, p in zip(stores(child), stores(parent), strict=True))
    return tier2(parent, child, InstanceMap(instance_entries(parent, child, list(pairs)), buffers), exactness)
