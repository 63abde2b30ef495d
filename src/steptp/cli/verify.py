"""``steptp verify``: a dataset's records from scratch, or two programs against each other."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from steptp.errors import UsageError

__all__ = ["register"]


def register(app: typer.Typer) -> None:
    @app.command("verify")
    def verify(
        first: Annotated[str, typer.Argument(metavar="DIR|A", help="A dataset folder, or the reference program.")],
        second: Annotated[
            str | None, typer.Argument(metavar="B", help="The candidate: x.leir, zoo:name or einsum:…, or a kernel to run, file.py:name.")
        ] = None,
        sample: Annotated[int | None, typer.Option(min=1, help="Check this many records, chosen by seed (default: all).")] = None,
        remeasure: Annotated[bool, typer.Option("--remeasure", help="Time measured records again and compare labels.")] = False,
        seed: Annotated[int, typer.Option(min=0, help="Seed of the sample and of the inputs.")] = 0,
        jobs: Annotated[int, typer.Option(min=1, help="Worker processes.")] = 2,
        notation: Annotated[str, typer.Option(help="Notation of A and B: leir, or published (tiers 0 to 3).")] = "leir",
        compiled: Annotated[bool, typer.Option("--compiled", help="With --notation published: also tier 4, which compiles both programs.")] = False,
        explain: Annotated[bool, typer.Option("--explain", help="Of a rejected pair: one element, how both compute it, and where they part.")] = False,
        json: Annotated[bool, typer.Option("--json", help="Machine-readable output.")] = False,
    ) -> None:
        """Verify a dataset's records again, or program B against A.

        With --notation published, A alone is converted and printed with what its text leaves open.

        Exit status 0 when all hold, 1 on a mismatch or a rejected pair, 2 on bad input.
        """
        if notation not in ("leir", "published"):
            raise UsageError("usage-notation", f"no notation named {notation}", hint="notations: leir, published")
        if notation == "published":
            from steptp.cli.published import show_reading, verify_published

            if second is None:
                show_reading(first, json)
            else:
                verify_published(first, second, seed, compiled, json, explain)
        elif second is not None:
            _pair(first, second, seed, json, explain)
        else:
            _dataset(Path(first), sample, remeasure, seed, jobs, json)


def _pair(first: str, second: str, seed: int, as_json: bool, explained: bool) -> None:
    from steptp.cli.common import emit_json, read_program
    from steptp.dataset.pairs import verify_isolated
    from steptp.verify.verdict import report_json

    kernel = ":" in second and not second.startswith(("zoo:", "einsum:"))  # somebody's function or module, run as it is
    parent, child = read_program(first), None if kernel else read_program(second)
    if child is None:
        from steptp.verify.kernels import verify as verify_kernel

        verdict = verify_kernel(first, second, seed=seed)
    else:
        verdict = verify_isolated(parent, child, seed=seed)
    why = None
    if explained and child is not None and not verdict.ok:
        from steptp.verify.explain import explain

        why = explain(parent, child, verdict, seed=seed)
    if as_json:
        record = {"verdict": str(verdict.kind), "tier": verdict.tier, "message": verdict.message, "reports": [report_json(r) for r in verdict.reports]}
        emit_json(record if why is None else {**record, "explanation": why.as_dict()})
    else:
        typer.echo(f"{verdict.kind} at tier {verdict.tier}: {verdict.message}")
        for report in verdict.reports:
            typer.echo(f"  tier {report.tier} {report.kind} ({report.seconds * 1e3:.0f} ms): {report.message}")
        if (c := verdict.counterexample) is not None:
            place = ",".join(map(str, c.index))
            sizes = " ".join(f"{k}={v}" for k, v in c.sizes)
            typer.echo(f"  {c.output}[{place}] should be {c.expected}, is {c.actual}  ({sizes}; inputs '{c.regime}', seed {c.seed})")
        if why is not None:
            typer.echo(why.render(headed=False))
    if not verdict.ok:
        raise typer.Exit(1)


def _dataset(folder: Path, sample: int | None, remeasure: bool, seed: int, jobs: int, as_json: bool) -> None:
    from steptp.cli.common import emit_json
    from steptp.cli.progress import BuildProgress
    from steptp.dataset.recheck import recheck

    with BuildProgress(quiet=as_json) as progress:
        result = recheck(folder, sample=sample, remeasure=remeasure, seed=seed, jobs=jobs, progress=progress)
    if as_json:
        emit_json(result.as_dict())
    else:
        typer.echo(f"{result.checked} records checked, {len(result.mismatches)} mismatches")
        for line in result.mismatches[:20]:
            typer.echo(f"  {line}")
        if remeasure:
            typer.echo(f"{result.remeasured} measured again, {result.labels_again} labels again ({result.label_share:.1%})")
    if result.mismatches:
        raise typer.Exit(1)
