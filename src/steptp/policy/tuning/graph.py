"""Goals that concern several nests: nothing computed twice or for nobody, producers beside their consumers, and no more passes over memory than needed."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from steptp.analysis.features import TRANSCENDENTAL, WEIGHTS, AccessFeatures, LoopFeatures, features
from steptp.ir.nodes import Expr, Op, Store, Var
from steptp.ir.walk import free_vars, loads, map_expr, subexprs
from steptp.policy.roofline import predicted_cycles
from steptp.policy.tuning.tiles import contractions, moved_to, split_to, tile_of
from steptp.policy.tuning.view import View, Work, after
from steptp.rewrite import engine
from steptp.rewrite.base import Site
from steptp.rewrite.exprs import expr_at, parse_place

__all__ = ["fused", "inlined", "named", "pulled", "tidied", "tiled_consumers"]

_COSTLY = 4  # weight from which an operator is worth a temporary
_MORE = 1.01  # growth of the work that still counts as none
_WASTED = 1.06  # growth that the saved passes over memory pay for


def tidied(view: View) -> Iterator[tuple[Site, str]]:
    """Temporaries that nobody reads go; equal ones become one."""
    for site in engine.sites(view.program, ["dead_code_elimination"]):
        yield site, "nobody reads it"
    for site in engine.sites(view.program, ["common_subexpression_elimination"]):
        if "other" in dict(site.params):
            yield site, "both hold the same values"


def inlined(view: View) -> Iterator[tuple[Site, str]]:
    """Cheap pointwise producers are computed where they are read, as often as before or a little more."""
    works = {w.path: w for w in view.works}
    writers = {w.row.accesses[-1].buffer: w for w in view.works}
    seen = _computed(view)
    for site in engine.sites(view.program, ["compute_inline"]):
        name = str(site.param("buffer"))
        producer, consumer = writers.get(name), works.get(site.path)
        if producer is None or consumer is None or producer.reduces or consumer.row.instances > producer.row.instances:
            continue
        store = view.ctx.stmt(producer.path)
        if not isinstance(store, Store) or len(seen.get(_plain(store.value, _variables(view, producer.path)), ())) > 1:
            continue
        readers = sum(any(r.buffer == name for r in w.reads) for w in view.works)
        if (readers == 1 or not _costly(store.value)) and (added := after(view.program, site)) is not None:
            if features(added).flops <= _WASTED * view.found.flops + producer.row.flops:
                yield site, "it is cheap, and need not go through memory"


def _costly(expr: Expr) -> bool:
    return any(isinstance(e, Op) and WEIGHTS.get(e.name, 1) >= _COSTLY and any(loads(e)) for e in _values(expr))


def _values(expr: Expr) -> Iterator[Expr]:
    """Sub-expressions that are computed, without those of indices."""
    return (e for e in subexprs(expr) if e.dtype.is_float)


def named(view: View) -> Iterator[tuple[Site, str]]:
    """Costly expressions that several nests compute, or that an inner loop repeats, get a temporary each; equal temporaries become one later."""
    rows: list[tuple[Site, Op, tuple[str, ...]]] = []
    seen = _computed(view)
    for site in engine.sites(view.program, ["expression_splitting"], limit=2000):
        place = parse_place(site.param("at"))
        store = view.ctx.stmt(site.path)
        if site.param("into") != "tensor" or place is None or not isinstance(store, Store):
            continue
        expr = expr_at(store, place)
        if isinstance(expr, Op) and WEIGHTS.get(expr.name, 1) >= _COSTLY:
            rows.append((site, expr, _variables(view, site.path)))
    for site, expr, variables in rows:
        used = frozenset().union(*(free_vars(e) for e in loads(expr)))
        if variables and variables[-1] not in used and used:
            yield site, "it does not change along the inner loop"
        elif expr.name in TRANSCENDENTAL and len(seen[_plain(expr, variables)]) > 1:
            yield site, "several nests compute it"


def _computed(view: View) -> dict[Expr, set[int]]:
    """Costly expressions, and the top-level nests that compute them."""
    seen: dict[Expr, set[int]] = defaultdict(set)
    for path, _, _, expr in view.ctx.values:
        if isinstance(expr, Op) and expr.name in TRANSCENDENTAL:
            seen[_plain(expr, _variables(view, path))].add(path[0])
    return seen


def _variables(view: View, path: tuple[int, ...]) -> tuple[str, ...]:
    return tuple(loop.var for _, loop in view.ctx.enclosing_loops(path))


def _plain(expr: Expr, variables: tuple[str, ...]) -> Expr:
    """The expression with loop variables named by their depth."""
    names = {v: f"${n}" for n, v in enumerate(variables)}
    return map_expr(expr, lambda e: Var(names[e.name]) if isinstance(e, Var) and e.name in names else e)


def tiled_consumers(view: View) -> Iterator[tuple[Site, str]]:
    """The last nest of a chain with contractions is split like a register tile, so that its producers can be computed a tile at a time."""
    heavy = contractions(view)
    needed = {t for w in view.works for t in _producers(view, w)}
    for consumer in reversed(view.works):
        if consumer.top in needed:
            continue
        chain = _producers(view, consumer)
        inside = [w for w in heavy if w.top in chain]
        if not inside or len(consumer.own) != len(consumer.loops):
            continue
        tile = tile_of(view, consumer)
        if tile is not None:  # a contraction itself: its rows; its columns are its own affair
            yield from split_to(view, tile.across, tile.rows, "a tile of rows is computed from start to end")
            if tile.across.extent == tile.rows:
                outer = next((ln for ln in consumer.own if (ln.var, tile.across.var) in consumer.parts), None)
                yield from _outermost(view, consumer, outer)
        else:
            yield from _like(view, consumer, inside[0], chain)
        return


def _outermost(view: View, work: Work, outer: LoopFeatures | None) -> Iterator[tuple[Site, str]]:
    """Loops that the whole chain shares stand first: those left of the tile's rows stay, the loop over tiles follows them."""
    if outer is not None:
        at = work.own.index(outer)
        first = [ln for ln in work.own[:at] if ln in work.parallel and ln.var not in work.inner()]
        rest = [ln for ln in work.own if ln not in first and ln is not outer]
        yield from moved_to(view, work, [ln.var for ln in (*first, outer, *rest)], "tiles of rows stand outermost")


