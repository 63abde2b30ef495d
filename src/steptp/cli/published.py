"""``steptp verify --notation published``: programs in the published notation, alone or against each other."""

from __future__ import annotations

import typer

__all__ = ["show_reading", "verify_published"]


def show_reading(name: str, as_json: bool) -> None:
    """Convert one program and print it with every point that its text leaves open."""
    from steptp.cli.common import emit_json, read_text
    from steptp.ir import print_program
    from steptp.ir.published import read

    reading = read(read_text(name), name)
    text = print_program(reading.program)
    if as_json:
        emit_json({"program": text, "open": [{"code": n.code, "message": n.message, "reading": n.reading} for n in reading.notes]})
        return
    typer.echo(text)
    for note in reading.notes:
        typer.echo(note.render())


def verify_published(first: str, second: str, seed: int, compiled: bool, as_json: bool, explained: bool = False) -> None:
    """Judge the second program against the first; exit status 1 where it does not hold."""
    from steptp.cli.common import emit_json, read_text
    from steptp.dataset.pairs import then_compiled
    from steptp.ir.published import OPEN_POINTS, read_pair
    from steptp.verify.published import judge_pair
    from steptp.verify.verdict import report_json

    pair = read_pair(read_text(first), read_text(second), (first, second))
    found = judge_pair(pair, seed=seed, arrays=True)
    verdict = found.verdict
    if compiled and verdict.ok:
        verdict = then_compiled(verdict, pair.reference.serial, pair.candidate.serial, seed=seed)
    why = None
    if explained and not verdict.ok:
        from steptp.verify.explain import explain

        loops = str(verdict.kind) == "illegal"  # a claim of the loops as written
        why = explain(pair.reference.serial, pair.candidate.claimed if loops else pair.candidate.serial, verdict, seed=seed)
    codes = list(dict.fromkeys((*pair.reference.codes, *pair.candidate.codes)))
    if as_json:
        emit_json(
            {
                "verdict": str(verdict.kind), "tier": verdict.tier, "message": verdict.message, "function": str(found.function),
                "races": list(found.races), "races_of_the_reference": list(found.shared_races), "matched": list(pair.matched), "open": codes,
                "reports": [report_json(r) for r in verdict.reports], **({} if why is None else {"explanation": why.as_dict()}),
            }
        )  # fmt: skip
    else:
        typer.echo(f"{verdict.kind} at tier {verdict.tier}: {verdict.message}")
        for report in verdict.reports:
            typer.echo(f"  tier {report.tier} {report.kind} ({report.seconds * 1e3:.0f} ms): {report.message}")
        if not verdict.ok and str(found.function) == "ok":
            typer.echo("  in serial order the outputs are equal")
        for line in (*pair.matched, *(f"the reference races too: {r}" for r in found.shared_races)):
            typer.echo(f"  {line}")
        if why is not None:
            typer.echo(why.render(headed=False))
        typer.echo("open points of the notation:")
        for code in codes:
            typer.echo(f"  {code}: {OPEN_POINTS[code]}")
    if not verdict.ok:
        raise typer.Exit(1)
