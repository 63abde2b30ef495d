"""Running error analysis as a program transformation.

:func:`shadow` makes an f64 program that computes, next to every value, a first-order estimate of the rounding error that the original
commits in its own dtypes (Wilkinson's running error analysis; Higham, *Accuracy and Stability of Numerical Algorithms*, 3.3). Each
operation adds ``u*|result| + eta`` (unit roundoff and half the smallest subnormal of its dtype) and passes on the errors of its
operands through its derivative. A sum of ``n`` terms is judged without regard to order: it adds ``u*sqrt(n)*sum|terms|``
(rounding errors of a long sum behave like independent ones: Higham and Mary, SISC 2019), so every ordering meets the same scale.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import sqrt

from steptp.ir.nodes import Body, Buffer, Cast, Const, Expr, If, Load, Loop, Op, Program, Stmt, Store, Var
from steptp.ir.resets import materialize
from steptp.ir.types import DType
from steptp.ir.walk import buffers, declaring_path, free_vars, fresh_name, used_names, visit
from steptp.lower.ranges import Ranges
from steptp.lower.widen import retyped, wide_buffer

__all__ = ["ROUNDOFF", "SUBNORMAL", "Shadow", "shadow"]

ROUNDOFF = {DType.F16: 2.0**-11, DType.BF16: 2.0**-8, DType.F32: 2.0**-24, DType.F64: 2.0**-53}
SUBNORMAL = {DType.F16: 2.0**-25, DType.BF16: 2.0**-134, DType.F32: 2.0**-150, DType.F64: 0.0}
_HUGE = 1e100
_EXACT = frozenset({"neg", "abs", "max", "min", "floor", "ceil", "round"})
_FUNCTION_ULPS = 4.0  # library functions and our polynomials err by less
_COMPARE = frozenset({"<", "<=", ">", ">=", "==", "!="})


@dataclass(frozen=True, slots=True)
class Shadow:
    """``program`` has the original's outputs in f64 and, for each float output, one more: ``errors`` maps output → its name. ``terms``: of the longest sum."""

    program: Program
    errors: dict[str, str]
    terms: int = 1


def _f(value: float) -> Const:
    return Const(value, DType.F64)


def _op(name: str, *args: Expr) -> Expr:
    """An f64 operator with the zero and one rules that keep error expressions short."""
    zero = [isinstance(a, Const) and a.value == 0.0 for a in args]
    if name == "+" and any(zero):
        return args[1] if zero[0] else args[0]
    if name == "*" and any(zero):
        return _f(0.0)
    if name == "max" and any(zero):  # errors are never negative
        return args[1] if zero[0] else args[0]
    return Op(name, args, DType.F64)


def _abs(x: Expr) -> Expr:
    return x if isinstance(x, Const) and float(x.value) >= 0 else Op("abs", (x,), DType.F64)


