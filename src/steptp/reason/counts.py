"""Plain integer figures of a program, as its explanation states them.

Definitions (``docs/reasoning.md``): an *operation* is one evaluation of a floating-point operator (comparisons, selects and casts do
not count) or one combination of a float accumulation; loops count their full extent, guards and selects take nothing off. *Data* are all
elements of all inputs, outputs and temporaries, once. *Accessed bytes* are all loads and stores, one element each.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from steptp.errors import LeirError
from steptp.ir.nodes import Expr, Load, Loop, Op, Path, Program, Store, Var
from steptp.ir.ops import OPS, OpRule
from steptp.ir.sizes import eval_index
from steptp.ir.types import LoopKind
from steptp.ir.walk import Visit, buffer_table, free_vars, stores, subexprs

__all__ = ["StoreCount", "Figures", "figures", "trip_count", "innermost", "stride_of", "accesses"]

_ARITHMETIC = (OpRule.NUMERIC, OpRule.FLOAT)


@dataclass(frozen=True, slots=True)
class StoreCount:
    """One store: how often it runs, its operations, and the bytes it loads and stores over the run."""

    path: Path
    store: Store
    loops: tuple[Loop, ...]
    instances: int
    operations: int
    accessed: int


@dataclass(frozen=True, slots=True)
class Figures:
    """Totals and the dominant store (most operations; without any, most instances; the first among equals)."""

    counts: tuple[StoreCount, ...]
    operations: int
    instances: int
    accessed: int
    data: int
    temporaries: int
    dominant: StoreCount
    percent: int
    parallel: int
    lanes: int
    strided: int


def figures(program: Program) -> Figures:
    """Every figure at the program's present sizes; cached on the program."""
    cached = program._cache.get("reason_figures")
    if isinstance(cached, Figures):
        return cached
    env = program.size_env
    table = buffer_table(program)
    interface = {b.name for b in (*program.inputs, *program.outputs)}
    sizes = {name: _elements(b.shape, env) * b.dtype.itemsize for name, b in table.items()}
    counts = tuple(_count(v, program, env) for v in stores(program))
    operations = sum(c.operations for c in counts)
    instances = sum(c.instances for c in counts)
    whole = operations or instances
    dominant = max(counts, key=lambda c: c.operations if operations else c.instances)
    part = dominant.operations if operations else dominant.instances
    inner = innermost(dominant)
    strides = [] if inner is None else [stride_of(a, inner, program) for a in accesses(dominant.store)]
    result = Figures(
        counts=counts,
        operations=operations,
        instances=instances,
        accessed=sum(c.accessed for c in counts),
        data=sum(sizes.values()),
        temporaries=sum(b for name, b in sizes.items() if name not in interface),
        dominant=dominant,
        percent=(200 * part + whole) // (2 * whole) if whole else 0,
        parallel=_parallel(dominant, env),
        lanes=_lanes(dominant, env),
        strided=sum(s is not None and abs(s) > 1 for s in strides),
    )
    program._cache["reason_figures"] = result
    return result


def _elements(shape: tuple[Expr, ...], env: Mapping[str, int]) -> int:
    total = 1
    for extent in shape:
        total *= eval_index(extent, env)
    return total


def _count(met: Visit, program: Program, env: Mapping[str, int]) -> StoreCount:
    store = met.stmt
    assert isinstance(store, Store)
    instances = trip_count(met.loops, env)
    nodes = [e for root in (*store.indices, store.value) for e in subexprs(root)]
    operations = sum(isinstance(e, Op) and e.type.is_float and OPS[e.name].rule in _ARITHMETIC for e in nodes)
    operations += store.reduce is not None and store.value.dtype.is_float
    read = sum(e.type.itemsize for e in nodes if isinstance(e, Load))
    written = store.value.dtype.itemsize * (2 if store.reduce is not None else 1)
    return StoreCount(met.path, store, met.loops, instances, operations * instances, (read + written) * instances)


def trip_count(loops: tuple[Loop, ...], env: Mapping[str, int]) -> int:
    """How often the body of nested loops runs; extents may depend on outer variables."""
    if not loops:
        return 1
    first, rest = loops[0], loops[1:]
    extent = max(eval_index(first.extent, env), 0)
    if not any(first.var in free_vars(r.extent) for r in rest):
        return extent * trip_count(rest, env) if extent else 0
    return sum(trip_count(rest, {**env, first.var: n}) for n in range(extent))


def innermost(count: StoreCount) -> Loop | None:
    """The innermost loop around a store."""
    return count.loops[-1] if count.loops else None


def accesses(store: Store) -> Iterator[Load]:
    """The target (as a load) and every load of the value, each distinct access once, in order."""
    seen: dict[Load, None] = {Load(store.buffer, store.indices, store.value.dtype): None}
    for expr in subexprs(store.value):
        if isinstance(expr, Load):
            seen.setdefault(expr)
    yield from seen


def stride_of(access: Load, loop: Loop, program: Program) -> int | None:
    """Elements (row-major) by which an access moves from iteration 0 to 1 of ``loop``, other loops at 0; ``None`` through a look-up."""
    env = program.size_env
    at = {e.name: 0 for i in access.indices for e in subexprs(i) if isinstance(e, Var)}
    shape = [eval_index(s, env) for s in buffer_table(program)[access.buffer].shape]
    offsets = []
    for step in (0, 1):
        offset = 0
        for index, extent in zip(access.indices, shape, strict=True):
            try:
                offset = offset * extent + eval_index(index, {**env, **at, **({loop.var: step} if loop.var in at else {})})
            except LeirError:
                return None
        offsets.append(offset)
    return offsets[1] - offsets[0]


def _parallel(count: StoreCount, env: Mapping[str, int]) -> int:
    outer = next((lp for lp in count.loops if lp.kind is LoopKind.PARALLEL), None)
    if outer is None:
        return 1
    try:
        return max(eval_index(outer.extent, env), 1)
    except LeirError:
        return 1


def _lanes(count: StoreCount, env: Mapping[str, int]) -> int:
    inner = innermost(count)
    if inner is None or inner.kind is not LoopKind.VECTOR:
        return 1
    try:
        return max(eval_index(inner.extent, env), 1)
    except LeirError:
        return 1
