"""Programs that a search finds, against the naive ones, PyTorch eager, torch.compile and TVM MetaSchedule, interleaved in one run.

    python benchmarks/search.py [--only matmul,softmax] [--policy heuristic --policy random] [--samples 64] [--trials 64] [--threads 2] [--rounds 15] [--no-compile]
    python benchmarks/search.py --policy heuristic --policy local --model FOLDER [--adapter FOLDER]

For each workload every policy searches once with at most ``--samples`` measured programs (and four times as many answers), in a process of its own so that nothing is built or kept beforehand; what it
found is kept in ``out/search/`` by program, policy, limits and host, and an interrupted search goes on. MetaSchedule's tuning is kept in ``out/metaschedule/``. Then all competitors run in one
contest (``benchmarks/peers.py``). The heuristic follows its first choice down to the end and then looks for others on the way back (beam of width 1 with one proposal); other
policies use the beam's defaults. Ratios are the competitor's time over the first policy's program, so above 1 the search is ahead. Seconds of a search are all of it: the host's noise, the
search, the closing check and the files; they are compared with the seconds that MetaSchedule tuned. The last line is one JSON object.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from peers import QUIET, ROOT, Contest, enter_metaschedule, enter_program, enter_torch, new_contest, torch_forms  # sets the environment before TVM loads

from steptp.analysis.host import HostInfo  # isort: skip
from steptp.ir import Program, parse, print_program  # isort: skip
from steptp.ir.seeds import digest  # isort: skip
from steptp.measure.stats import median  # isort: skip
from steptp.policy import policy, usual_search  # isort: skip
from steptp.rewrite import derivations  # isort: skip
from steptp.search.algorithms import algorithm  # isort: skip
from steptp.search.budget import Limits  # isort: skip
from steptp.search.outcome import find_faster  # isort: skip
from metaschedule import cached  # isort: skip

FOLDER = ROOT / "out" / "search"
_AT = (4, 8, 16, 32, 64)
_ANSWERS = 4  # answers for each measured program at most
BATCHED = """in a f32[B=8,N=256,K=256] b[B,K,M=256]
out Y[B,N,M]
for h i j k Y[h,i,j]+=a[h,i,k]*b[h,k,j]
"""
CHAIN = """in x f32[1,C=64,H=58,W=58] w[P=64,C,R=3,S=3] b[P,1,1]
out Y[1,P,OH=H-R+1,OW=W-S+1]
tmp c t u[1,P,OH,OW]
for i j k l p q c[0,i,j,k]+=x[0,l,j+p,k+q]*w[i,l,p,q]
for i j k t[0,i,j,k]=min(c[0,i,j,k],0.5)
for i j k u[0,i,j,k]=t[0,i,j,k]+b[i,0,0]
for i j k Y[0,i,j,k]=u[0,i,j,k]*2
"""


def workloads() -> dict[str, tuple[Program, Callable[..., Any]]]:
    """Name → the naive program and the same function in PyTorch, of the inputs in the program's order."""
    from torch.nn import functional as f

    forms = torch_forms()
    named = {n: (derivations.get(n).program, forms[n]) for n in ("matmul", "gemm_bias_gelu", "conv2d", "softmax", "layer_norm", "attention")}
    named["batched_matmul"] = (parse(BATCHED), lambda a, b: a @ b)
    named["conv2d_min_add_scale"] = (parse(CHAIN), lambda x, w, b: (f.conv2d(x, w).clamp(max=0.5) + b) * 2)
    return named


def found_by(name: str, program: Program, args: argparse.Namespace) -> dict[str, Any]:
    """What a policy's search found, from an earlier run or a process started now."""
    settings = settings_of(name, args)
    identity = [print_program(program), name, settings, args.samples, args.seed, args.threads, HostInfo.detect().to_dict()]
    place = FOLDER / digest("search", json.dumps(identity, sort_keys=True))[:20]
    if not (place / "search.json").exists():
        place.mkdir(parents=True, exist_ok=True)
        (place / "start.leir").write_text(print_program(program))
        options = [
            "--samples",
            args.samples,
            "--threads",
            args.threads,
            "--seed",
            args.seed,
            "--policy",
            name,
            *(w for k, v in settings.items() for w in (f"--{k}", v)),
        ]
        subprocess.run([sys.executable, str(Path(__file__).resolve()), "--worker", str(place), *map(str, options)], check=True)
    found: dict[str, Any] = json.loads((place / "search.json").read_text())
    return found


def settings_of(name: str, args: argparse.Namespace) -> dict[str, str]:
    given = {"model": args.model, "adapter": args.adapter}
    return {} if name in ("heuristic", "random") else {k: v for k, v in given.items() if v}


