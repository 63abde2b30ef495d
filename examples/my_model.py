"""A small module of the kind that Step-TP optimises: a gated MLP behind an RMS normalisation, with a residual connection.

    steptp optimize examples/my_model.py:Model

The file needs a ``torch.nn.Module`` and ``get_inputs()``, the tensors that ``forward`` takes.
"""

import torch
from torch import nn
from torch.nn import functional as F


class Model(nn.Module):
    """``x + W_down(silu(W_gate n) * (W_up n))`` with ``n = rms_norm(x)``."""

    def __init__(self, features: int = 64, hidden: int = 96) -> None:
        super().__init__()
        self.gain = nn.Parameter(torch.ones(features))
        self.gate = nn.Linear(features, hidden, bias=False)
        self.up = nn.Linear(features, hidden, bias=False)
        self.down = nn.Linear(hidden, features, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        n = x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6) * self.gain
        return x + self.down(F.silu(self.gate(n)) * self.up(n))


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(16, 64)]
