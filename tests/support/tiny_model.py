"""A tiny random chat model: an ordinary Hugging Face folder, made in seconds."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from steptp.dataset.questions import FORMS, prompt_file, prompt_versions

if TYPE_CHECKING:
    from transformers import PreTrainedModel

_TEMPLATE = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
_LEIR = """\
in A f32[N=64,K=128] B[K,L=32]
out Y[N,L]
tmp C[N,L] m s[N]
for i j k C[i,j]+=A[i,k]*B[k,j]
for i j m[i] max=C[i,j]
for i j s[i]+=exp(C[i,j]-m[i])
par i
 for j Y[i,j]=exp(C[i,j]-m[i])/s[i]
for i:N//8 vec j:8 if i*8+j<N: Y[i*8+j,0]=select(A[i,0]<0.5,max(A[i,1],0),sqrt(B[i%K,j]))
"""


@cache
def _tokenizer(vocabulary: int) -> Any:
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary, special_tokens=["<|endoftext|>", "<|im_start|>", "<|im_end|>"], initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )  # fmt: skip
    made.train_from_iterator([_LEIR, *map(prompt_file, prompt_versions()), *FORMS], trainer)
    return made


def tiny_model(folder: Path, *, context: int = 1024, vocabulary: int = 512, seed: int = 0, convolutions: bool = False) -> Path:
    """A random Llama (or, with short convolutions, LFM2) of two layers and width 32 with a byte-level BPE tokenizer and a chat template, saved in ``folder``."""
    import torch
    from transformers import Lfm2Config, Lfm2ForCausalLM, LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=_tokenizer(vocabulary), eos_token="<|im_end|>", pad_token="<|endoftext|>", additional_special_tokens=["<|im_start|>"],
        model_max_length=context, clean_up_tokenization_spaces=False,
    )  # fmt: skip
    tokenizer.chat_template = _TEMPLATE
    shape: dict[str, Any] = {
        "vocab_size": len(tokenizer), "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 1,
        "max_position_embeddings": context, "bos_token_id": tokenizer.convert_tokens_to_ids("<|im_start|>"), "eos_token_id": tokenizer.eos_token_id,
        "pad_token_id": tokenizer.pad_token_id, "tie_word_embeddings": True,
    }  # fmt: skip
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        if convolutions:
            hybrid = Lfm2Config(layer_types=["conv", "full_attention"], block_auto_adjust_ff_dim=False, **shape)
            model: PreTrainedModel = Lfm2ForCausalLM(hybrid)
        else:
            model = LlamaForCausalLM(LlamaConfig(**shape))
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder
