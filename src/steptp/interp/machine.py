"""Whole programs compiled to closures: the serial machine that every evaluator with stored arrays shares."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias

from steptp.interp.errors import EvalError
from steptp.interp.expressions import Array, Code, Env, ExprCompiler, Scope, affine_of, affine_range
from steptp.interp.scalars import Algebra, Scalar, int_binary
from steptp.ir.nodes import Body, Buffer, Expr, If, Load, Loop, Program, Stmt, Store
from steptp.ir.ops import REDUCERS
from steptp.ir.resets import materialize
from steptp.ir.sizes import shape_of
from steptp.ir.types import DType, int_range
from steptp.ir.walk import visit

__all__ = ["Machine", "check_ranges"]

Action: TypeAlias = Callable[[Env], None]
_FAR = 1 << 62


def _sequence(actions: list[Action]) -> Action:
    if len(actions) == 1:
        return actions[0]
    steps = tuple(actions)

    def run(env: Env) -> None:
        for step in steps:
            step(env)

    return run


def _freshen(arrays: list[Array]) -> Action:
    blanks = [(a.data, [None] * len(a.data)) for a in arrays]

    def run(env: Env) -> None:
        for data, blank in blanks:
            data[:] = blank

    return run


class Machine:
    """A program at its present sizes over one algebra, compiled once; :meth:`run` may be called many times.

    Loop kinds are ignored: serial order is the meaning. Resets come from :func:`steptp.ir.materialize`.
    Raises :class:`LeirError` ``check-reset`` for a program whose accumulations have no reset.
    """

    def __init__(self, program: Program, algebra: Algebra) -> None:
        self.program = materialize(program).program
        self.algebra = algebra
        sizes = program.size_env
        self.arrays: dict[str, Array] = {}
        for buffer in (*program.inputs, *program.outputs, *program.tmps):
            self._declare(buffer)
        for met in visit(self.program):
            if isinstance(met.stmt, Loop):
                for buffer in met.stmt.tmps:
                    self._declare(buffer)
        self._compiler = ExprCompiler(algebra, sizes, self._read)
        self._depth = 1 + max((len(v.loops) for v in visit(self.program)), default=0)
        self._steps = [self._statement(s, Scope()) for s in self.program.body]
        self._fresh = [self.arrays[b.name] for b in (*program.outputs, *program.tmps)]

    def run(self, inputs: Mapping[str, list[Scalar]]) -> dict[str, list[Scalar]]:
        """Flat input lists (row-major, in the algebra's values) → flat output lists.

        Raises :class:`EvalError` for undefined, out-of-bounds or overflowing evaluation, and for outputs left unwritten.
        """
        for name, values in inputs.items():
            self.arrays[name].data[:] = values
        for array in self._fresh:
            array.data[:] = [None] * len(array.data)
        env = [0] * self._depth
        for step in self._steps:
            step(env)
        found: dict[str, list[Scalar]] = {}
        for buffer in self.program.outputs:
            data = self.arrays[buffer.name].data
            hole = next((n for n, v in enumerate(data) if v is None), None)
            if hole is not None:
                raise EvalError("eval-undefined", f"output {buffer.name}: element {hole} (flat) is never written")
            found[buffer.name] = list(data)
        return found

    def step(self, position: int) -> None:
        """Run one top-level statement of the materialised program on the present contents of :attr:`arrays`."""
        self._steps[position]([0] * self._depth)

    def _declare(self, buffer: Buffer) -> None:
        self.arrays[buffer.name] = Array.blank(buffer.name, buffer.dtype, shape_of(buffer.shape, self.program))

    def _read(self, load: Load, scope: Scope) -> Code:
        array = self.arrays[load.buffer]
        data, name = array.data, array.name
        offset = self._compiler.offset(array, load.indices, scope)

        def read(env: Env) -> Scalar:
            value = data[offset(env)]
            if value is None:
                raise EvalError("eval-undefined", f"{name}: element {offset(env)} (flat) is read before it is written")
            return value

        return read

    def _statement(self, stmt: Stmt, scope: Scope) -> Action:
        if isinstance(stmt, Store):
            return self._store(stmt, scope)
        if isinstance(stmt, If):
            return self._guard(stmt.cond, stmt.body, scope)
        return self._loop(stmt, scope)

    def _guard(self, cond: Expr, body: Body, scope: Scope) -> Action:
        test = self._compiler.compile(cond, scope)
        inner = _sequence([self._statement(s, scope) for s in body])

        def run(env: Env) -> None:
            if test(env):
                inner(env)

        return run

    def _loop(self, stmt: Loop, scope: Scope) -> Action:
        form = affine_of(stmt.extent, scope, self._compiler.sizes)
        high = affine_range(form, scope)[1] - 1 if form is not None else _FAR
        slot = len(scope.slots)
        inner = scope.enter(stmt.var, (0, max(high, 0)))
        steps = [self._statement(s, inner) for s in stmt.body]
        if stmt.tmps:
            steps.insert(0, _freshen([self.arrays[b.name] for b in stmt.tmps]))
        body = _sequence(steps)
        if form is not None and not form.terms:
            span = range(form.base)

            def fixed(env: Env) -> None:
                for value in span:
                    env[slot] = value
                    body(env)

            return fixed
        extent = self._compiler.compile(stmt.extent, scope)

        def run(env: Env) -> None:
            for value in range(extent(env)):
                env[slot] = value
                body(env)

        return run

    def _store(self, stmt: Store, scope: Scope) -> Action:
        array = self.arrays[stmt.buffer]
        data, name = array.data, array.name
        offset = self._compiler.offset(array, stmt.indices, scope)
        value = self._compiler.compile(stmt.value, scope)
        if stmt.reduce is None:

            def assign(env: Env) -> None:
                data[offset(env)] = value(env)

            return assign
        combine = combiner(self.algebra, stmt.reduce, array.dtype)

        def accumulate(env: Env) -> None:
            place = offset(env)
            old = data[place]
            if old is None:
                raise EvalError("eval-undefined", f"{name}: element {place} (flat) is accumulated into before it is written")
            data[place] = combine(old, value(env))

        return accumulate


def combiner(algebra: Algebra, reduce: str, dtype: DType) -> Callable[[Scalar, Scalar], Scalar]:
    """The reducer's operator on ``dtype``."""
    name = REDUCERS[reduce].op
    if dtype is DType.BOOL:
        return (lambda a, b: a or b) if name == "or" else (lambda a, b: a and b)
    return algebra.binary(name, dtype) if dtype.is_float else int_binary(name, dtype)


def check_ranges(program: Program, inputs: Mapping[str, list[Scalar]]) -> None:
    """Raise :class:`EvalError` ``eval-range`` when an integer input has a value outside its declared range or dtype."""
    for buffer in program.inputs:
        if not buffer.dtype.is_int or not inputs[buffer.name]:
            continue
        if buffer.range is not None:
            low, high = shape_of(buffer.range, program)
        else:
            low, high = int_range(buffer.dtype)[0], int_range(buffer.dtype)[1] + 1
        values = inputs[buffer.name]
        smallest, largest = min(values), max(values)
        if smallest < low or largest >= high:
            bad = smallest if smallest < low else largest
            raise EvalError("eval-range", f"input {buffer.name} holds {bad}, its range is {low}..{high}")
