"""Object code → callable code: loading objects into the process and running a table of them.

TVM's own JIT builds a module anew for every program. Here each nest of a program is an object of its own
(:mod:`steptp.lower.nests`), loaded once by LLVM's MCJIT through llvmlite, and a program is a table of calls that one small
function walks. TVM's runtime (thread pool, workspaces) serves them as it serves TVM's modules.
"""

from __future__ import annotations

import ctypes
import functools
import os
from dataclasses import dataclass
from typing import Any

import llvmlite.binding as llvm
import numpy as np
import numpy.typing as npt

from steptp.lower.options import BuildError

__all__ = ["Code", "load", "object_of", "runner", "table"]

_SERVICES = (
    "TVMBackendParallelLaunch", "TVMBackendParallelBarrier", "TVMBackendAllocWorkspace", "TVMBackendFreeWorkspace", "TVMFFIErrorSetRaisedFromCStr",
    "TVMFFIFunctionCall", "TVMFFIEnvModLookupFromImports", "TVMFFIHandleInitOnce",
)  # fmt: skip
"""Functions of TVM's runtime that generated code reaches through pointers named ``__`` + name."""

_RUN = """
define i32 @run(ptr %table, i64 %count) {
entry:
  %result = alloca [2 x i64], align 16
  %none = icmp eq i64 %count, 0
  br i1 %none, label %done, label %call
call:
  %k = phi i64 [ 0, %entry ], [ %next, %ok ]
  %row = getelementptr [3 x i64], ptr %table, i64 %k
  %code = load ptr, ptr %row, align 8
  %argsp = getelementptr i8, ptr %row, i64 8
  %args = load ptr, ptr %argsp, align 8
  %np = getelementptr i8, ptr %row, i64 16
  %n = load i32, ptr %np, align 8
  %status = call i32 %code(ptr null, ptr %args, i32 %n, ptr %result)
  %failed = icmp ne i32 %status, 0
  br i1 %failed, label %bad, label %ok
ok:
  %next = add i64 %k, 1
  %end = icmp eq i64 %next, %count
  br i1 %end, label %done, label %call
bad:
  ret i32 %status
done:
  ret i32 0
}
"""


@dataclass(frozen=True, slots=True)
class Code:
    """Loaded code: the address of its entry, which lives as long as ``engine``."""

    address: int
    engine: Any


def object_of(module: Any) -> bytes:
    """The relocatable object of a TVM LLVM module."""
    file = os.memfd_create("steptp-object")
    try:
        module.write_to_file(f"/proc/self/fd/{file}", "o")
        return os.pread(file, os.fstat(file).st_size, 0)
    finally:
        os.close(file)


@functools.cache
def _machine() -> Any:
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    return llvm.Target.from_default_triple()


def _engine(text: str) -> Any:
    # an engine owns its target machine
    machine = _machine().create_target_machine(jit=True)
    return llvm.create_mcjit_compiler(llvm.parse_assembly(text), machine)


def load(data: bytes, entries: list[str]) -> dict[str, Code]:
    """Load an object and find its entries. Raises :class:`BuildError` ``build-failed``."""
    engine = _engine("")
    engine.add_object_file(llvm.ObjectFileRef.from_data(data))
    engine.finalize_object()
    for name in _SERVICES:
        slot = engine.get_global_value_address(f"__{name}")
        if slot:
            ctypes.c_void_p.from_address(slot).value = ctypes.cast(getattr(ctypes.CDLL(None), name), ctypes.c_void_p).value
    found = {entry: Code(engine.get_function_address(entry), engine) for entry in entries}
    if absent := [entry for entry, code in found.items() if not code.address]:
        raise BuildError("build-failed", f"the object has no function {absent[0]}")
    return found


@functools.cache
def runner() -> Any:
    """``run(table, rows)``: calls every row of a table in turn; the first status that is not 0 ends it and is returned."""
    engine = _engine(_RUN)
    engine.finalize_object()
    run = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_int64)(engine.get_function_address("run"))
    run.engine = engine  # type: ignore[attr-defined]
    return run


def table(calls: list[tuple[int, list[int]]]) -> tuple[npt.NDArray[np.int64], list[npt.NDArray[np.int64]]]:
    """The rows (entry, arguments, their number) for calls given as (address, data pointers), and the argument arrays they point to.

    An argument is TVM's tagged 16-byte value; the entries read its payload only.
    """
    rows = np.zeros((len(calls), 3), np.int64)
    packed = []
    for row, (address, pointers) in zip(rows, calls, strict=True):
        arguments = np.zeros((max(len(pointers), 1), 2), np.int64)
        arguments[: len(pointers), 1] = pointers
        row[:] = address, arguments.ctypes.data, len(pointers)
        packed.append(arguments)
    return rows, packed
