"""Compare the translation of a PyTorch function or module with PyTorch itself."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import nn

from steptp.frontend.capture import capture
from steptp.frontend.tensors import to_numpy
from steptp.frontend.translate import translate
from steptp.frontend.workload import sizes_for
from steptp.frontend.zoo.entry import fn
from steptp.interp import evaluate
from steptp.ir import Const, DType, Program, check, parse, print_expr, print_program, rebind

__all__ = ["agree", "assert_close", "scaled_error", "shape_text", "sizes_of", "tensor"]

BOUND = {DType.F16: 2e-3, DType.BF16: 1.6e-2, DType.F32: 2e-6, DType.F64: 1e-13}


def sizes_of(program: Program) -> str:
    """``N=3 C=2*M``: every size with its value, or the expression that derives it."""
    return " ".join(f"{s.name}={s.value if s.expr is None else print_expr(s.expr)}" for s in program.sizes)


def shape_text(program: Program, name: str) -> str:
    """The declared shape of an input or output: ``N,K``."""
    return ",".join(str(e.value) if isinstance(e, Const) else print_expr(e) for b in (*program.inputs, *program.outputs) if b.name == name for e in b.shape)


def tensor(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """Seeded standard normal values."""
    return torch.randn(shape, generator=torch.Generator().manual_seed(1000 * seed + sum(shape))).to(dtype)


def scaled_error(got: np.ndarray, want: np.ndarray) -> float:
    """max |got - want| / max(max |want|, 1e-6), with equal infinities and NaNs as no error."""
    a, b = got.astype(np.float64), want.astype(np.float64)
    same = (a == b) | (np.isnan(a) & np.isnan(b))
    if same.all():
        return 0.0
    finite = b[np.isfinite(b)]
    scale = max(float(np.abs(finite).max()) if finite.size else 0.0, 1e-6)
    with np.errstate(invalid="ignore"):
        return float(np.where(same, 0.0, np.abs(a - b)).max() / scale)


def assert_close(got: np.ndarray, want: np.ndarray, dtype: DType, factor: float = 1.0) -> None:
    """Same shape and kind; floats within the bound of their dtype, everything else equal."""
    assert got.shape == want.shape
    if dtype.is_float:
        error = scaled_error(got, want)
        assert error <= factor * BOUND[dtype], f"scaled error {error:.3g}"
    else:
        assert np.array_equal(got, want)


def agree(
    what: nn.Module | Callable[..., object], *args: torch.Tensor, other: Sequence[torch.Tensor] = (), sizes: str = "static", factor: float = 1.0
) -> Program:
    """Translate, check, print and parse back, evaluate, and compare with PyTorch; the program.

    ``other`` are inputs of other shapes: the program, captured with named sizes, is re-bound to them and compared again.
    """
    module = what if isinstance(what, nn.Module) else fn(what)  # type: ignore[arg-type]
    done = translate(capture(module, args, {}, "test", sizes="auto" if other else sizes))
    program = done.program
    check(program)
    assert parse(print_program(program)) == program
    feed = {leaf.name: to_numpy(leaf.tensor) for leaf in done.leaves}
    _compare(program, module, args, feed, factor)
    if other:
        given = iter(other)
        changed = {leaf.name: to_numpy(next(given)) if leaf.kind == "input" else feed[leaf.name] for leaf in done.leaves}
        values = sizes_for(program, {leaf.name: changed[leaf.name].shape for leaf in done.leaves})
        _compare(rebind(program, values), module, other, changed, factor)
    return program


def _compare(program: Program, module: nn.Module, args: Sequence[torch.Tensor], feed: dict[str, np.ndarray], factor: float) -> None:
    with torch.no_grad():
        want = module(*args)
    got = evaluate(program, feed)
    for buffer, value in zip(program.outputs, want if isinstance(want, tuple) else (want,), strict=True):
        assert_close(got[buffer.name], to_numpy(value), buffer.dtype, factor)
