"""``steptp train``: language models learn the answers of a dataset."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["register"]

_Config = Annotated[Path, typer.Argument(metavar="CONFIG", help="A TOML file; docs/training.md lists its keys.")]
_Out = Annotated[Path | None, typer.Option("--out", "-o", help="Where the model goes (default: out/train/NAME, NAME from the file's).")]
_Resume = Annotated[bool, typer.Option("--resume", help="Go on from the last checkpoint.")]
_Json = Annotated[bool, typer.Option("--json", help="Print what train.json holds.")]


def register(app: typer.Typer) -> None:
    verbs = typer.Typer(no_args_is_help=True, help="Train a language model on a dataset's train split.")

    @verbs.command("sft")
    def sft(config: _Config, out: _Out = None, resume: _Resume = False, json: _Json = False) -> None:
        """Fine-tune an existing model, whole or through LoRA, on answers."""
        from steptp.train.config import SftConfig, read_config
        from steptp.train.run import run_sft

        _train(run_sft, read_config(config, SftConfig), out or Path("out/train") / config.stem, resume, json)

    @verbs.command("scratch")
    def scratch(config: _Config, out: _Out = None, resume: _Resume = False, json: _Json = False) -> None:
        """Make a small decoder: tokenizer, program texts, then answers."""
        from steptp.train.config import ScratchConfig, read_config
        from steptp.train.run import run_scratch

        _train(run_scratch, read_config(config, ScratchConfig), out or Path("out/train") / config.stem, resume, json)

    app.add_typer(verbs, name="train")


def _train(run: Callable[..., dict[str, Any]], config: Any, out: Path, resume: bool, json: bool) -> None:
    from steptp.cli.common import console, emit_json
    from steptp.cli.progress import BuildProgress

    with BuildProgress(quiet=json) as progress:
        made = run(config, out, resume=resume, progress=progress)
    if json:
        emit_json(made)
        return
    from rich.table import Table

    table = Table("stage", "steps", "tokens", "hours", "ended by", "train loss", "validation loss", box=None, pad_edge=False)
    for name, stage in made["stages"].items():
        losses = {p["kind"]: f"{p['loss']:.3f}" for p in made["curve"] if p["stage"] == name}
        row = (f"{stage['steps']:,}", f"{stage['tokens']:,}", f"{stage['seconds'] / 3600:.2f}", stage["stopped"], losses.get("train", ""))
        table.add_row(name, *row, losses.get("validation", ""))
    console().print(table)
    for reason, count in sorted(made["dropped"].items()):
        console().print(f"left out: {count:,} {reason}")
    console().print(f"The model is in [bold]{out / made['exported']}[/]; train.json and curve.svg beside it say how it came about.")
