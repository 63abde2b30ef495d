"""Small builds for the dataset tests."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from steptp.dataset.build import run_build
from steptp.dataset.config import BuildConfig
from steptp.dataset.schema import TIME_COLUMNS
from steptp.dataset.store import Dataset

PROGRAMS = {
    "rows": "size N=24 L=16\nin X f32[N,L]\nout Y f32[N,L]\ntmp m f32[N] s[N]\nfor i:N j:L m[i] max= X[i,j]\nfor i:N j:L s[i] += exp(X[i,j]-m[i])\nfor i:N j:L Y[i,j] = exp(X[i,j]-m[i])/s[i]\n",
    "mul": "size N=16 K=12 L=20\nin A f32[N,K] B[K,L] b[L]\nout Y f32[N,L]\ntmp C f32[N,L]\nfor i:N j:L k:K C[i,j] += A[i,k]*B[k,j]\nfor i:N j:L Y[i,j] = max(C[i,j]+b[j],0)\n",
    "sum": "size N=40 M=30\nin X f32[N,M]\nout s f32[M] q[M]\nfor i:M j:N s[i] += X[j,i]\nfor i:M j:N q[i] += X[j,i]*X[j,i]\n",
}


class Quiet:
    """Progress that only remembers what was said."""

    def __init__(self) -> None:
        self.said: list[str] = []

    def stage(self, name: str, total: int, done: int = 0, note: str = "") -> None: ...

    def say(self, text: str) -> None:
        self.said.append(text)


def write_programs(folder: Path) -> tuple[str, ...]:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in PROGRAMS.items():
        (folder / f"{name}.leir").write_text(text)
    return tuple(str(folder / f"{name}.leir") for name in PROGRAMS)


def small_config(folder: Path, **changes: Any) -> BuildConfig:
    base: dict[str, Any] = {
        "workloads": write_programs(folder),
        "steps": 24,
        "depth": 3,
        "measured": 0,
        "wave": 6,
        "variants": 1,
        "siblings": 4,
        "cap_share": 0.2,
    }
    return BuildConfig(**{**base, **changes})


def build_small(config: BuildConfig, out: Path, jobs: int = 2) -> Dataset:
    run_build(config, out, jobs=jobs, progress=Quiet())
    return Dataset.open(out)


def identity(data: Dataset) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Steps and programs without what depends on the clock or the host."""
    hidden = {*TIME_COLUMNS, "measured", "host", "versions"}
    steps = [{k: v for k, v in s.items() if k not in hidden} for s in data.steps]
    return steps, [data.programs[h] for h in sorted(data.programs)]
