"""From the journal to tables: splits, leakage rule, best siblings, Parquet, views, card.

The journal is read in passes so that memory does not grow with the number of records beyond their ids and hashes.
"""

from __future__ import annotations

import json
import os
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from steptp.dataset.schema import SPLITS, ProgramRecord, StepRecord, arrow_schema

__all__ = ["TableWriter", "write_tables", "hidden_shapes", "mark_best_siblings", "atomic_write"]

BATCH = 2000


def atomic_write(path: Path, text: str) -> None:
    """Write a whole file so that a reader sees the old or the new one, never half of it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.tmp")
    temporary.write_text(text)
    os.replace(temporary, path)


class TableWriter:
    """Rows of one model into one Parquet file, in batches; the file appears when the writer closes without an error."""

    def __init__(self, path: Path, model: type[BaseModel]) -> None:
        import pyarrow.parquet as pq

        path.parent.mkdir(parents=True, exist_ok=True)
        self.path, self.model, self.count = path, model, 0
        self._schema = arrow_schema(model)
        self._temporary = path.with_name(f".{path.name}.tmp")
        self._writer = pq.ParquetWriter(self._temporary, self._schema, compression="zstd")
        self._rows: list[dict[str, Any]] = []

    def add(self, row: BaseModel) -> None:
        self._rows.append(row.model_dump())
        self.count += 1
        if len(self._rows) >= BATCH:
            self._flush()

    def _flush(self) -> None:
        import pyarrow as pa

        if self._rows:
            self._writer.write_table(pa.Table.from_pylist(self._rows, schema=self._schema))
            self._rows = []

    def close(self, *, keep: bool = True) -> None:
        self._flush()
        self._writer.close()
        if keep:
            os.replace(self._temporary, self.path)
        else:
            self._temporary.unlink(missing_ok=True)


def hidden_shapes(steps: Iterable[StepRecord], shape_of: Mapping[str, str]) -> frozenset[str]:
    """Shape hashes of every parent and child in a test-new split; no training record may contain one."""
    return frozenset(shape_of[h] for s in steps if s.split == "test_new_family" for h in (s.parent, s.child) if h)


def mark_best_siblings(steps: Iterable[StepRecord], again: Mapping[str, Mapping[str, Any]]) -> None:
    """Set ``best_sibling`` on the best measured step of every state with siblings; its figures become the fresh ones in ``again``."""
    groups: dict[str, list[StepRecord]] = defaultdict(list)
    for step in steps:
        if step.measured:
            groups[step.parent].append(step)
    for group in groups.values():
        if len(group) < 2 or not any(s.role == "sibling" for s in group):
            continue
        best = max(group, key=lambda s: (s.ratio or 0.0, s.id))
        best.best_sibling = True
        if best.id in again:
            apply_timing(best, again[best.id])


def apply_timing(step: StepRecord, timing: Mapping[str, Any]) -> None:
    """Copy a paired timing (its JSON form) into a step record."""
    step.measured = True
    step.ratio, step.ratio_low, step.ratio_high = timing["ratio"], timing["ci_low"], timing["ci_high"]
    step.label = timing["label"]
    step.parent_us, step.child_us = timing["parent_us"], timing["child_us"]
    step.timing = json.dumps(timing, sort_keys=True)


def write_tables(out: Path, steps: Iterable[StepRecord], programs: Callable[[frozenset[str]], Iterator[ProgramRecord]]) -> dict[str, int]:
    """Write both tables; a split without rows has no file. Returns rows per split.

    ``programs`` yields the record of every program named in its argument.
    """
    writers: dict[str, TableWriter] = {}
    used: set[str] = set()
    try:
        for step in steps:
            if step.split not in writers:
                writers[step.split] = TableWriter(out / "steps" / f"{step.split}.parquet", StepRecord)
            writers[step.split].add(step)
            used.update(h for h in (step.parent, step.child, step.root) if h)
        table = TableWriter(out / "programs" / "all.parquet", ProgramRecord)
        writers["\0programs"] = table
        for record in programs(frozenset(used)):
            table.add(record)
    except BaseException:
        for writer in writers.values():
            writer.close(keep=False)
        raise
    for writer in writers.values():
        writer.close()
    for split in SPLITS:
        if split not in writers:
            (out / "steps" / f"{split}.parquet").unlink(missing_ok=True)
    return {name: w.count for name, w in writers.items() if name != "\0programs"}
