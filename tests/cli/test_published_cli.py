"""``steptp verify --notation published``."""

from __future__ import annotations

from pathlib import Path

import pytest
from cli_run import steptp

COPY = "L^{4}_{a=0}L^{3}_{c=0}[Y^{f32,g}_{a}=Y^{f32,g}_{a}+X^{f32,g}_{a,c};];"
TILED = "L^{2}_{d=0}L^{2}_{a=0}L^{3}_{c=0}[Y^{f32,g}_{d*2+a}=Y^{f32,g}_{d*2+a}+X^{f32,g}_{d*2+a,c};];"
TWICE = COPY + "L^{4}_{a=0}L^{3}_{c=0}[Y^{f32,g}_{a}=Y^{f32,g}_{a}+X^{f32,g}_{a,c};];"


@pytest.fixture
def texts(tmp_path: Path) -> Path:
    for name, text in (("copy", COPY), ("tiled", TILED), ("twice", TWICE), ("broken", "L^{4}_{a=0}[Y^{f32,g}_{a}=b;];")):
        (tmp_path / f"{name}.txt").write_text(text)
    return tmp_path


def test_a_pair_that_holds(texts: Path) -> None:
    ran = steptp("verify", "--notation", "published", texts / "copy.txt", texts / "tiled.txt")
    assert ran.code == 0
    assert ran.out.startswith("ok at tier 2")
    assert "shape-inferred" in ran.out


def test_a_pair_that_does_not_hold(texts: Path) -> None:
    ran = steptp("verify", "--notation", "published", texts / "copy.txt", texts / "twice.txt", "--json")
    assert ran.code == 1
    assert (ran.json["verdict"], ran.json["function"]) == ("not_equal", "not_equal")
    assert "init-continue" in ran.json["open"]


def test_compiled_tiers_are_asked_for(texts: Path) -> None:
    ran = steptp("verify", "--notation", "published", "--compiled", texts / "copy.txt", texts / "tiled.txt", "--json")
    assert ran.code == 0
    assert ran.json["tier"] == 4


def test_one_program_is_converted(texts: Path) -> None:
    ran = steptp("verify", "--notation", "published", texts / "twice.txt")
    assert ran.code == 0
    assert "carry Y[a]+=X[a,c]" in ran.out
    assert "open[init-continue]" in ran.out
    assert steptp("verify", "--notation", "published", texts / "twice.txt", "--json").json["open"][0]["code"] == "shape-inferred"


def test_bad_input(texts: Path) -> None:
    ran = steptp("verify", "--notation", "published", texts / "copy.txt", texts / "broken.txt")
    assert ran.code == 2
    assert "error[check-view]" in ran.err
    assert "broken.txt:1:27" in ran.err
    assert steptp("verify", "--notation", "published", texts / "copy.txt", texts / "none.txt").code == 2
    assert "usage-notation" in steptp("verify", "--notation", "other", texts / "copy.txt", texts / "tiled.txt").err
