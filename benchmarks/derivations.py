"""Derived programs against the naive ones, PyTorch eager, torch.compile and TVM MetaSchedule, interleaved in one run.

    python benchmarks/derivations.py [--only matmul,softmax] [--trials 64] [--rounds 15] [--threads 2] [--no-compile] [--no-verify]

For each stored derivation that has a PyTorch counterpart: every step is verified (tiers 0 to 5, at real sizes in tier 4), all competitors compute the same
inputs and their results are compared, then each round samples every one of them once, in random order, after a pause in which the thread pools of the
others have gone to sleep, and a warm-up. With one thread the clock is the thread's CPU time, else wall time. A ratio is the competitor's time over the derived program's in the same round, so above 1 the derived program is faster;
its interval is Student's over rounds, trimmed. MetaSchedule tunes the naive program's TensorIR blocks (``--trials 0`` leaves it out), on as many threads.
On a machine where others work too, threads that wait for each other wait for them as well, PyTorch's most of all: ``others`` says how many CPUs other processes used
meanwhile, and figures of several threads count only where that is near 0. The last line is one JSON object: ``matmul_vs_best`` is the ratio to the better of MetaSchedule and PyTorch.
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

os.environ.setdefault("TVM_THREAD_POOL_SPIN_COUNT", "20000")  # an idle TVM worker yields 300,000 times otherwise, a fifth of a second
ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "src"), str(ROOT / "benchmarks")]

import numpy as np  # noqa: E402

from steptp.analysis.host import HostInfo  # noqa: E402
from steptp.ir import Program  # noqa: E402
from steptp.ir.sizes import shape_of  # noqa: E402
from steptp.lower.build import aligned, build  # noqa: E402
from steptp.lower.options import BuildOptions  # noqa: E402
from steptp.measure.stats import median, trimmed_interval  # noqa: E402
from steptp.rewrite import derivations  # noqa: E402
from steptp.verify.ladder import verify_step  # noqa: E402

Array = np.ndarray[Any, Any]
Call = Callable[[], object]
_SLICE = 0.005  # seconds of one look at whether idle workers still spin
_SAMPLE = 0.008  # seconds of one sample
_CONFIDENCE = 0.95
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
    """The competitors on one workload, and their samples (nanoseconds a call), one a round."""

    name: str
    inputs: dict[str, Array]
    clock: Callable[[], int]
    others: float = 0.0
    calls: dict[str, Call] = field(default_factory=dict)
    samples: dict[str, list[float]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    last: dict[str, Callable[[], Array]] = field(default_factory=dict)

    def enter(self, who: str, call: Call, result: Callable[[], Array]) -> None:
        self.calls[who], self.last[who] = call, result

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
        """Time of ``who`` over the derived program's: the ratio and its interval."""
        pairs = zip(self.samples[who], self.samples["derived"], strict=False)
        logs = [math.log(a / b) for a, b in pairs]
        return tuple(math.exp(min(v, 700.0)) for v in trimmed_interval(logs, _CONFIDENCE))  # type: ignore[return-value]


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
            contest.notes.append(f"{who} does not work here: {type(err).__name__}: {str(err).splitlines()[0][:200]}")
            continue
        contest.enter(who, call, lambda kept=kept: kept[0].numpy())  # type: ignore[misc]


def enter_metaschedule(contest: Contest, program: Program, trials: int, threads: int) -> None:
    """The naive program tuned by TVM MetaSchedule."""
    import tvm

    from metaschedule import cost_model, tuned

    began = time.perf_counter()
    function = tuned(program, trials, threads)
    contest.notes.append(f"MetaSchedule: {trials} trials in {time.perf_counter() - began:.0f} s, cost model {cost_model()}")
    if function is None:
        contest.notes.append("MetaSchedule found no schedule")
        return
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


def contest_of(name: str, args: argparse.Namespace, form: Callable[..., Any]) -> tuple[Contest, dict[str, Any]]:
    derived = derivations.derive(derivations.get(name))
    naive, last = derived.programs[0], derived.last
    proof = {"steps": len(derived.steps)} if args.no_verify else verified(derived)
    rng = np.random.default_rng(args.seed)
    inputs = {b.name: rng.standard_normal(shape_of(b.shape, naive)).astype(np.float32) for b in naive.inputs}
    contest = Contest(name, inputs, time.thread_time_ns if args.threads == 1 else time.perf_counter_ns)
    if args.trials:
        enter_metaschedule(contest, naive, args.trials, args.threads)
    enter_program(contest, "naive", naive, args.threads)
    enter_program(contest, "derived", last, args.threads)
    enter_torch(contest, form, args.threads, compiled=not args.no_compile)
    return contest, proof


def reported(contest: Contest, proof: Mapping[str, Any]) -> dict[str, Any]:
    """Print the figures of one workload and return them."""
    apart = contest.differences()
    row: dict[str, Any] = {"us": {}, "least_us": {}, "ratio": {}, "interval": {}, "others": round(contest.others, 2), **proof}
    print(
        f"{contest.name}: {json.dumps(dict(proof))}; other processes used {contest.others:.2f} CPUs{'' if contest.others <= _QUIET else ': NOT A QUIET MACHINE'}"
    )
    for who, samples in contest.samples.items():
        ratio, low, high = contest.ratio(who)
        row["us"][who], row["least_us"][who] = round(median(samples) / 1e3, 1), round(min(samples) / 1e3, 1)
        if who != "derived":
            row["ratio"][who], row["interval"][who] = round(ratio, 3), [round(low, 3), round(high, 3)]
        print(
            f"  {who:13s} {median(samples) / 1e3:10.1f} us, least {min(samples) / 1e3:10.1f}   {ratio:7.3f} ({low:.3f} to {high:.3f}) of derived   differs by {apart[who]:.1e}"
        )
    for note in contest.notes:
        print(f"  {note}")
    row["vs_torch"] = min((row["ratio"][w] for w in ("eager", "compile") if w in row["ratio"]), default=None)
    row["vs_best"] = min((row["ratio"][w] for w in ("eager", "compile", "metaschedule") if w in row["ratio"]), default=None)
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="names of derivations, with commas")
    parser.add_argument("--trials", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--no-compile", action="store_true")
    parser.add_argument("--no-verify", action="store_true")
    args = parser.parse_args()
    forms = torch_forms()
    wanted = [n for n in (args.only.split(",") if args.only else derivations.names()) if n in forms]
    host = HostInfo.detect()
    print(f"{host.name}, {host.vector_bits}-bit vectors, {args.threads} threads, tiles {json.dumps(derivations.tile_sizes(host))}")
    rows: dict[str, Any] = {}
    for name in wanted:
        contest, proof = contest_of(name, args, forms[name])
        contest.run(args.rounds, random.Random(args.seed))
        rows[name] = reported(contest, proof)
    print(json.dumps({"matmul_vs_best": rows.get("matmul", {}).get("vs_best"), "per_workload": rows}))


if __name__ == "__main__":
    main()
