from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch_agreement import agree, tensor

from steptp.ir import DType, print_program

Fn = Callable[..., object]

REDUCTIONS: tuple[Fn, ...] = (
    lambda z: (z.sum(), z.sum(1), z.sum((0, 2)), z.sum(-1, keepdim=True), z.mean(), z.mean(-1, keepdim=True), z.mean((1, 2))),
    lambda z: (z.var(1), z.std(2, keepdim=True), z.var(dim=(0, 1), unbiased=False), z.var(), *torch.var_mean(z, 1), *torch.std_mean(z, 2, correction=0)),
    lambda z: (z.amax(1), z.amin((1, 2)), z.max(), z.min(), *z.max(1), *z.min(2, keepdim=True), z.argmax(1), z.argmin(), z.argmax(2, keepdim=True)),
    lambda z: (z.prod(1), (z > 0).any(), (z > 0).all(1), (z > 0).any(1, keepdim=True), (z > 0).sum(1), z.count_nonzero(1), (z > 0).any((0, 1)), z.bool().all()),
    lambda z: (z.norm(), z.norm(dim=1), z.norm(p=1, dim=2), torch.linalg.vector_norm(z, ord=float("inf"), dim=1), torch.linalg.vector_norm(z, ord=3, dim=1)),
    lambda z: (torch.linalg.vector_norm(z, ord=0, dim=1), torch.linalg.vector_norm(z, -float("inf"), 2), torch.norm(z[0], p="fro"), F.normalize(z, dim=1)),
    lambda z: (torch.logsumexp(z, 1), torch.logsumexp(z, (0, 2), keepdim=True), z.softmax(1), z.log_softmax(-1), F.softmin(z, 1), z.sum(1).softmax(0)),
)


@pytest.mark.parametrize("fn", REDUCTIONS)
def test_reductions_agree(fn: Fn) -> None:
    agree(fn, tensor(2, 3, 3), other=(tensor(3, 5, 2),), factor=2)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_16_bit_reductions_accumulate_in_f32(dtype: torch.dtype) -> None:
    for fn in (REDUCTIONS[0], REDUCTIONS[2], REDUCTIONS[6]):
        agree(fn, tensor(2, 3, 3).to(dtype))
    program = agree(lambda z: z.sum(1), tensor(2, 64).to(dtype))
    assert [(t.name, t.dtype) for t in program.tmps] == [("s", DType.F32)]


def test_integer_and_unit_reductions_agree() -> None:
    agree(lambda x: (x.sum(1), x.prod(0), x.amax(1), x.argmin(1), x.sum(), x.float().mean()), torch.tensor([[3, -2, 2], [4, 4, 1]]))
    agree(lambda x: (x.sum(1), x.mean(0), x.amax(1), x.sum(), x.softmax(1)), tensor(3, 1))
    agree(lambda x: (x.sum(), x.mean(), x.softmax(0), x.max()), tensor())


def test_extremes_with_ties_and_nan_agree() -> None:
    nan, inf = float("nan"), float("inf")
    x = torch.tensor([[1.0, 3.0, 3.0], [2.0, nan, 5.0], [-inf, -inf, -inf], [inf, 1.0, inf], [0.0, -0.0, 0.0]])
    agree(lambda x: (*x.max(1), *x.min(1), x.argmax(1), x.argmin(1), x.amax(1), x.amin(), x.argmax()), x)
    agree(lambda x: (x.logsumexp(1),), torch.tensor([[-inf, -inf], [inf, 1.0], [0.0, -inf]]))
    agree(lambda x: (x.softmax(1), x.log_softmax(1)), torch.tensor([[-inf, 0.0], [3.0, -inf], [90.0, -90.0]]))


def test_means_follow_a_rebinding() -> None:
    text = print_program(agree(lambda x: x.mean(1), tensor(3, 3), other=(tensor(2, 7),)))
    assert "f32(K)" in text


