"""What else a step rests on, read off the two programs: new guards, dropped ones, grown buffers, operands that have to be finite."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from steptp.ir.nodes import Expr, If, Load, Loop, Op, Path, Program, Store
from steptp.ir.printer import print_expr
from steptp.ir.walk import free_vars
from steptp.reason.patterns import Claim
from steptp.reason.rederive.algebra import _text
from steptp.reason.rederive.context import CheckContext, Rederivation, loop_at
from steptp.reason.rederive.cuts import CUTS
from steptp.reason.rederive.figures import _below, _declared
from steptp.reason.rederive.linear import LINEAR, _scales, _site_store
from steptp.reason.rederive.moves import MOVES, _all_writers, _product, _writers
from steptp.reason.rederive.order import ORDER
from steptp.reason.rederive.signs import Signs
from steptp.reason.rederive.structure import _new_sizes, _walk

__all__ = ["unsaid_supports"]


def unsaid_supports(claims: Sequence[Claim], ctx: CheckContext, known: frozenset[str]) -> Iterator[str]:
    """What is due among the ``known`` kinds of the strategy and not said."""
    told = {kind: [c for c in claims if c.kind == kind] for kind in known}
    yield from _guards(told, ctx)
    yield from _shapes(told, ctx)
    yield from _counts(told, ctx)
    yield from _free_orders(claims, told, ctx)
    if ctx.strategy in ("contraction_reassociation", "batch_norm_folding", "linear_distribution"):
        yield from _operands(claims, ctx)


def _atoms(program: Program) -> set[str]:
    """Guards, conjunctions taken apart."""
    found: set[str] = set()
    pending = [s.cond for _, s, _ in _walk(program) if isinstance(s, If)]
    while pending:
        cond = pending.pop()
        if isinstance(cond, Op) and cond.name == "and":
            pending += cond.args
        else:
            found.add(print_expr(cond))
    return found


def _guards(told: dict[str, list[Claim]], ctx: CheckContext) -> Iterator[str]:
    """Each new guard of a nest that moves; each that goes with the tiles that are peeled or padded."""
    if "bounds_guard" in told:
        said = {c["cond"] for c in told["bounds_guard"]}
        names = {s.buffer for path, s, _ in _all_writers(ctx.parent) if path[: len(ctx.path)] == ctx.path} | _new(ctx)
        for cond in sorted(_atoms(ctx.child) - said):
            if any(_holds(MOVES["bounds_guard"], ctx, "bounds_guard", cond=cond, buffer=n) for n in sorted(names)):
                yield f"the guard `{cond}`"
    loop = loop_at(ctx.parent, ctx.path)
    for kind in ("guard_dropped", "guard_padded"):
        if loop is None or kind not in told:
            continue
        said = {c["cond"] for c in told[kind]}
        values = {"loop": loop.var, **{k: v for c in told[kind] for k, v in c.values.items() if k == "iterations"}}
        gone = (c for c in sorted(_atoms(ctx.parent) - said) if _holds(CUTS[kind], ctx, kind, cond=c, **values))
        yield from (f"the guard `{c}`, which goes" for c in gone)


def _holds(check: Rederivation, ctx: CheckContext, kind: str, **values: str) -> bool:
    return ctx.guarded(check, Claim(kind, values, "")) is None


def _new(ctx: CheckContext) -> set[str]:
    return {b.name for b in _declared(ctx.child)} - {b.name for b in _declared(ctx.parent)}


def _shapes(told: dict[str, list[Claim]], ctx: CheckContext) -> Iterator[str]:
    """Each buffer that gets a dimension, each new size, the tiles of a layout, what each new weight holds."""
    if "expanded" in told:
        before, after = ({b.name: len(b.shape) for b in _declared(p)} for p in (ctx.parent, ctx.child))
        grown = {n for n, rank in after.items() if rank > before.get(n, rank)}
        yield from (f"the new dimension of {n}" for n in sorted(grown - {c["name"] for c in told["expanded"]}))
    if "tile_size" in told:
        yield from (f"the size {n}" for n in sorted(_new_sizes(ctx).keys() - {c["name"] for c in told["tile_size"]}))
    if ctx.strategy == "set_storage_layout" and ctx.params.get("op") == "block" and not told.get("tile_contiguous"):
        yield "tile_contiguous"
    if ctx.strategy == "batch_norm_folding":
        named = {c["name"] for kind in ("named", "scale_folded") for c in told.get(kind, ())}
        made = {n for n in _new(ctx) if [s.reduce for _, s, _ in _writers(ctx.child, n)] == [None]}
        yield from (f"what {n} holds" for n in sorted(made - named))


def _counts(told: dict[str, list[Claim]], ctx: CheckContext) -> Iterator[str]:
    """How often a moved nest runs, where that changes; the cost of a sum, where all extents are fixed."""
    loops = [s.extent for p, s, _ in _walk(ctx.parent) if isinstance(s, Loop) and ctx.near(p)]
    if any(free_vars(e) for e in loops):
        return
    if told.get("contraction_cost") == []:
        yield "contraction_cost"
    if told.get("runs") == []:
        names = {s.buffer for path, s, _ in _all_writers(ctx.parent) if path[: len(ctx.path)] == ctx.path}
        moved = [w for n in sorted(names | _new(ctx)) for w in _writers(ctx.child, n)]
        before = {_product(ctx.parent, _loops(around)) for p, _, around in _all_writers(ctx.parent) if p[: len(ctx.path)] == ctx.path}
        counts = {_product(ctx.child, _loops(around)) for _, _, around in moved if not any(free_vars(p.extent) for p in _loops(around))}
        if len(before) == 1 and len(moved) == len(counts) == 1 and before != counts:
            yield "how often the nest runs"


def _loops(around: Sequence[Loop | If]) -> list[Loop]:
    return [p for p in around if isinstance(p, Loop)]


def _free_orders(claims: Sequence[Claim], told: dict[str, list[Claim]], ctx: CheckContext) -> Iterator[str]:
    """Where the order changes and that makes no difference, it is said."""
    if "order_free" not in told:
        return
    said = {c["buffer"] for c in told["order_free"]}
    types = {b.name: b.dtype.value for b in _declared(ctx.parent)}
    for c in claims:
        if c.kind in ("order_changed", "partial_results") and c["buffer"] not in said:
            values = {"buffer": c["buffer"], "reduce": c["reduce"], "dtype": types.get(c["buffer"], "")}
            if _holds(ORDER["order_free"], ctx, "order_free", **values):
                yield f"why the order of {c['buffer']} does not matter"


def _operands(claims: Sequence[Claim], ctx: CheckContext) -> Iterator[str]:
    """Operands of the sums that the distributive law is applied to are finite; a scale that may not be scales everything.

    What is made of inputs alone goes without saying where it is finite.
    """
    said = {(c["at"], c["text"]) for c in claims if c.kind in ("operand_finite", "scales_whole")}
    inputs = {b.name for b in ctx.parent.inputs}
    for path, expr in _distributed_over(ctx):
        at, text = ".".join(map(str, path)), _text(expr)
        read = {e.buffer for e in _below(expr) if isinstance(e, Load)}
        if (at, text) in said:
            continue
        if text in _maybe_zero(ctx) and path == ctx.path:
            yield f"the scale `{text}`"
        elif _holds(LINEAR["operand_finite"], ctx, "operand_finite", at=at, text=text):
            if not read <= inputs:
                yield f"the operand `{text}`"
        elif path == ctx.path and _holds(LINEAR["scales_whole"], ctx, "scales_whole", at=at, text=text, buffer=ctx.params.get("buffer", "")):
            yield f"the scale `{text}`"


def _distributed_over(ctx: CheckContext) -> Iterator[tuple[Path, Expr]]:
    """Operands of the products that are summed at the site, of sums that feed them and go, and the scales of a folded factor."""
    gone = {b.name for b in _declared(ctx.parent)} - {b.name for b in _declared(ctx.child)}
    folded = ctx.strategy == "batch_norm_folding"
    for path, stmt, _ in _walk(ctx.parent):
        here = path[: len(ctx.path)] == ctx.path and not folded
        if isinstance(stmt, Store) and stmt.reduce == "+" and (here or stmt.buffer in gone | {ctx.params.get("buffer")}):
            yield from ((path, e) for e in _products(stmt.value, ctx.strategy == "linear_distribution") if not (isinstance(e, Load) and e.buffer in gone))
    if folded:
        yield from ((ctx.path, e) for e in _scales(_site_store(ctx.parent, ctx), ctx.params["buffer"]))


def _maybe_zero(ctx: CheckContext) -> set[str]:
    """The divisors among the scales of a folded factor, if one of them may be 0."""
    if ctx.strategy != "batch_norm_folding":
        return set()
    store, signs = _site_store(ctx.parent, ctx), Signs.at(ctx.parent, ctx.path)
    bottoms = {_text(e.args[1]) for e in _below(store.value) if isinstance(e, Op) and e.name == "/" and e.dtype.is_float}
    found = [e for e in _scales(store, ctx.params["buffer"]) if _text(e) in bottoms]
    return {_text(e) for e in found} if any(not signs.of(e).away for e in found) else set()


def _products(expr: Expr, terms: bool) -> list[Expr]:
    """Operands of a product; with ``terms``, a sum among them counts by its two terms."""
    if isinstance(expr, Op) and expr.name == "*":
        return [e for a in expr.args for e in _products(a, terms)]
    return list(expr.args) if terms and isinstance(expr, Op) and expr.name in ("+", "-") else [expr]
