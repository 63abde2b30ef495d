"""First weights with which a decoder looks up what followed before.

To repeat a line of the question with one change, a model must find the place where the last tokens stood before and take what came next: induction heads (Olsson et al. 2022,
"In-context learning and induction heads"). Gradient descent finds them late, all at once, and then the rest of the task goes fast; here they are put in place beforehand, as far as the
architecture allows (cf. Trockman & Kolter 2023, "Mimetic initialization of self-attention layers"):

* embeddings fill the first half of the residual stream; a constant in its last four places opens the gates of convolutions;
* the first convolution writes a code of the token before into the third quarter, the second one of the token before that into the fourth;
* half of the heads of the first attention layer look for places whose two codes are those of the current token and the one before, in the half of their dimensions that rotates slowly, and copy the token there.

Everything else is random, and everything is trained.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from torch import Tensor

    from steptp.train.config import Decoder

__all__ = ["put_in_place"]

_TOKEN, _CONSTANT = 0.02, 0.06
"""Of embeddings: standard deviation, and what stands in the constant places."""
_CONSTANTS = 4
_SHARPNESS = 2.5
"""Of the norms of queries and keys in the attention layer: a full match scores about 35."""
_AHEAD = 3.0
"""How loud a copied token is beside the current one."""
_QUIET = 0.04
"""How loud random layers begin."""


@torch.no_grad()
def put_in_place(model: Any, shape: Decoder) -> None:
    """Give an LFM2 of two or more convolutions before its first attention the weights above, from the current state of the random generator."""
    width, half, quarter = shape.width, shape.width // 2, shape.width // 4
    older = quarter - _CONSTANTS
    _random(model)
    embedding = model.get_input_embeddings().weight
    embedding.zero_()
    embedding[:, :half] = torch.randn(len(embedding), half) * _TOKEN
    embedding[:, width - _CONSTANTS :] = _CONSTANT
    size = ((half * _TOKEN**2 + _CONSTANTS * _CONSTANT**2) / width) ** 0.5  # what the norm before a layer divides by
    code = _orthogonal(half)[:quarter]
    for layer, rows, first, distance in ((0, code, half, 1), (1, code[:older], half + quarter, 2)):
        _write_code(model.model.layers[layer].conv, rows, first, distance, size)
    _look_up(model.model.layers[shape.attention_every - 1].self_attn, shape, code, size)


def _orthogonal(size: int) -> Tensor:
    made: Tensor = torch.linalg.qr(torch.randn(size, size))[0]
    return made


def _random(model: Any) -> None:
    """Matrices by their fan-in, quiet where they write to the residual stream; convolutions that let through about as much as they get."""
    for name, weight in model.named_parameters():
        if weight.ndim == 2:
            weight.normal_(0, 0.5 * weight.shape[1] ** -0.5)
            if name.endswith(("out_proj.weight", "w2.weight")):
                weight.mul_(_QUIET)
        elif weight.ndim == 3:
            weight.uniform_(-(weight.shape[2] ** -0.5), weight.shape[2] ** -0.5)


def _write_code(convolution: Any, rows: Tensor, first: int, distance: int, size: float) -> None:
    """The first channels carry ``rows`` times the token ``distance`` before to the residual stream from ``first`` on."""
    count, half = rows.shape
    width = 2 * half
    gates = convolution.in_proj.weight
    for part in (0, width):  # the gates before and after, open: 1 from the constant
        gates[part : part + count] = 0
        gates[part : part + count, width - _CONSTANTS :] = size / (_CONSTANTS * _CONSTANT)
    gates[2 * width : 2 * width + count] = 0
    gates[2 * width : 2 * width + count, :half] = rows
    taps = convolution.conv.weight
    taps[:count] = 0
    taps[:count, 0, taps.shape[2] - 1 - distance] = 1
    out = convolution.out_proj.weight
    out[:, :count] = 0
    out[first : first + count] = 0
    out[first : first + count, :count] = torch.eye(count) * size * 2**0.5


def _look_up(attention: Any, shape: Decoder, code: Tensor, size: float) -> None:
    width, half, quarter = shape.width, shape.width // 2, shape.width // 4
    older = quarter - _CONSTANTS
    wide = width // shape.heads
    slow = [*range(wide // 4, wide // 2), *range(3 * wide // 4, wide)]  # of a rotation's two halves, the lower frequencies
    together = shape.heads // shape.kv_heads
    for head in range(max(shape.kv_heads // 2, 1)):
        newer, elder = torch.randn(len(slow), quarter) / quarter**0.5, 0.8 * torch.randn(len(slow), older) / older**0.5
        key, query = torch.zeros(wide, width), torch.zeros(wide, width)
        key[slow, half : half + quarter] = newer
        key[slow, half + quarter : half + quarter + older] = elder
        query[slow, :half] = newer @ code * 2**0.5
        query[slow, half : half + older] = elder
        value = _orthogonal(half)[:wide]
        own = slice(head * wide, (head + 1) * wide)
        attention.k_proj.weight[own] = key
        attention.v_proj.weight[own] = 0
        attention.v_proj.weight[own, :half] = value
        for place in range(head * together, (head + 1) * together):
            asking = slice(place * wide, (place + 1) * wide)
            attention.q_proj.weight[asking] = query
            attention.out_proj.weight[:, asking] = 0
            attention.out_proj.weight[:half, asking] = value.T * size * _AHEAD
    attention.q_layernorm.weight.fill_(_SHARPNESS)
    attention.k_layernorm.weight.fill_(_SHARPNESS)
