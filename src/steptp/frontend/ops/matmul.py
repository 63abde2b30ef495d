"""Matrix products."""

from __future__ import annotations

from steptp.frontend.builder import Builder
from steptp.frontend.registry import Call, rule
from steptp.frontend.value import Value
from steptp.ir import DType


@rule("aten.mm.default")
def mm(b: Builder, c: Call) -> Value:
    """``C[i,j] += A[i,k]*B[k,j]``; 16-bit floats accumulate in f32."""
    return product(b, c, c.tensor("self"), c.tensor("mat2"))


def product(b: Builder, c: Call, x: Value, y: Value) -> Value:
    """Matrix product of two rank-2 values, in the result dtype."""
    left, right = b.math(x), b.math(y)
    out = b.reduce(
        (x.shape[0], y.shape[1]), (x.shape[1],), "+", lambda i, k: left(i[0], k[0]) * right(k[0], i[1]),
        dtype=left.dtype, axis_factors=x.dims()[1:], stem="c",
    )  # fmt: skip
    return round_to(b, out, c.dtype)


def round_to(b: Builder, value: Value, dtype: DType) -> Value:
    """The value rounded to ``dtype`` in a nest of its own (none if it has that dtype)."""
    if value.dtype is dtype:
        return value
    narrow = b.to(value, dtype)
    return b.pointwise(value.shape, dtype, narrow.at, like=[value])