@dataclass(slots=True)
class _Maker:
    program: Program
    err: dict[str, str]
    mass: dict[str, str]
    terms: dict[str, int]

    def fresh(self, value: Expr, dtype: DType, ulps: float = 1.0) -> Expr:
        """The rounding error of one operation with this result."""
        size = Op("min", (_abs(value), _f(_HUGE)), DType.F64)  # an infinite result is exact, and 0*inf must not poison the rest
        return _op("+", _op("*", _f(ROUNDOFF[dtype] * ulps), size), _f(SUBNORMAL[dtype]))

    def error(self, expr: Expr) -> Expr:
        """The error estimate of a float expression of the original, in f64."""
        if isinstance(expr, Load):
            return self._load(expr)
        if isinstance(expr, Cast):
            if not expr.arg.dtype.is_float:
                exact = expr.arg.dtype in (DType.BOOL, DType.I8) or expr.type is DType.F64
                return _f(0.0) if exact else self.fresh(retyped(expr), expr.type)
            inner = self.error(expr.arg)
            return inner if expr.type.itemsize > expr.arg.dtype.itemsize else _op("+", inner, self.fresh(retyped(expr.arg), expr.type))
        if isinstance(expr, Op):
            return self._op_error(expr)
        return _f(0.0)

    def _load(self, expr: Load) -> Expr:
        if expr.buffer not in self.err:
            return _f(0.0)
        where = tuple(retyped(i) for i in expr.indices)
        error: Expr = Load(self.err[expr.buffer], where, DType.F64)
        if expr.buffer in self.mass:
            scale = ROUNDOFF[expr.type] * sqrt(self.terms[expr.buffer])
            error = _op("+", error, _op("*", _f(scale), Load(self.mass[expr.buffer], where, DType.F64)))
        return error

    def _op_error(self, expr: Op) -> Expr:
        name = expr.name
        if name == "select":
            return self._select(expr)
        args, errs, value = [retyped(a) for a in expr.args], [self.error(a) for a in expr.args], retyped(expr)
        if name in ("+", "-"):
            inherited = _op("+", *errs)
        elif name == "*":
            inherited = _op("+", _op("*", _abs(args[1]), errs[0]), _op("*", _abs(args[0]), errs[1]))
        elif name == "/":
            inherited = _op("+", errs[0], _op("*", _abs(value), errs[1]))
            below = _abs(args[1])
            if not isinstance(errs[1], Const):  # a denominator that rounding could make 0 leaves the quotient open
                below = Op("max", (Op("-", (below, errs[1]), DType.F64), _f(0.0)), DType.F64)
            inherited = inherited if isinstance(inherited, Const) else Op("/", (inherited, below), DType.F64)
        elif name in ("max", "min"):
            inherited = _op("max", *errs)
        elif name in ("floor", "ceil", "round"):
            jump = Op("!=", (Op(name, (Op("-", (args[0], errs[0]), DType.F64),), DType.F64), Op(name, (_op("+", args[0], errs[0]),), DType.F64)), DType.BOOL)
            inherited = _f(0.0) if isinstance(errs[0], Const) else Op("select", (jump, _op("+", errs[0], _f(1.0)), _f(0.0)), DType.F64)
        elif name == "pow":
            base = _op("*", _abs(Op("/", (args[1], args[0]), DType.F64)), errs[0])
            power = _op("*", _abs(Op("log", (_abs(args[0]),), DType.F64)), errs[1])
            inherited = _op("*", _abs(value), _op("+", base, power))
        else:
            inherited = self._derivative(name, args[0], value, errs[0])
        return inherited if name in _EXACT else _op("+", inherited, self.fresh(value, expr.type, 1.0 if name in "+-*/" or name == "sqrt" else _FUNCTION_ULPS))

    def _derivative(self, name: str, x: Expr, y: Expr, err: Expr) -> Expr:
        """|f'(x)| * err for a function of one operand with value ``y``."""
        if isinstance(err, Const):
            return _f(0.0)
        if name in ("neg", "abs", "sin", "cos"):  # derivative at most 1
            return err
        if name in ("exp", "expm1"):
            grown = Op("expm1", (Op("min", (err, _f(30.0)), DType.F64),), DType.F64)
            return _op("*", _abs(y) if name == "exp" else _op("+", y, _f(1.0)), grown)
        if name in ("log", "log1p"):
            return Op("/", (err, _abs(x) if name == "log" else _abs(_op("+", x, _f(1.0)))), DType.F64)
        if name in ("sqrt", "rsqrt"):
            if name == "rsqrt":
                return _op("*", _abs(Op("/", (y, _op("*", _f(2.0), x)), DType.F64)), err)
            up, down = _op("+", x, err), Op("max", (Op("-", (x, err), DType.F64), _f(0.0)), DType.F64)
            return Op("max", (Op("-", (Op("sqrt", (up,), DType.F64), y), DType.F64), Op("-", (y, Op("sqrt", (down,), DType.F64)), DType.F64)), DType.F64)
        slope = {
            "tanh": _op("+", _f(1.0), Op("neg", (_op("*", y, y),), DType.F64)),
            "sigmoid": _op("*", y, Op("-", (_f(1.0), y), DType.F64)),
            "erf": _f(1.1283791670955126),
        }[name]
        return _op("*", _op("max", _abs(slope), err) if name != "erf" else slope, err)

    def _select(self, expr: Op) -> Expr:
        cond, yes, no = expr.args
        errs = [self.error(yes), self.error(no)]
        chosen: Expr = Op("select", (retyped(cond), *errs), DType.F64)
        unsure = self._unsure(cond)
        if unsure is None:
            return _f(0.0) if all(isinstance(e, Const) and e.value == 0.0 for e in errs) else chosen
        apart = _abs(Op("-", (retyped(yes), retyped(no)), DType.F64))
        return Op("select", (unsure, _op("+", apart, _op("max", *errs)), chosen), DType.F64)

    def _unsure(self, cond: Expr) -> Expr | None:
        """Whether rounding could flip a float comparison; ``None`` when it cannot or when the condition guards reads."""
        if isinstance(cond, Op) and cond.name in _COMPARE and cond.args[0].dtype.is_float:
            margin = _op("+", *(self.error(a) for a in cond.args))
            if isinstance(margin, Const):
                return None
            return Op("<=", (_abs(Op("-", tuple(retyped(a) for a in cond.args), DType.F64)), margin), DType.BOOL)
        return None

    # statements

    def body(self, body: Body) -> Body:
        return tuple(s for stmt in body for s in self.statement(stmt))

    def statement(self, stmt: Stmt) -> Iterator[Stmt]:
        if isinstance(stmt, If):
            yield If(retyped(stmt.cond), self.body(stmt.body))
        elif isinstance(stmt, Loop):
            yield replace(stmt, extent=retyped(stmt.extent), body=self.body(stmt.body), tmps=tuple(self.declared(stmt.tmps)))
        else:
            yield from self.store(stmt)

    def declared(self, group: tuple[Buffer, ...]) -> Iterator[Buffer]:
        for buffer in group:
            wide = wide_buffer(buffer)
            yield wide
            for table in (self.err, self.mass):
                if buffer.name in table:
                    yield replace(wide, name=table[buffer.name])

    def store(self, stmt: Store) -> Iterator[Stmt]:
        where, value = tuple(retyped(i) for i in stmt.indices), retyped(stmt.value)
        main = Store(stmt.buffer, where, value, stmt.reduce, stmt.carry)
        if stmt.buffer not in self.err:
            yield main
            return
        err, dtype = self.err[stmt.buffer], stmt.value.dtype
        inherited = self.error(stmt.value)
        old, old_error = Load(stmt.buffer, where, DType.F64), Load(err, where, DType.F64)
        if stmt.reduce is None:
            yield Store(err, where, inherited)
            if stmt.buffer in self.mass:
                yield Store(self.mass[stmt.buffer], where, _abs(value))
        elif stmt.reduce == "+":
            yield Store(err, where, inherited, "+", True)
            yield Store(self.mass[stmt.buffer], where, _abs(value), "+", True)
        elif stmt.reduce == "*":
            own = self.fresh(_op("*", old, value), dtype)
            yield Store(err, where, _op("+", _op("+", _op("*", _abs(value), old_error), _op("*", _abs(old), inherited)), own))
        else:
            yield Store(err, where, inherited, "max", True)
        yield main


