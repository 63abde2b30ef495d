from __future__ import annotations

import pytest
import torch
from torch_agreement import agree, tensor

from steptp.ir import print_program


@pytest.mark.parametrize("dim", [0, 1, -1])
@pytest.mark.parametrize("name", ["cumsum", "cumprod"])
def test_running_sums_and_products_agree(name: str, dim: int) -> None:
    agree(lambda x: getattr(torch, name)(x, dim), tensor(3, 4, 5), factor=2)


def test_one_element_and_one_dim_agree() -> None:
    agree(lambda x: torch.cumsum(x, 0), tensor(7))
    agree(lambda x: torch.cumsum(x, 1), tensor(3, 1))
    agree(lambda x: torch.cumprod(x, 0), tensor(1, 4))


def test_integers_and_bools_accumulate_as_i64() -> None:
    program = agree(lambda x: torch.cumsum(x, 1), torch.arange(12, dtype=torch.int32).reshape(3, 4))
    assert str(program.outputs[0].dtype) == "i64"
    agree(lambda x: torch.cumsum(x > 0, 0), tensor(4, 3))


def test_16_bit_running_values_stay_in_f32() -> None:
    x = torch.full((2, 400), 0.1, dtype=torch.float16)
    text = print_program(agree(lambda x: torch.cumsum(x, 1), x))
    assert "tmp s f32" in text
    agree(lambda x: torch.cumsum(x, 0, dtype=torch.float32), tensor(3, 4, dtype=torch.bfloat16))


def test_nan_and_infinity_go_through() -> None:
    x = tensor(2, 5)
    x[0, 2], x[1, 1], x[1, 3] = float("nan"), float("inf"), -float("inf")
    agree(lambda x: torch.cumsum(x, 1), x)


def test_a_scan_is_one_serial_nest() -> None:
    text = print_program(agree(lambda x: torch.cumsum(x, 1), tensor(3, 4), other=[tensor(2, 6)]))
    body = text.strip().split("\n")[-1]
    name = body.split("[")[0].split()[-1]
    assert body.endswith(f"{name}[i,j]=select(j>0,{name}[i,j-1],0)+x[i,j]")


def test_chains_of_scans_agree() -> None:
    agree(lambda x: torch.cumsum(x.flip(1), 1).flip(1), tensor(3, 5))
    agree(lambda x: torch.cumsum(torch.cumsum(x, 0), 1), tensor(4, 3))
