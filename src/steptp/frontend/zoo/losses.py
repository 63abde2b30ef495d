"""Losses, reduced to a scalar."""

from __future__ import annotations

import torch
from torch.nn import functional as F

from steptp.frontend.zoo.entry import Spec, case, ints, normal, positive, probs, published, signs, unit, w

__all__ = ["SPECS"]

_TINY, _MINI, _LEVEL1 = (3, 5), (128, 512), (1024, 2048)

SPECS: tuple[Spec, ...] = (
    w("mse_loss", lambda n, m: case(lambda x, y: F.mse_loss(x, y), normal(n, m), normal(n, m)), _TINY, _MINI, _LEVEL1, published("MSELoss", 128, 4096)),
    w("l1_loss", lambda n, m: case(lambda x, y: F.l1_loss(x, y), normal(n, m), normal(n, m)), (4, 4), _MINI, _LEVEL1),
    w("huber_loss", lambda n, m: case(lambda x, y: F.huber_loss(x, y, delta=0.8), normal(n, m), normal(n, m)), (5, 3), _MINI, _LEVEL1),
    w("smooth_l1_loss", lambda n, m: case(lambda x, y: F.smooth_l1_loss(x, y, beta=0.5), normal(n, m), normal(n, m)), (3, 3), _MINI, _LEVEL1),
    w("kl_div_loss", lambda n, m: case(lambda p, q: F.kl_div(p.log(), q, reduction="batchmean"), probs(n, m), probs(n, m)),
      (4, 5), (32, 256), (512, 2048), published("KLDivLoss", 128, 1024)),
    w("cross_entropy_loss", lambda n, m: case(lambda x, t: F.cross_entropy(x, t), normal(n, m), ints(n, high=m)), (4, 5), (64, 256), (1024, 2048)),
    w("nll_loss", lambda n, m: case(lambda x, t: F.nll_loss(x, t), normal(n, m), ints(n, high=m)), (5, 3), (65536, 4), (262144, 32)),
    w("cross_entropy_soft", lambda n, m: case(lambda x, q: -(q * torch.log_softmax(x, 1)).sum(1).mean(), normal(n, m), probs(n, m)),
      (4, 3), (48, 256), (512, 2048)),
    w("hinge_loss", lambda n, m: case(lambda x, y: (1 - x * y).clamp(min=0).mean(), normal(n, m), signs(n, m)),
      (7, 1), (512, 128), _LEVEL1, published("Hingeloss", 128, 1)),
    w("squared_hinge_loss", lambda n, m: case(lambda x, y: ((1 - x * y).clamp(min=0) ** 2).mean(), normal(n, m), signs(n, m)), (3, 4), _MINI, _LEVEL1),
    w("cosine_loss", lambda n, m: case(lambda x, y: (1 - F.cosine_similarity(x, y, dim=1)).mean(), normal(n, m), normal(n, m)), (4, 5), _MINI, _LEVEL1),
    w("triplet_loss", lambda n, m: case(lambda a, p, q: F.triplet_margin_loss(a, p, q), normal(n, m), normal(n, m), normal(n, m)),
      (3, 4), (96, 256), (1024, 1024), published("TripletMarginLoss", 128, 1024)),
    w("bce_loss", lambda n, m: case(lambda p, y: F.binary_cross_entropy(p, y), positive(n, m), probs(n, m)), (3, 5), (48, 256), (512, 2048)),
    w("bce_logits_loss", lambda n, m: case(lambda x, y: F.binary_cross_entropy_with_logits(x, y), normal(n, m), probs(n, m)), (5, 4), (48, 256), (512, 2048)),
    w("poisson_loss", lambda n, m: case(lambda x, y: F.poisson_nll_loss(x, y), unit(n, m), positive(n, m)), (3, 3), (48, 256), (512, 2048)),
    w("gaussian_nll_loss", lambda n, m: case(lambda x, y, v: (0.5 * (v.log() + (x - y) ** 2 / v)).mean(), normal(n, m), normal(n, m), positive(n, m)),
      (4, 3), (48, 256), (512, 2048)),
    w("log_cosh_loss", lambda n, m: case(lambda x, y: (x - y + F.softplus(-2.0 * (x - y)) - 0.6931472).mean(), normal(n, m), normal(n, m)),
      (3, 4), (48, 256), (512, 2048)),
    w("contrastive_loss", lambda n, d: case(lambda x, y: -torch.log_softmax(x @ y.T * 5.0, 1).diagonal().mean(), unit(n, d), unit(n, d)),
      (4, 3), (64, 48), (384, 256)),
    w("mse_per_row", lambda n, m: case(lambda x, y: ((x - y) ** 2).mean(1), normal(n, m), normal(n, m)), (4, 3), _MINI, _LEVEL1),
    w("dice_loss", lambda n, m: case(lambda p, q: (1 - (2 * (p * q).sum(1) + 1) / (p.sum(1) + q.sum(1) + 1)).mean(), positive(n, m), positive(n, m)),
      (3, 5), _MINI, _LEVEL1),
)  # fmt: skip
