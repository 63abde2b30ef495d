"""Does the verifier refuse wrong programs and accept right ones? Mutants of zoo programs and of steps between their states.

    python benchmarks/verifier.py [--programs 80] [--per-program 64] [--seed 0] [--jobs 2] [--preset tiny] [--pairs benchmarks/equal_pairs.py]
                                  [--no-compile] [--out out/verifier.jsonl]

Each program gives its root and two states some verified steps deep. Mutants of a root are judged against the root; mutants of a step's program against that step's parent,
once with the step's own instance map (so tier 2 is under attack too) and once as a free rewrite. A mutant counts only with a witness that does not come from the
verifier (``steptp.mutate.witness``). It is killed when every one of its verdicts is a refusal; ``unknown`` verdicts are refusals too but listed apart, as undecided; a survivor is
printed as a minimal pair. The same mutants go through the published acceptance rule and KernelBench's. False rejections are counted over sampled strategy
steps and, with ``--pairs``, over equal pairs of PyTorch formulations. One line a program is appended to ``--out``; a later run with the same file goes on where it stopped.
The last line is one JSON object.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import random
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import asdict
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from statistics import median
from typing import Any

DEPTHS = (0, 1, 3)
STEPS_CHECKED = 6  # further sampled steps of each state that must be accepted
REFUSED = ("not_equal", "illegal", "unsafe_memory", "malformed", "crashed", "build_failed")
RULES = ("f64", "f32", "f16")
_RUN_AFTER_CRASH = 2
_BATCH = 10  # programs of a worker process


def attack(name: str, preset: str, count: int, seed: int, compile_too: bool) -> dict[str, Any]:
    """Everything about one program: judged mutants, what the other rules say, sampled true steps, survivors as pairs."""
    from steptp.frontend import zoo
    from steptp.ir import print_program
    from steptp.ir.seeds import derive_seed
    from steptp.mutate.report import judge
    from steptp.mutate.rules import Rules
    from steptp.mutate.shrink import shrink
    from steptp.mutate.witness import Witnesses
    from steptp.rewrite.base import Applied
    from steptp.verify.ladder import verify_step

    began = time.process_time()
    rng = random.Random(derive_seed("verifier", seed, name))
    mutants, survivors, wrong = [], [], []
    steps: Counter[str] = Counter()
    program = zoo.get(name, preset).program
    states: list[tuple[Any, Applied | None]] = [(program, None)]
    for depth in range(1, max(DEPTHS) + 1):
        here = states[-1][1].program if states[-1][1] is not None else program
        taken = None
        for number, (site, applied) in enumerate(_some_steps(here, rng, STEPS_CHECKED if depth in DEPTHS else 2)):
            verdict = verify_step(here, applied.program, applied=applied, root=program, seed=seed, build_tiers=compile_too and number == 0)
            steps[str(verdict.kind)] += 1
            if str(verdict.kind) in REFUSED:
                wrong.append([f"{name} depth {depth}: {site}", str(verdict.kind), verdict.message, print_program(here)])
            elif verdict.ok and taken is None:
                taken = applied
        if taken is None:
            break
        states.append((here, taken))
    pairs = [s for depth, s in enumerate(states) if depth in DEPTHS]
    for number, (parent, applied) in enumerate(pairs):
        share = count * (number + 1) // len(pairs) - count * number // len(pairs)
        known, rules = Witnesses(parent, seed), Rules(parent, seed)
        for mutant in _chosen(parent if applied is None else applied.program, share, derive_seed(seed, name, number)):
            witness = known.of(mutant)
            claims = [None] if applied is None or applied.instances is None else [applied, None]
            judged = [judge(parent, mutant, witness, c, seed=seed, build_tiers=compile_too) for c in claims]
            accepted = rules.accepts(mutant.program) if witness is not None and witness.kind != "construction" else {}
            mutants.append({"judged": [j.as_dict() for j in judged], "rules": accepted, "state": number})
            if any(j.outcome == "survived" for j in judged):
                small = shrink(parent, mutant, seed) if judged[-1].outcome == "survived" else (parent, mutant.program)
                text = [print_program(p) for p in small]
                survivors.append(
                    {"workload": name, "mutant": mutant.name, "witness": asdict(witness) if witness else None, "parent": text[0], "child": text[1]}
                )
    return {"workload": name, "mutants": mutants, "steps": steps, "wrong": wrong, "survivors": survivors, "seconds": round(time.process_time() - began, 1)}


def _some_steps(program: Any, rng: random.Random, count: int) -> Iterator[tuple[str, Any]]:
    """Steps of ``count`` strategies that apply, drawn evenly over strategies."""
    from steptp.rewrite import engine
    from steptp.rewrite.base import Applied

    by: dict[str, list[Any]] = defaultdict(list)
    for site in engine.sites(program, limit=300):
        by[site.strategy].append(site)
    names = sorted(by)
    rng.shuffle(names)
    for strategy in names[:count]:
        site = rng.choice(by[strategy])
        applied = engine.apply(program, site)
        if isinstance(applied, Applied):
            yield site.id, applied


def _chosen(program: Any, count: int, seed: int) -> list[Any]:
    """Sampled mutants, of which at most two are wrong by their interface alone."""
    from steptp.mutate.registry import get, sample_mutants

    found, plain = [], 0
    for mutant in sample_mutants(program, count + 12, seed):
        if get(mutant.operator).construction:
            plain += 1
            if plain > 2:
                continue
        found.append(mutant)
    return found[:count]


def check_pairs(numbers: list[int], module: str, compile_too: bool) -> list[dict[str, Any]]:
    """Verdicts on some of the equal pairs of a module or folder."""
    from steptp.verify.ladder import verify_step

    out = []
    for number, (name, first, second) in enumerate(_pairs(module, numbers)):
        verdict = verify_step(first, second, seed=number, build_tiers=compile_too)
        row = {
            "pair": name,
            "kind": str(verdict.kind),
            "tier": verdict.tier,
            "message": verdict.message,
            "ms": [[r.tier, r.seconds * 1e3] for r in verdict.reports],
        }
        out.append(row)
    return out


def _pairs(module: str, numbers: list[int] | None = None) -> Iterator[tuple[str, Any, Any]]:
    """The pairs of a folder (``x.a.leir`` beside ``x.b.leir``) or of a Python file with ``pairs()`` and ``programs(pair)``."""
    path = Path(module)
    if path.is_dir():
        from steptp.ir import parse

        found = sorted(path.glob("*.a.leir"))
        for first in found if numbers is None else [found[n] for n in numbers]:
            second = first.with_name(first.name.replace(".a.leir", ".b.leir"))
            yield first.stem.removesuffix(".a"), parse(first.read_text(), str(first)), parse(second.read_text(), str(second))
        return
    loaded = _module(path)
    every = loaded.pairs()
    for pair in every if numbers is None else [every[n] for n in numbers]:
        yield (pair.name, *loaded.programs(pair))


def _module(path: Path) -> Any:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = made
    spec.loader.exec_module(made)
    return made


def _count_pairs(module: str) -> int:
    path = Path(module)
    return len(list(path.glob("*.a.leir"))) if path.is_dir() else len(_module(path).pairs())


def in_workers(work: Any, items: list[Any], jobs: int, failed: Any) -> Iterator[Any]:
    """``work(item)`` in separate processes, replaced after each batch; an item whose process dies is tried again, then given to ``failed``."""
    tries: Counter[str] = Counter()
    left = list(items)
    while left:
        alone = any(tries.values())
        batch = left[: 1 if alone else jobs * _BATCH]
        with ProcessPoolExecutor(1 if alone else jobs, mp_context=get_context("spawn")) as pool:
            futures = {pool.submit(work, item): item for item in batch}
            for future in as_completed(futures):
                item = futures[future]
                try:
                    result = future.result()
                except BrokenProcessPool:
                    tries[str(item)] += 1
                    if tries[str(item)] > _RUN_AFTER_CRASH:
                        left.remove(item)
                        del tries[str(item)]
                        yield failed(item)
                    continue
                left.remove(item)
                tries.pop(str(item), None)
                yield result


def totals(rows: Iterable[dict[str, Any]], pairs: list[dict[str, Any]]) -> dict[str, Any]:
    """The counts of the last line."""
    rows = list(rows)
    groups = [m for row in rows for m in row["mutants"]]
    real = [m for m in groups if m["judged"][0]["outcome"] != "unknown"]
    run = [m for m in real if m["rules"]]
    steps: Counter[str] = Counter()
    spent: dict[int, list[float]] = defaultdict(list)
    for row in rows:
        steps.update(row["steps"])
    for m in groups:
        for judged in m["judged"]:
            for tier, ms in judged["ms"]:
                spent[tier].append(ms)
    bad_pairs = [p for p in pairs if p["kind"] in REFUSED]
    outcomes = [{j["outcome"] for j in m["judged"]} for m in real]
    return {
        "programs": len(rows),
        "mutants": len(real),
        "killed": sum(o == {"killed"} for o in outcomes),
        "survived": sum("survived" in o for o in outcomes),
        "undecided": sum("undecided" in o and "survived" not in o for o in outcomes),
        "without_witness": len(groups) - len(real),
        "kills": dict(sorted(Counter(f"tier {j['tier']} {j['verdict']}" for m in real for j in m["judged"]).items())),
        "witnesses": dict(sorted(Counter(m["judged"][0]["witness"]["kind"] for m in real).items())),
        "false_rejections": sum(steps[k] for k in REFUSED) + len(bad_pairs),
        "steps": dict(steps),
        "pairs": dict(Counter(p["kind"] for p in pairs)),
        "runnable": len(run),
        "published_rule_accepts": {rule: sum(m["rules"][rule] for m in run) for rule in RULES},
        "allclose_accepts": sum(m["rules"]["allclose"] for m in run),
        "median_ms": {str(t): round(median(v), 2) for t, v in sorted(spent.items())},
    }


def table(rows: Iterable[dict[str, Any]]) -> str:
    """Mutants, kills and wrong acceptances by operator, in Markdown."""
    counts: dict[tuple[str, str], Counter[str]] = defaultdict(Counter)
    for m in (m for row in rows for m in row["mutants"]):
        first = m["judged"][0]
        c = counts[first["family"], first["operator"]]
        if first["outcome"] == "unknown":
            c["unknown"] += 1
            continue
        c["mutants"] += 1
        c["killed"] += all(j["outcome"] == "killed" for j in m["judged"])
        c["undecided"] += any(j["outcome"] == "undecided" for j in m["judged"])
        for rule, accepted in m["rules"].items():
            c[rule] += accepted
    lines = ["| family | operator | really different | killed | undecided | published f64 | f32 | f16 | allclose | no witness |", "| --- " * 10 + "|"]
    for (family, name), c in sorted(counts.items()):
        figures = [c[k] for k in ("mutants", "killed", "undecided", *RULES, "allclose", "unknown")]
        lines.append(f"| {family} | {name} | " + " | ".join(map(str, figures)) + " |")
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--programs", type=int, default=80)
    parser.add_argument("--per-program", type=int, default=80)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--preset", default="tiny")
    parser.add_argument("--only", help="workload names, separated by commas")
    parser.add_argument("--pairs", help="a folder of x.a.leir and x.b.leir, or a Python file with pairs() and programs()")
    parser.add_argument("--no-compile", dest="compile", action="store_false", help="tiers 0 to 3 only")
    parser.add_argument("--out", type=Path, default=Path("out/verifier.jsonl"))
    args = parser.parse_args()
    from steptp.frontend import zoo

    names = args.only.split(",") if args.only else list(zoo.names(args.preset))
    if not args.only:
        random.Random(args.seed).shuffle(names)
        names = names[: args.programs]
    args.out.parent.mkdir(parents=True, exist_ok=True)
    rows = [json.loads(line) for line in args.out.read_text().splitlines()] if args.out.is_file() else []
    done = {row.get("workload") for row in rows} | {p for row in rows for p in row.get("numbers", ())}
    with args.out.open("a") as file:

        def keep(row: dict[str, Any]) -> None:
            rows.append(row)
            file.write(json.dumps(row) + "\n")
            file.flush()

        work = partial(attack, preset=args.preset, count=args.per_program, seed=args.seed, compile_too=args.compile)
        for row in in_workers(work, [n for n in names if n not in done], args.jobs, _lost):
            keep(row)
            bad = len(row["survivors"]) + len(row["wrong"])
            print(f"  {row['workload']}: {len(row['mutants'])} mutants, {row['seconds']} s{f', {bad} WRONG' if bad else ''}", file=sys.stderr)
        if args.pairs:
            numbers = [n for n in range(_count_pairs(args.pairs)) if f"{args.pairs}:{n}" not in done]
            blocks = [numbers[n : n + 10] for n in range(0, len(numbers), 10)]
            for block, found in zip(blocks, map(partial(check_pairs, module=args.pairs, compile_too=args.compile), blocks), strict=True):
                keep({"pairs": found, "numbers": [f"{args.pairs}:{n}" for n in block]})
                print(f"  pairs {block[0]} to {block[-1]}: {dict(Counter(p['kind'] for p in found))}", file=sys.stderr)
    attacked = [row for row in rows if row.get("workload") in set(names)]
    pairs = [p for row in rows for p in row.get("pairs", ())]
    print(table(attacked))
    for row in attacked:
        for s in row["survivors"]:
            print(f"SURVIVOR {s['workload']} {s['mutant']}: {s['witness']}\n--- parent\n{s['parent']}--- accepted\n{s['child']}")
        for site, kind, message, text in row["wrong"]:
            print(f"FALSE REJECTION {site}: {kind}: {message}\n{text}")
    for pair in pairs:
        if pair["kind"] != "ok":
            print(f"PAIR {pair['pair']}: {pair['kind']} at tier {pair['tier']}: {pair['message']}")
    print(json.dumps(totals(attacked, pairs)))


def _lost(name: str) -> dict[str, Any]:
    """A program whose worker process died each time."""
    return {"workload": name, "mutants": [], "steps": {}, "wrong": [[name, "crashed", "the worker process died", ""]], "survivors": [], "seconds": 0.0}


if __name__ == "__main__":
    main()
