"""Softmax and normalisations, computed in f32 for 16-bit floats."""

from __future__ import annotations

from collections.abc import Sequence

from steptp.frontend.builder import MATH, Builder
from steptp.frontend.ops.reduce import keep_dims, moments, reduced
from steptp.frontend.registry import Call, rule
from steptp.frontend.value import Indices, Shape, Value, as_dtype, reshape
from steptp.ir import DType, Expr, call, cast, const, op, simplify_index

__all__ = ["drop", "affine"]


def drop(indices: Indices, dims: Sequence[int]) -> Indices:
    """``indices`` without those of ``dims``."""
    return tuple(e for d, e in enumerate(indices) if d not in dims)


@rule("aten._softmax.default", "aten.softmax.int", "aten._log_softmax.default", "aten.log_softmax.int", "aten._safe_softmax.default")
def softmax(b: Builder, c: Call) -> Value:
    """Maximum, sum of exponentials, then ``exp(x-m)/s`` or ``x-m-log(s)``."""
    x = c.tensor("self")
    if x.rank == 0:
        return as_dtype(c.literal(0 if "log" in c.name else 1, c.dtype), c.dtype)
    dims = (c.dim("dim", x.rank),)
    kind = MATH.get(c.dtype, c.dtype)
    wide = as_dtype(x, kind)
    m = reduced(b, x, dims, "max", wide.at, kind, "m")
    if "safe" in c.name:  # a row of -inf gives zeros
        top = m
        m = b.pointwise(m.shape, kind, lambda i: op("select", top.at(i).eq(float("-inf")), const(0, kind), top.at(i)), like=[top], stem="h")
    s = reduced(b, x, dims, "+", lambda i: call("exp", wide.at(i) - m.at(drop(i, dims))), kind, "s")

    def element(i: Indices) -> Expr:
        at = drop(i, dims)
        centred = wide.at(i) - m.at(at)
        if "log" in c.name:
            return cast(c.dtype, centred - call("log", s.at(at)))
        if "safe" in c.name:
            return cast(c.dtype, op("select", s.at(at).eq(0), const(0, kind), call("exp", centred) / s.at(at)))
        return cast(c.dtype, call("exp", centred) / s.at(at))

    return b.pointwise(c.shape, c.dtype, element, like=[x], stem="y")


def affine(x: Value, dims: Sequence[int], m: Value, v: Value, count: Expr | None, eps: Expr, scale: Value | None, shift: Value | None, dtype: DType) -> Value:
    """``(x-m)*rsqrt(v/count+eps)*scale+shift`` (``count`` None: ``v`` is the variance), not yet in memory.

    ``scale`` and ``shift`` already have the shape of ``x``; ``m`` and ``v`` lack ``dims``.
    """
    kind = m.dtype
    wide, gain, bias = as_dtype(x, kind), scale and as_dtype(scale, kind), shift and as_dtype(shift, kind)

    def element(i: Indices) -> Expr:
        at = drop(i, dims)
        spread = v.at(at) if count is None else v.at(at) / count
        out: Expr = (wide.at(i) - m.at(at)) * call("rsqrt", spread + eps)
        out = out * gain.at(i) if gain is not None else out
        out = out + bias.at(i) if bias is not None else out
        return cast(dtype, out)

    return Value(x.shape, dtype, element, None, x.factors)


def _along(value: Value | None, shape: Shape, dims: Sequence[int]) -> Value | None:
    """A parameter over ``dims`` of ``shape``, as a value of the whole shape."""
    return None if value is None else value.view(shape, lambda i: tuple(i[d] for d in dims))


def _rstd(v: Value, count: Expr, eps: Expr) -> Value:
    return v.map(v.dtype, lambda e: call("rsqrt", e / count + eps))


@rule("aten.native_layer_norm.default", "aten.layer_norm.default")
def layer_norm(b: Builder, c: Call) -> Value | tuple[Value | None, ...]:
    """Mean and variance over the trailing dims, then scale and shift."""
    x = c.tensor("input")
    dims = tuple(range(x.rank - len(c.extents("normalized_shape")), x.rank))
    kind = MATH.get(x.dtype, x.dtype)
    eps = const(c.number("eps"), kind)
    m, v, count = moments(b, x, dims, kind)
    scale, shift = (_along(c.maybe(k), x.shape, dims) for k in ("weight", "bias"))
    y = b.materialise(affine(x, dims, m, v, count, eps, scale, shift, c.dtype), "y")
    if "native" not in c.name:
        return y
    return y, keep_dims(m, dims, x.rank), keep_dims(_rstd(v, count, eps), dims, x.rank)


