"""CUDA lowering: each outermost bound nest is one kernel.

A kernel launches every axis at its largest extent and predicates loops that are shorter. Where threads wait for one another, who runs a store outside
some thread or block loop, and where temporaries live is said by :mod:`steptp.ir.kernels`; where a barrier would stand under control that
threads do not share, the program is refused. What is not bound runs as a kernel of one thread, so that all data stays on the device.
A guard that reads memory moves into the kernels below it, because the host cannot evaluate it.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass, field
from math import prod
from typing import Any

from steptp.ir.kernels import Lanes, binds_inside, kernels, placement, reads_memory
from steptp.ir.nodes import Body, Buffer, Expr, If, Loop, Program, Stmt, Store
from steptp.ir.resets import materialize
from steptp.ir.sizes import eval_index, shape_of
from steptp.ir.types import LoopKind, Scope
from steptp.ir.walk import loads, stores, visit
from steptp.lower import nodes as n
from steptp.lower.compile import host_cpu, trimmed
from steptp.lower.options import BuildError
from steptp.lower.scalar import STORAGE, Scalars, Slot
from steptp.lower.tir import Emitter, Frame, function_of

import tvm  # isort: skip

__all__ = ["has_bound_loops", "host_and_source", "lower_to_cuda_tir"]

_AXIS = {
    LoopKind.BLOCK_X: "blockIdx.x", LoopKind.BLOCK_Y: "blockIdx.y", LoopKind.BLOCK_Z: "blockIdx.z",
    LoopKind.THREAD_X: "threadIdx.x", LoopKind.THREAD_Y: "threadIdx.y", LoopKind.THREAD_Z: "threadIdx.z",
}  # fmt: skip


def has_bound_loops(program: Program) -> bool:
    """Whether any loop is bound to a GPU axis."""
    return any(isinstance(m.stmt, Loop) and m.stmt.kind.is_bound for m in visit(program))


@dataclass(slots=True)
class CudaEmitter(Emitter):
    """Statements of one program as kernels."""

    places: Mapping[str, Scope] = field(default_factory=dict)
    axes: dict[LoopKind, n.Expr] = field(default_factory=dict)
    lanes: Lanes | None = None
    guards: tuple[Expr, ...] = ()
    host_frame: Frame = field(default_factory=Frame)

    def body(self, stmts: Body) -> list[n.Stmt]:
        if self.lanes is None:
            return [out for s in stmts for out in self.host(s)]
        out: list[n.Stmt] = []
        for stmt, wait in zip(stmts, self.lanes.before(stmts), strict=True):
            if wait:
                out.append(self.barrier())
            out.extend(self.statement(stmt))
        return out

    # structure

    def host(self, stmt: Stmt) -> list[n.Stmt]:
        """A statement outside of kernels: loops and guards around kernels stay on the host."""
        if isinstance(stmt, Store) or (isinstance(stmt, Loop) and stmt.kind.is_bound) or not binds_inside(stmt):
            return self.kernel(stmt)
        if isinstance(stmt, Loop):
            return self.loop(stmt)
        if not reads_memory(stmt):
            return Emitter.guarded(self, stmt)
        read = {e.buffer for e in loads(stmt.cond)}
        if changed := sorted(read & {m.stmt.buffer for m in stores(stmt.body) if isinstance(m.stmt, Store)}):
            raise BuildError("build-failed", f"a guard around kernels reads {changed[0]}, which they write")
        saved, self.guards = self.guards, (*self.guards, stmt.cond)
        out = self.body(stmt.body)
        self.guards = saved
        return out

    def kernel(self, stmt: Stmt) -> list[n.Stmt]:
        extents: dict[LoopKind, int] = {LoopKind.BLOCK_X: 1}
        for one in kernels(self.program.with_(body=(stmt,))):
            extents = {kind: max(extent, 1) for kind, extent in one.extents.items()}
        self.axes = {kind: n.tirx.Var(_AXIS[kind], "int32") for kind in sorted(extents, key=lambda k: _AXIS[k])}
        private = frozenset(name for name, scope in self.places.items() if scope is Scope.LOCAL)
        saved, self.frame, self.lanes = self.frame, Frame(scratch_scope="local"), Lanes(extents, private)
        inner = self.statement(stmt)
        for cond in reversed(self.guards) if inner else ():
            bindings, value = self.condition(cond)
            inner = [*bindings, n.tirx.IfThenElse(value, n.sequence(inner), None)]
        body = n.sequence(self.frame.allocations + inner)
        self.frame, self.lanes = saved, None
        if not inner:
            return []
        for kind, var in reversed(self.axes.items()):
            axis = n.tirx.IterVar(tvm.ir.Range(0, extents[kind]), var, 1, _AXIS[kind])
            body = n.tirx.AttrStmt(axis, "thread_extent", n.i32(extents[kind]), body)
        return [body]

    def loop(self, loop: Loop) -> list[n.Stmt]:
        if loop.kind.is_bound:
            return self._bound_loop(loop)
        kind = LoopKind.SERIAL if loop.kind is LoopKind.PARALLEL else LoopKind.UNROLL if loop.kind is LoopKind.VECTOR else loop.kind
        plain = Loop(loop.var, loop.extent, loop.body, kind, loop.tmps)
        saved = self.lanes
        if saved is None:
            return Emitter.loop(self, plain)
        self.lanes = saved.enter(loop, self.program.size_env)
        out = Emitter.loop(self, plain)
        if out and saved.behind(loop):
            tail = out[-1]
            out[-1] = n.tirx.For(tail.loop_var, tail.min, tail.extent, tail.kind, n.sequence([tail.body, self.barrier()]))
        self.lanes = saved
        return out

    def _bound_loop(self, loop: Loop) -> list[n.Stmt]:
        assert self.lanes is not None
        self.declare(loop.tmps)
        extent = eval_index(loop.extent, self.program.size_env)
        if extent <= 0:
            return []
        var, saved = self.axes[loop.kind], self.lanes
        self.lanes = saved.enter(loop, self.program.size_env)
        with self.bound(loop.var, var, (0, extent - 1)):
            inner = self.body(loop.body)
        self.lanes = saved
        if extent < saved.launched[loop.kind] and inner:
            return [n.tirx.IfThenElse(n.tirx.LT(var, n.i32(extent)), n.sequence(inner), None)]
        return inner

    def guarded(self, stmt: If) -> list[n.Stmt]:
        assert self.lanes is not None
        saved, self.lanes = self.lanes, self.lanes.enter(stmt, self.program.size_env)
        out = Emitter.guarded(self, stmt)
        self.lanes = saved
        return out

    def plain_store(self, stmt: Store) -> list[n.Stmt]:
        out = Emitter.plain_store(self, stmt)
        assert self.lanes is not None
        first = [n.tirx.EQ(self.axes[kind], n.i32(0)) for kind in self.lanes.idle(stmt)]
        if not first:
            return out
        together = first[0]
        for one in first[1:]:
            together = n.tirx.And(together, one)
        return [n.tirx.IfThenElse(together, n.sequence(out), None)]

    # memory

    def declare(self, buffers: tuple[Buffer, ...], lanes: int = 0) -> None:
        for buffer in buffers:
            scope = self.places[buffer.name]
            shape = [max(s, 1) for s in shape_of(buffer.shape, self.program)]
            array = n.tirx.decl_buffer(shape, STORAGE[buffer.dtype], name=buffer.name, scope=str(scope))
            frame = self.host_frame if scope is Scope.GLOBAL else self.frame
            frame.allocations.append(n.tirx.AllocBuffer(array))
            self.scalars.slots[buffer.name] = Slot(buffer, array, prod(shape))

    def barrier(self) -> n.Stmt:
        if self.lanes is None or self.lanes.divergent:
            raise BuildError("build-failed", "a barrier would stand under thread-divergent control", hint="give sibling thread loops equal extents")
        return n.tirx.Evaluate(n.tirx.call_intrin("int32", "tirx.tvm_storage_sync", tvm.ir.StringImm("shared")))


def lower_to_cuda_tir(program: Program) -> n.Expr:
    """The program as a TIR function of kernels; parameters are inputs, then outputs, in device memory.

    Raises :class:`BuildError` ``build-failed`` when a needed barrier could not be placed.
    """
    ready = materialize(program).program
    scalars = Scalars(ready.size_env, True, "libm", cuda=True)
    emitter = CudaEmitter(ready, scalars, parallel=False, places=placement(ready))
    emitter.frame = emitter.host_frame
    params = []
    for buffer in (*ready.inputs, *ready.outputs):
        shape = shape_of(buffer.shape, ready)
        array = n.tirx.decl_buffer(shape, STORAGE[buffer.dtype], name=buffer.name)
        params.append(array)
        scalars.slots[buffer.name] = Slot(buffer, array, prod(shape))
    emitter.declare(ready.tmps)
    stmts = emitter.body(ready.body)
    return function_of(params, emitter.frame.allocations + stmts)


@functools.cache
def _target(arch: str) -> Any:
    return tvm.target.Target({"kind": "cuda", "arch": arch}, host=tvm.target.Target({"kind": "llvm", "mcpu": host_cpu()}))


def host_and_source(program: Program, arch: str) -> tuple[n.Expr, str]:
    """The host's part as a TIR function that calls kernels by name, and the kernels as CUDA source.

    Raises :class:`BuildError`: ``build-unbound`` when no loop is bound, ``build-failed`` otherwise.
    """
    if not has_bound_loops(program):
        raise BuildError("build-unbound", "no loop of the program is bound to a GPU axis", hint="bind loops with bx, by, bz, tx, ty or tz first")
    try:
        goal, t = _target(arch), n.tirx.transform
        module = t.BindTarget(goal)(tvm.IRModule({"main": lower_to_cuda_tir(program)}))
        chain = [t.FlattenBuffer(), t.UnrollLoop(), t.VerifyMemory(), t.AnnotateEntryFunc(), t.SplitHostDevice()]
        module = tvm.ir.transform.Sequential(chain)(module)
        device = t.Filter(lambda f: f.attrs["target"].kind.name == "cuda")(t.MakePackedAPI()(module))
        built = tvm.get_global_func("target.build.cuda")(t.LowerIntrin()(device), goal)
        return module["main"], str(built.inspect_source())
    except (RuntimeError, ValueError, TypeError) as err:
        raise BuildError("build-failed", trimmed(err)) from err
