"""Constructors of TIR nodes that never fold constants, so that IEEE corner cases reach LLVM as written.

TVM's overloaded operators and its simplifier rewrite ``x*0`` to 0, ``x-x`` to 0 and ``x == x`` to true. The node
constructors do not, and the pass list of ``steptp.lower.compile`` leaves the simplifier out.
"""

from __future__ import annotations

import os
from typing import Any, TypeAlias

import numpy as np

os.environ.setdefault("TVM_BIND_THREADS", "0")  # worker processes share the machine: never pin
os.environ.setdefault("TVM_THREAD_POOL_SPIN_COUNT", "1000")  # idle pool threads would spin for 0.2 s after every parallel loop, at their neighbours' cost
os.environ.setdefault("TVM_NUM_THREADS", str(len(os.sched_getaffinity(0))))  # TVM would halve it on x86, or follow OMP_NUM_THREADS

from tvm import tirx
from tvm.ir.expr import TensorLoad
from tvm.target import codegen

__all__ = [
    "Binder",
    "Expr",
    "Scratch",
    "Stmt",
    "codegen",
    "extern",
    "flit",
    "fence",
    "fma",
    "i32",
    "ilit",
    "intrinsic",
    "reinterpret",
    "select",
    "sequence",
    "tirx",
]

Expr: TypeAlias = Any  # TVM's nodes carry no static types
Stmt: TypeAlias = Any

_IDS: dict[str, int] = {}


def ilit(value: int, dtype: str) -> Expr:
    """An integer literal."""
    return tirx.IntImm(dtype, value)


def i32(value: int) -> Expr:
    return tirx.IntImm("int32", value)


def reinterpret(dtype: str, value: Expr) -> Expr:
    """The same bits as another dtype of the same width; a literal is converted here, because CUDA code would take its address."""
    if isinstance(value, tirx.FloatImm) and dtype == "uint32":
        return tirx.IntImm(dtype, int(np.float32(value.value).view(np.uint32)))
    return tirx.reinterpret(dtype, value)


def flit(value: float, dtype: str) -> Expr:
    """A float32 or float64 literal."""
    return tirx.FloatImm(dtype, value)


def intrinsic(name: str, dtype: str, *args: Expr) -> Expr:
    """A call of a pure LLVM intrinsic (``llvm.fma`` …); it vectorises with its operands."""
    if name not in _IDS:
        _IDS[name] = int(codegen.llvm_lookup_intrinsic_id(name))
    return tirx.call_llvm_pure_intrin(dtype, tirx.IntImm("uint32", _IDS[name]), *args)


def extern(name: str, dtype: str, *args: Expr) -> Expr:
    """A call of a pure function of the C library."""
    return tirx.call_pure_extern(dtype, name, *args)


def fma(a: Expr, b: Expr, c: Expr, dtype: str = "float32") -> Expr:
    """``a*b+c`` rounded once, on every target."""
    return intrinsic("llvm.fma", dtype, a, b, c)


def fence(value: Expr, dtype: str) -> Expr:
    """A rounded value that the compiler may not contract into a later operation."""
    return intrinsic("llvm.arithmetic.fence", dtype, value)


def select(cond: Expr, yes: Expr, no: Expr) -> Expr:
    """Both sides are evaluated."""
    return tirx.Select(cond, yes, no)


def sequence(stmts: list[Stmt]) -> Stmt:
    """One statement from a list (an empty list does nothing)."""
    if len(stmts) == 1:
        return stmts[0]
    return tirx.SeqStmt(stmts) if stmts else tirx.Evaluate(i32(0))


class Scratch:
    """Small arrays that hold named sub-expressions, one pool for each dtype and lane count, reused by every statement of a region.

    Values pass through memory rather than ``Bind`` or ``Let`` nodes: TVM's analyzer substitutes those into each other, which
    takes time exponential in the length of a polynomial. LLVM puts the arrays back into registers.
    """

    def __init__(self, allocations: list[Stmt], scope: str = "global") -> None:
        self._allocations = allocations
        self._scope = scope
        self._pools: dict[tuple[str, int], list[Expr]] = {}
        self._used: dict[tuple[str, int], int] = {}

    def restart(self) -> None:
        """Start a statement: everything is free again."""
        self._used.clear()

    def take(self, dtype: str, lanes: int) -> Expr:
        """A free array of ``lanes`` elements."""
        pool, used = self._pools.setdefault((dtype, lanes), []), self._used.get((dtype, lanes), 0)
        if used == len(pool):
            array = tirx.decl_buffer((lanes,), dtype, name=f"t_{dtype}_{used}" if lanes == 1 else f"t_{dtype}x{lanes}_{used}", scope=self._scope)
            pool.append(array)
            self._allocations.append(tirx.AllocBuffer(array, {"disable_lower_builtin": tirx.IntImm("bool", 1)}))
        self._used[(dtype, lanes)] = used + 1
        return pool[used]


class Binder:
    """Gives sub-expressions a name: ``bind(value, dtype)`` stores the value in front of the statement being built and reads it back."""

    def __init__(self, statements: list[Stmt], scratch: Scratch, lane: Expr, lanes: int) -> None:
        self._statements = statements
        self._scratch = scratch
        self._lane = lane
        self._lanes = lanes

    def __call__(self, value: Expr, dtype: str) -> Expr:
        """An expression that is cheap to repeat and has this value."""
        if isinstance(value, (tirx.Var, tirx.FloatImm, tirx.IntImm, TensorLoad)):
            return value
        slot = self.slot(dtype)
        self._statements.append(self.assign(slot, value))
        return self.read(slot)

    def slot(self, dtype: str) -> Expr:
        return self._scratch.take(dtype, self._lanes)

    def assign(self, slot: Expr, value: Expr) -> Stmt:
        return tirx.BufferStore(slot, value, [self._lane])

    def read(self, slot: Expr) -> Expr:
        return tirx.BufferLoad(slot, [self._lane])
