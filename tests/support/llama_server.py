"""A real OpenAI-compatible server on loopback: llama.cpp in a process of its own, with a tiny random model.

Run as a program it serves the model of its first argument until its standard input is closed, and prints its address.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import gguf

SLOTS, CONTEXT = 4, 4096


def gguf_model(folder: Path, out: Path) -> Path:
    """The Hugging Face folder of a random model (:func:`tiny_model.tiny_model`) as a GGUF file; rows of Q and K are not put in llama.cpp's order."""
    from safetensors.numpy import load_file

    config = json.loads((folder / "config.json").read_text())
    words = json.loads((folder / "tokenizer.json").read_text())
    special = {t["id"]: t["content"] for t in words["added_tokens"]}
    tokens = {**{i: t for t, i in words["model"]["vocab"].items()}, **special}
    heads, layers = config["num_attention_heads"], config["num_hidden_layers"]
    writer = gguf.GGUFWriter(out, "llama")
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_block_count(layers)
    writer.add_head_count(heads)
    writer.add_head_count_kv(config["num_key_value_heads"])
    writer.add_rope_dimension_count(config["hidden_size"] // heads)
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("default")
    writer.add_token_list([tokens[i] for i in range(len(tokens))])
    writer.add_token_types([gguf.TokenType.CONTROL if i in special else gguf.TokenType.NORMAL for i in range(len(tokens))])
    writer.add_token_merges([m if isinstance(m, str) else " ".join(m) for m in words["model"]["merges"]])
    writer.add_bos_token_id(config["bos_token_id"])
    writer.add_eos_token_id(config["eos_token_id"])
    writer.add_add_bos_token(False)
    writer.add_chat_template((folder / "chat_template.jinja").read_text())
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.LLAMA, layers)
    for name, tensor in load_file(folder / "model.safetensors").items():
        writer.add_tensor(names.get_name(name, try_suffixes=(".weight",)), tensor)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return out


@contextmanager
def llama_server(model: Path) -> Iterator[str]:
    """The base URL of a server of this GGUF file."""
    with subprocess.Popen(
        [sys.executable, __file__, str(model)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as served:
        assert served.stdin is not None
        assert served.stdout is not None
        address = next((line.split()[1] for line in served.stdout if line.startswith("serves ")), "")
        try:
            assert address, "the server did not start"
            yield f"{address}/v1"
        finally:
            served.stdin.close()
            served.terminate()


def main() -> None:
    import xllamacpp

    params = xllamacpp.CommonParams()
    params.model.path = sys.argv[1]
    params.hostnames, params.port = ["127.0.0.1"], 0
    params.n_ctx, params.n_parallel, params.n_gpu_layers = SLOTS * CONTEXT, SLOTS, 0
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = 1
    params.use_jinja, params.warmup, params.fit_params = True, False, False
    server = xllamacpp.Server(params)
    print("serves", server.listening_address, flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main()
