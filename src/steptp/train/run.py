"""``steptp train``: from a configuration to a model folder, with everything about it in ``train.json``."""

from __future__ import annotations

import importlib.metadata
import json
import os
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from steptp.dataset.build import Progress
from steptp.dataset.finalize import atomic_write
from steptp.dataset.questions import prompt_versions
from steptp.dataset.samples import Sample
from steptp.dataset.store import Dataset
from steptp.errors import UsageError
from steptp.ir.seeds import derive_seed, digest
from steptp.measure import version_block
from steptp.policy.chat import Chat
from steptp.train.config import RunConfig, ScratchConfig, SftConfig, Stage
from steptp.train.corpus import Corpus, read_corpus, read_texts, recited
from steptp.train.curves import write_curves
from steptp.train.encode import Row, encode_all, pack
from steptp.train.plan import make_plan

__all__ = ["MANIFEST", "run_scratch", "run_sft"]

MANIFEST = "train.json"
_PACKAGES = ("transformers", "trl", "peft", "accelerate", "tokenizers")


@dataclass
class _Run:
    """What all stages of a run share, and what is said about them in the end."""

    config: RunConfig
    out: Path
    progress: Progress
    data: list[Dataset]
    corpus: Corpus
    manifest: dict[str, Any]
    dropped: Counter[str] = field(default_factory=Counter)
    curve: list[Any] = field(default_factory=list)

    def write(self, **more: Any) -> None:
        """Put what is known in the manifest."""
        self.manifest.update(more)
        atomic_write(self.out / MANIFEST, json.dumps(self.manifest, indent=2, ensure_ascii=False) + "\n")

    def stage(self, name: str, stage: Stage, model: Any, tokenizer: Any, rows: Sequence[Row], validation: Sequence[Row]) -> Any:
        """Train one stage, or go on with it; returns the model."""
        from steptp.train.trainer import run_stage

        plan = make_plan(rows, stage, self.config.context, derive_seed(name, self.config.seed))
        facts = {
            "rows": len(rows), "validation_rows": len(validation), "steps_planned": plan.steps, "tokens_planned": plan.tokens_after(plan.steps),
            "tokens_planned_alone": plan.alone[-1],
            "epochs_planned": round(plan.epochs, 3), "micro_batches_per_step": plan.per_step,
            "loss_tokens_share": round(sum(r.answer for r in rows) / sum(len(r.input_ids) for r in rows), 4),
            "order": digest(*([tree.rows for tree in batch] for batch in plan.batches)),
        }  # fmt: skip
        self.manifest["stages"][name] = facts
        self.write(dropped=dict(self.dropped))
        folder = self.out / "checkpoints" / name
        done = run_stage(name, model, tokenizer, rows, validation, plan, stage, self.config, folder, progress=self.progress)
        self.curve += done.curve
        facts |= {"steps": done.steps, "tokens": done.tokens, "seconds": done.seconds, "stopped": done.stopped}
        if done.stopped == "time limit":
            self.progress.say(f"{name}: the time limit ended it after {done.steps} of {plan.steps} steps; a higher max_hours and --resume go on")
        self.write()
        write_curves(self.out, self.curve)
        return done.model

    def finish(self, model: str, adapter: Path | None, folder: Path) -> dict[str, Any]:
        """Reload what was exported, ask it one question, close the manifest."""
        found = _asked(model, adapter, self.corpus)
        self.write(state="finished", exported=folder.name, check=found, curve=[asdict(p) for p in self.curve])
        return self.manifest


def run_sft(config: SftConfig, out: Path, *, resume: bool = False, progress: Progress) -> dict[str, Any]:
    """Teach an existing model the answers; returns the manifest. The result is ``OUT/model``, or ``OUT/adapter`` with LoRA."""
    run = _start(config, out, resume, progress)
    if run.manifest["state"] == "finished":
        return run.manifest
    from steptp.policy.weights import find_weights, load_model, load_tokenizer

    weights = find_weights(config.model)
    if weights.adapter is not None and config.lora is not None:
        raise UsageError("usage-config", f"{config.model} is an adapter, and goes on with the shape it has: lora is for a new one", hint="leave lora out")
    adapts = weights.adapter is not None or config.lora is not None
    tokenizer = load_tokenizer(weights)
    import torch
    from peft import PeftModel
    from transformers import set_seed

    from steptp.train.trainer import in_bf16

    half = adapts and in_bf16(config)
    model: Any = load_model(replace(weights, adapter=None), torch.bfloat16 if half else torch.float32)
    longest = int(getattr(model.config.get_text_config(), "max_position_embeddings", config.context))
    if config.context > longest:
        raise UsageError("usage-config", f"context = {config.context}, and {config.model} takes {longest} tokens at most")
    set_seed(config.seed)
    if weights.adapter is not None:
        model = PeftModel.from_pretrained(model, weights.adapter, is_trainable=True)
    elif config.lora is not None:
        model = _with_adapter(model, config)
    base = str(model.peft_config["default"].base_model_name_or_path) if adapts else config.model
    run.write(base={"model": config.model, "digest": weights.digest()}, parameters=_parameters(model))
    chat = Chat(tokenizer)
    model = run.stage("answers", config.answers, model, tokenizer, *_answer_rows(run, chat))
    folder = out / ("adapter" if adapts else "model")
    _export(model, chat, folder)
    return run.finish(base if adapts else str(folder), folder if adapts else None, folder)


