from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch_agreement import agree, tensor

from steptp.ir import eval_size, print_program
from steptp.ir.walk import stores

CASES = [
    # channels in, out, kernel, input, stride, padding, dilation, groups, bias
    (3, 4, (3,), (7,), (1,), (0,), (1,), 1, False),
    (2, 3, (4,), (9,), (2,), (3,), (1,), 1, True),
    (4, 6, (3,), (8,), (3,), (1,), (2,), 2, True),
    (3, 3, (2,), (5,), (1,), (1,), (3,), 3, False),
    (1, 1, (1,), (1,), (1,), (0,), (1,), 1, True),
    (3, 2, (3, 3), (5, 5), (1, 1), (0, 0), (1, 1), 1, True),
    (2, 2, (3, 2), (6, 5), (2, 1), (1, 0), (1, 2), 1, False),
    (4, 8, (1, 3), (3, 6), (1, 2), (0, 2), (1, 1), 4, True),
    (3, 6, (3, 3), (4, 7), (2, 3), (2, 1), (2, 1), 3, False),
    (2, 3, (2, 3, 1), (4, 5, 2), (1, 2, 1), (1, 1, 0), (2, 1, 1), 1, True),
    (4, 2, (2, 2, 2), (3, 3, 4), (2, 2, 2), (0, 1, 0), (1, 1, 1), 2, False),
]


@pytest.mark.parametrize(("cin", "cout", "kernel", "size", "stride", "padding", "dilation", "groups", "bias"), CASES)
def test_convolution_agrees(cin, cout, kernel, size, stride, padding, dilation, groups, bias) -> None:
    apply = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}[len(kernel)]
    x, w = tensor(2, cin, *size), tensor(cout, cin // groups, *kernel, seed=1)
    shift = [tensor(cout, seed=2)] if bias else []
    agree(lambda x, w, *b: apply(x, w, *(b or (None,)), stride, padding, dilation, groups), x, w, *shift)


TRANSPOSED = [
    (3, 2, (3,), (5,), (1,), (0,), (0,), (1,), 1, True),
    (2, 3, (3,), (4,), (2,), (1,), (1,), (1,), 1, False),
    (4, 2, (2,), (4,), (3,), (0,), (2,), (2,), 2, True),
    (2, 3, (3, 2), (3, 4), (2, 1), (1, 0), (1, 0), (1, 1), 1, True),
    (4, 1, (2, 3), (3, 3), (1, 2), (0, 2), (0, 1), (2, 1), 4, False),
    (2, 2, (2, 1, 3), (2, 3, 2), (2, 1, 2), (0, 0, 1), (0, 0, 1), (1, 1, 1), 1, True),
]


@pytest.mark.parametrize(("cin", "cout", "kernel", "size", "stride", "padding", "extra", "dilation", "groups", "bias"), TRANSPOSED)
def test_transposed_convolution_agrees(cin, cout, kernel, size, stride, padding, extra, dilation, groups, bias) -> None:
    apply = {1: F.conv_transpose1d, 2: F.conv_transpose2d, 3: F.conv_transpose3d}[len(kernel)]
    x, w = tensor(2, cin, *size), tensor(cin, cout, *kernel, seed=1)
    shift = [tensor(cout * groups, seed=2)] if bias else []
    agree(lambda x, w, *b: apply(x, w, *(b or (None,)), stride, padding, extra, groups, dilation), x, w, *shift)


@pytest.mark.parametrize("dilation", [1, 2])
@pytest.mark.parametrize("kernel", [1, 2, 3, 4])
def test_same_padding_agrees(kernel: int, dilation: int) -> None:
    agree(lambda x, w: F.conv1d(x, w, padding="same", dilation=dilation), tensor(2, 2, 9), tensor(3, 2, kernel, seed=1))


def test_valid_padding_and_unbatched_input_agree() -> None:
    agree(lambda x, w: F.conv2d(x, w, padding="valid"), tensor(2, 3, 4, 5), tensor(2, 3, 2, 3, seed=1))
    agree(lambda x, w: F.conv2d(x, w, padding=1), tensor(3, 4, 5), tensor(2, 3, 2, 3, seed=1))


def test_16_bit_convolution_accumulates_in_f32_and_rounds_once() -> None:
    program = agree(nn.Conv2d(3, 4, 3, padding=1).half(), tensor(2, 3, 5, 4, dtype=torch.float16))
    text = print_program(program)
    assert text.count("f16(") == 1
    assert "tmp c f32" in text
    agree(nn.Conv1d(3, 4, 3).bfloat16(), tensor(2, 3, 6, dtype=torch.bfloat16))


def test_a_program_follows_other_sizes() -> None:
    program = agree(
        lambda x, w: F.conv2d(x, w, stride=(2, 1), padding=(1, 2)), tensor(2, 3, 6, 5), tensor(4, 3, 3, 2, seed=1),
        other=[tensor(3, 2, 9, 4), tensor(5, 2, 2, 4, seed=3)],
    )  # fmt: skip
    assert [s.value for s in program.sizes if s.expr is None][:4] == [2, 3, 6, 5]
    agree(lambda x, w: F.conv_transpose1d(x, w, stride=2), tensor(2, 3, 5), tensor(3, 2, 4, seed=1), other=[tensor(3, 2, 7), tensor(2, 3, 3, seed=4)])


def test_naive_loop_order_and_padding_as_a_guarded_read() -> None:
    program = agree(lambda x, w: F.conv2d(x, w, padding=1), tensor(2, 3, 4, 5), tensor(2, 3, 3, 3, seed=1))
    (met,) = stores(program)
    assert [eval_size(loop.extent, program) for loop in met.loops] == [2, 2, 4, 5, 3, 3, 3]
    text = print_program(program)
    assert "+=select(0<=k+q-1<4 and 0<=l+r-1<5,x[i,p,k+q-1,l+r-1],0)*w[j,p,q,r]" in text


def test_groups_keep_indices_affine() -> None:
    text = print_program(agree(lambda x, w: F.conv1d(x, w, groups=2), tensor(2, 4, 5), tensor(6, 2, 3, seed=1)))
    assert "//" not in text
    assert "%" not in text
