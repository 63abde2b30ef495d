"""Contract some operands of a sum of products first: ``(A·B)·x`` becomes ``A·(B·x)``.

The operation minimisation of tensor contractions (Lam, Sadayappan and Wenger, "On optimizing a class of multi-dimensional loops with reductions for
parallel execution", 1997), one pairing of an einsum path at a time.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

from steptp.ir import Buffer, Expr, Load, Loop, LoopKind, Path, Program, Store, Var, print_expr
from steptp.ir.facts import Fact
from steptp.ir.sizes import shape_of
from steptp.ir.walk import body_at, buffer_table, drop_unused_tmps, free_vars, fresh_name, loads, replace_at, subexprs, substitute
from steptp.rewrite.base import Applied, Exactness, Family, Forwarding, NotApplicable, Outcome, Site, Strategy
from steptp.rewrite.context import Context, no_loop, path_text
from steptp.rewrite.exprs import parse_place, place_param
from steptp.rewrite.fact_kinds import fact
from steptp.rewrite.moving import run_count, stores_between
from steptp.rewrite.outline import same_up_to_names
from steptp.rewrite.sums import SumNest, declare, finite, multiplied, product_of, same_target, sole_read, sum_nest, too_big, wrapped

__all__ = ["ContractionReassociation", "STRATEGY"]

MAX_OPERANDS = 6
LISTED = 4
"""Most groupings that a nest (or a pair of nests) offers: those with the fewest operations."""


@dataclass(frozen=True, slots=True)
class _Contraction:
    """All operands of a nest, or of a nest and the one behind its operand ``through``: its loops, and where everything stands."""

    nest: SumNest
    operands: tuple[Expr, ...]
    loops: tuple[Loop, ...]
    proofs: tuple[Fact, ...]
    through: str = ""
    producer: Path = ()
    inner: tuple[int, ...] = ()  # numbers of the operands that the producer multiplies


@dataclass(frozen=True, slots=True)
class _Grouping:
    """The operands that are contracted first, over which loops (perhaps none), and the loops that index the result."""

    first: tuple[int, ...]
    over: tuple[Loop, ...]
    dims: tuple[Loop, ...]
    rest: tuple[Loop, ...]


class ContractionReassociation(Strategy):
    """Site: path of a nest, ``first`` = the operands that go into a temporary, numbered from 0, and perhaps ``through`` = an operand.

    The operands are the factors of the summed product. With ``through``, the sum of products that is stored in that operand takes its place
    before they are numbered, and its nest goes. The temporary is summed over the loops that no other operand depends on; where there are none, it holds a
    product that several iterations share.
    """

    name = "contraction_reassociation"
    family = Family.ALGEBRA
    classes = (Exactness.ALGEBRAIC,)
    summary = "contract some operands of a sum of products first: (A·B)·x becomes A·(B·x)"

    def sites(self, ctx: Context) -> Iterator[Site]:
        for path, _ in ctx.loops:
            nest = sum_nest(ctx, path)
            if isinstance(nest, NotApplicable):
                continue
            reads = dict.fromkeys(o.buffer for o in multiplied(nest.store.value) if isinstance(o, Load))
            for through in ("", *reads):
                whole = _contraction(ctx, nest, through)
                if isinstance(whole, _Contraction):
                    yield from (Site.of(self.name, path, **_params(g.first, through)) for g in _listed(ctx, whole))

    def apply(self, ctx: Context, site: Site) -> Outcome:
        params = dict(site.params)
        first, through = parse_place(params.get("first", "")), params.get("through", "")
        if first is None or set(params) - {"first", "through"} or not isinstance(through, str):
            return NotApplicable("bad-site", f"{self.name} takes first=<numbers of operands> and perhaps through=<operand>")
        if ctx.loop(site.path) is None:
            return no_loop(site.path)
        nest = sum_nest(ctx, site.path)
        whole = nest if isinstance(nest, NotApplicable) else _contraction(ctx, nest, through)
        if isinstance(whole, NotApplicable):
            return whole
        grouping = _grouping(ctx, whole, first)
        return grouping if isinstance(grouping, NotApplicable) else _apply(ctx, whole, grouping)


def _params(first: tuple[int, ...], through: str) -> dict[str, int | str]:
    return {"first": place_param(first), **({"through": through} if through else {})}


def _contraction(ctx: Context, nest: SumNest, through: str) -> _Contraction | NotApplicable:
    operands = tuple(multiplied(nest.store.value))
    if not through:
        proofs = finite(ctx, nest.nest.store_path, operands)
        return proofs if isinstance(proofs, NotApplicable) else _Contraction(nest, operands, nest.nest.loops, proofs)
    place = next((n for n, o in enumerate(operands) if isinstance(o, Load) and o.buffer == through), None)
    if place is None:
        return NotApplicable("no-operand", f"{through} is no factor of what {nest.store.buffer} sums")
    if (problem := sole_read(ctx, through, nest.nest.store_path)) is not None:
        return problem
    load = operands[place]
    assert isinstance(load, Load)
    made = _producer(ctx, nest, load)
    if isinstance(made, NotApplicable):
        return made
    producer, by = made
    loops: list[Loop] = []
    for loop in producer.reduction:
        name = fresh_name(loop.var, ctx.taken(nest.path) | {x.var for x in loops})
        by[loop.var] = Var(name)
        loops.append(replace(loop, var=name))
    inside = tuple(substitute(o, by) for o in multiplied(producer.store.value))
    proofs = finite(ctx, producer.nest.store_path, tuple(multiplied(producer.store.value)))
    own = finite(ctx, nest.nest.store_path, [o for o in operands if o is not load])
    if isinstance(proofs, NotApplicable):
        return proofs
    if isinstance(own, NotApplicable):
        return own
    return _Contraction(
        nest,
        (*operands[:place], *inside, *operands[place + 1 :]),
        (*nest.nest.loops, *loops),
        (*proofs, *own),
        through,
        producer.path,
        tuple(range(place, place + len(inside))),
    )


def _producer(ctx: Context, nest: SumNest, load: Load) -> tuple[SumNest, dict[str, Expr]] | NotApplicable:
    """The earlier sibling that sums into ``load``'s buffer, and what its loops are at the read."""
    owner = nest.path[:-1]
    where = [p for p, s in ctx.stores if s.buffer == load.buffer]
    if len(where) != 1 or where[0][: len(owner)] != owner or where[0][len(owner)] >= nest.path[-1]:
        return NotApplicable("producer", f"{load.buffer} is not computed by one nest beside the one at {path_text(nest.path)}, before it")
    producer = sum_nest(ctx, where[0][: len(owner) + 1])
    if isinstance(producer, NotApplicable):
        return producer
    by = same_target(ctx, producer, load)
    if isinstance(by, NotApplicable):
        return by
    read = {e.buffer for e in loads(producer.store.value)}
    if changed := sorted(read & {s.buffer for _, s in stores_between(ctx, producer.path, nest.path)}):
        return NotApplicable("overwritten", f"{changed[0]} is written between the nests at {path_text(producer.path)} and {path_text(nest.path)}")
    return producer, by


