"""Derived programs against the naive ones, PyTorch eager, torch.compile and TVM MetaSchedule, interleaved in one run.

    python benchmarks/derivations.py [--only matmul,softmax] [--threads 1,2] [--trials 64] [--rounds 15] [--no-compile] [--no-verify]

For each stored derivation: every step is verified (tiers 0 to 5, at real sizes in tier 4). Then, for each number of threads, all competitors compute the same
inputs, their results are compared, and each round samples every one of them once, in random order, after a pause in which the thread pools of the
others have gone to sleep, and a warm-up. With one thread the clock is the thread's CPU time, else wall time. A ratio is the competitor's time over the derived
program's in the same round, so above 1 the derived program is faster; shown are the median over rounds and its bootstrap interval. MetaSchedule tunes
the naive program's TensorIR blocks on as many threads, once: ``benchmarks/metaschedule.py`` keeps the result (``--trials 0`` leaves it out). A competitor that fails is reported with
its reason. On a machine where others work too, threads that wait for each other wait for them as well, PyTorch's most of all: ``others`` says how many CPUs other processes used
meanwhile, and figures of several threads count only where that is near 0. The last line is one JSON object: ``matmul_vs_best`` is the ratio to the better of MetaSchedule
and PyTorch, the least over the numbers of threads.
"""

from __future__ import annotations

import argparse
import json
import random
import time
from collections.abc import Callable, Mapping
from typing import Any

from peers import QUIET, Contest, enter_metaschedule, enter_program, enter_torch, new_contest, torch_forms  # sets the environment before TVM loads

from steptp.analysis.host import HostInfo  # isort: skip
from steptp.measure.stats import median  # isort: skip
from steptp.rewrite import derivations  # isort: skip
from steptp.verify.ladder import verify_step  # isort: skip


def verified(derived: derivations.Derived) -> dict[str, Any]:
    """Every step through all tiers; stops the benchmark at one that is not accepted."""
    tiers: dict[int, int] = {}
    classes: dict[str, int] = {}
    began = time.perf_counter()
    for number, (step, parent) in enumerate(zip(derived.steps, derived.programs, strict=False)):
        verdict = verify_step(parent, step.program, applied=step, root=derived.programs[0])
        if not verdict.ok:
            raise SystemExit(f"step {number + 1} ({derived.trace.steps[number].site}): {verdict.kind}: {verdict.message}")
        tiers[verdict.tier] = tiers.get(verdict.tier, 0) + 1
        classes[str(step.exactness)] = classes.get(str(step.exactness), 0) + 1
    return {"steps": len(derived.steps), "classes": classes, "accepted_at_tier": tiers, "verify_s": round(time.perf_counter() - began, 1)}


def contest_of(derived: derivations.Derived, name: str, threads: int, args: argparse.Namespace, form: Callable[..., Any]) -> Contest:
    naive = derived.programs[0]
    made = new_contest(name, naive, threads, "derived", args.seed)
    if args.trials:
        enter_metaschedule(made, naive, args.trials, threads)
    enter_program(made, "naive", naive, threads)
    enter_program(made, "derived", derived.last, threads)
    enter_torch(made, form, threads, compiled=not args.no_compile)
    return made


def reported(contest: Contest) -> dict[str, Any]:
    """Print the figures of one contest and return them."""
    apart = contest.differences()
    row: dict[str, Any] = {"us": {}, "least_us": {}, "ratio": {}, "interval": {}, "failed": contest.failed, "others": round(contest.others, 2)}
    quiet = "" if contest.others <= QUIET else ": NOT A QUIET MACHINE"
    print(f"{contest.name}, {contest.threads} threads; other processes used {contest.others:.2f} CPUs{quiet}")
    for who, samples in contest.samples.items():
        ratio, low, high = contest.ratio(who)
        row["us"][who], row["least_us"][who] = round(median(samples) / 1e3, 1), round(min(samples) / 1e3, 1)
        if who != "derived":
            row["ratio"][who], row["interval"][who] = round(ratio, 3), [round(low, 3), round(high, 3)]
        print(
            f"  {who:13s} {median(samples) / 1e3:10.1f} us, least {min(samples) / 1e3:10.1f}   {ratio:7.3f} ({low:.3f} to {high:.3f}) of derived   differs by {apart[who]:.1e}"
        )
    for note in contest.notes:
        print(f"  {note}", flush=True)
    row["vs_torch"] = _least(row["ratio"], "eager", "compile")
    row["vs_best"] = _least(row["ratio"], "eager", "compile", "metaschedule")
    return row


def _least(ratios: Mapping[str, float], *names: str) -> float | None:
    return min((ratios[n] for n in names if n in ratios), default=None)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="names of derivations, with commas")
    parser.add_argument("--threads", default="1,2", help="numbers of threads, with commas")
    parser.add_argument("--trials", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--no-compile", action="store_true")
    parser.add_argument("--no-verify", action="store_true")
    args = parser.parse_args()
    forms = torch_forms()
    wanted = [n for n in (args.only.split(",") if args.only else derivations.names()) if n in forms]
    counts = [int(v) for v in args.threads.split(",")]
    host = HostInfo.detect()
    print(f"{host.name}, {host.vector_bits}-bit vectors, tiles {json.dumps(derivations.tile_sizes(host))}")
    rows: dict[str, Any] = {}
    for name in wanted:
        derived = derivations.derive(derivations.get(name))
        proof: dict[str, Any] = {"steps": len(derived.steps)} if args.no_verify else verified(derived)
        print(f"{name}: {json.dumps(proof)}", flush=True)
        rows[name] = {**proof, "threads": {}}
        for threads in counts:
            contest = contest_of(derived, name, threads, args, forms[name])
            contest.run(args.rounds, random.Random(args.seed))
            rows[name]["threads"][threads] = reported(contest)
        for key in ("vs_torch", "vs_best"):
            rows[name][key] = min((r[key] for r in rows[name]["threads"].values() if r[key] is not None), default=None)
    print(json.dumps({"matmul_vs_best": rows.get("matmul", {}).get("vs_best"), "per_workload": rows}))


if __name__ == "__main__":
    main()
