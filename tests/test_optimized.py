"""``steptp.optimize``: a module's place taken by a compiled program."""

from __future__ import annotations

import warnings
from pathlib import Path

import pytest
import torch
from margin_file import keep_margin

import steptp
from steptp.errors import StepTPError
from steptp.optimized import Optimized
from steptp.rewrite.trace import replay


class Small(torch.nn.Module):
    """A nested result, a number among the arguments, a weight, and a buffer that every call changes."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(24, 16))
        self.register_buffer("calls", torch.zeros(24))

    def forward(self, x: torch.Tensor, pair: tuple[torch.Tensor, torch.Tensor], scale: int = 2) -> dict[str, object]:
        self.calls += 1.0
        hidden = x @ self.weight.T
        return {"y": torch.relu(hidden + pair[0]) * scale, "none": None, "taken": (pair[1][:, :4].sum(1), self.calls + 0.0)}


def example(seed: int = 0) -> tuple[torch.Tensor, tuple[torch.Tensor, torch.Tensor], int]:
    torch.manual_seed(seed)
    return torch.randn(32, 16), (torch.randn(24), torch.randint(-9, 9, (5, 8))), 2


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Small, Optimized, Path]:
    torch.manual_seed(1)
    module = Small()
    folder = tmp_path_factory.mktemp("optimized") / "out"
    keep_margin(folder)
    fast = steptp.optimize(module, example(), policy="random", search="greedy", samples=3, threads=1, seed=1, out=folder)
    return module, fast, folder


def test_it_returns_what_the_module_returns(made: tuple[Small, Optimized, Path]) -> None:
    module, fast, _ = made
    module.calls.copy_(torch.from_numpy(fast._bound["calls"]))  # wherever other tests left it
    for seed in (1, 2):  # the buffer goes on counting
        x, pair, scale = example(seed)
        with torch.no_grad():
            expected = module(x, pair, scale)
        found = fast(x, pair=pair, scale=scale) if seed == 2 else fast(x, pair, scale)
        assert list(found) == list(expected)
        assert found["none"] is None
        torch.testing.assert_close(found["y"], expected["y"], rtol=1e-5, atol=1e-5)
        assert isinstance(found["taken"], tuple)
        assert torch.equal(found["taken"][0], expected["taken"][0])
        assert torch.equal(found["taken"][1], expected["taken"][1])


def test_weights_are_bound_and_results_are_fresh(made: tuple[Small, Optimized, Path]) -> None:
    module, fast, _ = made
    first = fast(*example())["y"]
    kept = first.clone()
    with torch.no_grad():
        module.weight.mul_(-1)
    try:
        second = fast(*example())["y"]
    finally:
        with torch.no_grad():
            module.weight.mul_(-1)
    assert torch.equal(first, kept)
    assert torch.equal(first, second)
    assert first.data_ptr() != second.data_ptr()


def test_aligned_inputs_are_read_where_they_lie(made: tuple[Small, Optimized, Path]) -> None:
    _, fast, _ = made
    x, pair, _ = example()
    array = fast._read(fast._inputs[0], x)
    assert array.ctypes.data == x.data_ptr()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        expected = fast(x, pair, 2)["y"]
    across, shifted = x.T.contiguous().T, torch.cat([torch.zeros(1), pair[0]])[1:]
    with pytest.warns(UserWarning, match="is copied at every call") as notes:
        found = fast(across, (shifted, pair[1]), 2)["y"]
    assert len(notes) == 2
    assert torch.equal(found, expected)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # said once
        fast(across, (shifted, pair[1]), 2)


@pytest.mark.parametrize(
    ("args", "what"),
    [
        ((torch.zeros(31, 16), (torch.zeros(24), torch.zeros(5, 8, dtype=torch.int64)), 2), r"x is float32\[31, 16\]"),
        ((torch.zeros(32, 16).double(), (torch.zeros(24), torch.zeros(5, 8, dtype=torch.int64)), 2), "x is float64"),
        ((torch.zeros(32, 16), torch.zeros(24), 2), "nest otherwise"),
        ((torch.zeros(32, 16), (torch.zeros(24), torch.zeros(5, 8, dtype=torch.int64)), 3), "3 stands where the program was made for 2"),
        ((torch.zeros(32, 16), (torch.zeros(24), None), 2), "nest otherwise|a NoneType stands"),
        ((torch.zeros(32, 16),), "missing a required argument"),
        ((torch.zeros(32, 16, device="meta"), (torch.zeros(24), torch.zeros(5, 8, dtype=torch.int64)), 2), "on meta"),
        ((torch.zeros(32, 16, requires_grad=True), (torch.zeros(24), torch.zeros(5, 8, dtype=torch.int64)), 2), "requires a gradient"),
        ((torch.zeros(32, 16), (torch.zeros(24), torch.full((5, 8), 1 << 40)), 2), "values outside"),
    ],
)
def test_other_arguments_are_refused_with_the_expected_ones(made: tuple[Small, Optimized, Path], args: tuple[object, ...], what: str) -> None:
    with pytest.raises(StepTPError, match=what) as caught:
        made[1](*args)
    assert caught.value.code == "usage-call"
    assert "f32[32, 16]" in caught.value.message
    assert "i64[5, 8]" in caught.value.message


def test_it_carries_the_search(made: tuple[Small, Optimized, Path], tmp_path: Path) -> None:
    _, fast, folder = made
    assert fast.speedup == fast.result["speedup"] >= 0.95
    assert fast.result["spent"]["samples"] == 3
    assert fast.trace is not None
    assert replay(fast.trace).last == fast.program
    page = fast.report(tmp_path / "page.html").read_text()
    assert page.startswith("<!DOCTYPE html>")
    assert "timed afresh" in page
    assert {"program.leir", "report.html", "result.json"} <= {p.name for p in folder.iterdir()}


def test_the_same_call_continues_the_search(made: tuple[Small, Optimized, Path]) -> None:
    module, fast, folder = made
    again = steptp.optimize(module, example(), policy="random", search="greedy", samples=3, threads=1, seed=1, out=folder)
    assert again.result["tree"] == fast.result["tree"]


def test_bf16_and_one_tensor() -> None:
    from steptp.frontend import from_module
    from steptp.ir import print_program
    from steptp.search.finish import Answer
    from steptp.search.outcome import Outcome
    from steptp.search.tree import Tree

    module = torch.nn.Linear(8, 4).bfloat16()
    x = torch.randn(3, 8).bfloat16()
    workload = from_module(module, lambda _: (x,), "Linear", randomise=False)
    assert "bf16" in print_program(workload.program)
    fast = Optimized(workload, (x,), Outcome(Answer(Tree(workload.program).start, None), None, {"speedup": 1.0, "steps": []}), threads=1)
    found = fast(x)
    assert found.dtype is torch.bfloat16
    torch.testing.assert_close(found, module(x).detach(), rtol=2e-2, atol=2e-2)
    assert repr(fast) == "<Linear, 1.00x, 0 steps>"
