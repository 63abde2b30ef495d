"""What rows cost a model, whatever its layers."""

from __future__ import annotations

from typing import Any

import torch

from steptp.train.encode import IGNORED


def summed_loss(model: Any, inputs: dict[str, Any]) -> torch.Tensor:
    """Cross entropy over the labels of one sequence, summed."""
    logits = model(**{k: v for k, v in inputs.items() if k != "labels"}, use_cache=False).logits[0, :-1]
    return torch.nn.functional.cross_entropy(logits, inputs["labels"][0, 1:], ignore_index=IGNORED, reduction="sum")
