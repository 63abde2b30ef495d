"""Building a naive LEIR program, one loop nest for each operation.

While a program is being built every loop variable is unique (``%0``, ``%1``, …), so one table of extents serves all
index simplification; :mod:`steptp.frontend.finish` gives them their short names.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from steptp.frontend.value import Indices, Shape, Value, as_dtype, broadcast_to, flatten_index, is_one, product, same_shape
from steptp.ir import Buffer, Const, DType, Expr, If, Load, Loop, Op, Stmt, Store, Var, cast, const, ix, simplify_index
from steptp.ir.walk import loads, map_expr, subexprs

__all__ = ["Builder", "MATH"]

MATH = {DType.F16: DType.F32, DType.BF16: DType.F32}
"""PyTorch computes 16-bit floats in f32 (its *opmath* dtype) and rounds the result once."""

_ARITHMETIC: dict[str, Callable[[float, float], float]] = {"+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.truediv}


@dataclass(slots=True)
class Builder:
    """The program so far: statements, temporaries, extents of loop variables, present values of sizes, ranges of index inputs.

    Typical rules need :meth:`pointwise` and :meth:`reduce` only; others combine :meth:`declare`, :meth:`axis`,
    :meth:`store`, :meth:`loops` and :meth:`emit`.
    """

    sizes: Mapping[str, int]
    body: list[Stmt]
    tmps: dict[str, Buffer]
    extents: dict[str, Expr]
    taken: set[str]
    ranges: dict[str, Expr]
    renamed: dict[str, str]
    widened: dict[str, Callable[[Indices], Indices]]
    fixed: set[str]
    constraints: list[Expr]

    @staticmethod
    def new(sizes: Mapping[str, int], taken: set[str]) -> Builder:
        """An empty program over ``sizes`` (name → present value); ``taken`` are names that temporaries must avoid."""
        return Builder(dict(sizes), [], {}, {}, set(taken), {}, {}, {}, set(taken), [])

    # arrays

    def array(self, buffer: Buffer) -> Value:
        """The value of a declared array (an input, or a temporary)."""
        return Value(buffer.shape, buffer.dtype, lambda i: Load(buffer.name, tuple(map(self.simplify, i)), buffer.dtype), buffer.name)

    def declare(self, shape: Sequence[Expr], dtype: DType, stem: str = "t") -> Value:
        """A new temporary named after ``stem``; its elements are undefined until something is stored."""
        name = stem
        number = 0
        while name in self.taken:
            name, number = f"{stem}{number}", number + 1
        self.taken.add(name)
        buffer = Buffer(name, dtype, tuple(simplify_index(s) for s in shape))
        self.tmps[name] = buffer
        return self.array(buffer)

    def bound(self, value: Value, extent: Expr) -> None:
        """Record that the elements of an integer input index a dim of ``extent``: its declared range becomes ``0..extent``."""
        if value.buffer is not None:
            self.ranges.setdefault(value.buffer, extent)

    def require(self, condition: Expr) -> None:
        """Add a condition on sizes that a re-binding must satisfy (it holds at the present ones)."""
        if condition not in self.constraints:
            self.constraints.append(condition)

    # statements

    def axis(self, extent: Expr, keep: bool = False) -> Expr:
        """A new loop variable below ``extent``; the index 0 for a literal extent 1, unless ``keep``."""
        extent = simplify_index(extent)
        if is_one(extent) and not keep:
            return ix(0)
        name = f"%{len(self.extents)}"
        self.extents[name] = extent
        return Var(name)

    def axes(self, shape: Sequence[Expr], factors: Sequence[Shape] = ()) -> tuple[list[Expr], Indices]:
        """Loop variables for an index space, and the index they make in each dim.

        A dim with several ``factors`` gets a variable for each of them and the row-major combination as its index.
        """
        variables: list[Expr] = []
        indices: list[Expr] = []
        for d, extent in enumerate(shape):
            parts = factors[d] if factors and len(factors[d]) > 1 else (extent,)
            own = [self.axis(p) for p in parts]
            variables += own
            indices.append(flatten_index(own, parts))
        return variables, tuple(indices)

    def loops(self, variables: Sequence[Expr], *body: Stmt, tmps: Sequence[Buffer] = ()) -> Stmt:
        """``body`` inside serial loops over ``variables``, outermost first; ``tmps`` belong to the innermost loop."""
        found = [v for v in variables if isinstance(v, Var)]
        if not found:
            assert len(body) == 1, "several statements need a loop around them"
            return body[0]
        inner: tuple[Stmt, ...] = tuple(body)
        for position, v in enumerate(reversed(found)):
            inner = (Loop(v.name, self.extents[v.name], inner, tmps=tuple(tmps) if position == 0 else ()),)
        return inner[0]

    def store(self, target: Value, indices: Sequence[Expr], value: Expr, reduce: str | None = None, carry: bool = False) -> Store:
        """``target[indices] = value`` or an accumulation; ``target`` must be a whole array."""
        assert target.buffer is not None
        return Store(target.buffer, tuple(map(self.simplify, indices)), self.tidy(value), reduce, carry)

    def guard(self, cond: Expr, *body: Stmt) -> If:
        """``if cond:`` around statements."""
        return If(self.tidy(cond), tuple(body))

    def emit(self, *stmts: Stmt) -> None:
        """Append statements to the program."""
        self.body.extend(stmts)

    # whole operations

    def pointwise(self, shape: Sequence[Expr], dtype: DType, fn: Callable[[Indices], Expr], *, like: Sequence[Value] = (), stem: str = "t") -> Value:
        """One nest ``T[i…] = fn(i…)`` into a new temporary.

        ``like`` are the operands: where one of them has a merged dim, the nest gets its factors. A result that reads no
        memory and is short (a mask over indices, a constant) stays an expression.
        """
        shape = tuple(shape)
        variables, indices = self.axes(shape, self.common_factors(shape, like))
        element = self.tidy(fn(indices))
        assert element.dtype is dtype, f"element is {element.dtype}, not {dtype}"
        if not any(loads(element)) and sum(1 for _ in subexprs(element)) <= 12:
            return Value(shape, dtype, lambda i: self.tidy(fn(i)))
        target = self.declare(shape, dtype, stem)
        self.emit(self.loops(variables, self.store(target, indices, element)))
        return target

    def reduce(
        self,
        shape: Sequence[Expr],
        axes: Sequence[Expr],
        op: str,
        fn: Callable[[Indices, Indices], Expr],
        *,
        dtype: DType,
        factors: Sequence[Shape] = (),
        axis_factors: Sequence[Shape] = (),
        stem: str = "t",
    ) -> Value:
        """One nest ``T[i…] op= fn(i…, k…)`` into a new temporary; ``op`` is a reducer (``+ * max min or and``).

        ``shape`` are the extents of the result, ``axes`` those that are reduced; the element must have ``dtype``, so cast 16-bit
        floats to f32 first (see :meth:`math`).
        """
        variables, indices = self.axes(shape, factors)
        inner, reduced = self.axes(axes, axis_factors)
        if not any(isinstance(v, Var) for v in inner):  # an accumulation needs a loop that leaves its target unindexed
            inner = [self.axis(ix(1), keep=True)]
        element = self.tidy(fn(indices, reduced))
        assert element.dtype is dtype, f"element is {element.dtype}, not {dtype}"
        target = self.declare(shape, dtype, stem)
        self.emit(self.loops([*variables, *inner], self.store(target, indices, element, op)))
        return target

    def materialise(self, value: Value, stem: str = "t") -> Value:
        """The value as a whole array (itself if it already is one)."""
        if value.buffer is not None:
            return value
        variables, indices = self.axes(value.shape, self.common_factors(value.shape, (value,)))
        target = self.declare(value.shape, value.dtype, stem)
        self.emit(self.loops(variables, self.store(target, indices, value.at(indices))))
        return target

    # values

    def broadcast(self, value: Value, shape: Shape) -> Value:
        """``value`` expanded to ``shape``."""
        return broadcast_to(value, shape)

    def to(self, value: Value, dtype: DType) -> Value:
        """``value`` cast to ``dtype`` inline, with the meaning PyTorch and LEIR share."""
        return as_dtype(value, dtype)

    def math(self, value: Value) -> Value:
        """``value`` in PyTorch's computation dtype: 16-bit floats become f32, others stay."""
        return self.to(value, MATH.get(value.dtype, value.dtype))

    def count(self, extents: Sequence[Expr], dtype: DType) -> Expr:
        """The product of ``extents`` as a number of ``dtype``: a literal, or a cast that follows a re-binding."""
        whole = product(extents)
        return const(whole.value, dtype) if isinstance(whole, Const) else cast(dtype, whole)

    def common_factors(self, shape: Sequence[Expr], like: Sequence[Value]) -> tuple[Shape, ...]:
        """For each dim the factors of the first operand (of equal shape) that has several."""
        out: list[Shape] = [(extent,) for extent in shape]
        for value in like:
            if not same_shape(value.shape, tuple(shape)):
                value = broadcast_to(value, tuple(shape)) if value.rank <= len(shape) else value
            for d, parts in enumerate(value.dims()):
                if d < len(out) and len(parts) > 1 and len(out[d]) == 1:
                    out[d] = parts
        return tuple(out)

    # simplification

    def simplify(self, index: Expr) -> Expr:
        """The canonical form of an index, knowing the extents of all loop variables."""
        return simplify_index(index, self.extents)

    def tidy(self, expr: Expr) -> Expr:
        """Fold what is constant in a value expression: comparisons of literals, selects, logic with true or false."""
        return map_expr(expr, self._fold)

    def _fold(self, expr: Expr) -> Expr:
        if isinstance(expr, Op):
            if expr.type is DType.I64:
                return self.simplify(expr)
            if expr.name in ("<", "<=", ">", ">=", "==", "!=") and expr.args[0].dtype is DType.I64:
                return self._compare(expr)
            if expr.name == "select" and isinstance(expr.args[0], Const):
                return expr.args[1] if expr.args[0].value else expr.args[2]
            if expr.name == "select" and expr.args[1:] == (const(True, DType.BOOL), const(False, DType.BOOL)):
                return expr.args[0]
            if expr.name in ("and", "or"):
                for mine, other in (expr.args, expr.args[::-1]):
                    if isinstance(mine, Const):
                        return other if bool(mine.value) == (expr.name == "and") else mine
            if expr.name == "not" and isinstance(expr.args[0], Const):
                return const(not expr.args[0].value, DType.BOOL)
            if expr.name in _ARITHMETIC and expr.type.is_float and all(isinstance(a, Const) for a in expr.args):
                left, right = (float(a.value) for a in expr.args if isinstance(a, Const))
                if expr.name != "/" or right != 0:  # one operator in doubles, rounded once, is the operator's own result up to f32
                    return expr if expr.type is DType.F64 else const(_ARITHMETIC[expr.name](left, right), expr.type)
        return expr

    def _compare(self, expr: Op) -> Expr:
        a, b = expr.args
        if isinstance(a, Const) and isinstance(b, Const):
            x, y = a.value, b.value
            return const({"<": x < y, "<=": x <= y, ">": x > y, ">=": x >= y, "==": x == y, "!=": x != y}[expr.name], DType.BOOL)
        return expr
