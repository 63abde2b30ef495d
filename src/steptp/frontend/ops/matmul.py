"""Matrix products and einsum. 16-bit floats accumulate in f32 and round once."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce as fold

from steptp.frontend.builder import MATH, Builder
from steptp.frontend.registry import Call, rule
from steptp.frontend.value import Indices, Shape, Value, broadcast_to, is_one
from steptp.ir import DType, Expr, cast, ix

__all__ = ["contract", "einsum_value", "round_to"]


def round_to(b: Builder, value: Value, dtype: DType) -> Value:
    """The value rounded to ``dtype`` in a nest of its own (none if it has that dtype)."""
    if value.dtype is dtype:
        return value
    return b.pointwise(value.shape, dtype, lambda i: cast(dtype, value.at(i)), like=[value])


def contract(b: Builder, letters: Sequence[str], operands: Sequence[Value], result: str, dtype: DType, stem: str = "c") -> Value:
    """Sum over the letters that ``result`` lacks of the product of the operands; one nest, in the computation dtype of ``dtype``.

    A letter's loop takes the factors of the first operand that has several. Letters that no operand sums over give a plain product.
    """
    extents: dict[str, Expr] = {}
    factors: dict[str, Shape] = {}
    for names, value in zip(letters, operands, strict=True):
        for name, extent, parts in zip(names, value.shape, value.dims(), strict=True):
            if name not in extents or is_one(extents[name]):
                extents[name] = extent
                factors[name] = parts
            elif len(parts) > 1 and len(factors[name]) == 1:
                factors[name] = parts
    kind = MATH.get(dtype, dtype)
    wide = [b.to(v, kind) for v in operands]
    summed = list(dict.fromkeys(n for names in letters for n in names if n not in result))
    shape = tuple(extents[n] for n in result)

    def element(outer: Indices, inner: Indices) -> Expr:
        at = dict(zip(result, outer, strict=True)) | dict(zip(summed, inner, strict=True))
        terms = [
            v.at(tuple(at[n] if not is_one(e) or is_one(extents[n]) else ix(0) for n, e in zip(names, v.shape, strict=True)))
            for names, v in zip(letters, wide, strict=True)
        ]
        return fold(lambda p, q: p * q, terms)

    if not summed:
        return b.pointwise(shape, kind, lambda i: element(i, ()), stem=stem)
    return b.reduce(
        shape, [extents[n] for n in summed], "+", element, dtype=kind, stem=stem,
        factors=[factors[n] for n in result], axis_factors=[factors[n] for n in summed],
    )  # fmt: skip


@rule(
    "aten.mm.default",
    "aten.bmm.default",
    "aten.mv.default",
    "aten.dot.default",
    "aten.vdot.default",
    "aten.matmul.default",
    "aten.linear.default",
    "aten.outer.default",
)
def matmul(b: Builder, c: Call) -> Value:
    """Products of vectors, matrices and stacks of matrices; ``linear`` multiplies by the transposed weight and adds the bias."""
    if "linear" in c.name:
        return _linear(b, c)
    x, y = c.tensor("self"), next(c.tensor(k) for k in ("mat2", "vec", "tensor", "other", "vec2") if c.has(k))
    if "outer" in c.name:
        return round_to(b, contract(b, ["i", "j"], [x, y], "ij", c.dtype), c.dtype)
    batch = c.shape[: len(c.shape) - (x.rank > 1) - (y.rank > 1)]
    lead = "abcdefgh"[: len(batch)]
    left = lead[len(batch) - max(x.rank - 2, 0) :] + ("ik" if x.rank > 1 else "k")
    right = lead[len(batch) - max(y.rank - 2, 0) :] + ("kj" if y.rank > 1 else "k")
    result = lead + ("i" if x.rank > 1 else "") + ("j" if y.rank > 1 else "")
    return round_to(b, contract(b, [left, right], [x, y], result, c.dtype), c.dtype)


def _linear(b: Builder, c: Call) -> Value:
    x, weight = c.tensor("input"), c.tensor("weight")
    lead = "abcdefgh"[: x.rank - 1]
    product = contract(b, [lead + "k", "jk"] if weight.rank > 1 else [lead + "k", "k"], [x, weight], lead + ("j" if weight.rank > 1 else ""), c.dtype)
    bias = c.maybe("bias")
    if bias is None:
        return round_to(b, product, c.dtype)
    return _plus(b, c, product, bias, 1.0, 1.0)


def _plus(b: Builder, c: Call, product: Value, other: Value, alpha: float, beta: float) -> Value:
    """``alpha*product + beta*other`` rounded to the result dtype."""
    wide = b.to(broadcast_to(other, c.shape), product.dtype)

    def element(i: Indices) -> Expr:
        left = product.at(i) if alpha == 1 else product.at(i) * alpha
        right = wide.at(i) if beta == 1 else wide.at(i) * beta
        return cast(c.dtype, left if beta == 0 else left + right)

    return b.pointwise(c.shape, c.dtype, element, like=[product, wide])


@rule("aten.addmm.default", "aten.baddbmm.default", "aten.addmv.default", "aten.addbmm.default", "aten.addr.default")
def addmm(b: Builder, c: Call) -> Value:
    """``beta*self + alpha*(product)``."""
    pairs = {"addmm": ("mat1", "mat2", "ik", "kj", "ij"), "baddbmm": ("batch1", "batch2", "aik", "akj", "aij"),
             "addmv": ("mat", "vec", "ik", "k", "i"), "addbmm": ("batch1", "batch2", "aik", "akj", "ij"), "addr": ("vec1", "vec2", "i", "j", "ij")}  # fmt: skip
    first, second, left, right, result = pairs[c.name.split(".")[1]]
    product = contract(b, [left, right], [c.tensor(first), c.tensor(second)], result, c.dtype)
    return _plus(b, c, product, c.tensor("self"), float(c.number("alpha")), float(c.number("beta")))


@rule("aten.bilinear.default")
def bilinear(b: Builder, c: Call) -> Value:
    """``x·W[o]·y + bias`` over the last dims."""
    x, y = c.tensor("input1"), c.tensor("input2")
    lead = "abcdefgh"[: x.rank - 1]
    product = contract(b, [lead + "i", "oij", lead + "j"], [x, c.tensor("weight"), y], lead + "o", c.dtype)
    bias = c.maybe("bias")
    return round_to(b, product, c.dtype) if bias is None else _plus(b, c, product, bias, 1.0, 1.0)


@rule("aten.einsum.default")
def einsum(b: Builder, c: Call) -> Value:
    """Any einsum equation, one nest for the whole product."""
    return einsum_value(b, c, c.text("equation"), c.tensors("tensors"))


def einsum_value(b: Builder, c: Call, equation: str, operands: Sequence[Value]) -> Value:
    """``equation`` with ``...`` written out; a letter that occurs twice in one operand reads its diagonal."""
    text = equation.replace(" ", "")
    left, arrow, right = text.partition("->")
    letters = left.split(",")
    spare = [x for x in "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz" if x not in text]
    wild = max((v.rank - len(n.replace("...", "")) for n, v in zip(letters, operands, strict=True) if "..." in n), default=0)
    lead = "".join(spare[:wild])
    letters = [n.replace("...", lead[wild - (v.rank - len(n.replace("...", ""))) :] if "..." in n else "") for n, v in zip(letters, operands, strict=True)]
    joined = "".join(letters)
    result = right.replace("...", lead) if arrow else lead + "".join(sorted(x for x in set(joined) - set(lead) if joined.count(x) == 1))
    return round_to(b, contract(b, letters, operands, result, c.dtype), c.dtype)
