"""Put a pointwise producer's expression in place of the reads of its result."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from steptp.analysis.expand import pure_definition
from steptp.ir import Expr, Load, Path, Program, Store, Var
from steptp.ir.walk import all_tmps, buffer_table, declaring_path, loads, map_expr, replace_at, subexprs, substitute
from steptp.rewrite.base import Applied, Exactness, Family, NotApplicable, Outcome, Site, Strategy
from steptp.rewrite.context import Context, path_text
from steptp.rewrite.fact_kinds import fact
from steptp.rewrite.gpu import out_of_reach
from steptp.rewrite.orders import grown
from steptp.rewrite.tools import identity_map, tidy

__all__ = ["ComputeInline", "STRATEGY", "MAX_NODES", "may_be_overwritten", "reads_through"]

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
        return Applied(child, Exactness.BITWISE, tuple(facts), identity_map(child))


def _plan(ctx: Context, site: Site) -> tuple[_Producer, Store] | NotApplicable:
    params = dict(site.params)
    name, consumer = params.get("buffer"), ctx.stmt(site.path)
    if not isinstance(consumer, Store) or set(params) != {"buffer"} or not isinstance(name, str):
        return NotApplicable("bad-site", "compute_inline takes the path of a store and buffer=<a temporary it reads>")
    reads = [e for e in loads(consumer.value) if e.buffer == name]
    if not reads:
        return NotApplicable("not-read", f"the value stored at {path_text(site.path)} does not read {name}")
    producer = _producer(ctx, name)
    if isinstance(producer, NotApplicable):
        return producer
    if any(e.buffer == name for i in consumer.indices for e in loads(i)) or any(e.buffer == name for r in reads for i in r.indices for e in loads(i)):
        return NotApplicable("look-up", f"{name} is also read inside an index")
    if producer.path >= site.path:
        return NotApplicable("order", f"{name} is written after it is read at {path_text(site.path)}")
    inputs = {e.buffer for e in loads(producer.store.value)}
    if (between := next((p for p, s in ctx.stores if producer.path < p <= site.path and s.buffer in inputs), None)) is not None:
        changed = ctx.by_path[between].stmt
        assert isinstance(changed, Store)
        return NotApplicable("changed", f"{changed.buffer}, from which {name} is computed, is written at {path_text(between)}")
    for other in sorted(inputs):
        scope = buffer_table(ctx.program)[other].scope
        if (loop := out_of_reach(ctx, other, scope, site.path)) is not None:
            return NotApplicable("scope", f"{other}, from which {name} is computed, is {scope}, and the {loop.kind} loop {loop.var} cannot see it")
    nodes = sum(1 for _ in subexprs(consumer.value)) + len(reads) * sum(1 for _ in subexprs(producer.store.value))
    if nodes > MAX_NODES:
        return NotApplicable("too-big", f"the expression would have {nodes} nodes, more than {MAX_NODES}")
    return producer, consumer


def _producer(ctx: Context, name: str) -> _Producer | NotApplicable:
    """The pure definition of a temporary, once a program and name."""
    return ctx.kept("inline_producer", name, lambda: _find_producer(ctx, name))


def _find_producer(ctx: Context, name: str) -> _Producer | NotApplicable:
    """One plain store, indexed by exactly the loops between it and the declaration, whose operands stay as they are from then on."""
    if name not in {b.name for _, b in all_tmps(ctx.program)}:
        return NotApplicable("interface", f"{name} is an input or output, not a temporary")
    writers = [(p, s) for p, s in ctx.stores if s.buffer == name]
    if len(writers) != 1:
        return NotApplicable("several-writers", f"{name} is written by {len(writers)} statements")
    path, store = writers[0]
    if store.reduce is not None:
        return NotApplicable("reduction", f"{name} is accumulated ({store.reduce}=), not computed pointwise")
    if any(e.buffer == name for e in loads(store.value)):
        return NotApplicable("recurrence", f"{name} is computed from its own elements")
    home = declaring_path(ctx.program, name)
    loops = [loop.var for p, loop in ctx.enclosing_loops(path) if len(p) > len(home)]
    dims = tuple(i.name for i in store.indices if isinstance(i, Var))
    if len(dims) != len(store.indices) or len(set(dims)) != len(dims):
        return NotApplicable("not-pointwise", f"{name} is not indexed by distinct loop variables where it is written")
    if extra := [v for v in loops if v not in dims]:
        return NotApplicable("not-pointwise", f"the elements of {name} are written again in every iteration of {extra[0]}, which does not index it")
    if extra := [v for v in dims if v not in loops]:
        return NotApplicable("not-pointwise", f"{extra[0]} indexes {name} but runs around its declaration")
    for other in dict.fromkeys(e.buffer for e in loads(store.value)):
        inner = declaring_path(ctx.program, other)
        if home[: len(inner)] != inner:
            return NotApplicable("not-visible", f"{other}, from which {name} is computed, does not live as long as {name}")
    if may_be_overwritten(ctx, path, store):
        if pure_definition(ctx.program, name) is None:
            return NotApplicable("changed", f"an operand of {name} is overwritten after {path_text(path)} has read it")
        if any(pure_definition(larger, name) is None for (larger,) in grown(ctx.program)):
            return NotApplicable("size-dependent", f"an operand of {name} is overwritten where a loop runs more than once")
    return _Producer(path, store, dims)


def reads_through(ctx: Context, path: Path, made: Store, child: Program) -> bool:
    """Whether a proof can read through the scalar that the child computes by ``made`` just before the parent's store at ``path``."""
    return not may_be_overwritten(ctx, path, made) or pure_definition(child, made.buffer) is not None


def may_be_overwritten(ctx: Context, path: Path, store: Store) -> bool:
    """Whether some store into an operand runs after the producer: behind it, or in a loop around both. Quick, may say so needlessly."""
    for other in {e.buffer for e in loads(store.value)}:
        home = len(declaring_path(ctx.program, other))
        for p, s in ctx.stores:
            if s.buffer != other:
                continue
            if p >= path:
                return True
            shared = next(n for n, (a, b) in enumerate(zip(p, path, strict=False)) if a != b)
            if any(ctx.loop(path[:n]) is not None for n in range(home + 1, shared + 1)):
                return True
    return False


STRATEGY = ComputeInline()
