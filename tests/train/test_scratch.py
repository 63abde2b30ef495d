"""A decoder from nothing: its tokenizer, its two phases, an ordinary folder."""

from __future__ import annotations

import json
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
from dataset_build import Quiet

from steptp.dataset.samples import samples_of
from steptp.dataset.store import Dataset
from steptp.policy.chat import Chat
from steptp.train.config import Decoder, ScratchConfig
from steptp.train.corpus import read_texts
from steptp.train.run import run_scratch
from steptp.train.scratch import new_model, new_tokenizer


def _config(data: Dataset, **keys: Any) -> ScratchConfig:
    stage = {"batch_tokens": 2048, "learning_rate": 5e-3, "log_steps": 1}
    base = {
        "data": [str(data.folder)], "mix": [{"task": "named", "form": "edit"}], "context": 700, "validation_samples": 4, "precision": "fp32",
        "decoder": {"vocabulary": 500, "width": 32, "layers": 2, "attention_every": 2, "heads": 2, "kv_heads": 1, "inner": 64},
        "texts": stage | {"max_tokens": 12_000}, "answers": stage | {"epochs": 2},
    }  # fmt: skip
    return ScratchConfig.model_validate_json(json.dumps(base | keys))


def test_the_tokenizer_keeps_texts_and_splits_digits(data: Dataset) -> None:
    samples = list(samples_of(data, "named", "edit", reasons=True, split="train"))
    texts = [*chain.from_iterable(read_texts([data])), *(text for s in samples for text in (s.prompt, s.completion))]
    tokenizer = new_tokenizer(texts, 600, 700)
    for text in [*texts, "tmp é f64[N=1024] 'ç' <|end"]:
        assert tokenizer.decode(tokenizer(text, add_special_tokens=False).input_ids) == text
    assert not [token for token in tokenizer.get_vocab() if sum(c.isdigit() for c in token) > 1]
    assert len(tokenizer("128", add_special_tokens=False).input_ids) == 3
    chat = Chat(tokenizer)
    asked = samples[0].asked()
    assert chat.rendered(asked) == f"<|user|>{samples[0].prompt}<|answer|>"
    assert "be brief" in chat.rendered([{"role": "system", "content": "be brief"}, *asked[1:]])
    assert new_tokenizer(texts, 600, 700).get_vocab() == tokenizer.get_vocab()


def test_the_usual_size_is_between_six_and_eight_million(data: Dataset) -> None:
    tokenizer = new_tokenizer(chain.from_iterable(read_texts([data])), 600, 768)
    model = new_model(Decoder(), tokenizer, 768, 0)
    missing = (4096 - len(tokenizer)) * Decoder().width
    assert 6e6 < model.num_parameters() + missing < 8e6


def test_two_phases_make_an_ordinary_folder(data: Dataset, tmp_path: Path) -> None:
    made = run_scratch(_config(data), tmp_path, progress=Quiet())
    assert list(made["stages"]) == ["texts", "answers"]
    assert made["stages"]["texts"]["loss_tokens_share"] > 0.99
    assert made["stages"]["answers"]["loss_tokens_share"] < 0.9
    losses = {(stage, kind): [p["loss"] for p in made["curve"] if (p["stage"], p["kind"]) == (stage, kind)] for stage, kind in _kinds()}
    assert losses["texts", "train"][-1] < losses["texts", "train"][0] - 0.5
    assert losses["answers", "train"][0] < losses["texts", "train"][0]  # it begins where the texts ended
    from transformers import AutoModelForCausalLM, AutoTokenizer

    model = AutoModelForCausalLM.from_pretrained(tmp_path / "model")
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "model")
    assert model.config.max_position_embeddings == 700
    assert model.num_parameters() == made["parameters"]["all"]
    assert tokenizer.convert_ids_to_tokens(Chat(tokenizer).end_of_turn) == "<|end|>"
    assert made["check"]["tokens"] >= 1


def _kinds() -> list[tuple[str, str]]:
    return [("texts", "train"), ("answers", "train"), ("answers", "validation")]


def test_texts_cut_off_by_the_clock_go_on_to_the_answers(data: Dataset, tmp_path: Path) -> None:
    config = _config(data, texts={"max_tokens": 12_000, "batch_tokens": 2048, "max_hours": 1e-9})

    class Stop(Exception):
        pass

    class Breaks(Quiet):
        def stage(self, name: str, total: int, done: int = 0, note: str = "") -> None:
            if name == "answers" and done == 1:
                raise Stop

    with pytest.raises(Stop):
        run_scratch(config, tmp_path, progress=Breaks())
    made = run_scratch(config, tmp_path, resume=True, progress=Quiet())
    assert (made["stages"]["texts"]["stopped"], made["stages"]["texts"]["steps"]) == ("time limit", 1)
    assert made["stages"]["answers"]["stopped"] == "finished"
