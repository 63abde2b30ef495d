"""Isolated workers, paired timing, the host's margin and description.

Names load on first use, so importing this package (as every worker host does) imports nothing heavy.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from steptp.measure.host import host_block, host_key, version_block
    from steptp.measure.margin import HostMargin, host_margin
    from steptp.measure.pool import Pool
    from steptp.measure.subjects import measure_pair, time_programs
    from steptp.measure.timing import PairedTiming, TimingOptions
    from steptp.measure.workers import Limits, TaskResult, Worker, WorkerHost

__all__ = [
    "HostMargin", "Limits", "PairedTiming", "Pool", "TaskResult", "TimingOptions", "Worker", "WorkerHost", "host_block",
    "host_key", "host_margin", "measure_pair", "time_programs", "version_block",
]  # fmt: skip

_HOMES = {
    "HostMargin": "margin", "host_margin": "margin", "Limits": "workers", "TaskResult": "workers", "Worker": "workers",
    "WorkerHost": "workers", "PairedTiming": "timing", "TimingOptions": "timing", "Pool": "pool", "host_block": "host",
    "host_key": "host", "version_block": "host", "measure_pair": "subjects", "time_programs": "subjects",
}  # fmt: skip


def __getattr__(name: str) -> object:
    if (home := _HOMES.get(name)) is None:
        raise AttributeError(name)
    value: object = getattr(import_module(f"steptp.measure.{home}"), name)
    globals()[name] = value
    return value
