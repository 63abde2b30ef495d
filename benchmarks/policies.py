"""Single steps of models and rules on held-out states: the whole protocol of docs/evaluating.md, one evaluation after another.

    python benchmarks/policies.py DATASET --model scratch=out/scratch/model --model lora=out/lora/adapter --base smollm2=smollm2 [--states 100] [--samples 8]

For both test splits: *named* edits of every model without a grammar, with one, and with one and going back to faults, of a ``--base`` model with 3 examples before the question, of a ``--model`` on a blinded program too; of a
``--reasons`` model with reasons asked for. *Action*: the rules and every model, and every ``--model`` with its candidates in another order and on a blinded program. Evaluations are kept in
``--out`` by name and go on where they were. ``--only`` takes evaluations whose name has one of its words. The table is printed as Markdown; the last line is one JSON object.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal, get_args

from steptp.cli.progress import BuildProgress
from steptp.dataset.store import Dataset
from steptp.errors import UsageError
from steptp.evaluate.answerers import RULES, Answerer, LocalAnswerer, RuleAnswerer
from steptp.evaluate.run import Options, evaluate
from steptp.evaluate.states import Selection
from steptp.report.evaluation_page import COLUMNS, cells, evaluation_page

_SPLITS = ("test_seen_family", "test_new_family")
_SHOTS = 3
_REWINDS = 24
Way = Literal["free", "grammar", "rewinds"]
"""How a model may write: anything; what a grammar takes; that, and going back to where it is no program."""


@dataclass(frozen=True)
class Run:
    """One evaluation; ``model``: its name among the arguments, or of a rule."""

    name: str
    model: str
    wanted: Selection
    way: Way = "grammar"


def runs(args: argparse.Namespace) -> Iterator[Run]:
    """All evaluations, those of one model behind one another."""
    trained, bases, reasoning = dict(args.model), dict(args.base), dict(args.reasons)

    def named(split: str, **more: Any) -> Selection:
        return Selection("named", "edit", split, states=args.states, seed=args.seed, **more)

    def action(split: str, **more: Any) -> Selection:
        return Selection("action", "action", split, states=args.states, seed=args.seed, **more)

    for split in _SPLITS:
        yield Run(f"{split}/named-copy", "copy", named(split))
        for rule in sorted(RULES):
            yield Run(f"{split}/action-{rule}", rule, action(split))
    for name in (*trained, *bases, *reasoning):
        shots = {"shots": _SHOTS} if name in bases else {}
        reasons = {"reasons": True} if name in reasoning else {}
        for split in _SPLITS:
            for way in get_args(Way):
                yield Run(f"{split}/named-{name}-{way}", name, named(split, **shots, **reasons), way)
            yield Run(f"{split}/action-{name}", name, action(split, **shots))
            if name in trained:
                yield Run(f"{split}/named-{name}-free-blind", name, named(split, blind=True), "free")
                yield Run(f"{split}/action-{name}-shuffled", name, action(split, shuffle=1))
                yield Run(f"{split}/action-{name}-blind", name, action(split, blind=True))


def answerers(args: argparse.Namespace, data: Dataset) -> Callable[[str, Way], Answerer]:
    """Who answers, by the name of a model or rule and how it may write; a model is loaded once for runs behind one another."""
    models = {**dict(args.model), **dict(args.base), **dict(args.reasons)}

    @lru_cache(maxsize=2)
    def answerer(name: str, way: Way) -> Answerer:
        if name not in models:
            return RuleAnswerer(name, data, seed=args.seed)
        return LocalAnswerer(models[name], constrained=way != "free", rewinds=_REWINDS if way == "rewinds" else 0, batch=args.batch, seed=args.seed)

    return answerer


def evaluated(run: Run, answerer: Answerer, args: argparse.Namespace, data: Dataset) -> dict[str, Any] | None:
    """The result of a run, from where an earlier one came to; ``None`` where the split has no such states."""
    print(f"{run.name} …", flush=True)
    with BuildProgress() as progress:
        try:
            return evaluate(
                data, answerer, run.wanted, Options(args.samples, args.measure, jobs=args.jobs), args.out / run.name, resume=True, progress=progress
            )
        except UsageError as err:
            if err.code != "usage-split":
                raise
            print(f"{run.name}: {err.message}")
            return None


def table(results: dict[str, dict[str, Any]], split: str, task: str) -> str:
    """A split's evaluations of one task as Markdown."""
    lines = [f"| {split} | " + " | ".join(COLUMNS[task]) + " |", "| --- " * (len(COLUMNS[task]) + 1) + "|"]  # type: ignore[index]
    for name, result in results.items():
        own, _, rest = name.partition("/")
        if own == split and rest.startswith(f"{task}-"):
            lines.append(f"| {rest.removeprefix(task + '-')} | " + " | ".join(cells(result)) + " |")
    return "\n".join(lines)


def _pair(text: str) -> tuple[str, str]:
    name, equals, place = text.partition("=")
    if not (name and equals and place):
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=MODEL")
    return name, place


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dataset", type=Path)
    parser.add_argument("--model", type=_pair, action="append", default=[], metavar="NAME=MODEL", help="a trained model: a folder, or that of an adapter")
    parser.add_argument("--base", type=_pair, action="append", default=[], metavar="NAME=MODEL", help="asked with examples")
    parser.add_argument("--reasons", type=_pair, action="append", default=[], metavar="NAME=MODEL", help="trained to give reasons")
    parser.add_argument("--states", type=int, default=100)
    parser.add_argument("--samples", type=int, default=8)
    parser.add_argument("--batch", type=int, default=24)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--measure", action="store_true", help="time chosen actions that the dataset did not")
    parser.add_argument("--only", nargs="*", default=[], metavar="WORD")
    parser.add_argument("--out", type=Path, default=Path("out/policies"))
    args = parser.parse_args()
    data = Dataset.open(args.dataset)
    results: dict[str, dict[str, Any]] = {}
    who = answerers(args, data)
    for run in runs(args):
        if args.only and not any(word in run.name for word in args.only):
            continue
        found = evaluated(run, who(run.model, run.way), args, data)
        if found is not None:
            results[run.name] = found
    args.out.mkdir(parents=True, exist_ok=True)
    page = args.out / "page.html"
    page.write_text(evaluation_page(list(results.items())), encoding="utf-8")
    for split in _SPLITS:
        for task in ("named", "action"):
            print(table(results, split, task) + "\n")
    named = {name: result["greedy"]["equal"]["mean"] for name, result in results.items() if "/named-" in name}
    acted = {name: result["greedy"]["regret"]["mean"] for name, result in results.items() if "/action-" in name}
    print(json.dumps({"equal": named, "regret": acted, "page": str(page)}))


if __name__ == "__main__":
    main()
