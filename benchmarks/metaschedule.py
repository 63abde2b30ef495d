"""TVM MetaSchedule on naive programs: tuned functions, kept in ``out/metaschedule/`` by workload, target and trials.

    nice -n 10 python benchmarks/metaschedule.py --threads 1,2 --trials 64 [--only matmul,softmax]     # tune ahead of a benchmark

Tuning runs in a process of its own with as many threads as the comparison, with MetaSchedule's own builder and runner (they need ``cloudpickle``) and cost model
(``xgboost``). It keeps the database of measured schedules; :func:`tuned` compiles the best of them in the calling process. What fails raises
:class:`NotTuned` with the reason.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "src"), str(ROOT / "benchmarks")]

from steptp.errors import StepTPError  # noqa: E402
from steptp.ir import Program, parse, print_program  # noqa: E402
from steptp.lower.compile import host_cpu, limit_threads, usable_cpus  # noqa: E402  (sets TVM's environment before TVM loads)
from tensorir_blocks import blocks  # noqa: E402

import tvm  # noqa: E402  isort: skip
from tvm.s_tir import meta_schedule as ms  # noqa: E402  isort: skip

__all__ = ["NotTuned", "Tuning", "cached", "tuned"]

FOLDER = ROOT / "out" / "metaschedule"
_BATCH = 16  # candidates between updates of the cost model
_LIMIT = 3600  # seconds of a tuning
_PATIENCE = 300  # seconds of one build or one run: MetaSchedule's 30 are too few where others work too, and would count as failures


class NotTuned(StepTPError):
    """MetaSchedule did not work here, or measured no candidate."""


@dataclass(frozen=True, slots=True)
class Tuning:
    """What one tuning did: candidates asked for, measured and failed, seconds it took, and the best time in microseconds as MetaSchedule measured it."""

    trials: int
    measured: int
    failed: int
    seconds: float
    best_us: float


def _target(threads: int) -> Any:
    return tvm.target.Target({"kind": "llvm", "mcpu": host_cpu(), "num-cores": threads})


def _module(program: Program) -> Any:
    return tvm.IRModule({"main": blocks(program)})


def _place(program: Program, trials: int, threads: int, seed: int) -> Path:
    """The folder of a tuning; its name follows from everything that the result depends on."""
    text = json.dumps([print_program(program), str(_target(threads)), trials, seed, tvm.__version__])
    return FOLDER / hashlib.sha256(text.encode()).hexdigest()[:20]


def cached(program: Program, trials: int, threads: int, seed: int = 0) -> Tuning | None:
    """The tuning that an earlier run kept."""
    file = _place(program, trials, threads, seed) / "tuning.json"
    return Tuning(**json.loads(file.read_text())) if file.exists() else None


def tuned(program: Program, trials: int, threads: int, seed: int = 0) -> tuple[Any, Tuning]:
    """The best of ``trials`` candidates (arguments: inputs, then outputs, as TVM tensors), and how it was found. Raises :class:`NotTuned`."""
    place = _place(program, trials, threads, seed)
    if (tuning := cached(program, trials, threads, seed)) is None:
        _run(program, place, trials, threads, seed)
        tuning = cached(program, trials, threads, seed)
    if tuning is None or not tuning.measured:
        raise NotTuned("not-tuned", f"none of {trials} candidates could be measured (log in {place / 'tuning.txt'})")
    limit_threads(threads)
    target, module = _target(threads), _module(program)
    schedule = ms.tir_integration.compile_tir(ms.database.JSONDatabase(work_dir=str(place)), module, target)
    if schedule is None:
        raise NotTuned("not-tuned", f"the database in {place} holds no schedule of this program")
    return tvm.compile(schedule.mod, target)["main"], tuning


def _run(program: Program, place: Path, trials: int, threads: int, seed: int) -> None:
    """Tune in another process. An unfinished tuning is started anew."""
    place.mkdir(parents=True, exist_ok=True)
    for old in place.glob("database_*.json"):
        old.unlink()
    (place / "program.leir").write_text(print_program(program))
    command = [sys.executable, str(Path(__file__).resolve()), "--worker", str(place), "--trials", str(trials), "--threads", str(threads), "--seed", str(seed)]
    environment = {**os.environ, "TVM_NUM_THREADS": str(threads), "OMP_NUM_THREADS": str(threads)}
    log = place / "tuning.txt"
    try:
        with log.open("w") as out:
            code = subprocess.run(command, stdout=out, stderr=subprocess.STDOUT, env=environment, timeout=_LIMIT, check=False).returncode
    except subprocess.TimeoutExpired:
        raise NotTuned("not-tuned", f"MetaSchedule was not done after {_LIMIT} s (log in {log})") from None
    if code:
        lines = [line for line in log.read_text().splitlines() if line.strip()]
        raise NotTuned("not-tuned", f"MetaSchedule ended with status {code}: {lines[-1][:300] if lines else 'no output'} (log in {log})")


def _work(place: Path, trials: int, threads: int, seed: int) -> None:
    """Tune the program in ``place``: the whole of a tuning process."""
    program = parse((place / "program.leir").read_text())
    limit_threads(threads)
    began = time.perf_counter()
    database = ms.tune_tir(
        _module(program), _target(threads), str(place), trials, num_trials_per_iter=min(trials, _BATCH), num_tuning_cores=threads, seed=seed,
        builder=ms.builder.LocalBuilder(max_workers=usable_cpus(), timeout_sec=_PATIENCE), runner=ms.runner.LocalRunner(timeout_sec=_PATIENCE),
    )  # fmt: skip
    times = [min(float(s) for s in record.run_secs) for record in database.get_all_tuning_records() if record.run_secs]
    times = [t for t in times if t < 1e9]  # a candidate that failed is recorded with 1e10 seconds
    tuning = Tuning(trials, len(times), trials - len(times), round(time.perf_counter() - began, 1), round(min(times, default=0.0) * 1e6, 1))
    (place / "tuning.json").write_text(json.dumps(asdict(tuning)))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="names of derivations, with commas")
    parser.add_argument("--trials", type=int, default=64)
    parser.add_argument("--threads", default="1,2", help="thread counts, with commas")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--worker", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    counts = [int(v) for v in args.threads.split(",")]
    if args.worker:
        _work(args.worker, args.trials, counts[0], args.seed)
        return 0
    from steptp.rewrite import derivations

    failures = 0
    for name in args.only.split(",") if args.only else derivations.names():
        for threads in counts:
            try:
                _, tuning = tuned(derivations.get(name).program, args.trials, threads, args.seed)
                print(f"{name}, {threads} threads: {json.dumps(asdict(tuning))}", flush=True)
            except NotTuned as err:
                failures += 1
                print(f"{name}, {threads} threads: {err.message}", flush=True)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
