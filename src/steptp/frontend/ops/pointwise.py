"""Elementwise arithmetic, comparisons and logic."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from steptp.frontend.builder import MATH, Builder
from steptp.frontend.registry import Call, RuleFn, rule
from steptp.frontend.value import Value, as_dtype, broadcast_to
from steptp.ir import Const, DType, Expr, call, cast, const, op, select

__all__ = ["elementwise", "unary", "binary", "math_dtype"]

_ADD = {"add": "+", "sub": "-", "rsub": "-"}


def elementwise(b: Builder, c: Call, operands: Sequence[Value], fn: Callable[..., Expr], stem: str = "t") -> Value:
    """One nest over the broadcast operands; ``fn`` gives an element that is rounded to the result dtype."""
    wide = [broadcast_to(x, c.shape) for x in operands]
    return b.pointwise(c.shape, c.dtype, lambda i: cast(c.dtype, fn(*(x.at(i) for x in wide))), like=wide, stem=stem)


def math_dtype(c: Call) -> DType:
    """The float dtype a function of the operands is computed in: f32 for 16-bit floats, the result dtype for integers."""
    kind = c.promoted if c.promoted.is_float else c.dtype
    return MATH.get(kind, kind)


def unary(*names: str, exact: bool = False) -> Callable[[Callable[[Expr], Expr]], Callable[[Expr], Expr]]:
    """Register a function of one operand. ``exact`` keeps the operand's dtype (no rounding happens); else see :func:`math_dtype`."""

    def register(fn: Callable[[Expr], Expr]) -> Callable[[Expr], Expr]:
        def apply(b: Builder, c: Call) -> Value:
            x = c.tensor("self")
            return elementwise(b, c, [x if exact else as_dtype(x, math_dtype(c))], fn)

        rule(*names)(apply)
        return fn

    return register


def binary(*names: str, exact: bool = False) -> Callable[[Callable[[Expr, Expr], Expr]], Callable[[Expr, Expr], Expr]]:
    """Register a function of ``self`` and ``other``, promoted to a common dtype (``exact``) or that of :func:`math_dtype`."""

    def register(fn: Callable[[Expr, Expr], Expr]) -> Callable[[Expr, Expr], Expr]:
        def apply(b: Builder, c: Call) -> Value:
            kind = c.promoted if exact else math_dtype(c)
            return elementwise(b, c, [c.operand("self", kind), c.operand("other", kind)], fn)

        rule(*names)(apply)
        return fn

    return register


def _kind(c: Call) -> DType:
    """The dtype for one correctly rounded operator: 16-bit if every number operand fits it, since rounding through f32 changes nothing."""
    value = c.args.get("other")
    plain = c.args.get("alpha", 1)
    fits = isinstance(value, Value) or (isinstance(value, (int, float)) and (value != value or _holds(value, c.promoted)))
    return c.promoted if fits and plain == 1 else MATH.get(c.promoted, c.promoted)


def _holds(value: float, dtype: DType) -> bool:
    return not dtype.is_float or const(value, dtype).value == value


def _add(b: Builder, c: Call) -> Value:
    """``self ± alpha*other``; bool operands add as *or*."""
    name = c.name.split(".")[1]
    kind = _kind(c)
    x, y = c.operand("self", kind), c.operand("other", kind)
    if name == "rsub":
        x, y = y, x
    alpha = c.args.get("alpha", 1)
    if alpha != 1:
        scale = c.literal(alpha, kind).at(())
        y = y.map(kind, lambda e: e * scale)
    if kind is DType.BOOL:
        return elementwise(b, c, [x, y], lambda p, q: op("or", p, q))
    return elementwise(b, c, [x, y], lambda p, q: op(_ADD[name], p, q))


rule("aten.add.Tensor", "aten.add.Scalar", "aten.sub.Tensor", "aten.sub.Scalar", "aten.rsub.Tensor", "aten.rsub.Scalar")(_add)


