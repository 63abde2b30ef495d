"""How soon a small decoder copies: first weights at random and with induction heads in place, trained side by side on the same tokens.

    python benchmarks/reciting.py DATASET [--steps 150] [--tokens 1024] [--rate 3e-3] [--seed 0]

Both learn, with loss on every token, the program texts of the train split under several names, each with ranges of its lines behind it (docs/training.md). What is counted is the share of recited
tokens that are the likeliest, over the last third of the steps; every one of them stands in the program before. The last line is one JSON object.
"""

from __future__ import annotations

import argparse
import json
import random
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from steptp.dataset.store import Dataset
from steptp.train.config import Decoder
from steptp.train.corpus import read_texts, recited
from steptp.train.encode import IGNORED
from steptp.train.muon import Muon
from steptp.train.scratch import new_model, new_tokenizer

_LONGEST = 170  # characters of a program: short ones show sooner whether anything is copied
_NAMES = 4
_RANGES = 4


def sequences(texts: list[str], tokenizer: Any, seed: int) -> Iterator[tuple[list[int], int]]:
    """Token ids of a program with its ranges, and where the first range begins; without end."""
    rng = random.Random(seed)
    while True:
        text = recited(rng.choice(texts), _RANGES, rng.randrange(2**32))
        program, gap, ranges = text.partition("\n\n")
        head, tail = (tokenizer(part, add_special_tokens=False).input_ids for part in (program + gap, ranges))
        yield [*head, *tail], len(head)


def batch(source: Iterator[tuple[list[int], int]], tokens: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """ids[rows, length], labels[rows, length] (``IGNORED``: none) and which of them are recited, of about ``tokens`` tokens."""
    rows: list[tuple[list[int], int]] = []
    while sum(len(ids) for ids, _ in rows) < tokens:
        rows.append(next(source))
    length = max(len(ids) for ids, _ in rows)
    made = torch.zeros(len(rows), length, dtype=torch.long)
    labels, again = torch.full_like(made, IGNORED), torch.zeros_like(made, dtype=torch.bool)
    for row, (ids, first) in enumerate(rows):
        made[row, : len(ids)] = labels[row, : len(ids)] = torch.tensor(ids)
        again[row, first : len(ids)] = True
    return made, labels[:, 1:], again[:, 1:]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dataset", type=Path)
    parser.add_argument("--steps", type=int, default=150)
    parser.add_argument("--tokens", type=int, default=1024)
    parser.add_argument("--rate", type=float, default=3e-3)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    texts = [text for group in read_texts([Dataset.open(args.dataset)], names=_NAMES) for text in group if len(text) <= _LONGEST]
    tokenizer = new_tokenizer([recited(text, 1, 0) for text in texts], 4096, 768)
    models = {name: new_model(Decoder(initial=name), tokenizer, 768, args.seed) for name in ("random", "induction")}  # type: ignore[arg-type]
    optimizers = {name: Muon(model, args.rate, 0.05) for name, model in models.items()}
    right, losses, seconds = dict.fromkeys(models, 0), dict.fromkeys(models, 0.0), dict.fromkeys(models, 0.0)
    counted = 0
    source = sequences(texts, tokenizer, args.seed)
    for step in range(1, args.steps + 1):
        ids, labels, again = batch(source, args.tokens)
        kept = again & (labels != IGNORED)
        late = step > args.steps * 2 // 3
        counted += int(kept.sum()) if late else 0
        for name, model in models.items():
            began = time.monotonic()
            for group in optimizers[name].param_groups:
                group["lr"] = args.rate * min(1.0, step / 30)
            logits = model(input_ids=ids, use_cache=False).logits[:, :-1]
            losses_by_token = torch.nn.functional.cross_entropy(logits.transpose(1, 2), labels, reduction="none")
            (losses_by_token.sum() / (labels != IGNORED).sum()).backward()  # type: ignore[no-untyped-call]
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizers[name].step()
            optimizers[name].zero_grad()
            seconds[name] += time.monotonic() - began
            if late:
                right[name] += int((logits.argmax(-1) == labels)[kept].sum())
                losses[name] += float(losses_by_token[kept].sum().detach())
        if step % 10 == 0:
            print(f"step {step} of {args.steps}", flush=True)
    found = {name: {"right": round(right[name] / counted, 4), "loss": round(losses[name] / counted, 4), "seconds": round(seconds[name], 1)} for name in models}
    print(json.dumps({"steps": args.steps, "tokens": args.steps * args.tokens, "recited_counted": counted, "programs": len(texts), **found}))


if __name__ == "__main__":
    main()
