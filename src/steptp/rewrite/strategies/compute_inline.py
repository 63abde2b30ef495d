"""Put a pointwise producer's expression in place of the reads of its result."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from steptp.ir import Expr, Load, Loop, Path, Program, Store, Var
from steptp.ir.index import same_index
from steptp.ir.walk import all_tmps, declaring_path, enclosing, free_vars, loads, map_expr, replace_at, subexprs, substitute
from steptp.rewrite.base import Applied, Exactness, Family, NotApplicable, Outcome, Site, Strategy
from steptp.rewrite.context import Context, path_text
from steptp.rewrite.fact_kinds import fact
from steptp.rewrite.tools import tidy

__all__ = ["ComputeInline", "STRATEGY"]

MAX_NODES = 80


@dataclass(frozen=True)
class _Producer:
    """The one store that writes the buffer; ``dims`` are the loop variables that index it."""

    path: Path
    store: Store
    dims: tuple[str, ...]


class ComputeInline(Strategy):
    """Site: path of the consuming store, ``buffer`` = the temporary whose reads there are replaced."""

    name = "compute_inline"
    family = Family.GRAPH
    classes = (Exactness.BITWISE,)
    summary = "compute a pointwise producer again where it is read"

    def sites(self, ctx: Context) -> Iterator[Site]:
        names = {b.name for _, b in all_tmps(ctx.program)}
        for path, store in ctx.stores:
            for buffer in dict.fromkeys(e.buffer for e in loads(store.value) if e.buffer in names):
                site = Site.of(self.name, path, buffer=buffer)
                if not isinstance(_plan(ctx, site), NotApplicable):
                    yield site

    def apply(self, ctx: Context, site: Site) -> Outcome:
        plan = _plan(ctx, site)
        if isinstance(plan, NotApplicable):
            return plan
        producer, consumer = plan
        around = ctx.extents_around(site.path)

        def put(expr: Expr) -> Expr:
            if not (isinstance(expr, Load) and expr.buffer == producer.store.buffer):
                return expr
            inlined = substitute(producer.store.value, dict(zip(producer.dims, expr.indices, strict=True)))
            return tidy(inlined, around)

        value = map_expr(consumer.value, put)
        count = sum(e.buffer == producer.store.buffer for e in loads(consumer.value))
        child = replace_at(ctx.program, site.path, replace(consumer, value=value))
        inputs = tuple(sorted({e.buffer for e in loads(producer.store.value)}))
        facts = [
            fact("written_once", "parent", buffer=producer.store.buffer, at=path_text(producer.path)),
            fact("reads_replaced", "child", buffer=producer.store.buffer, count=count),
        ]
        if inputs:
            facts.append(fact("unchanged_between", "parent", buffers=inputs, first=path_text(producer.path), second=path_text(site.path)))
        return Applied(child, Exactness.BITWISE, tuple(facts))


def _plan(ctx: Context, site: Site) -> tuple[_Producer, Store] | NotApplicable:
    params = dict(site.params)
    name, consumer = params.get("buffer"), ctx.stmt(site.path)
    if not isinstance(consumer, Store) or set(params) != {"buffer"} or not isinstance(name, str):
        return NotApplicable("bad-site", "compute_inline takes the path of a store and buffer=<a temporary it reads>")
    reads = [e for e in loads(consumer.value) if e.buffer == name]
    if not reads:
        return NotApplicable("not-read", f"the value stored at {path_text(site.path)} does not read {name}")
    if name not in {b.name for _, b in all_tmps(ctx.program)}:
        return NotApplicable("interface", f"{name} is an input or output, not a temporary")
    producer = _producer(ctx, name)
    if isinstance(producer, NotApplicable):
        return producer
    if any(e.buffer == name for i in consumer.indices for e in loads(i)) or any(e.buffer == name for r in reads for i in r.indices for e in loads(i)):
        return NotApplicable("look-up", f"{name} is also read inside an index")
    problem = _order_problem(ctx, producer, site.path, reads) or _changed(ctx, producer, site.path, consumer)
    if problem is not None:
        return problem
    nodes = sum(1 for _ in subexprs(consumer.value)) + len(reads) * sum(1 for _ in subexprs(producer.store.value))
    if nodes > MAX_NODES:
        return NotApplicable("too-big", f"the expression would have {nodes} nodes, more than {MAX_NODES}")
    return producer, consumer


def _producer(ctx: Context, name: str) -> _Producer | NotApplicable:
    writers = [(p, s) for p, s in ctx.stores if s.buffer == name]
    if len(writers) != 1:
        return NotApplicable("several-writers", f"{name} is written by {len(writers)} statements")
    path, store = writers[0]
    if store.reduce is not None:
        return NotApplicable("reduction", f"{name} is accumulated ({store.reduce}), not computed pointwise")
    if any(e.buffer == name for e in loads(store.value)):
        return NotApplicable("recurrence", f"{name} is computed from its own elements")
    dims = tuple(i.name if isinstance(i, Var) else "" for i in store.indices)
    if "" in dims or len(set(dims)) != len(dims):
        return NotApplicable("not-pointwise", f"{name} is not indexed by distinct loop variables where it is written")
    shared = {p.var for p in enclosing(ctx.program, path) if isinstance(p, Loop)}
    if extra := sorted((free_vars(store.value) & shared) - set(dims) - _declared_inside(ctx.program, name, path)):
        return NotApplicable("not-pointwise", f"the value of {name} also depends on {extra[0]}, which does not index it")
    return _Producer(path, store, dims)


def _declared_inside(program: Program, name: str, path: Path) -> set[str]:
    """Loops around the declaration: their variables mean the same at producer and consumer."""
    return {p.var for p in enclosing(program, (*declaring_path(program, name), 0)) if isinstance(p, Loop)} if declaring_path(program, name) else set()


def _order_problem(ctx: Context, producer: _Producer, consumer: Path, reads: list[Load]) -> NotApplicable | None:
    """The producer must have run, for the element read, before the consumer does, and not again since."""
    a, b, name = producer.path, consumer, producer.store.buffer
    if a >= b:
        return NotApplicable("order", f"{name} is written after it is read at {path_text(b)}")
    shared = next(n for n, (x, y) in enumerate(zip(a, b, strict=False)) if x != y)
    home = len(declaring_path(ctx.program, name))
    for n in range(home + 1, shared + 1):
        loop = ctx.loop(a[:n])
        if loop is None:
            continue
        if loop.var not in producer.dims:
            if loop.var in free_vars(producer.store.value):
                return NotApplicable("not-pointwise", f"the value of {name} changes with {loop.var}, which does not index it")
            continue
        k = producer.dims.index(loop.var)
        if any(not same_index(r.indices[k], Var(loop.var)) for r in reads):
            return NotApplicable("other-iteration", f"{name} is read at another iteration of {loop.var} than the present one")
    return None


def _changed(ctx: Context, producer: _Producer, consumer: Path, store: Store) -> NotApplicable | None:
    """What the producer reads must be the same at the consumer: written only before the producer, and visible there."""
    for name in dict.fromkeys(e.buffer for x in (producer.store.value,) for e in loads(x)):
        home = declaring_path(ctx.program, name)
        if consumer[: len(home)] != home:
            return NotApplicable("not-visible", f"{name}, from which {producer.store.buffer} is computed, is not visible at {path_text(consumer)}")
        for path, other in ctx.stores:
            if other.buffer == name and path != producer.path and not _settled(ctx, producer, consumer, path, other):
                return NotApplicable(
                    "changed", f"{name}, from which {producer.store.buffer} is computed, may be written again at {path_text(path)} before {path_text(consumer)}"
                )
    return None


def _settled(ctx: Context, producer: _Producer, consumer: Path, path: Path, other: Store) -> bool:
    """Whether a store at ``path`` leaves the elements that the producer reads as they were, until the consumer has run.

    A store before the producer is over unless a loop around both, but not around the consumer, runs it again: each such loop must
    then index the stored and the read element alike. A store after the consumer is too late unless a loop around all three repeats.
    """
    around = [n for n in range(1, len(path)) if path[:n] == producer.path[:n] and ctx.loop(path[:n]) is not None]
    repeated = [n for n in around if consumer[:n] != path[:n]] if path < producer.path else [n for n in around if consumer[:n] == path[:n]]
    if producer.path < path <= consumer:
        return False
    read = [e for e in loads(producer.store.value) if e.buffer == other.buffer]
    for n in repeated:
        loop = ctx.loop(path[:n])
        assert loop is not None
        places = [k for k, i in enumerate(other.indices) if i == Var(loop.var)]
        if not places or any(e.indices[places[0]] != Var(loop.var) for e in read):
            return False
    return True


STRATEGY = ComputeInline()
