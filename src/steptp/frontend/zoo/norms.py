"""Normalisations."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F

from steptp.frontend.zoo.entry import Spec, case, net, normal, param, published, w
from steptp.ir.types import DType

__all__ = ["SPECS"]

SPECS: tuple[Spec, ...] = (
    w("batch_norm", lambda n, c, h, v: case(net(
        lambda m, x: F.batch_norm(x, None, None, m.weight, m.bias, training=True), weight=param(c), bias=param(c)), normal(n, c, h, v)),
      (2, 3, 4, 5), (4, 16, 20, 20), (8, 32, 64, 64), published("BatchNorm", 16, 64, 256, 128)),
    w("batch_norm_running", lambda n, c, h: case(nn.BatchNorm2d(c), normal(n, c, h, h)), (3, 2, 3), (4, 16, 20), (8, 32, 64), mode="train"),
    w("batch_norm_eval", lambda n, c, h, v: case(nn.BatchNorm2d(c), normal(n, c, h, v)), (2, 5, 3, 3), (4, 16, 32, 32), (8, 64, 64, 64)),
    w("batch_norm_1d", lambda n, c: case(net(
        lambda m, x: F.batch_norm(x, None, None, m.weight, m.bias, training=True), weight=param(c), bias=param(c)), normal(n, c)),
      (5, 3), (128, 256), (1024, 1024)),
    w("layer_norm", lambda n, d: case(nn.LayerNorm(d), normal(n, d)), (3, 7), (96, 256), (1024, 2048)),
    w("layer_norm_2d", lambda n, c, h: case(nn.LayerNorm((c, h, h)), normal(n, c, h, h)), (2, 3, 2), (4, 16, 20), (8, 32, 64)),
    w("layer_norm_plain", lambda n, d: case(lambda x: F.layer_norm(x, (x.shape[-1],)), normal(n, d)), (4, 5), (96, 256), (1024, 2048)),
    w("layer_norm_f16", lambda n, d: case(nn.LayerNorm(d), normal(n, d)), (3, 6), (96, 256), (1024, 2048), dtype=DType.F16),
    w("instance_norm", lambda n, c, h: case(lambda x: F.instance_norm(x), normal(n, c, h, h)), (2, 3, 4), (4, 16, 20), (8, 32, 64)),
    w("group_norm", lambda n, c, h, v, g: case(nn.GroupNorm(g, c), normal(n, c, h, v)),
      (2, 6, 3, 4, 3), (4, 16, 20, 20, 4), (8, 32, 64, 64, 8), published("GroupNorm", 16, 64, 256, 128, 8)),
    w("rms_norm", lambda n, d: case(net(
        lambda m, x: x * torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-6) * m.weight, weight=param(d)), normal(n, d)),
      (3, 5), (128, 384), (1024, 2048)),
    w("rms_norm_channels", lambda n, c, h: case(lambda x: x / torch.sqrt((x**2).mean(1, keepdim=True) + 1e-5), normal(n, c, h, h)),
      (2, 3, 4), (4, 32, 24), (8, 64, 64)),
    w("rms_norm_builtin", lambda n, d: case(nn.RMSNorm(d, eps=1e-6), normal(n, d)), (4, 4), (128, 384), (1024, 2048)),
    w("l1_normalize", lambda n, d: case(lambda x: x / x.abs().sum(1, keepdim=True), normal(n, d)), (3, 7), (192, 512), (1024, 2048)),
    w("l2_normalize", lambda n, d: case(lambda x: x / torch.linalg.vector_norm(x, dim=1, keepdim=True), normal(n, d)), (5, 4), (192, 512), (1024, 2048)),
    w("l2_normalize_clamped", lambda n, d: case(lambda x: F.normalize(x, dim=-1), normal(n, d)), (3, 4), (192, 512), (1024, 2048)),
    w("frobenius_normalize", lambda n, c, h, v: case(lambda x: x / torch.linalg.vector_norm(x), normal(n, c, h, v)),
      (2, 3, 4, 3), (4, 16, 32, 32), (8, 32, 64, 64), published("FrobeniusNorm", 16, 64, 256, 128)),
    w("max_normalize", lambda n, d: case(lambda x: x / x.abs().amax(-1, keepdim=True), normal(n, d)), (4, 3), (192, 512), (1024, 2048)),
    w("min_max_scale", lambda n, d: case(lambda x: (x - x.amin(0, keepdim=True)) / (x.amax(0, keepdim=True) - x.amin(0, keepdim=True) + 1e-6), normal(n, d)),
      (5, 3), (256, 256), (1024, 2048)),
    w("standardize", lambda n, d: case(lambda x: (x - x.mean(0)) / x.std(0), normal(n, d)), (5, 4), (256, 192), (1024, 1024)),
    w("center_columns", lambda n, d: case(lambda x: x - x.mean(0, keepdim=True), normal(n, d)), (7, 3), (256, 384), (2048, 1024)),
    w("weight_norm_linear", lambda b, k, n: case(net(
        lambda m, x: x @ (m.weight / torch.linalg.vector_norm(m.weight, dim=1, keepdim=True) * m.gain[:, None]).T, weight=param(n, k), gain=param(n)),
        normal(b, k)),
      (3, 5, 4), (48, 64, 96), (256, 512, 512)),
    w("double_softmax", lambda n, m: case(lambda x: torch.softmax(torch.softmax(x, 1), 0), normal(n, m)), (3, 4), (96, 128), (512, 1024)),
)  # fmt: skip
