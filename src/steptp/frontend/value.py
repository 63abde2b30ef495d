"""Lazy tensors: a shape, a dtype and a function from indices to an element expression.

A view (permute, slice, expand, reshape, …) is another index function over the same elements; nothing is copied.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from steptp.ir import Const, DType, Expr, cast, eval_index, ix, same_index, simplify_index
from steptp.ir.walk import free_sizes

__all__ = ["Value", "Indices", "Shape", "as_dtype", "constant", "is_one", "product", "same_shape", "broadcast_to", "flatten_index", "reshape"]

Indices: TypeAlias = tuple[Expr, ...]
Shape: TypeAlias = tuple[Expr, ...]


@dataclass(frozen=True, slots=True)
class Value:
    """A tensor during translation.

    ``at(indices)`` gives the element, an expression of ``dtype``; there is one index per dim. ``buffer`` names the array when
    the value *is* a whole array, element for element. ``factors`` lists, for each dim, the extents it was merged from
    (``view(B, H*W)`` has ``((B,), (H, W))``): nests over such a dim get one loop for each factor, which keeps indices affine.
    ``units_of`` names the array that this value is but for dims of extent 1.
    """

    shape: Shape
    dtype: DType
    at: Callable[[Indices], Expr]
    buffer: str | None = None
    factors: tuple[Shape, ...] = field(default=())
    units_of: str | None = None

    @property
    def rank(self) -> int:
        return len(self.shape)

    def __call__(self, *indices: Expr) -> Expr:
        """The element at ``indices``."""
        return self.at(indices)

    def dims(self) -> tuple[Shape, ...]:
        """``factors`` with every unmerged dim as its own single factor."""
        return self.factors or tuple((extent,) for extent in self.shape)

    def view(self, shape: Sequence[Expr], back: Callable[[Indices], Indices], factors: tuple[Shape, ...] = ()) -> Value:
        """The value of ``shape`` whose element at ``i`` is this one's element at ``back(i)``."""
        at = self.at
        return Value(tuple(shape), self.dtype, lambda i: at(back(i)), None, factors)

    def map(self, dtype: DType, change: Callable[[Expr], Expr]) -> Value:
        """Apply ``change`` to every element, inline (no new array)."""
        at = self.at
        return replace(self, dtype=dtype, at=lambda i: change(at(i)), buffer=None, units_of=None)


def constant(value: Const, shape: Shape = ()) -> Value:
    """A tensor filled with one literal; it takes no storage."""
    return Value(shape, value.dtype, lambda _: value)


def as_dtype(value: Value, dtype: DType) -> Value:
    """The value cast to ``dtype`` inline."""
    return value if value.dtype is dtype else value.map(dtype, lambda e: cast(dtype, e))


def is_one(extent: Expr) -> bool:
    """Whether the extent is the literal 1 (a dim that broadcasts)."""
    return isinstance(extent, Const) and extent.value == 1


def product(extents: Sequence[Expr]) -> Expr:
    """The product, simplified; 1 for none."""
    out: Expr = ix(1)
    for extent in extents:
        out = out * extent
    return simplify_index(out)


def same_shape(a: Shape, b: Shape) -> bool:
    """Whether two shapes are equal for every value of the sizes."""
    return len(a) == len(b) and all(same_index(p, q) for p, q in zip(a, b, strict=True))


def broadcast_to(value: Value, shape: Shape) -> Value:
    """Expand to ``shape`` by PyTorch's rule: align right, literal-1 dims repeat."""
    if same_shape(value.shape, shape):
        return value
    lead, old = len(shape) - value.rank, value.shape
    repeats = tuple(is_one(old[d]) and not is_one(shape[lead + d]) for d in range(value.rank))
    inner = tuple((shape[lead + d],) if repeats[d] else f for d, f in enumerate(value.dims()))
    factors = (*((extent,) for extent in shape[:lead]), *inner)
    return value.view(shape, lambda i: tuple(ix(0) if is_one(old[d]) else i[lead + d] for d in range(len(old))), factors)


