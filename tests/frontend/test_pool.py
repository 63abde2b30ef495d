from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F
from torch_agreement import agree, tensor

from steptp.ir import print_program

INF = float("inf")


@pytest.mark.parametrize(
    ("size", "kernel", "stride", "padding", "dilation", "ceil"),
    [
        ((7,), 3, None, 0, 1, False), ((8,), 3, 2, 1, 2, False), ((6,), 2, 2, 1, 1, True), ((9,), 4, 3, 2, 1, True),
        ((6, 7), 2, None, 0, 1, False), ((5, 6), (3, 2), (2, 1), (1, 0), (1, 2), False), ((6, 6), 3, 2, 0, 1, True), ((5, 5), 3, 2, 1, 1, True),
        ((4, 5, 3), 2, 1, 1, 1, False), ((4, 5, 6), (2, 3, 1), (2, 1, 3), (1, 1, 0), 1, True),
    ],
)  # fmt: skip
def test_max_pool_agrees(size, kernel, stride, padding, dilation, ceil) -> None:
    apply = {1: F.max_pool1d, 2: F.max_pool2d, 3: F.max_pool3d}[len(size)]
    agree(lambda x: apply(x, kernel, stride, padding, dilation, ceil), tensor(2, 3, *size))


def test_max_pool_keeps_nan_and_infinity() -> None:
    x = tensor(1, 2, 6, 6)
    x[0, 0, 1, 1], x[0, 1, 2, 3], x[0, 1, 5, 5] = float("nan"), INF, -INF
    agree(lambda x: F.max_pool2d(x, 2), x)


@pytest.mark.parametrize("padding", [0, 1])
def test_max_pool_positions_agree(padding: int) -> None:
    x = torch.randint(0, 3, (2, 2, 6, 5), generator=torch.Generator().manual_seed(1)).float()  # many ties
    x[0, 1, 2, 2] = float("nan")
    x[1, 0, 0, :] = -INF
    agree(lambda x: F.max_pool2d(x, 3, 2, padding, return_indices=True), x)
    agree(lambda x: F.max_pool2d(x, 2, return_indices=True)[1], x)


@pytest.mark.parametrize(
    ("size", "kernel", "stride", "padding", "ceil", "include"),
    [
        ((7,), 3, 2, 1, False, True), ((6,), 3, 2, 0, True, True), ((8,), 4, 3, 2, True, False), ((5,), 2, None, 1, False, False),
        ((6, 7), 3, None, 0, False, True), ((5, 6), (3, 2), (1, 2), (1, 0), False, False), ((6, 6), 3, 2, 1, True, True), ((7, 5), 3, 2, 1, True, False),
        ((4, 4, 5), 3, 2, 1, False, True), ((3, 4, 5), (2, 2, 3), 2, (0, 1, 1), True, False),
    ],
)  # fmt: skip
def test_avg_pool_agrees(size, kernel, stride, padding, ceil, include) -> None:
    apply = {1: F.avg_pool1d, 2: F.avg_pool2d, 3: F.avg_pool3d}[len(size)]
    agree(lambda x: apply(x, kernel, stride, padding, ceil, include), tensor(2, 3, *size))


def test_avg_pool_divisor_override_agrees() -> None:
    agree(lambda x: F.avg_pool2d(x, 3, 2, 1, divisor_override=7), tensor(2, 2, 6, 5))
    agree(lambda x: F.avg_pool3d(x, 2, 1, divisor_override=3), tensor(1, 2, 3, 4, 3))


@pytest.mark.parametrize(("size", "out"), [((7,), 3), ((6,), 6), ((5,), 1), ((6, 8), (3, 4)), ((5, 7), (2, 3)), ((4, 6), (1, None)), ((4, 5, 6), 2)])
def test_adaptive_avg_pool_agrees(size, out) -> None:
    apply = {1: F.adaptive_avg_pool1d, 2: F.adaptive_avg_pool2d, 3: F.adaptive_avg_pool3d}[len(size)]
    agree(lambda x: apply(x, out), tensor(2, 3, *size))


def test_equal_adaptive_windows_are_plain_loops() -> None:
    text = print_program(agree(lambda x: F.adaptive_avg_pool2d(x, (3, 2)), tensor(2, 2, 6, 8)))
    assert "x[i,j,2*k+p,4*l+q]" in text
    assert "//" not in text


def test_unbatched_pooling_agrees() -> None:
    agree(lambda x: F.max_pool2d(x, 2), tensor(3, 4, 6))
    agree(lambda x: F.avg_pool2d(x, 2, padding=1), tensor(3, 4, 6))


def test_16_bit_averages_are_summed_in_f32() -> None:
    assert "tmp s f32" in print_program(agree(lambda x: F.avg_pool2d(x, 4), tensor(2, 2, 8, 8, dtype=torch.float16)))
    agree(lambda x: F.max_pool2d(x, 2), tensor(2, 2, 4, 4, dtype=torch.bfloat16))


def test_programs_follow_other_sizes() -> None:
    agree(lambda x: F.max_pool2d(x, 3, 2, 1), tensor(2, 3, 6, 7), other=[tensor(3, 2, 9, 5)])
    agree(lambda x: F.avg_pool2d(x, 3, 2, 1, ceil_mode=True, count_include_pad=False), tensor(2, 3, 6, 7), other=[tensor(3, 2, 9, 8)])
    agree(lambda x: F.adaptive_avg_pool2d(x, 3), tensor(2, 3, 6, 7), other=[tensor(3, 2, 8, 5)])


def test_padding_is_a_guarded_read_only_where_it_can_happen() -> None:
    plain = print_program(agree(lambda x: F.max_pool2d(x, 2), tensor(2, 2, 6, 6)))
    assert "select" not in plain
    padded = print_program(agree(lambda x: F.max_pool1d(x, 3, 2, 1), tensor(2, 2, 6)))
    assert "max=select(0<=2*k+l-1<6,x[i,j,2*k+l-1],-inf)" in padded
