"""Pooling: maximum, average and adaptive average over windows in one to three dimensions."""

from __future__ import annotations

from functools import reduce

from steptp.frontend.builder import Builder
from steptp.frontend.ops.window import Window, all_of, is_zero, window_of
from steptp.frontend.registry import Call, Result, rule
from steptp.frontend.value import Indices, Shape, Value, flatten_index, is_one, same_shape
from steptp.ir import Const, DType, Expr, Stmt, Var, call, cast, const, identity_of, ix, op, same_index
from steptp.ir.walk import free_vars, substitute


def _lead(x: Value, rank: int) -> tuple[Shape, ...]:
    """Loop factors: those of the batch and channel dims, none for the windows."""
    return (*x.dims()[: x.rank - rank], *((extent,) for extent in x.shape[x.rank - rank :]))


@rule("aten.max_pool1d.default", "aten.max_pool2d.default", "aten.max_pool3d.default")
def max_pool(b: Builder, c: Call) -> Value:
    """``Y[…,p] max= X[…,p*stride+r*dilation-padding]``, reads outside giving -inf."""
    rank = int(c.name[len("aten.max_pool")])
    x = c.tensor("self")
    window = window_of(c, rank, kernel=c.extents("kernel_size"))
    return _largest(b, c, x, window)


@rule("aten.max_pool2d_with_indices.default", "aten.max_pool3d_with_indices.default")
def max_pool_with_indices(b: Builder, c: Call) -> Result:
    """The maximum, and where it was (first of equals, last of NaNs) as a flat position in the plane, if that is used."""
    rank = int(c.name[len("aten.max_pool")])
    x = c.tensor("self")
    window = window_of(c, rank, kernel=c.extents("kernel_size"))
    if not c.used(1):
        return _largest(b, c, x, window), None
    best, at = b.declare(c.shape, c.dtype, "m"), b.declare(c.shape, DType.I64, "w")
    variables, i = b.axes(c.shape, _lead(x, rank))
    offsets = [b.axis(extent) for extent in window.kernel]
    lead, out = i[:-rank], i[-rank:]
    where = [b.simplify(window.at(d, out[d], offsets[d])) for d in range(rank)]
    plane = x.shape[-rank:]
    element = x.at((*lead, *where))
    starts = [window.start(d, out[d]) if is_zero(window.padding[d]) else call("max", window.start(d, out[d]), ix(0)) for d in range(rank)]
    better: Stmt = b.guard(
        op("or", element > best.at(i), call("isnan", element)) if c.dtype.is_float else element > best.at(i),
        b.store(at, i, flatten_index(where, plane)), b.store(best, i, element),
    )  # fmt: skip
    inside = all_of([cond for d in range(rank) for cond in window.inside(d, where[d], plane[d])])
    step = b.guard(inside, better) if inside is not None else better
    b.emit(b.loops(variables, b.store(best, i, identity_of("max", c.dtype)), b.store(at, i, flatten_index(starts, plane)), b.loops(offsets, step)))
    return best, at


def _largest(b: Builder, c: Call, x: Value, window: Window) -> Value:
    rank = window.rank
    if not c.dtype.is_float:
        raise c.refuse("max pooling of integers has no translation", hint="cast to float first")
    return b.reduce(
        c.shape, window.kernel, "max", lambda i, k: window.read(b, x, i[:-rank], i[-rank:], k, float("-inf")), dtype=c.dtype, factors=_lead(x, rank), stem="m"
    )


@rule("aten.avg_pool1d.default", "aten.avg_pool2d.default", "aten.avg_pool3d.default")
def avg_pool(b: Builder, c: Call) -> Value:
    """``T[…,p] += X[…,window]`` and ``Y = T/count``; the count leaves out padding where the arguments say so."""
    rank = int(c.name[len("aten.avg_pool")])
    x = b.math(c.tensor("self"))
    window = window_of(c, rank, kernel=c.extents("kernel_size"), dilation=None)
    total = b.reduce(c.shape, window.kernel, "+", lambda i, k: window.read(b, x, i[:-rank], i[-rank:], k, 0.0), dtype=x.dtype, factors=_lead(x, rank), stem="s")
    fixed = c.extent("divisor_override") if c.has("divisor_override") else None

    def counts(out: Indices) -> list[Expr]:
        if fixed is not None:
            return [fixed]
        return [_covered(window, d, out[d], x.shape[x.rank - rank + d], c.flag("count_include_pad")) for d in range(rank)]

    def mean(i: Indices) -> Expr:
        return cast(c.dtype, total.at(i) / _number(b, counts(i[-rank:]), x.dtype))

    return b.pointwise(c.shape, c.dtype, mean, like=[Value(c.shape, x.dtype, total.at, None, _lead(x, rank)) if x.factors else total])


