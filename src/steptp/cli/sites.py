"""``steptp sites X``: where the strategies apply."""

from __future__ import annotations

from itertools import groupby
from typing import Annotated

import typer

__all__ = ["register"]


def register(app: typer.Typer) -> None:
    @app.command("sites")
    def sites(
        program: Annotated[str, typer.Argument(help="x.leir, file.py:Class, module:Class, einsum:… or zoo:name")],
        strategy: Annotated[list[str] | None, typer.Option("--strategy", "-s", help="Only this strategy (repeatable).")] = None,
        limit: Annotated[int, typer.Option(help="At most this many; 0 lists all.", min=0)] = 400,
        preset: Annotated[str | None, typer.Option(help="Preset of a zoo workload.")] = None,
        json: Annotated[bool, typer.Option("--json", help="Machine-readable output.")] = False,
    ) -> None:
        """List the places and parameters where strategies apply."""
        from steptp.cli.common import console, emit_json, highlight, read_program
        from steptp.ir.printer import program_lines, statement_place
        from steptp.rewrite import engine, registry

        subject = read_program(program, preset)
        chosen = [registry.get(name).name for name in strategy] if strategy else None
        found = engine.sites(subject, chosen, limit=limit or None)
        if json:
            emit_json({"sites": [s.id for s in found.sites], "cut": found.cut})
            return
        out = console()
        lines, places = program_lines(subject)
        for number, line in enumerate(lines, 1):
            out.print(f"[dim]{number:4}[/]  {highlight(line)}")
        for name, group in groupby(found.sites, key=lambda site: site.strategy):
            sites = list(group)
            out.print(f"\n[bold]{name}[/]  {len(sites)}  [dim]{registry.get(name).summary}[/]")
            width = max(len(site.id) for site in sites)
            for site in sites:
                out.print(f"  {highlight(site.id.ljust(width))}  [dim]{highlight(statement_place(subject, site.path, places))}[/]")
        tail = f", cut at {limit} (use --limit 0 for all)" if found.cut else ""
        out.print(f"\n{len(found.sites)} sites{tail}", style="bold")
