"""Running sums, products and maxima along one dim, as first-order recurrences."""

from __future__ import annotations

from steptp.frontend.builder import Builder
from steptp.frontend.registry import Call, rule
from steptp.frontend.value import Indices, Value, as_dtype
from steptp.ir import Expr, cast, const, op, select


@rule("aten.cumsum.default", "aten.cumprod.default")
def scan(b: Builder, c: Call) -> Value:
    """``Y[i,j] = select(j>0, Y[i,j-1], 0)+X[i,j]``; 16-bit floats keep the running value in f32."""
    x = b.math(as_dtype(c.tensor("self"), c.dtype))
    sign, start = ("+", 0) if "cumsum" in c.name else ("*", 1)
    if x.rank == 0:
        return as_dtype(x, c.dtype)
    dim = c.dim("dim", x.rank)
    state = b.declare(c.shape, x.dtype, "s")
    variables, i = b.axes(c.shape)
    before = (*i[:dim], i[dim] - 1, *i[dim + 1 :])
    running = select(i[dim] > 0, state.at(before), const(start, x.dtype))
    b.emit(b.loops(variables, b.store(state, i, op(sign, running, x.at(i)))))
    if state.dtype is c.dtype:
        return state

    def narrow(j: Indices) -> Expr:
        return cast(c.dtype, state.at(j))

    return b.pointwise(c.shape, c.dtype, narrow, like=[state])
