"""Reductions over one or more dimensions."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from steptp.frontend.zoo.entry import Arg, Spec, case, ints, mask, normal, published, unit, w
from steptp.ir.types import DType

__all__ = ["SPECS"]


def _middle(name: str, body: Callable[[Tensor], Tensor], pub: str = "", arg: Callable[..., Arg] = normal, mini: tuple[int, ...] = (8, 96, 160)) -> Spec:
    """A reduction of the middle dimension of a rank-3 tensor."""
    return w(name, lambda b, n, m: case(lambda x: body(x), arg(b, n, m)), (2, 5, 3), mini, (16, 256, 512), published(pub, 16, 256, 256) if pub else None)


SPECS: tuple[Spec, ...] = (
    _middle("sum_middle", lambda x: x.sum(1)),
    _middle("sum_keepdim", lambda x: x.sum(1, keepdim=True)),
    _middle("mean_middle", lambda x: x.mean(1)),
    _middle("max_middle", lambda x: x.amax(1)),
    _middle("min_middle", lambda x: x.amin(1)),
    _middle("argmax_middle", lambda x: x.argmax(1), "Argmax_over_a_dimension"),
    _middle("argmin_middle", lambda x: x.argmin(1), "Argmin_over_a_dimension"),
    _middle("prod_middle", lambda x: x.prod(1), arg=unit),
    _middle("var_middle", lambda x: x.var(1)),
    _middle("var_population", lambda x: x.var(1, correction=0)),
    _middle("std_middle", lambda x: x.std(1)),
    _middle("logsumexp_middle", lambda x: torch.logsumexp(x, 1), mini=(4, 64, 64)),
    _middle("sum_of_squares", lambda x: (x * x).sum(1)),
    _middle("norm_l3", lambda x: (x.abs() ** 3).sum(1) ** (1.0 / 3.0)),
    _middle("max_minus_mean", lambda x: x.amax(1) - x.mean(1)),
    w("sum_rows_f16", lambda n, m: case(lambda x: x.sum(-1), normal(n, m)), (3, 5), (256, 384), (2048, 2048), dtype=DType.F16),
    w("sum_all", lambda n, m: case(lambda x: x.sum(), normal(n, m)), (3, 5), (256, 512), (2048, 2048)),
    w("mean_all", lambda b, n, m: case(lambda x: x.mean(), normal(b, n, m)), (2, 3, 4), (8, 128, 128), (16, 512, 512)),
    w("sum_outer_and_inner", lambda b, n, m: case(lambda x: x.sum((0, 2)), normal(b, n, m)), (3, 4, 5), (8, 128, 128), (16, 512, 512)),
    w("max_two_axes", lambda b, n, m: case(lambda x: x.amax((1, 2)), normal(b, n, m)), (3, 4, 2), (8, 128, 128), (16, 512, 512)),
    w("row_and_column_sums", lambda n, m: case(lambda x: (x.sum(0), x.sum(1)), normal(n, m)), (4, 3), (256, 384), (2048, 1024)),
    w("max_with_index", lambda n, m: case(lambda x: tuple(torch.max(x, 1)), normal(n, m)), (4, 5), (192, 384), (1024, 2048)),
    w("argmax_all", lambda n, m: case(lambda x: x.argmax(), normal(n, m)), (3, 4), (192, 384), (1024, 2048)),
    w("argmax_last", lambda n, m: case(lambda x: x.argmax(-1), normal(n, m)), (4, 4), (192, 384), (1024, 2048)),
    w("any_row", lambda n, m: case(lambda c: c.any(1), mask(n, m)), (4, 3), (256, 512), (2048, 2048)),
    w("all_column", lambda n, m: case(lambda c: c.all(0), mask(n, m)), (3, 4), (256, 512), (2048, 2048)),
    w("count_above", lambda n, m: case(lambda x: (x > 0.5).sum(1), normal(n, m)), (5, 4), (256, 512), (2048, 2048)),
    w("masked_mean", lambda n, m: case(lambda x, c: torch.where(c, x, 0.0).sum(1) / c.sum(1).clamp(min=1).to(x.dtype), normal(n, m), mask(n, m)),
      (4, 5), (192, 384), (1024, 2048)),
    w("weighted_sum", lambda b, n, m: case(lambda x, s: (x * s[None, :, None]).sum(1), normal(b, n, m), normal(n)), (2, 4, 3), (8, 96, 128), (16, 256, 512)),
    w("max_then_sum", lambda b, n, m: case(lambda x: x.amax(2).sum(1), normal(b, n, m)), (2, 3, 4), (8, 96, 128), (16, 256, 512)),
    w("sum_then_max", lambda b, n, m: case(lambda x: x.sum(2).amax(1), normal(b, n, m)), (3, 3, 4), (8, 96, 128), (16, 256, 512)),
    w("int_sum", lambda n, m: case(lambda x: x.sum(1), ints(n, m, high=100, low=-100)), (3, 5), (256, 512), (1024, 2048)),
    w("int_matmul", lambda n, k, m: case(lambda a, b: a @ b, ints(n, k, high=16, low=-16), ints(k, m, high=16, low=-16)),
      (3, 5, 4), (56, 64, 56), (256, 320, 256)),
    w("int_bucket", lambda n, m: case(lambda x: x // 8 + x % 3, ints(n, m, high=1000)), (3, 4), (192, 256), (1024, 2048)),
    w("int_max", lambda n, m: case(lambda x: x.amax(1), ints(n, m, high=1000, low=-1000, dtype=DType.I32)), (5, 3), (256, 512), (2048, 2048)),
)  # fmt: skip
