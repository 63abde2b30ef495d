"""One stage of training through TRL: the batches of a plan, exact validation loss, checkpoints by the clock, a time limit."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset as Table
from torch.utils.data import DataLoader
from transformers import PrinterCallback, TrainerCallback
from trl import SFTConfig as TrlConfig
from trl import SFTTrainer

from steptp.dataset.build import Progress
from steptp.policy.weights import dtype_of
from steptp.train.config import RunConfig, Stage
from steptp.train.convolutions import follow_branches
from steptp.train.encode import IGNORED, Row
from steptp.train.muon import Muon
from steptp.train.plan import Plan
from steptp.train.trees import beginnings, grow, laid_out, micro_batches

__all__ = ["Point", "StageResult", "in_bf16", "last_checkpoint", "make_trainer", "run_stage"]


@dataclass(frozen=True, slots=True)
class Point:
    """Mean loss of a token that bears loss: of training since the point before, or of validation."""

    stage: str
    step: int
    tokens: int
    kind: str
    loss: float
    seconds: float


@dataclass(frozen=True, slots=True)
class StageResult:
    """``stopped``: ``finished`` or ``time limit``; ``seconds``: training and validation, over all resumptions."""

    model: Any
    steps: int
    tokens: int
    seconds: float
    stopped: str
    curve: tuple[Point, ...]


def last_checkpoint(folder: Path) -> Path | None:
    """The newest whole checkpoint: its state is the last file that is written."""
    for path in sorted(folder.glob("checkpoint-*"), key=lambda p: -int(p.name.rpartition("-")[2])):
        try:
            json.loads((path / "trainer_state.json").read_text())
        except (OSError, ValueError):
            continue
        return path
    return None


class _Trainer(SFTTrainer):  # type: ignore[misc]
    """TRL's trainer on the batches of a plan. The vocabulary is scored only where a token bears loss; validation is averaged over tokens."""

    def __init__(
        self, *args: Any, plan: Plan, stage: Stage, rows: Sequence[Row], validation: Sequence[Row], before: float, callbacks: list[_Clock], **kwargs: Any
    ) -> None:
        super().__init__(*args, callbacks=callbacks, **kwargs)
        self.inputs = ["input_ids", "attention_mask", "position_ids", *(["previous"] if follow_branches(self.model) else [])]
        self.stage = stage
        for clock in callbacks:
            clock.trainer = self
        self.plan = plan
        self.rows = rows
        self.validation = validation
        self.batches = micro_batches(grow(range(len(validation)), validation, beginnings(validation), plan.limit), plan.limit)
        self.began = time.monotonic() - before

    @property
    def seconds(self) -> float:
        return time.monotonic() - self.began

    def create_optimizer(self, model: Any = None) -> Any:
        if self.stage.optimizer != "muon":
            return super().create_optimizer(model)
        self.optimizer: Any = self.optimizer or Muon(self.model, self.stage.learning_rate, self.stage.weight_decay)
        return self.optimizer

    def get_train_dataloader(self) -> Any:
        batches = self.plan.batches
        return DataLoader(range(len(batches)), batch_size=1, collate_fn=lambda at: laid_out(batches[at[0]], self.rows))  # type: ignore[arg-type]

    def compute_loss(self, model: Any, inputs: dict[str, Any], return_outputs: bool = False, num_items_in_batch: Any = None) -> Any:
        """Cross entropy summed over the labels of a micro-batch and divided by ``num_items_in_batch``, those of the whole step."""
        following = inputs["labels"][0, 1:]
        (at,) = (following != IGNORED).nonzero(as_tuple=True)
        made = model(**{name: inputs[name] for name in self.inputs}, use_cache=False, logits_to_keep=at)
        loss = torch.nn.functional.cross_entropy(made.logits[0].float(), following[at], reduction="sum") / num_items_in_batch
        return (loss, made) if return_outputs else loss

    def evaluate(self, eval_dataset: Any = None, ignore_keys: Any = None, metric_key_prefix: str = "eval") -> dict[str, float]:
        one = torch.tensor(1, device=self.args.device)  # so that a batch gives the sum over its tokens
        total = torch.zeros((), dtype=torch.float64)
        self.model.eval()
        with torch.no_grad():
            for batch in self.batches:
                inputs = self._prepare_inputs(laid_out(batch, self.validation))
                with self.compute_loss_context_manager():
                    total += self.compute_loss(self.model, inputs, num_items_in_batch=one).double().cpu()
        metrics = {f"{metric_key_prefix}_loss": float(total) / sum(r.answer for r in self.validation)}
        self.log(dict(metrics))
        self.model.train()
        return metrics

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        super().log({**logs, "seconds": round(self.seconds, 1)}, start_time)

    def create_model_card(self, *args: Any, **kwargs: Any) -> None:
        """None for a checkpoint."""


