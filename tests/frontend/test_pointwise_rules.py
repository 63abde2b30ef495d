from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F
from torch_agreement import agree, tensor

from steptp.frontend.registry import rules
from steptp.ir import print_program

Fn = Callable[..., object]

ARITHMETIC: tuple[Fn, ...] = (
    lambda x, y: (x + y, x - y, x * y, x / y, x + 2, 2 - x, x * 0.1, x / 3, 1 / x),
    lambda x, y: (torch.add(x, y, alpha=2), torch.sub(x, y, alpha=0.5), torch.rsub(x, y, alpha=3), x * x.shape[0], x / x.shape[1] ** 0.5),
    lambda x, y: (x // y, x % 2.5, torch.fmod(x, 0.7), torch.div(x, y, rounding_mode="trunc"), torch.remainder(x, y)),
    lambda x, y: (x**2, x**3, x.abs() ** 0.5, x**-1, x.abs() ** 1.7, 2**x, x.abs() ** y, x.square(), x**0),
    lambda x, y: (-x, abs(x), x.sign(), x.floor(), x.ceil(), (x * 4).round(), x.trunc(), x.frac()),
    lambda x, y: (torch.addcmul(x, x, y, value=2), torch.addcdiv(x, x, y), torch.lerp(x, y, 0.3), torch.lerp(x, y, x)),
    lambda x, y: (torch.maximum(x, y), torch.minimum(x, y), x.clamp(-0.5, 0.5), x.clamp(min=0), x.clamp(max=y), torch.clamp(x, y, y + 1)),
    lambda x, y: (x < y, x >= 0.5, x == y, x != y, x > 0, x <= y, (x > 0) & (y > 0), (x > 0) | (y > 0), ~(x > 0), (x > 0) ^ (y > 0)),
    lambda x, y: (torch.logical_and(x, y), torch.logical_or(x, y), torch.logical_xor(x, y), torch.logical_not(x)),
    lambda x, y: (torch.where(x > 0, x, y), torch.where(x > 0, x, 0.0), torch.where(x > 0, 1, 0), x.masked_fill(y > 0, -1e4)),
)

FUNCTIONS: tuple[Fn, ...] = (
    lambda p: (p.exp(), p.log(), p.log1p(), p.expm1(), p.sqrt(), p.rsqrt(), p.reciprocal(), p.tanh(), p.sigmoid(), p.erf(), p.sin(), p.cos()),
    lambda p: (p.log2(), p.exp2(), p.log10(), p.sinh(), p.cosh(), p.tan(), p.erfc(), (p / 2).logit()),
)

ACTIVATIONS: tuple[Fn, ...] = (
    lambda x: (F.relu(x), F.relu6(x * 9), F.leaky_relu(x, 0.2), F.elu(x, 0.7), F.selu(x), F.celu(x, 0.5), F.silu(x), F.mish(x)),
    lambda x: (F.gelu(x), F.gelu(x, approximate="tanh"), F.hardtanh(x), F.hardtanh(x, -0.2, 0.3), F.softplus(x), F.softplus(x, 2, 0.5)),
    lambda x: (F.hardsigmoid(x * 3), F.hardswish(x * 3), F.softsign(x), F.logsigmoid(x), F.threshold(x, 0.1, 5.0), F.tanhshrink(x)),
    lambda x: (F.hardshrink(x), F.softshrink(x), F.prelu(x, torch.tensor([0.3])), F.glu(x[:, :2]), torch.relu_(x + 1)),
)


@pytest.mark.parametrize("fn", ARITHMETIC)
def test_arithmetic_agrees(fn: Fn) -> None:
    agree(fn, tensor(3, 3), tensor(3, 3, seed=1), other=(tensor(2, 5), tensor(2, 5, seed=1)), factor=2)


@pytest.mark.parametrize("fn", ARITHMETIC[:2])
def test_operands_broadcast(fn: Fn) -> None:
    agree(fn, tensor(3, 4), tensor(4, seed=1))
    agree(fn, tensor(3, 1), tensor(2, 3, 4, seed=1))


@pytest.mark.parametrize("fn", FUNCTIONS)
def test_functions_agree(fn: Fn) -> None:
    agree(fn, tensor(3, 5).abs() + 0.1, factor=2)


@pytest.mark.parametrize("fn", ACTIVATIONS)
def test_activations_agree(fn: Fn) -> None:
    agree(fn, tensor(3, 7), factor=2)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_16_bit_operands_round_once(dtype: torch.dtype) -> None:
    x, y = tensor(3, 5).to(dtype), tensor(3, 5, seed=1).to(dtype)
    for fn in (*ARITHMETIC[:2], ARITHMETIC[5], ARITHMETIC[9]):
        agree(fn, x, y)
    for fn in ACTIVATIONS[:3]:
        agree(fn, x)


def test_a_number_that_f16_cannot_hold_is_not_rounded_first() -> None:
    text = print_program(agree(lambda x: (x * 0.1, x * 0.5), tensor(4).half()))
    assert "f16(f32(x[i])*0.1)" in text
    assert "x[i]*0.5" in text


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64, torch.int8])
def test_integers_promote_as_in_pytorch(dtype: torch.dtype) -> None:
    x = torch.tensor([[3, -7, 5], [1, -2, 4]], dtype=dtype)
    y = torch.tensor([[2, 2, -3], [-4, 3, 1]], dtype=dtype)
    agree(lambda x, y: (x + y, x * y, x - 2, x / y, x // y, x % y, torch.div(x, y, rounding_mode="trunc"), torch.fmod(x, y), x**2), x, y)
    agree(lambda x, y: (x * 0.5, x + 1.5, x.float().exp(), torch.sqrt(x.abs()), x > y, x.clamp(-1, 3), -x, x.abs(), ~x, x.sign(), x.floor()), x, y)


def test_mixed_dtypes_promote() -> None:
    i, f, d, b = torch.tensor([1, 2, 3]), tensor(3), tensor(3).double(), torch.tensor([True, False, True])
    agree(lambda i, f, d, b: (i + f, f * d, b * f, b + i, torch.where(b, i, f), f + torch.tensor(2.0, dtype=torch.float64), b & True), i, f, d, b)


def test_special_values_agree() -> None:
    x = torch.tensor([float("nan"), float("inf"), -float("inf"), 0.0, -0.0, 1.0])
    agree(lambda x: (F.relu(x), x.clamp(-1, 1), x.isnan(), x.isinf(), x.isfinite(), x.sign(), F.hardtanh(x), F.softplus(x), F.leaky_relu(x)), x)
    agree(lambda x: (torch.maximum(x, x.flip(0)), torch.minimum(x, x.flip(0)), x == x, x.exp(), x.tanh(), x.sigmoid()), x[1:])


def test_every_rule_has_an_existing_operator() -> None:
    missing = []
    for name in rules():
        space, op, overload = name.split(".")
        packet = getattr(getattr(torch.ops, space), op, None)
        if packet is None or overload not in packet.overloads():
            missing.append(name)
    assert missing == []


def test_in_place_operators_without_views_translate_as_they_are() -> None:
    def fn(x: Tensor) -> Tensor:
        y = x * 2
        z = torch.relu_(y)
        z += 1
        return y + z

    text = print_program(agree(fn, tensor(3, 3)))
    assert "max(" in text


def test_names_of_one_memory_change_together() -> None:
    def fn(x: Tensor) -> tuple[Tensor, ...]:
        y = x * 2
        z = torch.relu_(y)
        y.add_(3)
        w = z + y
        z.mul_(2)
        return w, y, z

    agree(fn, tensor(3, 3))


def test_in_place_operators_on_views_agree() -> None:
    def fn(x: Tensor) -> Tensor:
        y = x * 2
        y[:, 1] += 5
        y[0] = 7
        return y * x

    agree(fn, tensor(3, 4))
