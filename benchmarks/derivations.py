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
import math
import os
import random
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
os.environ.setdefault("TVM_THREAD_POOL_SPIN_COUNT", "20000")  # an idle TVM worker yields 300,000 times otherwise, a fifth of a second
os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", str(ROOT / "out" / "inductor"))
sys.path[:0] = [str(ROOT / "src"), str(ROOT / "benchmarks")]

import numpy as np  # noqa: E402

from steptp.analysis.host import HostInfo  # noqa: E402
from steptp.ir import Program  # noqa: E402
from steptp.ir.sizes import shape_of  # noqa: E402
from steptp.lower.build import aligned, build  # noqa: E402
from steptp.lower.options import BuildOptions  # noqa: E402
from steptp.measure.stats import median  # noqa: E402
from steptp.rewrite import derivations  # noqa: E402
from steptp.verify.ladder import verify_step  # noqa: E402

Array = np.ndarray[Any, Any]
Call = Callable[[], object]
_SLICE = 0.005  # seconds of one look at whether idle workers still spin
_SAMPLE = 0.008  # seconds of one sample
_CONFIDENCE = 0.95
_RESAMPLES = 4000
_QUIET = 0.1  # CPUs that others may use


def torch_forms() -> dict[str, Callable[..., Any]]:
    """Derivation → the same function in PyTorch, of the inputs in the program's order."""
    from torch.nn import functional as f

    return {
        "matmul": lambda a, b: a @ b,
        "softmax": lambda x: f.softmax(x, -1),
        "layer_norm": lambda x, weight, bias: f.layer_norm(x, weight.shape, weight, bias),
        "gemm_bias_gelu": lambda x, w, b: f.gelu(f.linear(x, w, b)),
        "conv2d": lambda x, w: f.conv2d(x, w),
        "attention": lambda q, k, v: f.softmax(q @ k.transpose(-1, -2) * (q.shape[-1] ** -0.5), -1) @ v,
        "flash_attention": lambda q, k, v: f.scaled_dot_product_attention(q[None], k[None], v[None])[0],
    }


@dataclass
class Contest:
    """The competitors on one workload with one number of threads, and their samples (nanoseconds a call), one a round."""

    name: str
    threads: int
    inputs: dict[str, Array]
    clock: Callable[[], int]
    others: float = 0.0
    calls: dict[str, Call] = field(default_factory=dict)
    samples: dict[str, list[float]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)
    last: dict[str, Callable[[], Array]] = field(default_factory=dict)

    def enter(self, who: str, call: Call, result: Callable[[], Array]) -> None:
        self.calls[who], self.last[who] = call, result

    def fail(self, who: str, reason: str) -> None:
        """A competitor does not take part, and why."""
        self.failed[who] = reason
        self.notes.append(f"{who} does not work here: {reason}")

    def run(self, rounds: int, rng: random.Random) -> None:
        """One sample a round of every competitor."""
        busy, own, began = _busy(), time.process_time(), time.perf_counter()
        repeats: dict[str, int] = {}
        for who, call in self.calls.items():
            call()
            repeats[who] = max(1, math.ceil(_SAMPLE * 1e9 / _timed(call, 1, self.clock)))
        for number in range(rounds):
            for who in rng.sample(list(self.calls), len(self.calls)):
                if who == "naive" and number >= 5:
                    continue
                _settle()
                self.calls[who]()
                self.samples.setdefault(who, []).append(_timed(self.calls[who], repeats[who], self.clock))
        self.others = max(0.0, (_busy() - busy - (time.process_time() - own)) / (time.perf_counter() - began))

    def differences(self) -> dict[str, float]:
        """Largest difference of each result from the naive one's, relative to its largest element."""
        for call in self.calls.values():
            call()
        base = self.last["naive"]().astype(np.float64)
        scale = float(np.abs(base).max()) or 1.0
        return {who: float(np.abs(result().astype(np.float64) - base).max()) / scale for who, result in self.last.items()}

    def ratio(self, who: str) -> tuple[float, float, float]:
        """Time of ``who`` over the derived program's: the median ratio and its percentile bootstrap interval."""
        pairs = zip(self.samples[who], self.samples["derived"], strict=False)
        ratios = np.array([a / b for a, b in pairs])
        drawn = np.random.default_rng(0).choice(ratios, (_RESAMPLES, len(ratios)))
        low, high = np.quantile(np.median(drawn, axis=1), [(1 - _CONFIDENCE) / 2, (1 + _CONFIDENCE) / 2])
        return float(np.median(ratios)), float(low), float(high)


