"""Build options and build errors; no heavy imports, so that callers may name them cheaply."""

from __future__ import annotations

from dataclasses import dataclass

from steptp.errors import StepTPError, UsageError

__all__ = ["BuildError", "BuildOptions"]


class BuildError(StepTPError):
    """A program could not be compiled (code ``build-failed``) or a built one could not be called (``call-*``)."""


@dataclass(frozen=True, slots=True)
class BuildOptions:
    """How to compile for the CPU.

    ``fma``: allow the compiler to contract ``a*b+c``. Without it every product is rounded on its own, so that two
    programs with the same IEEE operations give the same bits. ``opt_level``: LLVM's 0 to 3. ``threads``: workers of ``par`` loops
    (``None``: all CPUs of this process; 1 runs them as serial loops). ``math``: ``vector`` computes f32 exp, expm1, log,
    log1p, tanh, sigmoid and erf with the polynomials of ``steptp.lower.vecmath`` (f16 and bf16 go through f32);
    ``libm`` calls the C library for each element.
    """

    fma: bool = True
    opt_level: int = 3
    threads: int | None = None
    math: str = "vector"

    def __post_init__(self) -> None:
        if self.opt_level not in (0, 1, 2, 3):
            raise UsageError("usage-build", f"opt_level must be 0 to 3, not {self.opt_level}")
        if self.math not in ("vector", "libm"):
            raise UsageError("usage-build", f"math must be 'vector' or 'libm', not {self.math!r}")
        if self.threads is not None and self.threads < 1:
            raise UsageError("usage-build", f"threads must be at least 1, not {self.threads}")
