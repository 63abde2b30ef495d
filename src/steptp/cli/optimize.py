"""``steptp optimize WORKLOAD``: search for a faster program that is proven to compute the same."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from steptp.cli.progress import BuildProgress
    from steptp.search.finish import Answer
    from steptp.search.policy import Policy
    from steptp.search.session import Progress

__all__ = ["register"]


def register(app: typer.Typer) -> None:
    @app.command("optimize")
    def optimize(
        workload: Annotated[str, typer.Argument(metavar="WORKLOAD", help="x.leir, file.py:Class, module:Class, einsum:… or zoo:name")],
        policy: Annotated[
            str, typer.Option(help="Who proposes steps: heuristic, random, openai (a model behind an API) or local (a model in this process).")
        ] = "heuristic",
        search: Annotated[
            str | None, typer.Option(help="beam, bfs, chain, dfs, evolutionary, greedy or mcts; settings as beam:width=2,k=4. Default: what suits the policy.")
        ] = None,
        samples: Annotated[int, typer.Option(min=1, help="Proposals to draw at most.")] = 64,
        tokens: Annotated[int | None, typer.Option(min=1, help="Tokens of prompts and answers at most (openai, local).")] = None,
        measurements: Annotated[int | None, typer.Option(min=1, help="Programs to time at most.")] = None,
        seconds: Annotated[float | None, typer.Option(min=0, help="Seconds of search at most; the closing check and writing come on top.")] = None,
        threads: Annotated[int, typer.Option(min=1, help="Threads of parallel loops.")] = len(os.sched_getaffinity(0)),
        jobs: Annotated[int, typer.Option(min=1, help="Worker processes that check candidates.")] = 1,
        seed: Annotated[int, typer.Option(min=0, help="Same seed and same measured times, same tree.")] = 0,
        out: Annotated[Path, typer.Option("--out", "-o", help="Folder of the results and of the journal.")] = Path("optimized"),
        resume: Annotated[bool, typer.Option("--resume", help="Continue the search that the folder holds.")] = False,
        preset: Annotated[str | None, typer.Option(help="Preset of a zoo workload.")] = None,
        model: Annotated[str, typer.Option(help="The model's name (openai); a model folder, a .gguf file, smollm2 or a name (local).")] = "",
        adapter: Annotated[Path | None, typer.Option(help="Folder of a PEFT adapter for the model (local).")] = None,
        base_url: Annotated[str | None, typer.Option(help="An OpenAI-compatible API, as http://127.0.0.1:8000/v1; the key is in OPENAI_API_KEY.")] = None,
        form: Annotated[str, typer.Option("--format", help="What the model answers: action, edit or rewrite (openai, local).")] = "action",
        reasons: Annotated[bool, typer.Option("--reasons", help="Ask for a reason before the answer (openai, local).")] = False,
        temperature: Annotated[float, typer.Option(min=0, help="Of sampling (openai, local).")] = 0.8,
        free: Annotated[bool, typer.Option("--free", help="Let the model write anything: no grammar (local), no schema (openai).")] = False,
        rewinds: Annotated[int, typer.Option(min=0, help="How often an answer may go back to where it stopped being a program (local).")] = 24,
        json: Annotated[bool, typer.Option("--json", help="Print result.json's content.")] = False,
    ) -> None:
        """Search for a faster program; Ctrl-C ends with the best verified one so far.

        Writes the program as LEIR, TVMScript and a shared library with a C header, the trace, and a report of every step with evidence and reasons.
        """
        from steptp.cli.common import console, emit_json, read_program
        from steptp.cli.progress import BuildProgress
        from steptp.policy import policy as policy_of
        from steptp.policy import usual_search
        from steptp.report.search_page import PAGE, search_page
        from steptp.search.algorithms import algorithm as algorithm_of
        from steptp.search.budget import Limits
        from steptp.search.outcome import find_faster

        chosen = algorithm_of(search or usual_search(policy))
        answers: dict[str, Any] = {"model": model, "form": form, "reasons": reasons, "temperature": temperature, "cache": out / "journal" / "answers.sqlite"}
        if policy == "openai":
            proposer = _served(base_url, structured=not free, **answers)
        elif policy == "local":
            proposer = policy_of(policy, adapter=adapter, constrained=not free, rewinds=rewinds, **answers)
        else:
            proposer = policy_of(policy)
        program = read_program(workload, preset)
        limits = Limits(samples=samples, measurements=measurements, tokens=tokens, seconds=seconds)
        with BuildProgress(quiet=json) as progress:
            found = find_faster(
                program, proposer, chosen, limits, workload=workload, threads=threads, jobs=jobs, seed=seed, folder=out, resume=resume, say=progress.say,
                watch=lambda now: _watch(progress, now, samples), pages={PAGE: search_page},
            )  # fmt: skip
        if json:
            emit_json(found.result)
            return
        _print(console().print, found.result, found.answer, out)


def _served(base_url: str | None, **settings: Any) -> Policy:
    """The policy over HTTP; says at once when nothing answers."""
    from steptp.policy.openai_compatible import OpenAICompatible

    made = OpenAICompatible(base_url=base_url, **settings)
    made.endpoint.check()
    return made


def _watch(progress: BuildProgress, now: Progress, samples: int) -> None:
    note = f"best {now.best.speedup or 1.0:.2f}x of the start, {now.nodes} programs"
    progress.stage("proposals", samples, int(now.spent["samples"]), note)


def _print(say: Any, result: dict[str, Any], answer: Answer, out: Path) -> None:
    from steptp.cli.common import counted, highlight
    from steptp.search.moves import move_key, move_of

    for step in result["steps"]:
        figure = "" if step["ratio"] is None else f"{step['ratio']:.2f}x, {step['speedup']:.2f}x of the start"
        say(f"  {highlight(move_key(move_of(step['move'])).splitlines()[0])}  [dim]{figure}[/]")
    say("")
    say(highlight(answer.node.text))
    if answer.judged is None:
        say("Nothing verified was faster than the start; the result is the start itself.")
    else:
        timing = answer.judged["timing"]
        say(
            f"[bold]{timing['ratio']:.2f}x[/] ({timing['ci_low']:.2f} to {timing['ci_high']:.2f}) the speed of the start, timed afresh: "
            f"{timing['parent_us']:,.1f} µs before, {timing['child_us']:,.1f} µs after; {counted(len(result['steps']), 'step')}, "
            f"verified {answer.judged['kind']} at tier {answer.judged['tier']} against the start"
        )
    say(f"Everything is in [bold]{out}[/].")