def _timed(call: Call, repeats: int, clock: Callable[[], int]) -> float:
    start = clock()
    for _ in range(repeats):
        call()
    return max(clock() - start, 1) / repeats


def _settle() -> None:
    """Wait until this process is idle: workers of OpenMP and TVM spin for a while after a call, and would take the CPUs of the next competitor."""
    for _ in range(400):
        own = time.process_time()
        time.sleep(_SLICE)
        if time.process_time() - own < 0.1 * _SLICE:
            return


def _busy() -> float:
    """Seconds that all CPUs have worked since the start of the machine."""
    user, nice, system, *_ = (int(v) for v in Path("/proc/stat").read_text().splitlines()[0].split()[1:])
    return (user + nice + system) / os.sysconf("SC_CLK_TCK")


def enter_program(contest: Contest, who: str, program: Program, threads: int) -> None:
    """A LEIR program as a competitor."""
    built = build(program, BuildOptions(threads=threads))
    arrays = []
    for b in program.inputs:
        array = aligned(shape_of(b.shape, program), np.float32)
        array[...] = contest.inputs[b.name]
        arrays.append(array)
    output = aligned(shape_of(program.outputs[0].shape, program), np.float32)
    arguments = built.prepare([*arrays, output])
    built.configure()
    contest.enter(who, lambda: built.call(arguments), lambda: output)


def enter_torch(contest: Contest, function: Callable[..., Any], threads: int, *, compiled: bool) -> None:
    """PyTorch eager and, where a C++ compiler works, torch.compile."""
    import torch

    torch.set_num_threads(threads)
    arrays = []
    for value in contest.inputs.values():
        array = aligned(value.shape, np.float32)
        array[...] = value
        arrays.append(torch.from_numpy(array))
    forms: dict[str, Callable[..., Any]] = {"eager": function}
    if compiled:
        forms["compile"] = torch.compile(function, dynamic=False)
    for who, form in forms.items():
        kept: list[Any] = [None]

        def call(form: Callable[..., Any] = form, kept: list[Any] = kept) -> None:
            with torch.inference_mode():
                kept[0] = form(*arrays)

        try:
            call()
        except Exception as err:  # noqa: BLE001 - a competitor that does not work here is left out, with its reason
            contest.fail(who, f"{type(err).__name__}: {next(iter(str(err).splitlines()), '')[:200]}")
            continue
        contest.enter(who, call, lambda kept=kept: kept[0].numpy())  # type: ignore[misc]


def enter_metaschedule(contest: Contest, program: Program, trials: int, threads: int) -> None:
    """The naive program tuned by TVM MetaSchedule."""
    import tvm

    from metaschedule import NotTuned, cached, tuned

    kept = cached(program, trials, threads) is not None
    try:
        function, tuning = tuned(program, trials, threads)
    except NotTuned as err:
        contest.fail("metaschedule", err.message)
        return
    contest.notes.append(
        f"MetaSchedule: {tuning.measured} of {tuning.trials} trials measured in {tuning.seconds:.0f} s{', by an earlier run' if kept else ''}; it saw {tuning.best_us:.1f} us"
    )
    given = [tvm.runtime.tensor(np.ascontiguousarray(contest.inputs[b.name], np.float32)) for b in program.inputs]
    output = tvm.runtime.empty(shape_of(program.outputs[0].shape, program), "float32")
    contest.enter("metaschedule", lambda: function(*given, output), lambda: np.asarray(output.numpy()))


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
    rng = np.random.default_rng(args.seed)
    inputs = {b.name: rng.standard_normal(shape_of(b.shape, naive)).astype(np.float32) for b in naive.inputs}
    contest = Contest(name, threads, inputs, time.thread_time_ns if threads == 1 else time.perf_counter_ns)
    if args.trials:
        enter_metaschedule(contest, naive, args.trials, threads)
    enter_program(contest, "naive", naive, threads)
    enter_program(contest, "derived", derived.last, threads)
    enter_torch(contest, form, threads, compiled=not args.no_compile)
    return contest


def reported(contest: Contest) -> dict[str, Any]:
    """Print the figures of one contest and return them."""
    apart = contest.differences()
    row: dict[str, Any] = {"us": {}, "least_us": {}, "ratio": {}, "interval": {}, "failed": contest.failed, "others": round(contest.others, 2)}
    quiet = "" if contest.others <= _QUIET else ": NOT A QUIET MACHINE"
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
