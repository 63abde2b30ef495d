"""Pairs of PyTorch formulations of one function: equal over the reals, and not made by our strategies.

``pairs()`` lists them; ``programs(pair)`` exports both sides through the frontend, as LEIR programs with one interface. Many are members of families
(``equal_formulations.py``): the same two formulations at another axis, shape or parameter. ``python benchmarks/equal_pairs.py`` lists the names and compares both sides
in f64 PyTorch.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

sys.path[:0] = [str(Path(__file__).resolve().parent.parent / "src"), str(Path(__file__).resolve().parent)]

import torch  # noqa: E402
from torch import Tensor  # noqa: E402

from equal_formulations import FAMILIES, Body, Pair  # noqa: E402


class _One(torch.nn.Module):
    def __init__(self, body: Body) -> None:
        super().__init__()
        self.body = body


class _Of1(_One):
    def forward(self, x: Tensor) -> Tensor:
        return self.body(x)


class _Of2(_One):
    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return self.body(x, y)


class _Of3(_One):
    def forward(self, x: Tensor, y: Tensor, z: Tensor) -> Tensor:
        return self.body(x, y, z)


class _Of4(_One):
    def forward(self, x: Tensor, y: Tensor, z: Tensor, w: Tensor) -> Tensor:
        return self.body(x, y, z, w)


_MODULES = {1: _Of1, 2: _Of2, 3: _Of3, 4: _Of4}


def programs(pair: Pair) -> tuple[Any, Any]:
    """Both sides as programs."""
    from steptp.frontend.workload import from_module

    kind = _MODULES[len(pair.shapes)]
    return tuple(from_module(kind(body), pair.inputs, pair.name, randomise=False).program for body in (pair.first, pair.second))  # type: ignore[return-value]


def pairs() -> list[Pair]:
    """All pairs, in a fixed order."""
    found = [pair for family in FAMILIES for pair in family()]
    names = [p.name for p in found]
    assert len(set(names)) == len(names), sorted(n for n in names if names.count(n) > 1)
    return found


def main() -> None:
    worst = 0.0
    for pair in pairs():
        inputs = [t.double() for t in pair.inputs()]
        torch.set_default_dtype(torch.float64)
        a, b = pair.first(*inputs), pair.second(*inputs)
        away = float((a - b).abs().max())
        worst = max(worst, away)
        print(f"{pair.name:32} {tuple(a.shape)!s:16} {away:.1e}{'  DIFFERENT' if a.shape != b.shape or not away < 1e-9 else ''}")
    print(f"{len(pairs())} pairs, largest difference {worst:.1e}")


if __name__ == "__main__":
    main()
