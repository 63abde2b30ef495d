"""LEIR to TIR, machine code and CUDA source through Apache TVM.

Importing this package does not import TVM: ``build`` imports it on the first call, the names below on first use.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from steptp.lower.build import Built, build
from steptp.lower.options import BuildError, BuildOptions
from steptp.lower.widen import magnitude, widen

if TYPE_CHECKING:
    from steptp.lower.artifacts import assembly, cuda_source, export_library, llvm_ir, tvmscript
    from steptp.lower.tir import lower_to_tir, structural_hash

__all__ = [
    "BuildError", "BuildOptions", "Built", "assembly", "build", "cuda_source", "export_library", "llvm_ir", "lower_to_tir",
    "magnitude", "structural_hash", "tvmscript", "widen",
]  # fmt: skip

_HOMES = {
    "lower_to_tir": "tir", "structural_hash": "tir", "assembly": "artifacts", "cuda_source": "artifacts", "export_library": "artifacts",
    "llvm_ir": "artifacts", "tvmscript": "artifacts",
}  # fmt: skip


def __getattr__(name: str) -> object:
    if (home := _HOMES.get(name)) is None:
        raise AttributeError(name)
    value: object = getattr(import_module(f"steptp.lower.{home}"), name)
    globals()[name] = value
    return value
