"""Convolution in one to three dimensions: strided, padded, dilated, grouped, transposed."""

from __future__ import annotations

from dataclasses import replace

from steptp.frontend.builder import Builder
from steptp.frontend.ops.window import Window, all_of, window_of
from steptp.frontend.registry import Call, rule
from steptp.frontend.value import Indices, Shape, Value, is_one
from steptp.ir import Expr, cast, const, ix, op, select


@rule("aten.convolution.default")
def convolution(b: Builder, c: Call) -> Value:
    """The general form, of which the others are cases (see :func:`convolve`)."""
    return convolve(b, c, transposed=c.flag("transposed"))


@rule("aten.conv1d.default", "aten.conv2d.default", "aten.conv3d.default", "aten.conv1d.padding", "aten.conv2d.padding", "aten.conv3d.padding")
def conv(b: Builder, c: Call) -> Value:
    """A convolution; ``padding="same"`` pads ``dilation*(kernel-1)`` in all, the smaller half first."""
    return convolve(b, c, transposed=False)


@rule("aten.conv_transpose1d.default", "aten.conv_transpose2d.input", "aten.conv_transpose3d.input")
def conv_transpose(b: Builder, c: Call) -> Value:
    """The transposed form."""
    return convolve(b, c, transposed=True)


def convolve(b: Builder, c: Call, *, transposed: bool) -> Value:
    """``Y[n,o,p…] += X[n,c,p*stride+r*dilation-padding…]*W[o,c,r…]``, reads outside ``X`` giving 0; then the bias in a nest of its own.

    Groups are a loop of their own, so indices stay affine. The transposed form gathers: output position ``p`` takes from input position
    ``(p+padding-r*dilation)/stride`` where that is a whole number in range. 16-bit floats accumulate in f32 and are rounded once.
    """
    x, weight, bias = b.math(c.tensor("input")), b.math(c.tensor("weight")), c.maybe("bias")
    groups = c.integer("groups")
    rank = weight.rank - 2
    lead = x.rank - rank - 1  # batch dims: one, or none
    window = _window(b, c, weight)
    inputs = _part(b, weight.shape[0], groups) if transposed else weight.shape[1]
    outputs = weight.shape[1] if transposed else _part(b, weight.shape[0], groups)
    factors: list[Shape] = [*x.dims()[:lead], *((extent,) for extent in c.shape[lead:])]
    if groups > 1:
        factors[lead] = (ix(groups), outputs)

    def element(i: Indices, k: Indices) -> Expr:
        batch, channel, out = i[:lead], i[lead], i[lead + 1 :]
        group = b.simplify(channel // outputs) if groups > 1 else ix(0)
        source = b.simplify(group * inputs + k[0])
        if transposed:
            return _scattered(b, x, window, (*batch, source), out, k[1:]) * weight(source, channel - group * outputs, *k[1:])
        return window.read(b, x, (*batch, source), out, k[1:], 0.0) * weight(channel, *k)

    total = b.reduce(c.shape, (inputs, *weight.shape[2:]), "+", element, dtype=x.dtype, factors=factors, stem="c")
    if bias is None and total.dtype is c.dtype:
        return total
    shift = b.math(bias) if bias is not None else None

    def finish(i: Indices) -> Expr:
        value = total.at(i)
        return cast(c.dtype, value + shift(i[lead]) if shift is not None else value)

    return b.pointwise(c.shape, c.dtype, finish, like=[replace(total, buffer=None, factors=tuple(factors))])


def _window(b: Builder, c: Call, weight: Value) -> Window:
    kernel = weight.shape[2:]
    if not isinstance(c.args.get("padding"), str):
        return window_of(c, len(kernel), kernel=kernel)
    same = c.text("padding") == "same"
    window = window_of(c, len(kernel), kernel=kernel, padding=None)
    return replace(window, padding=tuple(b.simplify((r - 1) * d // 2) for r, d in zip(kernel, window.dilation, strict=True)), over=True) if same else window


def _part(b: Builder, extent: Expr, groups: int) -> Expr:
    return extent if groups == 1 else b.simplify(extent // groups)


def _scattered(b: Builder, x: Value, window: Window, lead: Indices, out: Indices, offsets: Indices) -> Expr:
    """The input element that a transposed convolution spreads to ``out`` through kernel position ``offsets``, or 0."""
    where: list[Expr] = []
    conditions: list[Expr] = []
    for d in range(window.rank):
        reach = b.simplify(out[d] + window.padding[d] - offsets[d] * window.dilation[d])
        conditions.append(ix(0) <= reach)
        if not is_one(window.stride[d]):
            conditions.append(op("%", reach, window.stride[d]).eq(0))
        where.append(b.simplify(reach // window.stride[d]))
        conditions.append(where[d] < x.shape[x.rank - window.rank + d])
    cond = all_of(conditions)
    element = x.at((*lead, *where))
    return element if cond is None else select(cond, element, const(0, element.dtype))
