"""Pooling, adaptive and global, one to three dimensions."""

from __future__ import annotations

from torch.nn import functional as F

from steptp.frontend.zoo.entry import Spec, case, normal, published, w
from steptp.ir.types import DType

__all__ = ["SPECS"]

SPECS: tuple[Spec, ...] = (
    w("max_pool1d", lambda b, c, n, k, s, p, d: case(lambda x: F.max_pool1d(x, k, s, p, d), normal(b, c, n)),
      (2, 3, 8, 3, 2, 1, 2), (4, 32, 512, 4, 2, 2, 3), (8, 64, 4096, 4, 2, 2, 3), published("Max_Pooling_1D", 16, 64, 128, 4, 2, 2, 3)),
    w("max_pool2d", lambda b, c, h, k, s, p, d: case(lambda x: F.max_pool2d(x, k, s, p, d), normal(b, c, h, h)),
      (2, 2, 7, 2, 2, 1, 2), (2, 16, 48, 2, 2, 1, 3), (8, 32, 128, 2, 2, 1, 3), published("Max_Pooling_2D", 16, 32, 128, 2, 2, 1, 3)),
    w("max_pool2d_plain", lambda b, c, h, k: case(lambda x: F.max_pool2d(x, k), normal(b, c, h, h)), (2, 3, 6, 2), (2, 16, 64, 2), (8, 32, 192, 2)),
    w("max_pool2d_ceil", lambda b, c, h, k, s: case(lambda x: F.max_pool2d(x, k, s, ceil_mode=True), normal(b, c, h, h)),
      (1, 2, 6, 3, 2), (2, 16, 40, 3, 2), (8, 32, 128, 3, 2)),
    w("max_pool3d", lambda b, c, n, k, s, p, d: case(lambda x: F.max_pool3d(x, k, s, p, d), normal(b, c, n, n, n)),
      (1, 2, 5, 2, 2, 1, 1), (1, 8, 16, 3, 2, 1, 3), (4, 16, 48, 3, 2, 1, 3), published("Max_Pooling_3D", 16, 32, 64, 3, 2, 1, 3)),
    w("avg_pool1d", lambda b, c, n, k, s, p: case(lambda x: F.avg_pool1d(x, k, s, p), normal(b, c, n)),
      (2, 3, 7, 3, 2, 1), (4, 32, 512, 5, 2, 2), (8, 64, 4096, 5, 2, 2)),
    w("avg_pool2d", lambda b, c, h, k: case(lambda x: F.avg_pool2d(x, k), normal(b, c, h, h)),
      (2, 2, 7, 3), (2, 16, 66, 3), (8, 32, 192, 3), published("Average_Pooling_2D", 16, 64, 256, 3)),
    w("avg_pool2d_padded", lambda b, c, h, k, s, p: case(lambda x: F.avg_pool2d(x, k, s, p), normal(b, c, h, h)),
      (1, 2, 6, 3, 2, 1), (2, 16, 48, 3, 2, 1), (8, 32, 128, 3, 2, 1)),
    w("avg_pool2d_ceil_valid", lambda b, c, h, k, s, p: case(lambda x: F.avg_pool2d(x, k, s, p, ceil_mode=True, count_include_pad=False), normal(b, c, h, h)),
      (1, 2, 6, 3, 2, 1), (2, 16, 49, 3, 2, 1), (8, 32, 129, 3, 2, 1)),
    w("avg_pool3d", lambda b, c, n, k, s, p: case(lambda x: F.avg_pool3d(x, k, s, p), normal(b, c, n, n, n)),
      (1, 2, 4, 3, 2, 1), (1, 8, 16, 3, 2, 1), (4, 16, 48, 3, 2, 1), published("Average_Pooling_3D", 16, 32, 64, 3, 2, 1, dtype=DType.F32)),
    w("global_avg_pool", lambda b, c, h: case(lambda x: F.adaptive_avg_pool2d(x, 1), normal(b, c, h, h)), (2, 3, 4), (4, 32, 32), (8, 64, 128)),
    w("adaptive_avg_pool2d", lambda b, c, h, o: case(lambda x: F.adaptive_avg_pool2d(x, o), normal(b, c, h, h)), (2, 2, 6, 3), (2, 16, 64, 8), (8, 32, 128, 8)),
    w("global_max_pool", lambda b, c, h: case(lambda x: x.amax((2, 3)), normal(b, c, h, h)), (2, 3, 3), (4, 32, 32), (8, 64, 128)),
    w("lp_pool2d", lambda b, c, h, k: case(lambda x: F.avg_pool2d(x * x, k).sqrt(), normal(b, c, h, h)), (1, 2, 6, 2), (2, 16, 64, 4), (8, 32, 128, 4)),
    w("max_minus_avg_pool", lambda b, c, h, k: case(lambda x: F.max_pool2d(x, k) - F.avg_pool2d(x, k), normal(b, c, h, h)),
      (1, 3, 6, 3), (2, 16, 48, 2), (8, 32, 128, 2)),
)  # fmt: skip