def _number(b: Builder, counts: list[Expr], dtype: DType) -> Expr:
    """The product of ``counts`` as a float: one factor for those that are the same everywhere, one for each of the others."""
    fixed: Expr = ix(1)
    factors: list[Expr] = []
    for count in map(b.simplify, counts):
        if free_vars(count):
            factors.append(cast(dtype, count))
        else:
            fixed = b.simplify(fixed * count)
    whole = const(fixed.value, dtype) if isinstance(fixed, Const) else cast(dtype, fixed)
    return reduce(op_times, factors if factors and is_one(fixed) else [*factors, whole])


def op_times(a: Expr, b: Expr) -> Expr:
    return a * b


def _covered(window: Window, d: int, out: Expr, extent: Expr, include_pad: bool) -> Expr:
    """How many positions of the window in dim ``d`` count."""
    kernel, padding, start = window.kernel[d], window.padding[d], window.start(d, out)
    if include_pad:
        return call("min", kernel, extent + padding - start) if window.over else kernel
    if is_zero(padding):
        return call("min", kernel, extent - start) if window.over else kernel
    return call("min", start + kernel, extent) - call("max", start, ix(0))


@rule("aten._adaptive_avg_pool2d.default", "aten._adaptive_avg_pool3d.default", "aten.adaptive_avg_pool1d.default",
      "aten.adaptive_avg_pool2d.default", "aten.adaptive_avg_pool3d.default")  # fmt: skip
def adaptive_avg_pool(b: Builder, c: Call) -> Value:
    """The mean over ``[p*H//P, ceil((p+1)*H/P))``; equal windows where ``P`` divides ``H`` as an expression."""
    rank = int(c.name[c.name.index("pool") + 4])
    x = b.math(c.tensor("self"))
    lead, zero, one = x.rank - rank, ix(0), ix(1)
    shape = c.shape
    starts: list[Expr] = []
    counts: list[Expr] = []
    variables, i = b.axes(shape, tuple(_lead(x, rank)))
    start: Expr
    count: Expr
    for d in range(rank):
        extent, wanted, p = x.shape[lead + d], shape[lead + d], i[lead + d]
        if same_shape((extent,), (wanted,)):
            start, count = p, one
        elif is_one(wanted):
            start, count = zero, extent
        elif same_index(b.simplify(extent // wanted) * wanted, extent):
            count = b.simplify(extent // wanted)
            start = b.simplify(p * count)
        else:
            start = b.simplify(p * extent // wanted)
            count = b.simplify(((p + 1) * extent + wanted - 1) // wanted - start)
        starts.append(start)
        counts.append(count)
    total = b.declare(shape, x.dtype, "s")
    offsets = [b.axis(count) for count in counts]
    if not any(b.extents.get(getattr(o, "name", "")) is not None for o in offsets):
        offsets[-1] = b.axis(ix(1), keep=True)
    where = [b.simplify(start + offset) for start, offset in zip(starts, offsets, strict=True)]
    b.emit(b.loops([*variables, *offsets], b.store(total, i, x.at((*i[:lead], *where)), "+")))

    def mean(j: Indices) -> Expr:
        here = {v.name: e for v, e in zip(i, j, strict=True) if isinstance(v, Var)}
        return cast(c.dtype, total.at(j) / _number(b, [substitute(count, here) for count in counts], x.dtype))

    return b.pointwise(shape, c.dtype, mean, like=[Value(shape, x.dtype, total.at, None, _lead(x, rank)) if x.factors else total])
