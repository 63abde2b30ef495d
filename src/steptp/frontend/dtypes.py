"""PyTorch dtypes and LEIR dtypes."""

from __future__ import annotations

import torch

from steptp.errors import FrontendError, Place
from steptp.ir import DType

__all__ = ["DTYPES", "dtype_of"]

DTYPES = {
    torch.float16: DType.F16, torch.bfloat16: DType.BF16, torch.float32: DType.F32, torch.float64: DType.F64,
    torch.int8: DType.I8, torch.int32: DType.I32, torch.int64: DType.I64, torch.bool: DType.BOOL,
}  # fmt: skip


def dtype_of(dtype: torch.dtype, what: str, place: Place | None = None) -> DType:
    """The LEIR dtype; raises :class:`FrontendError` ``frontend-dtype`` for one that LEIR lacks."""
    if dtype in DTYPES:
        return DTYPES[dtype]
    hint = "split it into a real and an imaginary tensor" if dtype.is_complex else f"cast it to one of {', '.join(str(d) for d in DType)}"
    raise FrontendError("frontend-dtype", f"{what} has dtype {str(dtype).removeprefix('torch.')}, which LEIR does not have", place=place, hint=hint)
