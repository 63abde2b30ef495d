"""Constructors of TIR nodes that never fold constants, so that IEEE corner cases reach LLVM as written.

TVM's overloaded operators and its simplifier rewrite ``x*0`` to 0, ``x-x`` to 0 and ``x == x`` to true. The node
constructors do not, and the pass list of ``steptp.lower.compile`` leaves the simplifier out.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, TypeAlias

os.environ.setdefault("TVM_BIND_THREADS", "0")  # worker processes share the machine: never pin
os.environ.setdefault("TVM_NUM_THREADS", str(len(os.sched_getaffinity(0))))  # TVM would halve it on x86, or follow OMP_NUM_THREADS

from tvm import tirx
from tvm.target import codegen

__all__ = ["Binder", "Expr", "Stmt", "codegen", "extern", "flit", "fence", "fma", "i32", "ilit", "intrinsic", "lazy_select", "reinterpret", "select", "sequence", "tirx"]

Expr: TypeAlias = Any  # TVM's nodes carry no static types
Stmt: TypeAlias = Any

_IDS: dict[str, int] = {}


def ilit(value: int, dtype: str) -> Expr:
    """An integer literal."""
    return tirx.IntImm(dtype, value)


def i32(value: int) -> Expr:
    return tirx.IntImm("int32", value)


def reinterpret(dtype: str, value: Expr) -> Expr:
    """The same bits as another dtype of the same width."""
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


def lazy_select(cond: Expr, yes: Expr, no: Expr) -> Expr:
    """Only the chosen side is evaluated."""
    return tirx.if_then_else(cond, yes, no)


def sequence(stmts: list[Stmt]) -> Stmt:
    """One statement from a list (an empty list does nothing)."""
    if len(stmts) == 1:
        return stmts[0]
    return tirx.SeqStmt(stmts) if stmts else tirx.Evaluate(i32(0))


class Binder:
    """Names shared sub-expressions.

    With a list of ``statements`` they become bindings in front of the statement being built; without one (inside a lazily
    evaluated branch) ``Let`` nodes around the result.
    """

    def __init__(self, fresh: Callable[[], str], statements: list[Stmt] | None = None) -> None:
        self._fresh = fresh
        self._statements = statements
        self._bound: list[tuple[Expr, Expr]] = []

    def __call__(self, value: Expr, dtype: str) -> Expr:
        """A variable that holds ``value``."""
        if isinstance(value, (tirx.Var, tirx.FloatImm, tirx.IntImm)):
            return value
        var = tirx.Var(self._fresh(), dtype)
        if self._statements is None:
            self._bound.append((var, value))
        else:
            self._statements.append(tirx.Bind(var, value))
        return var

    def close(self, result: Expr) -> Expr:
        for var, value in reversed(self._bound):
            result = tirx.Let(var, value, result)
        return result
