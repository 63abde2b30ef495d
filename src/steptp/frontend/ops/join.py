"""Operators that assemble a tensor from parts: concatenation, padding, writes into slices."""

from __future__ import annotations

from functools import reduce

from steptp.frontend.builder import Builder
from steptp.frontend.ops.views import offset
from steptp.frontend.registry import Call, rule
from steptp.frontend.value import Indices, Value, as_dtype, broadcast_to
from steptp.ir import Const, Expr, ix, op, select, simplify_index


@rule("aten.cat.default", "aten.concat.default", "aten.concatenate.default")
def cat(b: Builder, c: Call) -> Value:
    """One nest for each part, into slices of one array."""
    parts = [v for v in c.tensors("tensors") if not (v.rank == 1 and len(c.shape) != 1 and isinstance(v.shape[0], Const) and v.shape[0].value == 0)]
    dim = c.dim("dim", len(c.shape))
    target = b.declare(c.shape, c.dtype, "t")
    start: Expr = ix(0)
    for part in parts:
        x = as_dtype(part, c.dtype)
        variables, indices = b.axes(x.shape, x.dims())
        place = (*indices[:dim], indices[dim] + start, *indices[dim + 1 :])
        b.emit(b.loops(variables, b.store(target, place, x.at(indices))))
        start = simplify_index(start + x.shape[dim])
    return target


@rule("aten.stack.default")
def stack(b: Builder, c: Call) -> Value:
    """One nest for each part, into positions of a new dim."""
    dim = c.dim("dim", len(c.shape))
    target = b.declare(c.shape, c.dtype, "t")
    for number, part in enumerate(c.tensors("tensors")):
        x = as_dtype(part, c.dtype)
        variables, indices = b.axes(x.shape, x.dims())
        b.emit(b.loops(variables, b.store(target, (*indices[:dim], ix(number), *indices[dim:]), x.at(indices))))
    return target


@rule("aten.constant_pad_nd.default")
def constant_pad(b: Builder, c: Call) -> Value:
    """A select on the index of each padded dim; negative padding crops."""
    x, pads = c.tensor("self"), c.extents("pad")
    fill = c.literal(c.args.get("value", 0), c.dtype).at(())
    return pad(b, x, c.shape, pads, fill)


def pad(b: Builder, x: Value, shape: tuple[Expr, ...], pads: tuple[Expr, ...], fill: Expr) -> Value:
    """``x`` in ``shape``, moved by ``pads`` (pairs before and after, last dim first), ``fill`` elsewhere."""
    before = {x.rank - 1 - n // 2: pads[n] for n in range(0, len(pads), 2)}
    after = {x.rank - 1 - n // 2: pads[n + 1] for n in range(0, len(pads), 2)}

    def element(i: Indices) -> Expr:
        inner = tuple(e - before[d] if d in before else e for d, e in enumerate(i))
        conditions: list[Expr] = []
        for d in sorted(before):
            if _positive(before[d]):
                conditions.append(i[d] >= before[d])
            if _positive(after[d]):
                conditions.append(i[d] < simplify_index(before[d] + x.shape[d]))
        value = x.at(inner)
        return select(reduce(lambda p, q: op("and", p, q), conditions), value, fill) if conditions else value

    return b.pointwise(shape, x.dtype, element)


def _positive(extent: Expr) -> bool:
    return not isinstance(extent, Const) or extent.value > 0


@rule("aten.pad.default")
def pad_mode(b: Builder, c: Call) -> Value:
    """Constant, reflect, replicate or circular padding."""
    x, pads, mode = c.tensor("self"), c.extents("pad"), c.text("mode")
    if mode == "constant":
        fill = c.literal(c.args.get("value") or 0, c.dtype).at(())
        return pad(b, x, c.shape, pads, fill)
    before = {x.rank - 1 - n // 2: pads[n] for n in range(0, len(pads), 2)}

    def source(d: int, e: Expr) -> Expr:
        n, at = x.shape[d], e - before[d]
        if mode == "circular":
            return at % n
        if mode == "replicate":
            return op("max", op("min", at, n - 1), 0)
        return n - 1 - op("abs", n - 1 - op("abs", at))

    return b.pointwise(c.shape, c.dtype, lambda i: x.at(tuple(source(d, e) if d in before else e for d, e in enumerate(i))))


@rule("aten.slice_scatter.default", "aten.select_scatter.default")
def scatter_slice(b: Builder, c: Call) -> Value:
    """``self`` with a slice (or one position) of a dim replaced by ``src``."""
    x, src = c.tensor("self"), as_dtype(c.tensor("src"), c.dtype)
    dim = c.dim("dim", x.rank)
    if "select" in c.name:
        index = offset(c.extent("index"), x.shape[dim])
        return b.pointwise(c.shape, c.dtype, lambda i: select(i[dim].eq(index), src.at((*i[:dim], *i[dim + 1 :])), x.at(i)), like=[x])
    start = offset(c.extent("start"), x.shape[dim]) if c.has("start") else ix(0)
    step = c.integer("step")
    src = broadcast_to(src, (*c.shape[:dim], src.shape[dim], *c.shape[dim + 1 :]))

    def element(i: Indices) -> Expr:
        at = i[dim] - start
        inside = op("and", i[dim] >= start, at < src.shape[dim] * step)
        inside = op("and", inside, (at % step).eq(0)) if step > 1 else inside
        return select(inside, src.at((*i[:dim], at // step, *i[dim + 1 :])), x.at(i))

    return b.pointwise(c.shape, c.dtype, element)
