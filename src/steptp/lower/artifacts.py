"""What a user takes away from a program: TVMScript, LLVM IR, assembly, a shared library, CUDA source."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

from steptp.ir.nodes import Program
from steptp.lower import nodes as n
from steptp.lower.compile import compile_program, full_pipeline, host_cpu, target, tir_of, trimmed
from steptp.lower.cuda import has_bound_loops, lower_to_cuda_tir
from steptp.lower.options import BuildError, BuildOptions

import tvm  # isort: skip

__all__ = ["assembly", "cuda_source", "export_library", "llvm_ir", "tvmscript"]


def tvmscript(program: Program, options: BuildOptions | None = None, *, cuda: bool = False) -> str:
    """The program's TIR as TVMScript text; ``cuda`` gives the kernel form."""
    func = lower_to_cuda_tir(program) if cuda else tir_of(program, options or BuildOptions())
    return str(func.script())


def llvm_ir(program: Program, options: BuildOptions | None = None) -> str:
    """Optimised LLVM IR for this machine."""
    return str(compile_program(program, options or BuildOptions()).inspect_source("ll"))


def assembly(program: Program, options: BuildOptions | None = None) -> str:
    """Assembly for this machine."""
    return str(compile_program(program, options or BuildOptions()).inspect_source("asm"))


def export_library(program: Program, path: Path | str, options: BuildOptions | None = None) -> Path:
    """Write a shared library whose function ``main`` takes the inputs, then the outputs, as DLPack tensors and checks them
    (bf16 as uint16 tensors of the same bits).

    Load it with ``tvm.runtime.load_module``. Needs a C++ compiler to link. Raises :class:`BuildError` ``build-failed``.
    """
    options = options or BuildOptions()
    try:
        goal = target(options.opt_level)
        module = n.tirx.transform.BindTarget(goal)(tvm.IRModule({"main": tir_of(program, options)}))
        built = tvm.get_global_func("target.build.llvm")(full_pipeline()(module), goal)
        built.export_library(str(path))
    except (RuntimeError, ValueError, TypeError, OSError) as err:
        raise BuildError("build-failed", trimmed(err), hint="exporting needs a C++ compiler (g++) on the PATH") from err
    return Path(path)


@functools.cache
def _cuda_target(arch: str) -> Any:
    return tvm.target.Target({"kind": "cuda", "arch": arch}, host=tvm.target.Target({"kind": "llvm", "mcpu": host_cpu()}))


def cuda_source(program: Program, arch: str = "sm_90") -> str:
    """CUDA source of a program with bound loops; works without a GPU.

    Raises :class:`BuildError`: ``build-unbound`` when no loop is bound, ``build-failed`` otherwise.
    """
    if not has_bound_loops(program):
        raise BuildError("build-unbound", "no loop of the program is bound to a GPU axis", hint="bind loops with bx, by, bz, tx, ty or tz first")
    try:
        goal, t = _cuda_target(arch), n.tirx.transform
        module = t.BindTarget(goal)(tvm.IRModule({"main": lower_to_cuda_tir(program)}))
        chain = [t.FlattenBuffer(), t.UnrollLoop(), t.VerifyMemory(), t.AnnotateEntryFunc(), t.SplitHostDevice(), t.MakePackedAPI()]
        module = tvm.ir.transform.Sequential(chain)(module)
        device = t.Filter(lambda f: f.attrs["target"].kind.name == "cuda")(module)
        built = tvm.get_global_func("target.build.cuda")(t.LowerIntrin()(device), goal)
        return str(built.inspect_source())
    except (RuntimeError, ValueError, TypeError) as err:
        raise BuildError("build-failed", trimmed(err)) from err
