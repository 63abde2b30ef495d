"""``steptp mutate``: wrong versions of a program, why they are wrong, and whether the verifier notices."""

from __future__ import annotations

from typing import Annotated

import typer

__all__ = ["register"]


def register(app: typer.Typer) -> None:
    @app.command("mutate")
    def mutate(
        program: Annotated[str, typer.Argument(metavar="X", help="A program: x.leir or any workload spec.")],
        operator: Annotated[list[str] | None, typer.Option("--operator", help="Only this mutation operator (may be repeated).")] = None,
        seed: Annotated[int, typer.Option(min=0, help="Seed of the choice and of the inputs.")] = 0,
        limit: Annotated[int, typer.Option(min=1, help="At most this many mutants.")] = 40,
        compiled: Annotated[bool, typer.Option(help="Also run what tiers 0 to 3 accept as compiled code (tier 4).")] = True,
        explain: Annotated[bool, typer.Option("--explain", help="Of a refused mutant: one element, how both compute it, and where they part.")] = False,
        json: Annotated[bool, typer.Option("--json", help="Machine-readable output.")] = False,
    ) -> None:
        """Mutate program X and verify every mutant against it.

        Exit status 0 when the verifier refuses every mutant that has a witness, 1 when one survives, 2 on bad input.
        """
        from dataclasses import asdict
        from textwrap import indent

        from steptp.cli.common import counted, emit_json, read_program
        from steptp.mutate.report import mutate as run
        from steptp.mutate.report import summary

        groups = run(read_program(program), limit=limit, seed=seed, chosen=operator, build_tiers=compiled, explained=explain)
        report = summary(judged for _, judged in groups)
        if json:
            emit_json({"report": asdict(report), "mutants": [j.as_dict() for _, judged in groups for j in judged]})
        else:
            width = max((len(m.name) for m, _ in groups), default=0)
            for mutant, judged in groups:
                for one in judged:
                    why = one.witness.kind if one.witness is not None else "no witness"
                    typer.echo(f"{one.outcome:9} {mutant.name:{width}}  {why:12} {one.verdict} at tier {one.tier}: {one.message}")
                    if one.told is not None:
                        typer.echo(indent(one.told.render(headed=False), "    "))
            typer.echo(
                f"{report.killed} of {counted(report.mutants, 'mutant')} with a witness killed, {len(report.survived)} survived, {len(report.undecided)} undecided"
            )
            typer.echo(f"{counted(len(report.unknown), 'mutant')} without a witness (equal to the program, or not shown to differ)")
        if report.survived:
            raise typer.Exit(1)
