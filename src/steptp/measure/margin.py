"""This host's own noise: how far apart two builds of one program can seem.

Two builds of the same program, each with buffers of its own, are timed against each other (an A/A pair) exactly as steps are. The
margin is (a safe estimate of) the 99th percentile of ``max(ratio, 1/ratio) - 1`` over many such pairs: what a step must exceed, with its whole
interval, before it is called faster or slower. It is measured when a build of a dataset starts and stored with it.
"""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from steptp.errors import UsageError
from steptp.ir.seeds import derive_seed
from steptp.measure.pool import Pool
from steptp.measure.probes import PROBES, probe, probe_inputs
from steptp.measure.stats import quantile_above
from steptp.measure.timing import PairedTiming, TimingOptions

__all__ = ["AaTask", "HostMargin", "aa_pair", "aa_tasks", "host_margin", "margin_of", "FLOOR"]

FLOOR = 0.01  # a margin below this would claim more than a small sample of pairs can support
QUANTILE = 0.99
_SAFE = 0.995  # read off a small sample, the 99th percentile lies below the true one half of the time; the next ones up seldom do
_FORMAT = 2


@dataclass(frozen=True, slots=True)
class AaTask:
    """One A/A pair: a probe, the seed of its inputs and placements, and (for a planted slow-down) the child's extra work."""

    probe: str
    seed: int
    rows: float = 1.0
    options: TimingOptions = field(default_factory=TimingOptions)


@dataclass(frozen=True, slots=True)
class HostMargin:
    """The margin and the distribution it comes from; ``created`` is a Unix time, ``host`` the key of
    :func:`steptp.measure.host.host_key`, ``failed`` counts pairs that could not be measured, ``cpu_seconds`` is what the workers used."""

    margin: float
    pairs: int
    p50: float
    p90: float
    p99: float
    worst: float
    seed: int
    seconds: float
    host: str = ""
    created: float = 0.0
    failed: int = 0
    cpu_seconds: float = 0.0

    def to_json(self) -> dict[str, object]:
        return {"format": _FORMAT, **asdict(self)}


def aa_pair(task: AaTask) -> PairedTiming:
    """Build the probe twice and time the builds against each other. Runs in a worker."""
    from steptp.lower.build import build, clear_cache
    from steptp.measure.subjects import measure_pair

    parent = probe(task.probe)
    child = probe(task.probe, task.rows)
    options = replace(task.options, seed=task.seed)
    first = build(parent)
    clear_cache()  # the same program again is code at another place
    second = build(child)
    inputs = probe_inputs(parent, task.seed), probe_inputs(child, task.seed)
    return measure_pair(first, second, inputs[0], options, child_inputs=inputs[1])


def aa_tasks(count: int, seed: int, *, rows: float = 1.0, options: TimingOptions | None = None) -> list[AaTask]:
    """``count`` tasks over all probes in turn, with distinct seeds."""
    names = sorted(PROBES)
    chosen = options or TimingOptions()
    return [AaTask(names[n % len(names)], derive_seed("aa", seed, n), rows, chosen) for n in range(count)]


def margin_of(ratios: Iterable[float], seed: int = 0, seconds: float = 0.0) -> HostMargin:
    """The margin that these A/A ratios give; raises :class:`UsageError` ``usage-margin`` for fewer than ten."""
    distances = [abs(math.log(r)) for r in ratios]
    if len(distances) < 10:
        raise UsageError("usage-margin", f"a margin needs at least 10 A/A pairs, not {len(distances)}")
    p50, p90, p99, safe = (math.expm1(quantile_above(distances, q)) for q in (0.5, 0.9, QUANTILE, _SAFE))
    return HostMargin(max(safe, FLOOR), len(distances), p50, p90, p99, math.expm1(max(distances)), seed, seconds)


def host_margin(
    pool: Pool | None = None,
    *,
    pairs: int = 120,
    budget_s: float = 20.0,
    seed: int = 0,
    options: TimingOptions | None = None,
    cache: Path | None = None,
    max_age_s: float = 86_400.0,
    measure: Callable[[AaTask], PairedTiming] = aa_pair,
) -> HostMargin:
    """Measure this host's A/A margin, on all workers of ``pool`` at once as steps are (without one: in this process).

    At most ``pairs`` pairs; after ``budget_s`` seconds no further one starts (at least 30 are taken). ``cache`` names a JSON file: a margin
    in it for this very host and software, not older than ``max_age_s`` seconds, is returned instead, and a new one is written there.
    Raises :class:`UsageError` ``usage-margin`` when fewer than ten pairs could be measured.
    """
    from steptp.measure.host import host_key

    key = host_key()
    if cache is not None and (stored := _load(cache, key, max_age_s)) is not None:
        return stored
    start = time.monotonic()
    ratios: list[float] = []
    failed, used = 0, 0.0
    tasks = aa_tasks(pairs, seed, options=options)
    wanted = (t for n, t in enumerate(tasks) if n < 30 or time.monotonic() - start < budget_s)
    if pool is None:
        ratios = [measure(task).ratio for task in wanted]
    else:
        last = ""
        for _, result in pool.map(measure, wanted, window=2 * pool.slots):
            used += result.cpu_seconds
            if result.ok and result.value is not None:
                ratios.append(result.value.ratio)
            else:
                failed += 1
                last = f"{result.status}: {result.message}"
        if len(ratios) < 10:
            raise UsageError("usage-margin", f"only {len(ratios)} of {pairs} A/A pairs could be measured ({last})")
    found = replace(margin_of(ratios, seed, time.monotonic() - start), host=key, created=time.time(), failed=failed, cpu_seconds=used)
    if cache is not None:
        _store(cache, found)
    return found


def _load(path: Path, key: str, max_age_s: float) -> HostMargin | None:
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        if data.pop("format") != _FORMAT or data["host"] != key or not 0 <= time.time() - data["created"] <= max_age_s:
            return None
        return HostMargin(**data)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None  # absent, damaged or of another version: measured anew


def _store(path: Path, margin: HostMargin) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f"{path.name}.{os.getpid()}.part")
    part.write_text(json.dumps(margin.to_json(), indent=1) + "\n", encoding="utf-8")
    part.replace(path)
