"""CUDA lowering: each outermost bound nest is one kernel.

A kernel launches every axis at its largest extent and predicates loops that are shorter. Between sibling statements, and
between iterations of a serial loop, that touch the same shared or global memory from different threads stands a barrier; where threads could
diverge around it the program is refused. Stores outside every thread loop run on one thread. What is not bound runs as a
kernel of one thread, so that all data stays on the device.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import prod

from steptp.ir.nodes import Body, Buffer, Expr, If, Load, Loop, Program, Stmt, Store
from steptp.ir.resets import materialize
from steptp.ir.sizes import eval_index, shape_of
from steptp.ir.types import LoopKind, Scope
from steptp.ir.walk import free_vars, stmt_exprs, subexprs, visit
from steptp.lower import nodes as n
from steptp.lower.options import BuildError
from steptp.lower.scalar import STORAGE, Scalars, Slot
from steptp.lower.tir import Emitter, Frame

import tvm  # isort: skip

__all__ = ["has_bound_loops", "lower_to_cuda_tir"]

_AXIS = {
    LoopKind.BLOCK_X: "blockIdx.x", LoopKind.BLOCK_Y: "blockIdx.y", LoopKind.BLOCK_Z: "blockIdx.z",
    LoopKind.THREAD_X: "threadIdx.x", LoopKind.THREAD_Y: "threadIdx.y", LoopKind.THREAD_Z: "threadIdx.z",
}  # fmt: skip


def has_bound_loops(program: Program) -> bool:
    """Whether any loop is bound to a GPU axis."""
    return any(isinstance(m.stmt, Loop) and m.stmt.kind.is_bound for m in visit(program))


@dataclass(slots=True)
class _Touched:
    """Non-local buffers that statements read and write."""

    reads: set[str] = field(default_factory=set)
    writes: set[str] = field(default_factory=set)

    def clashes(self, later: _Touched) -> bool:
        return bool(self.writes & (later.reads | later.writes) or self.reads & later.writes)

    def add(self, other: _Touched) -> None:
        self.reads |= other.reads
        self.writes |= other.writes


@dataclass(slots=True)
class CudaEmitter(Emitter):
    """Statements of one program as kernels."""

    axes: dict[LoopKind, tuple[n.Expr, int]] = field(default_factory=dict)
    in_kernel: bool = False
    threads: frozenset[str] = frozenset()
    divergent: bool = False
    private: frozenset[str] = frozenset()

    def body(self, stmts: Body) -> list[n.Stmt]:
        if not self.in_kernel:
            return [out for s in stmts for out in (self.host(s) if self._host_level(s) else self.kernel(s))]
        out: list[n.Stmt] = []
        pending, alone = _Touched(), True
        for stmt in stmts:
            touched, single = self._touched(stmt), self._single(stmt)
            if pending.clashes(touched) and not (alone and single):
                out.append(self.barrier())
                pending, alone = _Touched(), True
            pending.add(touched)
            alone = alone and single
            out.extend(self.statement(stmt))
        return out

    # structure

    def _host_level(self, stmt: Stmt) -> bool:
        """A serial loop or guard around kernels stays on the host."""
        return not isinstance(stmt, Store) and not (isinstance(stmt, Loop) and stmt.kind.is_bound) and _bound_inside(stmt.body) and not stmt_reads(stmt)

    def host(self, stmt: Stmt) -> list[n.Stmt]:
        return self.guarded(stmt) if isinstance(stmt, If) else self.loop(stmt) if isinstance(stmt, Loop) else []

    def kernel(self, stmt: Stmt) -> list[n.Stmt]:
        extents: dict[LoopKind, int] = {}
        for met in visit((stmt,)):
            if isinstance(met.stmt, Loop) and met.stmt.kind.is_bound:
                size = max(eval_index(met.stmt.extent, self.program.size_env), 1)
                extents[met.stmt.kind] = max(extents.get(met.stmt.kind, 1), size)
        extents = extents or {LoopKind.BLOCK_X: 1}
        self.axes = {}
        iters = []
        for kind in sorted(extents, key=lambda k: _AXIS[k]):
            var = n.tirx.Var(_AXIS[kind], "int32")
            iters.append((n.tirx.IterVar(tvm.ir.Range(0, extents[kind]), var, 1, _AXIS[kind]), extents[kind]))
            self.axes[kind] = (var, extents[kind])
        saved, self.frame, self.in_kernel = self.frame, Frame(scratch_scope="local"), True
        inner = self.statement(stmt)
        body = n.sequence(self.frame.allocations + inner)
        self.frame, self.in_kernel = saved, False
        if not inner:
            return []
        for axis, extent in reversed(iters):
            body = n.tirx.AttrStmt(axis, "thread_extent", n.i32(extent), body)
        return [body]

    def loop(self, loop: Loop) -> list[n.Stmt]:
        if loop.kind.is_bound:
            return self._bound_loop(loop)
        kind = LoopKind.SERIAL if loop.kind is LoopKind.PARALLEL else LoopKind.UNROLL if loop.kind is LoopKind.VECTOR else loop.kind
        saved = self.divergent
        self.divergent = saved or bool(free_vars(loop.extent) & self.threads)
        body = Loop(loop.var, loop.extent, loop.body, kind, loop.tmps)
        touched = self._touched(loop)
        again = self.in_kernel and touched.clashes(touched) and not self._single(loop)
        out = Emitter.loop(self, body)
        if again and out:
            tail = out[-1]
            out[-1] = n.tirx.For(tail.loop_var, tail.min, tail.extent, tail.kind, n.sequence([tail.body, self.barrier()]))
        self.divergent = saved
        return out

    def _bound_loop(self, loop: Loop) -> list[n.Stmt]:
        self.declare(loop.tmps, inside_thread=loop.kind.is_thread)
        extent = eval_index(loop.extent, self.program.size_env)
        if extent <= 0:
            return []
        var, launched = self.axes[loop.kind]
        saved = (self.threads, self.divergent)
        if loop.kind.is_thread:
            self.threads |= {loop.var}
        self.divergent = self.divergent or (loop.kind.is_thread and extent < launched)
        with self.bound(loop.var, var, (0, extent - 1)):
            inner = self.body(loop.body)
        self.threads, self.divergent = saved
        if extent < launched and inner:
            return [n.tirx.IfThenElse(n.tirx.LT(var, n.i32(extent)), n.sequence(inner), None)]
        return inner

    def guarded(self, stmt: If) -> list[n.Stmt]:
        saved = self.divergent
        self.divergent = saved or bool(free_vars(stmt.cond) & self.threads) or any(isinstance(e, Load) for e in subexprs(stmt.cond))
        out = Emitter.guarded(self, stmt)
        self.divergent = saved
        return out

    def plain_store(self, stmt: Store) -> list[n.Stmt]:
        out = Emitter.plain_store(self, stmt)
        lanes = [var for kind, (var, extent) in self.axes.items() if kind.is_thread and extent > 1]
        if self.threads or stmt.buffer in self.private or not lanes:
            return out
        first = n.tirx.EQ(lanes[0], n.i32(0))
        for lane in lanes[1:]:
            first = n.tirx.And(first, n.tirx.EQ(lane, n.i32(0)))
        return [n.tirx.IfThenElse(first, n.sequence(out), None)]

    # memory

    def declare(self, buffers: tuple[Buffer, ...], lanes: int = 0, *, inside_thread: bool = False) -> None:
        for buffer in buffers:
            scope = "global" if not self.in_kernel else "local" if inside_thread or self.threads or buffer.scope is Scope.LOCAL else "shared"
            shape = [max(s, 1) for s in shape_of(buffer.shape, self.program)]
            array = n.tirx.decl_buffer(shape, STORAGE[buffer.dtype], name=buffer.name, scope=scope)
            self.frame.allocations.append(n.tirx.AllocBuffer(array))
            self.scalars.slots[buffer.name] = Slot(buffer, array, prod(shape))
            if scope == "local":
                self.private |= {buffer.name}

    def _touched(self, stmt: Stmt) -> _Touched:
        local = self.private | {b.name for m in visit((stmt,)) if isinstance(m.stmt, Loop) for b in m.stmt.tmps if b.scope is not Scope.SHARED}
        found = _Touched()
        for met in visit((stmt,)):
            for expr in stmt_exprs(met.stmt):
                found.reads |= {e.buffer for e in subexprs(expr) if isinstance(e, Load)} - local
            if isinstance(met.stmt, Store) and met.stmt.buffer not in local:
                found.writes.add(met.stmt.buffer)
                found.reads |= {met.stmt.buffer} if met.stmt.reduce is not None else set()
        return found

    def _single(self, stmt: Stmt) -> bool:
        """Whether one and the same thread runs the whole statement: no thread loop inside, and no copy for each thread written."""
        if not any(kind.is_thread and extent > 1 for kind, (_, extent) in self.axes.items()):
            return True
        inner = [m.stmt for m in visit((stmt,))]
        return not any(isinstance(s, Loop) and s.kind.is_thread for s in inner) and (
            bool(self.threads) or not any(isinstance(s, Store) and s.buffer in self.private for s in inner)
        )

    def barrier(self) -> n.Stmt:
        if self.divergent:
            raise BuildError("build-failed", "a barrier would stand under thread-divergent control", hint="give sibling thread loops equal extents")
        return n.tirx.Evaluate(n.tirx.call_intrin("int32", "tirx.tvm_storage_sync", tvm.ir.StringImm("shared")))


def stmt_reads(stmt: Stmt) -> bool:
    """Whether a condition or extent reads memory (then the host cannot evaluate it)."""
    exprs: tuple[Expr, ...] = stmt_exprs(stmt)
    return any(isinstance(e, Load) for x in exprs for e in subexprs(x))


def _bound_inside(body: Body) -> bool:
    return any(isinstance(m.stmt, Loop) and m.stmt.kind.is_bound for m in visit(body))


def lower_to_cuda_tir(program: Program) -> n.Expr:
    """The program as a TIR function of kernels; parameters are inputs, then outputs, in device memory.

    Raises :class:`BuildError` ``build-failed`` when a needed barrier could not be placed.
    """
    ready = materialize(program).program
    scalars = Scalars(ready.size_env, True, "libm", cuda=True)
    emitter = CudaEmitter(ready, scalars, parallel=False)
    params = []
    for buffer in (*ready.inputs, *ready.outputs):
        shape = shape_of(buffer.shape, ready)
        array = n.tirx.decl_buffer(shape, STORAGE[buffer.dtype], name=buffer.name)
        params.append(array)
        scalars.slots[buffer.name] = Slot(buffer, array, prod(shape))
    emitter.declare(ready.tmps)
    stmts = emitter.body(ready.body)
    body = n.sequence(emitter.frame.allocations + stmts)
    return n.tirx.PrimFunc(params, body).with_attr("global_symbol", "main").with_attr("tirx.noalias", True)
