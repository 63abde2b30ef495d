"""Claims about loops bound to GPU axes: limits, what a kernel launches, that blocks do not wait for one another."""

from __future__ import annotations

import math
from collections import defaultdict

from steptp.ir.nodes import Loop, Path, Program
from steptp.ir.printer import print_expr
from steptp.ir.sizes import eval_index
from steptp.ir.types import LoopKind
from steptp.ir.walk import get
from steptp.reason.patterns import Claim
from steptp.reason.rederive.context import CheckContext, Rederivation, loop_at
from steptp.reason.rederive.storage import coordinates
from steptp.reason.rederive.structure import _walk
from steptp.reason.rederive.symbolic import Element

__all__ = ["AXES"]

_LIMITS = {"bx": 2147483647, "by": 65535, "bz": 65535, "tx": 1024, "ty": 1024, "tz": 64}
_BLOCKS = frozenset(k for k in LoopKind if k.is_block)


def _axis_fits(c: Claim, ctx: CheckContext) -> str | None:
    loop = loop_at(ctx.child, c.place("at"))
    if c.place("at") != ctx.path or loop is None or loop.var != c["loop"] or loop.kind.value != c["axis"]:
        return f"the site is no {c['axis']} loop {c['loop']}"
    want = (eval_index(loop.extent, ctx.child.size_env), _LIMITS[c["axis"]])
    return None if (c.number("extent"), c.number("limit")) == want and want[0] <= want[1] else f"{want[0]} iterations, at most {want[1]}"


def _kernel(program: Program, place: Path) -> Path:
    """The outermost bound loop at or around ``place``."""
    for n in range(1, len(place) + 1):
        found = loop_at(program, place[:n])
        if found is not None and found.kind.is_bound:
            return place[:n]
    raise ValueError("no kernel is there")


def _launch(c: Claim, ctx: CheckContext) -> str | None:
    if c.place("at") != _kernel(ctx.child, ctx.path):
        return "not the kernel of this step"
    extents: dict[LoopKind, int] = {}
    for path, stmt, _ in _walk(ctx.child):
        if path[: len(c.place("at"))] == c.place("at") and isinstance(stmt, Loop) and stmt.kind.is_bound:
            extents[stmt.kind] = max(extents.get(stmt.kind, 1), eval_index(stmt.extent, ctx.child.size_env))
    want = (math.prod(n for k, n in extents.items() if k.is_block), math.prod(n for k, n in extents.items() if k.is_thread))
    return None if (c.number("blocks"), c.number("threads")) == want and want[1] <= 1024 else f"{want[0]} blocks of {want[1]} threads"


def _limit_stated(c: Claim, ctx: CheckContext) -> str | None:
    old = {print_expr(x) for x in ctx.parent.constraints}
    return None if c["constraint"] in {print_expr(x) for x in ctx.child.constraints} - old else "the header does not newly state that"


def _blocks_independent(c: Claim, ctx: CheckContext) -> str | None:
    """At tiny sizes no two blocks of one launch touch an element that one of them writes, but for what each has for itself."""
    place = c.place("at")
    if place != _kernel(ctx.child, ctx.path):
        return "not the kernel of this step"
    if not ctx.tiny:
        return "no tiny sizes to try it at"
    for _, program in ctx.tiny:
        own: dict[str, Path] = {b.name: p for p, s, _ in _walk(program) if isinstance(s, Loop) and p[: len(place)] == place for b in s.tmps}
        launch = [s.var for n in range(1, len(place)) if isinstance(s := get(program, place[:n]), Loop)]
        lives = {n: [s.var for k in range(1, len(p) + 1) if isinstance(s := get(program, p[:k]), Loop)] for n, p in own.items()}
        met: dict[tuple[tuple[int, ...], Element], set[tuple[tuple[str, int], ...]]] = defaultdict(set)
        written: set[tuple[tuple[int, ...], Element]] = set()
        for event in ctx.events(program):
            if event.path[: len(place)] != place:
                continue
            where = coordinates(program, event, _BLOCKS)
            for element in (*event.reads, event.write):
                key = (tuple(event.loops.get(v, -1) for v in lives.get(element[0], launch)), element)
                met[key].add(where)
                if element is event.write:
                    written.add(key)
        if (bad := next((e for key in written if len(met[key]) > 1 for e in (key[1],)), None)) is not None:
            return f"two blocks touch {bad[0]}{list(bad[1])}"
    return None


AXES: dict[str, Rederivation] = {
    "axis_fits": _axis_fits,
    "launch": _launch,
    "limit_stated": _limit_stated,
    "blocks_independent": _blocks_independent,
}
