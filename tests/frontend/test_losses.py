from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F
from torch_agreement import agree, tensor

from steptp.ir import print_program

REDUCTIONS = ["none", "mean", "sum"]


def _classes(*shape: int, high: int) -> torch.Tensor:
    return torch.randint(0, high, shape, generator=torch.Generator().manual_seed(high))


def _probs(*shape: int, seed: int = 5) -> torch.Tensor:
    return torch.softmax(tensor(*shape, seed=seed), -1)


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("loss", [F.mse_loss, F.l1_loss, F.huber_loss, F.smooth_l1_loss])
def test_distance_losses_agree(loss, reduction: str) -> None:
    agree(lambda x, y: loss(x, y, reduction=reduction), tensor(3, 5), tensor(3, 5, seed=1))


def test_parameters_of_distance_losses_agree() -> None:
    x, y = tensor(4, 3), tensor(4, 3, seed=1)
    agree(lambda x, y: F.huber_loss(x, y, delta=0.3), x, y)
    agree(lambda x, y: F.smooth_l1_loss(x, y, beta=0.4), x, y)
    agree(lambda x, y: F.smooth_l1_loss(x, y, beta=0.0), x, y)


@pytest.mark.filterwarnings("ignore:reduction")
@pytest.mark.parametrize("reduction", [*REDUCTIONS, "batchmean"])
def test_kl_divergence_agrees(reduction: str) -> None:
    p, q = _probs(3, 4).log(), _probs(3, 4, seed=6)
    q[0, 1] = 0
    agree(lambda x, q: F.kl_div(x, q, reduction=reduction), p, q)
    agree(lambda x, q: F.kl_div(x, q, reduction=reduction, log_target=True), p, _probs(3, 4, seed=7).log())


@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_binary_cross_entropy_agrees(reduction: str) -> None:
    p, y = torch.sigmoid(tensor(3, 4)), torch.sigmoid(tensor(3, 4, seed=1))
    p[0, 0], p[1, 1] = 0.0, 1.0
    agree(lambda p, y: F.binary_cross_entropy(p, y, reduction=reduction), p, y)
    agree(lambda p, y, w: F.binary_cross_entropy(p, y, w, reduction=reduction), p, y, tensor(4, seed=2).abs())


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("smooth", [0.0, 0.2])
@pytest.mark.parametrize("weighted", [False, True])
def test_cross_entropy_of_classes_agrees(reduction: str, smooth: float, weighted: bool) -> None:
    weight = [tensor(5, seed=3).abs() + 0.1] if weighted else []
    agree(
        lambda x, t, *w: F.cross_entropy(x, t, w[0] if w else None, reduction=reduction, label_smoothing=smooth), tensor(4, 5), _classes(4, high=5), *weight,
        factor=2,
    )  # fmt: skip


@pytest.mark.parametrize("smooth", [0.0, 0.2])
def test_cross_entropy_of_probabilities_agrees(smooth: float) -> None:
    for reduction in REDUCTIONS:
        agree(lambda x, q, r=reduction: F.cross_entropy(x, q, reduction=r, label_smoothing=smooth), tensor(4, 5), _probs(4, 5), factor=2)
    agree(lambda x, q, w: F.cross_entropy(x, q, w, label_smoothing=smooth), tensor(4, 5), _probs(4, 5), tensor(5, seed=3).abs(), factor=2)


def test_cross_entropy_of_other_ranks_agrees() -> None:
    agree(lambda x, t: F.cross_entropy(x, t), tensor(5), torch.tensor(2))
    agree(lambda x, t: F.cross_entropy(x, t), tensor(2, 5, 3), _classes(2, 3, high=5))
    agree(lambda x, t: F.nll_loss(x, t), tensor(2, 4, 3, 2), _classes(2, 3, 2, high=4))


@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_an_ignored_class_agrees(reduction: str) -> None:
    t = torch.tensor([1, 3, 0, 3])
    agree(lambda x, t: F.cross_entropy(x, t, ignore_index=3, reduction=reduction), tensor(4, 5), t)
    agree(lambda x, t: F.nll_loss(x, t, ignore_index=3, reduction=reduction), tensor(4, 5), t)
    agree(lambda x, t, w: F.nll_loss(x, t, w, ignore_index=3, reduction=reduction), tensor(4, 5), t, tensor(5, seed=1).abs())


def test_class_inputs_declare_their_range() -> None:
    text = print_program(agree(lambda x, t: F.cross_entropy(x, t), tensor(4, 5), _classes(4, high=5), other=[tensor(3, 6), _classes(3, high=6)]))
    assert "t i64[N] 0..K" in text


@pytest.mark.parametrize(
    "body",
    [
        lambda x, y: F.triplet_margin_loss(x, y, x + 0.5 * y),
        lambda x, y: F.cosine_similarity(x, y, dim=1),
        lambda x, y: (1 - F.cosine_similarity(x, y, dim=0)).mean(),
        lambda x, y: F.cosine_embedding_loss(x, y, torch.sign(x[:, 0])),
        lambda x, y: F.binary_cross_entropy_with_logits(x, torch.sigmoid(y)),
        lambda x, y: F.margin_ranking_loss(x, y, torch.sign(x), margin=0.3),
        lambda x, y: F.hinge_embedding_loss(x, torch.sign(y)),
        lambda x, y: F.soft_margin_loss(x, torch.sign(y)),
        lambda x, y: F.poisson_nll_loss(x, y.abs()),
        lambda x, y: (1 - x * torch.sign(y)).clamp(min=0).mean(),
    ],
)
def test_decomposed_losses_agree(body) -> None:
    agree(body, tensor(4, 5), tensor(4, 5, seed=1), factor=2)


def test_16_bit_losses_agree() -> None:
    x, y = tensor(6, 8, dtype=torch.float16), tensor(6, 8, seed=1, dtype=torch.float16)
    agree(lambda x, y: F.huber_loss(x, y), x, y)
    agree(lambda x, t: F.cross_entropy(x, t), x, _classes(6, high=8))