def flatten_index(indices: Sequence[Expr], shape: Sequence[Expr]) -> Expr:
    """The row-major position of ``indices`` in an array of ``shape``."""
    out: Expr = ix(0)
    for index, extent in zip(indices, shape, strict=True):
        out = out * extent + index
    return simplify_index(out)


def _split(position: Expr, shape: Sequence[Expr]) -> Indices:
    """Row-major indices in ``shape`` of a flat ``position`` below its product."""
    out: list[Expr] = []
    for d, extent in enumerate(shape):
        if is_one(extent):
            out.append(ix(0))
            continue
        tail = product(shape[d + 1 :])
        index = position if is_one(tail) else position // tail
        out.append(index % extent if any(not is_one(e) for e in shape[:d]) else index)
    return tuple(out)


def _groups(old: Shape, new: Shape) -> list[tuple[range, range]]:
    """Pair runs of old dims with runs of new dims of the same product, as short as can be shown."""
    groups: list[tuple[range, range]] = []
    a = b = start_a = start_b = 0
    left: Expr = ix(1)
    right: Expr = ix(1)
    while a < len(old) or b < len(new):
        if not _smaller(right, left) and a < len(old):
            left, a = simplify_index(left * old[a]), a + 1
        elif b < len(new):
            right, b = simplify_index(right * new[b]), b + 1
        else:
            left, a = simplify_index(left * old[a]), a + 1
        if same_index(left, right) and a > start_a and b > start_b:
            groups.append((range(start_a, a), range(start_b, b)))
            start_a, start_b, left, right = a, b, ix(1), ix(1)
    if start_a < len(old) or start_b < len(new):
        if groups:  # trailing ones, or dims whose products could not be matched
            before, after = groups.pop()
            groups.append((range(before.start, len(old)), range(after.start, len(new))))
        else:
            groups.append((range(len(old)), range(len(new))))
    return groups


def _smaller(a: Expr, b: Expr) -> bool:
    """Whether ``a`` has fewer factors left to match than ``b`` (a guide for :func:`_groups`, never a proof)."""
    return _guess(a) < _guess(b)


def _guess(expr: Expr) -> float:
    """A stand-in value of a size expression: sizes count as 64."""
    return eval_index(expr, dict.fromkeys(free_sizes(expr), 64))


def reshape(value: Value, shape: Shape) -> Value:
    """Row-major reshape as an index map; dims that are kept, merged or split stay recognisable."""
    old = value.shape
    if same_shape(old, shape):
        return value
    groups = _groups(old, shape)

    def back(indices: Indices) -> Indices:
        out: list[Expr] = [ix(0)] * len(old)
        for before, after in groups:
            position = flatten_index([indices[d] for d in after], [shape[d] for d in after])
            for d, index in zip(before, _split(position, [old[d] for d in before]), strict=True):
                out[d] = index
        return tuple(out)

    factors: list[Shape] = [(extent,) for extent in shape]
    for before, after in groups:
        wide = [d for d in after if not is_one(shape[d])]
        if len(wide) == 1:
            merged = tuple(f for d in before for f in value.dims()[d] if not is_one(f))
            factors[wide[0]] = merged or (ix(1),)
        elif len(before) == 1:  # a split: keep the factors when they line up
            _align(list(value.dims()[before.start]), wide, shape, factors)
    return value.view(shape, back, tuple(factors))


def _align(parts: list[Expr], wide: list[int], shape: Shape, factors: list[Shape]) -> None:
    """Give each new dim the run of merged factors that multiplies to it, if there is one for every dim."""
    found: dict[int, Shape] = {}
    for d in wide:
        taken: list[Expr] = []
        while parts and not same_index(product(taken), shape[d]):
            taken.append(parts.pop(0))
        if not taken or not same_index(product(taken), shape[d]):
            return
        found[d] = tuple(taken)
    for d, run in found.items():
        factors[d] = run
