"""Claims about nests that move under other loops: where stores stand, how often they run, what the outputs are made of."""

from __future__ import annotations

from steptp.ir.index import ix
from steptp.ir.nodes import If, Load, Loop, Op, Path, Program, Size, Store
from steptp.ir.printer import print_expr
from steptp.ir.sizes import eval_index
from steptp.ir.types import DType
from steptp.ir.walk import free_vars, get
from steptp.reason.patterns import Claim
from steptp.reason.rederive.context import CheckContext, Rederivation, loop_at
from steptp.reason.rederive.copies import _new_buffers, _under
from steptp.reason.rederive.figures import _below, _declared
from steptp.reason.rederive.order import _inside
from steptp.reason.rederive.structure import _conditions, _walk
from steptp.reason.rederive.symbolic import run

__all__ = ["MOVES"]


def _target(c: Claim, ctx: CheckContext) -> Loop | str:
    """The loop that the site moves something under."""
    loop = loop_at(ctx.parent, c.place("at"))
    if loop is None or loop.var != c["loop"]:
        return f"there is no loop {c['loop']} at {c['at']}"
    return loop if ctx.params.get("at", c["at"]) == c["at"] else f"{c['at']} is not the place of this step"


def _writers(program: Program, buffer: str) -> list[tuple[Path, Store, tuple[Loop | If, ...]]]:
    return [(p, s, around) for p, s, around in _walk(program) if isinstance(s, Store) and s.buffer == buffer]


def _stands_for(c: Claim, ctx: CheckContext) -> bool:
    """Whether the claim's buffer is what the site's nest writes, or a new temporary of the child."""
    return c["buffer"] in _under(ctx.parent, ctx.path)[1] or c["buffer"] in _new_buffers(ctx)


def _nest_moved(c: Claim, ctx: CheckContext) -> str | None:
    loop = _target(c, ctx)
    if isinstance(loop, str):
        return loop
    source, place = c.place("source"), c.place("at")
    if source != ctx.path or place[: len(source)] == source:
        return f"{c['source']} is not the site"
    if c["buffer"] not in _under(ctx.parent, source)[1]:
        return f"nothing at {c['source']} writes {c['buffer']}"
    before = sum(p[: len(source)] == source for p, _, _ in _writers(ctx.parent, c["buffer"]))
    names = {c["buffer"]} | _new_buffers(ctx)
    after = [around for name in names for _, _, around in _writers(ctx.child, name)]
    inside = sum(any(isinstance(p, Loop) and p.var == loop.var for p in around) for around in after)
    left = sum(1 for p, _, around in _writers(ctx.parent, c["buffer"]) if any(isinstance(o, Loop) and o is loop for o in around))
    return None if before == 1 and inside >= 1 + left else f"no store of {c['buffer']} stands under {c['loop']} in the child"


def _reads_under(c: Claim, ctx: CheckContext) -> str | None:
    loop = _target(c, ctx)
    if isinstance(loop, str):
        return loop
    place = c.place("at")
    found: list[Path] = []
    for path, stmt, _ in _walk(ctx.parent):
        exprs = [*stmt.indices, stmt.value] if isinstance(stmt, Store) else [stmt.extent] if isinstance(stmt, Loop) else [stmt.cond]
        found += [path for x in exprs for e in _below(x) if isinstance(e, Load) and e.buffer == c["buffer"]]
    if c["buffer"] not in _under(ctx.parent, ctx.path)[1]:
        return f"the site does not write {c['buffer']}"
    outside = [p for p in found if len(p) <= len(place) or p[: len(place)] != place]
    return None if len(found) == c.number("count") and not outside else f"{len(found)} reads, {len(outside)} of them elsewhere"


def _region_computed(c: Claim, ctx: CheckContext) -> str | None:
    if not _stands_for(c, ctx):
        return f"{c['buffer']} is not what this step computes"
    counts = set()
    for _, store, around in _writers(ctx.child, c["buffer"]):
        loops = [p for p in around if isinstance(p, Loop)]
        at = next((n for n, p in enumerate(loops) if p.var == c["loop"]), None)
        if at is not None:
            counts.add(_product(ctx.child, [p for p in loops[at + 1 :] if any(p.var in free_vars(i) for i in store.indices)]))
    return None if c.number("elements") in counts else f"elements in an iteration: {sorted(counts)}"


