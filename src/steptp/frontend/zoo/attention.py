"""Attention in its forms, and what goes with it."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from steptp.frontend.zoo.entry import Arg, Case, Spec, case, causal, mask, net, normal, positive, published, w
from steptp.ir.types import DType

__all__ = ["SPECS"]


def _scores(q: Tensor, k: Tensor) -> Tensor:
    scale: float = q.shape[-1] ** -0.5
    return q @ k.transpose(-2, -1) * scale


def _heads(x: Tensor, heads: int) -> Tensor:
    """(batch, time, heads*d) → (batch, heads, time, d)."""
    return x.view(x.shape[0], x.shape[1], heads, -1).transpose(1, 2)


def _merge(x: Tensor) -> Tensor:
    return x.transpose(1, 2).reshape(x.shape[0], x.shape[2], -1)


def _self_attention(b: int, t: int, d: int, heads: int, out: bool = True) -> Case:
    """Masked multi-head self-attention with one projection for queries, keys and values."""

    def forward(m: nn.Module, x: Tensor, hide: Tensor) -> Tensor:
        q, k, v = m.qkv(x).unflatten(2, (3, -1)).unbind(2)  # type: ignore[operator]
        q, k, v = _heads(q, heads), _heads(k, heads), _heads(v, heads)
        p = torch.softmax(_scores(q, k).masked_fill(hide, float("-inf")), -1)
        return m.proj(_merge(p @ v))  # type: ignore[operator,no-any-return]

    return case(net(forward, qkv=nn.Linear(d, 3 * d), proj=nn.Linear(d, d)), normal(b, t, d), causal(1, 1, t, t))


def _multi_query(b: int, t: int, d: int, heads: int, n: int) -> Case:
    """Multi-query attention (one key and value head), output projection, then a linear layer to ``n`` features."""
    h = d // heads

    def forward(m: nn.Module, x: Tensor, hide: Tensor) -> Tensor:
        q = _heads(m.q(x), heads)  # type: ignore[operator]
        k, v = m.k(x).unsqueeze(1), m.v(x).unsqueeze(1)  # type: ignore[operator]
        p = torch.softmax(_scores(q, k).masked_fill(hide, float("-inf")), -1)
        return m.head(m.proj(_merge(p @ v)))  # type: ignore[operator,no-any-return]

    parts = {"q": nn.Linear(d, d), "k": nn.Linear(d, h), "v": nn.Linear(d, h), "proj": nn.Linear(d, d), "head": nn.Linear(d, n, bias=False)}
    return case(net(forward, **parts), normal(b, t, d), causal(1, 1, t, t))


def _grouped_query(b: int, g: int, r: int, t: int, d: int) -> Case:
    """``g`` key/value heads, each shared by ``r`` query heads."""

    def forward(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        p = torch.softmax(torch.einsum("bgrtd,bgsd->bgrts", q, k) * q.shape[-1] ** -0.5, -1)
        return torch.einsum("bgrts,bgsd->bgrtd", p, v)

    return case(forward, normal(b, g, r, t, d), normal(b, g, t, d), normal(b, g, t, d))


def _causal(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    t = q.shape[-2]
    hide = torch.ones(t, t, dtype=torch.bool).triu(1)
    return torch.softmax(_scores(q, k).masked_fill(hide, float("-inf")), -1) @ v


def _distance(t: int) -> Tensor:
    return (torch.arange(t)[None, :] - torch.arange(t)[:, None]).abs().float()


def _linear(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Linear attention with feature map elu(x)+1, no softmax matrix."""
    q, k = F.elu(q) + 1, F.elu(k) + 1
    return (q @ (k.transpose(-2, -1) @ v)) / (q @ k.sum(-2).unsqueeze(-1))


