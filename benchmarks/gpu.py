"""Build, verify and measure GPU programs on the GPU of this machine; without one, compile them.

    python benchmarks/gpu.py [--workloads 8] [--only softmax,matmul_tiled] [--preset mini] [--size 512] [--arches sm_80,sm_90] [--seed 0] [--timeout 300]

Programs are a seeded sample of the zoo, each bound in two ways so that one thread computes one element, and matrix products in shared-memory tiles against
their naive binding; all are derived from the naive programs by atomic steps. Everywhere nvcc compiles their CUDA source for every architecture. Where the CUDA driver
shows a GPU, each case then runs in a worker of its own, so that a kernel that fails or hangs is a verdict: tier 4 compares the device's results with the
f64 oracle of the naive program, tier 5 the bits of both bound programs where the steps between them claim it, and both are timed against each other, interleaved, with CUDA events
as the clock. If PyTorch was built with CUDA, the derived program is timed against eager in the same way (TF32 off). Kernels of a few microseconds measure how fast launches are
queued from Python: ``--preset level1`` has larger ones. The last line is one JSON object; ``gpu`` is null where there is none.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "src"), str(ROOT / "benchmarks")]

from gpu_programs import Case, cases, chosen  # noqa: E402
from steptp.errors import StepTPError  # noqa: E402
from steptp.ir import parse, print_program  # noqa: E402
from steptp.lower.options import BuildError  # noqa: E402
from steptp.measure.timing import Call, PairedTiming  # noqa: E402
from steptp.measure.workers import Limits, TaskResult, Worker, WorkerHost  # noqa: E402
from steptp.verify.isolation import StepTask, settle  # noqa: E402

_PRELOAD = ("numpy", "tvm", "steptp.lower.compile")
_ME = Path(__file__).stem  # workers import this file by its name


def facts() -> dict[str, Any]:
    """What GPU this process has; runs in a worker. Raises :class:`BuildError` ``device-missing``."""
    from steptp.lower.driver import device

    own = device()
    return {"name": own.name, "arch": own.arch, "memory_gib": round(own.memory / 2**30, 1), "driver": own.driver}


def compiled(case: Case, side: str, arch: str) -> dict[str, Any]:
    """One program for one architecture: kernels, bytes and seconds, or why it failed."""
    from steptp.lower.gpu import cubin_of
    from steptp.lower.launches import device_code

    row: dict[str, Any] = {"case": case.name, "side": side, "arch": arch}
    start = time.perf_counter()
    try:
        code = device_code(case.parent if side == "parent" else case.child, arch)
        row |= {"kernels": len(code.params), "launches": len(code.launches), "bytes": len(cubin_of(code.source, arch))}
    except BuildError as err:
        row |= {"code": err.code, "error": err.message}
    return row | {"seconds": round(time.perf_counter() - start, 2)}


class TorchSubject:
    """A PyTorch function with its arguments on the device; see :class:`steptp.measure.timing.Subject`."""

    def __init__(self, function: Any, args: Any) -> None:
        self.function, self.args = function, args

    def __call__(self, placement: int) -> Call:
        import torch

        def call() -> None:
            with torch.inference_mode():
                self.function(*self.args)

        return call


def torch_problem() -> str:
    """Why eager PyTorch cannot run on a GPU here, or an empty string; runs in a worker."""
    import torch

    if torch.version.cuda is None:
        return f"PyTorch {torch.__version__} is built without CUDA"
    return "" if torch.cuda.is_available() else "PyTorch finds no usable device"


def against_torch(name: str, workload: str, child: str, seed: int) -> dict[str, Any]:
    """Eager PyTorch (as the parent) and the derived program on the same inputs, timed; runs in a worker."""
    import numpy as np
    import torch
    from torch.utils import _pytree

    from steptp.frontend import zoo
    from steptp.lower.gpu import build_for_device
    from steptp.measure.device import DEVICE_OPTIONS, DeviceSubject, time_on_device
    from steptp.verify.tier4_inputs import make_inputs

    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    program = parse(child)
    function: Any
    args: Any
    if workload:
        source = zoo.get(*workload.split("@"))
        assert source.module is not None
        assert source._make is not None
        inputs = source.example_inputs(0)
        function, args = source.module.to("cuda"), _pytree.tree_map_only(torch.Tensor, lambda t: t.to("cuda"), tuple(source._make(0)))
    else:
        inputs = make_inputs(program, "normal", seed)
        a, b = (torch.from_numpy(np.ascontiguousarray(inputs[n])).to("cuda") for n in ("A", "B"))
        a, b = a.T if "_ta_" in name else a, b.T if "_tb_" in name else b
        function, args = torch.matmul, (a, b)
    return timed(time_on_device(TorchSubject(function, args), DeviceSubject(build_for_device(program), inputs), replace(DEVICE_OPTIONS, seed=seed)))


def timed(timing: PairedTiming) -> dict[str, Any]:
    """Medians and the interval of a paired timing."""
    return {
        "parent_us": round(timing.parent_us, 2), "child_us": round(timing.child_us, 2), "ratio": round(timing.ratio, 3),
        "interval": [round(timing.ci_low, 3), round(timing.ci_high, 3)], "label": timing.label, "rounds": timing.rounds, "clock": timing.clock,
    }  # fmt: skip


def on_device(worker: Worker, case: Case, seed: int, torch: bool) -> dict[str, Any]:
    """Verdict and timings of one case, each in a fresh process."""
    from steptp.measure.device import time_programs_on_device

    root, parent, child = (print_program(p) for p in (case.root, case.parent, case.child))
    task = StepTask(parent, child, root, exactness=case.exactness.value, seed=seed, timer=time_programs_on_device)
    result = settle(task, worker.run("steptp.verify.device:check_on_device", task))
    if result is None:
        return {"verdict": "unknown", "message": "the worker was closed"}
    row: dict[str, Any] = {"verdict": str(result.verdict.kind), "tier": result.verdict.tier, "claims": case.exactness.value, "message": result.verdict.message}
    if result.timing is not None:
        row["naive_vs_child"] = timed(result.timing)
    if torch and result.verdict.ok:
        answer: TaskResult[dict[str, Any]] = worker.run(f"{_ME}:against_torch", case.name, case.workload, child, seed)
        row["eager_vs_child"] = answer.value if answer.ok else {"failed": answer.status, "message": answer.message}
    return row


def nvcc_version() -> str | None:
    """The last line of ``nvcc --version``; ``None`` without nvcc."""
    from steptp.lower.gpu import nvcc

    if (tool := nvcc()) is None:
        return None
    return subprocess.run([tool, "--version"], capture_output=True, text=True, check=True).stdout.strip().splitlines()[-1]


def compile_all(found: Iterable[Case], arches: list[str], jobs: int) -> dict[str, Any]:
    """Every program for every architecture; prints failures as they come."""
    wanted = [(case, side, arch) for case in found for side in ("parent", "child") for arch in arches]
    with ThreadPoolExecutor(jobs) as pool:
        rows = list(pool.map(lambda job: compiled(*job), wanted))
    counts: dict[str, Counter[str]] = {arch: Counter(ok=0, failed=0) for arch in arches}
    for row in rows:
        counts[row["arch"]]["failed" if "error" in row else "ok"] += 1
        if "error" in row:
            print(f"  {row['case']} {row['side']} for {row['arch']}: {row['code']}: {row['error']}")
    for arch, count in counts.items():
        print(f"compiled for {arch}: {count['ok']} programs, {count['failed']} failed")
    return {"compiled": counts, "failures": [r for r in rows if "error" in r], "kernels": sum(r.get("kernels", 0) for r in rows)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workloads", type=int, default=8)
    parser.add_argument("--only", default="", help="names of workloads or tiled products, with commas")
    parser.add_argument("--preset", default="mini")
    parser.add_argument("--size", type=int, default=512, help="of the tiled products; a multiple of 16")
    parser.add_argument("--arches", default="sm_80,sm_90")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--timeout", type=float, default=300.0, help="seconds of one case on the device")
    args = parser.parse_args()
    names = args.only.split(",") if args.only else chosen(args.seed, args.workloads, args.preset)
    try:
        found = cases(names, args.preset, args.size)
    except StepTPError as err:
        raise SystemExit(err.render()) from None
    report: dict[str, Any] = {"gpu": None, "nvcc": nvcc_version(), "programs": 2 * len(found), "cases": [c.name for c in found], "seed": args.seed}
    if report["nvcc"] is None:
        print("nothing compiled: there is no nvcc")
    else:
        report |= compile_all(found, args.arches.split(","), args.jobs)
    # the main process never opens the device: workers are forked, and a driver that hangs costs one of them
    with WorkerHost(_PRELOAD) as host:
        worker = Worker(host, Limits(timeout=args.timeout, memory=0, tasks=1))  # a CUDA context reserves more address space than a limit allows
        try:
            probe: TaskResult[dict[str, Any]] = worker.run(f"{_ME}:facts")
            report["gpu"] = probe.value
            if not probe.ok or report["nvcc"] is None:
                report["reason"] = probe.message.splitlines()[0] if not probe.ok else "there is no nvcc"
                print(f"nothing ran on a GPU: {report['reason']}")
            else:
                print(f"on {json.dumps(probe.value)}")
                lacks: TaskResult[str] = worker.run(f"{_ME}:torch_problem")
                report["torch"] = lacks.value if lacks.ok else lacks.message
                report["rows"] = {}
                for case in found:
                    row = report["rows"][case.name] = on_device(worker, case, args.seed, not report["torch"])
                    print(f"  {case.name}: {json.dumps(row)}")
                report["verdicts"] = Counter(row["verdict"] for row in report["rows"].values())
        finally:
            worker.stop()
    print(json.dumps(report))


if __name__ == "__main__":
    main()
