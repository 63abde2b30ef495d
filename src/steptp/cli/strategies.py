"""``steptp strategies``: what can be applied."""

from __future__ import annotations

from typing import Annotated

import typer

__all__ = ["register"]


def register(app: typer.Typer) -> None:
    @app.command("strategies")
    def strategies(json: Annotated[bool, typer.Option("--json", help="Machine-readable output.")] = False) -> None:
        """List the strategies: family, exactness, what they do."""
        from steptp.cli.common import console, emit_json
        from steptp.rewrite import registry

        rows = [{"name": s.name, "family": str(s.family), "classes": [str(c) for c in s.classes], "summary": s.summary} for s in registry.all_strategies()]
        if json:
            emit_json(rows)
            return
        from rich.table import Table

        table = Table("strategy", "family", "class", "what it does", box=None, pad_edge=False)
        for s in registry.all_strategies():
            table.add_row(s.name, str(s.family), ", ".join(map(str, s.classes)), s.summary)
        console().print(table)
