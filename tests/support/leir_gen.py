"""Random valid LEIR programs, for Hypothesis and for seeded runs.

Every program reads only elements that are inside their arrays and written before, divides by nothing that can be 0, and its integer arithmetic cannot
overflow, so that evaluators and back ends can run it. Sizes are small.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from hypothesis import strategies as st

from steptp.ir import Body, Buffer, Cast, DType, Expr, If, Load, Loop, LoopKind, Program, Size, SizeDecl, Stmt, Store, Var, cast, const, is_name, ix, op, select
from steptp.ir.walk import substitute

__all__ = ["programs", "random_program", "FLOATS", "Choose"]

Choose = Callable[[int], int]
"""``choose(n)`` draws one of 0 … n - 1; 0 is the simplest choice."""

FLOATS = (DType.F32, DType.F64, DType.F16, DType.BF16)
_INTS = (DType.I64, DType.I32)
_UNARY = ("exp", "tanh", "sigmoid", "abs", "neg", "sqrt", "floor", "erf", "sin", "round")
_BINARY = ("+", "-", "*", "max", "min", "/")
_T = TypeVar("_T")


@dataclass(frozen=True)
class _Array:
    """A readable buffer. ``bound`` limits the magnitude of an integer's values; ``below`` is the size an index table stays below."""

    name: str
    dtype: DType
    shape: tuple[str, ...]
    bound: int = 0
    below: str = ""


@dataclass
class _Scope:
    """What an expression may use: loop variables with the size each stays below, and arrays."""

    variables: dict[str, str]
    arrays: list[_Array]


