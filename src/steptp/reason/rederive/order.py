"""Claims about dependences and the order of accumulation, from runs at tiny sizes."""

from __future__ import annotations

from collections import defaultdict

from steptp.ir.nodes import Loop, Path, Program, Store
from steptp.ir.resets import reset_plan
from steptp.ir.walk import get, loads, stmt_exprs, visit
from steptp.reason.patterns import Claim
from steptp.reason.rederive.context import CheckContext, Rederivation, loop_at
from steptp.reason.rederive.figures import _declared
from steptp.reason.rederive.nests import roomy
from steptp.reason.rederive.symbolic import Element, Event, Run, run

__all__ = ["ORDER"]


def _carries(c: Claim, ctx: CheckContext) -> str | None:
    place = c.place("at")
    loop = loop_at(ctx.parent, place)
    if loop is None or loop.var != c["loop"] or not ctx.near(place):
        return f"there is no loop {c['loop']} at {c['at']}"
    if not ctx.tiny:
        return "no tiny sizes to try it at"
    for program, _ in ctx.tiny:
        if (clash := _conflict(program, place, ctx)) is not None:
            return clash
    return None


def _conflict(program: Program, place: Path, ctx: CheckContext) -> str | None:
    loop = loop_at(program, place)
    if loop is None:
        raise KeyError(place)
    outer = [p.var for n in range(1, len(place)) if isinstance(p := get(program, place[:n]), Loop)]
    private = _inside(program, place)
    before: dict[Path, Path] = {}
    written: dict[tuple[tuple[int, ...], Element], int] = {}
    touched: dict[tuple[tuple[int, ...], Element], set[int]] = defaultdict(set)
    for event in ctx.events(program):
        if event.path[: len(place)] != place or not _within(program, event, place, before):
            continue
        entry = tuple(event.loops.get(v, -1) for v in outer)
        turn = event.loops[loop.var]
        for element in (*event.reads, event.write):
            if element[0] not in private:
                touched[(entry, element)].add(turn)
        if event.write[0] not in private:
            key = (entry, event.write)
            if written.setdefault(key, turn) != turn:
                return f"iterations {written[key]} and {turn} of {loop.var} both write {event.write[0]}{list(event.write[1])}"
    for key, turn in written.items():
        if touched[key] - {turn}:
            element = key[1]
            return f"iteration {turn} of {loop.var} writes {element} which another one touches"
    return None


def _inside(program: Program, place: Path) -> set[str]:
    """Temporaries declared by the loop at ``place`` or below."""
    return {b.name for met in visit(program) if isinstance(met.stmt, Loop) and met.path[: len(place)] == place for b in met.stmt.tmps}


def _within(program: Program, event: Event, place: Path, before: dict[Path, Path]) -> bool:
    """Whether the event happens during an iteration of the loop; a reset may stand before it."""
    if not event.is_reset:
        return True
    if event.path not in before:
        before[event.path] = reset_plan(program, event.path).before
    point = before[event.path]
    return len(point) > len(place) and point[: len(place)] == place


def _histories_equal(a: Run, b: Run, buffers: tuple[str, ...]) -> str | None:
    for name in buffers:
        if a.of(name) != b.of(name):
            return f"the values written to {name} differ"
    return None


def _no_order_reversed(c: Claim, ctx: CheckContext) -> str | None:
    named = c.names("buffers")
    if list(named) != sorted(set(named)):
        return "buffers are named in order, each once"
    known = {b.name for b in _declared(ctx.parent)}
    if not set(named) <= known:
        return f"no buffers {sorted(set(named) - known)}"
    beside = (*ctx.path[:-1], ctx.path[-1] + 1) if ctx.path else ()  # fusion takes in the right neighbour
    writes = {met.stmt.buffer for met in visit(ctx.parent) if isinstance(met.stmt, Store) and (ctx.near(met.path) or met.path[: len(beside)] == beside)}
    if not set(named) <= writes:
        return f"the site does not write {sorted(set(named) - writes)}"
    if not ctx.runs:
        return ctx.no_runs
    for _, _, loose_a, loose_b in ctx.runs:
        if (problem := _histories_equal(loose_a, loose_b, named)) is not None:
            return problem
    return None


def _reduces(ctx: CheckContext, buffer: str) -> set[str]:
    beside = (*ctx.path[:-1], ctx.path[-1] + 1) if ctx.path else ()
    found = (met.stmt for met in visit(ctx.parent) if ctx.near(met.path) or met.path[: len(beside)] == beside)
    return {s.reduce for s in found if isinstance(s, Store) and s.buffer == buffer and s.reduce is not None}


