from __future__ import annotations

import math

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch_agreement import agree, tensor

from steptp.errors import FrontendError
from steptp.ir import print_program


def _qkv(*shape: int, keys: int | None = None, width: int | None = None) -> list[torch.Tensor]:
    *lead, rows, depth = shape
    return [tensor(*shape), tensor(*lead, keys or rows, depth, seed=1), tensor(*lead, keys or rows, width or depth, seed=2)]


@pytest.mark.parametrize("shape", [(4, 3), (2, 4, 3), (2, 3, 5, 4)])
@pytest.mark.parametrize("causal", [False, True])
def test_attention_agrees(shape, causal: bool) -> None:
    if len(shape) < 3:
        shape = (1, *shape)
    agree(lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=causal), *_qkv(*shape), factor=2)


@pytest.mark.parametrize("causal", [False, True])
def test_attention_of_other_lengths_agrees(causal: bool) -> None:
    agree(lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=causal), *_qkv(2, 2, 3, 4, keys=5, width=6), factor=2)
    agree(lambda q, k, v: F.scaled_dot_product_attention(q, k, v, scale=0.3), *_qkv(1, 2, 5, 4, keys=3), factor=2)


def test_masks_agree() -> None:
    q, k, v = _qkv(2, 2, 4, 3)
    keep = torch.rand(4, 4, generator=torch.Generator().manual_seed(2)) < 0.6
    keep[:, 0] = True
    agree(lambda q, k, v, m: F.scaled_dot_product_attention(q, k, v, m), q, k, v, keep, factor=2)
    agree(lambda q, k, v, m: F.scaled_dot_product_attention(q, k, v, m), q, k, v, tensor(2, 1, 4, 4, seed=4), factor=2)


def test_a_row_with_everything_masked_gives_zeros() -> None:
    q, k, v = _qkv(1, 2, 4, 3)
    keep = torch.ones(4, 4, dtype=torch.bool)
    keep[2] = False
    agree(lambda q, k, v, m: F.scaled_dot_product_attention(q, k, v, m), q, k, v, keep, factor=2)


def test_grouped_heads_agree() -> None:
    q, k, v = tensor(2, 4, 3, 2), tensor(2, 2, 5, 2, seed=1), tensor(2, 2, 5, 2, seed=2)
    agree(lambda q, k, v: F.scaled_dot_product_attention(q, k, v, enable_gqa=True), q, k, v, factor=2)


def test_16_bit_attention_agrees() -> None:
    text = print_program(agree(lambda q, k, v: F.scaled_dot_product_attention(q, k, v), *(t.half() for t in _qkv(1, 2, 5, 4))))
    assert text.count("f16(") == 1


def test_dropout_is_refused() -> None:
    with pytest.raises(FrontendError) as caught:
        agree(lambda q, k, v: F.scaled_dot_product_attention(q, k, v, dropout_p=0.1), *_qkv(1, 2, 3, 4))
    assert caught.value.code == "frontend-random"


def test_a_causal_program_follows_other_sizes() -> None:
    agree(
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True), *_qkv(2, 3, 4, 5), other=_qkv(3, 2, 6, 2), factor=2
    )  # fmt: skip


def test_attention_written_by_hand_agrees() -> None:
    def causal(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        hide = torch.ones(q.shape[-2], q.shape[-2], dtype=torch.bool).triu(1)
        return torch.softmax((q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])).masked_fill(hide, -math.inf), -1) @ v

    agree(causal, *_qkv(2, 4, 3), other=_qkv(3, 5, 3), factor=2)


def test_the_module_of_pytorch_agrees() -> None:
    module = nn.MultiheadAttention(4, 2, batch_first=True).eval()
    x = tensor(2, 3, 4)

    class Self(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.attention = module

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.attention(x, x, x, need_weights=False)[0]

    agree(Self(), x, factor=2)
