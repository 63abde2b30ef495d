"""Views: other index functions over the same elements. Nothing is copied."""

from __future__ import annotations

from collections.abc import Sequence

from steptp.frontend.builder import Builder
from steptp.frontend.registry import Call, rule
from steptp.frontend.value import Indices, Shape, Value, broadcast_to, product, reshape, same_shape
from steptp.ir import Const, Expr, ix, simplify_index

__all__ = ["permute", "slice_dim", "offset"]


@rule(
    "aten.view.default", "aten._unsafe_view.default", "aten.reshape.default", "aten.flatten.using_ints", "aten.unflatten.int",
    "aten.unsqueeze.default", "aten.squeeze.default", "aten.squeeze.dim", "aten.squeeze.dims", "aten.view_as.default", "aten.view_copy.default",
    "aten.reshape_as.default", "aten.ravel.default",
)  # fmt: skip
def view(b: Builder, c: Call) -> Value:
    """Row-major reshape."""
    return reshape(c.tensor("self"), c.shape)


def permute(x: Value, order: Sequence[int]) -> Value:
    """Reorder dims: dim ``d`` of the result is dim ``order[d]`` of ``x``."""
    if tuple(order) == tuple(range(x.rank)):
        return x
    place = {old: new for new, old in enumerate(order)}
    return x.view([x.shape[d] for d in order], lambda i: tuple(i[place[d]] for d in range(x.rank)), tuple(x.dims()[d] for d in order))


@rule("aten.permute.default", "aten.permute_copy.default")
def permute_rule(b: Builder, c: Call) -> Value:
    """Reorder dims."""
    x = c.tensor("self")
    return permute(x, [d + x.rank if d < 0 else d for d in c.integers("dims")])


@rule("aten.transpose.int", "aten.t.default", "aten.numpy_T.default", "aten.mT.default", "aten.swapaxes.default", "aten.matrix_H.default")
def transpose(b: Builder, c: Call) -> Value:
    """Swap two dims."""
    x = c.tensor("self")
    if c.name in ("aten.numpy_T.default",):
        return permute(x, list(range(x.rank))[::-1])
    if x.rank < 2:
        return x
    p, q = (c.dim("dim0", x.rank), c.dim("dim1", x.rank)) if "transpose" in c.name else (x.rank - 2, x.rank - 1)
    if "swapaxes" in c.name:
        p, q = c.dim("axis0", x.rank), c.dim("axis1", x.rank)
    order = list(range(x.rank))
    order[p], order[q] = order[q], order[p]
    return permute(x, order)


@rule("aten.movedim.int", "aten.movedim.intlist", "aten.moveaxis.int", "aten.moveaxis.intlist")
def movedim(b: Builder, c: Call) -> Value:
    """Move dims to other places."""
    x = c.tensor("self")
    source = [d % x.rank for d in c.integers("source")]
    target = [d % x.rank for d in c.integers("destination")]
    order = [-1] * x.rank
    for s, t in zip(source, target, strict=True):
        order[t] = s
    rest = iter(d for d in range(x.rank) if d not in source)
    return permute(x, [next(rest) if d < 0 else d for d in order])


@rule("aten.expand.default", "aten.expand_as.default", "aten.expand_copy.default", "aten.broadcast_to.default")
def expand(b: Builder, c: Call) -> Value:
    """Repeat literal-1 dims."""
    return broadcast_to(c.tensor("self"), c.shape)


def offset(start: Expr, extent: Expr) -> Expr:
    """A slice start counted from 0 (negative literals count from the end), at most ``extent`` where both are literals."""
    if isinstance(start, Const) and start.value < 0:
        start = simplify_index(start + extent)
    if isinstance(start, Const) and isinstance(extent, Const):
        return ix(max(0, min(int(start.value), int(extent.value))))
    return start


def slice_dim(x: Value, dim: int, start: Expr, length: Expr, step: int = 1) -> Value:
    """``length`` elements of one dim from ``start``, ``step`` apart."""
    if same_shape((length,), (x.shape[dim],)) and step == 1:
        return x
    shape = (*x.shape[:dim], length, *x.shape[dim + 1 :])
    factors = tuple((length,) if d == dim else f for d, f in enumerate(x.dims()))
    return x.view(shape, lambda i: (*i[:dim], i[dim] * step + start, *i[dim + 1 :]), factors)


@rule("aten.slice.Tensor")
def slice_rule(b: Builder, c: Call) -> Value:
    """``x[start:end:step]`` along a dim."""
    x = c.tensor("self")
    dim = c.dim("dim", x.rank)
    start = offset(c.extent("start"), x.shape[dim]) if c.has("start") else ix(0)
    return slice_dim(x, dim, start, c.shape[dim], c.integer("step"))


@rule("aten.narrow.default")
def narrow(b: Builder, c: Call) -> Value:
    """``length`` elements of a dim from ``start``."""
    x = c.tensor("self")
    dim = c.dim("dim", x.rank)
    return slice_dim(x, dim, offset(c.extent("start"), x.shape[dim]), c.shape[dim])


@rule("aten.select.int")
def select_rule(b: Builder, c: Call) -> Value:
    """One position of a dim, which goes away."""
    x = c.tensor("self")
    dim = c.dim("dim", x.rank)
    return pick(x, dim, offset(c.extent("index"), x.shape[dim]))


