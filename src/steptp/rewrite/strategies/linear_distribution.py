"""Distribute a sum over its terms, or merge sums: ``sum(a*b-a*c)`` and ``sum(a*b)-sum(a*c)``, ``A·x+A·y`` and ``A·(x+y)``."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

from steptp.analysis.values import scope_of
from steptp.ir import Buffer, Expr, Load, Loop, Op, Path, Program, Store, Var, print_expr
from steptp.ir.facts import Fact
from steptp.ir.nodes import op
from steptp.ir.sizes import shape_of
from steptp.ir.walk import body_at, buffer_table, drop_unused_tmps, free_vars, loads, replace_at, subexprs, substitute
from steptp.rewrite.base import Applied, Exactness, Family, Forwarding, NotApplicable, Outcome, Site, Strategy
from steptp.rewrite.context import Context, no_loop, path_text
from steptp.rewrite.fact_kinds import fact
from steptp.rewrite.moving import single_nest, stores_between
from steptp.rewrite.outline import same_up_to_names
from steptp.rewrite.strategies.compute_inline import MAX_NODES
from steptp.rewrite.sums import SumNest, declare, finite, multiplied, product_of, same_target, sole_read, sum_nest, too_big, wrapped

__all__ = ["LinearDistribution", "STRATEGY"]


class LinearDistribution(Strategy):
    """Site: path of a nest, ``do`` = ``split`` or ``merge``.

    ``split``: the nest sums a sum or difference, perhaps times factors; each term gets a sum of its own. ``merge``: the nest stores the sum or
    difference of two sums over equal loops; one nest sums their terms, with a common factor in front.
    """

    name = "linear_distribution"
    family = Family.ALGEBRA
    classes = (Exactness.ALGEBRAIC,)
    summary = "give each term of a summed expression a sum of its own, or merge two sums into one"

    def sites(self, ctx: Context) -> Iterator[Site]:
        for path, _ in ctx.loops:
            for do, plan in (("merge", _merged), ("split", _split)):
                if not isinstance(plan(ctx, path), NotApplicable):
                    yield Site.of(self.name, path, do=do)

    def apply(self, ctx: Context, site: Site) -> Outcome:
        params = dict(site.params)
        if params.get("do") not in ("split", "merge") or set(params) != {"do"}:
            return NotApplicable("bad-site", f"{self.name} takes do=split or do=merge")
        if ctx.loop(site.path) is None:
            return no_loop(site.path)
        return _apply_split(ctx, site.path) if params["do"] == "split" else _apply_merge(ctx, site.path)


# split


def _split(ctx: Context, path: Path) -> tuple[SumNest, str, tuple[Expr, Expr], tuple[Fact, ...]] | NotApplicable:
    """The nest, the operator between the terms, the two terms with all factors, and why they are finite."""
    nest = sum_nest(ctx, path)
    if isinstance(nest, NotApplicable):
        return nest
    operands = list(multiplied(nest.store.value))
    place = next((n for n, o in enumerate(operands) if isinstance(o, Op) and o.name in ("+", "-")), None)
    if place is None:
        return NotApplicable("one-term", f"{nest.store.buffer} sums `{print_expr(nest.store.value)}`, in which no factor is a sum or difference")
    middle = operands[place]
    assert isinstance(middle, Op)
    proofs = finite(ctx, nest.nest.store_path, [*middle.args, *(o for n, o in enumerate(operands) if n != place)])
    if isinstance(proofs, NotApplicable):
        return proofs
    scope = scope_of(ctx.program, nest.nest.store_path)
    if scope.of(nest.store.value).nonnegative and not all(scope.of(t).nonnegative for t in middle.args):
        return NotApplicable(
            "cancels", f"{nest.store.buffer} sums `{print_expr(nest.store.value)}`, which is never negative; rounded, its parts may cancel below 0"
        )
    shape = [loop.extent for loop in nest.spatial]
    if (problem := too_big(ctx, "a partial result", shape)) is not None:
        return problem
    left, right = (product_of([*operands[:place], term, *operands[place + 1 :]]) for term in middle.args)
    return nest, middle.name, (left, right), proofs


def _apply_split(ctx: Context, path: Path) -> Outcome:
    found = _split(ctx, path)
    if isinstance(found, NotApplicable):
        return found
    nest, sign, terms, proofs = found
    child, made = _parted(ctx, nest, sign, terms)
    names = [b.name for b in made]
    store, dtype = nest.store, nest.store.value.dtype
    owner, n = path[:-1], path[-1]
    back = Site.of(LinearDistribution.name, (*owner, n + 2), do="merge")
    return Applied(
        child,
        Exactness.ALGEBRAIC,
        (
            fact("summed_apart", "child", buffer=store.buffer, lower=names[0], upper=names[1]),
            *proofs,
            fact("distributive", "rule", buffer=store.buffer),
            *(fact("buffer_added", "child", name=b.name, dtype=str(dtype), elements=math.prod(shape_of(b.shape, ctx.program))) for b in made),
        ),
        None,
        Forwarding(
            (
                (nest.nest.store_path, (*owner, n + 2, *(0,) * len(nest.spatial))),
                (path, (*owner, n + 2)),
                *(((*owner, k), (*owner, k + 2)) for k in range(n + 1, len(body_at(ctx.program, owner)))),
            )
        ),
        (back,) if nest.spatial and _leads_back(ctx.program, child, back.path) else (),
    )


def _parted(ctx: Context, nest: SumNest, sign: str, terms: Sequence[Expr]) -> tuple[Program, list[Buffer]]:
    """The child of a split, and its two temporaries."""
    store, dtype = nest.store, nest.store.value.dtype
    names = ctx.fresh_global(f"{store.buffer}_a", f"{store.buffer}_b")
    cell = tuple(Var(loop.var) for loop in nest.spatial)
    parts = [wrapped(nest.nest.loops, Store(name, cell, term, "+")) for name, term in zip(names, terms, strict=True)]
    both = op(sign, *(Load(name, cell, dtype) for name in names))
    last = wrapped(nest.spatial, Store(store.buffer, store.indices, both))
    child = replace_at(ctx.program, nest.path, *parts, last)
    made = [Buffer(name, dtype, tuple(loop.extent for loop in nest.spatial)) for name in names]
    return declare(child, ctx, nest.path, *made), made


def _leads_back(parent: Program, child: Program, path: Path) -> bool:
    there = Context.of(child)
    plan = _merged(there, path)
    return not isinstance(plan, NotApplicable) and same_up_to_names(plan[0], parent)


# merge


def _merged(ctx: Context, path: Path) -> tuple[Program, str, tuple[SumNest, SumNest], tuple[Fact, ...]] | NotApplicable:
    """The child, its target, the two nests that go, and why the terms are finite."""
    nest = single_nest(ctx, path)
    if isinstance(nest, NotApplicable):
        return nest
    store = nest.store
    value = store.value
    if store.reduce is not None or not isinstance(value, Op) or value.name not in ("+", "-") or not value.dtype.is_float:
        return NotApplicable("not-two-sums", f"the nest at {path_text(path)} does not store the sum or difference of two sums")
    around = tuple(loop for _, loop in ctx.enclosing_loops(path))
    if any(not isinstance(o, Loop) or o.kind.is_bound or o.kind.value == "vec" for o in (*nest.owners, *around)):
        return NotApplicable("kind", f"a guard or a vector or bound loop stands around the store into {store.buffer}")
    indexing = frozenset().union(*map(free_vars, store.indices))
    if stray := [loop.var for loop in nest.loops if loop.var not in indexing or free_vars(loop.extent)]:
        return NotApplicable("indices", f"{stray[0]} does not index {store.buffer}, or its extent varies")
    if sum(s.buffer == store.buffer for _, s in ctx.stores) != 1:
        return NotApplicable("many-writers", f"{store.buffer} is written by several statements, and a sum resets it")
    sides = []
    for load in value.args:
        side = _side(ctx, nest.store_path, path, load)
        if isinstance(side, NotApplicable):
            return side
        sides.append(side)
    (first, one, proofs), (second, two, more) = sides
    return _joined(ctx, path, nest.loops, store, value.name, ((first, one), (second, two)), (*proofs, *more))


def _joined(
    ctx: Context,
    path: Path,
    loops: tuple[Loop, ...],
    store: Store,
    sign: str,
    sides: tuple[tuple[SumNest, dict[str, Expr]], tuple[SumNest, dict[str, Expr]]],
    proofs: tuple[Fact, ...],
) -> tuple[Program, str, tuple[SumNest, SumNest], tuple[Fact, ...]] | NotApplicable:
    (first, one), (second, two) = sides
    names = ctx.fresh_vars(path, *(loop.var for loop in first.reduction)) if first.reduction else ()
    reduction = tuple(Loop(v, loop.extent, ()) for v, loop in zip(names, first.reduction, strict=True))
    if [loop.extent for loop in first.reduction] != [loop.extent for loop in second.reduction]:
        return NotApplicable("other-loops", f"{first.store.buffer} and {second.store.buffer} are not summed over loops of equal extents")
    values = []
    for nest, by in ((first, one), (second, two)):
        new: Mapping[str, Expr] = {**by, **{loop.var: Var(v) for loop, v in zip(nest.reduction, names, strict=True)}}
        values.append(substitute(nest.store.value, new))
    value = _factored(sign, values[0], values[1])
    if sum(1 for _ in subexprs(value)) > MAX_NODES:
        return NotApplicable("too-big", f"the merged expression would have more than {MAX_NODES} nodes")
    summed = wrapped((*loops, *reduction), Store(store.buffer, store.indices, value, "+"))
    child = replace_at(ctx.program, path, summed)
    for gone in sorted((first.path, second.path), reverse=True):
        child = replace_at(child, gone)
    return drop_unused_tmps(child), store.buffer, (first, second), proofs


def _side(ctx: Context, where: Path, path: Path, load: Expr) -> tuple[SumNest, dict[str, Expr], tuple[Fact, ...]] | NotApplicable:
    """The nest that sums into what ``load`` reads, its spatial loops over the reading nest, and why its terms are finite."""
    if not isinstance(load, Load):
        return NotApplicable("not-a-sum", f"`{print_expr(load, load.dtype)}` is no read of a sum")
    if (problem := sole_read(ctx, load.buffer, where)) is not None:
        return problem
    owner = path[:-1]
    writers = [p for p, s in ctx.stores if s.buffer == load.buffer]
    if len(writers) != 1 or writers[0][: len(owner)] != owner or writers[0][len(owner)] >= path[-1]:
        return NotApplicable("producer", f"{load.buffer} is not computed by one nest beside the one at {path_text(path)}, before it")
    nest = sum_nest(ctx, writers[0][: len(owner) + 1])
    if isinstance(nest, NotApplicable):
        return nest
    by = same_target(ctx, nest, load)
    if isinstance(by, NotApplicable):
        return by
    read = {e.buffer for e in loads(nest.store.value)}
    if changed := sorted(read & {s.buffer for _, s in stores_between(ctx, nest.path, path)}):
        return NotApplicable("overwritten", f"{changed[0]} is written between the nests at {path_text(nest.path)} and {path_text(path)}")
    proofs = finite(ctx, nest.nest.store_path, tuple(multiplied(nest.store.value)))
    return proofs if isinstance(proofs, NotApplicable) else (nest, by, proofs)


def _factored(sign: str, left: Expr, right: Expr) -> Expr:
    """``left±right``, with the factors that both share in the same place in front of or behind a sum."""
    a, b = list(multiplied(left)), list(multiplied(right))
    if len(a) == len(b) > 1:
        other = [n for n in range(len(a)) if a[n] != b[n]]
        if len(other) == 1:
            n = other[0]
            return product_of([*a[:n], op(sign, a[n], b[n]), *a[n + 1 :]])
    return op(sign, left, right)


def _apply_merge(ctx: Context, path: Path) -> Outcome:
    found = _merged(ctx, path)
    if isinstance(found, NotApplicable):
        return found
    child, target, gone, proofs = found
    owner, n = path[:-1], path[-1]
    table = buffer_table(ctx.program)
    places = sorted(nest.path[-1] for nest in gone)

    def moved(k: int) -> int:
        return k - sum(place < k for place in places)

    moves: list[tuple[Path, Path | None]] = [((*owner, k), None) for k in places]
    moves += [((*owner, k), (*owner, moved(k))) for k in range(places[0], len(body_at(ctx.program, owner))) if k not in places]
    here = single_nest(ctx, path)
    assert not isinstance(here, NotApplicable)
    moves.append((here.store_path, (*owner, moved(n), *(0,) * (len(here.loops) + len(gone[0].reduction)))))
    back = Site.of(LinearDistribution.name, (*owner, moved(n)), do="split")
    old = [table[nest.store.buffer] for nest in gone]
    return Applied(
        child,
        Exactness.ALGEBRAIC,
        (
            fact("summed_together", "child", buffer=target, lower=old[0].name, upper=old[1].name),
            *dict.fromkeys(proofs),
            fact("distributive", "rule", buffer=target),
            *(fact("buffer_removed", "child", name=b.name, dtype=str(b.dtype), elements=math.prod(shape_of(b.shape, ctx.program))) for b in old),
        ),
        None,
        Forwarding(tuple(moves)),
        (back,) if _splits_back(ctx.program, child, back) else (),
    )


def _splits_back(parent: Program, child: Program, back: Site) -> bool:
    there = Context.of(child)
    found = _split(there, back.path)
    if isinstance(found, NotApplicable):
        return False
    nest, sign, terms, _ = found
    return same_up_to_names(_parted(there, nest, sign, terms)[0], parent)


STRATEGY = LinearDistribution()
