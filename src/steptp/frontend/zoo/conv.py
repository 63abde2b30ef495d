"""Convolutions: one to three dimensions, strided, dilated, grouped, transposed."""

from __future__ import annotations

from torch import nn
from torch.nn import functional as F

from steptp.frontend.zoo.entry import Spec, case, net, normal, param, published, w
from steptp.ir.types import DType

__all__ = ["SPECS"]

SPECS: tuple[Spec, ...] = (
    w("conv1d", lambda b, c, n, o, k: case(nn.Conv1d(c, o, k, bias=False), normal(b, c, n)),
      (2, 3, 7, 4, 3), (2, 8, 128, 16, 5), (8, 32, 1024, 64, 5), published("conv_standard_1D", 16, 3, 512, 64, 3)),
    w("conv1d_strided_dilated", lambda b, c, n, o, k, s, d: case(nn.Conv1d(c, o, k, stride=s, dilation=d), normal(b, c, n)),
      (2, 2, 8, 3, 2, 2, 3), (2, 8, 256, 16, 5, 2, 3), (8, 32, 2048, 64, 5, 2, 3)),
    w("conv1d_causal", lambda b, c, n, o, k: case(net(lambda m, x: F.conv1d(F.pad(x, (k - 1, 0)), m.weight), weight=param(o, c, k)), normal(b, c, n)),
      (2, 2, 6, 3, 3), (2, 8, 128, 16, 4), (8, 32, 1024, 64, 4)),
    w("conv1d_pair", lambda b, c, n, o, k, p: case(net(lambda m, x, y: m.conv(x) + m.conv(y), conv=nn.Conv1d(c, o, k, padding=p, bias=False)),
                                                normal(b, c, n), normal(b, c, n)),
      (2, 2, 5, 3, 3, 2), (2, 4, 96, 12, 3, 2), (8, 16, 1024, 64, 3, 2), published("conv1d_conv1d", 16, 3, 512, 64, 3, 2)),
    w("conv1d_depthwise", lambda b, c, n, k: case(nn.Conv1d(c, c, k, padding=k // 2, groups=c), normal(b, c, n)),
      (2, 3, 6, 3), (4, 32, 256, 5), (8, 128, 2048, 7)),
    w("conv2d", lambda b, c, h, v, o, k: case(nn.Conv2d(c, o, k, bias=False), normal(b, c, h, v)),
      (2, 3, 5, 6, 4, 3), (1, 8, 16, 18, 8, 3), (4, 16, 64, 64, 32, 3), published("conv_standard_2D__asymmetric_input__square_kernel", 16, 3, 128, 256, 64, 3)),
    w("conv2d_square", lambda b, c, h, o, k: case(nn.Conv2d(c, o, k, bias=False), normal(b, c, h, h)), (2, 3, 5, 3, 3), (1, 8, 16, 8, 3), (4, 16, 64, 32, 3)),
    w("conv2d_bias_padded", lambda b, c, h, o, k: case(nn.Conv2d(c, o, k, padding=k // 2), normal(b, c, h, h)),
      (1, 3, 4, 2, 3), (1, 8, 16, 8, 3), (4, 16, 56, 32, 3)),
    w("conv2d_strided", lambda b, c, h, o, k, s, p: case(nn.Conv2d(c, o, k, stride=s, padding=p), normal(b, c, h, h)),
      (2, 2, 7, 3, 3, 2, 1), (1, 8, 32, 8, 3, 2, 1), (4, 16, 112, 32, 3, 2, 1)),
    w("conv2d_asymmetric", lambda b, c, h, v, o, kh, kv: case(nn.Conv2d(c, o, (kh, kv), padding=(kh // 2, kv // 2), bias=False), normal(b, c, h, v)),
      (2, 2, 4, 5, 3, 3, 5), (1, 4, 16, 24, 8, 3, 7), (4, 16, 48, 64, 24, 3, 7)),
    w("conv2d_dilated_padded",
      lambda b, c, h, v, o, kh, kv: case(nn.Conv2d(c, o, (kh, kv), padding=(1, 2), dilation=(2, 1), bias=False), normal(b, c, h, v)),
      (2, 2, 6, 5, 3, 3, 5), (1, 4, 16, 24, 8, 3, 5), (4, 8, 64, 64, 24, 3, 5),
      published("conv_standard_2D_square_input_asymmetric_kernel___dilated____padded", 16, 3, 256, 256, 64, 3, 5)),
    w("conv2d_grouped", lambda b, c, h, o, k, g: case(nn.Conv2d(c, o, k, groups=g, bias=False), normal(b, c, h, h)),
      (2, 4, 5, 6, 3, 2), (2, 16, 16, 16, 3, 4), (4, 64, 64, 64, 3, 4)),
    w("conv2d_depthwise", lambda b, c, h, k: case(nn.Conv2d(c, c, k, groups=c, bias=False), normal(b, c, h, h)),
      (2, 3, 5, 3), (2, 16, 24, 3), (4, 64, 96, 3), published("conv_depthwise_2D_square_input_square_kernel", 16, 3, 256, 3)),
    w("conv2d_pointwise", lambda b, c, h, o: case(nn.Conv2d(c, o, 1, bias=False), normal(b, c, h, h)),
      (2, 3, 4, 5), (2, 16, 16, 32), (4, 64, 48, 96), published("conv_pointwise_2D", 16, 3, 256, 64)),
    w("conv2d_separable", lambda b, c, h, o, k: case(nn.Sequential(nn.Conv2d(c, c, k, padding=k // 2, groups=c, bias=False), nn.Conv2d(c, o, 1, bias=False)),
                                                 normal(b, c, h, h)),
      (2, 3, 4, 5, 3), (2, 16, 16, 24, 3), (4, 64, 48, 96, 3)),
    w("conv2d_f16", lambda b, c, h, o, k: case(nn.Conv2d(c, o, k, padding=k // 2), normal(b, c, h, h)),
      (2, 3, 4, 3, 3), (1, 8, 16, 8, 3), (4, 16, 56, 32, 3), dtype=DType.F16),
    w("conv3d", lambda b, c, d, h, v, o, kd, kh, kv: case(nn.Conv3d(c, o, (kd, kh, kv), bias=False), normal(b, c, d, h, v)),
      (1, 2, 4, 5, 6, 3, 2, 3, 4), (1, 4, 8, 8, 10, 8, 3, 3, 3), (2, 8, 16, 24, 24, 16, 3, 3, 5),
      published("conv_standard_3D__square_input__asymmetric_kernel", 16, 3, 64, 64, 64, 64, 3, 5, 7)),
    w("conv3d_flat_kernel", lambda b, c, h, v, d, o, k: case(nn.Conv3d(c, o, (k, k, 1), bias=False), normal(b, c, h, v, d)),
      (1, 2, 4, 5, 3, 3, 3), (1, 4, 12, 12, 6, 8, 3), (2, 8, 32, 32, 12, 16, 3),
      published("conv_standard_3D__asymmetric_input__square_kernel", 16, 3, 256, 256, 10, 64, 3)),
    w("conv3d_strided_padded", lambda b, c, d, o, k: case(nn.Conv3d(c, o, k, stride=2, padding=1), normal(b, c, d, d, d)),
      (1, 2, 4, 3, 3), (1, 4, 12, 8, 3), (2, 8, 32, 16, 3)),
    w("conv_transpose1d", lambda b, c, n, o, k: case(nn.ConvTranspose1d(c, o, k, bias=False), normal(b, c, n)),
      (2, 3, 5, 4, 3), (2, 8, 96, 16, 5), (8, 32, 1024, 48, 5)),
    w("conv_transpose1d_strided", lambda b, c, n, o, k, s: case(nn.ConvTranspose1d(c, o, k, stride=s, padding=1, output_padding=1), normal(b, c, n)),
      (1, 2, 4, 3, 3, 2), (2, 8, 64, 16, 5, 2), (8, 32, 512, 48, 5, 2)),
    w("conv_transpose2d", lambda b, c, h, o, k: case(nn.ConvTranspose2d(c, o, k, bias=False), normal(b, c, h, h)),
      (2, 2, 4, 3, 3), (1, 8, 12, 8, 3), (4, 16, 48, 24, 3)),
    w("conv_transpose2d_strided", lambda b, c, h, o, k, s: case(nn.ConvTranspose2d(c, o, k, stride=s, padding=1), normal(b, c, h, h)),
      (1, 2, 4, 3, 3, 2), (1, 4, 10, 6, 4, 2), (2, 8, 32, 16, 4, 2)),
    w("conv_transpose2d_grouped", lambda b, c, h, o, k, g: case(nn.ConvTranspose2d(c, o, k, groups=g, dilation=2), normal(b, c, h, h)),
      (1, 4, 3, 6, 2, 2), (1, 8, 12, 16, 3, 2), (4, 32, 40, 32, 3, 4)),
    w("conv_transpose3d", lambda b, c, d, o, k: case(nn.ConvTranspose3d(c, o, k, stride=2), normal(b, c, d, d, d)),
      (1, 2, 3, 2, 2), (1, 2, 4, 4, 3), (1, 8, 10, 8, 3)),
)  # fmt: skip