def pick(x: Value, dim: int, index: Expr) -> Value:
    """``x`` at one index of ``dim``."""
    keep = [d for d in range(x.rank) if d != dim]
    return x.view([x.shape[d] for d in keep], lambda i: (*i[:dim], index, *i[dim:]), tuple(x.dims()[d] for d in keep))


@rule("aten.split_with_sizes.default", "aten.split.Tensor", "aten.split.sizes", "aten.chunk.default", "aten.tensor_split.sections")
def split(b: Builder, c: Call) -> tuple[Value | None, ...]:
    """Consecutive slices of a dim."""
    x = c.tensor("self")
    dim = c.dim("dim", x.rank)
    out: list[Value] = []
    start: Expr = ix(0)
    for shape, _ in c.results:
        out.append(slice_dim(x, dim, start, shape[dim]))
        start = simplify_index(start + shape[dim])
    return tuple(out)


@rule("aten.unbind.int")
def unbind(b: Builder, c: Call) -> tuple[Value | None, ...]:
    """Every position of a dim."""
    x = c.tensor("self")
    dim = c.dim("dim", x.rank)
    return tuple(pick(x, dim, ix(n)) for n in range(len(c.results)))


@rule("aten.flip.default", "aten.fliplr.default", "aten.flipud.default")
def flip(b: Builder, c: Call) -> Value:
    """Reverse dims."""
    x = c.tensor("self")
    dims = {d % x.rank for d in c.integers("dims")} if c.has("dims") else {1 if "lr" in c.name else 0}
    return x.view(x.shape, lambda i: tuple(x.shape[d] - 1 - e if d in dims else e for d, e in enumerate(i)))


@rule("aten.roll.default")
def roll(b: Builder, c: Call) -> Value:
    """Rotate dims."""
    x = c.tensor("self")
    shifts, dims = c.integers("shifts"), [d % x.rank for d in c.integers("dims")]
    if not dims:
        flat = reshape(x, (product(x.shape),))
        turned = flat.view(flat.shape, lambda i: ((i[0] - shifts[0]) % flat.shape[0],))
        return reshape(turned, x.shape)
    by = dict(zip(dims, shifts, strict=True))
    return x.view(x.shape, lambda i: tuple((e - by[d]) % x.shape[d] if d in by else e for d, e in enumerate(i)))


@rule("aten.repeat.default", "aten.tile.default")
def repeat(b: Builder, c: Call) -> Value:
    """Repeat the whole tensor along dims."""
    x = c.tensor("self")
    lead = len(c.shape) - x.rank

    def back(i: Indices) -> Indices:
        return tuple(i[lead + d] if same_shape((c.shape[lead + d],), (x.shape[d],)) else i[lead + d] % x.shape[d] for d in range(x.rank))

    return x.view(c.shape, back)


@rule("aten.repeat_interleave.self_int")
def repeat_interleave(b: Builder, c: Call) -> Value:
    """Repeat each element along a dim."""
    x = c.tensor("self")
    times = c.extent("repeats")
    if not c.has("dim"):
        x, dim = reshape(x, (product(x.shape),)), 0
    else:
        dim = c.dim("dim", x.rank)
    factors = tuple((x.shape[d], times) if d == dim else f for d, f in enumerate(x.dims()))
    return x.view(c.shape, lambda i: (*i[:dim], i[dim] // times, *i[dim + 1 :]), factors)


@rule("aten.diagonal.default", "aten.diagonal_copy.default")
def diagonal(b: Builder, c: Call) -> Value:
    """A diagonal of two dims, as the last dim."""
    x = c.tensor("self")
    p, q, shift = c.dim("dim1", x.rank), c.dim("dim2", x.rank), c.integer("offset")
    rest = [d for d in range(x.rank) if d not in (p, q)]

    def back(i: Indices) -> Indices:
        at: dict[int, Expr] = dict(zip(rest, i[:-1], strict=True))
        at[p] = i[-1] - shift if shift < 0 else i[-1]
        at[q] = i[-1] + shift if shift > 0 else i[-1]
        return tuple(at[d] for d in range(x.rank))

    return x.view(c.shape, back)


@rule("aten.unfold.default", "aten.unfold_copy.default")
def unfold(b: Builder, c: Call) -> Value:
    """Windows of a dim; the place within a window is the last dim."""
    x = c.tensor("self")
    dim, step = c.dim("dimension", x.rank), c.integer("step")
    return x.view(c.shape, lambda i: (*i[:dim], i[dim] * step + i[-1], *i[dim + 1 : -1]))


@rule("aten.as_strided.default", "aten.as_strided_copy.default")
def as_strided(b: Builder, c: Call) -> Value:
    """Any strided view of a whole row-major array: read through the flat position."""
    x = c.tensor("self")
    strides = c.extents("stride")
    start = c.extent("storage_offset") if c.has("storage_offset") else ix(0)
    if x.buffer is None:
        raise c.refuse("as_strided of a view", "use slicing, permute, unfold or expand")
    whole: Shape = (product(x.shape),)
    flat = reshape(x, whole)

    def back(i: Indices) -> Indices:
        position = start
        for e, s in zip(i, strides, strict=True):
            position = position + e * s
        return (position,)

    return flat.view(c.shape, back)