def _grouping(ctx: Context, whole: _Contraction, first: Sequence[int]) -> _Grouping | NotApplicable:
    count = len(whole.operands)
    if not 0 < len(first) < count or sorted(set(first)) != list(first) or first[-1] >= count:
        return NotApplicable("no-grouping", f"first names some, not all, of the {count} operands, in order")
    if tuple(first) == whole.inner:
        return NotApplicable("no-op", f"{whole.through} holds these operands already")
    mine = [whole.operands[n] for n in first]
    used = frozenset().union(*map(free_vars, mine))
    others = frozenset().union(*(free_vars(o) for n, o in enumerate(whole.operands) if n not in first))
    kept = {loop.var for loop in whole.nest.spatial}
    over = tuple(loop for loop in whole.loops if loop.var in used - others - kept)
    table = {loop.var: loop for loop in whole.loops if loop not in over}
    order = dict.fromkeys(e.name for o in mine for e in subexprs(o) if isinstance(e, Var) and e.name in table)
    dims = tuple(table[v] for v in order)
    if not over and (len(first) < 2 or len(dims) == len(whole.loops)):
        texts = ", ".join(f"`{print_expr(o, o.dtype)}`" for o in mine)
        return NotApplicable("no-gain", f"no loop is summed over for {texts} alone, and their product is not the same in several iterations")
    if (problem := too_big(ctx, "the temporary", [loop.extent for loop in dims])) is not None:
        return problem
    return _Grouping(tuple(first), over, dims, tuple(loop for loop in whole.loops if loop not in over))


def _cost(ctx: Context, whole: _Contraction, one: _Grouping) -> int:
    """Multiplications and additions of the two nests."""
    trips = [math.prod(ctx.value(loop.extent) or 0 for loop in loops) for loops in ((*one.dims, *one.over), one.rest)]
    sums = any(loop not in whole.nest.spatial for loop in one.rest)
    return trips[0] * (len(one.first) - (not one.over)) + trips[1] * (len(whole.operands) - len(one.first) + sums)


def _own_cost(ctx: Context, whole: _Contraction) -> int:
    """The same of the parent's nests."""
    own = [loop for loop in whole.loops if loop in whole.nest.nest.loops]
    trips = math.prod(ctx.value(loop.extent) or 0 for loop in own)
    if not whole.through:
        return trips * len(whole.operands)
    producer = sum_nest(ctx, whole.producer)
    assert isinstance(producer, SumNest)
    count = len(whole.inner)
    return trips * (len(whole.operands) - count + 1) + math.prod(ctx.value(loop.extent) or 0 for loop in producer.nest.loops) * count


