"""Look-ups through integer tensors: embedding, gather, index_select, index."""

from __future__ import annotations

from steptp.frontend.builder import Builder
from steptp.frontend.registry import Arg, Call, rule
from steptp.frontend.value import Indices, Shape, Value, as_dtype, broadcast_to
from steptp.ir import Cast, DType, Expr, Load, ix
from steptp.ir.walk import subexprs


def _table(b: Builder, index: Value, extent: Expr) -> Value:
    """An index tensor as i64; an input gets its range declared, one computed with floats is put in memory."""
    b.bound(index, extent)
    probe = index.at(tuple(b.axis(e) for e in index.shape))
    if any(isinstance(e, Cast) and not isinstance(e.arg, Load) for e in subexprs(probe)):
        index = b.materialise(index, "i")
    return as_dtype(index, DType.I64)


@rule("aten.embedding.default")
def embedding(b: Builder, c: Call) -> Value:
    """``weight[indices[…], :]``; a padding index changes gradients only."""
    weight = c.tensor("weight")
    index = _table(b, c.tensor("indices"), weight.shape[0])
    return b.pointwise(c.shape, c.dtype, lambda i: weight(index.at(i[:-1]), i[-1]))


@rule("aten.index_select.default")
def index_select(b: Builder, c: Call) -> Value:
    """Positions of one dim, listed by ``index``."""
    x = c.tensor("self")
    dim = c.dim("dim", x.rank)
    index = _table(b, c.tensor("index"), x.shape[dim])
    return b.pointwise(c.shape, c.dtype, lambda i: x.at((*i[:dim], index.at((i[dim],) if index.rank else ()), *i[dim + 1 :])))


@rule("aten.gather.default")
def gather(b: Builder, c: Call) -> Value:
    """``self`` with the index of ``dim`` read from ``index``."""
    x = c.tensor("self")
    dim = c.dim("dim", x.rank)
    index = _table(b, c.tensor("index"), x.shape[dim])
    return b.pointwise(c.shape, c.dtype, lambda i: x.at((*i[:dim], index.at(i), *i[dim + 1 :])))


@rule("aten.take_along_dim.default")
def take_along_dim(b: Builder, c: Call) -> Value:
    """Like gather, after broadcasting the other dims."""
    x, index = c.tensor("self"), c.tensor("indices")
    dim = c.dim("dim", x.rank)
    table = broadcast_to(_table(b, index, x.shape[dim]), c.shape)
    wide = broadcast_to(x, (*c.shape[:dim], x.shape[dim], *c.shape[dim + 1 :]))
    return b.pointwise(c.shape, c.dtype, lambda i: wide.at((*i[:dim], table.at(i), *i[dim + 1 :])))


@rule("aten.index.Tensor")
def index_tensor(b: Builder, c: Call) -> Value:
    """Indexing by integer tensors: their broadcast dims replace the indexed dims, or come first if those are apart."""
    x = c.tensor("self")
    given: tuple[Arg, ...] = c.args["indices"] if isinstance(c.args["indices"], tuple) else ()
    tables: dict[int, Value] = {}
    for d, value in enumerate(given):
        if isinstance(value, Value):
            if value.dtype is DType.BOOL:
                raise c.refuse("a mask as an index gives a shape that depends on values", "use torch.where or multiply by the mask")
            tables[d] = _table(b, value, x.shape[d])
    dims = sorted(tables)
    rank = max(t.rank for t in tables.values())
    together = dims == list(range(dims[0], dims[-1] + 1))
    first = dims[0] if together else 0
    inner: Shape = c.shape[first : first + rank]
    wide = {d: broadcast_to(t, inner) for d, t in tables.items()}

    def element(i: Indices) -> Expr:
        place = i[first : first + rank]
        rest = iter((*i[:first], *i[first + rank :]))
        return x.at(tuple(wide[d].at(place) if d in wide else next(rest, ix(0)) for d in range(x.rank)))

    return b.pointwise(c.shape, c.dtype, element)


@rule("aten.one_hot.default")
def one_hot(b: Builder, c: Call) -> Value:
    """1 where the class equals the element."""
    if c.integer("num_classes") < 0:
        raise c.refuse("the number of classes depends on values", "pass num_classes")
    x = as_dtype(c.tensor("self"), DType.I64)
    return b.pointwise(c.shape, c.dtype, lambda i: as_dtype(Value((), DType.BOOL, lambda _: x.at(i[:-1]).eq(i[-1])), c.dtype).at(()))