class _Generator:
    def __init__(self, choose: Choose, floats: Sequence[DType]) -> None:
        self.choose = choose
        self.floats = floats
        self.sizes: dict[str, int] = {}
        self.decls: list[SizeDecl] = []
        self.inputs: list[Buffer] = []
        self.arrays: list[_Array] = []
        self.made: list[Buffer] = []
        self.body: list[Stmt] = []
        self.count = 0

    def pick(self, options: Sequence[_T]) -> _T:
        return options[self.choose(len(options))]

    def maybe(self, one_in: int) -> bool:
        return self.choose(one_in) == one_in - 1

    def fresh(self, stem: str) -> str:
        self.count += 1
        name = f"{stem}{self.count}"
        return name if is_name(name) else self.fresh(stem)

    # the program

    def program(self) -> Program:
        for name in ("N", "M", "K")[: 2 + self.choose(2)]:
            self._size(name, 1 + (2 + self.choose(5)) % 6)
        if self.maybe(4):
            self._size("D", self.sizes["N"] + self.sizes["M"] - 1, op("-", op("+", Size("N"), Size("M")), ix(1)))
        for _ in range(1 + self.choose(3)):
            self._input(self.pick(self.floats))
        if self.maybe(2):
            below = self.pick(list(self.sizes))
            dtype = self.pick(_INTS)
            self._input(dtype, below=below)
        if self.maybe(4):
            self._input(DType.BOOL)
        for _ in range(1 + self.choose(3)):
            self._nest()
        last = self.made[-1]
        outs = [b for b in self.made if b is last or self.maybe(4)]
        tmps = [b for b in self.made if all(b is not o for o in outs)]
        return Program(tuple(self.decls), tuple(self.inputs), tuple(outs), tuple(self.body), tuple(tmps))

    def _size(self, name: str, value: int, expr: Expr | None = None) -> None:
        self.sizes[name] = value
        self.decls.append(SizeDecl(name, value, expr))

    def _shape(self, least: int = 0) -> tuple[str, ...]:
        rank = max(least, (2, 1, 2, 3, 0)[self.choose(5)])
        return tuple(self.pick(list(self.sizes)) for _ in range(rank))

    def _input(self, dtype: DType, below: str = "") -> None:
        name, shape = self.fresh("A"), self._shape(1)
        limits = (ix(0), Size(below)) if below else None
        self.inputs.append(Buffer(name, dtype, tuple(map(Size, shape)), range=limits))
        self.arrays.append(_Array(name, dtype, shape, self.sizes[below] if below else 0, below))

    # nests

    def _nest(self) -> None:
        makers = [self._elementwise, self._reduction, self._accumulator, self._guarded, self._tiled, self._fused, self._triangle, self._scatter, self._in_place]
        self.pick(makers)()

    def _target(self, dtype: DType, shape: tuple[str, ...], bound: int = 0) -> Buffer:
        buffer = Buffer(self.fresh("X"), dtype, tuple(map(Size, shape)))
        self.made.append(buffer)
        self.arrays.append(_Array(buffer.name, dtype, shape, bound))
        return buffer

    def _dtype(self) -> DType:
        return self.pick((*self.floats, *self.floats, DType.I64, DType.I32, DType.BOOL))

    def _loops(self, shape: tuple[str, ...]) -> dict[str, str]:
        return {self.fresh("ijkpq"[n % 5]): size for n, size in enumerate(shape)}

    def _wrap(self, loops: Sequence[tuple[str, str]], inner: Body, kinds: bool = True) -> Stmt:
        """Loops around ``inner``; the outermost may be parallel, and the innermost a vec or unroll loop."""
        for position, (var, size) in reversed(list(enumerate(loops))):
            kind = LoopKind.SERIAL
            is_leaf = position == len(loops) - 1 and all(isinstance(s, Store) for s in inner)
            if kinds and self.maybe(4):
                options = [LoopKind.UNROLL] + [LoopKind.VECTOR] * is_leaf + [LoopKind.PARALLEL] * (position == 0)
                kind = self.pick(options)
            inner = (Loop(var, Size(size), inner, kind),)
        assert len(inner) == 1
        return inner[0]

    def _elementwise(self) -> None:
        dtype, shape = self._dtype(), self._shape(1)
        loops = self._loops(shape)
        value, bound = self.expr(dtype, _Scope(loops, list(self.arrays)), 3)
        store = Store(self._target(dtype, shape, bound).name, tuple(map(Var, loops)), value)
        order = list(loops.items())
        if self.maybe(3):
            order.reverse()
        self.body.append(self._wrap(order, (store,)))

    def _reducer(self, dtype: DType) -> str:
        return self.pick(("or", "and")) if dtype is DType.BOOL else self.pick(("+", "max", "min", "+"))

    def _reduction(self) -> None:
        dtype, shape = self._dtype(), self._shape()
        loops, extra = self._loops(shape), self._loops((self.pick(list(self.sizes)),))
        value, bound = self.expr(dtype, _Scope({**loops, **extra}, list(self.arrays)), 2)
        reduce = self._reducer(dtype)
        store = Store(self._target(dtype, shape, max(bound * 6, 1 << 31 if reduce in ("max", "min") else 0)).name, tuple(map(Var, loops)), value, reduce)
        order = [*loops.items(), *extra.items()]
        at = self.choose(len(order))
        order[at], order[-1] = order[-1], order[at]
        self.body.append(self._wrap(order, (store,), kinds=False))

    def _accumulator(self) -> None:
        """A scalar temporary in a loop body: accumulate, then use it."""
        dtype, shape = self.pick(self.floats), self._shape(1)[:2]
        loops, extra = self._loops(shape), self._loops((self.pick(list(self.sizes)),))
        value, _ = self.expr(dtype, _Scope({**loops, **extra}, list(self.arrays)), 2)
        acc = Buffer(self.fresh("acc"), dtype, ())
        reads = [*self.arrays, _Array(acc.name, dtype, ())]
        result, _ = self.expr(dtype, _Scope(loops, reads), 2)
        target = self._target(dtype, shape)
        inner: Body = (
            self._wrap(list(extra.items()), (Store(acc.name, (), value, "+"),), kinds=False),
            Store(target.name, tuple(map(Var, loops)), op("+", Load(acc.name, (), dtype), result)),
        )
        (first, size), *rest = reversed(list(loops.items()))
        stmt: Stmt = Loop(first, Size(size), inner, tmps=(acc,))
        self.body.append(self._wrap(list(reversed(rest)), (stmt,)) if rest else stmt)

    def _guarded(self) -> None:
        """Fill everything, then change the part where a condition holds."""
        dtype, shape = self.pick(self.floats), self._shape(1)
        loops = self._loops(shape)
        scope = _Scope(loops, list(self.arrays))
        first, _ = self.expr(dtype, scope, 1)
        cond, _ = self.expr(DType.BOOL, scope, 2)
        value, _ = self.expr(dtype, scope, 2)
        target = self._target(dtype, shape)
        index = tuple(map(Var, loops))
        reduce = self.pick((None, "+", "max"))
        body: Body = (Store(target.name, index, first), If(cond, (Store(target.name, index, value, reduce, reduce is not None),)))
        self.body.append(self._wrap(list(loops.items()), body))

    def _tiled(self) -> None:
        """One dimension in tiles, with a guard on the tail."""
        dtype, shape = self.pick(self.floats), self._shape(1)
        tile = self.fresh("T")
        self._size(tile, 1 + (1 + self.choose(4)) % 4)
        loops = self._loops(shape)
        (var, size), *others = loops.items()
        outer, inner = self.fresh("o"), self.fresh("u")
        place = op("+", op("*", Var(outer), Size(tile)), Var(inner))
        value, _ = self.expr(dtype, _Scope({**loops}, list(self.arrays)), 2)
        store = Store(self._target(dtype, shape).name, tuple(map(Var, loops)), value)
        renamed = _put(store, var, place)
        guard = If(op("<", place, Size(size)), (self._wrap(others, (renamed,)) if others else renamed,))
        tiles = op("//", op("-", op("+", Size(size), Size(tile)), ix(1)), Size(tile))
        self.body.append(Loop(outer, tiles, (Loop(inner, Size(tile), (guard,)),)))

    def _fused(self) -> None:
        """Two dimensions run by one loop."""
        dtype, shape = self.pick(self.floats), (self.pick(list(self.sizes)), self.pick(list(self.sizes)))
        (row, rows), (column, columns) = self._loops(shape).items()
        value, _ = self.expr(dtype, _Scope({row: rows, column: columns}, list(self.arrays)), 2)
        store = Store(self._target(dtype, shape).name, (Var(row), Var(column)), value)
        fused = self.fresh("f")
        store = _put(store, row, op("//", Var(fused), Size(columns)))
        store = _put(store, column, op("%", Var(fused), Size(columns)))
        self.body.append(Loop(fused, op("*", Size(rows), Size(columns)), (store,)))

    def _triangle(self) -> None:
        """A reduction whose extent depends on the loop around it."""
        dtype, size = self.pick(self.floats), self.pick(list(self.sizes))
        outer, inner = self.fresh("i"), self.fresh("j")
        value, _ = self.expr(dtype, _Scope({outer: size, inner: size}, list(self.arrays)), 2)
        target = self._target(dtype, (size,))
        self.body.append(Loop(outer, Size(size), (Loop(inner, op("+", Var(outer), ix(1)), (Store(target.name, (Var(outer),), value, "+"),)),)))

    def _scatter(self) -> None:
        """A histogram through a look-up table, or a plain copy where there is no table."""
        tables = [a for a in self.arrays if a.below]
        if not tables:
            return self._elementwise()
        table = self.pick(tables)
        dtype = self.pick(self.floats)
        loops = self._loops(table.shape)
        value, _ = self.expr(dtype, _Scope(loops, list(self.arrays)), 1)
        fill = self.fresh("i")
        target = self._target(dtype, (table.below,))
        place = _to_i64(Load(table.name, tuple(map(Var, loops)), table.dtype))
        self.body.append(Loop(fill, Size(table.below), (Store(target.name, (Var(fill),), const(0, dtype)),)))
        self.body.append(self._wrap(list(loops.items()), (Store(target.name, (place,), value, "+", True),), kinds=False))
        return None

    def _in_place(self) -> None:
        """Update an array that is already there, element by element; copy an input where there is none."""
        floats = [b for b in self.made if b.dtype.is_float and b.shape]
        if not floats:
            return self._elementwise()
        buffer = self.pick(floats)
        shape = tuple(s.name for s in buffer.shape if isinstance(s, Size))
        loops = self._loops(shape)
        index = tuple(map(Var, loops))
        others = [a for a in self.arrays if a.name != buffer.name]
        change, _ = self.expr(buffer.dtype, _Scope(loops, others), 1)
        value = op("-", Load(buffer.name, index, buffer.dtype), change)
        self.body.append(self._wrap(list(loops.items()), (Store(buffer.name, index, value),)))
        return None

    # expressions: (expression, bound on the magnitude of an integer's value)

    def expr(self, dtype: DType, scope: _Scope, depth: int) -> tuple[Expr, int]:
        if dtype is DType.BOOL:
            return self._bool(scope, depth), 1
        return self._float(dtype, scope, depth) if dtype.is_float else self._int(dtype, scope, depth)

    def _load(self, array: _Array, scope: _Scope) -> Expr:
        return Load(array.name, tuple(self._index(size, scope) for size in array.shape), array.dtype)

    def _index(self, size: str, scope: _Scope) -> Expr:
        fitting = [v for v, s in scope.variables.items() if s == size]
        tables = [a for a in scope.arrays if a.below == size and all(s in scope.variables.values() for s in a.shape)]
        if tables and self.maybe(5):
            table = self.pick(tables)
            return _to_i64(Load(table.name, tuple(Var(next(v for v, s in scope.variables.items() if s == n)) for n in table.shape), table.dtype))
        if not fitting:
            other = [v for v in scope.variables if self.maybe(2)]
            return op("%", Var(other[0]), Size(size)) if other else ix(0)
        var = Var(self.pick(fitting))
        return self.pick(
            (
                var, var, var, op("-", op("-", Size(size), ix(1)), var), op("//", var, ix(2)), op("min", op("+", var, ix(1)), op("-", Size(size), ix(1))),
                op("%", op("+", op("*", ix(2), var), ix(1)), Size(size)),
            )
        )  # fmt: skip

    def _float(self, dtype: DType, scope: _Scope, depth: int) -> tuple[Expr, int]:
        kind = self.choose(8) if depth else self.choose(2)
        if kind <= 1:
            same = [a for a in scope.arrays if a.dtype is dtype]
            if same and kind == 0:
                return self._load(self.pick(same), scope), 0
            return const(self.pick((1, 0.5, -2, 0, 1e-3, 3.140625, 100, float("inf"), -0.0)), dtype), 0
        if kind == 2:
            return op(self.pick(_UNARY), self._float(dtype, scope, depth - 1)[0]), 0
        if kind == 3:
            source = self.pick((*self.floats, DType.I64, DType.BOOL))
            inner = self.expr(source, scope, depth - 1)[0]
            return (Cast(dtype, inner) if source is not dtype else inner), 0
        if kind == 4:
            return select(self._bool(scope, depth - 1), self._float(dtype, scope, depth - 1)[0], self._float(dtype, scope, depth - 1)[0]), 0
        return op(self.pick(_BINARY), self._float(dtype, scope, depth - 1)[0], self._float(dtype, scope, depth - 1)[0]), 0

    def _int(self, dtype: DType, scope: _Scope, depth: int) -> tuple[Expr, int]:
        kind = self.choose(6) if depth else self.choose(2)
        if kind == 0:
            same = [a for a in scope.arrays if a.dtype is dtype]
            if same:
                array = self.pick(same)
                return self._load(array, scope), array.bound or 1 << 31
        if kind <= 1:
            if dtype is DType.I64 and scope.variables and self.maybe(2):
                var = self.pick(list(scope.variables))
                return Var(var), self.sizes[scope.variables[var]]
            value = self.pick((1, 0, -3, 7))
            return const(value, dtype), abs(value)
        left, a = self._int(dtype, scope, depth - 1)
        right, b = self._int(dtype, scope, depth - 1)
        if kind == 2 and a < 1 << 24:
            return (op("//", left, const(2, dtype)) if self.maybe(2) else op("%", left, const(3, dtype))), a + 3
        if kind == 3 and max(a, b) < 1 << 12:
            return op("*", left, right), a * b
        if kind == 4 and max(a, b) < 1 << 24:
            return op(self.pick(("+", "-")), left, right), a + b
        return op(self.pick(("max", "min")), left, right), max(a, b)

    def _bool(self, scope: _Scope, depth: int) -> Expr:
        kind = self.choose(6) if depth else self.choose(2)
        masks = [a for a in scope.arrays if a.dtype is DType.BOOL]
        if kind == 0 and masks:
            return self._load(self.pick(masks), scope)
        if kind <= 1:
            if scope.variables and self.maybe(2):
                var = self.pick(list(scope.variables))
                return op(self.pick(("<", ">=", "==")), Var(var), op("-", Size(scope.variables[var]), ix(1)))
            return const(not self.choose(2), DType.BOOL)
        if kind == 2:
            return op("not", self._bool(scope, depth - 1))
        if kind == 3:
            return op(self.pick(("and", "or")), self._bool(scope, depth - 1), self._bool(scope, depth - 1))
        dtype = self.pick((*self.floats, DType.I64))
        if kind == 4 and dtype.is_float:
            return op("isnan", self.expr(dtype, scope, depth - 1)[0])
        return op(self.pick(("<", "<=", "==", "!=", ">")), self.expr(dtype, scope, depth - 1)[0], self.expr(dtype, scope, depth - 1)[0])


def _to_i64(look_up: Expr) -> Expr:
    return cast(DType.I64, look_up)


def _put(store: Store, var: str, by: Expr) -> Store:
    return replace(store, indices=tuple(substitute(i, {var: by}) for i in store.indices), value=substitute(store.value, {var: by}))


def random_program(seed: int, floats: Sequence[DType] = FLOATS) -> Program:
    """The program of a seed; the same on every run and machine."""
    return _Generator(random.Random(seed).randrange, floats).program()


@st.composite
def programs(draw: st.DrawFn, floats: Sequence[DType] = FLOATS) -> Program:
    """A Hypothesis strategy of valid programs; ``floats`` limits the float dtypes that occur."""
    return _Generator(lambda n: draw(st.integers(0, n - 1)) if n > 1 else 0, floats).program()
