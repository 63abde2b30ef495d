"""One evaluation: ask, keep every answer, judge, sum up. Killed at any moment, it goes on where it was."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from steptp.analysis.host import HostInfo
from steptp.dataset.build import Progress
from steptp.dataset.finalize import atomic_write
from steptp.dataset.questions import prompt_versions
from steptp.dataset.samples import Sample
from steptp.dataset.store import Dataset
from steptp.errors import UsageError
from steptp.evaluate.answerers import Answerer, Wanted
from steptp.evaluate.judging import STAGES, Work, judge_all, stages
from steptp.evaluate.states import Asked, Selection, select
from steptp.evaluate.statistics import mean_by_root, pass_at_k, regret
from steptp.ir.seeds import digest
from steptp.measure import version_block
from steptp.measure.journal import FolderLock, Journal
from steptp.measure.margin import host_margin
from steptp.search.evaluator import Judge
from steptp.search.moves import Action, Answer, Failed, move_json

__all__ = ["ANSWERS", "RESULT", "Options", "evaluate"]

RESULT = "result.json"
ANSWERS = "answers.jsonl"
_K = (1, 2, 4, 8, 16)


@dataclass(frozen=True, slots=True)
class Options:
    """``samples``: drawn for each state, beside a greedy one; ``measure``: time equal programs of the tasks free and action against their parents."""

    samples: int = 8
    measure: bool = True
    threads: int = 1
    jobs: int = 1


@dataclass(frozen=True, slots=True)
class _Row:
    """An answer and what came of it. ``number`` 0 is greedy; ``child``: hash of the recorded program."""

    asked: Asked
    number: int
    raw: dict[str, Any]
    answer: Answer
    verdict: dict[str, Any] | None
    child: str

    @property
    def site(self) -> str | None:
        """The site of an action."""
        return None if isinstance(self.answer, Failed) or not isinstance(self.answer.move, Action) else self.answer.move.site

    @property
    def unmeasured(self) -> bool:
        """Whether nothing is known of what an action's choice gains."""
        if self.site is None or self.site in _measured(self.asked.sample):
            return False
        return self.verdict is None or (self.verdict["kind"] == "ok" and "ratio" not in self.verdict)

    @property
    def ratio(self) -> float | None:
        """Measured gain of an action's choice; ``None`` for staying put."""
        if self.site is None:
            return None
        held = _measured(self.asked.sample).get(self.site)
        return held if held is not None or self.verdict is None else self.verdict.get("ratio")

    @property
    def passes(self) -> bool:
        """*action*: the best measured sibling; else an equal program."""
        sample = self.asked.sample
        return self.site == sample.sites[sample.best] if sample.task == "action" else stages(self.answer, self.verdict)["equal"]


def _measured(sample: Sample) -> dict[str, float]:
    """Site of a measured candidate → its gain."""
    return {sample.sites[name]: ratio for name, ratio in sample.ratios.items()}


def evaluate(
    data: Dataset, answerer: Answerer, wanted: Selection, options: Options, folder: Path, *, resume: bool = False, progress: Progress
) -> dict[str, Any]:
    """The result, as ``result.json`` holds it; every answer is in ``answers.jsonl``. Raises :class:`UsageError` ``usage-out`` for a folder of another run."""
    asked = select(data, wanted)
    numbers = range(1 if answerer.deterministic else options.samples + 1)
    identity = {
        "policy": [answerer.name, answerer.settings], "selection": asdict(wanted), "samples": len(numbers) - 1, "measure": options.measure,
        "questions": digest(*(part for a in asked for m in a.messages for part in m.values())),
    }  # fmt: skip
    with ExitStack() as stack:
        stack.enter_context(FolderLock(folder / "journal"))
        journal = stack.enter_context(Journal(folder / "journal" / "evaluation.jsonl"))
        _check(journal, identity, folder, resume)
        cells = [(a, n) for a in asked for n in numbers]
        _ask(answerer, cells, journal, progress)
        answers = {_key(a, n): answerer.read(a, journal.get(_key(a, n))) for a, n in cells}
        _judge(data, cells, answers, wanted, options, journal, progress)
        children = {step["id"]: step["child"] or "" for step in data.steps}
        rows = [_row(a, n, journal, answers[_key(a, n)], children.get(a.sample.id, ""), _timed(wanted, options)) for a, n in cells]
    result = {
        "policy": answerer.name, "settings": answerer.settings, "selection": asdict(wanted), "options": asdict(options) | {"samples": len(numbers) - 1},
        "dataset": {"folder": str(data.folder), "steps": len(data.steps), "programs": digest(*sorted(data.programs))}, "host": HostInfo.detect().to_dict(),
        "versions": version_block(), "prompts": prompt_versions(), **_summed(rows, wanted), "shown": _shown(rows),
    }  # fmt: skip
    atomic_write(folder / ANSWERS, "".join(json.dumps(_line(row), ensure_ascii=False) + "\n" for row in rows))
    atomic_write(folder / RESULT, json.dumps(result, indent=2, ensure_ascii=False) + "\n")
    return result


