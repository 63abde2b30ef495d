"""``benchmarks/gpu.py`` where there is no GPU: it compiles everything, says why nothing ran, and ends with one JSON object."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from steptp.lower.gpu import nvcc
from steptp.verify.device import check_on_device
from steptp.verify.isolation import StepTask, kind_of_failure
from steptp.verify.verdict import VerdictKind

ROOT = Path(__file__).parent.parent.parent
BOUND = "size N=8\nin X f32[N]\nout Y f32[N]\ntx i:N Y[i] = X[i]*2\n"
no_gpu = pytest.mark.skipif(shutil.which("nvidia-smi") is not None, reason="there may be a GPU")


@no_gpu
@pytest.mark.skipif(nvcc() is None, reason="no nvcc")
def test_without_a_gpu_everything_is_compiled(tmp_path: Path) -> None:
    command = [sys.executable, str(ROOT / "benchmarks" / "gpu.py"), "--only", "matmul_tiled", "--size", "32", "--arches", "sm_80,sm_90"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    lines = done.stdout.splitlines()
    report = json.loads(lines[-1])
    assert report["gpu"] is None
    assert report["compiled"] == {"sm_80": {"ok": 2, "failed": 0}, "sm_90": {"ok": 2, "failed": 0}}
    assert report["failures"] == []
    assert "rows" not in report
    assert [line for line in lines if line.startswith("nothing ran on a GPU: ") and report["reason"] in line]
    assert "device-missing" in report["reason"]


@no_gpu
def test_a_missing_device_is_no_verdict_on_the_step() -> None:
    result = check_on_device(StepTask(BOUND, BOUND, BOUND))
    assert result.verdict.kind is VerdictKind.UNKNOWN
    assert result.verdict.reports[-1].evidence["code"] == "device-missing"


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        ("build-failed", "build_failed"),
        ("device-memory", "oom"),
        ("device-failed", "crashed"),
        ("measure-outputs", "not_equal"),
        ("device-missing", "unknown"),
        ("build-no-nvcc", "unknown"),
    ],
)
def test_failures_are_verdicts(code: str, kind: str) -> None:
    assert str(kind_of_failure(code)) == kind
