"""Many verifications in one pool of isolated workers, with a failing candidate every fiftieth: is memory flat, and is anything left behind?

    python benchmarks/soak.py [--count 10000] [--planted 50] [--jobs 2] [--roots 40] [--seed 0] [--limit 5]

Verified are strategy steps and mutants of tiny zoo programs, by all tiers, each time with another seed (inputs of compiled code change with each pass over the candidates). The planted candidates of
tests/support/failing_candidates.py crash, leave, raise, hang (cut after ``--limit`` seconds) or want a terabyte. Memory is what this process, the
pool's host and its workers hold together (shared pages counted once); the slope is a least-squares line through the samples after the first tenth.
``--planted 0`` leaves the workers alone until they have done their share of tasks. The last line is one JSON object.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import psutil

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "src"), str(ROOT / "tests" / "support")]

import failing_candidates  # noqa: E402

from steptp.dataset.stages import PRELOAD  # noqa: E402
from steptp.frontend import zoo  # noqa: E402
from steptp.ir import print_program  # noqa: E402
from steptp.ir.seeds import derive_seed  # noqa: E402
from steptp.measure import Limits, Pool  # noqa: E402
from steptp.mutate.registry import sample_mutants  # noqa: E402
from steptp.rewrite import engine  # noqa: E402
from steptp.rewrite.base import Applied  # noqa: E402
from steptp.verify.isolation import StepTask, check_and_measure, group_of, settle  # noqa: E402
from steptp.verify.ladder import ALL_TIERS  # noqa: E402

EACH = 4  # steps and mutants of one root
OFTEN = ("segfault", "leaves", "raises", "dereferences", "allocates", "hog", "forks")
SELDOM = ("hang", "sleeps")  # each costs its time limit: one planted candidate in ten
SAMPLES = 10  # lines of progress
FAILED = ("crashed", "timeout", "oom")


def candidates(count: int, seed: int) -> Iterator[list[StepTask[Any]]]:
    """For each of ``count`` roots some steps and some mutants."""
    rng = random.Random(derive_seed("soak", seed))
    for name in rng.sample(names := zoo.names("tiny"), min(count, len(names))):
        root = zoo.get(name, "tiny").program
        text = print_program(root)
        made: list[StepTask[Any]] = []
        sites = list(engine.sites(root, limit=60))
        for site in islice(iter(rng.sample(sites, len(sites))), EACH):
            step = engine.apply(root, site)
            if isinstance(step, Applied):
                made.append(StepTask(text, print_program(step.program), text, exactness=str(step.exactness), instances=step.instances, tiers=ALL_TIERS))
        made += [StepTask(text, print_program(m.program), text, tiers=ALL_TIERS) for m in sample_mutants(root, EACH, seed)]
        yield made


def stream(tasks: list[list[StepTask[Any]]], count: int, planted: int) -> Iterator[tuple[str, StepTask[Any]]]:
    """``count`` tasks, root after root; every ``planted``-th is a failing candidate (by its name)."""
    flat = [task for group in tasks for task in group]
    failures = 0
    for number in range(1, count + 1):
        if planted and number % planted == 0:
            names = SELDOM if failures % 10 == 9 else OFTEN
            name = names[failures // 10 % len(SELDOM)] if names is SELDOM else names[failures % len(OFTEN)]
            failures += 1
            yield name, failing_candidates.task(name)
        else:
            task = flat[number % len(flat)]
            yield "", replace(task, seed=number, input_seed=number // len(flat))


def held() -> float:
    """MiB of this process, the pool's host and all processes below it."""
    me = psutil.Process()
    family = [me, *me.children(recursive=True)]
    total = 0
    for process in family:
        try:
            total += process.memory_full_info().pss
        except (psutil.NoSuchProcess, psutil.AccessDenied, ProcessLookupError):
            continue
    return total / 2**20


def slope(points: list[tuple[int, float]]) -> float:
    """MiB per 1,000 verifications, after the first tenth."""
    settled = [p for p in points if p[0] >= points[-1][0] / 10]
    if len(settled) < 3:
        return float("nan")
    at, mib = np.array(settled).T
    return float(np.polyfit(at / 1000, mib, 1)[0])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in (("count", 10_000), ("planted", 50), ("jobs", 2), ("roots", 40), ("seed", 0)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--limit", type=float, default=5.0, help="seconds that a hanging candidate gets")
    args = parser.parse_args()
    tasks = list(candidates(args.roots, args.seed))
    print(f"{sum(map(len, tasks))} candidates of {len(tasks)} roots", flush=True)
    me = psutil.Process()
    kinds: Counter[str] = Counter()
    wrong: list[str] = []
    planted, reported, done = Counter[str](), Counter[str](), 0
    points: list[tuple[int, float]] = []
    files = me.num_fds()
    began = time.monotonic()
    every = max(1, args.count // SAMPLES)
    fine = max(1, every // 10)

    def checked(item: tuple[str, StepTask[Any]]) -> None:
        pending.append((item, pool.submit(check_and_measure, item[1], group=None if item[0] else group_of(item[1]), timeout=args.limit if item[0] else None)))

    with Pool(args.jobs, limits=Limits(timeout=300, memory=3 << 30), preload=PRELOAD) as pool:
        source = stream(tasks, args.count, args.planted)
        pending: list[tuple[tuple[str, StepTask[Any]], Any]] = []
        for item in islice(source, 8 * args.jobs):
            checked(item)
        while pending:
            (name, task), future = pending.pop(0)
            result = settle(task, future.result())
            assert result is not None
            done += 1
            kind = str(result.verdict.kind)
            if name:
                planted[name] += 1
                reported[name] += kind in FAILED
                if kind not in FAILED:
                    wrong.append(f"{name}: {kind} {result.verdict.message[:200]}")
            else:
                kinds[kind] += 1
                if kind in FAILED:
                    wrong.append(f"verification {done}: {kind} {result.verdict.message[:200]}")
            if done % fine == 0 or done == 1:
                points.append((done, held()))
            if done % every == 0:
                rate = done / (time.monotonic() - began)
                print(f"{done:6d} verified, {rate:5.1f} a second, {points[-1][1]:.0f} MiB, {dict(kinds)}", flush=True)
            for item in islice(source, 1):
                checked(item)
    seconds = time.monotonic() - began
    left = [p.pid for p in me.children(recursive=True) if p.is_running() and p.status() != psutil.STATUS_ZOMBIE]
    for line in wrong[:20]:
        print("unexpected:", line)
    shown = [round(mib) for at, mib in points if at == 1 or at % every == 0]
    print(json.dumps({
        "verifications": done, "verdicts": dict(kinds), "crashes_planted": planted.total(), "crashes_reported": reported.total(), "by_candidate": dict(planted),
        "unexpected": len(wrong), "rss_mb": shown, "slope_mb_per_1000": round(slope(points), 2), "leaked_processes": len(left),
        "leaked_fds": me.num_fds() - files, "seconds": round(seconds, 1), "per_second": round(done / seconds, 2),
    }))  # fmt: skip
    return 1 if wrong or left else 0


if __name__ == "__main__":
    sys.exit(main())
