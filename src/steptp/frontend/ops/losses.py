"""Losses that PyTorch would decompose into many small operators: one nest for the element, then the reduction."""

from __future__ import annotations

from collections.abc import Callable

from steptp.frontend.builder import Builder
from steptp.frontend.ops.reduce import merge_index
from steptp.frontend.registry import Call, rule
from steptp.frontend.value import Indices, Shape, Value, as_dtype, broadcast_to
from steptp.ir import DType, Expr, call, cast, const, ix, select

_NONE, _MEAN = 0, 1


def _broadcast(a: Shape, b: Shape) -> Shape:
    """The wider of two shapes that broadcast together (losses warn about anything else)."""
    return a if len(a) >= len(b) else b


def _finish(b: Builder, c: Call, element: Value, count: Callable[[DType], Expr] | None = None) -> Value:
    """Apply ``reduction`` (0 none, 1 mean, 2 sum) to the loss of each element, in the dtype of the call."""
    kind = c.integer("reduction")
    if kind == _NONE:
        return element if element.dtype is c.dtype else b.pointwise(element.shape, c.dtype, as_dtype(element, c.dtype).at, like=[element])
    dims = tuple(range(element.rank))
    total = b.reduce((), element.shape, "+", lambda i, k: element.at(k), dtype=element.dtype, axis_factors=element.dims(), stem="s") if dims else element
    divisor = (count or (lambda dtype: b.count(element.shape, dtype)))(element.dtype) if kind == _MEAN else None
    if divisor is None and total.dtype is c.dtype:
        return total
    return b.pointwise((), c.dtype, lambda i: cast(c.dtype, total.at(()) / divisor if divisor is not None else total.at(())))


def _pairwise(b: Builder, c: Call, fn: Callable[[Expr, Expr], Expr], first: str = "self", second: str = "target") -> Value:
    x, y = b.math(c.tensor(first)), b.math(c.tensor(second))
    shape = _broadcast(x.shape, y.shape)
    p, q = broadcast_to(x, shape), broadcast_to(y, shape)
    return b.pointwise(shape, x.dtype, lambda i: fn(p.at(i), q.at(i)), like=[p, q], stem="l")


def _distance(b: Builder, c: Call, fn: Callable[[Expr], Expr]) -> Value:
    """``fn(|x-y|)`` for each element, the difference in a nest of its own."""
    d = _pairwise(b, c, lambda x, y: call("abs", x - y))
    return _finish(b, c, b.pointwise(d.shape, d.dtype, lambda i: fn(d.at(i)), like=[d], stem="l"))


@rule("aten.huber_loss.default")
def huber(b: Builder, c: Call) -> Value:
    """``select(d<delta, 0.5*d*d, delta*(d-0.5*delta))`` with ``d=|x-y|``."""
    delta = float(c.number("delta"))
    return _distance(b, c, lambda d: select(d < delta, d * 0.5 * d, (d - 0.5 * delta) * delta))


@rule("aten.smooth_l1_loss.default")
def smooth_l1(b: Builder, c: Call) -> Value:
    """``select(d<beta, 0.5*d*d/beta, d-0.5*beta)`` with ``d=|x-y|``; ``|x-y|`` for ``beta`` 0."""
    beta = float(c.number("beta"))
    return _distance(b, c, lambda d: select(d < beta, d * 0.5 * d / beta, d - 0.5 * beta) if beta else d)


@rule("aten.kl_div.default")
def kl_div(b: Builder, c: Call) -> Value:
    """``q*log(q)-q*x``, where ``0*log(0)`` is 0; ``exp(q)*(q-x)`` for ``log_target``."""
    if c.flag("log_target"):
        return _finish(b, c, _pairwise(b, c, lambda x, q: call("exp", q) * (q - x)))
    return _finish(b, c, _pairwise(b, c, lambda x, q: select(q.eq(0), 0, q * call("log", q)) - q * x))


@rule("aten.binary_cross_entropy.default")
def binary_cross_entropy(b: Builder, c: Call) -> Value:
    """``(y-1)*max(log1p(-p),-100)-y*max(log(p),-100)``, times the weight."""
    loss = _pairwise(b, c, lambda p, y: (y - 1) * call("max", call("log1p", -p), -100) - y * call("max", call("log", p), -100))
    weight = c.maybe("weight")
    if weight is not None:
        wide, plain = broadcast_to(b.math(weight), loss.shape), loss
        loss = b.pointwise(loss.shape, loss.dtype, lambda i: plain.at(i) * wide.at(i), like=[plain], stem="l")
    return _finish(b, c, loss)


