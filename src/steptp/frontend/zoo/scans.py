"""Prefix sums and products, and what is built on them."""

from __future__ import annotations

import torch
from torch import Tensor

from steptp.frontend.zoo.entry import Spec, case, mask, normal, unit, w
from steptp.ir.types import DType

__all__ = ["SPECS"]

_TINY, _MINI, _LEVEL1 = (3, 7), (192, 512), (1024, 2048)


def _recurrence(a: Tensor, x: Tensor) -> Tensor:
    """Six steps of h = a*h + x."""
    h = x[:, 0]
    out = [h]
    for t in range(1, 6):
        h = a * h + x[:, t]
        out.append(h)
    return torch.stack(out, 1)


SPECS: tuple[Spec, ...] = (
    w("cumsum", lambda n, m: case(lambda x: torch.cumsum(x, 1), normal(n, m)), _TINY, _MINI, _LEVEL1),
    w("cumsum_columns", lambda n, m: case(lambda x: torch.cumsum(x, 0), normal(n, m)), (5, 4), _MINI, _LEVEL1),
    w("cumsum_f16", lambda n, m: case(lambda x: torch.cumsum(x, 1), normal(n, m)), (4, 5), (128, 384), _LEVEL1, dtype=DType.F16),
    w("cumprod", lambda n, m: case(lambda x: torch.cumprod(x, 1), unit(n, m)), (4, 5), _MINI, _LEVEL1),
    w("cumsum_reverse", lambda n, m: case(lambda x: torch.cumsum(x.flip(1), 1).flip(1), normal(n, m)), (3, 5), _MINI, _LEVEL1),
    w("cumsum_exclusive", lambda n, m: case(lambda x: torch.cumsum(x, 1) - x, normal(n, m)), (4, 4), _MINI, _LEVEL1),
    w("cumsum_shifted",
      lambda n, m: case(lambda x: torch.cumsum(torch.cat((torch.zeros_like(x[:, :1]), x[:, :-1]), 1), 1), normal(n, m)), (3, 4), _MINI, _LEVEL1),
    w("cumsum_masked", lambda n, m: case(lambda x, c: torch.cumsum(x * c.to(x.dtype), 1), normal(n, m), mask(n, m)), (5, 3), _MINI, _LEVEL1),
    w("log_cumsum_exp", lambda n, m: case(lambda x: torch.log(torch.cumsum(torch.exp(x), 1)), normal(n, m)), (3, 6), (64, 256), (512, 2048)),
    w("prefix_average", lambda n, m: case(lambda x, c: torch.cumsum(x, 1) / c, normal(n, m), unit(m)), (3, 5), _MINI, _LEVEL1),
    w("double_cumsum", lambda n, m: case(lambda x: torch.cumsum(torch.cumsum(x, 0), 1), normal(n, m)), (4, 3), (192, 384), _LEVEL1),
    w("moving_difference", lambda n, m: case(lambda x: x[:, 1:] - x[:, :-1], normal(n, m)), (3, 6), (192, 768), (1024, 4096)),
    w("three_point_stencil",
      lambda n, m: case(lambda x: 0.25 * x[:, :-2] + 0.5 * x[:, 1:-1] + 0.25 * x[:, 2:], normal(n, m)),
      (3, 5), (192, 768), (1024, 2048)),
    w("five_point_stencil",
      lambda n, m: case(lambda x: x[1:-1, :-2] + x[1:-1, 2:] + x[:-2, 1:-1] + x[2:, 1:-1] - 4.0 * x[1:-1, 1:-1], normal(n, m)),
      (5, 4), (256, 384), (1024, 2048)),
    w("linear_recurrence", lambda b, m: case(_recurrence, normal(b, m), normal(b, 6, m)), (2, 3), (32, 384), (128, 4096)),
)  # fmt: skip