def _check(journal: Journal, identity: dict[str, Any], folder: Path, resume: bool) -> None:
    plain = json.loads(json.dumps(identity))
    if "identity" not in journal:
        journal.append("identity", plain)
    elif not resume:
        raise UsageError("usage-out", f"{folder} holds an evaluation already", hint="give --resume to continue it, or another --out")
    elif (known := journal.get("identity")) != plain:
        changed = ", ".join(sorted(k for k in {*known, *plain} if known.get(k) != plain.get(k)))
        raise UsageError("usage-out", f"the evaluation in {folder} was begun otherwise ({changed})", hint="choose another --out")


def _key(asked: Asked, number: int) -> str:
    return f"answer/{asked.sample.id}/{number}"


def _ask(answerer: Answerer, cells: Sequence[Wanted], journal: Journal, progress: Progress) -> None:
    """Every answer that the journal does not hold yet."""
    missing = [(a, n) for a, n in cells if _key(a, n) not in journal]
    had = len(cells) - len(missing)
    progress.stage("answers", len(cells), had)
    kept = 0

    def keep(place: int, raw: dict[str, Any]) -> None:
        nonlocal kept
        key = _key(*missing[place])
        if key not in journal:
            journal.append(key, raw)
            kept += 1
            progress.stage("answers", len(cells), had + kept)

    if missing:
        answerer.answer(missing, keep)


def _timed(wanted: Selection, options: Options) -> bool:
    return options.measure and wanted.task != "named"


def _judge(
    data: Dataset, cells: Sequence[Wanted], answers: Mapping[str, Answer], wanted: Selection, options: Options, journal: Journal, progress: Progress
) -> None:
    """Every move once. An *action* among the measured candidates is known already; without timing, the others stay unknown."""
    work: dict[str, Work] = {}
    for asked, number in cells:
        answer, sample = answers[_key(asked, number)], asked.sample
        if isinstance(answer, Failed):
            continue
        if wanted.task == "action" and isinstance(answer.move, Action):
            if answer.move.site in _measured(sample) or not options.measure:
                continue
        piece = Work(sample, answer.move, _timed(wanted, options))
        work.setdefault(piece.key, piece)
    missing = [piece for key, piece in work.items() if key not in journal]
    done = len(work) - len(missing)
    progress.stage("verdicts", len(work), done)

    def keep(key: str, verdict: dict[str, Any]) -> None:
        nonlocal done
        journal.append(key, verdict)
        done += 1
        progress.stage("verdicts", len(work), done)

    def margin(judge: Judge) -> None:
        progress.say("measuring this host's own noise")
        judge.margin(host_margin(judge.pool, cache=journal.path.parent / "margin.json").margin)

    if not missing:
        return
    recorded = {(s["parent"], s["child"]): s["verdict"] for s in data.steps if s["child"]}
    roots = {s["root"]: data.program(s["root"])["text"] for s in data.steps if s["root"] in data.programs}
    judge_all(missing, roots, recorded, threads=options.threads, jobs=options.jobs, seed=wanted.seed, margin=margin, done=keep)


def _row(asked: Asked, number: int, journal: Journal, answer: Answer, child: str, timed: bool) -> _Row:
    verdict = None
    if not isinstance(answer, Failed):
        key = Work(asked.sample, answer.move, timed).key
        verdict = journal.get(key) if key in journal else None
    return _Row(asked, number, journal.get(_key(asked, number)), answer, verdict, child)


