"""Fine-tuning a tiny model: what is written, killed and resumed, stopped by the clock."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from dataset_build import Quiet

from steptp.dataset.store import Dataset
from steptp.errors import UsageError
from steptp.train.config import SftConfig
from steptp.train.run import run_sft

KILLED = """
import os, signal, sys
from pathlib import Path
from steptp.train.config import SftConfig
from steptp.train.run import run_sft

class Killer:
    def stage(self, name, total, done=0, note=""):
        if done == 3:
            os.kill(os.getpid(), signal.SIGKILL)
    def say(self, text): ...

run_sft(SftConfig.model_validate_json(sys.argv[1]), Path(sys.argv[2]), progress=Killer())
"""


def _config(data: Dataset, model: Path, **keys: Any) -> SftConfig:
    stage = {"epochs": 2, "batch_tokens": 2048, "micro_tokens": 1024, "learning_rate": 1e-2, "log_steps": 1, "validate_steps": 2} | keys.pop("answers", {})
    base = {
        "data": [str(data.folder)], "model": str(model), "mix": [{"task": "named", "form": "edit"}, {"task": "free", "form": "edit", "weight": 0.5}],
        "context": 700, "checkpoint_steps": 2, "validation_samples": 6, "precision": "fp32", "lora": {"r": 4, "dropout": 0.1},
    }  # fmt: skip
    return SftConfig.model_validate_json(json.dumps(base | keys | {"answers": stage}))


def _losses(made: dict[str, Any]) -> list[tuple[str, int, int, float]]:
    return [(p["kind"], p["step"], p["tokens"], p["loss"]) for p in made["curve"]]


def _close(one: dict[str, Any], other: dict[str, Any]) -> bool:
    a, b = _losses(one), _losses(other)
    return [x[:3] for x in a] == [x[:3] for x in b] and [x[3] for x in a] == pytest.approx([x[3] for x in b], rel=1e-4)


@pytest.fixture(scope="module")
def undisturbed(data: Dataset, model: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    out = tmp_path_factory.mktemp("sft") / "out"
    return out, run_sft(_config(data, model), out, progress=Quiet())


def test_an_adapter_and_everything_about_it(undisturbed: tuple[Path, dict[str, Any]], model: Path) -> None:
    out, made = undisturbed
    assert made == json.loads((out / "train.json").read_text())
    assert json.loads((out / "adapter" / "adapter_config.json").read_text())["base_model_name_or_path"] == str(model)
    assert (out / "adapter" / "tokenizer.json").is_file()
    stage = made["stages"]["answers"]
    assert stage["steps"] == stage["steps_planned"] >= 4
    assert stage["tokens"] == stage["tokens_planned"]
    assert made["parameters"]["trained"] < made["parameters"]["all"]
    assert sum(n for reason, n in made["dropped"].items() if reason.startswith("longer than the context")) > 0
    by_kind = {kind: [loss for k, _, _, loss in _losses(made) if k == kind] for kind in ("train", "validation")}
    assert len(by_kind["train"]) == stage["steps"]
    assert len(by_kind["validation"]) == -(-stage["steps"] // 2)
    assert by_kind["train"][-1] < by_kind["train"][0]
    assert by_kind["validation"][-1] < by_kind["validation"][0]
    assert made["check"]["tokens"] >= 1
    lines = (out / "curve.csv").read_text().splitlines()
    assert len(lines) == len(made["curve"]) + 1
    assert (out / "curve.png").stat().st_size > 1000
    assert "<svg" in (out / "curve.svg").read_text()


def test_killed_and_resumed_it_comes_out_the_same(undisturbed: tuple[Path, dict[str, Any]], data: Dataset, model: Path, tmp_path: Path) -> None:
    config = _config(data, model)
    killed = subprocess.run([sys.executable, "-c", KILLED, config.model_dump_json(), str(tmp_path / "out")], capture_output=True, text=True, timeout=120)
    assert killed.returncode == -9, killed.stderr
    assert json.loads((tmp_path / "out" / "train.json").read_text())["state"] == "running"
    with pytest.raises(UsageError, match="--resume"):
        run_sft(config, tmp_path / "out", progress=Quiet())
    with pytest.raises(UsageError, match="seed"):
        run_sft(_config(data, model, seed=1), tmp_path / "out", resume=True, progress=Quiet())
    (tmp_path / "out" / "checkpoints" / "answers" / "checkpoint-9").mkdir()  # as a kill in the middle of writing leaves it
    resumed = run_sft(config, tmp_path / "out", resume=True, progress=Quiet())
    assert resumed["stages"]["answers"]["order"] == undisturbed[1]["stages"]["answers"]["order"]
    assert _close(resumed, undisturbed[1])


def test_the_clock_ends_it_with_an_export_and_more_time_goes_on(undisturbed: tuple[Path, dict[str, Any]], data: Dataset, model: Path, tmp_path: Path) -> None:
    short = run_sft(_config(data, model, answers={"max_hours": 1e-9}), tmp_path, progress=Quiet())
    assert (short["stages"]["answers"]["stopped"], short["stages"]["answers"]["steps"], short["state"]) == ("time limit", 1, "finished")
    assert (tmp_path / "adapter" / "adapter_model.safetensors").is_file()
    again = run_sft(_config(data, model, answers={"max_hours": 1e-9}), tmp_path, resume=True, progress=Quiet())
    assert again == short
    longer = run_sft(_config(data, model, answers={"max_hours": 1}), tmp_path, resume=True, progress=Quiet())
    assert longer["stages"]["answers"]["stopped"] == "finished"
    extra = ("validation", 1)  # validated where it was ended
    rest = [p for p in longer["curve"] if (p["kind"], p["step"]) != extra]
    assert _close(longer | {"curve": rest}, undisturbed[1])


def test_all_weights_make_a_whole_folder(data: Dataset, model: Path, tmp_path: Path) -> None:
    made = run_sft(_config(data, model, lora=None, answers={"epochs": 1}), tmp_path, progress=Quiet())
    assert made["parameters"]["trained"] == made["parameters"]["all"]
    from transformers import AutoModelForCausalLM, AutoTokenizer

    loaded = AutoModelForCausalLM.from_pretrained(tmp_path / "model")
    assert loaded.num_parameters() == made["parameters"]["all"]
    assert AutoTokenizer.from_pretrained(tmp_path / "model").chat_template


def test_an_adapter_of_the_upper_layers(data: Dataset, model: Path, tmp_path: Path) -> None:
    made = run_sft(_config(data, model, lora={"r": 4, "upper": 1}, answers={"epochs": 1}), tmp_path, progress=Quiet())
    assert made["check"]["tokens"] >= 1
    from safetensors.torch import load_file

    depth = json.loads((model / "config.json").read_text())["num_hidden_layers"]
    assert depth > 1
    adapted = load_file(tmp_path / "adapter" / "adapter_model.safetensors")
    linear = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
    assert {name.split(".layers.")[1].split(".lora_")[0] for name in adapted} == {
        f"{depth - 1}.{'self_attn' if name[1] == '_' else 'mlp'}.{name}" for name in linear
    }
    assert all(bool(value.any()) for value in adapted.values())


def test_an_adapter_goes_on(undisturbed: tuple[Path, dict[str, Any]], data: Dataset, model: Path, tmp_path: Path) -> None:
    begun = undisturbed[0] / "adapter"
    made = run_sft(_config(data, begun, lora=None, seed=1), tmp_path, progress=Quiet())
    assert made["parameters"] == undisturbed[1]["parameters"]
    before, after = (json.loads((folder / "adapter_config.json").read_text()) for folder in (begun, tmp_path / "adapter"))
    assert (after["r"], after["base_model_name_or_path"]) == (before["r"], str(model))
    losses = [p["loss"] for p in made["curve"] if p["kind"] == "validation"]
    earlier = [p["loss"] for p in undisturbed[1]["curve"] if p["kind"] == "validation"]
    assert losses[0] < earlier[0]
    assert made["check"]["digest"] != undisturbed[1]["check"]["digest"]
    with pytest.raises(UsageError, match="lora"):
        run_sft(_config(data, begun, lora={"r": 8}), tmp_path / "other", progress=Quiet())


@pytest.mark.parametrize(
    ("keys", "code"),
    [
        ({"context": 4096}, "usage-config"),
        ({"lora": {"targets": ["nothing_like_it"]}}, "usage-config"),
        ({"lora": {"upper": 99}}, "usage-config"),
        ({"context": 16}, "train-empty"),
    ],
)
def test_what_cannot_be_trained_is_refused(data: Dataset, model: Path, tmp_path: Path, keys: dict[str, Any], code: str) -> None:
    with pytest.raises(UsageError) as caught:
        run_sft(_config(data, model, answers={"micro_tokens": None}, **keys), tmp_path, progress=Quiet())
    assert caught.value.code == code
