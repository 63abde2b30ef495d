"""Step-TP: verified, measured single steps of tensor-program optimisation."""

from __future__ import annotations

from importlib import import_module

__version__ = "0.1.0"


def __getattr__(name: str) -> object:
    if name == "verify":  # a package that can be called, loaded when it is
        return import_module("steptp.verify")
    if name == "optimize":
        return import_module("steptp.optimized").optimize
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
