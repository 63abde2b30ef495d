"""Elementary f32 functions as TIR expressions: the same bits scalar and vector, with and without FMA contraction.

Every multiply that feeds an addition is a pinned ``llvm.fma``. The polynomials are minimax fits (Lawson's iteration on
Chebyshev nodes). Largest error found against float64 over 4 million random bit patterns, in units in the last place:
exp 1, expm1 1.6, log 0.8, log1p 1.3, tanh 1.4, sigmoid 2.3, erf 1.4 (``tests/lower/test_vecmath.py`` checks these bounds, special values and
subnormal results). Also here: rounding to bf16 and from f64 to a small type.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce

from steptp.ir.types import DType, int_range
from steptp.lower import nodes as n

__all__ = ["FUNCTIONS", "cuda_call", "cuda_saturate", "round_bf16", "round_to_odd"]

F = "float32"
_LOG2E, _LN2_HIGH, _LN2_LOW = 1.4426950408889634, 0.693145751953125, 1.428606765330187e-06
_MAGIC = 12582912.0  # 1.5 * 2**23: adding it rounds to an integer and leaves the integer in the low bits
_EXP = (0.4999999403953552, 0.1666652113199234, 0.04166838899254799, 0.00836874544620514, 0.0013814539415761828)
_EXPM1 = (0.4999999701976776, 0.1666654348373413, 0.04166720062494278, 0.008366547524929047, 0.0013882516650483012)
_LOG = (
    0.3333331346511841, -0.25000008940696716, 0.20002123713493347, -0.16668005287647247, 0.14219452440738678,
    -0.12405340373516083, 0.11888697743415833, -0.11677515506744385, 0.067477285861969,
)  # fmt: skip
_TANH = (-0.3333331346511841, 0.13332480192184448, -0.0538405179977417, 0.02102055586874485, -0.006198726128786802)
_ERF = (
    0.12837916612625122, -0.37612631916999817, 0.11283687502145767, -0.026858942583203316, 0.005199907813221216,
    -0.0008130024652928114, 8.31681682029739e-05,
)  # fmt: skip
_LOG2_ERFC = (
    -0.0002934528165496886, -1.6268459558486938, -0.919337272644043, -0.14987346529960632, 0.032033804804086685, -0.004382183775305748,
    0.00028183567337691784,
)  # fmt: skip
_EXP2 = (1.0000001192092896, 0.6931472420692444, 0.240219846367836, 0.055502768605947495, 0.009680663235485554, 0.0013415386201813817)


def _c(value: float) -> n.Expr:
    return n.flit(value, F)


def _horner(coefficients: tuple[float, ...], x: n.Expr) -> n.Expr:
    """The polynomial at ``x``."""
    first, *rest = reversed(coefficients)
    return reduce(lambda acc, c: n.fma(acc, x, _c(c)), rest, _c(first))


def _isnan(x: n.Expr) -> n.Expr:
    return n.tirx.Not(n.tirx.EQ(x, x))


def _bits(x: n.Expr) -> n.Expr:
    return n.reinterpret("int32", x)


def _abs(x: n.Expr) -> n.Expr:
    return n.intrinsic("llvm.fabs", F, x)


def _with_sign(size: n.Expr, sign: n.Expr) -> n.Expr:
    return n.intrinsic("llvm.copysign", F, size, sign)


def _power_of_two(exponent: n.Expr) -> n.Expr:
    """2**exponent for -126 <= exponent <= 127."""
    return n.reinterpret(F, n.tirx.shift_left(n.tirx.Add(exponent, n.i32(127)), n.i32(23)))


def _reduced(x: n.Expr, bind: n.Binder) -> tuple[n.Expr, n.Expr]:
    """Integer ``k`` and ``r`` with x = k*ln2 + r, |r| <= ln2/2 (Cody and Waite)."""
    shifted = bind(n.fma(x, _c(_LOG2E), _c(_MAGIC)), F)
    whole = bind(n.tirx.Sub(shifted, _c(_MAGIC)), F)
    k = bind(n.tirx.Sub(_bits(shifted), n.i32(0x4B400000)), "int32")
    high = bind(n.fma(whole, _c(-_LN2_HIGH), x), F)
    r = bind(n.fma(whole, _c(-_LN2_LOW), high), F)
    return k, r


def _clamped(x: n.Expr, low: float, high: float, bind: n.Binder) -> n.Expr:
    """x limited to [low, high]; NaN stays NaN."""
    below = n.select(n.tirx.LT(x, _c(low)), _c(low), x)
    x = bind(below, F)
    return bind(n.select(n.tirx.GT(x, _c(high)), _c(high), x), F)


def _exp_core(x: n.Expr, bind: n.Binder) -> n.Expr:
    x = _clamped(x, -105.0, 89.5, bind)
    k, r = _reduced(x, bind)
    tail = bind(n.fma(_horner(_EXP, r), n.tirx.Mul(r, r), r), F)
    near = bind(n.tirx.Add(tail, _c(1.0)), F)
    half = bind(n.tirx.shift_right(k, n.i32(1)), "int32")
    return bind(n.fence(n.tirx.Mul(n.tirx.Mul(near, _power_of_two(half)), _power_of_two(n.tirx.Sub(k, half))), F), F)


def exp(x: n.Expr, bind: n.Binder) -> n.Expr:
    """e**x; overflows to inf above 88.72, subnormal below -87.34, 0 below -103.98."""
    return _exp_core(bind(x, F), bind)


def _expm1_core(x: n.Expr, bind: n.Binder) -> n.Expr:
    limited = _clamped(x, -30.0, 88.9, bind)
    k, r = _reduced(limited, bind)
    p = bind(n.fma(_horner(_EXPM1, r), n.tirx.Mul(r, r), r), F)
    scale = bind(_power_of_two(n.tirx.Sub(k, n.i32(1))), F)  # half of 2**k, so that k = 128 stays finite
    halved = bind(n.fma(p, scale, n.tirx.Sub(scale, _c(0.5))), F)
    big = n.fence(n.tirx.Mul(halved, _c(2.0)), F)
    small = n.tirx.LT(_abs(x), _c(2.0**-30))
    return n.select(small, x, n.select(n.tirx.EQ(k, n.i32(0)), p, big))


def expm1(x: n.Expr, bind: n.Binder) -> n.Expr:
    """e**x - 1 without cancellation."""
    return _expm1_core(bind(x, F), bind)


def _log_parts(x: n.Expr, bind: n.Binder) -> tuple[n.Expr, n.Expr]:
    """Float exponent ``e`` and ``f`` with x = 2**e * (1+f), sqrt(1/2) <= 1+f < sqrt(2), for positive finite x."""
    tiny = n.tirx.LT(x, _c(2.0**-126))
    scaled = bind(n.select(tiny, n.tirx.Mul(x, _c(2.0**25)), x), F)
    shifted = bind(n.tirx.Sub(_bits(scaled), n.i32(0x3F3504F3)), "int32")  # sqrt(1/2)
    k = bind(n.tirx.shift_right(shifted, n.i32(23)), "int32")
    mantissa = n.reinterpret(F, n.tirx.Add(n.tirx.bitwise_and(shifted, n.i32(0x7FFFFF)), n.i32(0x3F3504F3)))
    e = bind(n.tirx.Cast(F, n.select(tiny, n.tirx.Sub(k, n.i32(25)), k)), F)
    return e, bind(n.tirx.Sub(mantissa, _c(1.0)), F)


def _log_sum(e: n.Expr, f: n.Expr, bind: n.Binder) -> n.Expr:
    """log(2**e * (1+f))."""
    square = bind(n.tirx.Mul(f, f), F)
    cubic = bind(n.fence(n.tirx.Mul(n.tirx.Mul(f, square), _horner(_LOG, f)), F), F)
    curved = bind(n.fma(square, _c(-0.5), cubic), F)
    rest = bind(n.fma(e, _c(_LN2_LOW), curved), F)
    return bind(n.fma(e, _c(_LN2_HIGH), n.tirx.Add(f, rest)), F)


def _log_special(x: n.Expr, result: n.Expr) -> n.Expr:
    """inf and NaN pass; -inf at 0; NaN below."""
    result = n.select(n.tirx.EQ(x, _c(float("inf"))), x, result)
    result = n.select(n.tirx.EQ(x, _c(0.0)), _c(float("-inf")), result)
    result = n.select(n.tirx.LT(x, _c(0.0)), _c(float("nan")), result)
    return n.select(_isnan(x), x, result)


def log(x: n.Expr, bind: n.Binder) -> n.Expr:
    """Natural logarithm."""
    x = bind(x, F)
    e, f = _log_parts(x, bind)
    return _log_special(x, bind(_log_sum(e, f, bind), F))


def log1p(x: n.Expr, bind: n.Binder) -> n.Expr:
    """log(1+x): the rounding error of 1+x is put back after the reduction."""
    x = bind(x, F)
    u = bind(n.tirx.Add(x, _c(1.0)), F)
    e, f = _log_parts(u, bind)
    lost = n.select(n.tirx.LT(x, _c(1.0)), n.tirx.Sub(x, n.tirx.Sub(u, _c(1.0))), n.tirx.Sub(_c(1.0), n.tirx.Sub(u, x)))
    unscaled = n.tirx.EQ(e, _c(0.0))
    finite = bind(n.select(n.tirx.LT(u, _c(2.0**60)), n.tirx.Div(lost, u), _c(0.0)), F)
    f = bind(n.select(unscaled, x, f), F)
    main = _log_sum(e, f, bind)
    result = bind(n.select(unscaled, main, n.tirx.Add(main, finite)), F)
    small = n.tirx.LT(_abs(x), _c(2.0**-26))
    return n.select(small, x, _log_special(u, result))


def tanh(x: n.Expr, bind: n.Binder) -> n.Expr:
    """Odd polynomial below 0.56, else 1 - 2/(exp(2|x|)+1)."""
    x = bind(x, F)
    size = bind(_abs(x), F)
    square = bind(n.tirx.Mul(x, x), F)
    near = n.fma(n.tirx.Mul(square, x), _horner(_TANH, square), x)
    e = bind(_exp_core(n.tirx.Mul(size, _c(2.0)), bind), F)
    far = n.tirx.Sub(_c(1.0), n.tirx.Div(_c(2.0), n.tirx.Add(e, _c(1.0))))
    return _with_sign(n.select(n.tirx.LT(size, _c(0.56)), near, far), x)


def sigmoid(x: n.Expr, bind: n.Binder) -> n.Expr:
    """1/(1+exp(-x)) through exp(-|x|), accurate at both ends."""
    x = bind(x, F)
    t = bind(_exp_core(n.tirx.Mul(_abs(x), _c(-1.0)), bind), F)
    top = n.select(n.tirx.LT(x, _c(0.0)), t, _c(1.0))
    return n.tirx.Div(top, n.tirx.Add(t, _c(1.0)))


def erf(x: n.Expr, bind: n.Binder) -> n.Expr:
    """Odd polynomial below 0.93, else 1 - 2**P(|x|) with P fitted to log2(erfc); the power needs few bits, because it is below 0.19."""
    x = bind(x, F)
    size = bind(_abs(x), F)
    square = bind(n.tirx.Mul(x, x), F)
    near = n.fma(x, _horner(_ERF, square), x)
    limited = bind(n.select(n.tirx.GT(size, _c(4.0)), _c(4.0), size), F)
    p = bind(_horner(_LOG2_ERFC, limited), F)
    shifted = bind(n.tirx.Add(p, _c(_MAGIC)), F)
    r = bind(n.tirx.Sub(p, n.tirx.Sub(shifted, _c(_MAGIC))), F)
    scaled = n.tirx.Add(_bits(bind(_horner(_EXP2, r), F)), n.tirx.shift_left(_bits(shifted), n.i32(23)))  # of the exponent's low bits
    far = n.tirx.Sub(_c(1.0), n.reinterpret(F, bind(scaled, "int32")))
    return n.select(n.tirx.GE(size, _c(0.93)), _with_sign(far, x), near)  # NaN goes near: the scaling may spoil its exponent


FUNCTIONS: dict[str, Callable[[n.Expr, n.Binder], n.Expr]] = {
    "exp": exp, "expm1": expm1, "log": log, "log1p": log1p, "tanh": tanh, "sigmoid": sigmoid, "erf": erf,
}  # fmt: skip


# rounding to small types


def round_bf16(x: n.Expr, bind: n.Binder) -> n.Expr:
    """float32 rounded to nearest even bf16, as float32. In integer arithmetic, so no pass can drop it."""
    x = bind(x, F)
    u = bind(n.reinterpret("uint32", x), "uint32")
    odd = n.tirx.bitwise_and(n.tirx.shift_right(u, n.ilit(16, "uint32")), n.ilit(1, "uint32"))
    up = n.tirx.Add(n.tirx.Add(u, n.ilit(0x7FFF, "uint32")), odd)
    kept = n.reinterpret(F, n.tirx.bitwise_and(up, n.ilit(0xFFFF0000, "uint32")))
    return n.select(_isnan(x), _c(float("nan")), kept)


def round_to_odd(x: n.Expr, bind: n.Binder) -> n.Expr:
    """float64 to float32 with inexact results made odd, so that a second rounding to f16 or bf16 is right."""
    x = bind(x, "float64")
    y = bind(n.tirx.Cast(F, x), F)
    back = bind(n.tirx.Cast("float64", y), "float64")
    exact = n.tirx.Or(n.tirx.EQ(back, x), _isnan(x))
    bits = bind(_bits(y), "int32")
    beyond = n.select(n.tirx.LT(x, n.flit(0.0, "float64")), n.tirx.LT(back, x), n.tirx.GT(back, x))
    truncated = n.select(beyond, n.tirx.Sub(bits, n.i32(1)), bits)
    odd = n.reinterpret(F, n.tirx.bitwise_or(truncated, n.i32(1)))
    return n.select(exact, y, odd)


# CUDA: the device library is accurate and needs no polynomials


_CUDA = {
    "abs": "fabs", "sqrt": "sqrt", "rsqrt": "rsqrt", "floor": "floor", "ceil": "ceil", "round": "rint", "sin": "sin", "cos": "cos", "pow": "pow",
    "exp": "exp", "expm1": "expm1", "log": "log", "log1p": "log1p", "tanh": "tanh", "erf": "erf",
}  # fmt: skip


def cuda_call(name: str, dtype: str, args: list[n.Expr]) -> n.Expr:
    """A call of CUDA's math library."""
    suffix = "f" if dtype == F else ""
    if name == "sigmoid":
        e = n.extern(f"exp{suffix}", dtype, n.tirx.Mul(args[0], n.tirx.FloatImm(dtype, -1.0)))
        return n.tirx.Div(n.flit(1.0, dtype), n.tirx.Add(n.flit(1.0, dtype), e))
    return n.extern(_CUDA[name] + suffix, dtype, *args)


def cuda_saturate(value: n.Expr, dtype: str, target: DType) -> n.Expr:
    """float → int: CUDA's conversions to i32 and i64 saturate; i8 is limited first; NaN gives 0."""
    if target is DType.I8:
        low, high = (n.tirx.FloatImm(dtype, float(v)) for v in int_range(target))
        limited = n.select(n.tirx.LT(value, low), low, n.select(n.tirx.GT(value, high), high, value))
        return n.tirx.Cast("int8", n.select(_isnan(value), n.i32(0), n.tirx.Cast("int32", limited)))
    out = "int32" if target is DType.I32 else "int64"
    return n.select(_isnan(value), n.ilit(0, out), n.tirx.Cast(out, value))