def run_scratch(config: ScratchConfig, out: Path, *, resume: bool = False, progress: Progress) -> dict[str, Any]:
    """Make a small decoder, teach it program texts, then answers; returns the manifest. The result is ``OUT/model``."""
    run = _start(config, out, resume, progress)
    if run.manifest["state"] == "finished":
        return run.manifest
    from steptp.train.scratch import new_model, new_tokenizer

    groups = read_texts(run.data, config.zoo, config.names, config.seed, run.corpus.held)
    texts = [text for group in groups for text in group]
    asked = [s for _, samples in run.corpus.train for s in samples]
    tokenizer = new_tokenizer([*texts, *(text for s in asked for text in (s.prompt, s.completion))], config.decoder.vocabulary, config.context)
    model: Any = new_model(config.decoder, tokenizer, config.context, config.seed)
    run.write(parameters=_parameters(model), vocabulary=len(tokenizer), texts={"programs": len(texts), "digest": digest(*texts)})
    chat = Chat(tokenizer)
    shown = (recited(text, config.recited, config.seed) for text in _in_order(groups, config.seed))
    rows = pack([tokenizer(text, add_special_tokens=False).input_ids for text in shown], chat.end_of_turn, config.context)
    model = run.stage("texts", config.texts, model, tokenizer, rows, [])
    model = run.stage("answers", config.answers, model, tokenizer, *_answer_rows(run, chat))
    _export(model, chat, out / "model")
    return run.finish(str(out / "model"), None, out / "model")


def _in_order(groups: Sequence[Sequence[str]], seed: int) -> Iterator[str]:
    """Programs of one root behind one another, so that a context holds programs that are nearly the same and copying pays from the beginning (in-context
    pretraining, Shi et al. 2023, section 2); roots and the programs of each are shuffled."""
    for group in sorted(groups, key=lambda g: derive_seed("root", seed, *g)):
        yield from sorted(group, key=lambda text: derive_seed("text", seed, text))


def _start(config: RunConfig, out: Path, resume: bool, progress: Progress) -> _Run:
    """Check that ``out`` may be used, read the data, begin the manifest."""
    _quiet()
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise UsageError("usage-processes", "steptp train runs in one process, on one GPU or the CPU", hint="start it without torchrun or accelerate launch")
    before = _manifest(out)
    if before is not None and before["identity"] != config.identity:
        changed = sorted(k for k, v in config.model_dump(mode="json").items() if before["config"].get(k) != v)
        raise UsageError("usage-out", f"{out} holds a run with another configuration ({', '.join(changed)})", hint="give another folder with --out")
    if before is not None and not resume:
        raise UsageError("usage-out", f"{out} holds a run already ({before['state']})", hint="--resume goes on with it; --out gives another folder")
    if before is not None and before["state"] == "finished" and not _longer(before, config):
        progress.say(f"{out} is finished; nothing to do")
        return _Run(config, out, progress, [], Corpus((), ()), before)
    data = [Dataset.open(folder) for folder in config.data]
    corpus = read_corpus(config, data)
    if before is not None and before["data"]["digests"] != corpus.digests:
        raise UsageError("usage-out", f"the data have changed since {out} was begun", hint="give another folder with --out")
    out.mkdir(parents=True, exist_ok=True)
    versions = {**version_block(), **{name: importlib.metadata.version(name) for name in _PACKAGES}}
    run = _Run(config, out, progress, data, corpus, {}, Counter(corpus.left_out))
    counts = {name: len(samples) for name, (_, samples) in zip(corpus.digests, corpus.train, strict=True)}
    run.write(
        state="running", identity=config.identity, config=config.model_dump(mode="json"), versions=versions, prompts=prompt_versions(),
        data={"folders": [str(f) for f in config.data], "digests": corpus.digests, "samples": counts, "validation": len(corpus.validation)}, stages={},
    )  # fmt: skip
    return run


