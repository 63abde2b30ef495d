"""Reading a finished dataset folder."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from pathlib import Path
from statistics import median
from typing import Any

from steptp.dataset.schema import SPLITS
from steptp.errors import DatasetError, UsageError

__all__ = ["Dataset"]


class Dataset:
    """The tables of one folder, loaded once. Rows are plain dicts with the columns of ``docs/schema.md``."""

    def __init__(self, folder: Path, steps: list[dict[str, Any]], programs: dict[str, dict[str, Any]], info: dict[str, Any]) -> None:
        self.folder = folder
        self.steps = steps
        self.programs = programs
        self.info = info

    @staticmethod
    def open(folder: Path) -> Dataset:
        """Load the tables; raises :class:`DatasetError` ``dataset-missing`` or ``dataset-damaged``."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        if not (folder / "build.json").is_file():
            raise DatasetError(
                "dataset-missing", f"{folder} is not a dataset folder (no build.json)", hint="build one with: steptp build --preset demo --out DIR"
            )
        try:
            info = json.loads((folder / "build.json").read_text())
            steps: list[dict[str, Any]] = []
            for split in SPLITS:
                path = folder / "steps" / f"{split}.parquet"
                if path.is_file():
                    steps += pq.read_table(path).to_pylist()
            table = folder / "programs" / "all.parquet"
            if not table.is_file():
                raise DatasetError("dataset-missing", f"{folder} holds an unfinished build", hint="run the same 'steptp build' again: it continues")
            programs = {row["hash"]: row for row in pq.read_table(table).to_pylist()}
            if programs and not steps:
                raise DatasetError("dataset-damaged", f"{folder} has programs but no table of steps", hint="run the same 'steptp build' again: it continues")
        except (pa.ArrowException, ValueError, OSError) as err:
            raise DatasetError(
                "dataset-damaged", f"{folder} cannot be read: {err}", hint="run the same 'steptp build' again: it writes the tables anew from the journal"
            ) from None
        return Dataset(folder, steps, programs, info)

    def program(self, name: str) -> dict[str, Any]:
        """The program with this hash; raises :class:`DatasetError` ``dataset-damaged``."""
        if name not in self.programs:
            raise DatasetError("dataset-damaged", f"program {name} is missing from {self.folder}")
        return self.programs[name]

    def step(self, beginning: str) -> dict[str, Any]:
        """The step whose id begins with ``beginning``; raises :class:`UsageError` ``usage-step``."""
        found = [s for s in self.steps if s["id"].startswith(beginning)]
        if len(found) != 1:
            what = "no step" if not found else f"{len(found)} steps"
            raise UsageError("usage-step", f"{what} with an id that begins with {beginning!r}", hint=f"for example {self.steps[0]['id']}" if self.steps else "")
        return found[0]

    def best(self, count: int) -> list[dict[str, Any]]:
        """The measured steps with the largest lower bound of their ratio, one a workload."""
        ranked = sorted((s for s in self.steps if s["measured"] and s["label"] == "faster"), key=lambda s: -s["ratio_low"])
        seen: set[str] = set()
        out = []
        for row in ranked:
            if row["workload"] not in seen:
                seen.add(row["workload"])
                out.append(row)
        return out[:count]

    def summary(self) -> dict[str, Any]:
        """Counts by strategy, verdict, label and split."""
        by_strategy: dict[str, list[dict[str, Any]]] = defaultdict(list)
        for row in self.steps:
            by_strategy[row["strategy"]].append(row)
        verified = [s for s in self.steps if s["verdict"] == "ok"]
        order = Counter(s["verdict"] for s in self.steps)
        verdicts = sorted(order, key=lambda v: (v != "ok", -order[v], v))
        rows = [{"strategy": name, **_count(group), "share": _share(group, verified)} for name, group in sorted(by_strategy.items())]
        return {
            "verdicts": verdicts,
            "strategies": rows,
            "totals": {**_count(self.steps), "verified": len(verified), "programs": len(self.programs)},
            "splits": {s: n for s in SPLITS if (n := sum(r["split"] == s for r in self.steps))},
            "workloads": len({s["workload"] for s in self.steps}),
            "roots": len({s["root"] for s in self.steps}),
            "families": len({s["family"] for s in self.steps}),
        }


def _share(group: list[dict[str, Any]], verified: list[dict[str, Any]]) -> float:
    return sum(1 for s in group if s["verdict"] == "ok") / max(len(verified), 1)


def _count(group: list[dict[str, Any]]) -> dict[str, Any]:
    timed = [s for s in group if s["measured"]]
    return {
        "verdicts": dict(Counter(s["verdict"] for s in group)),
        "measured": len(timed),
        "labels": dict(Counter(s["label"] for s in timed)),
        "median_ratio": median(s["ratio"] for s in timed) if timed else None,
    }
