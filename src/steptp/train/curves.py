"""Curves of a run: loss against tokens, as CSV, PNG and SVG."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from steptp.train.trainer import Point

__all__ = ["write_curves"]

_NAMES = {"texts": "program texts", "answers": "answers"}


def write_curves(folder: Path, curve: Sequence[Point]) -> None:
    """``curve.csv`` with every point; ``curve.png`` and ``curve.svg`` with one panel a stage."""
    with (folder / "curve.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, ["stage", "step", "tokens", "kind", "loss", "seconds"])
        writer.writeheader()
        writer.writerows(asdict(point) for point in curve)
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    stages = list(dict.fromkeys(point.stage for point in curve))
    figure = Figure(figsize=(5.5 * max(len(stages), 1), 3.6), layout="constrained")
    FigureCanvasAgg(figure)
    for number, stage in enumerate(stages):
        axes = figure.add_subplot(1, len(stages), number + 1)
        for kind, style in (("train", "-"), ("validation", "o-")):
            points = [p for p in curve if p.stage == stage and p.kind == kind]
            if points:
                axes.plot([p.tokens for p in points], [p.loss for p in points], style, markersize=3, linewidth=1, label=kind)
        axes.set_title(_NAMES.get(stage, stage))
        axes.set_xlabel("tokens")
        axes.set_ylabel("loss per token (nats)")
        axes.grid(alpha=0.3)
        axes.legend()
    for kind in ("png", "svg"):
        figure.savefig(folder / f"curve.{kind}", dpi=120, metadata={"Date": None} if kind == "svg" else None)
