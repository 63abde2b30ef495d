"""Core-seconds per verified and measured step, split by stage.

    python benchmarks/throughput.py [--steps 300] [--jobs 2] [--out DIR] [--preset mini] [--workloads N] [--no-measure]

Builds a dataset of every step measured over seeded zoo workloads of the preset, in a fresh folder. ``core_seconds_per_step`` is the CPU time
of everything (main process, workers and their hosts) from the first walk to the finished tables, divided by the verified and measured steps;
loading the workloads and measuring the host's margin are not in it and are printed apart. ``python_loop_seconds`` (before and after) says how fast
the machine was, for comparing figures of shared hosts. The last line is one JSON object.
"""

from __future__ import annotations

import argparse
import json
import random
import resource
import shutil
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path
from statistics import median
from typing import Any

from steptp.dataset.build import Journals, run_build
from steptp.dataset.config import BuildConfig
from steptp.dataset.store import Dataset


class Say:
    """Progress on standard error: one line a message."""

    def stage(self, name: str, total: int, done: int = 0, note: str = "") -> None:
        if done == total:
            print(f"  {name}: {done}", file=sys.stderr)

    def say(self, text: str) -> None:
        print(f"  {text}", file=sys.stderr)


def cpu() -> float:
    """CPU seconds of this process and of every ended child, grandchildren included."""
    own, children = resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN)
    return own.ru_utime + own.ru_stime + children.ru_utime + children.ru_stime


def python_loop() -> float:
    """CPU seconds of five million integer multiplications: how fast this machine is at the moment."""
    began, total = time.process_time(), 0
    for i in range(5_000_000):
        total += i * i
    return time.process_time() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--preset", default="mini")
    parser.add_argument("--workloads", type=int, default=24)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--no-measure", action="store_true")
    args = parser.parse_args()
    from steptp.frontend import zoo

    names = sorted(random.Random(args.seed).sample(list(zoo.names(args.preset)), args.workloads))
    measured = 0 if args.no_measure else None
    config = BuildConfig(workloads=tuple(f"zoo:{n}@{args.preset}" for n in names), steps=args.steps, seed=args.seed, measured=measured, variants=1)
    out = args.out or Path(tempfile.mkdtemp(prefix="steptp-throughput-")) / "out"
    if out.exists():
        parser.error(f"{out} exists: a continued build would not be measured whole")
    before_loop = python_loop()
    before, began = cpu(), time.monotonic()
    result = run_build(config, out, jobs=args.jobs, progress=Say())
    total_cpu, wall = cpu() - before, time.monotonic() - began
    data = Dataset.open(out)
    verified = [s for s in data.steps if s["verdict"] == "ok"]
    timed = [s for s in verified if s["measured"]]
    stages, extra = split(out / "journal", len(verified), len(timed))
    apart = result.seconds.get("load", 0.0) + result.seconds.get("margin", 0.0)
    stages["write"] = result.seconds.get("write", 0.0) / max(len(verified), 1)
    busy = total_cpu - extra["margin_cpu"] - result.cpu_seconds.get("load", 0.0)
    steps = len(timed) if measured is None else len(verified)
    walks_and_checks = result.seconds.get("walk", 0.0) + result.seconds.get("check", 0.0)
    pairs = [len(json.loads(s["timing"])["parent_ns"]) for s in timed]
    for stage, seconds in sorted(stages.items()):
        print(f"{stage:12s} {seconds * 1e3:8.1f} ms per step", file=sys.stderr)
    print(
        json.dumps(
            {
                "core_seconds_per_step": round(busy / max(steps, 1), 4),
                "steps": steps,
                "verified": len(verified),
                "verified_per_hour": round(len(verified) / max(walks_and_checks, 1e-9) * 3600),
                "median_parent_us": round(median(s["parent_us"] for s in timed), 1) if timed else None,
                "pairs_per_step": median(pairs) if pairs else None,
                "wall_seconds": round(wall - apart, 1),
                "load_and_margin_seconds": round(apart, 1),
                "cache_hit_share": extra["cache_hit_share"],
                "jobs": args.jobs,
                "python_loop_seconds": [round(before_loop, 3), round(python_loop(), 3)],
                "stages": {k: round(v, 4) for k, v in sorted(stages.items())},
            }
        )
    )
    if args.out is None:
        shutil.rmtree(out.parent)


def split(folder: Path, verified: int, timed: int) -> tuple[dict[str, float], dict[str, Any]]:
    """CPU seconds per step by stage inside the workers, and figures for the summary."""
    journals = Journals.open(folder)
    stages: dict[str, float] = defaultdict(float)
    builds: dict[str, int] = defaultdict(int)
    for _, walk in journals.walks.items():
        for name, seconds in walk.get("seconds", {}).items():
            stages[name] += seconds / max(verified, 1)
    for _, check in journals.checks.items():
        for name, seconds in check.get("seconds", {}).items():
            if name != "measure":  # the timings journal has it
                stages[name] += seconds / max(verified, 1)
        for name, count in check.get("builds", {}).items():
            builds[name] += count
    for journal in (journals.timings, journals.again):
        stages["measure"] += sum(t.get("cpu", 0.0) for _, t in journal.items()) / max(timed, 1)
    margin_file = folder / "margin.json"
    margin = json.loads(margin_file.read_text()).get("cpu_seconds", 0.0) if margin_file.is_file() else 0.0
    journals.close()
    asked = builds["hits"] + builds["misses"]
    return dict(stages), {"margin_cpu": margin, "cache_hit_share": round(builds["hits"] / asked, 3) if asked else None}


if __name__ == "__main__":
    main()