def _rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotary position embedding, half-split form."""
    a, b = x.unflatten(-1, (2, -1)).unbind(-2)  # type: ignore[no-untyped-call]
    return torch.cat((a * cos - b * sin, a * sin + b * cos), -1)


def _qkv(b: int, t: int, d: int) -> tuple[Arg, Arg, Arg]:
    return normal(b, t, d), normal(b, t, d), normal(b, t, d)


SPECS: tuple[Spec, ...] = (
    w("attention", lambda b, t, d: case(lambda q, k, v: torch.softmax(_scores(q, k), -1) @ v, *_qkv(b, t, d)), (2, 5, 3), (2, 48, 32), (4, 256, 64)),
    w("attention_f16", lambda b, t, d: case(lambda q, k, v: torch.softmax(_scores(q, k), -1) @ v, *_qkv(b, t, d)),
      (2, 4, 3), (2, 48, 32), (4, 256, 64), dtype=DType.F16),
    w("attention_single", lambda t, d: case(lambda q, k, v: torch.softmax(q @ k.T * q.shape[-1] ** -0.5, -1) @ v, normal(t, d), normal(t, d), normal(t, d)),
      (5, 4), (64, 32), (384, 64)),
    w("attention_causal", lambda b, t, d: case(_causal, *_qkv(b, t, d)), (2, 5, 3), (2, 48, 32), (4, 256, 64)),
    w("attention_masked",
      lambda b, t, d: case(lambda q, k, v, hide: torch.softmax(_scores(q, k).masked_fill(hide, -1e4), -1) @ v, *_qkv(b, t, d), mask(b, t, t)),
      (2, 4, 3), (2, 48, 32), (4, 256, 64)),
    w("attention_bias", lambda b, t, d: case(lambda q, k, v, bias: torch.softmax(_scores(q, k) + bias, -1) @ v, *_qkv(b, t, d), normal(t, t)),
      (2, 3, 4), (2, 48, 32), (4, 256, 64)),
    w("attention_cross",
      lambda b, t, s, d, e: case(lambda q, k, v: torch.softmax(_scores(q, k), -1) @ v, normal(b, t, d), normal(b, s, d), normal(b, s, e)),
      (2, 3, 5, 4, 2), (2, 40, 56, 32, 24), (4, 192, 320, 64, 48)),
    w("attention_multi_head", lambda b, h, t, d: case(lambda q, k, v: torch.softmax(_scores(q, k), -1) @ v, *(normal(b, h, t, d) for _ in range(3))),
      (2, 2, 4, 3), (1, 4, 32, 16), (2, 8, 128, 48)),
    w("attention_grouped_query", _grouped_query, (1, 2, 2, 4, 3), (1, 2, 2, 32, 16), (2, 2, 4, 128, 48)),
    w("attention_sdpa", lambda b, h, t, d: case(lambda q, k, v: F.scaled_dot_product_attention(q, k, v), *(normal(b, h, t, d) for _ in range(3))),
      (1, 2, 4, 3), (1, 4, 32, 16), (2, 8, 128, 48)),
    w("attention_sdpa_causal",
      lambda b, h, t, d: case(lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True), *(normal(b, h, t, d) for _ in range(3))),
      (1, 2, 5, 3), (1, 4, 32, 16), (2, 8, 128, 48)),
    w("self_attention_masked", _self_attention, (2, 3, 4, 2), (1, 24, 32, 4), (2, 128, 96, 8), published("MinGPTCausalAttention", 64, 256, 128, 8)),
    w("multi_query_attention", _multi_query, (2, 3, 4, 2, 3), (1, 24, 32, 4, 24), (2, 128, 96, 8, 64), published("MQA_Gemm", 64, 256, 128, 8, 64)),
    w("attention_linear", lambda b, t, d: case(_linear, *_qkv(b, t, d)), (2, 5, 3), (2, 96, 24), (4, 1024, 64)),
    w("attention_relu", lambda b, t, d: case(lambda q, k, v: torch.relu(_scores(q, k)) @ v, *_qkv(b, t, d)), (2, 4, 4), (2, 48, 32), (4, 256, 64)),
    w("attention_sigmoid", lambda b, t, d: case(lambda q, k, v: torch.sigmoid(_scores(q, k)) @ v, *_qkv(b, t, d)), (2, 3, 3), (2, 48, 32), (4, 256, 64)),
    w("attention_pooling", lambda b, t, d: case(net(
        lambda m, x: (torch.softmax(x @ m.query, 1).unsqueeze(-1) * x).sum(1), query=nn.Parameter(torch.empty(d))), normal(b, t, d)),
      (2, 5, 3), (8, 128, 64), (16, 1024, 128)),
    w("softmax_matmul", lambda n, k, m: case(lambda s, v: torch.softmax(s, -1) @ v, normal(n, k), normal(k, m)), (3, 5, 4), (48, 64, 64), (384, 512, 384)),
    w("rotary_embedding", lambda b, h, t, d: case(_rotate, normal(b, h, t, 2 * d), normal(t, d), normal(t, d)), (2, 2, 3, 2), (2, 4, 64, 32), (4, 8, 512, 64)),
    w("attention_alibi", lambda h, t, d: case(
        lambda q, k, v, slope: torch.softmax(_scores(q, k) - slope[:, None, None] * _distance(t), -1) @ v,
        normal(h, t, d), normal(h, t, d), normal(h, t, d), positive(h)),
      (2, 4, 3), (2, 48, 32), (4, 256, 64)),
)  # fmt: skip
