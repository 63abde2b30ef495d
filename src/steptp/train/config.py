"""What a training run is told: a TOML file, checked key by key."""

from __future__ import annotations

import tomllib
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from steptp.dataset.questions import Form, Task, forms_of
from steptp.errors import UsageError
from steptp.ir.seeds import digest

__all__ = ["Decoder", "Lora", "RunConfig", "ScratchConfig", "SftConfig", "Source", "Stage", "read_config"]


class _Strict(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Source(_Strict):
    """One kind of sample in the mix."""

    task: Task
    form: Form
    reasons: bool = False
    reason_words: int | None = Field(default=None, ge=0, description="shorten recorded reasons to this many words")
    weight: float = Field(default=1.0, gt=0, le=100, description="how often a sample comes up in an epoch; below 1, a share of them, drawn anew every epoch")
    samples: int | None = Field(default=None, ge=1, description="at most this many, drawn once by the seed")
    orders: int = Field(default=1, ge=1, le=64, description="*action*: each question under so many orders and ids of its candidates")
    names: int = Field(default=1, ge=1, le=64, description="*named* and *free* without reasons: each program under so many choices of names, its own first")

    @model_validator(mode="after")
    def _form_of_task(self) -> Source:
        if self.form not in forms_of(self.task):
            raise ValueError(f"the task {self.task} has no answers of the form {self.form}; it has: {', '.join(forms_of(self.task))}")
        if self.orders > 1 and self.task != "action":
            raise ValueError(f"the task {self.task} lists no candidates: orders is for action")
        if self.names > 1 and (self.reasons or self.task == "action"):
            raise ValueError("names is for named and free samples without reasons")
        return self

    @property
    def name(self) -> str:
        """Task, form, reasons."""
        return f"{self.task}/{self.form}" + ("+reasons" if self.reasons else "")


class Stage(_Strict):
    """One optimisation: how much, how fast."""

    epochs: float | None = Field(default=None, gt=0, description="passes over the mix")
    max_tokens: int | None = Field(default=None, ge=1, description="tokens to compute, prompts included, common beginnings once")
    batch_tokens: int = Field(default=8192, ge=1, description="tokens of one optimiser step at most, gathered over micro-batches")
    micro_tokens: int | None = Field(default=None, ge=1, description="tokens of one forward pass at most (default: context)")
    optimizer: Literal["adamw", "muon"] = Field(default="adamw", description="'muon': hidden matrices by Muon, the rest by AdamW, at one learning rate")
    learning_rate: float = Field(default=2e-4, gt=0)
    schedule: Literal["cosine", "linear", "constant_with_warmup"] = "cosine"
    warmup: float = Field(default=0.03, ge=0, lt=1, description="share of the steps")
    weight_decay: float = Field(default=0.0, ge=0)
    clip: float = Field(default=1.0, ge=0, description="largest norm of the gradient; 0 for none")
    log_steps: int = Field(default=10, ge=1)
    validate_steps: int = Field(default=200, ge=1)
    max_hours: float | None = Field(default=None, gt=0, description="time for it, validation included, over all resumptions; then it ends as if finished")

    @model_validator(mode="after")
    def _some_end(self) -> Stage:
        if (self.epochs is None) == (self.max_tokens is None):
            raise ValueError("exactly one of epochs and max_tokens says when to stop")
        return self


class Lora(_Strict):
    """A low-rank adapter in place of all weights."""

    r: int = Field(default=16, ge=1)
    alpha: int = Field(default=32, ge=1)
    dropout: float = Field(default=0.0, ge=0, lt=1)
    targets: tuple[str, ...] | Literal["all-linear"] = "all-linear"
    upper: int | None = Field(default=None, ge=1, description="adapt only so many of the last layers; the gradient does not go below them")


class Decoder(_Strict):
    """The shape of a model made from nothing (LFM2-style: gated short convolutions, some layers of attention; tied embeddings)."""

    vocabulary: int = Field(default=4096, ge=300)
    width: int = Field(default=256, ge=8)
    layers: int = Field(default=8, ge=1)
    attention_every: int = Field(default=3, ge=1, description="every so many layers attend, the others are short convolutions; 1: all attend")
    kernel: int = Field(default=3, ge=2, le=16, description="tokens that a convolution sees")
    initial: Literal["random", "induction"] = Field(default="random", description="'induction': first weights that look up what followed before")
    heads: int = Field(default=8, ge=1)
    kv_heads: int = Field(default=4, ge=1)
    inner: int = Field(default=768, ge=8)

    @model_validator(mode="after")
    def _divides(self) -> Decoder:
        if self.width % self.heads or self.heads % self.kv_heads:
            raise ValueError("width must be a multiple of heads, heads of kv_heads")
        if self.attention_every > self.layers:
            raise ValueError(f"with attention_every = {self.attention_every}, none of {self.layers} layers attends")
        if self.initial == "induction" and (self.attention_every < 3 or self.kernel < 3 or self.width < 32 or self.width % 4 or self.width // self.heads % 4):
            raise ValueError(
                "initial = 'induction' takes two convolutions over three tokens before the first attention, and a width and heads of multiples of 4"
            )
        return self


class RunConfig(_Strict):
    """What both kinds of run have. Paths are relative to where the command runs."""

    seed: int = Field(default=0, ge=0)
    data: tuple[Path, ...] = Field(min_length=1)
    mix: tuple[Source, ...] = Field(min_length=1)
    context: int = Field(default=768, ge=16, description="longer samples are dropped")
    precision: Literal["auto", "bf16", "fp32"] = Field(default="auto", description="'auto': bf16 autocast where the hardware computes in bf16")
    validation_samples: int = Field(default=200, ge=0)
    checkpoint_minutes: float = Field(default=10.0, gt=0)
    checkpoint_steps: int | None = Field(default=None, ge=1, description="also every so many steps")
    gradient_checkpointing: bool = False
    answers: Stage

    @model_validator(mode="after")
    def _a_sample_fits(self) -> RunConfig:
        for name in ("answers", "texts"):
            stage = getattr(self, name, None)
            if stage is not None and stage.micro_tokens is not None and stage.micro_tokens < self.context:
                raise ValueError(f"{name}.micro_tokens = {stage.micro_tokens} is less than context = {self.context}: a longest sample does not fit")
        return self

    @property
    def identity(self) -> str:
        """Changes exactly when the order of samples or a weight may change: not with the time limit or how often a checkpoint is written."""
        free: dict[str, bool | set[str]] = {"checkpoint_minutes": True, "checkpoint_steps": True, "answers": {"max_hours"}, "texts": {"max_hours"}}
        return digest(type(self).__name__, self.model_dump_json(exclude=free))


class SftConfig(RunConfig):
    """``steptp train sft``: an existing model learns the answers."""

    model: str = Field(min_length=1, description="a Hugging Face folder or name, 'smollm2', or a PEFT folder, which goes on")
    lora: Lora | None = Field(default=None, description="a new adapter; without it, all weights are trained, or the adapter that model is")


class ScratchConfig(RunConfig):
    """``steptp train scratch``: a small decoder learns program texts, then the answers."""

    decoder: Decoder = Decoder()
    zoo: tuple[str, ...] = Field(default=(), description="presets of the zoo whose programs of train families are also read")
    names: int = Field(default=1, ge=1, le=64, description="the program texts of each root under so many choices of names")
    recited: int = Field(default=0, ge=0, le=16, description="ranges of its lines that stand again behind each program text, under the numbers of the lines")
    texts: Stage


Config = TypeVar("Config", bound=RunConfig)


def read_config(path: Path, kind: type[Config]) -> Config:
    """The checked configuration; raises :class:`UsageError` ``usage-config`` that names the line or the key."""
    try:
        raw = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UsageError("usage-config", f"there is no file {path}", hint="examples: examples/train/*.toml") from None
    except (OSError, UnicodeDecodeError) as err:
        raise UsageError("usage-config", f"{path} cannot be read: {err}") from None
    except tomllib.TOMLDecodeError as err:
        raise UsageError("usage-config", f"{path} is not TOML: {err}") from None
    try:
        return kind.model_validate(raw)
    except ValidationError as err:
        problems = err.errors()
        first = problems[0]
        more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
        raise UsageError("usage-config", f"{path}: {_where(first['loc'])}: {_what(first)}{more}", hint=_near(first, kind)) from None


def _where(loc: tuple[int | str, ...]) -> str:
    return "".join(f"[{part + 1}]" if isinstance(part, int) else f".{part}" for part in loc).lstrip(".") or "the whole file"


def _what(problem: Any) -> str:
    if problem["type"] == "extra_forbidden":
        return "there is no such key"
    if problem["type"] == "missing":
        return "this key is needed"
    return str(problem["msg"]).removeprefix("Value error, ")


def _near(problem: Any, kind: type[BaseModel]) -> str:
    """The key that was probably meant."""
    if problem["type"] != "extra_forbidden":
        return ""
    inner: dict[int | str, type[BaseModel]] = {"mix": Source, "answers": Stage, "texts": Stage, "lora": Lora, "decoder": Decoder}
    place = kind if len(problem["loc"]) == 1 else inner[problem["loc"][0]]
    near = get_close_matches(str(problem["loc"][-1]), sorted(place.model_fields), 1)
    return f"did you mean {near[0]}?" if near else "docs/training.md lists the keys"
