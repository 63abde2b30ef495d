"""Which strategies have sites where, and what the verifier says of every step.

    python benchmarks/coverage.py [--preset tiny] [--workloads N] [--jobs 2] [--seed 0] [--out FILE.jsonl] [--table FILE.md]

For every zoo workload (or a seeded sample of ``--workloads``) every site of every strategy is applied and goes through tiers 0 to 3; the first and
a seeded one of each strategy also through 4 and 5, which confirm the claimed class. One line a workload is appended to ``--out``, and a later run with the
same file goes on where it stopped. ``--table`` writes the table in Markdown. The last line is one JSON object; ``wrong`` counts steps that are
``not_equal``, ``illegal``, ``unsafe_memory``, ``malformed`` or crashed.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterable
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from statistics import median
from typing import Any

WRONG = ("not_equal", "illegal", "unsafe_memory", "malformed", "crashed", "build_failed", "timeout", "oom", "refused")


def cover(name: str, preset: str) -> dict[str, Any]:
    """Every site of one workload: counts of verdicts and confirmed classes by strategy, and what went wrong."""
    from steptp.frontend import zoo
    from steptp.rewrite import engine
    from steptp.rewrite.base import Applied, Site
    from steptp.verify.ladder import verify_step

    program, rng, began = zoo.get(name, preset).program, random.Random(name), time.process_time()
    sites: dict[str, list[Site]] = defaultdict(list)
    for site in engine.sites(program, limit=None):
        sites[site.strategy].append(site)
    listed = time.process_time() - began
    counts: dict[str, Counter[str]] = {strategy: Counter(sites=len(found)) for strategy, found in sites.items()}
    wrong, spent = [], []
    for strategy, found in sites.items():
        compiled = {found[0], rng.choice(found)}
        for site in found:
            began = time.process_time()
            applied = engine.apply(program, site)
            spent.append(time.process_time() - began)
            if not isinstance(applied, Applied):
                counts[strategy]["refused"] += 1
                wrong.append([site.id, "refused", applied.message])
                continue
            verdict = verify_step(program, applied.program, applied=applied, root=program, build_tiers=site in compiled)
            counts[strategy][str(verdict.kind)] += 1
            counts[strategy]["compiled"] += site in compiled
            counts[strategy]["confirmed"] += site in compiled and verdict.ok
            if str(verdict.kind) in WRONG:
                wrong.append([site.id, str(verdict.kind), verdict.message])
    each = 1e3 * listed / max(len(spent), 1)
    return {"workload": name, "counts": counts, "wrong": wrong, "ms": [round(1e3 * s + each, 2) for s in spent]}


def table(rows: Iterable[dict[str, Any]]) -> str:
    """The coverage table in Markdown."""
    total: dict[str, Counter[str]] = defaultdict(Counter)
    workloads: Counter[str] = Counter()
    for row in rows:
        for strategy, counts in row["counts"].items():
            total[strategy].update(counts)
            workloads[strategy] += 1
    lines = [
        "| strategy | workloads | sites | accepted | numerically unsafe | undecided | wrong | class confirmed |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for strategy in sorted(total):
        c = total[strategy]
        bad = sum(c[kind] for kind in WRONG)
        lines.append(
            f"| {strategy} | {workloads[strategy]} | {c['sites']} | {c['ok']} | {c['numerically_unsafe']} | {c['unknown']} | {bad} | {c['confirmed']} of {c['compiled']} |"
        )
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--preset", default="tiny")
    parser.add_argument("--workloads", type=int)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("out/coverage.jsonl"))
    parser.add_argument("--table", type=Path)
    args = parser.parse_args()
    from steptp.frontend import zoo
    from steptp.rewrite import registry

    names = list(zoo.names(args.preset))
    random.Random(args.seed).shuffle(names)
    names = names[: args.workloads]
    args.out.parent.mkdir(parents=True, exist_ok=True)
    rows = [json.loads(line) for line in args.out.read_text().splitlines()] if args.out.is_file() else []
    done = {row["workload"] for row in rows}
    with get_context("spawn").Pool(args.jobs, maxtasksperchild=20) as pool, args.out.open("a") as file:
        for row in pool.imap_unordered(partial(cover, preset=args.preset), [name for name in names if name not in done]):
            rows.append(row)
            file.write(json.dumps(row) + "\n")
            file.flush()
            print(f"  {len(rows)}/{len(names)} {row['workload']}: {len(row['ms'])} sites, {len(row['wrong'])} wrong", file=sys.stderr)
    rows = [row for row in rows if row["workload"] in set(names)]
    text = table(rows)
    print(text)
    if args.table is not None:
        args.table.write_text(text)
    reached = {strategy for row in rows for strategy in row["counts"]}
    kinds: Counter[str] = Counter()
    for row in rows:
        for counts in row["counts"].values():
            kinds.update({k: v for k, v in counts.items() if k not in ("sites", "compiled", "confirmed")})
    print(
        json.dumps(
            {
                "workloads": len(rows),
                "sites": sum(len(row["ms"]) for row in rows),
                "verdicts": dict(kinds),
                "wrong": [w for row in rows for w in row["wrong"]][:20],
                "strategies_without_root_sites": sorted(set(registry.names()) - reached),
                "median_ms_per_program": round(median(ms for row in rows for ms in row["ms"]), 2),
            }
        )
    )


if __name__ == "__main__":
    main()