@rule("aten.nll_loss_nd.default", "aten.nll_loss.default", "aten.nll_loss2d.default")
def nll(b: Builder, c: Call) -> Value:
    """``-w[t]*x[…,t]`` over class indices ``t``; the mean divides by the sum of ``w[t]``."""
    x = b.math(c.tensor("self"))
    return _chosen(b, c, x, lambda i: x.at(i), None)


@rule("aten.cross_entropy_loss.default")
def cross_entropy(b: Builder, c: Call) -> Value:
    """Log-softmax over the class dim and the negative log-likelihood of class indices, or of class probabilities.

    Class indices of an input are declared to lie in ``0..classes``, so an ``ignore_index`` outside that range cannot occur.
    """
    x = b.math(c.tensor("self"))
    axis = 0 if x.rank == 1 else 1
    rest = tuple(e for d, e in enumerate(x.shape) if d != axis)
    top = b.reduce(rest, (x.shape[axis],), "max", lambda i, k: x.at(merge_index(i, k, (axis,), x.rank)), dtype=x.dtype, stem="m")
    total = b.reduce(rest, (x.shape[axis],), "+", lambda i, k: call("exp", x.at(merge_index(i, k, (axis,), x.rank)) - top.at(i)), dtype=x.dtype, stem="z")

    def logp(i: Indices) -> Expr:
        at = (*i[:axis], *i[axis + 1 :])
        return x.at(i) - top.at(at) - call("log", total.at(at))

    smooth = float(c.number("label_smoothing"))
    target = c.tensor("target")
    if not target.dtype.is_float:
        return _chosen(b, c, x, logp, smooth)
    weight, probs, classes = c.maybe("weight"), b.math(target), b.count((x.shape[axis],), x.dtype)

    def term(i: Indices) -> Expr:
        share = probs.at(i) if not smooth else probs.at(i) * (1 - smooth) + const(smooth, x.dtype) / classes
        return -(logp(i) * share * as_dtype(weight, x.dtype).at((i[axis],)) if weight is not None else logp(i) * share)

    loss = b.reduce(rest, (x.shape[axis],), "+", lambda i, k: term(merge_index(i, k, (axis,), x.rank)), dtype=x.dtype, stem="l")
    return _finish(b, c, loss)


def _chosen(b: Builder, c: Call, x: Value, logp: Callable[[Indices], Expr], smooth: float | None) -> Value:
    """The loss of class indices: ``x`` gives the shape, ``logp`` the log-probabilities, ``smooth`` the label smoothing."""
    axis = 0 if x.rank == 1 else 1
    target, weight, classes = as_dtype(c.tensor("target"), DType.I64), c.maybe("weight"), x.shape[axis]
    b.bound(c.tensor("target"), classes)
    ignore = c.integer("ignore_index")
    seen = ignore >= 0 or c.tensor("target").buffer is None
    rest = tuple(e for d, e in enumerate(x.shape) if d != axis)
    gain = None if weight is None else as_dtype(weight, x.dtype)
    spread: Value | None = None
    if smooth:
        spread = b.reduce(
            rest, (classes,), "+", lambda i, k: logp((*i[:axis], *k, *i[axis:])) * gain.at(k) if gain is not None else logp((*i[:axis], *k, *i[axis:])),
            dtype=x.dtype, stem="u",
        )  # fmt: skip

    def kept(i: Indices, value: Expr) -> Expr:
        return select(target.at(i).ne(ignore), value, const(0, value.dtype)) if seen else value

    def safe(i: Indices) -> Expr:
        return select(target.at(i).ne(ignore), target.at(i), ix(0)) if seen else target.at(i)

    def loss(i: Indices) -> Expr:
        own = -logp((*i[:axis], safe(i), *i[axis:]))
        own = own * gain.at((safe(i),)) if gain is not None else own
        if smooth and spread is not None:
            own = own * (1 - smooth) - spread.at(i) * (const(smooth, x.dtype) / b.count((classes,), x.dtype))
        return kept(i, own)

    element = b.pointwise(rest, x.dtype, loss, stem="l")
    if c.integer("reduction") != _MEAN or (gain is None and not seen):
        return _finish(b, c, element)

    def weight_of(i: Indices) -> Expr:
        return kept(i, gain.at((safe(i),)) if gain is not None else const(1, x.dtype))

    count = b.reduce((), rest, "+", lambda i, k: weight_of(k), dtype=x.dtype, stem="n") if rest else b.pointwise((), x.dtype, lambda i: weight_of(()), stem="n")
    return _finish(b, c, element, lambda dtype: cast(dtype, count.at(())))