def _listed(ctx: Context, whole: _Contraction) -> list[_Grouping]:
    count = len(whole.operands)
    if count > MAX_OPERANDS:
        return []
    every = [_grouping(ctx, whole, first) for size in range(1, count) for first in combinations(range(count), size)]
    found = sorted((g for g in every if isinstance(g, _Grouping)), key=lambda g: (_cost(ctx, whole, g), g.first))
    return sorted(found[:LISTED], key=lambda g: g.first)


def _apply(ctx: Context, whole: _Contraction, one: _Grouping) -> Outcome:
    child, name = _child(ctx, whole, one)
    store, parent = whole.nest.store, ctx.program
    dtype = store.value.dtype
    shape = tuple(loop.extent for loop in one.dims)
    product = product_of([whole.operands[n] for n in one.first])
    elements = math.prod(shape_of(shape, parent))
    turns = run_count(parent, whole.nest.path)
    text, over = print_expr(product, dtype), tuple(loop.var for loop in one.over)
    facts = [
        fact("contracted_first", "child", name=name, text=text, loops=over) if over else fact("named", "child", name=name, text=text),
        *whole.proofs,
        fact("distributive", "rule", buffer=store.buffer),
        fact("buffer_added", "child", name=name, dtype=str(dtype), elements=elements),
    ]
    if turns is not None:
        facts.append(fact("contraction_cost", "child", buffer=store.buffer, before=turns * _own_cost(ctx, whole), after=turns * _cost(ctx, whole, one)))
    if whole.through:
        gone = buffer_table(parent)[whole.through]
        facts.append(fact("buffer_removed", "child", name=gone.name, dtype=str(gone.dtype), elements=math.prod(shape_of(gone.shape, parent))))
    owner, n = whole.nest.path[:-1], whole.nest.path[-1]
    shift = -1 if whole.through else 0
    moves: list[tuple[Path, Path | None]] = [(whole.nest.nest.store_path, (*owner, n + 1 + shift, *(0,) * len(one.rest)))]
    if whole.through:
        k = whole.producer[-1]
        moves += [(whole.producer, None), *(((*owner, m), (*owner, m - 1)) for m in range(k + 1, n))]
    else:
        moves += [((*owner, m), (*owner, m + 1)) for m in range(n + 1, len(body_at(parent, owner)))]
    moves.append((whole.nest.path, (*owner, n + 1 + shift)))
    return Applied(child, Exactness.ALGEBRAIC, tuple(facts), None, Forwarding(tuple(moves)), _inverse(ctx, whole, one, child, name))


def _child(ctx: Context, whole: _Contraction, one: _Grouping) -> tuple[Program, str]:
    store = whole.nest.store
    dtype = store.value.dtype
    (name,) = ctx.fresh_global(f"{store.buffer}_c")
    cell: tuple[Expr, ...] = tuple(Var(loop.var) for loop in one.dims)
    made = Store(name, cell, product_of([whole.operands[n] for n in one.first]), "+" if one.over else None)
    rest: list[Expr] = [o for n, o in enumerate(whole.operands) if n not in one.first]
    rest.insert(sum(n < one.first[0] for n in range(len(whole.operands)) if n not in one.first), Load(name, cell, dtype))
    left = any(loop not in whole.nest.spatial for loop in one.rest)
    last = Store(store.buffer, store.indices, product_of(rest), "+" if left else None)
    serial = tuple(replace(loop, kind=LoopKind.SERIAL) for loop in (*one.dims, *one.over))
    child = replace_at(ctx.program, whole.nest.path, wrapped(serial, made), wrapped(one.rest, last))
    child = declare(child, ctx, whole.nest.path, Buffer(name, dtype, tuple(loop.extent for loop in one.dims)))
    if whole.through:
        child = drop_unused_tmps(replace_at(child, whole.producer))
    return child, name


def _inverse(ctx: Context, whole: _Contraction, one: _Grouping, child: Program, name: str) -> tuple[Site, ...]:
    """The step back through the new temporary, where it gives the parent again."""
    if not whole.through:
        return ()
    mine = set(one.first)
    order = [n for n in range(len(whole.operands)) if n not in mine]
    at = sum(n < one.first[0] for n in order)
    order = [*order[:at], *one.first, *order[at:]]
    first = tuple(sorted(order.index(n) for n in whole.inner))
    site = Site.of(ContractionReassociation.name, whole.nest.path, **_params(first, name))
    there = Context.of(child)
    nest = sum_nest(there, site.path)
    again = nest if isinstance(nest, NotApplicable) else _contraction(there, nest, name)
    grouping = again if isinstance(again, NotApplicable) else _grouping(there, again, first)
    if isinstance(again, NotApplicable) or isinstance(grouping, NotApplicable):
        return ()
    return (site,) if same_up_to_names(_child(there, again, grouping)[0], ctx.program) else ()


STRATEGY = ContractionReassociation()
