"""One translation rule for each ATen operator.

A rule turns one operator call into loop nests::

    @rule("aten.relu.default")
    def relu(b: Builder, c: Call) -> Value:
        x = c.tensor("self")
        return b.pointwise(c.shape, c.dtype, lambda i: op("max", x.at(i), 0), like=[x])

``b`` is the :class:`~steptp.frontend.builder.Builder` of the program, ``c`` the call: its arguments by the names in the
operator's schema (defaults filled in) and the shape and dtype of its result. The rule returns a
:class:`~steptp.frontend.value.Value`, or a tuple of them for an operator with several results (``None`` in places where
:meth:`Call.used` is false). A view returns ``x.view(shape, index_map)`` and emits nothing; an operation that computes calls
``b.pointwise`` or ``b.reduce`` once for each loop nest of the naive program, or for anything unusual::

    t = b.declare(shape, dtype, "t")                     # a temporary
    i, k = b.axis(n), b.axis(m)                          # loop variables (index 0 for a literal extent 1)
    b.emit(b.loops([i, k], b.store(t, [i], x(i, k), "+")))   # for i:n k:m t[i] += x[i,k]

Shapes are tuples of LEIR size expressions: never assume that an extent is a number. 16-bit floats are computed in f32
(``b.math(x)``) and rounded once at the end, as PyTorch does. What a rule cannot translate it refuses with ``raise c.refuse(...)``.

An operator with a rule is kept whole by the capture; one without is decomposed to core ATen if PyTorch knows how.
Rules live in ``steptp/frontend/ops/*.py``; every module there is imported on first use. See ``docs/adding-an-op.md``.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias, Union

from steptp.errors import FrontendError, Place, internal
from steptp.frontend.builder import Builder
from steptp.frontend.value import Shape, Value, as_dtype, constant
from steptp.ir import Const, DType, Expr, const, ix

__all__ = ["rule", "rules", "Call", "Arg", "SizeNumber", "Result", "RuleFn"]


@dataclass(frozen=True, slots=True)
class SizeNumber:
    """A real number computed from sizes, such as ``1/sqrt(D)``; ``at(dtype)`` is its expression in a float dtype."""

    at: Callable[[DType], Expr]


Arg: TypeAlias = Union[Value, Expr, SizeNumber, int, float, bool, str, DType, "tuple[Arg, ...]", None]
"""An argument: tensors are values, symbolic integers are size expressions, lists are tuples."""

Result: TypeAlias = Union[Value, tuple[Value | None, ...]]


@dataclass(frozen=True, slots=True)
class Call:
    """One operator call.

    ``results`` are (shape, dtype) of each result; ``users`` the positions of those that something reads; ``place`` and ``where``
    the user's source line; ``promoted`` the dtype PyTorch promotes the tensor and number operands to.
    """

    name: str
    args: Mapping[str, Arg]
    results: tuple[tuple[Shape, DType], ...]
    users: frozenset[int]
    promoted: DType
    place: Place | None = None

    @property
    def shape(self) -> Shape:
        """Shape of the (first) result."""
        return self.results[0][0]

    @property
    def dtype(self) -> DType:
        """Dtype of the (first) result."""
        return self.results[0][1]

    def used(self, position: int) -> bool:
        """Whether result number ``position`` is read by anything."""
        return position in self.users

    def has(self, name: str) -> bool:
        """Whether an optional argument is there and not None."""
        return self.args.get(name) is not None

    def tensor(self, name: str) -> Value:
        """A tensor argument."""
        value = self.args.get(name)
        if not isinstance(value, Value):
            raise internal(f"{self.name}: {name} is not a tensor")
        return value

    def maybe(self, name: str) -> Value | None:
        """An optional tensor argument."""
        return self.tensor(name) if self.has(name) else None

    def tensors(self, name: str) -> tuple[Value, ...]:
        """An argument that is a list of tensors."""
        value = self.args.get(name)
        if not isinstance(value, tuple):
            raise internal(f"{self.name}: {name} is not a list")
        return tuple(v for v in value if isinstance(v, Value))

    def operand(self, name: str, dtype: DType) -> Value:
        """A tensor or number argument as a tensor of ``dtype`` (numbers become literals, symbolic integers casts)."""
        value = self.args.get(name)
        if isinstance(value, Value):
            return as_dtype(value, dtype)
        return self.literal(value, dtype)

    def literal(self, value: Arg, dtype: DType) -> Value:
        """A Python number or symbolic integer as a 0-dim tensor of ``dtype``."""
        if isinstance(value, SizeNumber):
            number = value.at(dtype if dtype.is_float else DType.F64)
            return as_dtype(Value((), number.dtype, lambda _: number), dtype)
        if isinstance(value, Expr):
            size: Expr = value
            return as_dtype(Value((), size.dtype, lambda _: size), dtype)
        if isinstance(value, (bool, int, float)):
            if dtype is DType.BOOL:
                return constant(const(bool(value), dtype))
            if dtype.is_int and isinstance(value, float):
                if value in (float("inf"), float("-inf")) or value != value:
                    raise self.refuse(f"the number {value} has no {dtype} value")
                value = int(value)
            return constant(const(value, dtype))
        raise internal(f"{self.name}: {value!r} is not a number")

    def number(self, name: str) -> int | float | bool:
        """A Python number argument; refuses a symbolic one."""
        value = self.args.get(name)
        if isinstance(value, Const):
            return value.value
        if not isinstance(value, (bool, int, float)):
            raise self.refuse(f"argument {name} must be a fixed number")
        return value

    def integer(self, name: str) -> int:
        """A Python integer argument; refuses a symbolic one."""
        return int(self.number(name))

    def flag(self, name: str) -> bool:
        """A bool argument."""
        return bool(self.args.get(name))

    def text(self, name: str) -> str:
        """A string argument."""
        return str(self.args.get(name))

    def extent(self, name: str) -> Expr:
        """An integer argument as a size expression."""
        return self._expr(self.args.get(name), name)

    def extents(self, name: str) -> Shape:
        """A list of integers as size expressions (empty for None); a lone integer is a list of one."""
        value = self.args.get(name)
        if value is None:
            return ()
        return tuple(self._expr(v, name) for v in (value if isinstance(value, tuple) else (value,)))

    def integers(self, name: str) -> tuple[int, ...]:
        """A list of fixed integers (empty for None); a lone integer is a list of one."""
        out: list[int] = []
        for extent in self.extents(name):
            if not isinstance(extent, Const):
                raise self.refuse(f"argument {name} must be fixed numbers")
            out.append(int(extent.value))
        return tuple(out)

    def dim(self, name: str, rank: int) -> int:
        """A dim argument, counted from 0."""
        value = self.integer(name)
        return value + max(rank, 1) if value < 0 else value

    def dims(self, name: str, rank: int) -> tuple[int, ...]:
        """A list of dims counted from 0, sorted; all dims for None or an empty list."""
        found = self.integers(name)
        return tuple(sorted(d + rank if d < 0 else d for d in found)) if found else tuple(range(rank))

    def refuse(self, message: str, hint: str = "") -> FrontendError:
        """The error to raise for a form of the operator that has no translation (code ``frontend-op-form``)."""
        return FrontendError("frontend-op-form", f"{self.name}: {message}", place=self.place, hint=hint)

    def _expr(self, value: Arg, name: str) -> Expr:
        if isinstance(value, Expr):
            return value
        if isinstance(value, int):
            return ix(value)
        raise self.refuse(f"argument {name} is not an integer")


RuleFn: TypeAlias = Callable[[Builder, Call], Result]
_RULES: dict[str, RuleFn] = {}


def rule(*names: str) -> Callable[[RuleFn], RuleFn]:
    """Register the function as the rule of one or more overloads, e.g. ``"aten.add.Tensor"``."""

    def register(fn: RuleFn) -> RuleFn:
        for name in names:
            if name in _RULES:
                raise internal(f"two rules for {name}")
            _RULES[name] = fn
        return fn

    return register


def rules() -> Mapping[str, RuleFn]:
    """Overload name → rule, after importing every module of ``steptp.frontend.ops``."""
    package = importlib.import_module("steptp.frontend.ops")
    for found in pkgutil.iter_modules(package.__path__):
        importlib.import_module(f"steptp.frontend.ops.{found.name}")
    return _RULES
