"""Chains of operators as found in networks: linear layers with epilogues, convolution blocks, cells, transformer parts."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from steptp.frontend.zoo.entry import Case, Spec, case, ints, net, normal, param, positive, published, unit, w
from steptp.ir.types import DType

__all__ = ["SPECS"]

_TINY, _MINI, _LEVEL1 = (3, 5, 4), (32, 96, 64), (256, 512, 512)


def _linear(body: Callable[..., Tensor], **shapes: int) -> Callable[..., Case]:
    """A linear layer, then ``body(m, y)``; keyword arguments name further parameters and say their rank (0 or 1)."""

    def make(b: int, k: int, n: int) -> Case:
        parts: dict[str, nn.Module | nn.Parameter] = {"lin": nn.Linear(k, n)}
        parts |= {name: param(*(n,) * rank) for name, rank in shapes.items()}
        return case(net(lambda m, x: body(m, m.lin(x)), **parts), normal(b, k))

    return make


def _group_norm_tail(act: Callable[[Tensor], Tensor]) -> Callable[..., Case]:
    def make(b: int, k: int, n: int, g: int) -> Case:
        return case(net(lambda m, x: act(m.norm(m.lin(x))), lin=nn.Linear(k, n), norm=nn.GroupNorm(g, n)), normal(b, k))

    return make


def _swish_bias_group_norm(b: int, k: int, n: int, g: int) -> Case:
    module = net(lambda m, x: m.norm(F.silu(m.lin(x)) + m.bias), lin=nn.Linear(k, n), bias=param(n), norm=nn.GroupNorm(g, n))
    return case(module, normal(b, k))


def _lstm_cell(b: int, k: int, n: int) -> Case:
    def forward(m: nn.Module, x: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
        i, f, g, o = (m.x(x) + m.h(h)).unflatten(1, (4, -1)).unbind(1)  # type: ignore[operator]
        c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
        return torch.sigmoid(o) * torch.tanh(c), c

    return case(net(forward, x=nn.Linear(k, 4 * n), h=nn.Linear(n, 4 * n)), normal(b, k), normal(b, n), normal(b, n))


def _gru_cell(b: int, k: int, n: int) -> Case:
    def forward(m: nn.Module, x: Tensor, h: Tensor) -> Tensor:
        xr, xz, xn = m.x(x).unflatten(1, (3, -1)).unbind(1)  # type: ignore[operator]
        hr, hz, hn = m.h(h).unflatten(1, (3, -1)).unbind(1)  # type: ignore[operator]
        z = torch.sigmoid(xz + hz)
        return (1 - z) * torch.tanh(xn + torch.sigmoid(xr + hr) * hn) + z * h

    return case(net(forward, x=nn.Linear(k, 3 * n), h=nn.Linear(n, 3 * n)), normal(b, k), normal(b, n))


def _transformer_block(t: int, d: int, f: int) -> Case:
    def forward(m: nn.Module, x: Tensor) -> Tensor:
        y = F.layer_norm(x, x.shape[-1:])
        q, k, v = m.qkv(y).unflatten(-1, (3, -1)).unbind(-2)  # type: ignore[operator]
        x = x + m.proj(torch.softmax(q @ k.T * q.shape[-1] ** -0.5, -1) @ v)  # type: ignore[operator]
        return x + m.down(F.gelu(m.up(F.layer_norm(x, x.shape[-1:]))))  # type: ignore[operator,no-any-return]

    parts = {"qkv": nn.Linear(d, 3 * d), "proj": nn.Linear(d, d), "up": nn.Linear(d, f), "down": nn.Linear(f, d)}
    return case(net(forward, **parts), normal(t, d))


def _squeeze_excite(b: int, c: int, h: int, r: int) -> Case:
    def forward(m: nn.Module, x: Tensor) -> Tensor:
        s = torch.sigmoid(m.up(torch.relu(m.down(x.mean((2, 3))))))  # type: ignore[operator]
        return x * s[:, :, None, None]

    return case(net(forward, down=nn.Linear(c, r), up=nn.Linear(r, c)), normal(b, c, h, h))


def _top_expert_gate(b: int, k: int, e: int, n: int) -> Case:
    """A soft mixture of ``e`` linear experts."""

    def forward(m: nn.Module, x: Tensor) -> Tensor:
        gate = torch.softmax(m.gate(x), -1)  # type: ignore[operator]
        return torch.einsum("be,bk,ekn->bn", gate, x, m.experts)

    return case(net(forward, gate=nn.Linear(k, e), experts=param(e, k, n)), normal(b, k))


SPECS: tuple[Spec, ...] = (
    w("linear", _linear(lambda m, y: y), _TINY, _MINI, _LEVEL1),
    w("gemm_bias_relu", _linear(lambda m, y: torch.relu(y)), _TINY, _MINI, _LEVEL1),
    w("gemm_bias_relu_f16", _linear(lambda m, y: torch.relu(y)), (4, 3, 5), _MINI, _LEVEL1, dtype=DType.F16),
    w("gemm_gelu_scale", _linear(lambda m, y: F.gelu(y) * m.scale, scale=1), (5, 3, 4), _MINI, _LEVEL1),
    w("gemm_scale_hardtanh_gelu", _linear(lambda m, y: F.gelu(F.hardtanh(y * m.scale, -2.0, 2.0)), scale=0), _TINY, _MINI, _LEVEL1,
      published("Gemm_Scaling_Hardtanh_GELU", 128, 1024, 512)),
    w("gemm_sigmoid_sum_logsumexp", _linear(lambda m, y: torch.logsumexp(torch.sigmoid(y).sum(1), 0)), (4, 3, 5), _MINI, _LEVEL1,
      published("Gemm_Sigmoid_Sum_LogSumExp", 128, 10, 20)),
    w("gemm_swish_divide_clamp_tanh_clamp", _linear(lambda m, y: torch.tanh((F.silu(y) / 2.0).clamp(-1.0, 1.0)).clamp(-1.0, 1.0)), (4, 5, 3), _MINI, _LEVEL1,
      published("Gemm_Swish_Divide_Clamp_Tanh_Clamp", 128, 1024, 512)),
    w("gemm_batch_norm_bias_divide_swish", lambda b, k, n: case(net(
        lambda m, x: F.silu((F.batch_norm(m.lin(x), None, None, m.weight, m.shift, training=True) + m.bias) / 1.5),
        lin=nn.Linear(k, n), weight=param(n), shift=param(n), bias=param(1)), normal(b, k)),
      (5, 3, 4), _MINI, _LEVEL1, published("Matmul_BatchNorm_BiasAdd_Divide_Swish", 128, 1024, 512)),
    w("gemm_scale_residual", lambda b, k, n: case(net(lambda m, x, r: m.lin(x) * m.scale + r, lin=nn.Linear(k, n), scale=param(n)), normal(b, k), normal(b, n)),
      (4, 4, 3), _MINI, _LEVEL1, published("Matmul_Scaling_ResidualAdd", 64, 128, 256)),
    w("gemm_swish_bias_group_norm", _swish_bias_group_norm, (3, 5, 6, 2), (32, 96, 64, 8), (256, 512, 512, 32),
      published("Matmul_Swish_Sum_GroupNorm", 128, 512, 1024, 32)),
    w("gemm_group_norm_hardtanh", _group_norm_tail(lambda y: F.hardtanh(y, -1.5, 1.5)), (3, 4, 6, 3), (32, 96, 64, 8), (256, 512, 512, 16)),
    w("gemm_group_norm_min_bias", lambda b, k, n, g: case(net(
        lambda m, x: m.norm(m.lin(x)).amin(1, keepdim=True) + m.bias, lin=nn.Linear(k, n), norm=nn.GroupNorm(g, n), bias=param(n)), normal(b, k)),
      (3, 4, 6, 2), (32, 96, 64, 8), (256, 512, 512, 16)),
    w("gemm_logsumexp_leaky", _linear(lambda m, y: F.leaky_relu(torch.logsumexp(y, 1, keepdim=True), 0.1)), (4, 3, 5), _MINI, _LEVEL1),
    w("gemm_max_sum_scale", _linear(lambda m, y: y.amax(1).sum() * 0.25), (3, 3, 5), _MINI, _LEVEL1),
    w("gemm_subtract_mean_multiply", _linear(lambda m, y: (y - y.mean(1, keepdim=True)) * m.scale, scale=1), (3, 4, 5), _MINI, _LEVEL1),
    w("gemm_divide_sum_scale", lambda b, k, n: case(net(lambda m, x: (x @ m.weight.T / 2.0).sum(1, keepdim=True) * 1.5, weight=param(n, k)), normal(b, k)),
      (3, 5, 3), _MINI, _LEVEL1),
    w("gemm_relu_softmax", _linear(lambda m, y: torch.softmax(torch.relu(y), -1)), (3, 4, 4), _MINI, _LEVEL1),
    w("gemm_sigmoid_gate", lambda b, k, n: case(net(lambda m, x: torch.sigmoid(m.gate(x)) * m.lin(x), gate=nn.Linear(k, n), lin=nn.Linear(k, n)), normal(b, k)),
      (3, 5, 4), (24, 80, 64), _LEVEL1),
    w("residual_layer_norm", lambda n, d: case(net(lambda m, x, r: m.norm(x + r), norm=nn.LayerNorm(d)), normal(n, d), normal(n, d)),
      (3, 5), (96, 256), (1024, 2048)),
    w("layer_norm_linear", lambda b, k, n: case(nn.Sequential(nn.LayerNorm(k), nn.Linear(k, n)), normal(b, k)), (3, 5, 4), _MINI, _LEVEL1),
    w("mlp", lambda b, k, h, n: case(nn.Sequential(nn.Linear(k, h), nn.ReLU(), nn.Linear(h, n)), normal(b, k)),
      (3, 4, 5, 2), (24, 64, 64, 48), (128, 512, 768, 256)),
    w("mlp_gelu_residual", lambda b, k, h: case(net(lambda m, x: x + m.down(F.gelu(m.up(x))), up=nn.Linear(k, h), down=nn.Linear(h, k)), normal(b, k)),
      (3, 4, 5), (24, 64, 64), (128, 512, 768)),
    w("mlp_three_layers", lambda b, k: case(nn.Sequential(nn.Linear(k, k), nn.Tanh(), nn.Linear(k, k), nn.Tanh(), nn.Linear(k, k)), normal(b, k)),
      (3, 4), (24, 56), (128, 512)),
    w("gated_mlp", lambda b, k, h: case(net(
        lambda m, x: m.down(F.silu(m.gate(x)) * m.up(x)), gate=nn.Linear(k, h, bias=False), up=nn.Linear(k, h, bias=False), down=nn.Linear(h, k, bias=False)),
        normal(b, k)),
      (3, 5, 4), (16, 64, 64), (128, 384, 768)),
    w("conv2d_relu_bias", lambda b, c, h, o: case(net(
        lambda m, x: torch.relu(m.conv(x)) + m.bias[:, None, None], conv=nn.Conv2d(c, o, 3), bias=param(o)), normal(b, c, h, h)),
      (2, 2, 5, 3), (1, 8, 16, 8), (4, 16, 56, 24)),
    w("conv2d_batch_norm_relu",
      lambda b, c, h, o: case(nn.Sequential(nn.Conv2d(c, o, 3, padding=1, bias=False), nn.BatchNorm2d(o), nn.ReLU()), normal(b, c, h, h)),
      (1, 2, 4, 3), (1, 8, 16, 8), (4, 16, 56, 24)),
    w("conv2d_batch_norm_scale", lambda b, c, h, v, o: case(net(
        lambda m, x: F.batch_norm(F.conv2d(x, m.kernel), None, None, m.weight, m.bias, training=True) * m.scale,
        kernel=param(o, c, 3, 3), weight=param(o), bias=param(o), scale=param()), normal(b, c, h, v)),
      (2, 2, 5, 4, 3), (1, 8, 14, 16, 8), (4, 16, 48, 56, 24), published("Conv2d_BatchNorm_Scaling", 128, 3, 16, 32, 16)),
    w("conv2d_min_add_multiply", lambda b, c, h, o: case(net(
        lambda m, x: (torch.minimum(F.conv2d(x, m.kernel), m.cap) + m.bias) * m.scale,
        kernel=param(o, c, 3, 3), cap=param(), bias=param(o, 1, 1), scale=param()), normal(b, c, h, h)),
      (2, 3, 4, 2), (1, 8, 16, 8), (4, 16, 56, 24), published("Conv2d_Min_Add_Multiply", 128, 3, 32, 16)),
    w("conv2d_mish_mish", lambda b, c, h, o: case(nn.Sequential(nn.Conv2d(c, o, 3), nn.Mish(), nn.Mish()), normal(b, c, h, h)),
      (1, 2, 5, 3), (1, 4, 14, 8), (4, 16, 56, 24)),
    w("conv2d_tanh_pool", lambda b, c, h, o: case(nn.Sequential(nn.Conv2d(c, o, 3, padding=1), nn.Tanh(), nn.MaxPool2d(2)), normal(b, c, h, h)),
      (1, 2, 4, 3), (1, 8, 16, 8), (4, 16, 56, 24)),
    w("conv2d_global_pool_linear", lambda b, c, h, o, n: case(net(
        lambda m, x: m.head(torch.relu(m.conv(x)).mean((2, 3))), conv=nn.Conv2d(c, o, 3), head=nn.Linear(o, n)), normal(b, c, h, h)),
      (2, 2, 5, 3, 4), (1, 8, 16, 8, 10), (4, 16, 56, 24, 10)),
    w("conv2d_residual", lambda b, c, h: case(net(
        lambda m, x: torch.relu(m.second(torch.relu(m.first(x))) + x), first=nn.Conv2d(c, c, 3, padding=1), second=nn.Conv2d(c, c, 3, padding=1)),
        normal(b, c, h, h)),
      (1, 2, 4), (1, 8, 14), (2, 16, 48)),
    w("conv_transpose2d_bias_tanh", lambda b, c, h, o: case(net(
        lambda m, x: torch.tanh(m.up(x) - m.bias), up=nn.ConvTranspose2d(c, o, 3, stride=2, padding=1), bias=param(o, 1, 1)), normal(b, c, h, h)),
      (1, 2, 3, 2), (1, 4, 8, 6), (2, 12, 32, 16)),
    w("conv3d_divide_max_mean_bias_sum", lambda b, c, d, h, o: case(net(
        lambda m, x: (F.max_pool3d(F.conv3d(x, m.kernel) / 2.0, 2).mean((2, 3, 4), keepdim=True) + m.bias).sum(1),
        kernel=param(o, c, 3, 3, 3), bias=param(o, 1, 1, 1)),
        normal(b, c, d, h, h)),
      (2, 1, 4, 6, 3), (1, 3, 10, 10, 8), (2, 8, 16, 24, 16), published("Conv3d_Divide_Max_GlobalAvgPool_BiasAdd_Sum", 128, 3, 16, 32, 16)),
    w("conv3d_group_norm_mean", lambda b, c, d, h, o, g: case(net(
        lambda m, x: m.norm(F.conv3d(x, m.kernel)).mean((1, 2, 3, 4)), kernel=param(o, c, 3, 3, 3), norm=nn.GroupNorm(g, o)), normal(b, c, d, h, h)),
      (2, 1, 4, 5, 4, 2), (1, 3, 10, 10, 8, 4), (2, 8, 16, 24, 16, 8), published("Conv3d_GroupNorm_Mean", 128, 3, 16, 32, 16, 8)),
    w("conv3d_leaky_add_clamp_gelu", lambda b, c, d, h, o: case(net(
        lambda m, x: F.gelu((F.leaky_relu(F.conv3d(x, m.kernel), 0.2) + m.bias).clamp(-1.0, 1.0)), kernel=param(o, c, 3, 3, 3), bias=param(o, 1, 1, 1)),
        normal(b, c, d, h, h)),
      (1, 2, 4, 5, 2), (1, 3, 8, 8, 8), (2, 8, 16, 24, 16), published("Conv3d_LeakyReLU_Sum_Clamp_GELU", 128, 3, 16, 32, 16)),
    w("conv3d_max_logsumexp_relu", lambda b, c, d, h, o: case(net(
        lambda m, x: torch.relu(torch.logsumexp(F.max_pool3d(F.conv3d(x, m.kernel, padding=1), 2), 1, keepdim=True)), kernel=param(o, c, 3, 3, 3)),
        normal(b, c, d, h, h)),
      (1, 2, 2, 4, 3), (1, 3, 6, 6, 8), (2, 8, 16, 24, 16), published("Conv3d_Max_LogSumExp_ReLU", 128, 3, 16, 32, 16)),
    w("conv3d_four_activations_bias", lambda b, c, d, h, o: case(net(
        lambda m, x: torch.sigmoid(F.gelu(F.leaky_relu(torch.relu(F.conv3d(x, m.kernel)), 0.01))) + m.bias,
        kernel=param(o, c, 3, 3, 3), bias=param(o, 1, 1, 1)),
        normal(b, c, d, h, h)),
      (1, 2, 4, 4, 3), (1, 3, 8, 8, 8), (2, 8, 16, 24, 16), published("Conv3d_ReLU_LeakyReLU_GELU_Sigmoid_BiasAdd", 128, 3, 16, 32, 16)),
    w("conv3d_softmax_pool_pool", lambda b, c, d, h, o: case(net(
        lambda m, x: F.max_pool3d(F.max_pool3d(torch.softmax(F.conv3d(x, m.kernel), 1), 2), 2), kernel=param(o, c, 3, 3, 3)), normal(b, c, d, h, h)),
      (1, 2, 6, 6, 2), (1, 3, 8, 10, 8), (2, 8, 16, 24, 16), published("Conv3d_Softmax_MaxPool_MaxPool", 128, 3, 16, 32, 16)),
    w("squeeze_excite", _squeeze_excite, (2, 4, 3, 2), (2, 32, 24, 8), (8, 64, 64, 16)),
    w("patch_embedding", lambda b, h, p, d: case(net(lambda m, x: F.conv2d(x, m.kernel, stride=p).flatten(2).transpose(1, 2) + m.pos,
                                                  kernel=param(d, 3, p, p), pos=param((h // p) ** 2, d)), normal(b, 3, h, h)),
      (1, 6, 3, 4), (1, 24, 8, 32), (4, 112, 16, 96)),
    w("max_pool_branch_add", lambda b, c, h: case(lambda x: F.max_pool2d(x, 3, 1, 1) + F.avg_pool2d(x, 3, 1, 1) * 0.5, normal(b, c, h, h)),
      (1, 2, 4), (2, 8, 32), (8, 32, 96)),
    w("rnn_cell", lambda b, k, n: case(net(lambda m, x, h: torch.tanh(m.x(x) + m.h(h)), x=nn.Linear(k, n), h=nn.Linear(n, n)), normal(b, k), normal(b, n)),
      (2, 3, 4), (16, 64, 96), (128, 512, 512)),
    w("lstm_cell", _lstm_cell, (2, 3, 4), (8, 32, 48), (64, 256, 384)),
    w("gru_cell", _gru_cell, (2, 4, 3), (8, 32, 48), (64, 256, 384)),
    w("transformer_block", _transformer_block, (4, 3, 5), (24, 32, 64), (128, 192, 384)),
    w("mixture_of_linears", _top_expert_gate, (3, 4, 2, 5), (16, 48, 4, 48), (64, 256, 8, 256)),
    w("highway", lambda b, k: case(net(
        lambda m, x: torch.sigmoid(m.gate(x)) * torch.relu(m.lin(x)) + (1 - torch.sigmoid(m.gate(x))) * x, gate=nn.Linear(k, k), lin=nn.Linear(k, k)),
        normal(b, k)),
      (3, 4), (24, 72), (128, 512)),
    w("factorization_machine", lambda b, n, d: case(lambda x, v: 0.5 * ((x @ v) ** 2 - (x * x) @ (v * v)).sum(1), normal(b, n), normal(n, d)),
      (3, 5, 4), (32, 96, 48), (256, 512, 256)),
    w("deep_cross_layer", lambda b, d: case(net(lambda m, x: x * m.lin(x) + x, lin=nn.Linear(d, d)), normal(b, d)), (3, 4), (32, 96), (256, 768)),
    w("dequantized_matmul", lambda n, k, m: case(
        lambda x, q, s: x @ (q.to(x.dtype) * s[None, :]), normal(n, k), ints(k, m, high=127, low=-127, dtype=DType.I8), positive(m)),
      (3, 5, 4), (56, 64, 64), (384, 448, 384)),
    w("embedding", lambda n, v, d: case(net(lambda m, ids: F.embedding(ids, m.table), table=param(v, d)), ints(n, high=v)),
      (5, 4, 3), (512, 256, 256), (8192, 4096, 512)),
    w("embedding_mean", lambda b, t, v, d: case(net(lambda m, ids: F.embedding(ids, m.table).mean(1), table=param(v, d)), ints(b, t, high=v)),
      (2, 3, 5, 4), (32, 32, 256, 128), (256, 64, 4096, 256)),
    w("embedding_position_norm", lambda t, v, d: case(net(
        lambda m, ids: F.layer_norm(F.embedding(ids, m.table) + m.pos, m.gain.shape, m.gain, m.bias), table=param(v, d), pos=param(t, d), gain=param(d), bias=param(d)),
        ints(t, high=v)),
      (3, 5, 4), (96, 256, 256), (1024, 8192, 512)),
    w("gather_dot", lambda n, v, d: case(net(lambda m, a, b: (F.embedding(a, m.table) * F.embedding(b, m.table)).sum(1), table=param(v, d)),
                                       ints(n, high=v), ints(n, high=v)),
      (4, 5, 3), (512, 256, 128), (16384, 4096, 256)),
    w("outer_sum_relu", lambda n, m: case(lambda x, y: torch.relu(x[:, None] + y[None, :]).sum(1), normal(n), normal(m)), (4, 5), (320, 384), (2048, 2048)),
    w("rbf_kernel", lambda n, m, d: case(lambda x, y: torch.exp(-0.5 * ((x[:, None, :] - y[None, :, :]) ** 2).sum(-1)), unit(n, d), unit(m, d)),
      (3, 4, 2), (64, 72, 16), (384, 448, 32)),
)  # fmt: skip
