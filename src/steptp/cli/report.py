"""``steptp report DIR``: the HTML page of a finished search."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

__all__ = ["register"]


def register(app: typer.Typer) -> None:
    @app.command("report")
    def report(folder: Annotated[Path, typer.Argument(metavar="DIR", help="Folder that steptp optimize wrote.")]) -> None:
        """Make report.html of a search again from its result.json."""
        from steptp.cli.common import console, highlight
        from steptp.report.search_page import write_page

        console().print(f"wrote [bold]{highlight(str(write_page(folder)))}[/]")
