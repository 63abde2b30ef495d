"""Whole builds: the same records whatever the number of workers and however often the build is killed."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from dataset_build import Quiet, build_small, identity, small_config

from steptp.dataset.audit import audit_dataset
from steptp.dataset.build import run_build
from steptp.dataset.recheck import recheck
from steptp.dataset.schema import SPLITS
from steptp.dataset.store import Dataset
from steptp.errors import DatasetError, UsageError


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    here = tmp_path_factory.mktemp("undisturbed")
    return build_small(small_config(here / "in"), here / "out")


def test_the_build_gives_what_was_asked_for(undisturbed: Dataset) -> None:
    verified = [s for s in undisturbed.steps if s["verdict"] == "ok"]
    assert len(verified) == 24
    assert len({s["strategy"] for s in verified}) >= 5
    assert {s["root"] for s in undisturbed.steps} <= set(undisturbed.programs)
    for step in verified:
        tiers = [e["tier"] for e in json.loads(step["evidence"])]
        assert tiers == sorted(tiers)
        assert {0, 1, 4} <= set(tiers)
        assert {2, 3} & set(tiers)
        assert (5 in tiers) == (step["exactness"] == "bitwise")
        assert step["reason"].startswith("Dominant:")


def test_audit_and_recheck_find_nothing(undisturbed: Dataset) -> None:
    report = audit_dataset(undisturbed.folder, corrupt=40)
    assert [c for c in report.checks if not c.ok] == []
    again = recheck(undisturbed.folder, sample=6, remeasure=False, seed=1, jobs=2, progress=Quiet())
    assert again.checked == 6
    assert again.mismatches == []


def test_audit_and_recheck_find_a_forged_record(undisturbed: Dataset, tmp_path: Path) -> None:
    import shutil

    import pyarrow as pa
    import pyarrow.parquet as pq

    forged = tmp_path / "forged"
    shutil.copytree(undisturbed.folder, forged)
    path = next(p for p in (forged / "steps").glob("*.parquet"))
    table = pq.read_table(path)
    rows = table.to_pylist()
    victim = next(r for r in rows if r["verdict"] == "ok")
    victim["reason"] = victim["reason"].replace("Line ", "Line 1", 1).replace("line ", "line 1", 1)
    victim["exactness"] = "algebraic" if victim["exactness"] == "bitwise" else "bitwise"
    pq.write_table(pa.Table.from_pylist(rows, schema=table.schema), path)
    failed = {c.name for c in audit_dataset(forged).checks if not c.ok}
    assert {"reasons unchanged", "reasons hold"} <= failed
    result = recheck(forged, sample=None, remeasure=False, seed=0, jobs=2, progress=Quiet())
    assert [m for m in result.mismatches if victim["id"] in m]


def test_load_dataset_reads_tables_and_views(undisturbed: Dataset, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    from datasets import load_dataset

    steps = load_dataset(str(undisturbed.folder), "steps", cache_dir=str(tmp_path))
    assert sum(steps[s].num_rows for s in steps) == len(undisturbed.steps)
    assert set(steps) <= set(SPLITS)
    named = load_dataset(str(undisturbed.folder / "views" / "named"), cache_dir=str(tmp_path))
    row = named["train"][0]
    assert [m["role"] for m in row["messages"]] == ["system", "user", "assistant"]
    assert row["messages"][2]["content"] == row["completion"]


def test_one_worker_gives_the_same_records(undisturbed: Dataset, tmp_path: Path) -> None:
    config = small_config(undisturbed.folder.parent / "in")
    assert identity(build_small(config, tmp_path / "one", jobs=1)) == identity(undisturbed)


def _written(out: Path) -> int:
    """Finished pieces of work in the journal of a build."""
    return sum(file.read_bytes().count(b"\n") for file in out.glob("journal/*.jsonl"))


def test_killed_again_and_again_it_ends_with_the_same_records(undisturbed: Dataset, tmp_path: Path) -> None:
    config, out = small_config(undisturbed.folder.parent / "in"), tmp_path / "killed"
    code = (
        "import sys; from pathlib import Path; from dataset_build import Quiet; from steptp.dataset.build import run_build; from steptp.dataset.config import BuildConfig\n"
        "run_build(BuildConfig.model_validate_json(sys.argv[1]), Path(sys.argv[2]), jobs=2, progress=Quiet())"
    )
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).parent.parent / "support")}
    rng, kills = random.Random(0), 0
    for _ in range(40):
        process = subprocess.Popen([sys.executable, "-c", code, config.model_dump_json(), str(out)], env=env, start_new_session=True)
        deadline, enough = time.monotonic() + 240, _written(out) + rng.randint(1, 25) if kills < 3 else 10**9
        while process.poll() is None and time.monotonic() < deadline and _written(out) < enough:
            time.sleep(0.02)
        if process.poll() is not None:
            assert process.returncode == 0
            break
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        kills += 1
    assert kills >= 1
    assert identity(Dataset.open(out)) == identity(undisturbed)


def test_folders_are_protected(undisturbed: Dataset, tmp_path: Path) -> None:
    config = small_config(tmp_path / "in")
    with pytest.raises(DatasetError, match="another configuration"):
        run_build(
            config.model_copy(update={"seed": 5, "workloads": tuple(undisturbed.info["config"]["workloads"])}), undisturbed.folder, jobs=1, progress=Quiet()
        )
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").write_text("keep me")
    with pytest.raises(DatasetError, match="no dataset"):
        run_build(config, tmp_path / "mine", jobs=1, overwrite=True, progress=Quiet())
    assert (tmp_path / "mine" / "notes.txt").read_text() == "keep me"
    with pytest.raises(DatasetError, match="not a dataset"):
        Dataset.open(tmp_path)


def test_step_lookup(undisturbed: Dataset) -> None:
    first = undisturbed.steps[0]
    assert undisturbed.step(first["id"][:12]) == first
    with pytest.raises(UsageError, match="no step"):
        undisturbed.step("zzz")
    with pytest.raises(UsageError, match="steps with an id"):
        undisturbed.step("")