def _product(program: Program, loops: list[Loop]) -> int:
    total = 1
    for loop in loops:
        total *= max(eval_index(loop.extent, program.size_env), 0)
    return total


def _inputs_kept(c: Claim, ctx: CheckContext) -> str | None:
    first, last, named = c.place("first"), c.place("last"), list(c.names("buffers"))
    if first != ctx.path or first[:-1] != last[: len(first) - 1] or named != sorted(set(named)):
        return "not the places of this step"
    read = sorted(_under(ctx.parent, first)[0] - _under(ctx.parent, first)[1])
    if read != named:
        return f"the nest reads {read}"
    depth = len(first) - 1
    for path, stmt, _ in _walk(ctx.parent):
        if isinstance(stmt, Store) and stmt.buffer in named and path[:depth] == first[:depth] and first[depth] < path[depth] <= last[depth]:
            return f"{stmt.buffer} is written at {'.'.join(map(str, path))}"
    return None


def _bounds_guard(c: Claim, ctx: CheckContext) -> str | None:
    if not _stands_for(c, ctx):
        return f"{c['buffer']} is not what this step computes"
    before = [p for path, _, around in _all_writers(ctx.parent) if path[: len(ctx.path)] == ctx.path for p in around if isinstance(p, If)]
    after = [p for _, _, around in _writers(ctx.child, c["buffer"]) for p in around if isinstance(p, If)]
    held = _conditions(ctx.child.with_(body=tuple(after))) - _conditions(ctx.parent.with_(body=tuple(before)))
    return None if c["cond"] in held else f"no new guard `{c['cond']}` stands around {c['buffer']}"


def _runs(c: Claim, ctx: CheckContext) -> str | None:
    if not _stands_for(c, ctx):
        return f"{c['buffer']} is not what this step computes"
    before = {_product(ctx.parent, [p for p in a if isinstance(p, Loop)]) for p, _, a in _all_writers(ctx.parent) if p[: len(ctx.path)] == ctx.path}
    after = {_product(ctx.child, [p for p in a if isinstance(p, Loop)]) for _, _, a in _writers(ctx.child, c["buffer"])}
    return None if c.number("before") in before and c.number("after") in after else f"from {sorted(before)} to {sorted(after)}"


def _all_writers(program: Program) -> list[tuple[Path, Store, tuple[Loop | If, ...]]]:
    return [(p, s, around) for p, s, around in _walk(program) if isinstance(s, Store)]


def _same_operations(c: Claim, ctx: CheckContext) -> str | None:
    """The last value of every element, as a hash of the operations that made it, in order."""
    named = list(c.names("buffers"))
    if named != [b.name for b in ctx.parent.outputs if b in _declared(ctx.child)]:
        return "the outputs are others"
    if not ctx.tiny:
        return "no tiny sizes to try it at"
    for parent, child in ctx.tiny:
        a, b = run(parent), run(child)
        for name in named:
            if {e: h[-1] for e, h in a.of(name).items() if h} != {e: h[-1] for e, h in b.of(name).items() if h}:
                return f"{name} is computed differently"
    return None


