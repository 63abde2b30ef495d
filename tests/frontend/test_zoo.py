from __future__ import annotations

import numpy as np
import pytest
import torch
from torch_agreement import assert_close

from steptp.errors import UsageError
from steptp.frontend import load_workload, zoo
from steptp.frontend.zoo.entry import Spec
from steptp.interp import evaluate
from steptp.ir import check, parse, print_program, shape_of

SAMPLE = (
    "matmul", "matmul_ta", "matmul_upper", "tensor4_matmul", "gelu", "silu_bf16", "softmax_f16", "batch_norm_running", "group_norm", "argmax_middle",
    "int_matmul", "conv2d_grouped", "conv_transpose2d_strided", "max_pool2d", "avg_pool2d_ceil_valid", "cumprod", "cross_entropy_loss", "triplet_loss",
    "attention_causal", "gemm_swish_bias_group_norm", "embedding", "dequantized_matmul",
)  # fmt: skip


def _agrees(name: str) -> None:
    """The program is valid, prints and parses back, and computes what PyTorch does."""
    work = zoo.get(name, "tiny")
    program = work.program
    check(program)
    assert parse(print_program(program)) == program
    inputs = work.example_inputs(3)
    got, want = evaluate(program, inputs), work.reference(inputs)
    assert set(got) == set(want)
    for buffer in program.outputs:
        assert_close(got[buffer.name], want[buffer.name], buffer.dtype, 2)


@pytest.mark.parametrize("name", SAMPLE)
def test_a_sample_agrees_with_pytorch(name: str) -> None:
    _agrees(name)


@pytest.mark.slow
@pytest.mark.parametrize("name", zoo.names("tiny"))
def test_every_workload_agrees_with_pytorch(name: str) -> None:
    _agrees(name)


@pytest.mark.slow
def test_there_are_enough_skeletons() -> None:
    skeletons = {zoo.skeleton_hash(zoo.get(name, "tiny").program) for name in zoo.names()}
    assert len(zoo.names()) >= 80
    assert len(skeletons) >= 40


def test_every_entry_has_small_and_timed_sizes() -> None:
    assert len(zoo.names()) >= 80
    assert sum(map(len, zoo.families().values())) == len(zoo.names())
    for name in zoo.names():
        assert {"tiny", "mini"} <= set(zoo.spec(name).presets), name
        assert max(_dims(zoo.spec(name), "tiny")) <= 16, name


def test_level1_fits_in_64_megabytes() -> None:
    for name in zoo.names("level1"):
        assert _bytes(zoo.spec(name), "level1") <= 64 << 20, name


def _dims(spec: Spec, preset: str) -> list[int]:
    made = spec.case(preset)
    return [d for t in (*made.args, *made.module.parameters()) for d in t.shape] or [1]


def _bytes(spec: Spec, preset: str) -> int:
    made, dtype = spec.case(preset), spec.preset(preset).dtype
    inputs = sum(int(np.prod(a.shape)) * a.torch_dtype(dtype).itemsize for a in made.args)
    return inputs + sum(p.numel() * p.element_size() for p in made.module.parameters())


def test_published_workloads_have_the_published_shapes() -> None:
    work = zoo.get("conv2d", "published")
    assert zoo.spec("conv2d").published == "conv_standard_2D__asymmetric_input__square_kernel"
    assert [shape_of(b.shape, work.program) for b in work.program.inputs] == [(16, 3, 128, 256), (64, 3, 3, 3)]
    assert {str(b.dtype) for b in work.program.inputs} == {"f16"}
    names = [zoo.spec(n).published for n in zoo.names("published")]
    assert len(names) == len(set(names)) == 55


def test_values_are_seeded_and_parameters_are_not_neutral() -> None:
    work = zoo.get("layer_norm", "tiny")
    first, again, other = work.example_inputs(1), work.example_inputs(1), work.example_inputs(2)
    assert all(np.array_equal(first[k], again[k]) for k in first)
    assert not np.array_equal(first["input"], other["input"])
    assert 0.4 < first["weight"].min() <= first["weight"].max() < 1.6
    assert not np.any(first["weight"] == 1)
    assert not np.any(first["bias"] == 0)


def test_a_workload_is_built_once_and_spelled_for_the_command_line() -> None:
    assert zoo.get("matmul", "tiny") is zoo.get("matmul@tiny") is load_workload("zoo:matmul@tiny")
    assert load_workload("zoo:relu").source == "zoo:relu@mini"


def test_unknown_names_are_user_errors() -> None:
    with pytest.raises(UsageError) as caught:
        zoo.get("matmull")
    assert caught.value.code == "usage-workload"
    assert "matmul" in caught.value.hint
    with pytest.raises(UsageError) as caught:
        zoo.get("matmul", "huge")
    assert caught.value.code == "usage-preset"
    assert "mini" in caught.value.hint


def test_building_a_case_leaves_pytorch_random_state_alone() -> None:
    torch.manual_seed(5)
    before = torch.random.get_rng_state()
    zoo.get("mlp", "tiny").example_inputs(0)
    assert torch.equal(before, torch.random.get_rng_state())
