"""Kill a build with SIGKILL at random moments, continue it, and compare with an undisturbed one.

    python benchmarks/kill_resume.py [--kills 20] [--steps 60] [--jobs 2]

The last line is one JSON object: ``same`` says that all columns but times are equal, row by row.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from steptp.dataset.schema import TIME_COLUMNS
from steptp.dataset.store import Dataset

SMALL = ("matmul", "softmax", "gemm_bias_relu", "layer_norm", "sum_middle", "gelu")


def command(out: Path, steps: int, jobs: int) -> list[str]:
    specs = [f"zoo:{n}@tiny" for n in SMALL]
    return [sys.executable, "-m", "steptp.cli", "build", *specs, "--out", str(out), "--steps", str(steps), "--jobs", str(jobs), "--no-measure", "--json"]


def identity(folder: Path) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    data = Dataset.open(folder)
    hidden = {*TIME_COLUMNS, "measured"}
    return [{k: v for k, v in s.items() if k not in hidden} for s in data.steps], [data.programs[h] for h in sorted(data.programs)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    rng = random.Random(args.seed)
    with tempfile.TemporaryDirectory(prefix="steptp-kill-") as folder:
        calm, killed = Path(folder) / "calm", Path(folder) / "killed"
        began = time.monotonic()
        subprocess.run(command(calm, args.steps, args.jobs), check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        whole = time.monotonic() - began
        print(f"undisturbed: {whole:.0f} s", file=sys.stderr)
        kills = runs = 0
        while True:
            runs += 1
            process = subprocess.Popen(command(killed, args.steps, args.jobs), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            # anywhere in a run that would finish, start-up included; later runs have less left to do
            limit = rng.uniform(1.0, max(whole / 3, 8.0)) if kills < args.kills else 3600.0
            try:
                process.wait(limit)
            except subprocess.TimeoutExpired:
                os.kill(process.pid, signal.SIGKILL)
                process.wait()
                kills += 1
                print(f"kill {kills} after {limit:.1f} s", file=sys.stderr)
                continue
            if kills < args.kills and process.returncode == 0:
                done = killed / "build.json"  # finished early: take the last tables away, so that the rest of the kills hit the writing
                done.unlink(missing_ok=True)
                continue
            break
        steps, programs = identity(calm)
        again = identity(killed)
        ids = [s["id"] for s in again[0]]
        report = {
            "kills": kills,
            "runs": runs,
            "same": (steps, programs) == again,
            "steps": len(steps),
            "lost": len({s["id"] for s in steps} - set(ids)),
            "doubled": len(ids) - len(set(ids)),
            "undisturbed_seconds": round(whole, 1),
        }
    print(json.dumps(report))


if __name__ == "__main__":
    main()