def work(place: Path, name: str, args: argparse.Namespace) -> None:
    """One search: the whole of a worker process."""
    program, began = parse((place / "start.leir").read_text()), time.perf_counter()
    resume = (place / "tree" / "journal").exists()
    limits = Limits(samples=_ANSWERS * args.samples, measurements=args.samples)
    made = find_faster(
        program, policy(name, **settings_of(name, args)), algorithm(usual_search(name)), limits, workload=name, threads=args.threads, seed=args.seed,
        folder=place / "tree", resume=resume, say=lambda text: print(f"  {name}: {text}", flush=True),
    )  # fmt: skip
    result = made.result
    seconds = time.perf_counter() - began
    if resume:  # what the interrupted process did before its search is not known; what it searched is
        seconds = max(seconds, result["spent"]["seconds"])
    tree = [n for n in result["tree"] if n["parent"] is not None]
    record = {
        "program": made.answer.node.text, "speedup": result["speedup"], "stopped": result["stopped"], "spent": result["spent"], "seconds": round(seconds, 1),
        "resumed": resume, "steps": len(result["steps"]), "verified": len(tree), "curve": result["curve"], "best_at": best_at(result["curve"]),
        "turned_down": result["turned_down"],
    }  # fmt: skip
    (place / "search.json").write_text(json.dumps(record))


def best_at(curve: Sequence[Sequence[float]]) -> dict[int, float]:
    """Samples → the best speedup over the naive program by then, as the search saw it."""
    return {n: round(max(speedup for samples, _, speedup in curve if samples <= n), 2) for n in _AT}


def contest_of(name: str, program: Program, form: Callable[..., Any], found: Mapping[str, dict[str, Any]], args: argparse.Namespace) -> Contest:
    made = new_contest(name, program, args.threads, next(iter(found)), args.seed)
    if args.trials:
        enter_metaschedule(made, program, args.trials, args.threads)
    enter_program(made, "naive", program, args.threads)
    for who, record in found.items():
        enter_program(made, who, parse(record["program"]), args.threads)
    enter_torch(made, form, args.threads, compiled=not args.no_compile)
    return made


def reported(made: Contest, found: Mapping[str, dict[str, Any]], program: Program, args: argparse.Namespace) -> dict[str, Any]:
    """Print the figures of one contest and return them."""
    apart = made.differences()
    quiet = "" if made.others <= QUIET else ": NOT A QUIET MACHINE"
    print(f"{made.name}, {made.threads} threads; other processes used {made.others:.2f} CPUs{quiet}")
    us = {who: round(median(samples) / 1e3, 1) for who, samples in made.samples.items()}
    row: dict[str, Any] = {"us": us, "ratio": {}, "failed": made.failed, "others": round(made.others, 2), "differs": apart, "search": {}}
    for base in found:
        row["ratio"][base] = {w: [round(v, 3) for v in made.ratio(w, base)] for w in made.samples if w != base}
    for who in made.samples:
        ratio, low, high = made.ratio(who)
        print(f"  {who:13s} {us[who]:10.1f} us   {ratio:8.3f} ({low:.3f} to {high:.3f}) of {made.base}   differs by {apart[who]:.1e}")
    tuning = cached(program, args.trials, args.threads) if args.trials else None
    for who, record in found.items():
        kept = {k: record[k] for k in ("seconds", "steps", "verified", "spent", "stopped", "best_at", "resumed", "turned_down", "speedup")}
        row["search"][who] = {**kept, "time_ratio": round(record["seconds"] / tuning.seconds, 3) if tuning else None}
        print(
            f"  {who}: {record['steps']} steps, {record['spent']['samples']} samples, {record['spent']['measurements']} measured, {record['seconds']} s; best {record['best_at']}"
        )
    for note in made.notes:
        print(f"  {note}", flush=True)
    return row


def summary(rows: Mapping[str, dict[str, Any]], base: str, samples: int) -> dict[str, Any]:
    def ratios(who: str) -> float | None:
        return geomean([r["ratio"][base][who][0] for r in rows.values() if who in r["ratio"][base]])

    times = [t for r in rows.values() if (t := r["search"][base]["time_ratio"]) is not None]
    return {
        "geomean_vs_metaschedule": ratios("metaschedule"), "geomean_vs_eager": ratios("eager"), "geomean_vs_inductor": ratios("compile"), "samples": samples,
        "time_ratio_vs_metaschedule": geomean(times), "per_workload": dict(rows),
    }  # fmt: skip


def geomean(values: Sequence[float]) -> float | None:
    return round(math.exp(sum(map(math.log, values)) / len(values)), 3) if values else None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="names of workloads, with commas")
    parser.add_argument("--policy", action="append", help="may be given several times (default: heuristic and random)")
    parser.add_argument("--model", default="", help="of the policies local and openai")
    parser.add_argument("--adapter", default="", help="of the policy local")
    parser.add_argument("--samples", type=int, default=64, help="measured programs of a search")
    parser.add_argument("--trials", type=int, default=64, help="of MetaSchedule; 0 leaves it out")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--no-compile", action="store_true")
    parser.add_argument("--worker", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    names = args.policy or ["heuristic", "random"]
    if args.worker:
        work(args.worker, names[0], args)
        return
    known = workloads()
    rows: dict[str, Any] = {}
    for name in args.only.split(",") if args.only else known:
        program, form = known[name]
        found = {who: found_by(who, program, args) for who in names}
        made = contest_of(name, program, form, found, args)
        made.run(args.rounds, random.Random(args.seed))
        rows[name] = reported(made, found, program, args)
    print(json.dumps(summary(rows, names[0], args.samples)))


if __name__ == "__main__":
    main()
