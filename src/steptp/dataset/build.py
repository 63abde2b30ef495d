"""The build: waves of walks → filters → compiled checks → timings → tables. Every finished piece of work is journaled first.

Which records come out depends on the configuration alone: walks are planned in waves whose quotas follow from earlier waves, and
everything is taken in the order of the plan, whatever order the workers finish in. Killed at any moment, the same build continues.
"""

from __future__ import annotations

import itertools
import json
import shutil
import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Protocol, cast

from steptp.analysis.host import HostInfo
from steptp.dataset.config import BuildConfig
from steptp.dataset.finalize import atomic_write
from steptp.dataset.ledger import Entry, Ledger
from steptp.dataset.plan import plan_wave
from steptp.dataset.roots import Root, make_roots
from steptp.dataset.schema import input_seed
from steptp.dataset.splits import assign_splits
from steptp.dataset.stages import PRELOAD, CheckTask, check_step, describe, timer_of, timing_json, timing_task, verdict_json
from steptp.dataset.tables import write_dataset
from steptp.dataset.walk import WalkTask, run_walk
from steptp.errors import DatasetError
from steptp.ir.seeds import derive_seed
from steptp.measure import Limits, Pool, TaskResult, host_block, host_key, host_margin, version_block
from steptp.measure.journal import FolderLock, Journal
from steptp.verify.isolation import StepTask, check_and_measure, group_of, settle

__all__ = ["BuildResult", "Progress", "run_build", "Journals"]

MAX_BARREN_WAVES = 4
AHEAD = 6  # tasks whose code is compiled with the present one's
BUDGET_S = 0.2
WALK_TIMEOUT_S = 300.0


class Progress(Protocol):
    """Told about stages; the command line shows bars."""

    def stage(self, name: str, total: int, done: int = 0, note: str = "") -> None: ...
    def say(self, text: str) -> None: ...


@dataclass
class BuildResult:
    """What a build did. ``seconds``: wall seconds of this run by stage; ``cpu_seconds``: CPU seconds of the main process."""

    steps: int = 0
    measured: int = 0
    dropped: dict[str, int] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    cpu_seconds: dict[str, float] = field(default_factory=dict)


@dataclass
class Journals:
    """The journals of one folder. ``walks`` by trajectory, ``checks`` and ``timings`` by step id."""

    roots: Journal
    walks: Journal
    checks: Journal
    timings: Journal
    again: Journal

    @staticmethod
    def open(folder: Path) -> Journals:
        return Journals(*(Journal(folder / f"{name}.jsonl") for name in ("roots", "walks", "checks", "timings", "again")))

    def close(self) -> None:
        for journal in (self.roots, self.walks, self.checks, self.timings, self.again):
            journal.close()


def run_build(config: BuildConfig, out: Path, *, jobs: int, overwrite: bool = False, progress: Progress) -> BuildResult:
    """Build (or continue) the dataset in ``out``.

    Raises :class:`DatasetError`: ``dataset-other`` when ``out`` holds another build, ``dataset-foreign`` when it holds something else,
    ``usage-locked`` when a build is running there; and the frontend's errors for workloads that cannot be loaded.
    """
    _claim(config, out, overwrite)
    with FolderLock(out / "journal"):
        journals = Journals.open(out / "journal")
        try:
            return _Build(config, out, jobs, journals, progress).run()
        finally:
            journals.close()


def _claim(config: BuildConfig, out: Path, overwrite: bool) -> None:
    """Make sure the folder is ours to write."""
    stamp, walks = out / "journal" / "config.json", out / "journal" / "walks.jsonl"
    if stamp.is_file():
        if json.loads(stamp.read_text())["identity"] == config.identity:
            return
        begun = walks.is_file() and walks.stat().st_size > 0  # a build that failed to load its workloads left nothing worth keeping
        if begun and not overwrite:
            raise DatasetError(
                "dataset-other", f"{out} holds a build with another configuration", hint="choose another --out, or give --overwrite to delete it"
            )
        with FolderLock(out / "journal"):
            shutil.rmtree(out if begun else out / "journal")
    elif out.exists() and any(p.name != "journal" or any(p.iterdir()) for p in out.iterdir()):
        raise DatasetError("dataset-foreign", f"{out} exists and is no dataset of Step-TP", hint="choose another --out")
    atomic_write(stamp, json.dumps({"identity": config.identity, "config": config.model_dump()}, indent=2))


