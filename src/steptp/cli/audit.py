"""``steptp audit DIR``: duplicates, leakage, balance, shortcut probes, and the fact checker under attack."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

__all__ = ["register"]


def register(app: typer.Typer) -> None:
    @app.command("audit")
    def audit(
        folder: Annotated[Path, typer.Argument(metavar="DIR", help="A dataset folder.")],
        corrupt: Annotated[int, typer.Option(min=0, help="Corrupt this many reasons and count how many the fact checker rejects.")] = 0,
        seed: Annotated[int, typer.Option(help="Seed of the corruptions and probes.")] = 0,
        json: Annotated[bool, typer.Option("--json", help="Machine-readable output.")] = False,
    ) -> None:
        """Audit a dataset: duplicates, leaks, balance, false reasons.

        Exit status 1 when a check fails, 2 when the folder is no dataset.
        """
        from steptp.cli.common import console, emit_json
        from steptp.dataset.audit import audit_dataset

        found = audit_dataset(folder, corrupt=corrupt, seed=seed)
        if json:
            emit_json(found.as_dict())
        else:
            from rich.table import Table

            table = Table("", "check", "result", box=None, pad_edge=False)
            for row in found.checks:
                table.add_row("[green]ok[/]" if row.ok else "[red]failed[/]", row.name, row.detail)
            console().print(table)
        if not found.ok:
            raise typer.Exit(1)
