"""Element types of LEIR and the rounding of literals to them."""

from __future__ import annotations

import math
import re
import struct
from enum import Enum

__all__ = ["DType", "Scope", "LoopKind", "round_literal", "literal_text", "looks_like_dtype", "int_range"]


class DType(str, Enum):
    """Element type. There is no implicit promotion between them."""

    F16 = "f16"
    BF16 = "bf16"
    F32 = "f32"
    F64 = "f64"
    I8 = "i8"
    I32 = "i32"
    I64 = "i64"
    BOOL = "bool"

    @property
    def is_float(self) -> bool:
        return self in _FLOATS

    @property
    def is_int(self) -> bool:
        return self in _INTS

    @property
    def itemsize(self) -> int:
        """Bytes per element."""
        return _BYTES[self]

    def __str__(self) -> str:
        return self.value


_FLOATS = frozenset({DType.F16, DType.BF16, DType.F32, DType.F64})
_INTS = frozenset({DType.I8, DType.I32, DType.I64})
_BYTES = {DType.F16: 2, DType.BF16: 2, DType.F32: 4, DType.F64: 8, DType.I8: 1, DType.I32: 4, DType.I64: 8, DType.BOOL: 1}


_DTYPE_LIKE = re.compile(r"(?:bf|fp|f|i|u|int|uint|float)(?:8|\d\d+)\Z|(?:float|half|double|int|long)\Z")


def looks_like_dtype(name: str) -> bool:
    """Whether a name reads as an element type of LEIR or of another language (``f31``, ``u8``, ``float``)."""
    return bool(_DTYPE_LIKE.match(name))


class Scope(str, Enum):
    """Storage scope: who may read. ``global`` everyone, ``shared`` a thread block, ``local`` one thread."""

    GLOBAL = "global"
    SHARED = "shared"
    LOCAL = "local"

    def __str__(self) -> str:
        return self.value


class LoopKind(str, Enum):
    """How a loop runs. Serial order is the meaning; a kind never changes it. The value is the keyword in text."""

    SERIAL = "for"
    PARALLEL = "par"
    VECTOR = "vec"
    UNROLL = "unroll"
    BLOCK_X = "bx"
    BLOCK_Y = "by"
    BLOCK_Z = "bz"
    THREAD_X = "tx"
    THREAD_Y = "ty"
    THREAD_Z = "tz"

    @property
    def is_bound(self) -> bool:
        """Bound to a GPU axis."""
        return self.is_block or self.is_thread

    @property
    def is_block(self) -> bool:
        return self in _BLOCK_AXES

    @property
    def is_thread(self) -> bool:
        return self in _THREAD_AXES

    @property
    def is_concurrent(self) -> bool:
        """Iterations may run at the same time (parallel, vector, bound)."""
        return self.is_bound or self in (LoopKind.PARALLEL, LoopKind.VECTOR)

    def __str__(self) -> str:
        return self.value


_BLOCK_AXES = (LoopKind.BLOCK_X, LoopKind.BLOCK_Y, LoopKind.BLOCK_Z)
_THREAD_AXES = (LoopKind.THREAD_X, LoopKind.THREAD_Y, LoopKind.THREAD_Z)


def int_range(dtype: DType) -> tuple[int, int]:
    """Smallest and largest value of an integer dtype."""
    bits = dtype.itemsize * 8
    return -(1 << (bits - 1)), (1 << (bits - 1)) - 1


def round_literal(value: float | int | bool, dtype: DType) -> float | int | bool:
    """Round ``value`` to the nearest value of ``dtype`` (ties to even; overflow goes to infinity).

    Raises ``ValueError`` when an integer or bool dtype cannot hold the value.
    """
    if dtype is DType.BOOL:
        if value not in (0, 1):
            raise ValueError(f"{value!r} is not a bool")
        return bool(value)
    if dtype.is_int:
        if isinstance(value, float) and not value.is_integer():
            raise ValueError(f"{value!r} is not an integer")
        whole = int(value)
        low, high = int_range(dtype)
        if not low <= whole <= high:
            raise ValueError(f"{whole} does not fit {dtype}")
        return whole
    return _round_float(float(value), dtype)


def _round_float(value: float, dtype: DType) -> float:
    if dtype is DType.F64 or math.isnan(value) or math.isinf(value) or value == 0.0:
        return value
    if dtype is DType.BF16:
        # round a double directly to 8 significant bits (no double rounding through f32), then to f32's range
        mantissa, exponent = math.frexp(value)
        bits = 8 if exponent > -126 else 8 - (-125 - exponent)  # fewer, even below 0, for subnormal results
        scaled = math.ldexp(mantissa, bits)
        rounded = math.copysign(math.ldexp(float(round(scaled)), exponent - bits), value)
        return math.copysign(math.inf, value) if abs(rounded) > 3.3895313892515355e38 else rounded
    code = "<f" if dtype is DType.F32 else "<e"
    try:
        return float(struct.unpack(code, struct.pack(code, value))[0])
    except OverflowError:
        return math.copysign(math.inf, value)


def literal_text(value: float | int | bool, dtype: DType) -> str:
    """The shortest decimal that reads back as exactly this value of ``dtype`` (``0``, ``0.5``, ``1e-5``, ``-inf``)."""
    if dtype is DType.BOOL:
        return "true" if value else "false"
    if dtype.is_int:
        return str(int(value))
    number = float(value)
    if math.isnan(number):
        return "nan"
    if math.isinf(number):
        return "inf" if number > 0 else "-inf"
    if number == 0.0:
        return "-0.0" if math.copysign(1.0, number) < 0 else "0"
    for digits in range(1, 18):
        text = f"{number:.{digits}g}"
        if _round_float(float(text), dtype) == number:
            return _tidy(text)
    raise AssertionError(f"no decimal for {number!r}")


def _tidy(text: str) -> str:
    """``1e-05`` → ``1e-5``; ``1e+02`` → ``100``; ``5e-01`` stays out because %g never prints it."""
    if "e" not in text:
        return text
    head, tail = text.split("e")
    power = int(tail)
    if 0 <= power <= 6 and len(head.replace(".", "").lstrip("-")) <= power + 1:
        return str(int(float(text)))
    return f"{head}e{power}"
