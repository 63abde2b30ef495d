"""Short convolutions follow the branches of a tree; layers that cannot are refused."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from row_loss import summed_loss
from transformers import MambaConfig, MambaForCausalLM

from steptp.dataset.samples import samples_of
from steptp.dataset.store import Dataset
from steptp.errors import UsageError
from steptp.policy.chat import Chat
from steptp.policy.weights import find_weights, load_model, load_tokenizer
from steptp.train.config import Decoder
from steptp.train.convolutions import BranchedShortConv, follow_branches
from steptp.train.encode import IGNORED, Row, encode
from steptp.train.scratch import new_model
from steptp.train.trees import Tree, beginnings, grow, laid_out, micro_batches


def _decoder(model: Path, kernel: int = 3) -> Any:
    shape = Decoder(vocabulary=300, width=32, layers=4, attention_every=2, heads=2, kv_heads=1, inner=48, kernel=kernel)
    return new_model(shape, load_tokenizer(find_weights(str(model))), 1024, 3)


def _gradients(model: Any, losses: Iterator[torch.Tensor]) -> tuple[float, dict[str, torch.Tensor]]:
    model.zero_grad()
    total = 0.0
    for loss in losses:
        loss.backward()  # type: ignore[no-untyped-call]
        total += float(loss)
    return total, {name: p.grad.clone() for name, p in model.named_parameters()}


def _one_by_one(rows: list[Row]) -> Iterator[dict[str, Any]]:
    for row in rows:
        yield {"input_ids": torch.tensor([row.input_ids]), "labels": torch.tensor([row.labels])}


@pytest.mark.parametrize("kernel", [2, 3, 4])
def test_loss_and_gradient_are_those_of_the_rows_one_by_one(data: Dataset, model: Path, kernel: int) -> None:
    chat = Chat(load_tokenizer(find_weights(str(model))))
    rows = [row for s in samples_of(data, "named", "edit", reasons=False, split="train") if len((row := encode(chat, s)).input_ids) <= 700]
    trees = sorted(grow(range(len(rows)), rows, beginnings(rows), 2048), key=lambda t: (-len(t.rows), t.size))
    batch = micro_batches(trees[:4], 4096)[0]
    assert len(batch) > 1
    assert max(len(tree.rows) for tree in batch) > 2
    decoder = _decoder(model, kernel)
    alone = [rows[row] for tree in batch for row in tree.rows]
    apart, wanted = _gradients(decoder, (summed_loss(decoder, inputs) for inputs in _one_by_one(alone)))
    assert follow_branches(decoder)
    together, got = _gradients(decoder, (summed_loss(decoder, laid_out(part, rows)) for part in [batch]))
    assert together == pytest.approx(apart, rel=1e-5)
    for name, gradient in wanted.items():
        torch.testing.assert_close(got[name], gradient, rtol=2e-3, atol=2e-4 * float(gradient.abs().max()))


def test_short_branches_and_no_trunk(model: Path) -> None:
    """Branches shorter than the kernel, a trunk of one token, trees without a trunk."""
    rows = [
        Row([n % 250 for n in ids], [IGNORED, *ids[1:]], group=group)
        for ids, group in (([7, 8], "a"), ([7, 9], "a"), ([7, 9, 11, 12], "a"), ([30, 31, 32, 33, 34], ""), ([40, 41], ""))
    ]
    decoder = _decoder(model, 4)
    alone = [decoder(input_ids=torch.tensor([row.input_ids]), use_cache=False).logits[0] for row in rows]
    follow_branches(decoder)
    inputs = laid_out([Tree((0, 1, 2), 1, 6), Tree((3,), 0, 5), Tree((4,), 0, 2)], rows)
    assert inputs["previous"].tolist() == [-1, 0, 0, 0, 3, 4, -1, 6, 7, 8, 9, -1, 11]
    logits = decoder(**{k: v for k, v in inputs.items() if k != "labels"}, use_cache=False).logits[0]
    for at, row in (([0, 1], 0), ([0, 2], 1), ([0, 3, 4, 5], 2), ([6, 7, 8, 9, 10], 3), ([11, 12], 4)):
        torch.testing.assert_close(logits[at], alone[row], rtol=1e-4, atol=1e-5)


def test_writing_is_as_before_and_weights_keep_their_names(model: Path, tmp_path: Path) -> None:
    decoder = _decoder(model)
    names = list(decoder.state_dict())
    ids = torch.arange(5, 25)[None]
    before = decoder.generate(input_ids=ids, max_new_tokens=8, do_sample=False)
    assert follow_branches(decoder)
    assert sum(isinstance(m, BranchedShortConv) for m in decoder.modules()) == 2
    assert decoder.generate(input_ids=ids, max_new_tokens=8, do_sample=False).tolist() == before.tolist()
    assert list(decoder.state_dict()) == names


def test_attention_needs_nothing(model: Path) -> None:
    assert not follow_branches(load_model(find_weights(str(model)), torch.float32))


def test_other_layers_with_a_state_are_refused() -> None:
    mamba = MambaForCausalLM(MambaConfig(vocab_size=50, hidden_size=16, num_hidden_layers=1, state_size=4))
    with pytest.raises(UsageError, match="MambaForCausalLM has layers that carry a state along the text"):
        follow_branches(mamba)