class _Clock(TrainerCallback):  # type: ignore[misc]
    """Decides when to log, to validate, to write a checkpoint and to stop, and shows how far it is."""

    def __init__(self, name: str, config: RunConfig, stage: Stage, progress: Progress) -> None:
        self.name, self.config, self.stage, self.progress = name, config, stage, progress
        self.saved = time.monotonic()
        self.trainer: _Trainer

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> Any:
        trainer, step = self.trainer, state.global_step
        late = self.stage.max_hours is not None and trainer.seconds >= self.stage.max_hours * 3600
        ends = late or step == trainer.plan.steps
        every = self.config.checkpoint_steps
        control.should_evaluate = bool(trainer.validation) and (ends or step % self.stage.validate_steps == 0)
        control.should_save = ends or (every is not None and step % every == 0) or time.monotonic() - self.saved >= self.config.checkpoint_minutes * 60
        control.should_log = control.should_save or step % self.stage.log_steps == 0  # the time spent is read from a checkpoint's log
        control.should_training_stop = ends
        loss = next((f", loss {entry['loss']:.3f}" for entry in reversed(state.log_history) if "loss" in entry), "")
        rate = trainer.plan.tokens_after(step) / max(trainer.seconds, 1e-9)
        self.progress.stage(self.name, trainer.plan.steps, step, note=f"{rate:,.0f} tokens/s{loss}")
        return control

    def on_epoch_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> Any:
        control.should_log = control.should_evaluate = control.should_save = False  # the last step has done it
        return control

    def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> Any:
        self.saved = time.monotonic()
        return control


def in_bf16(config: RunConfig) -> bool:
    """Whether a run computes in bf16: told so, or on hardware that does."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    return config.precision == "bf16" or (config.precision == "auto" and dtype_of("auto", device) == torch.bfloat16)


def make_trainer(
    name: str, model: Any, tokenizer: Any, rows: Sequence[Row], validation: Sequence[Row], plan: Plan, stage: Stage, config: RunConfig, folder: Path, *,
    progress: Progress, before: float,
) -> _Trainer:  # fmt: skip
    """TRL's trainer set up for a stage; ``before``: seconds that were spent on it already."""
    cuda = torch.cuda.is_available()
    args = TrlConfig(
        output_dir=str(folder), num_train_epochs=1, per_device_train_batch_size=1, gradient_accumulation_steps=plan.per_step,
        learning_rate=stage.learning_rate, lr_scheduler_type=stage.schedule, warmup_steps=math.ceil(stage.warmup * plan.steps),
        weight_decay=stage.weight_decay, max_grad_norm=stage.clip, seed=config.seed, data_seed=config.seed, bf16=in_bf16(config), use_cpu=not cuda,
        activation_checkpointing=config.gradient_checkpointing, logging_strategy="no", save_strategy="no", eval_strategy="no", save_total_limit=2,
        report_to="none", disable_tqdm=True, max_length=None, packing=False, dataloader_pin_memory=cuda, dataset_kwargs={"skip_prepare_dataset": True},
    )  # fmt: skip
    table = Table.from_dict({"input_ids": [r.input_ids for r in rows[:1]]})  # TRL looks at a row; the batches come from the plan
    trainer = _Trainer(
        model=model, args=args, train_dataset=table, processing_class=tokenizer, callbacks=[_Clock(name, config, stage, progress)], plan=plan, stage=stage,
        rows=rows, validation=validation, before=before,
    )  # fmt: skip
    trainer.remove_callback(PrinterCallback)
    return trainer


def run_stage(
    name: str, model: Any, tokenizer: Any, rows: Sequence[Row], validation: Sequence[Row], plan: Plan, stage: Stage, config: RunConfig, folder: Path, *,
    progress: Progress,
) -> StageResult:  # fmt: skip
    """Train ``model`` on ``rows`` in the order of ``plan``, going on from the last checkpoint in ``folder``."""
    checkpoint = last_checkpoint(folder)
    history = [] if checkpoint is None else json.loads((checkpoint / "trainer_state.json").read_text())["log_history"]
    before = float(history[-1]["seconds"]) if history else 0.0
    trainer = make_trainer(name, model, tokenizer, rows, validation, plan, stage, config, folder, progress=progress, before=before)
    if checkpoint is not None and stage.max_hours is not None and before >= stage.max_hours * 3600:
        trainer._load_from_checkpoint(str(checkpoint))
        trainer.state = trainer.state.load_from_json(str(checkpoint / "trainer_state.json"))
    else:
        trainer.train(resume_from_checkpoint=str(checkpoint) if checkpoint else None)
    step, curve = trainer.state.global_step, _points(name, trainer.state.log_history, plan)
    seconds = max((p.seconds for p in curve), default=0.0)
    return StageResult(trainer.model, step, plan.tokens_after(step), seconds, "finished" if step == plan.steps else "time limit", tuple(curve))


def _points(name: str, history: Sequence[dict[str, Any]], plan: Plan) -> list[Point]:
    kinds = (("loss", "train"), ("eval_loss", "validation"))
    return [
        Point(name, entry["step"], plan.tokens_after(entry["step"]), kind, float(entry[key]), float(entry["seconds"]))
        for entry in history
        for key, kind in kinds
        if key in entry
    ]
