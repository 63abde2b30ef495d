"""The loss is borne by the answer and the end of its turn and by nothing else, whatever the chat template."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from steptp.dataset.samples import Sample, samples_of
from steptp.dataset.store import Dataset
from steptp.policy.chat import Chat
from steptp.policy.weights import find_weights, load_tokenizer
from steptp.train.encode import IGNORED, encode, encode_all, pack
from steptp.train.scratch import new_tokenizer

SMOLLM2 = (  # as it comes with the model
    "{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}{{ '<|im_start|>system\n"
    "You are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n' }}{% endif %}"
    "{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'}}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
QWEN = (  # like Qwen3: an empty thought before the last answer, and in the prompt when thinking is off
    "{%- for message in messages %}{{- '<|im_start|>' + message.role + '\n' }}"
    "{%- if message.role == 'assistant' and loop.last %}{{- '<think>\n\n</think>\n\n' }}{%- endif %}"
    "{{- message.content + '<|im_end|>\n' }}{%- endfor %}"
    "{%- if add_generation_prompt %}{{- '<|im_start|>assistant\n' }}"
    "{%- if enable_thinking is defined and enable_thinking is false %}{{- '<think>\n\n</think>\n\n' }}{%- endif %}{%- endif %}"
)
NO_SYSTEM = (  # like Gemma
    "{% if messages[0]['role'] == 'system' %}{{ raise_exception('no system role') }}{% endif %}"
    "{% for message in messages %}{{ '<|im_start|>' + ('model' if message['role'] == 'assistant' else 'user') + '\n' + message['content'] | trim + '<|im_end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>model\n' }}{% endif %}"
)


@pytest.fixture(scope="module")
def samples(data: Dataset) -> list[Sample]:
    return [s for form in ("edit", "rewrite") for s in samples_of(data, "named", form, reasons=form == "rewrite", split="train")]


@pytest.fixture(params=["smollm2", "qwen", "no system", "scratch"])
def tokenizer(request: pytest.FixtureRequest, model: Path, samples: list[Sample]) -> Any:
    if request.param == "scratch":
        return new_tokenizer([text for s in samples for text in (s.prompt, s.completion)], 500, 1024)
    made = load_tokenizer(find_weights(str(model)))
    made.chat_template = {"smollm2": SMOLLM2, "qwen": QWEN, "no system": NO_SYSTEM}[request.param]
    return made


def test_exactly_the_answer_and_its_end_bear_loss(tokenizer: Any, samples: list[Sample]) -> None:
    chat = Chat(tokenizer)
    end = tokenizer.decode([chat.end_of_turn])
    assert end in ("<|im_end|>", "<|end|>")
    for sample in samples:
        row = encode(chat, sample)
        asked = sum(label == IGNORED for label in row.labels)
        assert row.labels == [IGNORED] * asked + row.input_ids[asked:]
        assert tokenizer.decode(row.input_ids[asked:]) == sample.completion + end
        assert row.input_ids[:asked] == chat.encoded(sample.asked())  # what a policy asks
        assert row.answer == len(row.input_ids) - asked


def test_the_template_agrees_with_the_row(tokenizer: Any, samples: list[Sample]) -> None:
    """What the template itself makes of the whole conversation begins with the row, up to what the trimming of texts changes."""
    chat = Chat(tokenizer)
    for sample in samples[:3]:
        assert chat.rendered(sample.messages(), answering=False).startswith(tokenizer.decode(encode(chat, sample).input_ids))


def test_the_mask_reaches_the_loss(tmp_path: Path, model: Path, samples: list[Sample]) -> None:
    """Batches as TRL's trainer gets them: the labels that are not ignored are the answers, in the order of the plan."""
    from dataset_build import Quiet

    from steptp.policy.weights import load_model
    from steptp.train.config import SftConfig
    from steptp.train.plan import make_plan
    from steptp.train.trainer import make_trainer

    tokenizer = load_tokenizer(find_weights(str(model)))
    chat = Chat(tokenizer)
    raw = {"data": ["x"], "model": "x", "mix": [{"task": "named", "form": "edit"}], "context": 4096, "answers": {"epochs": 1, "batch_tokens": 8192}}
    config = SftConfig.model_validate_json(json.dumps(raw))
    rows = [encode(chat, s) for s in samples]
    plan = make_plan(rows, config.answers, config.context, 0)
    import torch

    loaded = load_model(find_weights(str(model)), torch.float32)
    trainer = make_trainer("answers", loaded, tokenizer, rows, [], plan, config.answers, config, tmp_path, progress=Quiet(), before=0.0)
    batches = list(trainer.get_train_dataloader())
    assert len(batches) == len(plan.batches)
    for batch, planned in zip(batches, plan.batches, strict=True):
        labels = batch["labels"]
        said = tokenizer.decode(labels[labels != IGNORED])
        assert said == "".join(samples[n].completion + "<|im_end|>" for tree in planned for n in tree.rows)


def test_a_long_sample_is_dropped_and_never_cut(model: Path, samples: list[Sample]) -> None:
    chat = Chat(load_tokenizer(find_weights(str(model))))
    whole = [encode(chat, s) for s in samples]
    middle = sorted(len(r.input_ids) for r in whole)[len(whole) // 2]
    dropped: Counter[str] = Counter()
    kept = encode_all(chat, [(s, 1.0) for s in samples], middle, dropped)
    assert kept == [r for r in whole if len(r.input_ids) <= middle]
    assert sum(dropped.values()) == len(whole) - len(kept) > 0


def test_packed_texts_bear_loss_wherever_something_predicts() -> None:
    rows = pack([[5, 6, 7], [8], [9, 10, 11, 12]], 2, 4)
    assert [r.input_ids for r in rows] == [[5, 6, 7, 2], [8, 2, 9, 10], [11, 12, 2]]
    assert all(r.labels == [IGNORED, *r.input_ids[1:]] for r in rows)