@rule("aten.mul.Tensor", "aten.mul.Scalar")
def mul(b: Builder, c: Call) -> Value:
    """Product; bool operands multiply as *and*."""
    kind = _kind(c)
    x, y = c.operand("self", kind), c.operand("other", kind)
    if c.args.get("other") == 1 and not isinstance(c.args["other"], Expr) and c.dtype is x.dtype:
        return x
    return elementwise(b, c, [x, y], lambda p, q: op("and" if kind is DType.BOOL else "*", p, q))


@rule("aten.div.Tensor", "aten.div.Scalar", "aten.true_divide.Tensor")
def div(b: Builder, c: Call) -> Value:
    """Quotient; integers divide as floats."""
    return _quotient(b, c)


def _quotient(b: Builder, c: Call) -> Value:
    kind = _kind(c) if c.promoted.is_float else c.dtype
    return elementwise(b, c, [c.operand("self", kind), c.operand("other", kind)], lambda p, q: p / q)


@rule("aten.div.Tensor_mode", "aten.div.Scalar_mode", "aten.floor_divide.default", "aten.floor_divide.Scalar")
def div_mode(b: Builder, c: Call) -> Value:
    """Quotient rounded down or toward zero."""
    mode = str(c.args.get("rounding_mode") or ("floor" if "floor_divide" in c.name else ""))
    if not mode:
        return _quotient(b, c)
    kind = MATH.get(c.promoted, c.promoted)
    x, y = c.operand("self", kind), c.operand("other", kind)
    if kind.is_float:
        return elementwise(b, c, [x, y], lambda p, q: call("floor", p / q) if mode == "floor" else truncate(p / q))
    if mode == "floor":
        return elementwise(b, c, [x, y], lambda p, q: p // q)
    return elementwise(b, c, [x, y], lambda p, q: select(op("<", p, 0).ne(q < 0), -(call("abs", p) // call("abs", q)), call("abs", p) // call("abs", q)))


@rule("aten.fmod.Tensor", "aten.fmod.Scalar")
def fmod(b: Builder, c: Call) -> Value:
    """Remainder with the sign of ``self``."""
    kind = MATH.get(c.promoted, c.promoted)
    x, y = c.operand("self", kind), c.operand("other", kind)
    if kind.is_float:
        return elementwise(b, c, [x, y], lambda p, q: p - truncate(p / q) * q)
    return elementwise(b, c, [x, y], lambda p, q: select(p < 0, -(call("abs", p) % call("abs", q)), call("abs", p) % call("abs", q)))


@rule("aten.remainder.Tensor", "aten.remainder.Scalar")
def remainder(b: Builder, c: Call) -> Value:
    """Remainder with the sign of ``other``."""
    kind = MATH.get(c.promoted, c.promoted)
    x, y = c.operand("self", kind), c.operand("other", kind)
    return elementwise(b, c, [x, y], (lambda p, q: p - call("floor", p / q) * q) if kind.is_float else (lambda p, q: p % q))


def truncate(x: Expr) -> Expr:
    """Toward zero."""
    return select(x < 0, call("ceil", x), call("floor", x))


@rule("aten.pow.Tensor_Scalar")
def pow_scalar(b: Builder, c: Call) -> Value:
    """Small whole exponents multiply out, ±0.5 are roots, as PyTorch computes them."""
    power = c.args["exponent"]
    kind = MATH.get(c.promoted, c.promoted)
    x = c.operand("self", kind)
    if not isinstance(power, (int, float)):
        exponent = c.operand("exponent", kind)
        return elementwise(b, c, [x, exponent], lambda p, q: call("pow", p, q))
    return elementwise(b, c, [x], lambda e: raise_to(e, power, c))


def raise_to(x: Expr, power: float, c: Call) -> Expr:
    """``x`` to a fixed power."""
    if power in (1, 2, 3):
        return x if power == 1 else x * x if power == 2 else x * x * x
    if not x.dtype.is_float:
        if power < 0 or power > 16 or not float(power).is_integer():
            raise c.refuse(f"an integer to the power {power}", "cast the tensor to a float dtype first")
        out: Expr = const(1, x.dtype)
        for n in range(int(power)):
            out = x if n == 0 else out * x
        return out
    if power in (0.5, -0.5):
        return call("sqrt" if power > 0 else "rsqrt", x)
    if power in (-1, -2):
        return 1 / (x if power == -1 else x * x)
    return const(1, x.dtype) if power == 0 else call("pow", x, power)


@rule("aten.pow.Tensor_Tensor", "aten.pow.Scalar")
def pow_tensor(b: Builder, c: Call) -> Value:
    """``self ** exponent`` for floats."""
    if not c.promoted.is_float:
        raise c.refuse("integer powers need a fixed exponent", "cast the operands to a float dtype first")
    kind = MATH.get(c.promoted, c.promoted)
    return elementwise(b, c, [c.operand("self", kind), c.operand("exponent", kind)], lambda p, q: call("pow", p, q))


@rule("aten.square.default")
def square(b: Builder, c: Call) -> Value:
    """``x*x``."""
    return elementwise(b, c, [c.operand("self", c.promoted)], lambda x: x * x)


def _function(name: str) -> Callable[[Expr], Expr]:
    return lambda x: call(name, x)


for _name in ("exp", "expm1", "log", "log1p", "sqrt", "rsqrt", "tanh", "sigmoid", "erf", "sin", "cos"):
    unary(f"aten.{_name}.default")(_function(_name))

unary("aten.neg.default", exact=True)(lambda x: -x)
unary("aten.abs.default", exact=True)(lambda x: call("abs", x))
unary("aten.reciprocal.default")(lambda x: 1 / x)
unary("aten.exp2.default", "aten.special_exp2.default")(lambda x: call("pow", const(2, x.dtype), x))
unary("aten.log2.default")(lambda x: call("log", x) * (1 / math.log(2)))
unary("aten.log10.default")(lambda x: call("log", x) * (1 / math.log(10)))
unary("aten.tan.default")(lambda x: call("sin", x) / call("cos", x))
unary("aten.sinh.default")(lambda x: (call("expm1", x) - call("expm1", -x)) * 0.5)
unary("aten.cosh.default")(lambda x: (call("exp", x) + call("exp", -x)) * 0.5)
unary("aten.erfc.default")(lambda x: 1 - call("erf", x))
unary("aten.logit.default")(lambda x: call("log", x / (1 - x)))


def _whole(*names: str) -> Callable[[Callable[[Expr], Expr]], None]:
    """Register a rounding function; integers are already whole."""

    def register(fn: Callable[[Expr], Expr]) -> None:
        unary(*names, exact=True)(lambda x: fn(x) if x.dtype.is_float else x)

    return register


_whole("aten.floor.default")(lambda x: call("floor", x))
_whole("aten.ceil.default")(lambda x: call("ceil", x))
_whole("aten.round.default")(lambda x: call("round", x))
_whole("aten.trunc.default", "aten.fix.default")(truncate)
_whole("aten.frac.default")(lambda x: x - truncate(x))


@unary("aten.sign.default", "aten.sgn.default", exact=True)
def sign(x: Expr) -> Expr:
    """-1, 0 or 1; 0 for NaN."""
    return x if x.dtype is DType.BOOL else select(x > 0, const(1, x.dtype), select(x < 0, const(-1, x.dtype), const(0, x.dtype)))


def _extreme(name: str) -> Callable[[Expr, Expr], Expr]:
    return lambda p, q: op({"max": "or", "min": "and"}[name], p, q) if p.dtype is DType.BOOL else call(name, p, q)


binary("aten.maximum.default", "aten.max.other", exact=True)(_extreme("max"))
binary("aten.minimum.default", "aten.min.other", exact=True)(_extreme("min"))


def _comparison(sign: str) -> Callable[[Expr, Expr], Expr]:
    return lambda p, q: op(sign, p, q)


for _name, _sign in (("eq", "=="), ("ne", "!="), ("lt", "<"), ("le", "<="), ("gt", ">"), ("ge", ">=")):
    binary(f"aten.{_name}.Tensor", f"aten.{_name}.Scalar", exact=True)(_comparison(_sign))


def _logic(name: str) -> RuleFn:
    def apply(b: Builder, c: Call) -> Value:
        operands = [as_dtype(c.tensor(k), DType.BOOL) for k in ("self", "other")]
        return elementwise(b, c, operands, lambda p, q: p.ne(q) if name == "xor" else op(name, p, q))

    return apply


for _name in ("and", "or", "xor"):
    rule(f"aten.logical_{_name}.default")(_logic(_name))


def _bitwise(name: str) -> RuleFn:
    def apply(b: Builder, c: Call) -> Value:
        if c.dtype is not DType.BOOL:
            raise c.refuse("bitwise operators are translated for bool only")
        operands = [c.operand(k, DType.BOOL) for k in ("self", "other")]
        return elementwise(b, c, operands, lambda p, q: p.ne(q) if name == "xor" else op(name, p, q))

    return apply


for _name in ("and", "or", "xor"):
    rule(f"aten.bitwise_{_name}.Tensor", f"aten.bitwise_{_name}.Scalar", f"aten.__{_name}__.Tensor", f"aten.__{_name}__.Scalar")(_bitwise(_name))

unary("aten.logical_not.default", exact=True)(lambda x: op("not", cast(DType.BOOL, x)))
unary("aten.bitwise_not.default", exact=True)(lambda x: op("not", x) if x.dtype is DType.BOOL else -x - 1)
unary("aten.isnan.default", exact=True)(lambda x: call("isnan", x) if x.dtype.is_float else const(False, DType.BOOL))
unary("aten.isinf.default", exact=True)(lambda x: call("abs", x).eq(float("inf")) if x.dtype.is_float else const(False, DType.BOOL))
unary("aten.isfinite.default", exact=True)(lambda x: call("abs", x) < float("inf") if x.dtype.is_float else const(True, DType.BOOL))


@rule("aten.clamp.default", "aten.clamp.Tensor", "aten.clamp_min.default", "aten.clamp_max.default", "aten.clamp_min.Tensor", "aten.clamp_max.Tensor")
def clamp(b: Builder, c: Call) -> Value:
    """``min(max(x, low), high)``; NaN stays NaN."""
    low, high = (c.operand(k, c.promoted) if c.has(k) else None for k in ("min", "max"))
    x = c.operand("self", c.promoted)

    def bounded(e: Expr, *bounds: Expr) -> Expr:
        rest = list(bounds)
        e = call("max", e, rest.pop(0)) if low is not None else e
        return call("min", e, rest.pop(0)) if high is not None else e

    return elementwise(b, c, [v for v in (x, low, high) if v is not None], bounded)


@rule("aten.where.self", "aten.where.ScalarOther", "aten.where.ScalarSelf", "aten.where.Scalar")
def where(b: Builder, c: Call) -> Value:
    """``select(condition, self, other)``."""
    cond = as_dtype(c.tensor("condition"), DType.BOOL)
    return elementwise(b, c, [cond, c.operand("self", c.dtype), c.operand("other", c.dtype)], lambda q, x, y: select(q, x, y))


@rule("aten.masked_fill.Scalar", "aten.masked_fill.Tensor")
def masked_fill(b: Builder, c: Call) -> Value:
    """``select(mask, value, self)``."""
    return elementwise(b, c, [as_dtype(c.tensor("mask"), DType.BOOL), c.operand("value", c.dtype), c.tensor("self")], lambda q, x, y: select(q, x, y))


@rule("aten.addcmul.default", "aten.addcdiv.default")
def addc(b: Builder, c: Call) -> Value:
    """``self + value*tensor1*tensor2`` or ``self + value*tensor1/tensor2``."""
    kind = MATH.get(c.promoted, c.promoted)
    scale = c.literal(c.args.get("value", 1), kind).at(())
    operands = [c.operand(k, kind) for k in ("self", "tensor1", "tensor2")]

    def element(x: Expr, p: Expr, q: Expr) -> Expr:
        p = p if isinstance(scale, Const) and scale.value == 1 else scale * p
        return x + (p * q if "addcmul" in c.name else p / q)

    return elementwise(b, c, operands, element)


@rule("aten.lerp.Scalar", "aten.lerp.Tensor")
def lerp(b: Builder, c: Call) -> Value:
    """``self + weight*(end-self)``."""
    kind = MATH.get(c.promoted, c.promoted)
    return elementwise(b, c, [c.operand(k, kind) for k in ("self", "end", "weight")], lambda x, y, w: x + w * (y - x))
