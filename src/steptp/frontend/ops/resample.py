"""Nearest-neighbour resizing, distances between rows, and sums through index tensors."""

from __future__ import annotations

from steptp.frontend.builder import MATH, Builder
from steptp.frontend.ops.matmul import round_to
from steptp.frontend.registry import Call, rule
from steptp.frontend.value import Indices, Value, as_dtype, broadcast_to, is_one
from steptp.ir import DType, Expr, call, cast, const, same_index, simplify_index


@rule(
    "aten.upsample_nearest1d.vec", "aten.upsample_nearest2d.vec", "aten.upsample_nearest3d.vec",
    "aten.upsample_nearest1d.default", "aten.upsample_nearest2d.default", "aten.upsample_nearest3d.default",
)  # fmt: skip
def upsample_nearest(b: Builder, c: Call) -> Value:
    """``x[i//s]`` for whole factors ``s``, ``x[i*in//out]`` otherwise."""
    x = c.tensor("input" if c.has("input") else "self")

    def source(d: int, i: Expr) -> Expr:
        if d < 2 or same_index(c.shape[d], x.shape[d]):
            return i
        factor = simplify_index(c.shape[d] // x.shape[d])
        if same_index(factor * x.shape[d], c.shape[d]):
            return i // factor
        return i * x.shape[d] // c.shape[d]

    return b.pointwise(c.shape, c.dtype, lambda i: x.at(tuple(source(d, e) for d, e in enumerate(i))))


@rule("aten._cdist_forward.default")
def cdist(b: Builder, c: Call) -> Value:
    """p-norms of the differences of all pairs of rows."""
    power = float(c.number("p"))
    if power not in (1, 2):
        raise c.refuse(f"the {power}-norm is not translated", "use p=1 or p=2")
    kind = MATH.get(c.dtype, c.dtype)
    lead = c.shape[:-2]
    x, y = (as_dtype(broadcast_to(v, (*lead, *v.shape[-2:])), kind) for v in (c.tensor("x1"), c.tensor("x2")))

    def element(i: Indices, k: Indices) -> Expr:
        difference = x.at((*i[:-1], *k)) - y.at((*i[:-2], i[-1], *k))
        return difference * difference if power == 2 else call("abs", difference)

    s = b.reduce(c.shape, (x.shape[-1],), "+", element, dtype=kind, stem="s")
    if power == 2:
        return b.pointwise(c.shape, c.dtype, lambda i: cast(c.dtype, call("sqrt", s.at(i))), like=[s])
    return round_to(b, s, c.dtype)


@rule("aten.scatter_add.default", "aten.index_add.default")
def scatter_add(b: Builder, c: Call) -> Value:
    """A copy of ``self``, then a serial accumulation through the index tensor."""
    x, index, source = c.tensor("self"), c.tensor("index"), as_dtype(c.tensor("src" if c.has("src") else "source"), c.dtype)
    if c.dtype in MATH:
        raise c.refuse("sums of 16-bit floats through an index tensor are not translated", "cast to f32 first")
    dim = c.dim("dim", x.rank)
    b.bound(index, x.shape[dim])
    table = as_dtype(index, DType.I64)
    target = b.declare(c.shape, c.dtype, "t")
    variables, indices = b.axes(c.shape)
    b.emit(b.loops(variables, b.store(target, indices, x.at(indices))))
    scatter = "scatter" in c.name
    inner = list(index.shape) if scatter else [index.shape[0] if d == dim and index.rank else e for d, e in enumerate(source.shape)]
    again = [b.axis(e, keep=is_one(e)) for e in inner]
    place = [table.at(tuple(again) if scatter else (again[dim],)[: index.rank]) if d == dim else e for d, e in enumerate(again)]
    scale = c.literal(c.args.get("alpha", 1), c.dtype).at(())
    value = source.at(tuple(again))
    b.emit(b.loops(again, b.store(target, place, value if scale == const(1, c.dtype) else value * scale, "+", carry=True)))
    return target