def _final(run: Run, buffer: str) -> dict[object, object]:
    return {e: h[-1] for e, h in run.of(buffer).items() if h}


def _order(c: Claim, ctx: CheckContext) -> str | None:
    """The same terms at tiny sizes; their order there, and in the nests behind the accumulation at sizes where its loops have room."""
    buffer = c["buffer"]
    if c["reduce"] not in _reduces(ctx, buffer):
        return f"no accumulation ({c['reduce']}) into {buffer} at the site"
    if not ctx.runs:
        return ctx.no_runs
    changed = False
    for strict_a, strict_b, loose_a, loose_b in ctx.runs:
        if _final(loose_a, buffer) != _final(loose_b, buffer):
            return f"{buffer} does not accumulate the same terms"
        changed |= _final(strict_a, buffer) != _final(strict_b, buffer)
    changed = changed or any(_reordered(a, b, buffer) for a, b in roomy(ctx, buffer))
    if c.kind == "order_kept":
        return "the order differs" if changed else None
    return None if changed else "the order is the same"


def _reordered(a: Program, b: Program, buffer: str) -> bool:
    """Whether both accumulate the same terms in different orders."""
    if _final(run(a), buffer) == _final(run(b), buffer):
        return False
    return _final(run(a, ordered=False), buffer) == _final(run(b, ordered=False), buffer)


def _order_free(c: Claim, ctx: CheckContext) -> str | None:
    declared = next((b for b in _declared(ctx.parent) if b.name == c["buffer"]), None)
    if declared is None or declared.dtype.value != c["dtype"] or c["reduce"] not in _reduces(ctx, c["buffer"]):
        return f"{c['buffer']} does not accumulate by {c['reduce']} in {c['dtype']}"
    return None if c["reduce"] in ("max", "min", "or", "and") or not declared.dtype.is_float else "floating-point sums depend on the order"


def _independent(c: Claim, ctx: CheckContext) -> str | None:
    first, second = c.place("first"), c.place("second")
    if first != ctx.path or second != (*first[:-1], first[-1] + 1):
        return "not the statements of this step"
    (all_a, out_a), (all_b, out_b) = _touched(ctx.parent, first), _touched(ctx.parent, second)
    shared = sorted((out_a & all_b) | (out_b & all_a))
    if c["shared"] != (", ".join(shared) or "none"):
        return f"at stake: {shared}"
    if shared and not ctx.tiny:
        return "no tiny sizes to try it at"
    for program, _ in ctx.tiny if shared else ():
        if (clash := _meeting(program, first, second, ctx)) is not None:
            return clash
    return None


def _touched(program: Program, place: Path) -> tuple[set[str], set[str]]:
    """Buffers that the statement at ``place`` touches, and those it writes."""
    get(program, place)
    reads: set[str] = set()
    writes: set[str] = set()
    for met in visit(program):
        if met.path[: len(place)] == place:
            if isinstance(met.stmt, Store):
                writes.add(met.stmt.buffer)
            reads |= {e.buffer for x in stmt_exprs(met.stmt) for e in loads(x)}
    return reads | writes, writes


def _meeting(program: Program, first: Path, second: Path, ctx: CheckContext) -> str | None:
    """An element that both statements touch and one writes, within one iteration of the loops around them."""
    around = [p.var for n in range(1, len(first)) if isinstance(p := get(program, first[:n]), Loop)]
    seen: dict[tuple[tuple[int, ...], Element], set[tuple[bool, bool]]] = defaultdict(set)
    for event in ctx.events(program):
        side = next((k for k, place in enumerate((first, second)) if event.path[: len(place)] == place), None)
        if side is None:
            continue
        entry = tuple(event.loops.get(v, -1) for v in around)
        for element in event.reads:
            seen[(entry, element)].add((bool(side), False))
        seen[(entry, event.write)].add((bool(side), True))
    for (_, element), marks in seen.items():
        if {s for s, _ in marks} == {True, False} and any(w for _, w in marks):
            return f"both touch {element[0]}{list(element[1])}"
    return None


ORDER: dict[str, Rederivation] = {
    "carries_no_dependence": _carries,
    "no_order_reversed": _no_order_reversed,
    "order_kept": _order,
    "order_changed": _order,
    "order_free": _order_free,
    "independent": _independent,
}
