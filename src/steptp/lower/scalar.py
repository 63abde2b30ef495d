"""LEIR expressions as TIR expressions, faithful to the typing and IEEE rules of ``docs/leir.md``.

f16 and bf16 values are held as float32 numbers that the small type can represent; every operator rounds its result back.
(For + - * / and sqrt this equals rounding the exact result once, because float32 has more than twice the digits.)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from steptp.errors import internal
from steptp.ir.nodes import Buffer, Cast, Const, Expr, Load, Op, Size, Var
from steptp.ir.types import DType, int_range
from steptp.lower import nodes as n
from steptp.lower import vecmath
from steptp.lower.ranges import Ranges

__all__ = ["COMPUTE", "STORAGE", "Scalars", "Slot"]

COMPUTE = {
    DType.F16: "float32", DType.BF16: "float32", DType.F32: "float32", DType.F64: "float64",
    DType.I8: "int8", DType.I32: "int32", DType.I64: "int64", DType.BOOL: "bool",
}  # fmt: skip
STORAGE = {**COMPUTE, DType.F16: "float16", DType.BF16: "uint16"}
_LIMIT = 2**31 - 1
_LLVM = {
    "abs": "llvm.fabs", "sqrt": "llvm.sqrt", "floor": "llvm.floor", "ceil": "llvm.ceil", "round": "llvm.roundeven", "sin": "llvm.sin",
    "cos": "llvm.cos", "pow": "llvm.pow",
}  # fmt: skip


@dataclass(slots=True)
class Slot:
    """Where a LEIR buffer lives: a TVM buffer, its element count, and lane indices appended to every access."""

    leir: Buffer
    tvm: n.Expr
    elements: int
    lanes: tuple[n.Expr, ...] = ()


@dataclass(slots=True)
class Scalars:
    """Translates expressions under a scope of buffers, loop variables and their ranges."""

    sizes: dict[str, int]
    fma: bool
    math: str
    slots: dict[str, Slot] = field(default_factory=dict)
    variables: dict[str, n.Expr] = field(default_factory=dict)
    bounds: dict[str, tuple[int, int]] = field(default_factory=dict)
    cuda: bool = False
    statements: list[n.Stmt] = field(default_factory=list)
    scratch: n.Scratch = field(default_factory=lambda: n.Scratch([]))
    lane: tuple[n.Expr, int] = field(default_factory=lambda: (n.i32(0), 1))

    def binder(self) -> n.Binder:
        lane, lanes = self.lane
        return n.Binder(self.statements, self.scratch, lane, lanes)

    @contextmanager
    def emitting(self, statements: list[n.Stmt]) -> Iterator[None]:
        """Sub-expressions named inside are appended to ``statements``."""
        saved, self.statements = self.statements, statements
        yield
        self.statements = saved

    def branch(self, cond: n.Expr, dtype: str, yes: Callable[[], n.Expr], no: Callable[[], n.Expr]) -> n.Expr:
        """The value of one side; only that side is evaluated."""
        bind = self.binder()
        slot = bind.slot(dtype)
        sides = []
        for side in (yes, no):
            statements: list[n.Stmt] = []
            with self.emitting(statements):
                value = side()
            sides.append(n.sequence([*statements, bind.assign(slot, value)]))
        self.statements.append(n.tirx.IfThenElse(cond, *sides))
        return bind.read(slot)

    @property
    def ranges(self) -> Ranges:
        return Ranges(self.bounds, self.sizes, {k: s.leir for k, s in self.slots.items()})

    # reads and indices

    def address(self, buffer: str, indices: tuple[Expr, ...]) -> list[n.Expr]:
        """TIR indices of an access; 32 bits wide where every sub-expression provably fits."""
        slot = self.slots[buffer]
        ranges = self.ranges
        bits = 32 if slot.elements <= _LIMIT and all(ranges.fits32(i) for i in indices) else 64
        lanes = [lane if bits == 32 else n.tirx.Cast("int64", lane) for lane in slot.lanes]
        return [self.index(i, bits) for i in indices] + lanes

    def load(self, expr: Load) -> n.Expr:
        slot = self.slots[expr.buffer]
        raw = n.tirx.BufferLoad(slot.tvm, self.address(expr.buffer, expr.indices))
        if expr.type is DType.F16:
            return n.tirx.Cast("float32", raw)
        if expr.type is DType.BF16:
            wide = n.tirx.Cast("uint32", raw)
            return n.reinterpret("float32", n.tirx.shift_left(wide, n.ilit(16, "uint32")))
        return raw

    def stored(self, value: n.Expr, dtype: DType) -> n.Expr:
        """A computed value in its storage dtype (exact: it is already rounded)."""
        if dtype is DType.F16:
            return n.tirx.Cast("float16", value)
        if dtype is DType.BF16:
            high = n.tirx.shift_right(n.reinterpret("uint32", value), n.ilit(16, "uint32"))
            return n.tirx.Cast("uint16", high)
        return value

    def index(self, expr: Expr, bits: int) -> n.Expr:
        """An ``i64`` expression as int32 or int64 arithmetic."""
        dtype = f"int{bits}"
        if isinstance(expr, Const):
            return n.ilit(int(expr.value), dtype)
        if isinstance(expr, Size):
            return n.ilit(self.sizes[expr.name], dtype)
        if isinstance(expr, Var):
            return _to(self.variables[expr.name], dtype)
        if isinstance(expr, Load):
            return _to(self.load(expr), dtype)
        if isinstance(expr, Cast):
            return _to(self.cast(expr), dtype)
        if isinstance(expr, Op):
            if expr.name == "select":
                return self._choose(expr, lambda a: self.index(a, bits), dtype)
            return self._int_op(expr.name, [self.index(a, bits) for a in expr.args], dtype)
        raise internal(f"no index form for {expr!r}")

    # values

    def value(self, expr: Expr) -> n.Expr:
        """The expression in its compute dtype."""
        if expr.dtype is DType.I64 and not isinstance(expr, (Load, Cast)):
            bits = 32 if self.ranges.fits32(expr) else 64
            return _to(self.index(expr, bits), "int64")
        if isinstance(expr, Const):
            if expr.type is DType.BOOL:
                return n.ilit(int(expr.value), "bool")
            return n.flit(float(expr.value), COMPUTE[expr.type]) if expr.type.is_float else n.ilit(int(expr.value), COMPUTE[expr.type])
        if isinstance(expr, Load):
            return self.load(expr)
        if isinstance(expr, Cast):
            return self.cast(expr)
        if isinstance(expr, Op):
            return self._op(expr)
        raise internal(f"no value form for {expr!r}")

    def _op(self, expr: Op) -> n.Expr:
        name, main = expr.name, expr.args[-1].dtype
        if name == "select":
            return self._choose(expr, self.value, COMPUTE[main])
        if name in ("and", "or"):
            return self._logic(expr)
        if name == "not":
            return n.tirx.Not(self.value(expr.args[0]))
        if name in _COMPARE:
            return self._compare(expr)
        args = [self.value(a) for a in expr.args]
        if name == "isnan":
            bind = self.binder()
            return _float_test(bind(args[0], COMPUTE[main]))
        if main.is_int:
            return self._int_op(name, args, COMPUTE[main])
        return self._rounded(self._float_op(name, args, COMPUTE[main]), main, exact=name in ("neg", "abs", "max", "min", "floor", "ceil", "round"))

    def _compare(self, expr: Op) -> n.Expr:
        left, right = expr.args
        if left.dtype is DType.I64:
            ranges = self.ranges
            bits = 32 if ranges.fits32(left) and ranges.fits32(right) else 64
            return _COMPARE[expr.name](self.index(left, bits), self.index(right, bits))
        a, b = self.value(left), self.value(right)
        if left.dtype is DType.BOOL:
            a, b = n.tirx.Cast("int8", a), n.tirx.Cast("int8", b)
        if expr.name == "!=":  # TVM's own inequality is false for NaN
            return n.tirx.Not(n.tirx.EQ(a, b))
        return _COMPARE[expr.name](a, b)

    def _logic(self, expr: Op) -> n.Expr:
        a = self.value(expr.args[0])
        if self.ranges.safe(expr.args[1]):
            b = self.value(expr.args[1])
            return n.tirx.And(a, b) if expr.name == "and" else n.tirx.Or(a, b)
        right = expr.args[1]
        if expr.name == "and":
            return self.branch(a, "bool", lambda: self.value(right), lambda: n.ilit(0, "bool"))
        return self.branch(a, "bool", lambda: n.ilit(1, "bool"), lambda: self.value(right))

    def _choose(self, expr: Op, side: Callable[[Expr], n.Expr], dtype: str) -> n.Expr:
        cond, ranges, (yes, no) = self.value(expr.args[0]), self.ranges, expr.args[1:]
        if ranges.safe(yes) and ranges.safe(no):
            return n.select(cond, side(yes), side(no))
        return self.branch(cond, dtype, lambda: side(yes), lambda: side(no))

    def _int_op(self, name: str, args: list[n.Expr], dtype: str) -> n.Expr:
        if name == "neg":
            return n.tirx.Sub(n.ilit(0, dtype), args[0])
        if name == "abs":
            bind = self.binder()
            x = bind(args[0], dtype)
            return n.select(n.tirx.LT(x, n.ilit(0, dtype)), n.tirx.Sub(n.ilit(0, dtype), x), x)
        return _INT[name](*args)

    def _float_op(self, name: str, args: list[n.Expr], dtype: str) -> n.Expr:
        if name in _FLOAT:
            return _FLOAT[name](*args)
        if name == "neg":
            return n.tirx.Mul(args[0], n.tirx.FloatImm(dtype, -1.0))
        if name == "*" and (self.fma or self.cuda):
            return n.tirx.Mul(*args)
        if name in ("max", "min"):
            return self._extreme(name, args, dtype)
        if self.cuda:
            return vecmath.cuda_call(name, dtype, args)
        if name in vecmath.FUNCTIONS and dtype == "float32" and self.math == "vector":
            return vecmath.FUNCTIONS[name](args[0], self.binder())
        if name == "sigmoid":
            return self._sigmoid(args[0], dtype)
        return self._call(name, args, dtype)

    def _call(self, name: str, args: list[n.Expr], dtype: str) -> n.Expr:
        if name == "*":
            return n.fence(n.tirx.Mul(*args), dtype)
        if name in _LLVM:
            return n.intrinsic(_LLVM[name], dtype, *args)
        if name == "rsqrt":
            return n.tirx.Div(n.flit(1.0, dtype), n.intrinsic("llvm.sqrt", dtype, args[0]))
        return n.extern(name + ("f" if dtype == "float32" else ""), dtype, args[0])

    def _extreme(self, name: str, args: list[n.Expr], dtype: str) -> n.Expr:
        """max or min: NaN if either side is NaN, and -0 < +0, so that the order of a reduction does not matter."""
        if not self.cuda and not isinstance(args[1], n.tirx.FloatImm):
            return n.intrinsic("llvm.maximum" if name == "max" else "llvm.minimum", dtype, *args)
        bind = self.binder()
        a = bind(args[0], dtype)
        if self.cuda:
            b = bind(args[1], dtype)
            better = n.tirx.GT(a, b) if name == "max" else n.tirx.LT(a, b)
            return n.select(_float_test(a), a, n.select(better, a, b))
        b = args[1]  # a literal other than NaN and -0.0: one comparison decides, NaN and ties included
        loses = n.tirx.LE(a, b) if name == "max" else n.tirx.GT(a, b)
        return n.select(loses, b, a)

    def _sigmoid(self, x: n.Expr, dtype: str) -> n.Expr:
        """1/(1+exp(-|x|)), or its complement times exp, so that large magnitudes neither overflow nor cancel."""
        bind = self.binder()
        x = bind(x, dtype)
        size = n.tirx.Mul(n.intrinsic("llvm.fabs", dtype, x), n.tirx.FloatImm(dtype, -1.0))
        t = bind(n.extern("expf" if dtype == "float32" else "exp", dtype, size), dtype)
        one = n.flit(1.0, dtype)
        top = n.select(n.tirx.LT(x, n.flit(0.0, dtype)), t, one)
        return n.tirx.Div(top, n.tirx.Add(one, t))

    # casts and rounding

    def _rounded(self, value: n.Expr, dtype: DType, *, exact: bool = False) -> n.Expr:
        if exact:
            return value
        if dtype is DType.F16:
            return n.tirx.Cast("float32", n.tirx.Cast("float16", value))
        return vecmath.round_bf16(value, self.binder()) if dtype is DType.BF16 else value

    def cast(self, expr: Cast) -> n.Expr:
        """A LEIR cast; see *Types* in ``docs/leir.md``."""
        source, target = expr.arg.dtype, expr.type
        if target is DType.BOOL:
            value = self.value(expr.arg)
            zero = n.flit(0.0, COMPUTE[source]) if source.is_float else n.ilit(0, COMPUTE[source])
            return value if source is DType.BOOL else n.tirx.Not(n.tirx.EQ(value, zero))
        out = COMPUTE[target]
        if source is DType.I64 and target.is_float and self.ranges.fits32(expr.arg):
            value, source = self.index(expr.arg, 32), DType.I32
        else:
            value = self.value(expr.arg)
        if target.is_int:
            if source.is_float:
                return vecmath.cuda_saturate(value, COMPUTE[source], target) if self.cuda else n.intrinsic("llvm.fptosi.sat", out, value)
            return _saturate(value, source, target) if source.is_int else n.tirx.Cast(out, value)
        if target in (DType.F16, DType.BF16) and source in (DType.F64, DType.I32, DType.I64):
            wide = value if source is DType.F64 else n.tirx.Cast("float64", value)
            return self._rounded(vecmath.round_to_odd(wide, self.binder()), target)
        value = n.tirx.Cast(out, value) if COMPUTE[source] != out else value
        exact = source is target or (source in (DType.BOOL, DType.I8) and target is not DType.F32) or target in (DType.F32, DType.F64)
        return self._rounded(value, target, exact=exact)


def _to(value: n.Expr, dtype: str) -> n.Expr:
    if isinstance(value, n.tirx.IntImm):
        return n.ilit(int(value.value), dtype)
    return value if str(value.ty.dtype) == dtype else n.tirx.Cast(dtype, value)


def _float_test(x: n.Expr) -> n.Expr:
    return n.tirx.Not(n.tirx.EQ(x, x))


def _saturate(value: n.Expr, source: DType, target: DType) -> n.Expr:
    out = COMPUTE[target]
    if target.itemsize >= source.itemsize:
        return value if source is target else n.tirx.Cast(out, value)
    low, high = (n.ilit(v, COMPUTE[source]) for v in int_range(target))
    return n.tirx.Cast(out, n.tirx.Min(n.tirx.Max(value, low), high))


_COMPARE: dict[str, Callable[..., n.Expr]] = {
    "<": n.tirx.LT, "<=": n.tirx.LE, ">": n.tirx.GT, ">=": n.tirx.GE, "==": n.tirx.EQ, "!=": n.tirx.NE,
}  # fmt: skip
_INT: dict[str, Callable[..., n.Expr]] = {
    "+": n.tirx.Add, "-": n.tirx.Sub, "*": n.tirx.Mul, "//": n.tirx.FloorDiv, "%": n.tirx.FloorMod, "max": n.tirx.Max, "min": n.tirx.Min,
}  # fmt: skip
_FLOAT: dict[str, Callable[..., n.Expr]] = {"+": n.tirx.Add, "-": n.tirx.Sub, "/": n.tirx.Div}
