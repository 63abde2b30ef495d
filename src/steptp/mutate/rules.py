"""Other acceptance rules, run on the same mutants: the published one, re-implemented from its description, and ``torch.allclose`` as KernelBench uses it.

The published rule accepts when, for every output, rtol <= 5e-3 or atol <= 1e-7 or MSE <= 1e-5; with f16 arithmetic also when atol < 1.5, with f32 when atol < 1e-3. rtol
and atol are the largest relative and absolute differences on one draw of normal inputs. KernelBench's check (older versions, and f16 and bf16 in newer ones) is
``torch.allclose`` at atol = rtol = 1e-2 on five draws from [0, 1). Programs run in serial order, and what reads undefined memory counts as refused, which
favours these rules: a race or stale memory may go unnoticed in a real run.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from steptp.errors import LeirError
from steptp.interp.errors import EvalError
from steptp.interp.machine import Machine
from steptp.interp.numpy_eval import FloatAlgebra
from steptp.interp.rounding import round_array, rounder
from steptp.interp.scalars import Unary
from steptp.ir.nodes import Program
from steptp.ir.types import DType
from steptp.mutate.inputs import Inputs, draw
from steptp.mutate.witness import Outputs, run

__all__ = ["RULES", "Rules"]

Floats = npt.NDArray[np.float64]
PRECISIONS = (DType.F64, DType.F32, DType.F16)
RULES = ("f64", "f32", "f16", "allclose")
_DRAWS = 5


class _Uniform(FloatAlgebra):
    """Every float operator rounded to one dtype, whatever the program says."""

    def __init__(self, dtype: DType) -> None:
        super().__init__(wide=dtype is DType.F64)
        self.dtype = dtype

    def _rounder(self, dtype: DType) -> Unary | None:
        return rounder(self.dtype)

    def const(self, value: float, dtype: DType) -> float:
        narrow = rounder(self.dtype)
        return value if narrow is None else narrow(value)


class Rules:
    """What the other rules say of candidates for one reference program."""

    def __init__(self, reference: Program, seed: int = 0) -> None:
        self.reference = reference
        self._normal = draw(reference, "normal", seed)
        self._uniform = [draw(reference, "uniform", seed + n) for n in range(_DRAWS)]
        self._expected = {dtype: _outputs(reference, dtype, [self._normal]) for dtype in PRECISIONS}
        self._plain = _outputs(reference, None, self._uniform)

    def accepts(self, candidate: Program) -> dict[str, bool]:
        """Rule → whether it accepts, for :data:`RULES`; a candidate that has no value is refused."""
        out: dict[str, bool] = {}
        for dtype in PRECISIONS:
            expected, actual = self._expected[dtype], _outputs(candidate, dtype, [self._normal])
            out[str(dtype)] = expected is not None and actual is not None and all(_published(expected[0][n], actual[0].get(n), dtype) for n in expected[0])
        actual = _outputs(candidate, None, self._uniform)
        out["allclose"] = (
            self._plain is not None and actual is not None and all(_close(a[n], b.get(n)) for a, b in zip(self._plain, actual, strict=True) for n in a)
        )
        return out


def _outputs(program: Program, dtype: DType | None, inputs: list[Inputs]) -> list[Outputs] | None:
    """Outputs on each draw, in ``dtype`` arithmetic or the program's own."""
    try:
        machine = Machine(program, FloatAlgebra() if dtype is None else _Uniform(dtype))
        return [run(machine, {n: _narrowed(a, dtype) for n, a in given.items()}, dtype is DType.F64) for given in inputs]
    except (EvalError, LeirError, KeyError):
        return None


def _narrowed(array: npt.NDArray[np.generic], dtype: DType | None) -> npt.NDArray[np.generic]:
    return array if dtype is None or array.dtype.kind != "f" else round_array(np.asarray(array), dtype)


def _published(expected: npt.NDArray[np.generic], actual: npt.NDArray[np.generic] | None, dtype: DType) -> bool:
    if actual is None or actual.shape != expected.shape:
        return False
    if not expected.size:
        return True
    with np.errstate(all="ignore"):
        a, b = expected.astype(np.float64), actual.astype(np.float64)
        away = np.abs(a - b)
        relative = float(np.max(np.where(away == 0, 0.0, away / np.abs(a))))
        absolute, mse = float(np.max(away)), float(np.mean(away**2))
    loose = {DType.F16: 1.5, DType.F32: 1e-3}.get(dtype, 0.0)
    return relative <= 5e-3 or absolute <= 1e-7 or mse <= 1e-5 or absolute < loose


def _close(expected: npt.NDArray[np.generic], actual: npt.NDArray[np.generic] | None) -> bool:
    if actual is None or actual.shape != expected.shape:
        return False
    import torch

    return bool(torch.allclose(torch.from_numpy(actual.astype(np.float64)), torch.from_numpy(expected.astype(np.float64)), atol=1e-2, rtol=1e-2))