def _final_in_iteration(c: Claim, ctx: CheckContext) -> str | None:
    place = c.place("at")
    loop = loop_at(ctx.parent, place)
    if loop is None or loop.var != c["loop"]:
        return f"there is no loop {c['loop']} at {c['at']}"
    read = _under(ctx.parent, ctx.path)[0]
    if c["buffer"] not in read or place[: len(ctx.path) - 1] != ctx.path[:-1] or place[: len(ctx.path)] == ctx.path:
        return f"the site reads no {c['buffer']} of a nest beside it"
    around = [p.var for n in range(1, len(place) + 1) if isinstance(p := loop_at(ctx.parent, place[:n]), Loop)]
    shared = sum(loop_at(ctx.parent, place[:n]) is not None for n in range(1, len(ctx.path)))
    for program, _ in ctx.tiny:
        turns: dict[object, tuple[int, ...]] = {}
        for event in ctx.events(program):
            if event.write[0] != c["buffer"] or event.is_reset:
                continue
            if event.path[: len(place)] != place:
                return f"{c['buffer']} is also written elsewhere"
            turn = tuple(event.loops[v] for v in around)
            key = (event.write, turn[:shared])  # a run of the nest
            if turns.setdefault(key, turn) != turn:
                return f"{c['buffer']}{list(event.write[1])} is written in iterations {turns[key]} and {turn}"
    return None if ctx.tiny else "no tiny sizes to try it at"


def _pointwise(c: Claim, ctx: CheckContext) -> str | None:
    made = [(s, around) for p, s, around in _all_writers(ctx.parent) if p[: len(ctx.path)] == ctx.path]
    if len(made) != 1 or made[0][0].buffer != c["buffer"] or made[0][0].reduce is not None:
        return f"the site does not store {c['buffer']} alone, by plain assignments"
    store, around = made[0]
    indexing = {v for i in store.indices for v in free_vars(i)}
    own = {p.var for p in around[len(ctx.path) - 1 :] if isinstance(p, Loop)}
    if not own <= indexing or not any(isinstance(e, Load) and e.buffer == c["accumulator"] for e in _below(store.value)):
        return f"it is no pointwise function of {c['accumulator']}"
    return None if any(s.reduce is not None for _, s, _ in _writers(ctx.parent, c["accumulator"])) else f"{c['accumulator']} is not accumulated"


def _initialised_first(c: Claim, ctx: CheckContext) -> str | None:
    loop = loop_at(ctx.parent, c.place("at"))
    if c.place("at") != ctx.path or loop is None or loop.var != c["loop"] or ctx.params.get("buffer") != c["buffer"]:
        return "not the loop and buffer of the site"
    around = [p.var for n in range(1, len(ctx.path) + 1) if (p := loop_at(ctx.parent, ctx.path[:n])) is not None]
    for program, _ in ctx.tiny:
        ready: set[object] = set()
        for event in ctx.events(program):
            if event.path[: len(ctx.path)] != ctx.path or any(v not in event.loops for v in around):
                continue
            turn = tuple(event.loops[v] for v in around)
            store = get(program, event.path)
            used = [e for e in event.reads if e[0] == c["buffer"] and not event.is_reset]
            if any((turn, e) not in ready for e in used):
                return f"{used[0][0]}{list(used[0][1])} is used before it is set"
            if event.write[0] == c["buffer"] and (event.is_reset or (isinstance(store, Store) and store.reduce is None)):
                ready.add((turn, event.write))
    return None if ctx.tiny else "no tiny sizes to try it at"


def _held_in(c: Claim, ctx: CheckContext) -> str | None:
    loop = loop_at(ctx.parent, c.place("at"))
    if c.place("at") != ctx.path or loop is None or loop.var != c["loop"] or ctx.params.get("buffer") != c["buffer"]:
        return "not the loop and buffer of the site"
    counts = [_touches(x, ctx.path, name) for x, name in ((ctx.parent, c["buffer"]), (ctx.child, c["buffer"]), (ctx.child, c["into"]))]
    if c["into"] not in _new_buffers(ctx) or counts[1] != 1:
        return f"{c['buffer']} is still used there"
    return None if counts[0] == c.number("count") == counts[2] - 1 else f"{counts[0]} accesses before, {counts[2] - 1} after"


def _touches(program: Program, place: Path, name: str) -> int:
    """Reads and writes of a buffer below a path, an accumulation counting once."""
    count = 0
    for path, stmt, _ in _walk(program):
        if path[: len(place)] == place and len(path) > len(place):
            exprs = [*stmt.indices, stmt.value] if isinstance(stmt, Store) else [stmt.extent] if isinstance(stmt, Loop) else [stmt.cond]
            count += sum(isinstance(e, Load) and e.buffer == name for x in exprs for e in _below(x))
            count += isinstance(stmt, Store) and stmt.buffer == name
    return count