def _summed(rows: Sequence[_Row], wanted: Selection) -> dict[str, Any]:
    """Rates of greedy and drawn answers, pass@k, and what went wrong."""
    drawn = [row for row in rows if row.number]
    greedy = [row for row in rows if not row.number]
    codes = Counter(row.answer.code if isinstance(row.answer, Failed) else row.verdict["kind"] if row.verdict else "not judged" for row in rows)
    tokens = [row.raw["tokens"] for row in rows if row.raw.get("tokens")]
    found: dict[str, Any] = {
        "states": len(greedy), "roots": len({row.asked.sample.root for row in rows}), "families": len({row.asked.sample.family for row in rows}),
        "answers": len(rows), "outcomes": dict(codes.most_common()), "tokens_per_answer": round(sum(tokens) / len(tokens), 1) if tokens else None,
    }  # fmt: skip
    rates = _action_rates if wanted.task == "action" else _rates
    found["greedy"] = rates(greedy)
    if drawn:
        found["drawn"] = rates(drawn)
        found["pass_at_k"] = _passes(drawn)
    families: dict[str, list[_Row]] = defaultdict(list)
    for row in greedy:
        families[row.asked.sample.family].append(row)
    by_family = ((name, mean_by_root(_regrets(some) if wanted.task == "action" else _passed(some)).to_dict()) for name, some in sorted(families.items()))
    found["by_family"] = {name: value for name, value in by_family if value["count"]}
    return found


def _passed(rows: Sequence[_Row]) -> list[tuple[str, float]]:
    return [(row.asked.sample.root, float(row.passes)) for row in rows]


def _regrets(rows: Sequence[_Row]) -> list[tuple[str, float]]:
    found = ((row.asked.sample.root, regret(row.ratio, row.asked.sample.ratios)) for row in rows if not row.unmeasured)
    return [(root, value) for root, value in found if value is not None]


def _rates(rows: Sequence[_Row]) -> dict[str, Any]:
    flags: dict[str, list[tuple[str, float]]] = defaultdict(list)
    for row in rows:
        root = row.asked.sample.root
        reached = stages(row.answer, row.verdict)
        for name in STAGES:
            flags[name].append((root, float(reached[name])))
        flags["same"].append((root, float(reached["equal"] and (row.verdict or {}).get("child") == row.child)))
        if row.verdict is not None and "label" in row.verdict:
            flags["faster"].append((root, float(row.verdict["label"] == "faster")))
        elif row.asked.sample.task == "free":
            flags["faster"].append((root, 0.0))
    return {name: mean_by_root(values).to_dict() for name, values in flags.items()}


def _action_rates(rows: Sequence[_Row]) -> dict[str, Any]:
    read = [(row.asked.sample.root, float(not isinstance(row.answer, Failed))) for row in rows]
    return {
        "read": mean_by_root(read).to_dict(), "best": mean_by_root(_passed(rows)).to_dict(), "regret": mean_by_root(_regrets(rows)).to_dict(),
        "unmeasured": sum(row.unmeasured for row in rows),
    }  # fmt: skip


def _passes(rows: Sequence[_Row]) -> dict[str, Any]:
    by_state: dict[str, list[_Row]] = defaultdict(list)
    for row in rows:
        by_state[row.asked.sample.id].append(row)
    counts = [(some[0].asked.sample.root, len(some), sum(row.passes for row in some)) for some in by_state.values()]
    most = min(n for _, n, _ in counts)
    return {str(k): mean_by_root([(root, pass_at_k(n, good, k)) for root, n, good in counts]).to_dict() for k in _K if k <= most}


def _line(row: _Row) -> dict[str, Any]:
    sample, answer = row.asked.sample, row.answer
    said = {"code": answer.code, "message": answer.message} if isinstance(answer, Failed) else {"move": move_json(answer.move)}
    return {"id": sample.id, "workload": sample.workload, "family": sample.family, "number": row.number, "raw": row.raw, **said, "verdict": row.verdict}


def _shown(rows: Sequence[_Row], count: int = 12) -> list[dict[str, Any]]:
    """A few greedy answers for people to read."""
    return [
        _line(row)
        | {"strategy": row.asked.sample.strategy, "site": row.asked.sample.site, "program": row.asked.sample.program, "expected": row.asked.sample.completion}
        for row in [r for r in rows if not r.number][:count]
    ]