def _like(view: View, consumer: Work, heavy: Work, chain: frozenset[int]) -> Iterator[tuple[Site, str]]:
    """Split a pointwise consumer as the contraction's result is tiled: rows and columns, or rows only where rows are reduced in between."""
    tile = tile_of(view, heavy)
    if tile is None:
        return
    read = next((r for r in consumer.reads if r.buffer == heavy.target.buffer), None)
    source = read or consumer.target
    rows = _same(consumer, source, heavy, tile.across)
    columns = _same(consumer, source, heavy, tile.along)
    if rows is None or rows is columns:
        return
    products = contractions(view)
    reduced = any(w.reduces and w is not heavy and w.top in chain and w not in products for w in view.works)
    both = columns is not None and not reduced
    pair: list[LoopFeatures] = []
    for loop, size, why in ((columns if both else None, tile.columns, "columns of a tile"), (rows, tile.rows, "rows of a tile")):
        if loop is None:
            continue
        part = next((ln for ln in consumer.own if (loop.var, ln.var) in consumer.parts), loop if loop.extent == size else None)
        if part is None:
            yield from split_to(view, loop, size, f"{why} are computed from start to end")
            return
        pair.append(part)
    first = [ln for ln in consumer.own if ln not in pair]
    if both and columns is not None:
        needs = {
            ln.var
            for ln in first
            if any(
                r.stride(v.var) != 0 for r in heavy.reads if r.stride(tile.along.var) != 0 for v in heavy.parallel if _same(consumer, source, heavy, v) is ln
            )
        }
        needs -= {rows.var}
        first = [*(ln for ln in first if ln.var in needs), *(ln for ln in first if ln.var not in needs)]
    yield from moved_to(view, consumer, [ln.var for ln in (*first, *reversed(pair))], "tiles stand outside")


def _same(consumer: Work, source: AccessFeatures, heavy: Work, loop: LoopFeatures) -> LoopFeatures | None:
    """The consumer's loop, split or not, with the step that ``loop`` has in the contraction's result."""
    alike = [ln for ln in consumer.own if source.stride(ln.var) == heavy.target.stride(loop.var) and ln.extent == loop.extent]
    if alike:
        return alike[0]
    size = {ln.var: ln.extent for ln in consumer.own}
    steps = {b: source.stride(b) for _, b in consumer.parts}
    return next(
        (ln for ln in consumer.own for a, b in consumer.parts
         if a == ln.var and b in size and size[b] * ln.extent == loop.extent and steps[b] == heavy.target.stride(loop.var)), None,
    )  # fmt: skip


def _producers(view: View, consumer: Work) -> frozenset[int]:
    """Top-level nests before the consumer's from which it is computed."""
    found: set[int] = set()
    pending = {consumer.top}
    while pending:
        here = pending.pop()
        fresh = {t for t in view.feeds[here] if t < consumer.top} - found
        found |= fresh
        pending |= fresh
    return frozenset(found)


def pulled(view: View) -> Iterator[tuple[Site, str]]:
    """Producers move under the loops of their consumer, the last producer first, as deep as nothing is computed twice and tiles stay whole."""
    inner = {ln.path for w in view.works for ln in w.loops if ln.var in w.inner()}
    last = {path for path, _ in view.ctx.loops if len(view.ctx.loops_under(path)) == 1}
    found = [s for s in engine.sites(view.program, ["compute_at"], limit=2000) if s.param("storage") == "region" and len(s.path) == 1]
    for site in sorted(found, key=lambda s: (-s.path[0], -len(str(s.param("at"))))):
        target = tuple(map(int, str(site.param("at")).split(".")))
        if target in inner or target in last or any(target[:n] in inner for n in range(1, len(target))):
            continue
        made, before = after(view.program, site), sum(w.row.instances for w in view.works if w.top == site.path[0])
        if made is not None and features(made).instances - view.found.instances <= (_MORE - 1) * before:
            yield site, "what a few iterations need is computed just before them and stays in the cache"


def fused(view: View) -> Iterator[tuple[Site, str]]:
    """Neighbouring nests share their outer loops where this saves traffic."""
    now = predicted_cycles(view.program, view.host, view.threads)
    for name in ("operator_fusion", "epilogue_fusion"):
        for site in engine.sites(view.program, [name]):
            made = after(view.program, site) if len(site.path) == 1 else None
            if made is not None and predicted_cycles(made, view.host, view.threads) < 0.98 * now:
                yield site, "one pass over memory instead of two"
