"""``steptp saturate X``: the cheapest equal expressions, as named steps."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from steptp.ir.nodes import Program
    from steptp.rewrite.base import Applied

__all__ = ["register"]


def register(app: typer.Typer) -> None:
    @app.command("saturate")
    def saturate(
        program: Annotated[str, typer.Argument(help="x.leir, file.py:Class, module:Class, einsum:… or zoo:name")],
        verify: Annotated[bool, typer.Option("--verify", help="Take only steps that the verifier accepts, compiled code included.")] = False,
        trace: Annotated[bool, typer.Option("--trace", help="Print the trace, from which every step can be replayed.")] = False,
        preset: Annotated[str | None, typer.Option(help="Preset of a zoo workload.")] = None,
        json: Annotated[bool, typer.Option("--json", help="Machine-readable output.")] = False,
    ) -> None:
        """Find cheaper equal expressions by equality saturation, and the atomic steps that lead to them.

        Prints the next program, and its steps as comments. Where nothing is cheaper, the program comes back as it is.
        """
        from steptp.cli.common import counted, emit_json, read_program
        from steptp.ir import print_program
        from steptp.rewrite.saturation import saturate as run

        def accepted(parent: Program, step: Applied) -> bool:
            from steptp.dataset.pairs import verify_isolated

            return verify_isolated(parent, step.program, applied=step).ok

        subject = read_program(program, preset)
        found = run(subject, accept=accepted) if verify else run(subject)
        if json:
            stores = [{"at": i.at, "old": i.old, "new": i.new, "steps": list(i.steps)} for i in found.improved]
            emit_json({"before": found.before, "after": found.after, "stores": stores, "trace": found.trace.to_text(), "program": print_program(found.program)})
            return
        if trace:
            typer.echo(found.trace.to_text(), nl=False)
            return
        typer.echo(print_program(found.program))
        if not found.improved:
            typer.echo("# nothing better: no equal expression costs less", err=True)
            return
        for store in found.improved:
            typer.echo(f"# {store.old} became {store.new}", err=True)
            for step in store.steps:
                typer.echo(f"#   {step}", err=True)
        steps = counted(len(found.trace.steps), "step")
        typer.echo(f"# {steps}: {found.before:,} weighted operations before, {found.after:,} after", err=True)
