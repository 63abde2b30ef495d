"""What a verdict costs: CPU time by tier, of steps checked as a build checks them and of steps about which nothing is known.

    python benchmarks/verify_cost.py [--presets tiny mini] [--workloads 24] [--steps 4] [--seed 0]

Walks from a seeded sample of zoo workloads take, at each program, a site of the strategy that was met least so far. Each step is checked twice. ``built``: as
``steptp build`` does, tiers 0 to 2 with the strategy's instance map, tier 3 where that proves nothing, then compiled code; results of the parent and the
root that earlier steps left in memory are used. ``cold``: the child alone, as a free rewrite, so that tier 3 always decides, with empty memory: the
root's code is built and its exact and f64 results are computed again (only the tiny sizes and elements that tier 3 chose for a pair, and isl's sets, stay known
from the first check). Steps that are not accepted are named. All figures are CPU milliseconds on one core, a tier that did not run costs nothing
in sums, and each walk's programs have been parsed anew. The last line is one JSON object.
"""

from __future__ import annotations

import argparse
import gc
import json
import random
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from statistics import median
from time import process_time

from proofs import p90
from steptp.dataset.schema import input_seed
from steptp.frontend import zoo
from steptp.ir import Program, parse, print_program, program_hash
from steptp.ir.seeds import derive_seed
from steptp.lower.build import clear_cache as clear_builds
from steptp.rewrite import engine
from steptp.rewrite.base import Applied, Site
from steptp.verify import compiled, tier3, tier4_oracle
from steptp.verify.ladder import verify_step
from steptp.verify.verdict import Verdict

_TIERS = (0, 1, 2, 3, 4, 5)
_WARM = 2  # steps that load modules and are not counted


@dataclass(frozen=True)
class Cost:
    """One verdict: the strategy, CPU milliseconds by tier and of everything."""

    strategy: str
    kind: str
    message: str
    ms: dict[int, float]
    total: float

    @property
    def equality(self) -> int:
        """2: proven without running anything; 3: evaluated."""
        return 3 if 3 in self.ms else 2

    def upto(self, tier: int) -> float:
        """Tiers 0 to ``tier``, and their share of what lies between tiers."""
        between = self.total - sum(self.ms.values())
        return sum(ms for t, ms in self.ms.items() if t <= tier) + between


def timed(strategy: str, check: Callable[[], list[Verdict]]) -> Cost:
    began = process_time()
    verdicts = check()
    spent = 1e3 * (process_time() - began)
    return Cost(strategy, str(verdicts[-1].kind), verdicts[-1].message, {r.tier: 1e3 * r.seconds for v in verdicts for r in v.reports}, spent)


def forget() -> None:
    """Empty what checks of one process keep."""
    for clear in (tier3.clear_cache, tier4_oracle.clear_references, compiled.clear_runs, clear_builds):
        clear()
    gc.collect()


def as_built(parent: Program, child: Program, applied: Applied, root: Program, seed: int) -> list[Verdict]:
    """Static tiers and tier 3 first, then compiled code on inputs that few seeds of the root draw."""
    first = verify_step(parent, child, applied=applied, root=root, seed=seed, build_tiers=False)
    if not first.ok:
        return [first]
    inputs = input_seed(program_hash(root), seed)
    second = verify_step(parent, child, exactness=applied.exactness, root=root, seed=seed, input_seed=inputs, proven=first.tier == 2, tiers=(4, 5))
    return [first, second]


def walk(name: str, preset: str, steps: int, seed: int, met: Counter[str]) -> Iterator[tuple[bool, Cost]]:
    """Costs of the steps of one walk: as built (true), then cold."""
    rng = random.Random(derive_seed("verify cost", seed, name, preset))
    root = here = parse(print_program(zoo.get(name, preset).program), f"<{name}>")
    taken: list[tuple[str, Program, Program, int]] = []
    forget()
    for depth in range(steps):
        strategy, applied = _step(here, rng, met)
        if applied is None:
            break
        met[strategy] += 1
        child, number = parse(print_program(applied.program), "<child>"), derive_seed("step", seed, name, depth)
        cost = timed(strategy, partial(as_built, here, child, applied, root, number))
        yield True, cost
        taken.append((strategy, here, child, number))
        if cost.kind != "ok":
            break
        here = child
    for strategy, parent, child, number in taken:
        forget()
        ours, theirs = parse(print_program(parent), "<parent>"), parse(print_program(child), "<child>")
        yield False, timed(strategy, partial(_alone, ours, theirs, number))