@rule("aten.rms_norm.default", "aten._fused_rms_norm.default")
def rms_norm(b: Builder, c: Call) -> Value | tuple[Value | None, ...]:
    """``x*rsqrt(mean(x*x)+eps)*weight``."""
    import torch

    x = c.tensor("input")
    dims = tuple(range(x.rank - len(c.extents("normalized_shape")), x.rank))
    kind = MATH.get(x.dtype, x.dtype)
    smallest = {DType.F64: torch.float64}.get(kind, torch.float32)
    eps = const(c.number("eps") if c.has("eps") else torch.finfo(smallest).eps, kind)
    wide = as_dtype(x, kind)
    count = b.count([x.shape[d] for d in dims], kind)
    v = reduced(b, x, dims, "+", lambda i: wide.at(i) * wide.at(i), kind, "v")
    weight = _along(c.maybe("weight"), x.shape, dims)
    gain = None if weight is None else as_dtype(weight, kind)

    def element(i: Indices) -> Expr:
        out: Expr = wide.at(i) * call("rsqrt", v.at(drop(i, dims)) / count + eps)
        return cast(c.dtype, out if gain is None else out * gain.at(i))

    y = b.pointwise(x.shape, c.dtype, element, like=[x], stem="y")
    return (y, keep_dims(_rstd(v, count, eps), dims, x.rank)) if "fused" in c.name else y


@rule("aten.group_norm.default", "aten.native_group_norm.default")
def group_norm(b: Builder, c: Call) -> Value | tuple[Value | None, ...]:
    """Mean and variance over each group of channels and all positions."""
    x = c.tensor("input")
    groups = c.extent("num_groups" if c.has("num_groups") else "group")
    inner = simplify_index(x.shape[1] // groups)
    split = reshape(x, (x.shape[0], groups, inner, *x.shape[2:]))
    dims = tuple(range(2, split.rank))
    kind = MATH.get(x.dtype, x.dtype)
    eps = const(c.number("eps"), kind)
    m, v, count = moments(b, split, dims, kind)
    params = [None if (p := c.maybe(k)) is None else reshape(p, (groups, inner)) for k in ("weight", "bias")]
    scale, shift = (_along(p, split.shape, (1, 2)) for p in params)
    y = b.materialise(reshape(affine(split, dims, m, v, count, eps, scale, shift, c.dtype), x.shape), "y")
    return (y, m, _rstd(v, count, eps)) if "native" in c.name else y


@rule("aten.instance_norm.default")
def instance_norm(b: Builder, c: Call) -> Value:
    """Mean and variance over the positions of each channel of each sample."""
    x = c.tensor("input")
    if not c.flag("use_input_stats") or c.has("running_mean"):
        raise c.refuse("running statistics are not translated", "use track_running_stats=False")
    dims = tuple(range(2, x.rank))
    kind = MATH.get(x.dtype, x.dtype)
    m, v, count = moments(b, x, dims, kind)
    scale, shift = (_along(c.maybe(k), x.shape, (1,)) for k in ("weight", "bias"))
    return b.materialise(affine(x, dims, m, v, count, const(c.number("eps"), kind), scale, shift, c.dtype), "y")


@rule("aten._native_batch_norm_legit_functional.default", "aten._native_batch_norm_legit.no_stats", "aten.batch_norm.default")
def batch_norm_training(b: Builder, c: Call) -> tuple[Value | None, ...]:
    """Batch statistics over all dims but the channels; running statistics as further results."""
    x = c.tensor("input")
    dims = tuple(d for d in range(x.rank) if d != 1)
    kind = MATH.get(x.dtype, x.dtype)
    scale, shift = (_along(c.maybe(k), x.shape, (1,)) for k in ("weight", "bias"))
    eps = const(c.number("eps"), kind)
    if not c.args.get("training", True):
        y = _with_running(b, c, x, scale, shift)
        kept = (c.maybe("running_mean"), c.maybe("running_var")) if "functional" in c.name else (None, None)
        return (y, None, None, *kept)
    m, v, count = moments(b, x, dims, kind)
    y = b.materialise(affine(x, dims, m, v, count, eps, scale, shift, c.dtype), "y")
    results: list[Value | None] = [y, m, _rstd(v, count, eps)]
    for name, new in (("running_mean", m), ("running_var", v.map(kind, lambda e: e / (count - 1)))):  # the variance is unbiased
        old = c.maybe(name)
        if old is not None:
            results.append(_running(b, c, old, new) if c.used(len(results)) or "aten.batch_norm" in c.name else None)
        elif "aten.batch_norm" in c.name:
            results.append(None)
    return tuple(results)


def _running(b: Builder, c: Call, old: Value, new: Value) -> Value:
    """``(1-momentum)*old + momentum*new``."""
    momentum = float(c.number("momentum"))
    kind = new.dtype
    before = as_dtype(old, kind)
    return b.pointwise(old.shape, old.dtype, lambda i: cast(old.dtype, before.at(i) * (1 - momentum) + new.at(i) * momentum), stem="r")


@rule("aten._native_batch_norm_legit_no_training.default")
def batch_norm_eval(b: Builder, c: Call) -> tuple[Value | None, ...]:
    """Running statistics as they are."""
    x = c.tensor("input")
    scale, shift = (_along(c.maybe(k), x.shape, (1,)) for k in ("weight", "bias"))
    return _with_running(b, c, x, scale, shift), None, None


def _with_running(b: Builder, c: Call, x: Value, scale: Value | None, shift: Value | None) -> Value:
    kind = MATH.get(x.dtype, x.dtype)
    dims = tuple(d for d in range(x.rank) if d != 1)
    m, v = as_dtype(c.tensor("running_mean"), kind), as_dtype(c.tensor("running_var"), kind)
    return b.materialise(affine(x, dims, m, v, None, const(c.number("eps"), kind), scale, shift, c.dtype), "y")
