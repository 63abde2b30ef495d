"""Activation functions, each one nest."""

from __future__ import annotations

import math
from collections.abc import Callable

from steptp.frontend.builder import Builder
from steptp.frontend.ops.pointwise import elementwise, math_dtype, unary
from steptp.frontend.registry import Call, rule
from steptp.frontend.value import Value
from steptp.ir import Expr, call, select

_SELU_ALPHA, _SELU_SCALE = 1.6732632423543772848, 1.0507009873554804934


def parametric(*names: str) -> Callable[[Callable[[Expr, Call], Expr]], Callable[[Expr, Call], Expr]]:
    """Register a function of one operand and the call's number arguments, computed in :func:`math_dtype`."""

    def register(fn: Callable[[Expr, Call], Expr]) -> Callable[[Expr, Call], Expr]:
        def apply(b: Builder, c: Call) -> Value:
            return elementwise(b, c, [c.operand("self", math_dtype(c))], lambda x: fn(x, c))

        rule(*names)(apply)
        return fn

    return register


unary("aten.relu.default", exact=True)(lambda x: call("max", x, 0))
unary("aten.relu6.default", exact=True)(lambda x: call("min", call("max", x, 0), 6))
unary("aten.silu.default")(lambda x: x * call("sigmoid", x))
unary("aten.mish.default")(lambda x: x * call("tanh", call("log1p", call("exp", x))))
unary("aten.hardsigmoid.default")(lambda x: call("min", call("max", x + 3, 0), 6) / 6)
unary("aten.hardswish.default")(lambda x: x * call("min", call("max", x + 3, 0), 6) / 6)
unary("aten.log_sigmoid.default")(lambda x: call("min", x, 0) - call("log1p", call("exp", -call("abs", x))))


@parametric("aten.hardtanh.default")
def hardtanh(x: Expr, c: Call) -> Expr:
    """Clamp to ``min_val..max_val``."""
    return call("min", call("max", x, c.number("min_val")), c.number("max_val"))


@parametric("aten.leaky_relu.default")
def leaky_relu(x: Expr, c: Call) -> Expr:
    """``x`` above 0, a multiple of it below."""
    return select(x > 0, x, x * c.number("negative_slope"))


@parametric("aten.elu.default")
def elu(x: Expr, c: Call) -> Expr:
    """``x`` above 0, ``alpha*expm1(x)`` below."""
    scale, inner = float(c.number("scale")), float(c.number("input_scale"))
    return _elu(x, float(c.number("alpha")) * scale, scale, inner)


def _elu(x: Expr, below: float, above: float, inner: float) -> Expr:
    curve = call("expm1", x if inner == 1 else x * inner)
    return select(x > 0, x if above == 1 else x * above, curve if below == 1 else curve * below)


@parametric("aten.selu.default")
def selu(x: Expr, c: Call) -> Expr:
    """ELU with the self-normalising constants."""
    return _elu(x, _SELU_ALPHA * _SELU_SCALE, _SELU_SCALE, 1.0)


@parametric("aten.celu.default")
def celu(x: Expr, c: Call) -> Expr:
    """``x`` above 0, ``alpha*expm1(x/alpha)`` below."""
    alpha = float(c.number("alpha"))
    return _elu(x, alpha, 1.0, 1 / alpha)


@parametric("aten.gelu.default")
def gelu(x: Expr, c: Call) -> Expr:
    """Exact (erf) or tanh form."""
    if c.text("approximate") == "tanh":
        inner = math.sqrt(2 / math.pi) * (x + 0.044715 * (x * x * x))
        return 0.5 * x * (1 + call("tanh", inner))
    return 0.5 * x * (1 + call("erf", x * math.sqrt(0.5)))


@parametric("aten.softplus.default")
def softplus(x: Expr, c: Call) -> Expr:
    """``log1p(exp(beta*x))/beta``; the identity where ``beta*x`` passes the threshold."""
    beta = float(c.number("beta"))
    scaled = x if beta == 1 else x * beta
    curve = call("log1p", call("exp", scaled))
    return select(scaled > c.number("threshold"), x, curve if beta == 1 else curve / beta)


@parametric("aten.threshold.default")
def threshold(x: Expr, c: Call) -> Expr:
    """``value`` up to the threshold."""
    return select(x <= c.number("threshold"), c.literal(c.args["value"], x.dtype).at(()), x)


@parametric("aten.hardshrink.default")
def hardshrink(x: Expr, c: Call) -> Expr:
    """0 within ``±lambd``."""
    return select(call("abs", x) <= c.number("lambd"), x * 0, x)


@parametric("aten.softshrink.default")
def softshrink(x: Expr, c: Call) -> Expr:
    """Shrink toward 0 by ``lambd``."""
    lam = c.number("lambd")
    return select(x > lam, x - lam, select(x < -lam, x + lam, x * 0))


@rule("aten._prelu_kernel.default")
def prelu(b: Builder, c: Call) -> Value:
    """``x`` above 0, ``weight*x`` below; the weight has the operand's rank."""
    kind = math_dtype(c)
    return elementwise(b, c, [c.operand("self", kind), c.operand("weight", kind)], lambda x, w: select(x > 0, x, w * x))
