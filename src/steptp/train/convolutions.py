"""Short convolutions over trees of rows.

A convolution looks at the tokens just before, and before a branch stands the end of another branch. Here it looks along the path from the trunk instead, so
that rows of one program give the loss and gradient that they give one by one (:mod:`steptp.train.trees`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from transformers.models.lfm2.modeling_lfm2 import Lfm2ShortConv

from steptp.errors import UsageError

if TYPE_CHECKING:
    from torch import Tensor, nn

__all__ = ["BranchedShortConv", "follow_branches"]


class BranchedShortConv(Lfm2ShortConv):  # type: ignore[misc]
    """LFM2's gated short convolution (Liquid AI 2025, "LFM2 technical report", section 2), told where each token's path goes on."""

    def forward(self, hidden_states: Tensor, cache: Any = None, attention_mask: Tensor | None = None, previous: Tensor | None = None, **kwargs: Any) -> Tensor:
        """``hidden_states``: [1, L, C]; ``previous``: int64[L], the place of the token before on the path, −1 for none. Without it: as ever."""
        if previous is None:
            made: Tensor = super().forward(hidden_states, cache, attention_mask, **kwargs)
            return made
        before, after, values = self.in_proj(hidden_states)[0].chunk(3, -1)
        own = before * values
        nothing = own.new_zeros(1, own.shape[1])
        padded = torch.cat([nothing, own])
        weights = self.conv.weight.squeeze(1)
        summed = own * weights[:, -1]
        places = torch.arange(len(own), device=own.device)
        path = previous
        for distance in range(1, self.conv_kernel_size):
            shifted = torch.cat([nothing.expand(min(distance, len(own)), -1), own[:-distance]])
            (torn,) = (path != places - distance).nonzero(as_tuple=True)  # all but a few tokens have their predecessors beside them
            summed = torch.addcmul(summed, shifted.index_copy(0, torn, padded.index_select(0, path[torn] + 1)), weights[:, -1 - distance])
            path = torch.where(path < 0, path, previous[path.clamp(min=0)])
        if self.conv.bias is not None:
            summed = summed + self.conv.bias
        projected: Tensor = self.out_proj((after * summed)[None])
        return projected


def follow_branches(model: nn.Module) -> bool:
    """Make the short convolutions of ``model`` follow the branches of a tree; says whether there are any. The weights and what is saved stay as they are.

    Raises :class:`UsageError` ``usage-model`` for layers that carry a state from token to token in another way, and would carry it from branch to branch.
    """
    mine = {id(m.conv) for m in model.modules() if isinstance(m, Lfm2ShortConv)}
    config = getattr(model, "config", None)
    kinds = set(getattr(config, "layer_types", None) or ()) - {"full_attention", "sliding_attention", "chunked_attention"}
    if mine:
        kinds -= {"conv"}
    foreign = any(isinstance(m, torch.nn.Conv1d) and id(m) not in mine for m in model.modules())
    if kinds or foreign:
        raise UsageError(
            "usage-model", f"{type(model).__name__} has layers that carry a state along the text ({', '.join(sorted(kinds)) or 'convolutions'})",
            hint="training lays rows out as a tree, which attention and LFM2's short convolutions can follow; take a model of those",
        )  # fmt: skip
    for module in model.modules():
        if isinstance(module, Lfm2ShortConv):
            module.__class__ = BranchedShortConv
    return bool(mine)
