"""The host's margin: from given ratios, cached by host, and a real short run whose figures are not asserted."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from steptp.errors import UsageError
from steptp.measure.host import host_block, host_key, version_block
from steptp.measure.margin import FLOOR, AaTask, aa_tasks, host_margin, margin_of
from steptp.measure.pool import Pool
from steptp.measure.probes import PROBES
from steptp.measure.timing import PairedTiming, TimingOptions


def fake(task: AaTask) -> PairedTiming:
    ratio = math.exp(((task.seed % 21) - 10) / 100)
    return PairedTiming((1.0,), (1.0,), (1,), ratio, ratio, ratio, "same", 1, (1, 1), "warm", 0.05, 0.99, task.seed, "rounds", 0.0)


def test_margin_is_symmetric_in_faster_and_slower() -> None:
    ratios = [1 + n / 1000 for n in range(100)]
    assert margin_of(ratios).margin == pytest.approx(margin_of([1 / r for r in ratios]).margin)
    assert margin_of(ratios).p99 == pytest.approx(0.098)  # the 99th of 100
    assert margin_of(ratios).margin == margin_of(ratios).worst == pytest.approx(0.099)
    assert margin_of([1 + n / 4000 for n in range(400)]).margin == pytest.approx(397 / 4000)
    assert margin_of([1.0] * 20).margin == FLOOR
    with pytest.raises(UsageError):
        margin_of([1.0] * 9)


def test_tasks_spread_over_probes_with_seeds_of_their_own() -> None:
    tasks = aa_tasks(60, 3)
    assert {t.probe for t in tasks} == set(PROBES)
    assert len({t.seed for t in tasks}) == 60
    assert tasks == aa_tasks(60, 3)
    assert {t.seed for t in tasks}.isdisjoint(t.seed for t in aa_tasks(60, 4))


def test_cache_is_used_for_this_host_only(tmp_path: Path) -> None:
    path = tmp_path / "sub" / "margin.json"
    calls: list[AaTask] = []

    def counted(task: AaTask) -> PairedTiming:
        calls.append(task)
        return fake(task)

    first = host_margin(pairs=40, cache=path, measure=counted)
    assert len(calls) == first.pairs == 40
    assert first.host == host_key()
    assert host_margin(pairs=40, cache=path, measure=counted) == first
    assert len(calls) == 40
    data = json.loads(path.read_text())
    spoiled: object
    for spoiled in (data | {"host": "other"}, data | {"created": 0.0}, data | {"format": 99}, {"format": 1}, []):
        path.write_text(json.dumps(spoiled))
        before = len(calls)
        host_margin(pairs=30, cache=path, measure=counted)
        assert len(calls) == before + 30
    assert not list(path.parent.glob("*.part"))


def test_budget_ends_early_but_not_too_early() -> None:
    assert host_margin(pairs=90, budget_s=0.0, measure=fake).pairs == 30


def test_real_pairs_in_a_pool() -> None:
    with Pool(2) as pool:
        quick = TimingOptions(sample_ns=20_000, rounds=3, max_rounds=3, pairs=1, budget_s=0.02)
        found = host_margin(pool, pairs=12, options=quick)
    assert (found.pairs, found.failed) == (12, 0)
    assert found.margin >= FLOOR
    assert 0 <= found.p50 <= found.p90 <= found.p99 <= found.worst


def test_host_block_is_json_and_stable() -> None:
    block, versions = host_block(), version_block()
    assert json.loads(json.dumps(block)) == block
    assert all(block[key] for key in ("cpu", "cores", "memory_bytes", "flags_hash", "kernel"))
    assert {"python", "steptp", "numpy", "tvm"} <= versions.keys()
    assert len(host_key()) == 16