PRODUCTS: tuple[Fn, ...] = (
    lambda x, y, z, v: (x @ y, torch.mm(x, y.t()), torch.bmm(z, z.transpose(1, 2)), torch.matmul(z.transpose(1, 2), x), torch.mv(x, v), torch.dot(v, v)),
    lambda x, y, z, v: (x @ v, v @ x, v @ v, torch.outer(v, v), torch.matmul(v, z), torch.matmul(x, z), torch.kron(x, y), z.mT[:, None] @ z[None]),
    lambda x, y, z, v: (torch.addmm(x, x, y, beta=0.5, alpha=2), torch.addmm(v, x, y), torch.baddbmm(x[None], z, z.transpose(1, 2)), torch.addmv(v, x, v)),
    lambda x, y, z, v: (torch.addbmm(x, z, z.transpose(1, 2)), torch.addr(x, v, v), F.linear(x, y, v), F.linear(z.transpose(1, 2), x), F.linear(v, y)),
    lambda x, y, z, v: (torch.einsum("bik,bjk->bij", z, z), torch.einsum("ij,ij->", x, y), torch.einsum("...ij,jk->...ik", z.mT, x), torch.einsum("ii->i", x)),
    lambda x, y, z, v: (
        torch.einsum("i,j,k->ijk", v, v, v),
        torch.einsum("ij,jk", x, y),
        torch.einsum("ii", x),
        torch.einsum("ba", x),
        torch.einsum("bij->i", z),
    ),
)


@pytest.mark.parametrize("fn", PRODUCTS)
def test_products_agree(fn: Fn) -> None:
    agree(fn, tensor(3, 3), tensor(3, 3, seed=1), tensor(2, 3, 5, seed=2), tensor(3, seed=3), factor=4)


def test_products_follow_a_rebinding() -> None:
    agree(lambda x, y: x @ y, tensor(3, 3), tensor(3, 3, seed=1), other=(tensor(2, 5), tensor(5, 4, seed=1)), factor=4)
    agree(
        lambda x, w, b: F.linear(x, w, b), tensor(2, 3, 4), tensor(4, 4, seed=1), tensor(4, seed=2), other=(tensor(1, 5, 2), tensor(3, 2), tensor(3)), factor=4
    )


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_products_of_other_dtypes_agree(dtype: torch.dtype) -> None:
    agree(
        lambda x, y, v: (x @ y, F.linear(x, y, v), torch.einsum("ij,kj->ik", x, y)),
        tensor(3, 5).to(dtype),
        tensor(5, 5, seed=1).to(dtype),
        tensor(5).to(dtype),
        factor=2,
    )


NORMS: tuple[Fn, ...] = (
    lambda z, q, w, u: (F.layer_norm(z, (5,), torch.ones(5) * 2, torch.ones(5)), F.layer_norm(z, (3, 5)), F.rms_norm(z, (5,)), F.rms_norm(z, (5,), eps=0.1)),
    lambda z, q, w, u: (F.group_norm(q, 2), F.group_norm(q, 4, u[:1].expand(4), w[:1].expand(4)), F.group_norm(q, 1), F.instance_norm(z), F.instance_norm(q)),
    lambda z, q, w, u: (F.batch_norm(z, w, u, training=False), F.batch_norm(z, w, u, u, w, training=False), F.batch_norm(z, None, None, training=True)),
)


@pytest.mark.parametrize("fn", NORMS)
def test_normalisations_agree(fn: Fn) -> None:
    agree(fn, tensor(2, 3, 5), tensor(2, 4, 3, seed=1), tensor(3, seed=2), tensor(3, seed=3).abs() + 0.5, factor=4)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_16_bit_normalisations_agree(dtype: torch.dtype) -> None:
    agree(lambda z: (F.layer_norm(z, (5,)), F.rms_norm(z, (5,)), F.group_norm(z, 1), z.softmax(1)), tensor(2, 3, 5).to(dtype))


@pytest.mark.parametrize("groups", [1, 2, 4])
def test_group_norm_follows_a_rebinding(groups: int) -> None:
    agree(lambda x: F.group_norm(x, groups), tensor(2, 8, 4), other=(tensor(3, 16, 2),), factor=4)


def test_batch_norm_in_eval_mode_agrees() -> None:
    agree(nn.BatchNorm2d(3).eval(), tensor(2, 3, 3, 4), factor=2)
