from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch_agreement import agree, assert_close, shape_text, sizes_of, tensor

from steptp.errors import FrontendError
from steptp.frontend import Workload, from_module
from steptp.frontend.workload import sizes_for
from steptp.interp import evaluate
from steptp.ir import DType, check, print_expr, print_program, rebind


class Block(nn.Module):
    """Attention with heads cut out of one projection, residuals and norms."""

    def __init__(self, width: int = 8, heads: int = 2) -> None:
        super().__init__()
        self.qkv, self.out, self.heads = nn.Linear(width, 3 * width), nn.Linear(width, width), heads

    def forward(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        q, k, v = (
            t.view(batch, length, self.heads, width // self.heads).transpose(1, 2) for t in self.qkv(nn.functional.layer_norm(x, x.shape[-1:])).chunk(3, -1)
        )
        weights = torch.softmax(q @ k.transpose(-2, -1) / (q.shape[-1] ** 0.5), -1)
        return x + self.out((weights @ v).transpose(1, 2).reshape(x.shape))


class Trained(nn.Module):
    """Training mode: batch statistics, running buffers, in-place activations."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.ReLU(inplace=True))
        self.register_buffer("shift", torch.arange(4.0))

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(x) + self.shift


def _compare(work: Workload, factor: float = 1.0, seed: int = 0) -> None:
    inputs = work.example_inputs(seed)
    got, want, double = evaluate(work.program, inputs), work.reference(inputs), work.reference(inputs, dtype="f64")
    assert set(got) == set(want) == set(double)
    for buffer in work.program.outputs:
        assert_close(got[buffer.name], want[buffer.name], buffer.dtype, factor)
        assert_close(double[buffer.name].astype(want[buffer.name].dtype), want[buffer.name], buffer.dtype, factor)


def test_a_block_has_named_sizes_and_follows_them() -> None:
    work = from_module(Block(), lambda seed: (tensor(2, 3, 8, seed=seed),), "block")
    text = print_program(work.program)
    assert sizes_of(work.program) == "M=4 B=2 T=3 C=2*M N=6*M"
    assert work.program.constraints == ()
    assert "sqrt(f32(M))" in text
    assert "//" not in text
    _compare(work, 4)
    wide = Block(12)
    values = sizes_for(work.program, {"x": (1, 5, 12), "qkv_weight": (36, 12)})
    again = rebind(work.program, values)
    check(again)
    feed = {k: v.detach().numpy() for k, v in ((n.replace(".", "_"), p) for n, p in wide.named_parameters())} | {"x": tensor(1, 5, 12).numpy()}
    with torch.no_grad():
        assert_close(evaluate(again, feed)["Y"], wide(tensor(1, 5, 12)).numpy(), DType.F32, 4)


def test_training_mode_updates_buffers_as_outputs() -> None:
    work = from_module(Trained(), lambda seed: (tensor(5, 3, seed=seed),), "trained")
    assert [o.name for o in work.program.outputs] == [
        "Y", "layers_1_num_batches_tracked_out", "layers_1_running_mean_out", "layers_1_running_var_out",
    ]  # fmt: skip
    assert work.mutated["layers_1_running_mean_out"] == "layers_1_running_mean"
    _compare(work, 4)
    _compare(work, 4, seed=1)


def test_functionalised_graphs_update_buffers_too() -> None:
    class Counter(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("seen", torch.zeros(2, 3))

        def forward(self, x: Tensor) -> Tensor:
            self.seen[:, 1] += x.sum()
            return x + self.seen

    work = from_module(Counter(), lambda seed: (tensor(2, 3),), "counter")
    assert work.mutated == {"seen_out": "seen"}
    _compare(work)


def test_parameters_are_randomised_and_inputs_are_kept_apart() -> None:
    module = nn.LayerNorm(4)
    work = from_module(module, lambda seed: (tensor(3, 4, seed=seed),), "norm")
    assert set(work.params) == {"weight", "bias"}
    assert np.ptp(work.params["weight"]) > 0
    assert np.ptp(work.params["bias"]) > 0
    assert bool((module.weight == 1).all()), "the user's module is not changed"
    again = from_module(nn.LayerNorm(4), lambda seed: (tensor(3, 4, seed=seed),), "norm")
    assert np.array_equal(again.params["weight"], work.params["weight"])
    assert not np.array_equal(work.example_inputs(0)["input"], work.example_inputs(1)["input"])


def test_coinciding_dims_get_their_own_names() -> None:
    program = agree(lambda x, y: x @ y, tensor(3, 3), tensor(3, 3, seed=1), sizes="auto")
    assert sizes_of(program) == "N=3 K=3 M=3"
    assert (shape_text(program, "x"), shape_text(program, "y")) == ("N,K", "K,M")


def test_a_dim_that_the_code_fixes_is_a_number() -> None:
    program = agree(lambda x: x.view(x.shape[0], 2, 3).sum(2), tensor(4, 6), sizes="auto", other=(tensor(2, 6),))
    assert shape_text(program, "x") == "N,6"


def test_a_size_condition_becomes_a_constraint() -> None:
    def fn(x: Tensor) -> Tensor:
        return x * 2 if x.shape[0] > 7 else x * 3

    program = agree(fn, tensor(9, 3), sizes="auto")
    assert [print_expr(c) for c in program.constraints] in (["N>7"], ["N>=8"])


def test_static_sizes_are_numbers() -> None:
    work = from_module(nn.Linear(3, 3), lambda seed: (tensor(3, 3),), "linear", sizes="static")
    assert work.program.sizes == ()
    assert not work.dynamic
    _compare(work)


def test_large_graphs_name_the_sizes_of_inputs() -> None:
    module = nn.Sequential(*[m for n in range(20) for m in (nn.Linear(3, 3), nn.Tanh())])
    work = from_module(module, lambda seed: (tensor(4, 3),), "deep")
    assert [s.name for s in work.program.sizes] == ["N"]
    _compare(work, 4)


def test_a_module_that_returns_its_input_is_a_copy() -> None:
    assert "Y[i,j]=x[i,j]" in print_program(agree(lambda x: x, tensor(2, 3)))


def test_outputs_share_and_repeat() -> None:
    def fn(x: Tensor) -> tuple[Tensor, ...]:
        y = x.exp()
        return y, y.sum(1, keepdim=True), y, y.t(), y.sum(1)

    agree(fn, tensor(2, 3))


def test_constants_of_the_module_are_inputs() -> None:
    class Masked(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.mask = torch.ones(3, 3).tril()

        def forward(self, x: Tensor) -> Tensor:
            return x * self.mask

    work = from_module(Masked(), lambda seed: (tensor(3, 3),), "masked")
    assert len(work.params) == 1
    _compare(work)


def test_nested_and_plain_arguments() -> None:
    class Nested(nn.Module):
        def forward(self, pair: tuple[Tensor, Tensor], scale: float, *rest: Tensor) -> dict[str, Tensor]:
            return {"a": pair[0] * scale, "b": pair[1] + rest[0]}

    work = from_module(Nested(), lambda seed: ((tensor(2), tensor(3)), 2.0, tensor(3, seed=1)), "nested")
    assert [b.name for b in work.program.inputs] == ["pair0", "pair1", "rest0"]
    _compare(work)


def test_reserved_words_are_not_names() -> None:
    class Words(nn.Module):
        def forward(self, size: Tensor, max: Tensor) -> Tensor:
            return size + max

    work = from_module(Words(), lambda seed: (tensor(2), tensor(2, seed=1)), "words")
    assert [b.name for b in work.program.inputs] == ["size0", "max0"]
    _compare(work)


def test_programs_alone_have_random_inputs(tmp_path: Path) -> None:
    work = from_module(nn.Embedding(5, 2), lambda seed: (torch.tensor([[0, 4], [1, 1]]),), "table")
    other = work.at(**{work.program.sizes[0].name: work.program.sizes[0].value})
    inputs = other.example_inputs()
    assert evaluate(other.program, inputs)["Y"].shape == (2, 2, 2)
    with pytest.raises(FrontendError) as caught:
        other.reference(inputs)
    assert caught.value.code == "frontend-no-module"


def test_a_batch_norm_called_twice_updates_twice() -> None:
    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm = nn.BatchNorm1d(3)

        def forward(self, x: Tensor) -> Tensor:
            return self.norm(self.norm(x) * 2 + x)

    _compare(from_module(Twice(), lambda seed: (tensor(4, 3),), "twice"), 4)


def test_a_rule_that_needs_numbers_gets_them() -> None:
    work = from_module(nn.Sequential(nn.Conv1d(2, 2, 3), nn.AdaptiveAvgPool1d(2)), lambda seed: (tensor(1, 2, 7),), "pooled")
    _compare(work, 4)
