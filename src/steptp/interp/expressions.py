"""Expressions compiled to closures over a list of loop-variable values.

``env[slot]`` is the value of a loop variable. Arrays are flat Python lists in row-major order in which ``None``
marks an undefined element, so undefined reads are found whatever the dtype.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from steptp.errors import internal
from steptp.interp.errors import EvalError
from steptp.interp.scalars import INT_COMPARE, Algebra, int_binary, int_cast, int_unary
from steptp.ir.nodes import Cast, Const, Expr, Load, Op, Size, Var
from steptp.ir.types import DType

__all__ = ["Env", "Code", "Array", "Affine", "affine_of", "Scope", "ExprCompiler"]

Env: TypeAlias = list[int]
Code: TypeAlias = Callable[[Env], Any]
IndexCode: TypeAlias = Callable[[Env], int]


@dataclass(frozen=True, slots=True)
class Array:
    """Storage of one buffer: ``data`` is flat, row-major; strides count elements."""

    name: str
    dtype: DType
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    data: list[Any]

    @staticmethod
    def blank(name: str, dtype: DType, shape: tuple[int, ...]) -> Array:
        """An array whose elements are all undefined."""
        strides, step = [0] * len(shape), 1
        for d in range(len(shape) - 1, -1, -1):
            strides[d] = step
            step *= shape[d]
        return Array(name, dtype, shape, tuple(strides), [None] * step)


@dataclass(frozen=True, slots=True)
class Affine:
    """``base + sum(coef * env[slot])``, with the terms in slot order."""

    base: int
    terms: tuple[tuple[int, int], ...]  # (slot, coefficient)


@dataclass(slots=True)
class Scope:
    """Loop variables in scope: their slots, and inclusive bounds of their values where known (by slot)."""

    slots: dict[str, int] = field(default_factory=dict)
    bounds: dict[int, tuple[int, int]] = field(default_factory=dict)

    def enter(self, var: str, bounds: tuple[int, int]) -> Scope:
        """The scope inside a loop; slots are numbered by depth, so sibling loops share them."""
        slot = len(self.slots)
        return Scope({**self.slots, var: slot}, {**self.bounds, slot: bounds})


def affine_of(expr: Expr, scope: Scope, sizes: Mapping[str, int]) -> Affine | None:
    """The affine form of an ``i64`` index at fixed sizes; ``None`` if it is not affine."""
    poly = _linear(expr, scope, sizes)
    if poly is None:
        return None
    base = poly.pop(-1, 0)
    return Affine(base, tuple(sorted((s, c) for s, c in poly.items() if c)))


def _linear(expr: Expr, scope: Scope, sizes: Mapping[str, int]) -> dict[int, int] | None:
    if isinstance(expr, Const) and expr.type is DType.I64:
        return {-1: int(expr.value)}
    if isinstance(expr, Size):
        return {-1: sizes[expr.name]}
    if isinstance(expr, Var):
        return {scope.slots[expr.name]: 1}
    if not isinstance(expr, Op) or expr.type is not DType.I64 or expr.name not in ("+", "-", "*", "neg"):
        return None
    parts = [_linear(a, scope, sizes) for a in expr.args]
    left, right = parts[0], parts[-1]
    if left is None or right is None:
        return None
    if expr.name == "neg":
        return {k: -v for k, v in left.items()}
    if expr.name == "*":
        constant, other = (left, right) if set(left) <= {-1} else (right, left)
        if not set(constant) <= {-1}:
            return None
        factor = constant.get(-1, 0)
        return {k: v * factor for k, v in other.items()}
    sign = 1 if expr.name == "+" else -1
    return {k: left.get(k, 0) + sign * right.get(k, 0) for k in left.keys() | right.keys()}


def affine_range(form: Affine, scope: Scope) -> tuple[int, int]:
    """Inclusive bounds of an affine form over the loops in scope."""
    low = high = form.base
    for slot, coef in form.terms:
        a, b = scope.bounds[slot]
        low += min(coef * a, coef * b)
        high += max(coef * a, coef * b)
    return low, high


def affine_code(form: Affine) -> IndexCode:
    """A closure that evaluates the form."""
    base, terms = form.base, form.terms
    if not terms:
        return lambda env: base
    (s0, c0) = terms[0]
    if len(terms) == 1:
        if c0 == 1 and base == 0:
            return lambda env: env[s0]
        return lambda env: base + c0 * env[s0]
    (s1, c1) = terms[1]
    if len(terms) == 2:
        if c1 == 1 and base == 0:
            return lambda env: c0 * env[s0] + env[s1]
        return lambda env: base + c0 * env[s0] + c1 * env[s1]
    (s2, c2) = terms[2]
    if len(terms) == 3:
        return lambda env: base + c0 * env[s0] + c1 * env[s1] + c2 * env[s2]
    rest = terms[3:]

    def many(env: Env) -> int:
        total = base + c0 * env[s0] + c1 * env[s1] + c2 * env[s2]
        for slot, coef in rest:
            total += coef * env[slot]
        return total

    return many


@dataclass(slots=True)
class ExprCompiler:
    """Compiles expressions of one program at fixed sizes over one algebra.

    ``read`` makes the closure of a load (whole-program evaluation reads lists, demand-driven evaluation finds the last write).
    """

    algebra: Algebra
    sizes: Mapping[str, int]
    read: Callable[[Load, Scope], Code]

    def compile(self, expr: Expr, scope: Scope) -> Code:
        """The closure of ``expr``; loop variables come from ``scope``."""
        if expr.dtype is DType.I64 and (form := affine_of(expr, scope, self.sizes)) is not None:
            return affine_code(form)
        if isinstance(expr, Const):
            value = self.algebra.const(float(expr.value), expr.type) if expr.type.is_float else expr.value
            return lambda env: value
        if isinstance(expr, Load):
            return self.read(expr, scope)
        if isinstance(expr, Cast):
            return self._cast(expr, scope)
        if isinstance(expr, Op):
            return self._op(expr, scope)
        raise internal(f"no evaluation of {expr!r}")

    def _cast(self, expr: Cast, scope: Scope) -> Code:
        source, target = expr.arg.dtype, expr.type
        convert = self.algebra.cast(source, target) if source.is_float or target.is_float else int_cast(source, target)
        arg = self.compile(expr.arg, scope)
        return lambda env: convert(arg(env))

    def _op(self, expr: Op, scope: Scope) -> Code:
        name = expr.name
        args = [self.compile(a, scope) for a in expr.args]
        kind = expr.args[-1].dtype
        if name == "select":
            cond, yes, no = args
            return lambda env: yes(env) if cond(env) else no(env)
        if name == "isnan":
            test, arg = self.algebra.isnan(), args[0]
            return lambda env: test(arg(env))
        if name == "and":
            left, right = args
            return lambda env: left(env) and right(env)
        if name == "or":
            left, right = args
            return lambda env: left(env) or right(env)
        if name == "not":
            arg = args[0]
            return lambda env: not arg(env)
        if len(args) == 1:
            unary = self.algebra.unary(name, kind) if kind.is_float else int_unary(name, kind)
            arg = args[0]
            return lambda env: unary(arg(env))
        compares = name in INT_COMPARE
        if kind.is_float:
            binary = self.algebra.compare(name) if compares else self.algebra.binary(name, kind)
        else:
            binary = INT_COMPARE[name] if compares else int_binary(name, kind)
        left, right = args
        return lambda env: binary(left(env), right(env))

    def offset(self, array: Array, indices: tuple[Expr, ...], scope: Scope) -> IndexCode:
        """Indices → flat offset. Bounds are checked at run time unless the loops' ranges prove them."""
        forms = [affine_of(i, scope, self.sizes) for i in indices]
        if all(f is not None and (r := affine_range(f, scope))[0] >= 0 and r[1] < n for f, n in zip(forms, array.shape, strict=True)):
            total: dict[int, int] = {}
            base = 0
            for form, stride in zip(forms, array.strides, strict=True):
                assert form is not None
                base += form.base * stride
                for slot, coef in form.terms:
                    total[slot] = total.get(slot, 0) + coef * stride
            return affine_code(Affine(base, tuple(sorted((s, c) for s, c in total.items() if c))))
        return self._checked_offset(array, [self.compile(i, scope) for i in indices])

    def _checked_offset(self, array: Array, codes: list[Code]) -> IndexCode:
        name, dims = array.name, tuple(zip(codes, array.shape, array.strides, strict=True))

        def outside(d: int, value: int) -> EvalError:
            return EvalError("eval-bounds", f"{name}: index {value} of dimension {d} is outside 0..{array.shape[d] - 1}")

        if len(dims) == 1:
            code, size, _ = dims[0]

            def single(env: Env) -> int:
                value: int = code(env)
                if 0 <= value < size:
                    return value
                raise outside(0, value)

            return single

        def flat(env: Env) -> int:
            total = 0
            for d, (code, size, stride) in enumerate(dims):
                value = code(env)
                if not 0 <= value < size:
                    raise outside(d, value)
                total += value * stride
            return total

        return flat
