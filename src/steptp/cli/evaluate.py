"""``steptp evaluate POLICY DATASET`` and ``steptp compare RUN…``: single steps of a policy on held-out states."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from steptp.evaluate.answerers import Answerer

__all__ = ["register"]


def register(app: typer.Typer) -> None:
    @app.command("evaluate")
    def evaluate(
        policy: Annotated[str, typer.Argument(metavar="POLICY", help="local, openai, or a rule: copy, unroll, parallelise, prior, random, heuristic.")],
        dataset: Annotated[Path, typer.Argument(metavar="DATASET", help="Folder of a dataset.")],
        split: Annotated[str, typer.Option(help="validation, test_seen_family or test_new_family.")] = "test_seen_family",
        samples: Annotated[int, typer.Option("-k", "--samples", min=0, help="Answers drawn for each state, beside a greedy one.")] = 8,
        task: Annotated[str, typer.Option(help="named (strategy and site given), free, or action (choose a listed candidate).")] = "named",
        form: Annotated[str, typer.Option("--format", help="edit or rewrite (named, free).")] = "edit",
        reasons: Annotated[bool, typer.Option("--reasons", help="Ask for reasons before the answer.")] = False,
        states: Annotated[int, typer.Option(min=1, help="States at most.")] = 100,
        per_root: Annotated[int, typer.Option(min=1, help="States of one root at most.")] = 5,
        temperature: Annotated[float, typer.Option(min=0, help="Of the drawn answers.")] = 0.8,
        max_tokens: Annotated[int, typer.Option(min=1, help="Of one answer.")] = 512,
        free: Annotated[bool, typer.Option("--free", help="Let the model write anything: no grammar (local), no schema (openai).")] = False,
        rewinds: Annotated[int, typer.Option(min=0, help="How often an answer may go back to where it stopped being a program (local).")] = 24,
        shots: Annotated[int, typer.Option(min=0, help="Examples from the train split before each question.")] = 0,
        shuffle_sites: Annotated[int, typer.Option(min=0, help="Give the candidates of an action another order and other ids, by this number.")] = 0,
        blind_program: Annotated[bool, typer.Option("--blind-program", help="Do not show the program.")] = False,
        model: Annotated[str, typer.Option(help="A model folder, a .gguf file, smollm2 (local); the model's name (openai).")] = "",
        adapter: Annotated[Path | None, typer.Option(help="Folder of a PEFT adapter for the model (local).")] = None,
        base_url: Annotated[str | None, typer.Option(help="An OpenAI-compatible API; the key is in OPENAI_API_KEY.")] = None,
        batch: Annotated[int, typer.Option(min=1, help="Answers written at once (local).")] = 8,
        no_measure: Annotated[bool, typer.Option("--no-measure", help="Time nothing: gains are those that the dataset holds.")] = False,
        threads: Annotated[int, typer.Option(min=1, help="Threads of compiled parallel loops.")] = 1,
        jobs: Annotated[int, typer.Option(min=1, help="Worker processes that judge answers.")] = len(os.sched_getaffinity(0)),
        seed: Annotated[int, typer.Option(min=0, help="Of the states and of the drawn answers.")] = 0,
        out: Annotated[Path | None, typer.Option("--out", "-o", help="Folder of the run (default: out/evaluate/…).")] = None,
        resume: Annotated[bool, typer.Option("--resume", help="Go on with the run that the folder holds.")] = False,
        json: Annotated[bool, typer.Option("--json", help="Print result.json's content.")] = False,
    ) -> None:
        """Ask a policy for single steps at held-out states; every answer is judged as a dataset's steps are, and kept."""
        from typing import cast, get_args

        from steptp.cli.common import console, emit_json
        from steptp.cli.progress import BuildProgress
        from steptp.dataset.questions import Form, Task
        from steptp.dataset.store import Dataset
        from steptp.errors import UsageError
        from steptp.evaluate.run import Options
        from steptp.evaluate.run import evaluate as run
        from steptp.evaluate.states import Selection

        for value, known in ((task, get_args(Task)), (form, get_args(Form))):
            if value not in known:
                raise UsageError("usage-choice", f"{value!r} is none of {', '.join(known)}")
        data = Dataset.open(dataset)
        wanted = Selection(
            cast("Task", task), cast("Form", "action" if task == "action" else form), split, states=states, per_root=per_root, seed=seed, reasons=reasons,
            shuffle=shuffle_sites, blind=blind_program, shots=shots,
        )  # fmt: skip
        answerer = _answerer(
            policy, data, model=model, adapter=adapter, base_url=base_url, free=free, rewinds=rewinds, temperature=temperature, max_tokens=max_tokens,
            batch=batch, seed=seed,
        )  # fmt: skip
        folder = out or Path("out/evaluate") / "-".join(filter(None, (policy, task, split, "free" if free else "", "blind" if blind_program else "")))
        with BuildProgress(quiet=json) as progress:
            options = Options(samples, not no_measure, threads, jobs)
            result = run(data, answerer, wanted, options, folder, resume=resume, progress=progress)
        if json:
            emit_json(result)
            return
        _table([(folder.name, result)])
        console().print(f"Every answer is in [bold]{folder / 'answers.jsonl'}[/]; put runs side by side with: steptp compare {folder} …")

    @app.command("compare")
    def compare(
        runs: Annotated[list[Path], typer.Argument(metavar="RUN…", help="Folders that steptp evaluate wrote.")],
        page: Annotated[Path | None, typer.Option("--page", help="Write one HTML page of all runs.")] = None,
        json: Annotated[bool, typer.Option("--json", help="Print the results as JSON.")] = False,
    ) -> None:
        """Put evaluations side by side, in a table and on one HTML page."""
        from steptp.cli.common import console, emit_json, highlight
        from steptp.report.evaluation_page import evaluation_page, read_results

        results = read_results(runs)
        if page is not None:
            page.parent.mkdir(parents=True, exist_ok=True)
            page.write_text(evaluation_page(results), encoding="utf-8")
        if json:
            emit_json(dict(results))
            return
        _table(results)
        if page is not None:
            console().print(f"wrote [bold]{highlight(str(page))}[/]")


def _answerer(policy: str, data: Any, *, free: bool, rewinds: int, batch: int, adapter: Path | None, base_url: str | None, **settings: Any) -> Answerer:
    from steptp.evaluate.answerers import LocalAnswerer, RuleAnswerer, ServedAnswerer

    if policy == "local":
        return LocalAnswerer(adapter=adapter, constrained=not free, rewinds=rewinds, batch=batch, **settings)
    if policy == "openai":
        return ServedAnswerer(base_url=base_url, structured=not free, **settings)
    return RuleAnswerer(policy, data, seed=settings["seed"])


def _table(results: list[tuple[str, dict[str, Any]]]) -> None:
    from rich.table import Table

    from steptp.cli.common import console
    from steptp.report.evaluation_page import COLUMNS, cells

    for task in dict.fromkeys(result["selection"]["task"] for _, result in results):
        table = Table("run", "split", *COLUMNS[task], box=None, pad_edge=False, title=task, title_justify="left")
        for name, result in results:
            if result["selection"]["task"] == task:
                table.add_row(name, result["selection"]["split"], *cells(result))
        console().print(table)
