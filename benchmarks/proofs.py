"""How many schedule steps tiers 0 to 2 prove without running anything, and what the proof costs.

    python benchmarks/proofs.py [--presets tiny mini] [--workloads 40] [--sites 1] [--seed 0] [--table FILE.md]

From a seeded sample of zoo workloads, ``--sites`` seeded sites of every strategy are applied; steps that claim an algebraic identity are left out, since tier 3
is their judge. A step's cost is the CPU time of tiers 0 to 2 on a new child; its parent has been found safe before, as in a walk, and is otherwise new
for every step. Ten steps of the first workload come first and are not counted. The last line is one JSON object; ``unproven`` gives the reasons with
how often each was met, numbers and names left out.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import median, quantiles

from steptp.frontend import zoo
from steptp.ir import Program, parse, print_program
from steptp.rewrite import engine
from steptp.rewrite.base import Applied, Exactness, Site
from steptp.verify.ladder import verify_step
from steptp.verify.tier1 import tier1

_WARM = 10


@dataclass(frozen=True)
class Proof:
    """One step: its site, CPU time by tier, and why it is not proven (empty: it is)."""

    site: Site
    ms: dict[int, float]
    reason: str

    @property
    def total(self) -> float:
        return sum(self.ms.values())


def prove(program: Program, site: Site) -> Proof | None:
    """Tiers 0 to 2 on the step at ``site``; ``None`` for an algebraic step."""
    parent = parse(print_program(program), "<workload>")
    tier1(parent)
    applied = engine.apply(parent, site)
    if not isinstance(applied, Applied) or applied.exactness is Exactness.ALGEBRAIC:
        return None
    child = parse(print_program(applied.program), "<child>")
    began = time.process_time()
    verdict = verify_step(parent, child, applied=applied, tiers=(0, 1, 2), build_tiers=False)
    spent = 1e3 * (time.process_time() - began)
    ms = {r.tier: 1e3 * r.seconds for r in verdict.reports}
    ms[-1] = spent - sum(ms.values())  # hashing and matching between the tiers
    reason = "" if verdict.ok else "the strategy gives no instance map" if applied.instances is None else verdict.message
    return Proof(site, ms, reason)


def steps(names: list[str], presets: list[str], per_strategy: int, seed: int) -> Iterator[Proof]:
    """Seeded sites of every strategy on every workload."""
    for preset in presets:
        known = set(zoo.names(preset))
        for name in names:
            if name not in known:
                continue
            program, rng = zoo.get(name, preset).program, random.Random(f"{seed} {name} {preset}")
            sites: dict[str, list[Site]] = defaultdict(list)
            for site in engine.sites(program, limit=None):
                sites[site.strategy].append(site)
            for found in sites.values():
                for site in rng.sample(found, min(per_strategy, len(found))):
                    if (proof := prove(program, site)) is not None:
                        yield proof


def general(reason: str) -> str:
    """A reason without names and numbers, for counting."""
    return re.sub(r"\b(\w*\d\w*|[a-z]|\w+_\w+)\b(\.reset|\([^)]*\))?", "…", reason)[:110]


def p90(values: list[float]) -> float:
    return quantiles(values, n=10, method="inclusive")[-1] if len(values) > 1 else values[0]


def table(found: list[Proof]) -> str:
    """One row a strategy, in Markdown."""
    rows: dict[str, list[Proof]] = defaultdict(list)
    for proof in found:
        rows[proof.site.strategy].append(proof)
    lines = ["| strategy | steps | proven | median ms | 90 % within ms | not proven because |", "| --- | --- | --- | --- | --- | --- |"]
    for name in sorted(rows):
        own = [p.total for p in rows[name]]
        reasons = Counter(general(p.reason) for p in rows[name] if p.reason)
        why = "; ".join(f"{text} ({n})" for text, n in reasons.most_common(3)).replace("|", "/")
        lines.append(f"| {name} | {len(own)} | {sum(not p.reason for p in rows[name])} | {median(own):.1f} | {p90(own):.1f} | {why} |")
    return "\n".join(lines) + "\n"


def summary(found: list[Proof]) -> dict[str, object]:
    """The figures of the last line."""
    rows: dict[str, list[Proof]] = defaultdict(list)
    for proof in found:
        rows[proof.site.strategy].append(proof)
    total = [p.total for p in found]
    proven = [p for p in found if not p.reason]
    return {
        "steps": len(found),
        "proven_share": round(len(proven) / len(found), 4),
        "median_ms": round(median(total), 2),
        "p90_ms": round(p90(total), 2),
        "median_ms_by_tier": {t: round(median(p.ms[t] for p in found if t in p.ms), 2) for t in (0, 1, 2)},
        "per_strategy": {
            name: {"steps": len(own), "proven": sum(not p.reason for p in own), "median_ms": round(median(p.total for p in own), 2)}
            for name, own in sorted(rows.items())
        },
        "unproven": dict(Counter(general(p.reason) for p in found if p.reason).most_common(20)),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--presets", nargs="+", default=["tiny", "mini"])
    parser.add_argument("--workloads", type=int, default=40)
    parser.add_argument("--sites", type=int, default=1)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--table", type=Path)
    args = parser.parse_args()
    names = sorted(zoo.names(args.presets[0]))
    names = random.Random(args.seed).sample(names, min(args.workloads, len(names)))
    for n, _ in enumerate(steps(names[:1], args.presets[:1], args.sites, args.seed + 1)):
        if n + 1 >= _WARM:
            break
    found = list(steps(names, args.presets, args.sites, args.seed))
    text = table(found)
    print(text)
    if args.table is not None:
        args.table.write_text(text)
    print(json.dumps(summary(found)))


if __name__ == "__main__":
    main()
