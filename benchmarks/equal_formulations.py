"""Families of equal formulations for ``equal_pairs.py``: softmax, moments, norms, activations, losses, products, einsums, pooling, algebra, shapes, reductions."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as f

Body = Callable[..., Tensor]
Shape = tuple[int, ...]


@dataclass(frozen=True)
class Pair:
    """Two functions of the same arguments, their shapes, and how to draw them."""

    name: str
    first: Body
    second: Body
    shapes: tuple[Shape, ...]
    positive: bool = False

    def inputs(self, seed: int = 0) -> tuple[Tensor, ...]:
        """Example arguments."""
        generator = torch.Generator().manual_seed(seed)
        made = [torch.randn(s, generator=generator) for s in self.shapes]
        return tuple(t.abs() + 0.1 if self.positive else t for t in made)


def _softmax() -> Iterator[Pair]:
    for shape, dim in (((3, 5), 1), ((3, 5), 0), ((2, 3, 4), 2), ((2, 3, 4), 1)):
        tag = f"{len(shape)}d{dim}"
        yield Pair(f"softmax_exp_{tag}", lambda x, d=dim: f.softmax(x, d), lambda x, d=dim: torch.exp(x) / torch.exp(x).sum(d, keepdim=True), (shape,))
        yield Pair(f"softmax_shift_{tag}", lambda x, d=dim: f.softmax(x, d), lambda x, d=dim: f.softmax(x + 3.0, d), (shape,))
        yield Pair(f"softmax_mean_shift_{tag}", lambda x, d=dim: f.softmax(x, d), lambda x, d=dim: f.softmax(x - x.mean(d, keepdim=True), d), (shape,))
        yield Pair(f"softmax_of_log_{tag}", lambda x, d=dim: f.softmax(x, d), lambda x, d=dim: torch.exp(f.log_softmax(x, d)), (shape,))
        yield Pair(f"log_softmax_lse_{tag}", lambda x, d=dim: f.log_softmax(x, d), lambda x, d=dim: x - torch.logsumexp(x, d, keepdim=True), (shape,))
        yield Pair(f"logsumexp_plain_{tag}", lambda x, d=dim: torch.logsumexp(x, d), lambda x, d=dim: torch.log(torch.exp(x).sum(d)), (shape,))
        yield Pair(f"softmin_{tag}", lambda x, d=dim: f.softmin(x, d), lambda x, d=dim: f.softmax(-x, d), (shape,))
        yield Pair(f"softmax_scaled_{tag}", lambda x, d=dim: f.softmax(x / 2.0, d), lambda x, d=dim: f.softmax(x * 0.5, d), (shape,))
    yield Pair(
        "attention_scale", lambda x, y, z: f.softmax(x @ y.T * 0.5, -1) @ z, lambda x, y, z: f.softmax((x * 0.5) @ y.T, -1) @ z, ((3, 4), (5, 4), (5, 2))
    )
    yield Pair("attention_late_division", _attention, _attention_late, ((3, 4), (5, 4), (5, 2)))
    yield Pair("attention_transposed", _attention, lambda x, y, z: (z.T @ f.softmax(y @ x.T, 0)).T, ((3, 4), (5, 4), (5, 2)))


def _attention(x: Tensor, y: Tensor, z: Tensor) -> Tensor:
    return f.softmax(x @ y.T, -1) @ z


def _attention_late(x: Tensor, y: Tensor, z: Tensor) -> Tensor:
    e = torch.exp(x @ y.T)
    return (e @ z) / e.sum(-1, keepdim=True)


def _moments() -> Iterator[Pair]:
    for shape, dim in (((3, 5), 1), ((3, 5), 0), ((2, 3, 4), 2), ((2, 3, 4), 1)):
        tag = f"{len(shape)}d{dim}"
        yield Pair(f"mean_sum_{tag}", lambda x, d=dim: x.mean(d), lambda x, d=dim: x.sum(d) / x.shape[d], (shape,))
        yield Pair(f"mean_early_{tag}", lambda x, d=dim: x.mean(d), lambda x, d=dim: (x / x.shape[d]).sum(d), (shape,))
        yield Pair(f"var_squares_{tag}", lambda x, d=dim: x.var(d, unbiased=False), lambda x, d=dim: (x * x).mean(d) - x.mean(d) ** 2, (shape,))
        yield Pair(f"var_two_pass_{tag}", lambda x, d=dim: x.var(d, unbiased=False), lambda x, d=dim: ((x - x.mean(d, keepdim=True)) ** 2).mean(d), (shape,))
        yield Pair(f"var_unbiased_{tag}", lambda x, d=dim: x.var(d), lambda x, d=dim: x.var(d, unbiased=False) * x.shape[d] / (x.shape[d] - 1), (shape,))
        yield Pair(f"var_shifted_{tag}", lambda x, d=dim: x.var(d, unbiased=False), lambda x, d=dim: (x + 1.0).var(d, unbiased=False), (shape,))
        yield Pair(f"var_cross_{tag}", lambda x, d=dim: x.var(d, unbiased=False), lambda x, d=dim: (x * (x - x.mean(d, keepdim=True))).mean(d), (shape,))
        yield Pair(
            f"centred_{tag}", lambda x, d=dim: x - x.mean(d, keepdim=True), lambda x, d=dim: (x.shape[d] * x - x.sum(d, keepdim=True)) / x.shape[d], (shape,)
        )


def _norms() -> Iterator[Pair]:
    for n, m in ((3, 5), (4, 3)):
        tag = f"{n}x{m}"
        yield Pair(f"layer_norm_{tag}", lambda x, m=m: f.layer_norm(x, (m,)), _layer_norm, ((n, m),))
        yield Pair(f"layer_norm_affine_{tag}", lambda x, y, z, m=m: f.layer_norm(x, (m,), y, z), lambda x, y, z: _layer_norm(x) * y + z, ((n, m), (m,), (m,)))
        yield Pair(f"layer_norm_squares_{tag}", lambda x, m=m: f.layer_norm(x, (m,)), _layer_norm_squares, ((n, m),))
        yield Pair(f"layer_norm_folded_{tag}", lambda x, y, z, m=m: f.layer_norm(x, (m,), y, z), _layer_norm_folded, ((n, m), (m,), (m,)))
        yield Pair(
            f"rms_norm_{tag}",
            lambda x: x * torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-3),
            lambda x: x / torch.sqrt(x.pow(2).mean(-1, keepdim=True) + 1e-3),
            ((n, m),),
        )
        yield Pair(f"rms_norm_scale_{tag}", lambda x, y: y * (x * torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-3)), lambda x, y: (x * y) * torch.rsqrt((x * x).sum(-1, keepdim=True) / x.shape[-1] + 1e-3), ((n, m), (m,)))  # fmt: skip
        yield Pair(f"l2_{tag}", lambda x: torch.linalg.vector_norm(x, dim=1), lambda x: torch.sqrt((x * x).sum(1)), ((n, m),))
        yield Pair(f"l1_{tag}", lambda x: torch.linalg.vector_norm(x, 1, dim=1), lambda x: (x.relu() + (-x).relu()).sum(1), ((n, m),))
        yield Pair(f"linf_{tag}", lambda x: torch.linalg.vector_norm(x, math.inf, dim=1), lambda x: torch.maximum(x, -x).amax(1), ((n, m),))
    for c, hw in ((3, 4), (2, 3)):
        tag = f"c{c}_{hw}"
        shapes: tuple[Shape, ...] = ((2, c, hw, hw), (c,), (c,))
        yield Pair(f"batch_norm_{tag}", lambda x, y, z: f.batch_norm(x, None, None, y, z, training=True), _batch_norm, shapes)
        yield Pair(f"instance_norm_{tag}", lambda x: f.instance_norm(x), lambda x: _normal(x, (2, 3)), ((2, c, hw, hw),))
        yield Pair(f"group_norm_{tag}", lambda x, c=c: f.group_norm(x, c), lambda x: _normal(x, (2, 3)), ((2, c, hw, hw),))
        yield Pair(f"group_norm_one_{tag}", lambda x: f.group_norm(x, 1), lambda x: _normal(x, (1, 2, 3)), ((2, c, hw, hw),))


def _normal(x: Tensor, dims: tuple[int, ...]) -> Tensor:
    centred = x - x.mean(dims, keepdim=True)
    return centred / torch.sqrt((centred * centred).mean(dims, keepdim=True) + 1e-5)


def _layer_norm(x: Tensor) -> Tensor:
    return _normal(x, (-1,))


def _layer_norm_squares(x: Tensor) -> Tensor:
    mean = x.mean(-1, keepdim=True)
    return (x - mean) * torch.rsqrt((x * x).mean(-1, keepdim=True) - mean * mean + 1e-5)


def _layer_norm_folded(x: Tensor, y: Tensor, z: Tensor) -> Tensor:
    mean = x.mean(-1, keepdim=True)
    scale = torch.rsqrt(((x - mean) ** 2).mean(-1, keepdim=True) + 1e-5)
    return x * (scale * y) + (z - mean * scale * y)


def _batch_norm(x: Tensor, y: Tensor, z: Tensor) -> Tensor:
    return _normal(x, (0, 2, 3)) * y[None, :, None, None] + z[None, :, None, None]


def _activations() -> Iterator[Pair]:
    table: list[tuple[str, Body, Body]] = [
        ("relu_where", torch.relu, lambda x: torch.where(x > 0, x, torch.zeros_like(x))),
        ("relu_clamp", torch.relu, lambda x: x.clamp(min=0)),
        ("relu_abs", torch.relu, lambda x: (x + x.abs()) * 0.5),
        ("leaky_max", lambda x: f.leaky_relu(x, 0.25), lambda x: torch.maximum(x, 0.25 * x)),
        ("leaky_two_relus", lambda x: f.leaky_relu(x, 0.25), lambda x: torch.relu(x) - 0.25 * torch.relu(-x)),
        ("relu6_minmax", f.relu6, lambda x: torch.minimum(torch.relu(x), torch.full_like(x, 6.0))),
        ("relu6_difference", f.relu6, lambda x: torch.relu(x) - torch.relu(x - 6.0)),
        ("hardtanh_clamp", lambda x: f.hardtanh(x, -1.0, 2.0), lambda x: x.clamp(-1.0, 2.0)),
        ("hardtanh_difference", lambda x: f.hardtanh(x, -1.0, 2.0), lambda x: torch.relu(x + 1.0) - torch.relu(x - 2.0) - 1.0),
        ("abs_square_root", torch.abs, lambda x: torch.sqrt(x * x)),
        ("sigmoid_exp", torch.sigmoid, lambda x: 1.0 / (1.0 + torch.exp(-x))),
        ("sigmoid_exp_ratio", torch.sigmoid, lambda x: torch.exp(x) / (1.0 + torch.exp(x))),
        ("sigmoid_tanh", torch.sigmoid, lambda x: 0.5 * torch.tanh(0.5 * x) + 0.5),
        ("sigmoid_mirror", torch.sigmoid, lambda x: 1.0 - torch.sigmoid(-x)),
        ("tanh_sigmoid", torch.tanh, lambda x: 2.0 * torch.sigmoid(2.0 * x) - 1.0),
        ("tanh_exp", torch.tanh, lambda x: (torch.exp(2.0 * x) - 1.0) / (torch.exp(2.0 * x) + 1.0)),
        ("tanh_expm1", torch.tanh, lambda x: torch.expm1(2.0 * x) / (torch.expm1(2.0 * x) + 2.0)),
        ("silu_product", f.silu, lambda x: x * torch.sigmoid(x)),
        ("silu_quotient", f.silu, lambda x: x / (1.0 + torch.exp(-x))),
        ("gelu_erf", f.gelu, lambda x: 0.5 * x * (1.0 + torch.erf(x / math.sqrt(4.0) * math.sqrt(2.0)))),
        ("gelu_erfc", f.gelu, lambda x: x - 0.5 * x * (1.0 - torch.erf(x * 0.7071067811865476))),
        ("softplus_split", lambda x: torch.log1p(torch.exp(x)), lambda x: torch.relu(x) + torch.log1p(torch.exp(-x.abs()))),
        ("logsigmoid_softplus", f.logsigmoid, lambda x: -torch.log1p(torch.exp(-x))),
        ("logsigmoid_log", f.logsigmoid, lambda x: torch.log(torch.sigmoid(x))),
        ("mish_quotient", lambda x: x * torch.tanh(torch.log1p(torch.exp(x))), lambda x: x * ((1 + torch.exp(x)) ** 2 - 1) / ((1 + torch.exp(x)) ** 2 + 1)),
        ("elu_where", f.elu, lambda x: torch.where(x > 0, x, torch.expm1(x))),
        ("elu_sum", f.elu, lambda x: torch.relu(x) + torch.expm1(torch.minimum(x, torch.zeros_like(x)))),
        ("hardsigmoid", f.hardsigmoid, lambda x: f.relu6(x + 3.0) / 6.0),
        ("hardswish", f.hardswish, lambda x: x * f.relu6(x + 3.0) / 6.0),
        ("softsign", f.softsign, lambda x: x / (1.0 + x.abs())),
        ("tanhshrink", f.tanhshrink, lambda x: x - torch.tanh(x)),
        ("softshrink", lambda x: f.softshrink(x, 0.5), lambda x: torch.relu(x - 0.5) - torch.relu(-x - 0.5)),
        ("hardshrink", lambda x: f.hardshrink(x, 0.5), lambda x: torch.where(x.abs() > 0.5, x, torch.zeros_like(x))),
        ("threshold", lambda x: f.threshold(x, 0.5, -1.0), lambda x: torch.where(x > 0.5, x, torch.full_like(x, -1.0))),
    ]
    for name, first, second in table:
        yield Pair(name, first, second, ((3, 5),))
    yield Pair("swiglu", lambda x, y: f.silu(x) * y, lambda x, y: (x * y) * torch.sigmoid(x), ((3, 5), (3, 5)))
    yield Pair("glu", lambda x: f.glu(x, 1), lambda x: x[:, :3] * torch.sigmoid(x[:, 3:]), ((4, 6),))
    yield Pair("prelu", lambda x, y: f.prelu(x, y), lambda x, y: torch.relu(x) - y * torch.relu(-x), ((3, 4), (4,)))


def _losses() -> Iterator[Pair]:
    for n, m in ((3, 5), (4, 2)):
        tag, shapes = f"{n}x{m}", ((n, m), (n, m))
        yield Pair(f"mse_{tag}", f.mse_loss, lambda x, y: ((x - y) ** 2).mean(), shapes)
        yield Pair(f"mse_expanded_{tag}", f.mse_loss, lambda x, y: (x * x).mean() - 2 * (x * y).mean() + (y * y).mean(), shapes)
        yield Pair(f"l1_loss_{tag}", f.l1_loss, lambda x, y: (torch.maximum(x, y) - torch.minimum(x, y)).mean(), shapes)
        yield Pair(f"huber_{tag}", lambda x, y: f.huber_loss(x, y, delta=1.0), _huber, shapes)
        yield Pair(f"smooth_l1_{tag}", lambda x, y: f.smooth_l1_loss(x, y), lambda x, y: f.huber_loss(x, y, delta=1.0), shapes)
        yield Pair(f"bce_logits_{tag}", lambda x, y: f.binary_cross_entropy_with_logits(x, y), lambda x, y: (torch.log1p(torch.exp(-x.abs())) + torch.relu(x) - x * y).mean(), shapes)  # fmt: skip
        yield Pair(f"kl_{tag}", lambda x, y: f.kl_div(f.log_softmax(x, 1), f.softmax(y, 1), reduction="sum"), _kl, shapes)
        yield Pair(f"cosine_{tag}", lambda x, y: (x * y).sum(1) / (x.norm(dim=1) * y.norm(dim=1)), lambda x, y: (x / x.norm(dim=1, keepdim=True) * (y / y.norm(dim=1, keepdim=True))).sum(1), shapes)  # fmt: skip
        yield Pair(f"soft_cross_entropy_{tag}", lambda x, y: -(y * f.log_softmax(x, 1)).sum(1).mean(), lambda x, y: (y.sum(1) * torch.logsumexp(x, 1) - (x * y).sum(1)).mean(), shapes)  # fmt: skip
        yield Pair(f"hinge_{tag}", lambda x, y: torch.relu(1 - x * y).mean(), lambda x, y: (1 - x * y).clamp(min=0).sum() / (x.shape[0] * x.shape[1]), shapes)


def _huber(x: Tensor, y: Tensor) -> Tensor:
    d = (x - y).abs()
    q = d.clamp(max=1.0)
    return (0.5 * q * q + (d - q)).mean()


def _kl(x: Tensor, y: Tensor) -> Tensor:
    p = f.softmax(y, 1)
    return (p * (f.log_softmax(y, 1) - f.log_softmax(x, 1))).sum()


def _products() -> Iterator[Pair]:
    for n, k, m in ((3, 4, 5), (2, 5, 3)):
        tag = f"{n}{k}{m}"
        yield Pair(f"mm_sum_{tag}", lambda x, y: x @ y, lambda x, y: (x[:, :, None] * y[None]).sum(1), ((n, k), (k, m)))
        yield Pair(f"mm_transposed_{tag}", lambda x, y: x @ y, lambda x, y: (y.T @ x.T).T, ((n, k), (k, m)))
        yield Pair(f"mm_associate_{tag}", lambda x, y, z: (x @ y) @ z, lambda x, y, z: x @ (y @ z), ((n, k), (k, m), (m, 2)))
        yield Pair(f"mm_distribute_{tag}", lambda x, y, z: x @ (y + z), lambda x, y, z: x @ y + x @ z, ((n, k), (k, m), (k, m)))
        yield Pair(f"mm_scale_{tag}", lambda x, y: 2.5 * (x @ y), lambda x, y: (2.5 * x) @ y, ((n, k), (k, m)))
        yield Pair(f"mm_columns_{tag}", lambda x, y, z: (x @ y) * z, lambda x, y, z: x @ (y * z), ((n, k), (k, m), (m,)))
        yield Pair(f"mm_rows_{tag}", lambda x, y, z: (x @ y) * z[:, None], lambda x, y, z: (x * z[:, None]) @ y, ((n, k), (k, m), (n,)))
        yield Pair(f"linear_{tag}", lambda x, y, z: f.linear(x, y, z), lambda x, y, z: x @ y.T + z, ((n, k), (m, k), (m,)))
        yield Pair(f"addmm_{tag}", lambda x, y, z: torch.addmm(x, y, z), lambda x, y, z: x + y @ z, ((n, m), (n, k), (k, m)))
        yield Pair(
            f"addmm_scaled_{tag}", lambda x, y, z: torch.addmm(x, y, z, beta=0.5, alpha=2.0), lambda x, y, z: 0.5 * x + 2.0 * (y @ z), ((n, m), (n, k), (k, m))
        )
        yield Pair(f"mv_sum_{tag}", lambda x, y: x @ y, lambda x, y: (x * y).sum(1), ((n, k), (k,)))
        yield Pair(f"row_sums_{tag}", lambda x, y: (x @ y).sum(1), lambda x, y: x @ y.sum(1), ((n, k), (k, m)))
        yield Pair(f"column_sums_{tag}", lambda x, y: (x @ y).sum(0), lambda x, y: x.sum(0) @ y, ((n, k), (k, m)))
        yield Pair(f"trace_{tag}", lambda x, y: (x * y).sum(), lambda x, y: (x @ y.T).diagonal().sum(), ((n, k), (n, k)))
        yield Pair(f"bmm_{tag}", torch.bmm, lambda x, y: (x[:, :, :, None] * y[:, None]).sum(2), ((2, n, k), (2, k, m)))
        yield Pair(f"bmm_folded_{tag}", lambda x, y: x @ y, lambda x, y, n=n, k=k, m=m: (x.reshape(2 * n, k) @ y).reshape(2, n, m), ((2, n, k), (k, m)))
        yield Pair(f"squared_distance_{tag}", lambda x, y: ((x[:, None] - y[None]) ** 2).sum(-1), _distances, ((n, k), (m, k)))


def _distances(x: Tensor, y: Tensor) -> Tensor:
    return (x * x).sum(1)[:, None] - 2 * (x @ y.T) + (y * y).sum(1)[None]


def _einsums() -> Iterator[Pair]:
    table: list[tuple[str, Body, tuple[Shape, ...]]] = [
        ("ij,jk->ik", lambda x, y: x @ y, ((3, 4), (4, 5))),
        ("ij,kj->ik", lambda x, y: x @ y.T, ((3, 4), (5, 4))),
        ("ji,jk->ik", lambda x, y: x.T @ y, ((4, 3), (4, 5))),
        ("i,j->ij", torch.outer, ((3,), (4,))),
        ("ij,ij->i", lambda x, y: (x * y).sum(1), ((3, 4), (3, 4))),
        ("ij,ij->", lambda x, y: (x * y).sum(), ((3, 4), (3, 4))),
        ("ij->ji", lambda x: x.T, ((3, 4),)),
        ("ij->j", lambda x: x.sum(0), ((3, 4),)),
        ("bij,bjk->bik", torch.bmm, ((2, 3, 4), (2, 4, 5))),
        ("bij,jk->bik", lambda x, y: x @ y, ((2, 3, 4), (4, 5))),
        ("bij,bkj->bik", lambda x, y: x @ y.transpose(1, 2), ((2, 3, 4), (2, 5, 4))),
        ("bhqd,bhkd->bhqk", lambda x, y: x @ y.transpose(-1, -2), ((2, 2, 3, 4), (2, 2, 5, 4))),
        ("ij,jk,kl->il", lambda x, y, z: x @ (y @ z), ((3, 4), (4, 2), (2, 3))),
        ("i,ij,j->", lambda x, y, z: x @ y @ z, ((3,), (3, 4), (4,))),
        ("ijk,k->ij", lambda x, y: x @ y, ((2, 3, 4), (4,))),
        ("ij,j->ij", lambda x, y: x * y, ((3, 4), (4,))),
    ]
    for number, (equation, second, shapes) in enumerate(table):
        yield Pair(f"einsum_{number}", lambda *xs, e=equation: torch.einsum(e, *xs), second, shapes)


def _pooling() -> Iterator[Pair]:
    for c, hw, k in ((2, 6, 2), (1, 6, 3)):
        tag, shape = f"c{c}k{k}", (2, c, hw, hw)
        yield Pair(
            f"avg_pool_unfold_{tag}", lambda x, k=k: f.avg_pool2d(x, k), lambda x, c=c, k=k, n=hw // k: x.reshape(2, c, n, k, n, k).mean((3, 5)), (shape,)
        )
        yield Pair(f"avg_pool_conv_{tag}", lambda x, k=k: f.avg_pool2d(x, k), lambda x, c=c, k=k: f.conv2d(x, torch.full((c, 1, k, k), 1 / (k * k)), stride=k, groups=c) if k == 2 else f.avg_pool2d(x, (k, 1)).mul(1.0).unfold(3, k, k).mean(-1), (shape,))  # fmt: skip
        yield Pair(
            f"max_pool_reshape_{tag}", lambda x, k=k: f.max_pool2d(x, k), lambda x, c=c, k=k, n=hw // k: x.reshape(2, c, n, k, n, k).amax((3, 5)), (shape,)
        )
        yield Pair(f"max_pool_rows_{tag}", lambda x, k=k: f.max_pool2d(x, k), lambda x, k=k: f.max_pool2d(f.max_pool2d(x, (k, 1)), (1, k)), (shape,))
        yield Pair(f"global_average_{tag}", lambda x: f.adaptive_avg_pool2d(x, 1).flatten(1), lambda x: x.mean(3).mean(2), (shape,))
    for ci, co in ((2, 3), (3, 2)):
        tag = f"{ci}{co}"
        shapes = ((2, ci, 5, 5), (co, ci, 1, 1))
        yield Pair(f"conv_1x1_{tag}", f.conv2d, lambda x, y: torch.einsum("bchw,oc->bohw", x, y[:, :, 0, 0]), shapes)
        yield Pair(f"conv_linear_{tag}", lambda x, y: f.conv2d(x + x, y), lambda x, y: 2.0 * f.conv2d(x, y), ((1, ci, 4, 4), (co, ci, 3, 3)))
        yield Pair(
            f"conv_distribute_{tag}",
            lambda x, y, z: f.conv2d(x, y + z),
            lambda x, y, z: f.conv2d(x, y) + f.conv2d(x, z),
            ((1, ci, 4, 4), (co, ci, 2, 2), (co, ci, 2, 2)),
        )
        yield Pair(
            f"conv_bias_{tag}", lambda x, y, z: f.conv2d(x, y, z), lambda x, y, z: f.conv2d(x, y) + z[:, None, None], ((1, ci, 4, 4), (co, ci, 2, 2), (co,))
        )
        yield Pair(
            f"conv_padded_{tag}", lambda x, y: f.conv2d(x, y, padding=1), lambda x, y: f.conv2d(f.pad(x, (1, 1, 1, 1)), y), ((1, ci, 4, 4), (co, ci, 3, 3))
        )
        yield Pair(f"conv_whole_{tag}", lambda x, y: f.conv2d(x, y).flatten(1), lambda x, y: x.flatten(1) @ y.flatten(1).T, ((2, ci, 3, 3), (co, ci, 3, 3)))
        yield Pair(f"conv1d_2d_{tag}", f.conv1d, lambda x, y: f.conv2d(x[:, :, None], y[:, :, None])[:, :, 0], ((1, ci, 6), (co, ci, 3)))


def _algebra() -> Iterator[Pair]:
    table: list[tuple[str, Body, Body, int]] = [
        ("distribute", lambda x, y, z: x * (y + z), lambda x, y, z: x * y + x * z, 3),
        ("binomial", lambda x, y: (x + y) ** 2, lambda x, y: x * x + 2 * x * y + y * y, 2),
        ("difference_of_squares", lambda x, y: x * x - y * y, lambda x, y: (x - y) * (x + y), 2),
        ("cube", lambda x: x**3, lambda x: x * x * x, 1),
        ("horner", lambda x: 1 + x + x * x / 2 + x**3 / 6, lambda x: 1 + x * (1 + x * (0.5 + x / 6)), 1),
        ("exp_sum", lambda x, y: torch.exp(x + y), lambda x, y: torch.exp(x) * torch.exp(y), 2),
        ("exp_difference", lambda x, y: torch.exp(x - y), lambda x, y: torch.exp(x) / torch.exp(y), 2),
        ("exp_double", lambda x: torch.exp(2 * x), lambda x: torch.exp(x) ** 2, 1),
        ("max_abs", torch.maximum, lambda x, y: (x + y + (x - y).abs()) * 0.5, 2),
        ("max_relu", torch.maximum, lambda x, y: y + torch.relu(x - y), 2),
        ("min_max", torch.minimum, lambda x, y: -torch.maximum(-x, -y), 2),
        ("min_plus_max", lambda x, y: torch.minimum(x, y) + torch.maximum(x, y), lambda x, y: x + y, 2),
        ("lerp", lambda x, y, z: x + z * (y - x), lambda x, y, z: (1 - z) * x + z * y, 3),
        ("addcmul", lambda x, y, z: torch.addcmul(x, y, z, value=0.5), lambda x, y, z: x + 0.5 * y * z, 3),
        ("complete_square", lambda x: x * x + 2 * x, lambda x: (x + 1) ** 2 - 1, 1),
        ("sin_square", lambda x: torch.sin(x) ** 2, lambda x: 1 - torch.cos(x) ** 2, 1),
        ("sin_double", lambda x: torch.sin(2 * x), lambda x: 2 * torch.sin(x) * torch.cos(x), 1),
        ("cos_double", lambda x: torch.cos(2 * x), lambda x: 1 - 2 * torch.sin(x) ** 2, 1),
        ("negated_difference", lambda x, y: x - y, lambda x, y: -(y - x), 2),
        ("nested_where", lambda x: torch.where(x > 1, x, torch.where(x > 0, x * 2, -x)), lambda x: torch.where(x <= 0, -x, torch.where(x > 1, x, 2 * x)), 1),
        ("clamp_order", lambda x: x.clamp(-1, 1), lambda x: torch.maximum(torch.minimum(x, torch.ones_like(x)), -torch.ones_like(x)), 1),
        ("clamp_of_clamp", lambda x: x.clamp(-2, 2).clamp(-1, 3), lambda x: x.clamp(-1, 2), 1),
        ("sign_abs", lambda x: torch.where(x > 0, x, -x), torch.abs, 1),
        ("max_of_three", lambda x, y, z: torch.maximum(torch.maximum(x, y), z), lambda x, y, z: torch.maximum(x, torch.maximum(y, z)), 3),
        ("max_shift", lambda x, y, z: torch.maximum(x + z, y + z), lambda x, y, z: torch.maximum(x, y) + z, 3),
    ]
    for name, first, second, count in table:
        yield Pair(name, first, second, ((3, 4),) * count)
    positive: list[tuple[str, Body, Body, int]] = [
        ("log_power", lambda x: torch.log(x**3), lambda x: 3 * torch.log(x), 1),
        ("rsqrt", torch.rsqrt, lambda x: 1 / torch.sqrt(x), 1),
        ("quotient_sum", lambda x, y, z: (x + y) / (z * z + 1), lambda x, y, z: x / (z * z + 1) + y / (z * z + 1), 3),
    ]
    for name, first, second, count in positive:
        yield Pair(name, first, second, ((3, 4),) * count, positive=True)


def _shapes() -> Iterator[Pair]:
    for n, m in ((4, 6), (2, 4)):
        tag = f"{n}x{m}"
        yield Pair(f"flip_twice_{tag}", lambda x: x.flip(1).flip(1) + 0.0, lambda x: x + 0.0, ((n, m),))
        yield Pair(f"cat_split_{tag}", lambda x, y: torch.cat([x, y], 1)[:, 1:], lambda x, y: torch.cat([x[:, 1:], y], 1), ((n, m), (n, m)))
        yield Pair(f"cat_sum_{tag}", lambda x, y: torch.cat([x, y], 1).sum(1), lambda x, y: x.sum(1) + y.sum(1), ((n, m), (n, m)))
        yield Pair(f"transpose_sum_{tag}", lambda x: x.T.sum(0), lambda x: x.sum(1), ((n, m),))
        yield Pair(f"reshape_{tag}", lambda x, n=n, m=m: x.reshape(m, n).reshape(n * m) * 2, lambda x: (x * 2).flatten(), ((n, m),))
        yield Pair(f"pad_sum_{tag}", lambda x: f.pad(x, (1, 2)).sum(1), lambda x: x.sum(1), ((n, m),))
        yield Pair(f"repeat_{tag}", lambda x: x.repeat(2, 1), lambda x: torch.cat([x, x], 0), ((n, m),))
        yield Pair(f"stack_max_{tag}", lambda x, y: torch.stack([x, y]).amax(0), torch.maximum, ((n, m), (n, m)))
        yield Pair(
            f"triangle_{tag}", torch.tril, lambda x, n=n, m=m: torch.where(torch.arange(n)[:, None] >= torch.arange(m)[None], x, torch.zeros_like(x)), ((n, m),)
        )


def _reductions() -> Iterator[Pair]:
    for n, m in ((4, 6), (3, 4)):
        tag = f"{n}x{m}"
        yield Pair(f"sum_all_{tag}", lambda x: x.sum(), lambda x: x.sum(0).sum(0), ((n, m),))
        yield Pair(f"sum_halves_{tag}", lambda x: x.sum(1), lambda x, m=m: x[:, : m // 2].sum(1) + x[:, m // 2 :].sum(1), ((n, m),))
        yield Pair(f"sum_even_odd_{tag}", lambda x: x.sum(1), lambda x: x[:, ::2].sum(1) + x[:, 1::2].sum(1), ((n, m),))
        yield Pair(f"max_all_{tag}", lambda x: x.amax(), lambda x: x.amax(1).amax(0), ((n, m),))
        yield Pair(f"min_negated_{tag}", lambda x: x.amin(1), lambda x: -((-x).amax(1)), ((n, m),))
        yield Pair(f"max_halves_{tag}", lambda x: x.amax(1), lambda x, m=m: torch.maximum(x[:, : m // 2].amax(1), x[:, m // 2 :].amax(1)), ((n, m),))
        yield Pair(f"sum_linear_{tag}", lambda x, y: (2 * x + y).sum(1), lambda x, y: 2 * x.sum(1) + y.sum(1), ((n, m), (n, m)))
        yield Pair(f"dot_ones_{tag}", lambda x: x.sum(1), lambda x, m=m: x @ torch.ones(m), ((n, m),))
        yield Pair(f"cumsum_last_{tag}", lambda x: torch.cumsum(x, 1)[:, -1], lambda x: x.sum(1), ((n, m),))
        yield Pair(f"cumsum_matrix_{tag}", lambda x: torch.cumsum(x, 1), lambda x, m=m: x @ torch.triu(torch.ones(m, m)), ((n, m),))
        yield Pair(f"cumsum_reversed_{tag}", lambda x: torch.cumsum(x.flip(1), 1).flip(1), lambda x: x.sum(1, keepdim=True) - torch.cumsum(x, 1) + x, ((n, m),))
        yield Pair(f"norm_square_{tag}", lambda x: (x * x).sum(), lambda x: (x @ x.T).diagonal().sum(), ((n, m),))


FAMILIES = (_softmax, _moments, _norms, _activations, _losses, _products, _einsums, _pooling, _algebra, _shapes, _reductions)
