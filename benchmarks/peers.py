"""Competitors on one workload, interleaved in one run: LEIR programs, PyTorch eager, torch.compile and TVM MetaSchedule.

All compute the same inputs and their results are compared. Each round samples every one of them once, in random order, after a pause in which the thread pools of the others have gone to sleep, and a
warm-up. With one thread the clock is the thread's CPU time, else wall time. A competitor that fails is left out with its reason.
"""

from __future__ import annotations

import math
import os
import random
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
os.environ.setdefault("TVM_THREAD_POOL_SPIN_COUNT", "20000")  # an idle TVM worker yields 300,000 times otherwise, a fifth of a second
os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", str(ROOT / "out" / "inductor"))
sys.path[:0] = [str(ROOT / "src"), str(ROOT / "benchmarks")]

import numpy as np  # noqa: E402

from steptp.ir import Program  # noqa: E402
from steptp.ir.sizes import shape_of  # noqa: E402
from steptp.lower.build import aligned, build  # noqa: E402
from steptp.lower.options import BuildOptions  # noqa: E402

__all__ = ["QUIET", "ROOT", "Array", "Contest", "enter_metaschedule", "enter_program", "enter_torch", "new_contest", "torch_forms"]

Array = np.ndarray[Any, Any]
Call = Callable[[], object]
_SLICE = 0.005  # seconds of one look at whether idle workers still spin
_SAMPLE = 0.008  # seconds of one sample
_CONFIDENCE = 0.95
_RESAMPLES = 4000
QUIET = 0.1
"""CPUs that others may use while the figures count."""


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
    """The competitors on one workload with one number of threads, and their samples (nanoseconds a call), one a round; ``base`` is whom all are compared with."""

    name: str
    threads: int
    inputs: dict[str, Array]
    clock: Callable[[], int]
    base: str
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

    def ratio(self, who: str, base: str | None = None) -> tuple[float, float, float]:
        """Time of ``who`` over the base's: the median ratio and its percentile bootstrap interval."""
        pairs = zip(self.samples[who], self.samples[base or self.base], strict=False)
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


def new_contest(name: str, program: Program, threads: int, base: str, seed: int) -> Contest:
    """A contest without competitors, with random inputs."""
    rng = np.random.default_rng(seed)
    inputs = {b.name: rng.standard_normal(shape_of(b.shape, program)).astype(np.float32) for b in program.inputs}
    return Contest(name, threads, inputs, time.thread_time_ns if threads == 1 else time.perf_counter_ns, base)