class _Build:
    def __init__(self, config: BuildConfig, out: Path, jobs: int, journals: Journals, progress: Progress) -> None:
        self.config, self.out, self.jobs, self.journals, self.progress = config, out, jobs, journals, progress
        self.host = HostInfo.detect()
        self.result = BuildResult()
        self._clock, self._cpu = time.monotonic(), time.process_time()

    def run(self) -> BuildResult:
        roots = self._roots()
        by_hash = {r.hash: r for r in roots}
        ledger = Ledger(self.config, assign_splits(roots, self.config.seed))
        limits = Limits(timeout=120.0, memory=3 << 30, tasks=4096, grow=3 << 29)  # a worker's caches are worth keeping
        with Pool(self.jobs, limits=limits, preload=PRELOAD) as pool:
            margin = self._margin(pool)
            self._waves(pool, roots, by_hash, ledger, margin)
            self._measure(pool, by_hash, ledger, margin)
            write_dataset(self.out, self.config, ledger, by_hash, self.journals, partial(_described, pool), self._info(ledger, margin), self.host)
        self._lap("write")
        self.result.steps = ledger.count()
        self.result.dropped = dict(ledger.dropped)
        return self.result

    # stages

    def _roots(self) -> list[Root]:
        """Load the workloads once; a continued build takes them from the journal, so it needs neither torch nor the user's files."""
        if "roots" not in self.journals.roots:
            self.progress.say(f"loading {len(self.config.workloads)} workloads")
            made = make_roots(self.config.workloads, self.config.variants, self.config.seed)
            self.journals.roots.append("roots", [r.__dict__ for r in made])
        self._lap("load")
        return [Root(**r) for r in self.journals.roots.get("roots")]

    def _margin(self, pool: Pool) -> float:
        if self.config.measured == 0:
            return 0.0
        self.progress.say("measuring this host's own noise")
        found = host_margin(pool, cache=self.out / "journal" / "margin.json")
        self.progress.say(f"two builds of one program differ by up to {found.margin:.1%} here (99th percentile of {found.pairs} pairs)")
        self._lap("margin")
        return found.margin

    def _waves(self, pool: Pool, roots: list[Root], by_hash: dict[str, Root], ledger: Ledger, margin: float) -> None:
        wanted, barren, wave, planned = self.config.steps, 0, 0, 0
        while (have := ledger.count()) < wanted and barren < MAX_BARREN_WAVES:
            tasks = plan_wave(self.config, roots, planned, wanted - have, ledger.kept, self.host)
            planned += len(tasks)
            self._walk(pool, tasks, wave, have)
            fresh: list[Entry] = []
            for task in tasks:
                walk = self.journals.walks.get(task.key)
                fresh += ledger.take(task.key, task.key.split("-")[1], walk)
            self._lap("walk")
            self._check(pool, fresh, by_hash, ledger, wanted - have, margin)
            self._lap("check")
            barren = barren + 1 if ledger.count() - have < max(1, wanted // 200) else 0
            wave += 1
        if (have := ledger.count()) < wanted:
            self.progress.say(f"these workloads gave {have} distinct verified steps, {wanted} were asked for; more workloads, variants or depth give more")
        self.progress.stage("verified steps", wanted, ledger.count())

    def _walk(self, pool: Pool, tasks: list[WalkTask], wave: int, have: int) -> None:
        missing = [t for t in tasks if t.key not in self.journals.walks]
        done = len(tasks) - len(missing)
        name = f"walks, wave {wave + 1}"
        self.progress.stage("verified steps", self.config.steps, have)
        for task, outcome in pool.map(run_walk, missing, ordered=False, timeout=WALK_TIMEOUT_S):
            entry: dict[str, Any] = (
                outcome.value if outcome.value is not None else {"steps": [], "programs": {}, "seconds": {}, "failed": f"{outcome.status}: {outcome.message}"}
            )
            if not outcome.ok:
                self.progress.say(f"walk {task.key} ended early: {outcome.status} {outcome.code} {outcome.message.splitlines()[0] if outcome.message else ''}")
            if outcome.status != "cancelled":
                self.journals.walks.append(task.key, {**entry, "cpu": outcome.cpu_seconds})
            done += 1
            self.progress.stage(name, len(tasks), done)

    def _check(self, pool: Pool, fresh: list[Entry], by_hash: dict[str, Root], ledger: Ledger, missing: int, margin: float) -> None:
        """Compiled checks of the admitted steps in their order, until ``missing`` of them are verified. One that is (most likely) to be measured
        is timed by the worker that has just built it."""
        hidden, good, entries = ledger.hidden(), 0, {e.id: e for e in fresh}
        timed = {e.id for e in select_measured([e for e in ledger.entries if e.ok], self.config.measured)}  # very likely to be the final choice

        def decide(entry: Entry) -> None:
            nonlocal good
            entry.checked, entry.ok = True, self.journals.checks.get(entry.id)["verdict"] == "ok"
            good += entry.ok and not ledger.leaks(entry, hidden)

        def tasks() -> Iterator[CheckTask]:
            coming: deque[CheckTask] = deque()
            for record in itertools.chain(self._records(fresh), [None]):
                if record is not None and record[0].id in self.journals.checks:
                    decide(record[0])
                elif record is not None:
                    coming.append(self._check_task(*record, by_hash[record[0].root].text, margin, record[0].id in timed))
                while coming and (record is None or len(coming) > AHEAD):
                    if good >= missing:
                        return
                    first = coming.popleft()
                    yield replace(first, ahead=tuple(t.step.child for t in coming if t.root_hash == first.root_hash))

        alone: list[CheckTask] = []
        for task, outcome in itertools.chain(
            pool.map(check_step, tasks(), ordered=False, group=lambda t: group_of(t.step)),
            pool.map(check_step, alone, ordered=False, group=lambda t: group_of(t.step)),
        ):
            if outcome.status == "cancelled":
                continue
            found = outcome.value if outcome.ok else None
            if found is None and task.ahead:  # it may have fallen over code that was compiled for another task
                alone.append(replace(task, ahead=()))
                continue
            if found is None:
                settled = settle(task.step, cast(TaskResult[Any], outcome))
                if settled is None:
                    continue
                found = {**verdict_json(settled), "programs": {}}
            timing = found.pop("timing", None)
            if timing is not None:
                self.journals.timings.append(task.id, {"timing": timing, "cpu": found["seconds"].get("measure", 0.0)})
            self.journals.checks.append(task.id, {**found, "cpu": outcome.cpu_seconds})
            decide(entries[task.id])
            self.progress.stage("compiled checks", missing, min(good, missing))

    def _check_task(self, entry: Entry, step: dict[str, Any], parent: str, child: str, root: str, margin: float, timed: bool) -> CheckTask:
        timer = timer_of(margin, BUDGET_S, derive_seed("timing", "", entry.id)) if timed else None
        task = StepTask(
            parent=parent, child=child, root=root, exactness=step["exactness"], seed=step["seed"],
            input_seed=input_seed(entry.root, step["seed"]), proven=step["tier"] == 2, timer=timer,
        )  # fmt: skip
        return CheckTask(entry.id, entry.root, (entry.parent, entry.child), task)

    def _records(self, entries: Iterable[Entry]) -> Iterator[tuple[Entry, dict[str, Any], str, str]]:
        """(entry, step record, parent text, child text), reading each walk once for neighbouring entries."""
        last, walk = "", {}
        for entry in entries:
            if entry.walk != last:
                last, walk = entry.walk, self.journals.walks.get(entry.walk)
            yield entry, walk["steps"][entry.index], walk["programs"][entry.parent]["text"], walk["programs"][entry.child]["text"]

    def _measure(self, pool: Pool, by_hash: dict[str, Root], ledger: Ledger, margin: float) -> None:
        verified = list(ledger.verified())
        chosen = select_measured(verified, self.config.measured)
        for _ in range(3):  # a pair that cannot be timed makes room for another one
            self._time(pool, chosen, by_hash, margin, self.journals.timings, "timings", "")
            failed = {e.id for e in chosen if self.journals.timings.get(e.id)["timing"] is None}
            again = select_measured([e for e in verified if e.id not in failed], self.config.measured)
            if not failed or {e.id for e in again} <= {e.id for e in chosen}:
                break
            chosen = again
        chosen = [e for e in chosen if e.id in self.journals.timings]
        best = best_siblings(chosen, lambda e: self.journals.timings.get(e.id))
        self._time(pool, best, by_hash, margin, self.journals.again, "best siblings again", "again")
        ledger.measured = frozenset(e.id for e in chosen)
        self.result.measured = len(chosen)
        self._lap("measure")

    def _time(self, pool: Pool, entries: list[Entry], by_hash: dict[str, Root], margin: float, journal: Journal, name: str, salt: str) -> None:
        done = sum(e.id in journal for e in entries)

        def tasks() -> Iterator[tuple[str, StepTask[Any]]]:
            for entry, _, parent, child in self._records(e for e in entries if e.id not in journal):
                yield entry.id, timing_task(parent, child, by_hash[entry.root].text, derive_seed("timing", salt, entry.id), margin, BUDGET_S)

        for (step_id, _), outcome in pool.map(_timed, tasks(), ordered=False, group=lambda t: group_of(t[1])):
            if outcome.status == "cancelled":
                continue
            entry = {"timing": outcome.value} if outcome.ok else {"timing": None, "failed": f"{outcome.status}: {outcome.message}"}
            journal.append(step_id, {**entry, "cpu": outcome.cpu_seconds})
            done += 1
            self.progress.stage(name, len(entries), done)

    # bookkeeping

    def _info(self, ledger: Ledger, margin: float) -> dict[str, Any]:
        return {
            "config": self.config.model_dump(),
            "identity": self.config.identity,
            "host": host_block(),
            "host_key": host_key(),
            "host_info": self.host.to_dict(),
            "versions": version_block(),
            "margin": margin,
            "dropped": dict(ledger.dropped),
        }

    def _lap(self, name: str) -> None:
        now, cpu = time.monotonic(), time.process_time()
        self.result.seconds[name] = self.result.seconds.get(name, 0.0) + now - self._clock
        self.result.cpu_seconds[name] = self.result.cpu_seconds.get(name, 0.0) + cpu - self._cpu
        self._clock, self._cpu = now, cpu


def _timed(item: tuple[str, StepTask[Any]]) -> dict[str, Any] | None:
    """Runs in a worker: the JSON form of a timing, ``None`` when the pair cannot be timed."""
    result = check_and_measure(item[1])
    return None if result.timing is None else timing_json(result.timing)


def _described(pool: Pool, texts: Mapping[str, str]) -> dict[str, Any]:
    """The descriptions of programs by hash, made by the workers: they have the back end loaded. Raises :class:`DatasetError` ``dataset-describe``."""
    found: dict[str, Any] = {}
    for name, (_, outcome) in zip(texts, pool.map(describe, texts.values()), strict=True):
        if not outcome.ok:
            raise DatasetError("dataset-describe", f"the program {name} could not be described: {outcome.status} {outcome.message}")
        found[name] = outcome.value
    return found


def select_measured(entries: list[Entry], count: int | None) -> list[Entry]:
    """Which steps to time: states with siblings first (whole groups in their order, while they fit), then steps in order."""
    if count is None or count >= len(entries):
        return entries
    groups: dict[str, list[Entry]] = defaultdict(list)
    for entry in entries:
        groups[entry.parent].append(entry)
    chosen: dict[str, Entry] = {}
    for group in groups.values():
        if any(e.role == "sibling" for e in group) and len(chosen) + len(group) <= count:
            chosen.update((e.id, e) for e in group)
    for entry in entries:
        if len(chosen) >= count:
            break
        chosen.setdefault(entry.id, entry)
    return [e for e in entries if e.id in chosen]


def best_siblings(entries: list[Entry], timing: Callable[[Entry], Any]) -> list[Entry]:
    """The best measured step of every state with siblings, to be timed once more on fresh samples (the winner's curse)."""
    groups: dict[str, list[tuple[float, Entry]]] = defaultdict(list)
    for entry in entries:
        found = timing(entry)["timing"]
        if found is not None:
            groups[entry.parent].append((found["ratio"], entry))
    ranked = [max(g, key=lambda item: (item[0], item[1].id))[1] for g in groups.values() if len(g) > 1 and any(e.role == "sibling" for _, e in g)]
    return ranked