def _skewed(c: Claim, ctx: CheckContext) -> str | None:
    outer = loop_at(ctx.parent, ctx.path)
    inner, now = loop_at(ctx.parent, (*ctx.path, 0)), loop_at(ctx.child, (*ctx.path, 0))
    if outer is None or inner is None or now is None or (outer.var, inner.var) != (c["around"], c["loop"]) or ctx.params.get("factor") != c["factor"]:
        return "not the pair of the site"
    rows, columns = (eval_index(p.extent, ctx.parent.size_env) for p in (outer, inner))
    if columns != c.number("extent") or eval_index(now.extent, ctx.child.size_env) != columns + c.number("factor") * (rows - 1):
        return f"{c['loop']} runs {columns} iterations"
    guard = now.body[0] if len(now.body) == 1 else None
    return None if isinstance(guard, If) and print_expr(guard.cond) == c["cond"] else f"no guard `{c['cond']}` stands under it"


def _wavefront(c: Claim, ctx: CheckContext) -> str | None:
    """In the child's runs: of two touches of one element, one of them a write, the later one has the larger value of the skewed loop."""
    outer, inner = loop_at(ctx.child, ctx.path), loop_at(ctx.child, (*ctx.path, 0))
    if outer is None or inner is None or (outer.var, inner.var) != (c["around"], c["along"]):
        return "not the pair of the site"
    around = [p.var for n in range(1, len(ctx.path)) if (p := loop_at(ctx.child, ctx.path[:n])) is not None]
    tiny = _with_short_rows(ctx)
    for _, program in tiny:
        private = _inside(program, ctx.path)
        seen: dict[object, list[tuple[int, int, bool]]] = {}
        for event in ctx.events(program):
            if event.path[: len(ctx.path)] != ctx.path or inner.var not in event.loops:
                continue
            here = (event.loops[outer.var], event.loops[inner.var])
            for element, writes in (*((e, False) for e in event.reads), (event.write, True)):
                before = seen.setdefault((tuple(event.loops[v] for v in around), element), [])
                if element[0] in private:
                    continue
                if any((i, s) != here and (writes or w) and not s < here[1] for i, s, w in before):
                    return f"{element[0]}{list(element[1])} is touched twice with {inner.var}={here[1]} or earlier"
                before.append((*here, writes))
    return None if tiny else "no tiny sizes to try it at"


_SHORT = 8  # the largest factor of a skew


def _with_short_rows(ctx: CheckContext) -> tuple[tuple[Program, Program], ...]:
    """Tiny sizes at which an inner loop of few iterations keeps its extent: a row that ends in the next one's start allows a skew by its length only."""
    inner = loop_at(ctx.parent, (*ctx.path, 0))
    env = {s.name: s.value for s in ctx.parent.sizes if s.expr is None}
    if inner is None or free_vars(inner.extent) or eval_index(inner.extent, ctx.parent.size_env) > _SHORT:
        return ctx.tiny
    fixed = tuple(Op("==", (e, ix(env[e.name])), DType.BOOL) for e in _below(inner.extent) if isinstance(e, Size) and e.name in env)
    if not fixed:
        return ctx.tiny
    parent, child = (p.with_(constraints=(*p.constraints, *fixed)) for p in (ctx.parent, ctx.child))
    return ctx.bound(parent, child, preferred=1200)


MOVES: dict[str, Rederivation] = {
    "nest_moved": _nest_moved,
    "reads_under": _reads_under,
    "region_computed": _region_computed,
    "inputs_kept": _inputs_kept,
    "bounds_guard": _bounds_guard,
    "runs": _runs,
    "same_operations": _same_operations,
    "final_in_iteration": _final_in_iteration,
    "pointwise": _pointwise,
    "skewed": _skewed,
    "wavefront": _wavefront,
    "initialised_first": _initialised_first,
    "held_in": _held_in,
}
