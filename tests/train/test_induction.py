"""A decoder that has learned nothing yet repeats what it has read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from steptp.policy.weights import find_weights, load_tokenizer
from steptp.train.config import Decoder
from steptp.train.scratch import new_model


def _share_repeated(model: Any, length: int, seed: int) -> float:
    """Of random tokens that come a second time in the same order, how many are the likeliest where they come."""
    made = torch.randint(5, model.config.vocab_size, (1, length), generator=torch.Generator().manual_seed(seed))
    with torch.no_grad():
        logits = model(input_ids=torch.cat([made, made], 1), use_cache=False).logits[0]
    found = logits[length + 1 : -1].argmax(1) == made[0, 2:]  # the first two have no two tokens before them to go by
    return float(found.float().mean())


@pytest.mark.parametrize("seed", range(3))
def test_it_repeats_from_the_first_step(model: Path, seed: int) -> None:
    tokenizer = load_tokenizer(find_weights(str(model)))
    made = new_model(Decoder(initial="induction"), tokenizer, 768, seed).eval()
    for length in (20, 100, 300):
        assert _share_repeated(made, length, seed) > 0.9
    assert _share_repeated(new_model(Decoder(), tokenizer, 768, seed).eval(), 100, seed) < 0.05


def test_weights_follow_from_the_seed_and_other_generators_stay(model: Path) -> None:
    tokenizer = load_tokenizer(find_weights(str(model)))
    shape = Decoder(initial="induction", width=64, layers=4, attention_every=4, kernel=4, heads=4, kv_heads=1, inner=64)
    torch.manual_seed(5)
    before = torch.get_rng_state()
    first, again, other = (dict(new_model(shape, tokenizer, 256, seed).named_parameters()) for seed in (0, 0, 1))
    assert torch.equal(torch.get_rng_state(), before)
    assert all(torch.equal(p, again[name]) for name, p in first.items())
    assert not torch.equal(first["model.embed_tokens.weight"], other["model.embed_tokens.weight"])
    assert all(p.requires_grad for p in first.values())


@pytest.mark.parametrize("keys", [{"attention_every": 2}, {"kernel": 2}, {"width": 16, "heads": 2, "kv_heads": 2}, {"heads": 128, "kv_heads": 4}])
def test_shapes_that_have_no_place_for_it_are_refused(keys: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="'induction' takes two convolutions"):
        Decoder(initial="induction", **keys)  # type: ignore[arg-type]