def shadow(program: Program) -> Shadow:
    """The error program of ``program``; see the module text.

    Raises :class:`steptp.errors.LeirError` ``check-reset`` when an accumulation has no reset.
    """
    ready = materialize(program).program
    taken, err, mass = set(used_names(ready)), dict[str, str](), dict[str, str]()
    terms = _terms(ready)
    inputs = {b.name for b in ready.inputs}
    for buffer in buffers(ready):
        if buffer.dtype.is_float and buffer.name not in inputs:
            err[buffer.name] = fresh_name(f"{buffer.name}_err", taken)
            taken.add(err[buffer.name])
            if buffer.name in terms:
                mass[buffer.name] = fresh_name(f"{buffer.name}_mass", taken)
                taken.add(mass[buffer.name])
    maker = _Maker(ready, err, mass, terms)
    outputs = [wide_buffer(b) for b in ready.outputs]
    bounds, extra, last = [], [], []
    for buffer in outputs:
        if buffer.name not in err:
            continue
        bounds.append(replace(buffer, name=err[buffer.name]))
        if buffer.name in mass:  # the output's own sum has to be added once, at the end
            extra.append(replace(buffer, name=mass[buffer.name]))
            last.append(_finish(buffer, maker, ready, taken))
    made = ready.with_(
        inputs=tuple(wide_buffer(b) for b in ready.inputs),
        outputs=(*outputs, *bounds),
        tmps=(*maker.declared(ready.tmps), *extra),
        body=(*maker.body(ready.body), *last),
    )
    return Shadow(made, {b.name: err[b.name] for b in outputs if b.name in err}, max(terms.values(), default=1))


def _finish(buffer: Buffer, maker: _Maker, program: Program, taken: set[str]) -> Stmt:
    """A nest that adds the accumulation part to an output's error."""
    names = []
    for _ in buffer.shape:
        names.append(fresh_name("d0", taken))
        taken.add(names[-1])
    where = tuple(Var(v) for v in names)
    dtype = next(b.dtype for b in program.outputs if b.name == buffer.name)
    own = Op("*", (_f(ROUNDOFF[dtype] * sqrt(maker.terms[buffer.name])), Load(maker.mass[buffer.name], where, DType.F64)), DType.F64)
    nest: Stmt = Store(maker.err[buffer.name], where, own, "+", True)
    for name, extent in zip(reversed(names), reversed(buffer.shape), strict=True):
        nest = Loop(name, extent, (nest,))
    return nest


def _terms(program: Program) -> dict[str, int]:
    """Float buffer with a ``+=`` → the largest number of terms that one element can receive."""
    env, table = program.size_env, {b.name: b for b in buffers(program)}
    found: dict[str, int] = {}
    for met in visit(program):
        if not (isinstance(met.stmt, Store) and met.stmt.reduce == "+" and table[met.stmt.buffer].dtype.is_float):
            continue
        depth = len(declaring_path(program, met.stmt.buffer))
        indexing = frozenset().union(*(free_vars(i) for i in met.stmt.indices))
        spans: dict[str, tuple[int, int]] = {}
        trips = 1
        for position, owner in enumerate(met.parents):
            if isinstance(owner, Loop):
                span = Ranges(spans, env, table).of(owner.extent)
                top = max(span[1], 1) if span else 1
                spans[owner.var] = (0, top - 1)
                trips *= top if position >= depth and owner.var not in indexing else 1
        found[met.stmt.buffer] = found.get(met.stmt.buffer, 1) + trips
    return found
