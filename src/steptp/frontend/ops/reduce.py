"""Reductions. Sums, means and norms of 16-bit floats accumulate in f32."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from steptp.frontend.builder import MATH, Builder
from steptp.frontend.ops.matmul import round_to
from steptp.frontend.registry import Call, rule
from steptp.frontend.value import Indices, Shape, Value, as_dtype, flatten_index, product
from steptp.ir import DType, Expr, call, cast, const, ix, op, select

__all__ = ["reduced", "keep_dims", "merge_index", "moments"]

Element = Callable[[Indices], Expr]


def merge_index(outer: Indices, inner: Indices, dims: Sequence[int], rank: int) -> Indices:
    """Indices of an operand from those of the kept dims and of the reduced ``dims`` (both in order)."""
    kept, gone = iter(outer), iter(inner)
    return tuple(next(gone) if d in dims else next(kept) for d in range(rank))


def reduced(b: Builder, x: Value, dims: Sequence[int], reducer: str, element: Element, dtype: DType, stem: str) -> Value:
    """Reduce ``element`` (a function of the operand's indices) over ``dims``; the result lacks them."""
    keep = [d for d in range(x.rank) if d not in dims]
    parts = x.dims()
    return b.reduce(
        [x.shape[d] for d in keep], [x.shape[d] for d in dims], reducer, lambda i, k: element(merge_index(i, k, dims, x.rank)),
        dtype=dtype, factors=[parts[d] for d in keep], axis_factors=[parts[d] for d in dims], stem=stem,
    )  # fmt: skip


def keep_dims(value: Value, dims: Sequence[int], rank: int) -> Value:
    """Put the reduced dims back with extent 1."""
    kept = iter(range(value.rank))
    places = [None if d in dims else next(kept) for d in range(rank)]
    shape: Shape = tuple(ix(1) if p is None else value.shape[p] for p in places)
    factors = tuple((ix(1),) if p is None else value.dims()[p] for p in places)
    view = value.view(shape, lambda i: tuple(e for e, p in zip(i, places, strict=True) if p is not None), factors)
    return Value(view.shape, view.dtype, view.at, None, view.factors, value.buffer)


def _dims(c: Call, x: Value, name: str = "dim") -> tuple[int, ...]:
    if x.rank == 0:
        return ()
    return c.dims(name, x.rank) if c.has(name) else tuple(range(x.rank))


def _shaped(c: Call, value: Value, dims: Sequence[int], rank: int) -> Value:
    return keep_dims(value, dims, rank) if c.args.get("keepdim") else value


@rule("aten.sum.default", "aten.sum.dim_IntList", "aten.prod.default", "aten.prod.dim_int", "aten.count_nonzero.default", "aten.count_nonzero.dim_IntList")
def total(b: Builder, c: Call) -> Value:
    """Sum or product; bools and small integers accumulate as i64."""
    x = c.tensor("self")
    dims = _dims(c, x)
    kind = MATH.get(c.dtype, c.dtype)
    wide = as_dtype(as_dtype(x, DType.BOOL), kind) if "count" in c.name else as_dtype(x, kind)
    out = reduced(b, x, dims, "*" if ".prod." in c.name else "+", wide.at, kind, "p" if ".prod." in c.name else "s")
    return _shaped(c, round_to(b, out, c.dtype), dims, x.rank)


@rule("aten.mean.default", "aten.mean.dim")
def mean(b: Builder, c: Call) -> Value:
    """Sum, then divide by the count."""
    x = c.tensor("self")
    dims = _dims(c, x)
    kind = MATH.get(c.dtype, c.dtype)
    out = reduced(b, x, dims, "+", as_dtype(x, kind).at, kind, "s")
    count = b.count([x.shape[d] for d in dims], kind)
    return _shaped(c, b.pointwise(out.shape, c.dtype, lambda i: cast(c.dtype, out.at(i) / count), like=[out], stem="m"), dims, x.rank)


@rule("aten.amax.default", "aten.amin.default", "aten.max.default", "aten.min.default")
def extreme(b: Builder, c: Call) -> Value:
    """Largest or smallest element; NaN wins."""
    x = c.tensor("self")
    dims = _dims(c, x)
    return _shaped(c, _extreme(b, x, dims, "max" if "max" in c.name else "min"), dims, x.rank)


def _extreme(b: Builder, x: Value, dims: Sequence[int], reducer: str) -> Value:
    if x.dtype is DType.BOOL:
        reducer = {"max": "or", "min": "and"}[reducer]
    return reduced(b, x, dims, reducer, x.at, x.dtype, "m")


@rule("aten.max.dim", "aten.min.dim")
def extreme_index(b: Builder, c: Call) -> tuple[Value | None, ...]:
    """Extreme values and, if used, the first position of each."""
    x = c.tensor("self")
    dims = _dims(c, x)
    best = _extreme(b, x, dims, "max" if ".max." in c.name else "min")
    index = _position(b, x, dims, best) if c.used(1) else None
    return _shaped(c, best, dims, x.rank), None if index is None else _shaped(c, index, dims, x.rank)


@rule("aten.argmax.default", "aten.argmin.default")
def arg_extreme(b: Builder, c: Call) -> Value:
    """First position of the extreme (or of the first NaN); over all dims, the flat position."""
    x = c.tensor("self")
    dims = _dims(c, x)
    best = _extreme(b, x, dims, "max" if "max" in c.name else "min")
    return _shaped(c, _position(b, x, dims, best), dims, x.rank)


def _position(b: Builder, x: Value, dims: Sequence[int], best: Value) -> Value:
    """``min`` over the positions where ``x`` equals its extreme or is NaN; the extent stands for *not here*."""
    extents = [x.shape[d] for d in dims]
    none = product(extents)

    def element(i: Indices, k: Indices) -> Expr:
        value = x.at(merge_index(i, k, dims, x.rank))
        here: Expr = value.eq(best.at(i))
        if x.dtype.is_float:
            here = op("or", here, call("isnan", value))
        return select(here, flatten_index(k, extents), none)

    keep = [d for d in range(x.rank) if d not in dims]
    return b.reduce([x.shape[d] for d in keep], extents, "min", element, dtype=DType.I64, stem="p")


@rule("aten.any.default", "aten.any.dim", "aten.any.dims", "aten.all.default", "aten.all.dim", "aten.all.dims")
def truth(b: Builder, c: Call) -> Value:
    """Whether any or all elements are non-zero."""
    x = as_dtype(c.tensor("self"), DType.BOOL)
    dims = _dims(c, x)
    return _shaped(c, reduced(b, x, dims, "or" if ".any." in c.name else "and", x.at, DType.BOOL, "t"), dims, x.rank)


def moments(b: Builder, x: Value, dims: Sequence[int], kind: DType) -> tuple[Value, Value, Expr]:
    """Mean, sum of squared distances from it, and the count, over ``dims``: three nests (sum, mean, squares)."""
    wide = as_dtype(x, kind)
    count = b.count([x.shape[d] for d in dims], kind)
    s = reduced(b, x, dims, "+", wide.at, kind, "s")
    m = b.pointwise(s.shape, kind, lambda i: s.at(i) / count, like=[s], stem="m")

    def element(i: Indices) -> Expr:
        distance = wide.at(i) - m.at(tuple(e for d, e in enumerate(i) if d not in dims))
        return distance * distance

    return m, reduced(b, x, dims, "+", element, kind, "v"), count


@rule(
    "aten.var.correction", "aten.std.correction", "aten.var_mean.correction", "aten.std_mean.correction",
    "aten.var.default", "aten.std.default", "aten.var.dim", "aten.std.dim",
)  # fmt: skip
def variance(b: Builder, c: Call) -> Value | tuple[Value | None, ...]:
    """Two passes: mean, then squared distances over ``count - correction`` (at least 0)."""
    x = c.tensor("self")
    dims = _dims(c, x)
    kind = MATH.get(c.dtype, c.dtype)
    m, v, count = moments(b, x, dims, kind)
    correction = c.args.get("correction", None if "unbiased" not in c.args else int(c.flag("unbiased")))
    taken = 1.0 if correction is None else float(c.literal(correction, DType.F64).at(()).value)  # type: ignore[attr-defined]
    below = count if taken == 0 else call("max", count - taken, 0)

    def element(i: Indices) -> Expr:
        spread = v.at(i) / below
        return cast(c.dtype, call("sqrt", spread) if ".std" in c.name else spread)

    out = _shaped(c, b.pointwise(v.shape, c.dtype, element, like=[v]), dims, x.rank)
    return (out, _shaped(c, round_to(b, m, c.dtype), dims, x.rank)) if "_mean" in c.name else out


@rule("aten.linalg_vector_norm.default", "aten.norm.ScalarOpt_dim", "aten.norm.Scalar")
def vector_norm(b: Builder, c: Call) -> Value:
    """The p-norm over dims."""
    x = c.tensor("self")
    dims = _dims(c, x)
    kind = MATH.get(c.dtype, c.dtype)
    wide = as_dtype(x, kind)
    power = float(c.number("ord" if "linalg" in c.name else "p")) if c.has("ord") or c.has("p") else 2.0

    def size(i: Indices) -> Expr:
        return call("abs", wide.at(i))

    if power in (float("inf"), float("-inf")):
        out = reduced(b, x, dims, "max" if power > 0 else "min", size, kind, "m")
    elif power == 2:
        out = reduced(b, x, dims, "+", lambda i: wide.at(i) * wide.at(i), kind, "s")
    elif power == 1:
        out = reduced(b, x, dims, "+", size, kind, "s")
    elif power == 0:
        out = reduced(b, x, dims, "+", lambda i: cast(kind, wide.at(i).ne(0)), kind, "s")
    else:
        out = reduced(b, x, dims, "+", lambda i: call("pow", size(i), power), kind, "s")
    if power == 2:
        out = b.pointwise(out.shape, c.dtype, lambda i: cast(c.dtype, call("sqrt", out.at(i))), like=[out])
    elif power not in (0, 1, float("inf"), float("-inf")):
        whole = out
        out = b.pointwise(out.shape, c.dtype, lambda i: cast(c.dtype, call("pow", whole.at(i), const(1 / power, kind))), like=[out])
    return _shaped(c, round_to(b, out, c.dtype), dims, x.rank)


@rule("aten.logsumexp.default")
def logsumexp(b: Builder, c: Call) -> Value:
    """``log(sum(exp(x-m)))+m`` with ``m`` the maximum, or 0 where that is infinite."""
    x = c.tensor("self")
    dims = _dims(c, x)
    kind = MATH.get(c.dtype, c.dtype)
    wide = as_dtype(x, kind)
    top = reduced(b, x, dims, "max", wide.at, kind, "m")
    shift = b.pointwise(top.shape, kind, lambda i: select(call("abs", top.at(i)).eq(float("inf")), const(0, kind), top.at(i)), like=[top], stem="h")
    out = reduced(b, x, dims, "+", lambda i: call("exp", wide.at(i) - shift.at(tuple(e for d, e in enumerate(i) if d not in dims))), kind, "s")
    done = b.pointwise(out.shape, c.dtype, lambda i: cast(c.dtype, call("log", out.at(i)) + shift.at(i)), like=[out])
    return _shaped(c, done, dims, x.rank)
