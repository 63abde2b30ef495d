from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch_agreement import agree, tensor

from steptp.errors import FrontendError
from steptp.ir import print_program


def test_nearest_resizing_agrees() -> None:
    text = print_program(agree(lambda x: F.interpolate(x, scale_factor=2), tensor(1, 2, 3, 3), sizes="auto"))
    assert "x[0,i,j//2,k//2]" in text
    agree(lambda x: F.interpolate(x, size=(5, 2)), tensor(2, 2, 3, 4))
    agree(lambda x: F.interpolate(x, size=7), tensor(2, 2, 3))


def test_bilinear_resizing_decomposes() -> None:
    agree(lambda x: F.interpolate(x, scale_factor=2, mode="bilinear"), tensor(1, 2, 3, 4), factor=4)


def test_distances_agree() -> None:
    agree(lambda x, y: (torch.cdist(x, y), torch.cdist(x, y, p=1)), tensor(3, 4), tensor(3, 4, seed=1), factor=4)


def test_sums_through_an_index_agree() -> None:
    index = torch.tensor([[0, 2, 2], [1, 1, 1]])
    text = print_program(agree(lambda x, i, y: (x.scatter_add(1, i, y), x.index_add(1, i[0], y[:, :3], alpha=2)), tensor(2, 4), index, tensor(2, 3, seed=1)))
    assert "carry" in text
    with pytest.raises(FrontendError) as caught:
        agree(lambda x, i, y: x.scatter_add(1, i, y), tensor(2, 4).half(), index, tensor(2, 3).half())
    assert caught.value.code == "frontend-op-form"


def test_bilinear_layers_and_recurrent_layers_agree() -> None:
    agree(nn.Bilinear(3, 4, 5), tensor(2, 3), tensor(2, 4), factor=4)

    class Last(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.cell = nn.GRU(3, 4, batch_first=True)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.cell(x)[0]

    agree(Last(), tensor(2, 2, 3), factor=4)