def _step(program: Program, rng: random.Random, met: Counter[str]) -> tuple[str, Applied | None]:
    """A seeded site of the strategy that was met least."""
    sites: dict[str, list[Site]] = defaultdict(list)
    for site in engine.sites(program, limit=300):
        sites[site.strategy].append(site)
    for strategy in sorted(sites, key=lambda s: (met[s], rng.random())):
        outcome = engine.apply(program, rng.choice(sites[strategy]))
        if isinstance(outcome, Applied):
            return strategy, outcome
    return "", None


def _alone(parent: Program, child: Program, seed: int) -> list[Verdict]:
    return [verify_step(parent, child, seed=seed)]


def row(name: str, values: list[float], limit: float | None = None) -> str:
    if not values:
        return f"| {name} | 0 |  |  |  |"
    asked = "" if limit is None else f"{limit:g}: {'met' if median(values) <= limit else 'NOT MET'}"
    return f"| {name} | {len(values)} | {median(values):.1f} | {p90(values):.1f} | {asked} |"


def table(title: str, found: list[Cost]) -> str:
    """Tiers and sums, in Markdown; limits are the issue's."""
    proven = [c for c in found if c.equality == 2]
    lines = [
        f"{title}: {dict(Counter(c.kind for c in found))}",
        "",
        "| tiers | steps | median ms | 90 % within ms | at most |",
        "| --- | --- | --- | --- | --- |",
    ]
    lines += [row(str(t), [c.ms[t] for c in found if t in c.ms]) for t in _TIERS]
    lines.append(row("0 to 2, proven", [c.upto(2) for c in proven], 20))
    lines.append(row("0 to 3", [c.upto(3) for c in found], 60))
    lines.append(row("0 to 4", [c.upto(4) for c in found if 4 in c.ms], 150))
    lines.append(row("all", [c.total for c in found]))
    return "\n".join(lines) + "\n"


def figures(found: list[Cost]) -> dict[str, object]:
    proven = [c for c in found if c.equality == 2]

    def two(values: list[float]) -> list[float]:
        return [round(median(values), 2), round(p90(values), 2)] if values else []

    return {
        "steps": len(found),
        "strategies": len({c.strategy for c in found}),
        "kinds": dict(Counter(c.kind for c in found)),
        "proven_share": round(len(proven) / max(len(found), 1), 4),
        "median_p90_ms": {
            **{str(t): two([c.ms[t] for c in found if t in c.ms]) for t in _TIERS},
            "proven 0-2": two([c.upto(2) for c in proven]),
            "0-3": two([c.upto(3) for c in found]),
            "0-4": two([c.upto(4) for c in found if 4 in c.ms]),
        },
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--presets", nargs="+", default=["tiny", "mini"])
    parser.add_argument("--workloads", type=int, default=24)
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    names = sorted(zoo.names(args.presets[0]))
    names = random.Random(args.seed).sample(names, min(args.workloads, len(names)))
    for _ in walk(names[0], args.presets[0], _WARM, args.seed + 1, Counter()):
        pass
    out: dict[str, dict[str, object]] = {}
    for preset in args.presets:
        found: dict[bool, list[Cost]] = {True: [], False: []}
        met: Counter[str] = Counter()
        for name in names:
            if name in zoo.names(preset):
                for built, cost in walk(name, preset, args.steps, args.seed, met):
                    found[built].append(cost)
                    if cost.kind != "ok":
                        print(f"{'built' if built else 'cold'} {name}@{preset} {cost.strategy}: {cost.kind}: {cost.message}")
        for built, title in ((True, "as a build checks"), (False, "cold, as free rewrites")):
            print(table(f"{preset}, {title}", found[built]), flush=True)
        out[preset] = {"built": figures(found[True]), "cold": figures(found[False])}
    print(json.dumps(out))


if __name__ == "__main__":
    main()
