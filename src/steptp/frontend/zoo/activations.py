"""Pointwise functions and the row-wise functions built from them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import torch
from torch import Tensor
from torch.nn import functional as F

from steptp.frontend.zoo.entry import Arg, Case, Spec, case, mask, normal, positive, published, w
from steptp.ir.types import DType

__all__ = ["SPECS"]

_Shapes: TypeAlias = tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]
_SHAPES: _Shapes = ((3, 7), (192, 512), (512, 4096))
_HEAVY: _Shapes = ((5, 4), (64, 384), (512, 4096))


def _pointwise(body: Callable[[Tensor], Tensor], arg: Callable[..., Arg] = normal) -> Callable[..., Case]:
    return lambda n, m: case(lambda x: body(x), arg(n, m))


def _row(name: str, body: Callable[[Tensor], Tensor], shapes: _Shapes = _HEAVY, pub: str = "", arg: Callable[..., Arg] = normal) -> Spec:
    return w(name, _pointwise(body, arg), *shapes, pub=published(pub, 16, 16384) if pub else None)


SPECS: tuple[Spec, ...] = (
    _row("relu", torch.relu, _SHAPES),
    _row("leaky_relu", lambda x: F.leaky_relu(x, 0.01), _SHAPES, "LeakyReLU"),
    _row("sigmoid", torch.sigmoid),
    _row("tanh", torch.tanh),
    _row("silu", F.silu),
    _row("gelu", F.gelu, pub="GELU"),
    _row("gelu_tanh", lambda x: F.gelu(x, approximate="tanh")),
    _row("selu", F.selu, pub="SELU"),
    _row("elu", lambda x: F.elu(x, 0.7)),
    _row("hardtanh", lambda x: F.hardtanh(x, -0.8, 1.2), _SHAPES),
    _row("hardsigmoid", F.hardsigmoid, _SHAPES, "HardSigmoid"),
    _row("hardswish", F.hardswish, _SHAPES),
    _row("softplus", F.softplus),
    _row("softsign", F.softsign, _SHAPES, "Softsign"),
    _row("mish", F.mish),
    _row("log_sigmoid", F.logsigmoid),
    _row("tanh_shrink", F.tanhshrink),
    _row("soft_shrink", lambda x: F.softshrink(x, 0.4), _SHAPES),
    _row("square_plus", lambda x: 0.5 * (x + (x * x + 4.0).sqrt()), _SHAPES),
    _row("sin_plus_cos", lambda x: x.sin() + x.cos()),
    _row("rsqrt_scale", lambda x: x * torch.rsqrt(x + 1e-3), _SHAPES, arg=positive),
    w("gelu_f16", lambda n, m: case(lambda x: F.gelu(x), normal(n, m)), (3, 5), (64, 384), (512, 4096), dtype=DType.F16),
    w("silu_bf16", lambda n, m: case(lambda x: F.silu(x), normal(n, m)), (5, 3), (64, 384), (512, 4096), dtype=DType.BF16),
    w("axpy", lambda n: case(lambda x, y: 1.5 * x + y, normal(n), normal(n)), (7,), (150_000,), (4_000_000,)),
    w("lerp", lambda n, m: case(lambda a, b, t: a + t * (b - a), normal(n, m), normal(n, m), normal(n, m)), (3, 5), (256, 384), (1024, 2048)),
    w("where_mask", lambda n, m: case(lambda c, a, b: torch.where(c, a, b), mask(n, m), normal(n, m), normal(n, m)), (4, 3), (256, 384), (1024, 2048)),
    w("log_log_add", lambda b, n, m: case(lambda x, y: x.log() + y.log(), positive(b, n, m), positive(b, n, m)),
      (2, 3, 5), (8, 32, 64), (32, 128, 256), published("log_log_add", 128, 128, 256)),
    w("glu", lambda n, m: case(lambda x: F.glu(x, dim=-1), normal(n, 2 * m)), (3, 4), (64, 256), (512, 2048)),
    w("swiglu", lambda n, m: case(lambda g, u: F.silu(g) * u, normal(n, m), normal(n, m)), (4, 5), (64, 256), (512, 2048)),
    w("geglu", lambda n, m: case(lambda g, u: F.gelu(g) * u, normal(n, m), normal(n, m)), (5, 5), (64, 256), (512, 2048)),
    w("softmax", lambda n, m: case(lambda x: torch.softmax(x, -1), normal(n, m)), (3, 5), (64, 256), (512, 4096)),
    w("softmax_columns", lambda n, m: case(lambda x: torch.softmax(x, 0), normal(n, m)), (5, 3), (256, 64), (2048, 512)),
    w("softmax_f16", lambda n, m: case(lambda x: torch.softmax(x, -1), normal(n, m)), (4, 3), (64, 256), (512, 4096), dtype=DType.F16),
    w("log_softmax", lambda n, m: case(lambda x: torch.log_softmax(x, -1), normal(n, m)), (4, 5), (64, 256), (512, 4096)),
    w("softmin_scaled", lambda n, m: case(lambda x: torch.softmax(x * -0.7, -1), normal(n, m)), (3, 3), (64, 256), (512, 4096)),
    w("bias_add", lambda n, m: case(lambda x, b: x + b, normal(n, m), normal(m)), (4, 7), (256, 512), (1024, 2048)),
    w("channel_scale_shift", lambda n, c, h: case(lambda x, s, b: x * s[None, :, None] + b[None, :, None], normal(n, c, h), normal(c), normal(c)),
      (2, 3, 5), (8, 32, 384), (16, 64, 1024)),
    w("transpose_add", lambda n, m: case(lambda a, b: a + b.T, normal(n, m), normal(m, n)), (3, 5), (320, 384), (1792, 1536)),
    w("complex_multiply",
      lambda n: case(lambda ar, ai, br, bi: (ar * br - ai * bi, ar * bi + ai * br), normal(n), normal(n), normal(n), normal(n)),
      (7,), (100_000,), (1_000_000,)),
    w("polynomial", lambda n: case(lambda x: 1.0 + x * (0.5 + x * (0.25 + x * 0.125)), normal(n)), (5,), (200_000,), (2_000_000,)),
    w("harmonic_mean", lambda n: case(lambda x, y: 2.0 / (1.0 / x + 1.0 / y), positive(n), positive(n)), (7,), (100_000,), (2_000_000,)),
    w("clamp_tensors", lambda n, m: case(lambda x, lo, hi: torch.minimum(torch.maximum(x, lo), hi), normal(n, m), normal(m), positive(m)),
      (3, 7), (192, 512), (1024, 2048)),
)  # fmt: skip
