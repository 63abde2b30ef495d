"""LEIR program → TIR function, built from nodes.

The function's parameters are the inputs, then the outputs. Loops are plain (no blocks), sizes are constants, resets are explicit
stores. Temporaries are allocated once per thread region (the function, or the body of a parallel loop): nothing reads a
temporary before writing it, so a fresh copy for each iteration would only cost time. Small ones live on the stack.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from math import prod

import tvm_ffi

from steptp.ir.nodes import Body, Buffer, Expr, If, Load, Loop, Op, Program, Stmt, Store
from steptp.ir.ops import REDUCERS
from steptp.ir.resets import materialize
from steptp.ir.sizes import shape_of
from steptp.ir.types import LoopKind
from steptp.lower import nodes as n
from steptp.lower.scalar import STORAGE, Scalars, Slot

__all__ = ["STACK_BUFFER", "Emitter", "Frame", "function_of", "lower_statements", "lower_to_tir", "structural_hash"]

STACK_BUFFER = 32 * 1024
"""Bytes of the largest temporary that lives on the stack."""
_STACK_FRAME = 128 * 1024  # bytes
_UNROLL_LIMIT = 1024  # stores


@dataclass(slots=True)
class Frame:
    """Allocations of one thread region."""

    allocations: list[n.Stmt] = field(default_factory=list)
    stack: int = 0
    scratch_scope: str = "global"
    scratch: n.Scratch = field(init=False)

    def __post_init__(self) -> None:
        self.scratch = n.Scratch(self.allocations, self.scratch_scope)


@dataclass(slots=True)
class Emitter:
    """Turns statements into TIR. ``vector`` is the state inside a vectorised loop (``steptp.lower.vector``)."""

    program: Program
    scalars: Scalars
    parallel: bool = True
    frame: Frame = field(default_factory=Frame)
    in_parallel: bool = False
    unrolled: int = 1
    vector: object | None = None

    def body(self, stmts: Body) -> list[n.Stmt]:
        out: list[n.Stmt] = []
        for stmt in stmts:
            out.extend(self.statement(stmt))
        return out

    def statement(self, stmt: Stmt) -> list[n.Stmt]:
        from steptp.lower import vector

        if isinstance(stmt, Loop):
            return self.loop(stmt)
        if isinstance(self.vector, vector.Lanes):
            return vector.guard(self, self.vector, stmt) if isinstance(stmt, If) else vector.store(self, self.vector, stmt)
        return self.guarded(stmt) if isinstance(stmt, If) else self.plain_store(stmt)

    def guarded(self, stmt: If) -> list[n.Stmt]:
        """A guard whose condition is one scalar."""
        bindings, cond = self.condition(stmt.cond)
        inner = self.body(stmt.body)
        return [*bindings, n.tirx.IfThenElse(cond, n.sequence(inner), None)] if inner else []

    def condition(self, cond: Expr) -> tuple[list[n.Stmt], n.Expr]:
        """What must run first, and the condition."""
        before: list[n.Stmt] = []
        self._restart()
        with self.scalars.emitting(before):
            value = self.scalars.value(cond)
        return before, value

    def plain_store(self, stmt: Store) -> list[n.Stmt]:
        """Shared sub-expressions, then the store."""
        slot = self.scalars.slots[stmt.buffer]
        out: list[n.Stmt] = []
        self._restart()
        with self.scalars.emitting(out):
            value = self.scalars.stored(self.scalars.value(combined(stmt, slot.leir)), slot.leir.dtype)
            where = self.scalars.address(stmt.buffer, stmt.indices)
        return [*out, n.tirx.BufferStore(slot.tvm, value, where)]

    def _restart(self) -> None:
        self.scalars.scratch = self.frame.scratch
        self.scalars.scratch.restart()

    # loops

    def loop(self, loop: Loop) -> list[n.Stmt]:
        from steptp.lower import vector

        span = self.scalars.ranges.of(loop.extent)
        if span is None or span[1] <= 0:
            return []
        if loop.kind is LoopKind.VECTOR:
            lanes = vector.loop(self, loop, span)
            if lanes is not None:
                return lanes
        kind, trips = n.tirx.ForKind.SERIAL, 1
        if loop.kind is LoopKind.PARALLEL and self.parallel and not self.in_parallel and span[1] > 1:
            kind = n.tirx.ForKind.PARALLEL
        elif loop.kind is LoopKind.UNROLL and span[0] == span[1] and span[1] * self.unrolled * _stores(loop.body) <= _UNROLL_LIMIT:
            kind, trips = n.tirx.ForKind.UNROLLED, span[1]
        if kind != n.tirx.ForKind.PARALLEL:
            self.declare(loop.tmps)
        dtype = "int32" if span[1] < 2**31 else "int64"
        var = n.tirx.Var(loop.var, dtype)
        extent = n.ilit(span[1], dtype)
        if span[0] != span[1]:
            extent = self.scalars.index(loop.extent, 32 if dtype == "int32" and self.scalars.ranges.fits32(loop.extent) else 64)
            extent = extent if str(extent.ty.dtype) == dtype else n.tirx.Cast(dtype, extent)
        outer = self.unrolled
        self.unrolled = outer * trips
        with self.bound(loop.var, var, (0, span[1] - 1)):
            inner = self.region(loop) if kind == n.tirx.ForKind.PARALLEL else self.body(loop.body)
        self.unrolled = outer
        if not inner:
            return []
        return [n.tirx.For(var, n.ilit(0, dtype), extent, kind, n.sequence(inner))]

    def region(self, loop: Loop) -> list[n.Stmt]:
        """The body of a parallel loop: allocations are private to a thread."""
        saved, self.frame, self.in_parallel = self.frame, Frame(), True
        self.declare(loop.tmps)
        inner = self.body(loop.body)
        inner = self.frame.allocations + inner if inner else []
        self.frame, self.in_parallel = saved, False
        return inner

    @contextmanager
    def bound(self, name: str, value: n.Expr, span: tuple[int, int]) -> Iterator[None]:
        """Loop variable ``name`` stands for ``value`` and lies in ``span``."""
        scope = self.scalars
        old = (scope.variables.get(name), scope.bounds.get(name))
        scope.variables[name], scope.bounds[name] = value, span
        yield
        if old[1] is None:
            del scope.variables[name], scope.bounds[name]
        else:
            scope.variables[name], scope.bounds[name] = old[0], old[1]

    # temporaries

    def declare(self, buffers: tuple[Buffer, ...], lanes: int = 0) -> None:
        """Allocate temporaries in the current region; ``lanes`` adds a last dimension, one copy for each vector lane."""
        for buffer in buffers:
            shape = [max(s, 1) for s in shape_of(buffer.shape, self.program)] + ([lanes] if lanes else [])
            array = n.tirx.decl_buffer(shape, STORAGE[buffer.dtype], name=buffer.name)
            size = prod(shape) * buffer.dtype.itemsize
            on_stack = size <= STACK_BUFFER and self.frame.stack + size <= _STACK_FRAME
            self.frame.stack += size if on_stack else 0
            notes = {"disable_lower_builtin": n.tirx.IntImm("bool", 1)} if on_stack else None
            self.frame.allocations.append(n.tirx.AllocBuffer(array, notes))
            self.scalars.slots[buffer.name] = Slot(buffer, array, prod(shape))


def combined(stmt: Store, target: Buffer) -> Expr:
    """The stored value: an accumulation reads its target first."""
    if stmt.reduce is None:
        return stmt.value
    return Op(REDUCERS[stmt.reduce].op, (Load(stmt.buffer, stmt.indices, target.dtype), stmt.value), target.dtype)


def _stores(body: Body) -> int:
    return sum(1 if isinstance(s, Store) else _stores(s.body) for s in body) or 1


def lower_to_tir(program: Program, *, fma: bool = True, math: str = "vector", parallel: bool = True) -> n.Expr:
    """The program as a TIR function ``main``. See :class:`steptp.lower.BuildOptions` for ``fma`` and ``math``.

    Raises :class:`steptp.errors.LeirError` ``check-reset`` when an accumulation has no reset.
    """
    ready = materialize(program).program
    arrays, stmts = _emitted(ready, ready.body, (*ready.inputs, *ready.outputs), ready.tmps, fma, math, parallel)
    return function_of(arrays, stmts)


def lower_statements(
    ready: Program, body: Body, params: tuple[Buffer, ...], private: tuple[Buffer, ...], *, fma: bool, math: str, parallel: bool
) -> n.Expr | None:
    """Statements of a materialised program as a TIR function of the buffers ``params``; ``private`` temporaries are allocated inside.

    ``None`` when the statements do nothing at the present sizes.
    """
    arrays, stmts = _emitted(ready, body, params, private, fma, math, parallel)
    return function_of(arrays, stmts) if stmts else None


def _emitted(
    ready: Program, body: Body, params: tuple[Buffer, ...], private: tuple[Buffer, ...], fma: bool, math: str, parallel: bool
) -> tuple[list[n.Expr], list[n.Stmt]]:
    """The parameters, and the statements with the allocations before them (none where nothing is done)."""
    scalars = Scalars(ready.size_env, fma, math)
    emitter = Emitter(ready, scalars, parallel)
    arrays = []
    for buffer in params:
        shape = shape_of(buffer.shape, ready)
        array = n.tirx.decl_buffer(shape, STORAGE[buffer.dtype], name=buffer.name)
        arrays.append(array)
        scalars.slots[buffer.name] = Slot(buffer, array, prod(shape))
    emitter.declare(private)
    stmts = emitter.body(body)
    return arrays, emitter.frame.allocations + stmts if stmts else []


def function_of(params: list[n.Expr], stmts: list[n.Stmt]) -> n.Expr:
    """A TIR function whose arguments do not overlap."""
    return n.tirx.PrimFunc(params, n.sequence(stmts)).with_attr("global_symbol", "main").with_attr("tirx.noalias", True)


def structural_hash(program: Program) -> str:
    """TVM's structural hash of the program's TIR as 16 hex digits: names apart, equal programs give equal hashes, in every process."""
    return f"{tvm_ffi.structural_hash(lower_to_tir(program)) % 2**64:016x}"
