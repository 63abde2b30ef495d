"""TIR function → machine code: TVM's passes without its simplifier, and an entry that takes plain pointers.

The stock pipeline folds float arithmetic as if NaN and infinities did not exist, and its argument checks cost more build time than
most kernels. Here only the passes that code generation needs run, and ``steptp.lower.build`` checks arguments in Python.
"""

from __future__ import annotations

import functools
import os
import threading
from collections.abc import Mapping
from typing import Any

from steptp.ir.nodes import Program
from steptp.lower import nodes as n
from steptp.lower.link import object_of
from steptp.lower.options import BuildError, BuildOptions
from steptp.lower.tir import lower_to_tir

import tvm  # isort: skip
from tvm.ir import PointerType, PrimType, StringImm  # isort: skip

__all__ = ["compile_functions", "compile_program", "full_pipeline", "host_cpu", "limit_threads", "target", "threads_of", "tir_of", "trimmed", "usable_cpus"]

_ARGUMENT_UNION = 15  # TVM's field code for the payload of a packed argument


@functools.cache
def host_cpu() -> str:
    """LLVM's name of this machine's CPU."""
    return str(n.codegen.llvm_get_system_cpu())


def usable_cpus() -> int:
    """CPUs that this process may run on."""
    return len(os.sched_getaffinity(0))


def threads_of(options: BuildOptions) -> int:
    """Threads that the ``par`` loops of a build use."""
    return options.threads if options.threads is not None else usable_cpus()


@functools.cache
def target(opt_level: int = 3) -> Any:
    """The host as a TVM target."""
    kind = {"kind": "llvm", "mcpu": host_cpu(), "opt-level": opt_level}
    return tvm.target.Target(kind, host=tvm.target.Target(kind))


@functools.cache
def _passes() -> Any:
    t = n.tirx.transform
    return tvm.ir.transform.Sequential([t.FlattenBuffer(), t.VectorizeLoop(True), t.UnrollLoop(), t.LowerTVMBuiltin(), t.LowerIntrin()])


@functools.cache
def full_pipeline() -> Any:
    """Passes for a function that checks its arguments (shared libraries)."""
    t = n.tirx.transform
    chain = [t.FlattenBuffer(), t.VectorizeLoop(True), t.UnrollLoop(), t.AnnotateEntryFunc(), t.SplitHostDevice(), t.MakePackedAPI()]
    return tvm.ir.transform.Sequential([*chain, t.LowerTVMBuiltin(), t.LowerIntrin()])


class _Pool(threading.local):
    """TVM has a pool for each calling thread."""

    threads = 0


_pool = _Pool()


def limit_threads(count: int) -> None:
    """Set the size of TVM's thread pool for later calls of this thread; it never has more threads than the processors it found at its start."""
    if count != _pool.threads:
        tvm.get_global_func("runtime.config_threadpool")(1, count)
        _pool.threads = count


def tir_of(program: Program, options: BuildOptions) -> Any:
    """The TIR function that a build with these options compiles."""
    return lower_to_tir(program, fma=options.fma, math=options.math, parallel=threads_of(options) > 1)


def _entry(func: Any, symbol: str) -> Any:
    """The function with TVM's packed calling convention; every argument is a data pointer and nothing is checked."""
    opaque = PointerType(PrimType("void"))
    me, args, result = (n.tirx.Var(name, opaque) for name in ("self_handle", "args", "result"))
    count = n.tirx.Var("num_args", "int32")
    stmts = []
    for position, array in enumerate(func.params):
        data = n.reinterpret(PointerType(array.ty.dtype, "global"), n.tirx.tvm_struct_get(args, position, _ARGUMENT_UNION, opaque))
        stmts.append(n.tirx.DeclBuffer(array, data=data))
    body = func.body
    for key, value in (("device_type", n.i32(1)), ("device_id", n.i32(0)), ("compute_scope", StringImm(f"{symbol}_compute_"))):
        body = n.tirx.AttrStmt(StringImm("default"), key, value, body)
    whole = n.tirx.SeqStmt([*stmts, body, n.tirx.Return(n.i32(0))])
    entry = n.tirx.PrimFunc([me, args, count, result], whole, ret_type=PrimType("int32"))
    for key, value in (("global_symbol", symbol), ("tirx.noalias", True), ("calling_conv", 1)):
        entry = entry.with_attr(key, value)
    return entry


def compile_program(program: Program, options: BuildOptions) -> Any:
    """The whole program as one LLVM module for the host. Raises :class:`BuildError` ``build-failed`` with TVM's message."""
    return _llvm_module({"__tvm_ffi_main": tir_of(program, options)}, options.opt_level)


def compile_functions(functions: Mapping[str, Any], opt_level: int) -> bytes:
    """TIR functions by name as one relocatable object for the host. Raises :class:`BuildError` ``build-failed`` with TVM's message."""
    return object_of(_llvm_module(functions, opt_level))


def _llvm_module(functions: Mapping[str, Any], opt_level: int) -> Any:
    try:
        goal = target(opt_level)
        module = tvm.IRModule({name: _entry(func, name) for name, func in functions.items()})
        module = _passes()(n.tirx.transform.BindTarget(goal)(module))
        return tvm.get_global_func("target.build.llvm")(module, goal)
    except (RuntimeError, ValueError, TypeError) as err:  # TVM's InternalError is a RuntimeError
        raise BuildError("build-failed", trimmed(err), hint="report it with the program that 'steptp lower X --emit leir' prints") from err


def trimmed(err: BaseException) -> str:
    """The last lines of a TVM message, without its C++ stack."""
    lines = [line.strip() for line in str(err).splitlines() if line.strip() and not line.lstrip().startswith(("File ", "[bt]", "^", "Stack trace"))]
    return " ".join(lines[-3:])[:500] or type(err).__name__
