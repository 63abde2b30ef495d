"""``steptp apply X STRATEGY SITE``: take one step."""

from __future__ import annotations

from typing import Annotated

import typer

__all__ = ["register"]


def register(app: typer.Typer) -> None:
    @app.command("apply")
    def apply(
        program: Annotated[str, typer.Argument(help="x.leir, file.py:Class, module:Class, einsum:… or zoo:name")],
        strategy: Annotated[str, typer.Argument(help="A name from 'steptp strategies'.")],
        site: Annotated[str, typer.Argument(help="A site id from 'steptp sites' (with or without the strategy's name).")],
        verify: Annotated[bool, typer.Option("--verify", help="Verify the step before printing it.")] = False,
        preset: Annotated[str | None, typer.Option(help="Preset of a zoo workload.")] = None,
        json: Annotated[bool, typer.Option("--json", help="Machine-readable output.")] = False,
    ) -> None:
        """Take one step and print the next program.

        SITE is an id from 'steptp sites X', or what follows the '@' in it, as in 0.1:factor=16. Exit status 1 when the strategy
        does not apply there or --verify rejects the step.
        """
        from steptp.cli.common import emit_json, read_program
        from steptp.ir import print_program
        from steptp.rewrite import engine, registry
        from steptp.rewrite.base import NotApplicable, Site

        parent = read_program(program, preset)
        registry.get(strategy)
        place = Site.parse(site if site.startswith(f"{strategy}@") else f"{strategy}@{site.removeprefix('@')}")
        outcome = engine.apply(parent, place)
        if isinstance(outcome, NotApplicable):
            if json:
                emit_json({"applied": False, "code": outcome.code, "message": outcome.message})
            else:
                typer.echo(f"not applicable [{outcome.code}]: {outcome.message}", err=True)
            raise typer.Exit(1)
        result: dict[str, object] = {
            "applied": True,
            "site": place.id,
            "exactness": str(outcome.exactness),
            "inverse": [s.id for s in outcome.inverse],
            "program": print_program(outcome.program),
        }
        ok = True
        if verify:
            from steptp.dataset.pairs import verify_isolated

            verdict = verify_isolated(parent, outcome.program, applied=outcome)
            result["verdict"], result["message"], ok = str(verdict.kind), verdict.message, verdict.ok
        if json:
            emit_json(result)
        else:
            typer.echo(result["program"])
            if verify:
                typer.echo(f"# {result['verdict']}: {result['message']}", err=True)
        if not ok:
            raise typer.Exit(1)
