"""One evaluation: ask, keep every answer, judge, sum up. Killed at any moment, it goes on where it was."""

from __future__ import annotations

import json
import math
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
    """An answer and what came of it. ``number`` 0 is greedy."""

    asked: Asked
    number: int
    raw: dict[str, Any]
    answer: Answer
    verdict: dict[str, Any] | None

    @property
    def ratio(self) -> float | None:
        """Measured gain of an action's choice; ``None`` for staying put; NaN where the choice was never timed."""
        if not isinstance(self.answer, Failed) and isinstance(self.answer.move, Action):
            sample = self.asked.sample
            by_site = {sample.sites[name]: value for name, value in sample.ratios.items()}
            if (held := by_site.get(self.answer.move.site)) is not None:
                return held
            if self.verdict is not None and self.verdict["kind"] == "ok":
                return float(self.verdict.get("ratio", math.nan))
        return None


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
        rows = [_row(a, n, journal, answers[_key(a, n)], wanted, options) for a, n in cells]
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
            measured = {sample.sites[name] for name in sample.ratios}
            if answer.move.site in measured or not options.measure:
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

    recorded = {(s["parent"], s["child"]): s["verdict"] for s in data.steps if s["child"]}
    roots = {s["root"]: data.program(s["root"])["text"] for s in data.steps if s["root"] in data.programs}
    judge_all(missing, roots, recorded, threads=options.threads, jobs=options.jobs, seed=wanted.seed, margin=margin, done=keep)


def _row(asked: Asked, number: int, journal: Journal, answer: Answer, wanted: Selection, options: Options) -> _Row:
    verdict = None
    if not isinstance(answer, Failed):
        key = Work(asked.sample, answer.move, _timed(wanted, options)).key
        verdict = journal.get(key) if key in journal else None
    return _Row(asked, number, journal.get(_key(asked, number)), answer, verdict)


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
    found["greedy"] = _action_rates(greedy) if wanted.task == "action" else _rates(greedy)
    if drawn:
        found["drawn"] = _action_rates(drawn) if wanted.task == "action" else _rates(drawn)
        found["pass_at_k"] = _passes(drawn, wanted)
    families: dict[str, list[_Row]] = defaultdict(list)
    for row in greedy:
        families[row.asked.sample.family].append(row)
    main = "regret" if wanted.task == "action" else "equal"
    by_family = ((name, (_action_rates(some) if wanted.task == "action" else _rates(some))[main]) for name, some in sorted(families.items()))
    found["by_family"] = {name: value for name, value in by_family if value["count"]}
    return found


def _rates(rows: Sequence[_Row]) -> dict[str, Any]:
    flags: dict[str, list[tuple[str, float]]] = defaultdict(list)
    for row in rows:
        root = row.asked.sample.root
        reached = stages(row.answer, row.verdict)
        for name in STAGES:
            flags[name].append((root, float(reached[name])))
        flags["same"].append((root, float(_same(row))))
        if row.verdict is not None and "label" in row.verdict:
            flags["faster"].append((root, float(row.verdict["label"] == "faster")))
        elif row.asked.sample.task == "free":
            flags["faster"].append((root, 0.0))
    return {name: mean_by_root(values).to_dict() for name, values in flags.items()}


def _same(row: _Row) -> bool:
    """Whether the answer gives the very program that the engine makes."""
    from steptp.ir import parse, program_hash

    if row.verdict is None or row.verdict["kind"] != "ok" or not row.asked.sample.child:
        return False
    return bool(row.verdict.get("child") == program_hash(parse(row.asked.sample.child)))


def _action_rates(rows: Sequence[_Row]) -> dict[str, Any]:
    regrets: list[tuple[str, float]] = []
    read: list[tuple[str, float]] = []
    best: list[tuple[str, float]] = []
    unmeasured = 0
    for row in rows:
        sample = row.asked.sample
        read.append((sample.root, float(not isinstance(row.answer, Failed))))
        move = None if isinstance(row.answer, Failed) else row.answer.move
        best.append((sample.root, float(isinstance(move, Action) and move.site == sample.sites[sample.best])))
        ratio = row.ratio
        not_timed = row.verdict is None and ratio is None and isinstance(move, Action)
        if not_timed or (ratio is not None and math.isnan(ratio)):
            unmeasured += 1
            continue
        value = regret(ratio, sample.ratios)
        if value is not None:
            regrets.append((sample.root, value))
    return {
        "read": mean_by_root(read).to_dict(), "best": mean_by_root(best).to_dict(), "regret": mean_by_root(regrets).to_dict(), "unmeasured": unmeasured,
    }  # fmt: skip


def _passes(rows: Sequence[_Row], wanted: Selection) -> dict[str, Any]:
    by_state: dict[str, list[_Row]] = defaultdict(list)
    for row in rows:
        by_state[row.asked.sample.id].append(row)
    counts = []
    for some in by_state.values():
        sample = some[0].asked.sample
        if wanted.task == "action":
            good = sum(not isinstance(r.answer, Failed) and isinstance(r.answer.move, Action) and r.answer.move.site == sample.sites[sample.best] for r in some)
        else:
            good = sum(stages(r.answer, r.verdict)["equal"] for r in some)
        counts.append((sample.root, len(some), good))
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
