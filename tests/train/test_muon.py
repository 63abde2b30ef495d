"""Muon: what orthogonalising does, which parameters it is for, and that it goes on after a checkpoint."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import torch

from steptp.policy.weights import find_weights, load_model
from steptp.train.muon import Muon, orthogonalised


@pytest.mark.parametrize("shape", [(24, 24), (16, 40), (40, 16)])
def test_singular_values_come_near_one_and_directions_stay(shape: tuple[int, int]) -> None:
    torch.manual_seed(0)
    matrix = torch.randn(shape) * 1e-3
    made = orthogonalised(matrix)
    assert made.shape == shape
    values = torch.linalg.svdvals(made)
    assert float(values.min()) > 0.3
    assert float(values.max()) < 1.3
    left, _, right = torch.linalg.svd(matrix, full_matrices=False)
    turned = left.T @ made @ right.T
    assert float((turned - torch.diag(torch.diagonal(turned))).abs().max()) < 1e-3  # the same singular vectors


def test_a_matrix_of_zeros_stays() -> None:
    assert not orthogonalised(torch.zeros(4, 6)).any()


class _Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.embed = torch.nn.Embedding(20, 16)
        self.hidden = torch.nn.Linear(16, 16)
        self.head = torch.nn.Linear(16, 20, bias=False)

    def get_input_embeddings(self) -> torch.nn.Module:
        return self.embed

    def get_output_embeddings(self) -> torch.nn.Module:
        return self.head

    def forward(self, at: torch.Tensor) -> Any:
        return self.head(self.hidden(self.embed(at)))


def _train(net: _Net, optimizer: Muon, steps: range) -> list[float]:
    losses = []
    for step in steps:
        at = torch.arange(step, step + 8) % 20
        loss = torch.nn.functional.cross_entropy(net(at), (at * 7 + 3) % 20)
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        losses.append(loss.item())
    return losses


def test_it_learns_and_a_saved_state_goes_on_alike() -> None:
    net = _Net()
    optimizer = Muon(net, 2e-2, 0.01)
    losses = _train(net, optimizer, range(40))
    assert losses[-1] < 0.2 * losses[0]
    other = _Net()
    other.load_state_dict(net.state_dict())
    again = Muon(other, 2e-2, 0.01)
    again.load_state_dict(copy.deepcopy(optimizer.state_dict()))  # loading shares tensors
    assert _train(other, again, range(40, 50)) == _train(net, optimizer, range(40, 50))


def test_a_step_of_a_matrix_has_the_size_that_the_rate_says() -> None:
    net = _Net()
    before = net.hidden.weight.detach().clone()
    _train(net, Muon(net, 1e-2, 0.0), range(1))
    moved = net.hidden.weight.detach() - before
    assert 0.5 < float(moved.norm() / (1e-2 * 0.2 * 16**0.5 * 16**0.5)) < 1.3  # rank 16 of singular values near 1, scaled to 0.2 of AdamW's largest


def test_embeddings_head_and_vectors_are_left_to_adamw(model: Path) -> None:
    loaded = load_model(find_weights(str(model)), torch.float32)
    for parameter in loaded.parameters():
        parameter.requires_grad_(True)
    matrices, others = Muon(loaded, 1e-3, 0.1).param_groups
    names = {id(p): name for name, p in loaded.named_parameters()}
    assert {names[id(p)].split(".")[-2] for p in matrices["params"]} == {"q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"}
    assert len(matrices["params"]) + len(others["params"]) == len(names)
    assert (matrices["weight_decay"], others["weight_decay"]) == (0.1, 0.0)


def test_adamw_for_the_rest_is_torchs() -> None:
    torch.manual_seed(0)
    net, other = _Net(), _Net()
    mine = Muon(net, 1e-2, 0.0)
    mine.param_groups = [{**mine.param_groups[1], "params": list(net.parameters())}]
    theirs = torch.optim.AdamW(other.parameters(), lr=1e-2, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.0)
    assert _train(net, mine, range(5)) == pytest.approx(_train(other, theirs, range(5)), rel=1e-5)  # type: ignore[arg-type]
