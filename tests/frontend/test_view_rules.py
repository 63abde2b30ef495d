from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch.nn import functional as F
from torch_agreement import agree, shape_text, sizes_of, tensor

from steptp.errors import FrontendError
from steptp.ir import ix, print_program

Fn = Callable[..., object]

VIEWS: tuple[Fn, ...] = (
    lambda z: (z.view(6, 5), z.reshape(2, 15), z.reshape(-1), z.flatten(1), z.reshape(3, 10), z.reshape(5, 3, 2), z.unflatten(2, (5, 1))),
    lambda z: (z.permute(2, 0, 1), z.transpose(0, 1), z.mT, z.movedim(0, 2), z.swapaxes(0, 2), z[0].t(), z.permute(2, 0, 1).reshape(10, 3)),
    lambda z: (z.unsqueeze(1), z[:, :, None].squeeze(2), z[:1].squeeze(), z.expand(4, 2, 3, 5), z[:, :, :1].expand(2, 3, 4), z[0, 0]),
    lambda z: (z[:, 1], z[:, -1], z[:, :2], z[:, 1:], z[:, ::2], z[..., 1:-1], z[:, -2:], z.narrow(2, 1, 3), z[1, :, 2]),
    lambda z: (z.flip(1), z.flip(0, 2), z.roll(1, 2), z.roll((1, 2), (0, 1)), z.roll(2), z.fliplr(), z.rot90(1, (1, 2))),
    lambda z: (z.repeat(2, 1, 2), z.repeat(2, 1, 1, 1), z.tile(2), z.repeat_interleave(2, 1), z.repeat_interleave(3)),
    lambda z: (z.unbind(1)[2], z.chunk(2, 1)[1], z.split(2, 2)[2], z.split([1, 2], 1)[1], z.tensor_split(2, 2)[1]),
    lambda z: (torch.diagonal(z, 0, 1, 2), torch.diagonal(z, 1, 1, 2), torch.diagonal(z, -1, 1, 2), z.unfold(2, 3, 2), z.unfold(1, 2, 1)),
    lambda z: (torch.as_strided(z, (2, 3), (15, 5)), torch.as_strided(z, (3, 3), (1, 2), 4)),
    lambda z: (z.tril(), z.triu(1), z.tril(-1), z[0, :, :3].tril() + torch.eye(3)),
)


@pytest.mark.parametrize("fn", VIEWS)
def test_views_agree(fn: Fn) -> None:
    agree(fn, tensor(2, 3, 5))


JOINS: tuple[Fn, ...] = (
    lambda x, y: (torch.cat([x, y], 1), torch.cat([x, y[:1]], 0), torch.stack([x, y], 1), torch.stack([x, y], -1), torch.cat([x.long(), y])),
    lambda x, y: (F.pad(x, (1, 2)), F.pad(x, (1, 0, 0, 2), value=3.0), F.pad(x, (-1, 1)), F.pad(x, (0, 0, -1, -1))),
    lambda x, y: tuple(F.pad(x[None], (1, 2), mode=mode) for mode in ("reflect", "replicate", "circular")),
    lambda x, y: (torch.slice_scatter(x, y[:, :1], 1, 1, 2), torch.select_scatter(x, y[0], 0, 1), torch.slice_scatter(x, y[:, :2], 1, 0, 3, 2)),
)


@pytest.mark.parametrize("fn", JOINS)
def test_joins_agree(fn: Fn) -> None:
    agree(fn, tensor(3, 3), tensor(3, 3, seed=1))


def test_creation_agrees() -> None:
    agree(
        lambda x: (
            torch.zeros_like(x), torch.ones(2, 3), torch.full((2, 2), 3.5), torch.arange(5) + 0, torch.arange(1, 7, 2) * 1.5, torch.eye(3) + x,
            torch.linspace(0, 1, 5), torch.linspace(-1, 1, 4), torch.arange(x.shape[0]).float(), x.clone(), torch.full_like(x, 7), x.new_zeros(2),
            x.double(), x.long(), x.bool(), x.half(), torch.arange(0, 1, 0.25), x.contiguous(), torch.scalar_tensor(2.0) * x, torch.eye(2, 3),
        ),
        tensor(3, 3),
    )  # fmt: skip


def test_look_ups_agree_and_declare_ranges() -> None:
    table, x = tensor(4, 3), tensor(3, 3, seed=1)
    i, j = torch.tensor([[1, 3], [0, 2]]), torch.tensor([[0, 2, 1], [1, 0, 0], [2, 2, 1]])
    program = agree(
        lambda t, i, x, j: (F.embedding(i, t), t.index_select(0, i[0]), torch.gather(x, 1, j), x[j[:, 0]], x[:, j[0]], x[j, j], t[i]), table, i, x, j
    )
    assert next(b.range for b in program.inputs if b.name == "i") == (ix(0), ix(4))
    agree(lambda i, x, j: (F.one_hot(i, 4), x[j[0], :, None], x[None, :, j[0]], torch.take_along_dim(x, j, 0), x[j[0], j]), i, x, j)
    agree(lambda z, j: (z[j[:2, 0], :, j[:2, 1]], z[:, j[0], j[1]]), tensor(3, 4, 5), j)


def test_a_mask_as_an_index_is_refused() -> None:
    with pytest.raises(FrontendError) as caught:
        agree(lambda x: x[x > 0], tensor(3))
    assert caught.value.code == "frontend-control-flow"


def test_merged_dims_keep_affine_indices() -> None:
    text = print_program(agree(lambda x, w: F.linear(x.flatten(1), w), tensor(2, 3, 4, 5), tensor(6, 60, seed=1), sizes="auto"))
    assert "//" not in text
    assert "%" not in text
    assert "w[j,k*H*W+l*W+p]" in text


def test_split_and_merged_heads_keep_affine_indices() -> None:
    def fn(x):
        heads = x.view(x.shape[0], x.shape[1], 2, x.shape[2] // 2).transpose(1, 2)
        return (heads @ heads.transpose(2, 3) @ heads).transpose(1, 2).reshape(x.shape)

    text = print_program(agree(fn, tensor(2, 3, 4), other=(tensor(1, 5, 6),), factor=4))
    assert "//" not in text
    assert "%" not in text


def test_parts_of_a_chunk_are_a_size() -> None:
    program = agree(lambda x: x.chunk(2, 1)[0] * x.chunk(2, 1)[1], tensor(3, 4), other=(tensor(2, 8),))
    assert program.constraints == ()
    assert sizes_of(program) == "M=2 N=3"
    assert shape_text(program, "x") == "N,2*M"


@pytest.mark.parametrize("shape", [(3, 3, 3), (2, 4, 6), (1, 5, 1), (4, 1, 3)])
def test_reshapes_of_many_shapes_agree(shape: tuple[int, int, int]) -> None:
    a, b, c = shape
    agree(
        lambda z: (z.reshape(a * b, c), z.reshape(c, a * b), z.reshape(a, c, b).reshape(-1), z.permute(1, 0, 2).reshape(a, b * c), z[:, None].squeeze(1)),
        tensor(*shape),
    )
