"""Null test of the measurement: how often is a program called faster or slower than itself, and is a planted slow-down found?

Measures the host's A/A margin m, then N fresh A/A pairs (separate builds and buffers; target: at most 0.5 % called faster or
slower), then pairs whose child does 1 + 2m times the work (target: called slower). The last line is one JSON object.

    python benchmarks/measure_null.py --pairs 2000
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter, defaultdict
from dataclasses import replace

from steptp.measure.host import host_block, version_block
from steptp.measure.margin import HostMargin, aa_pair, aa_tasks, host_margin
from steptp.measure.pool import Pool
from steptp.measure.stats import median
from steptp.measure.timing import PairedTiming, TimingOptions


def series(pool: Pool, name: str, count: int, seed: int, options: TimingOptions, rows: float = 1.0) -> list[tuple[str, PairedTiming]]:
    """Time ``count`` pairs on all workers; failures are printed and left out."""
    found: list[tuple[str, PairedTiming]] = []
    start = time.monotonic()
    for number, (task, result) in enumerate(pool.map(aa_pair, aa_tasks(count, seed, rows=rows, options=options)), 1):
        if result.ok and result.value is not None:
            found.append((task.probe, result.value))
        else:
            print(f"  {task.probe}: {result.status} {result.message}", file=sys.stderr)
        if number % 200 == 0 or number == count:
            calls = Counter(t.label for _, t in found)
            print(f"{name}: {number} of {count} pairs, {dict(calls)}, {time.monotonic() - start:.0f} s", flush=True)
    return found


def table(name: str, found: list[tuple[str, PairedTiming]]) -> None:
    """Print calls, spread and cost per probe."""
    groups: dict[str, list[PairedTiming]] = defaultdict(list)
    for probe, timing in found:
        groups[probe].append(timing)
    for probe, timings in sorted(groups.items()):
        labels = Counter(t.label for t in timings)
        ratios = sorted(t.ratio for t in timings)
        spread = f"{ratios[len(ratios) // 20]:.3f} .. {ratios[-1 - len(ratios) // 20]:.3f}"
        micros, cost = median([t.parent_us for t in timings]), median([t.seconds for t in timings]) * 1e3
        print(f"  {name} {probe:10s} {micros:7.1f} us  ratio 5..95 % {spread}  {dict(labels)}  {cost:.0f} ms")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=2000, help="fresh A/A pairs")
    parser.add_argument("--planted", type=int, default=120, help="pairs with a planted slow-down of 2m")
    parser.add_argument("--margin-pairs", type=int, default=120)
    parser.add_argument("--workers", type=int, default=None, help="default: one per core")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    start = time.monotonic()
    with Pool(args.workers) as pool:
        margin: HostMargin = host_margin(pool, pairs=args.margin_pairs, seed=args.seed)
        shown = f"p50 {margin.p50:.4f}, p90 {margin.p90:.4f}, worst {margin.worst:.4f}"
        print(f"margin {margin.margin:.4f} from {margin.pairs} pairs in {margin.seconds:.1f} s ({shown})")
        options = replace(TimingOptions(), margin=margin.margin)
        null = series(pool, "null", args.pairs, args.seed + 1, options)
        planted = series(pool, "planted", args.planted, args.seed + 2, options, rows=1 + 2 * margin.margin)
    table("null", null)
    table("planted", planted)
    called = sum(t.label != "same" for _, t in null)
    found = sum(t.label == "slower" for _, t in planted)
    naive = sum(not t.ci_low <= 1 <= t.ci_high for _, t in null)
    result = {
        "benchmark": "measure_null",
        "pairs": len(null),
        "called_faster_or_slower": called,
        "share_called": called / max(len(null), 1),
        "target_share": 0.005,
        "ok": bool(null) and called <= 0.005 * len(null),
        "intervals_without_1": naive / max(len(null), 1),
        "planted": len(planted),
        "planted_factor": 1 + 2 * margin.margin,
        "planted_found": found,
        "planted_found_share": found / max(len(planted), 1),
        "margin": margin.to_json(),
        "seconds_per_pair": sum(t.seconds for _, t in null) / max(len(null), 1),
        "seconds": time.monotonic() - start,
        "host": host_block(),
        "versions": version_block(),
    }
    print(json.dumps(result))
    return 0 if result["ok"] else 1


if __name__ == "__main__":
    raise SystemExit(main())
