"""What a user takes away from a program: TVMScript, LLVM IR, assembly, a shared library, CUDA source."""

from __future__ import annotations

from pathlib import Path

from steptp.ir.nodes import Buffer, Program
from steptp.ir.sizes import shape_of
from steptp.lower import nodes as n
from steptp.lower.compile import compile_program, full_pipeline, target, tir_of, trimmed
from steptp.lower.cuda import host_and_source, lower_to_cuda_tir
from steptp.lower.options import BuildError, BuildOptions

import tvm  # isort: skip

__all__ = ["assembly", "c_header", "cuda_source", "export_library", "llvm_ir", "tvmscript"]


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


def c_header(program: Program, name: str = "steptp_run") -> str:
    """C header of :func:`export_library`'s library: ``name`` takes the inputs, then the outputs, as ``DLTensor *`` and returns 0 on success."""
    buffers = (*program.inputs, *program.outputs)
    rows = [f" *   {_c_name(b)}: {'output' if b in program.outputs else 'input'}, {b.dtype}{list(shape_of(b.shape, program))}" for b in buffers]
    names = [_c_name(b) for b in buffers]
    packed = ", ".join(f"{{.type_index = kTVMFFIDLTensorPtr, .v_ptr = {n}}}" for n in names)
    lines = [
        "/* Compact row-major tensors on the CPU, checked when called; bf16 as uint16 of the same bits.", *rows,
        " * Needs the headers and the library of TVM's FFI (tvm-ffi-config prints the flags); compile as C. */",
        "#pragma once", "#include <dlpack/dlpack.h>", "#include <tvm/ffi/c_api.h>", "",
        "int __tvm_ffi_main(void *handle, const TVMFFIAny *args, int32_t count, TVMFFIAny *result);", "",
        f"static inline int {name}({', '.join(f'DLTensor *{n}' for n in names)}) {{", f"  TVMFFIAny args[] = {{{packed}}};",
        "  TVMFFIAny result = {.type_index = kTVMFFINone};", f"  return __tvm_ffi_main(NULL, args, {len(names)}, &result);", "}",
    ]  # fmt: skip
    return "\n".join(lines) + "\n"


def _c_name(buffer: Buffer) -> str:
    return f"t_{buffer.name}"  # a buffer may have the name of a C keyword


def cuda_source(program: Program, arch: str = "sm_90") -> str:
    """CUDA source of a program with bound loops; works without a GPU.

    Raises :class:`BuildError`: ``build-unbound`` when no loop is bound, ``build-failed`` otherwise.
    """
    return host_and_source(program, arch)[1]
