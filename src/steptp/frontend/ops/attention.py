"""Scaled dot-product attention as four nests: scores, row maximum, row sum, weights times values."""

from __future__ import annotations

from steptp.frontend.builder import Builder
from steptp.frontend.registry import Call, rule
from steptp.frontend.value import Indices, Value, broadcast_to
from steptp.ir import Const, DType, Expr, call, cast, const, op, same_index, select


@rule("aten.scaled_dot_product_attention.default")
def attention(b: Builder, c: Call) -> Value:
    """``softmax(Q·Kᵀ·scale + mask)·V`` over the last two dims, with the row maximum subtracted.

    A bool mask keeps where true; a row with nothing kept gives 0, as in PyTorch. 16-bit floats are computed in f32 throughout.
    """
    if c.number("dropout_p"):
        raise c.refuse("dropout is active", hint="pass dropout_p=0.0")
    query, key, value = (b.math(c.tensor(name)) for name in ("query", "key", "value"))
    mask, dtype = c.maybe("attn_mask"), query.dtype
    lead, rows, cols, depth = c.shape[:-2], query.shape[-2], key.shape[-2], query.shape[-1]
    shape = (*lead, rows, cols)
    if c.flag("enable_gqa"):
        key, value = _repeat(b, key, query), _repeat(b, value, query)
    if not same_index(cols, value.shape[-2]):  # the tracer does not compare the two
        b.require(op("==", cols, value.shape[-2]))
    q, k, v = (broadcast_to(t, (*lead, *t.shape[-2:])) for t in (query, key, value))

    dots = b.reduce(shape, (depth,), "+", lambda i, r: q(*i[:-1], *r) * k(*i[:-2], i[-1], *r), dtype=dtype, stem="s")
    shown = None if mask is None else broadcast_to(mask, shape)

    def score(i: Indices) -> Expr:
        scaled = _scaled(c, dots.at(i), depth)
        if shown is not None:
            scaled = select(shown.at(i), scaled, const(float("-inf"), dtype)) if shown.dtype is DType.BOOL else scaled + cast(dtype, shown.at(i))
        return select(i[-1] <= i[-2], scaled, const(float("-inf"), dtype)) if c.flag("is_causal") else scaled

    scores = b.pointwise(shape, dtype, score, stem="s")
    top = b.reduce((*lead, rows), (cols,), "max", lambda i, r: scores(*i, *r), dtype=dtype, stem="m")
    total = b.reduce((*lead, rows), (cols,), "+", lambda i, r: call("exp", scores(*i, *r) - top.at(i)), dtype=dtype, stem="d")

    def weight(i: Indices) -> Expr:
        part = call("exp", scores.at(i) - top.at(i[:-1])) / total.at(i[:-1])
        return part if mask is None else select(top.at(i[:-1]).eq(const(float("-inf"), dtype)), const(0, dtype), part)

    weights = b.pointwise(shape, dtype, weight, stem="p")
    out = b.reduce(c.shape, (cols,), "+", lambda i, r: weights(*i[:-1], *r) * v(*i[:-2], *r, i[-1]), dtype=dtype, stem="o")
    if out.dtype is c.dtype:
        return out
    return b.pointwise(c.shape, c.dtype, lambda i: cast(c.dtype, out.at(i)), like=[out])


def _scaled(c: Call, dot: Expr, depth: Expr) -> Expr:
    if c.has("scale"):
        return dot * c.literal(c.args["scale"], dot.dtype).at(())
    if isinstance(depth, Const):
        return dot * const(float(depth.value) ** -0.5, dot.dtype)
    return dot / call("sqrt", cast(dot.dtype, depth))


def _repeat(b: Builder, shared: Value, query: Value) -> Value:
    """Heads of ``shared`` (dim -3) repeated to the query's: head ``h`` reads ``h//(heads/shared heads)``."""
    heads, own = query.shape[-3], shared.shape[-3]
    times = b.simplify(op("//", heads, own))
    shape = (*shared.shape[:-3], heads, *shared.shape[-2:])
    return shared.view(shape, lambda i: (*i[:-3], b.simplify(i[-3] // times), *i[-2:]))
