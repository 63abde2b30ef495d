"""``steptp sites X``: where the strategies apply."""

from __future__ import annotations

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
        from steptp.ir import print_program
        from steptp.rewrite import engine, registry

        subject = read_program(program, preset)
        chosen = [registry.get(name).name for name in strategy] if strategy else None
        found = engine.sites(subject, chosen, limit=limit or None)
        if json:
            emit_json({"sites": [s.id for s in found.sites], "cut": found.cut})
            return
        out = console()
        out.print(highlight(print_program(subject)), style="dim")
        for site in found.sites:
            out.print(highlight(site.id))
        tail = f", cut at {limit} (use --limit 0 for all)" if found.cut else ""
        out.print(f"{len(found.sites)} sites{tail}", style="bold")
