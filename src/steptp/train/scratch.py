"""A small decoder made from nothing: its tokenizer, learned from training texts, and its random weights."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from steptp.dataset.questions import prompt_file
from steptp.train.config import Decoder

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerFast

__all__ = ["chat_template", "new_model", "new_tokenizer"]

_PAD, _USER, _ANSWER, _END = _SPECIAL = ("<|pad|>", "<|user|>", "<|answer|>", "<|end|>")


def chat_template() -> str:
    """A token before each turn and one after an answer. The usual system text is not spelt out: the model never saw another."""
    return (
        f"{{%- set usual = {json.dumps(prompt_file('system'), ensure_ascii=False)} -%}}"
        "{%- for message in messages -%}"
        "{%- if message['role'] == 'assistant' -%}"
        f"{{{{- '{_ANSWER}' + message['content'] + '{_END}' -}}}}"
        "{%- elif message['role'] != 'system' or message['content'] != usual -%}"
        f"{{{{- '{_USER}' + message['content'] -}}}}"
        "{%- endif -%}"
        "{%- endfor -%}"
        f"{{%- if add_generation_prompt -%}}{{{{- '{_ANSWER}' -}}}}{{%- endif -%}}"
    )


def new_tokenizer(texts: Iterable[str], size: int, context: int) -> PreTrainedTokenizerFast:
    """A byte-level BPE of ``size`` tokens at most, learned from ``texts``; every digit is a token of its own (as in PaLM, Chowdhery et al. 2022)."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)])
    made.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=size, special_tokens=list(_SPECIAL), initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False,
    )  # fmt: skip
    made.train_from_iterator(texts, trainer)
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=made, pad_token=_PAD, eos_token=_END, additional_special_tokens=[_USER, _ANSWER], model_max_length=context,
        clean_up_tokenization_spaces=False,
    )  # fmt: skip
    tokenizer.chat_template = chat_template()
    return tokenizer


def new_model(shape: Decoder, tokenizer: PreTrainedTokenizerFast, context: int, seed: int) -> PreTrainedModel:
    """A decoder of gated short convolutions and some attention, with random weights that depend on ``seed`` alone.

    Looking for what followed the last time takes a layer that puts the token before into each key, and one that looks for it; convolutions are the first kind from
    the beginning, and cost less than attention.
    """
    import torch
    from transformers import Lfm2Config, Lfm2ForCausalLM

    kinds = ["full_attention" if n % shape.attention_every == 0 else "conv" for n in range(1, shape.layers + 1)]
    settings: dict[str, Any] = {"bos_token_id": None, "eos_token_id": tokenizer.eos_token_id, "pad_token_id": tokenizer.pad_token_id}
    config = Lfm2Config(
        vocab_size=len(tokenizer), hidden_size=shape.width, intermediate_size=shape.inner, block_auto_adjust_ff_dim=False, num_hidden_layers=shape.layers,
        layer_types=kinds, conv_L_cache=shape.kernel, num_attention_heads=shape.heads, num_key_value_heads=shape.kv_heads, max_position_embeddings=context,
        tie_word_embeddings=True, **settings,
    )  # fmt: skip
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model: PreTrainedModel = Lfm2ForCausalLM(config)
        if shape.initial == "induction":
            from steptp.train.induction import put_in_place

            put_in_place(model, shape)
    return model
