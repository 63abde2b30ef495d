"""``steptp show DIR [STEP]``: a dataset's summary, or one step with its diff, reasons and evidence."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

__all__ = ["register"]


def register(app: typer.Typer) -> None:
    @app.command("show")
    def show(
        folder: Annotated[Path, typer.Argument(metavar="DIR", help="A dataset folder.")],
        step: Annotated[str | None, typer.Argument(metavar="STEP", help="A step id (or a unique beginning of one); 'best' for the best steps.")] = None,
        json: Annotated[bool, typer.Option("--json", help="Machine-readable output.")] = False,
    ) -> None:
        """Show a dataset: its summary, or one step.

        Without STEP: counts by strategy and verdict. With STEP: diff, verdict, timing and chain of thought.
        """
        from steptp.cli.common import console, emit_json
        from steptp.dataset.store import Dataset

        data = Dataset.open(folder)
        if step is None:
            summary = data.summary()
            if json:
                emit_json(summary)
            else:
                render_summary(summary)
            return
        chosen = data.best(3) if step == "best" else [data.step(step)]
        if json:
            emit_json(
                [{**s, "parent_text": data.program(s["parent"])["text"], "child_text": data.program(s["child"])["text"] if s["child"] else ""} for s in chosen]
            )
            return
        if not chosen:
            console().print("no step of this dataset was measured, so none is the best")
        for row in chosen:
            render_step(row, data)
            console().print()


def render_summary(summary: dict[str, Any]) -> None:
    """Counts by strategy and verdict, measured labels, splits. Columns of timings only where something was timed."""
    from rich.table import Table

    from steptp.cli.common import console, counted

    out = console()
    verdicts, total = summary["verdicts"], summary["totals"]
    timed = bool(total["measured"])
    table = Table("strategy", box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for name in (*verdicts, "share", *(("measured", "faster", "same", "slower", "median ratio") if timed else ())):
        table.add_column(name, justify="right")
    for row in summary["strategies"]:
        counts = [str(row["verdicts"].get(v, "")) for v in verdicts]
        table.add_row(row["strategy"], *counts, f"{row['share']:.1%}", *(_timings(row) if timed else ()))
    table.add_row(
        "total", *[str(total["verdicts"].get(v, 0)) for v in verdicts], "",
        *([str(total["measured"]), *[str(total["labels"].get(k, 0)) for k in ("faster", "same", "slower")], ""] if timed else ()), style="bold",
    )  # fmt: skip
    out.print(table)
    places = (counted(summary["workloads"], "workload"), counted(summary["roots"], "root"), counted(summary["families"], "family", "families"))
    out.print(f"{counted(total['verified'], 'verified step')} over {', '.join(places)}; {counted(total['programs'], 'program')}")
    out.print(f"splits: {', '.join(f'{name} {count}' for name, count in summary['splits'].items())}", style="dim")


def _timings(row: dict[str, Any]) -> tuple[str, ...]:
    ratio = f"{row['median_ratio']:.2f}" if row["median_ratio"] is not None else ""
    return (str(row["measured"] or ""), *(str(row["labels"].get(k, "")) for k in ("faster", "same", "slower")), ratio)


def render_step(row: dict[str, Any], data: Any) -> None:
    """One step as a person reads it."""
    import json

    from steptp.cli.common import console, highlight
    from steptp.ir import parse
    from steptp.ir.diff import diff_lines

    out = console()
    out.print(f"step {row['id']}  [bold]{row['strategy']}[/]  {highlight(row['site'])}")
    out.print(highlight(f"{row['workload']}, depth {row['depth']}, {row['role']}, split {row['split']}, claims {row['exactness'] or 'nothing'}"), style="dim")
    parent = parse(data.program(row["parent"])["text"])
    if row["child"]:
        styles = {"-": "red", "+": "green", " ": "default"}
        for line in diff_lines(parent, parse(data.program(row["child"])["text"])):
            out.print(f"{line.kind.value} {highlight(line.text)}", style=styles[line.kind.value])
    else:
        out.print(highlight(data.program(row["parent"])["text"]))
    colour = "green" if row["verdict"] == "ok" else "red"
    out.print(f"verdict [{colour}]{row['verdict']}[/] at tier {row['tier']}")
    for tier in json.loads(row["evidence"]):
        out.print(highlight(f"  tier {tier['tier']} {tier['kind']}: {tier['message']}"))
    if row["counterexample"]:
        out.print(highlight(f"  counterexample {row['counterexample']}"))
    if row["measured"]:
        out.print(
            f"measured [bold]{row['label']}[/]: {row['parent_us']:.1f} µs → {row['child_us']:.1f} µs, ratio {row['ratio']:.3f} ({row['ratio_low']:.3f} to {row['ratio_high']:.3f})"
        )
    if row["reason"]:
        out.print(highlight(row["reason"]))
