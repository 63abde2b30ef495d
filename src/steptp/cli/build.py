"""``steptp build``: from workloads to a dataset."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Literal

import typer

__all__ = ["register"]


def register(app: typer.Typer) -> None:
    @app.command("build")
    def build(
        workloads: Annotated[list[str] | None, typer.Argument(metavar="WORKLOAD...", help="file.py:Class, module:Class, einsum:…, x.leir or zoo:name.")] = None,
        out: Annotated[Path, typer.Option("--out", "-o", help="The dataset folder. Running the same build again continues it.")] = Path("dataset"),
        preset: Annotated[str | None, typer.Option(help="Add every zoo workload of this preset ('demo', 'mini', 'level1', …).")] = None,
        steps: Annotated[int, typer.Option(min=1, help="Verified steps wanted, after all filters.")] = 300,
        depth: Annotated[int, typer.Option(min=1, max=64, help="Steps a walk takes.")] = 6,
        seed: Annotated[int, typer.Option(min=0, help="Same seed, same records.")] = 0,
        jobs: Annotated[int, typer.Option(min=1, help="Worker processes.")] = os.cpu_count() or 1,
        measured: Annotated[int | None, typer.Option(min=0, help="How many of the steps to time (default: all).")] = None,
        no_measure: Annotated[bool, typer.Option("--no-measure", help="Time nothing.")] = False,
        variants: Annotated[int, typer.Option(min=0, max=16, help="Extra shapes of every workload.")] = 2,
        target: Annotated[Literal["cpu", "cuda"], typer.Option(help="'cuda' adds steps to GPU kernels (verified, not timed).")] = "cpu",
        overwrite: Annotated[bool, typer.Option("--overwrite", help="Delete what a different build left in the folder.")] = False,
        json: Annotated[bool, typer.Option("--json", help="Print the summary as JSON.")] = False,
    ) -> None:
        """Build a dataset of verified, measured, explained steps."""
        from steptp.cli.common import console, emit_json
        from steptp.cli.progress import BuildProgress
        from steptp.cli.show import render_step, render_summary
        from steptp.dataset.build import run_build
        from steptp.dataset.config import BuildConfig
        from steptp.dataset.plan import resolve_workloads
        from steptp.dataset.store import Dataset

        config = BuildConfig(
            workloads=resolve_workloads(workloads or [], preset), steps=steps, depth=depth, seed=seed,
            measured=0 if no_measure else measured, variants=variants, target=target,
        )  # fmt: skip
        with BuildProgress(quiet=json) as progress:
            result = run_build(config, out, jobs=jobs, overwrite=overwrite, progress=progress)
        data = Dataset.open(out)
        if json:
            emit_json({**data.summary(), "seconds": result.seconds, "dropped": result.dropped})
            return
        render_summary(data.summary())
        if best := data.best(3):
            console().print(f"\n[bold]The {len(best)} best steps[/]\n")
            for row in best:
                render_step(row, data)
                console().print()
        console().print(f"The dataset is in [bold]{out}[/]. Next: steptp show {out} · steptp verify {out} --sample 50 · steptp audit {out}")