def _quiet() -> None:
    """Without the libraries' advice about their next versions."""
    from transformers.utils import logging

    logging.set_verbosity_error()
    warnings.filterwarnings("ignore", category=FutureWarning, module="transformers|trl|torch")
    warnings.filterwarnings("ignore", message="Could not find a config file", module="peft")  # a base that is no folder: its vocabulary stays


def _manifest(out: Path) -> dict[str, Any] | None:
    try:
        found: dict[str, Any] = json.loads((out / MANIFEST).read_text())
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as err:
        raise UsageError("usage-out", f"{out / MANIFEST} cannot be read: {err}") from None
    return found


def _longer(before: dict[str, Any], config: RunConfig) -> bool:
    """Whether the last stage was cut off by a time limit that is higher, or gone, now."""
    old, new = before["config"]["answers"]["max_hours"], config.answers.max_hours
    return before["stages"]["answers"]["stopped"] == "time limit" and (new is None or new > old)


def _answer_rows(run: _Run, chat: Chat) -> tuple[list[Row], list[Row]]:
    context, unfit = run.config.context, Counter[str]()
    rows = encode_all(chat, ((s, source.weight) for source, samples in run.corpus.train for s in samples), context, run.dropped)
    validation = encode_all(chat, ((s, 1.0) for s in run.corpus.validation), context, unfit)
    run.dropped.update({f"validation: {reason}": n for reason, n in unfit.items()})
    return rows, validation


def _with_adapter(model: Any, config: SftConfig) -> Any:
    from peft import LoraConfig, get_peft_model

    lora = config.lora
    assert lora is not None
    targets = lora.targets if isinstance(lora.targets, str) else list(lora.targets)
    depth = int(model.config.get_text_config().num_hidden_layers)
    if lora.upper is not None and lora.upper > depth:
        raise UsageError("usage-config", f"lora.upper = {lora.upper}, and {config.model} has {depth} layers")
    outside = None  # PEFT's layers_to_transform does not go with "all-linear"
    if lora.upper is not None:  # all but names whose first number is that of an upper layer
        outside = rf"(?!(?:[^.\d][^.]*\.)*(?:{'|'.join(map(str, range(depth - lora.upper, depth)))})\.).*"
    settings = LoraConfig(r=lora.r, lora_alpha=lora.alpha, lora_dropout=lora.dropout, target_modules=targets, exclude_modules=outside, task_type="CAUSAL_LM")
    path = Path(config.model)
    try:
        made = get_peft_model(model, settings)
    except ValueError as err:
        raise UsageError("usage-config", f"lora.targets: {' '.join(str(err).split())[:200]}") from None
    made.peft_config["default"].base_model_name_or_path = str(path.resolve()) if path.exists() else config.model
    return made


def _parameters(model: Any) -> dict[str, int]:
    return {"all": sum(p.numel() for p in model.parameters()), "trained": sum(p.numel() for p in model.parameters() if p.requires_grad)}


def _export(model: Any, chat: Chat, folder: Path) -> None:
    """An ordinary Hugging Face folder, or a PEFT adapter, with the tokenizer and its chat template."""
    own = model.generation_config
    ends = own.eos_token_id if isinstance(own.eos_token_id, list) else [] if own.eos_token_id is None else [own.eos_token_id]
    own.eos_token_id = [*ends, chat.end_of_turn] if chat.end_of_turn not in ends else own.eos_token_id
    model.save_pretrained(folder)
    chat.tokenizer.save_pretrained(folder)


def _asked(model: str, adapter: Path | None, corpus: Corpus) -> dict[str, Any]:
    """One question to what was exported, answered greedily by the policies' own model."""
    from steptp.policy.models import LocalModel, LocalRequest
    from steptp.policy.written import Written

    local = LocalModel(model, adapter=adapter)
    pool: Sequence[Sample] = corpus.validation or [s for _, samples in corpus.train for s in samples]
    sample = min(pool, key=lambda s: len(s.prompt) + len(s.completion))
    answer = local.generate([LocalRequest(sample.asked(), seeds=(0,), temperature=0.0, max_tokens=128)])[0][0]
    if not isinstance(answer, Written):
        raise UsageError("usage-model", f"the exported model does not answer: {answer.message}")
    return {
        "digest": local.digest(), "sample": sample.id, "split": sample.split, "asked": f"{sample.task}/{sample.form}", "text": answer.text,
        "tokens": answer.tokens, "truncated": answer.truncated, "equals_recorded": answer.text == sample.completion,
    }  # fmt: skip
