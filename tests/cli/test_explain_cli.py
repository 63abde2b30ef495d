"""``steptp verify --explain``."""

from __future__ import annotations

from pathlib import Path

import pytest
from cli_run import steptp

MATMUL = "in A f32[N=64,K=128] B[K,L=32]\nout Y[N,L]\nfor i j k Y[i,j]+=A[i,k]*B[k,j]\n"
COPY = "L^{4}_{a=0}L^{3}_{c=0}[Y^{f32,g}_{a}=Y^{f32,g}_{a}+X^{f32,g}_{a,c};];"
SHORT = "\n" + COPY.replace("L^{3}", "L^{2}")
RACE = COPY.replace("L^{3}", "P^{3}")


@pytest.fixture
def texts(tmp_path: Path) -> Path:
    for name, text in (("a.leir", MATMUL), ("b.leir", MATMUL.replace("i j k", "i j k:K-1")), ("copy.txt", COPY), ("short.txt", SHORT), ("race.txt", RACE)):
        (tmp_path / name).write_text(text)
    return tmp_path


def test_a_pair(texts: Path) -> None:
    ran = steptp("verify", texts / "a.leir", texts / "b.leir", "--explain")
    assert ran.code == 1
    assert "they part here: the child lacks the only term of the parent's" in ran.out
    assert "   3 | for i j k:K-1 Y[i,j]+=A[i,k]*B[k,j]\n" in ran.out
    record = steptp("verify", texts / "a.leir", texts / "b.leir", "--explain", "--json").json["explanation"]
    assert (record["output"], record["kind"]) == ("Y", "not_equal")
    assert record["spots"][0]["file"].endswith("b.leir")
    assert "explanation" not in steptp("verify", texts / "a.leir", texts / "b.leir", "--json").json


def test_what_holds_needs_no_explanation(texts: Path) -> None:
    ran = steptp("verify", "--notation", "published", texts / "copy.txt", texts / "copy.txt", "--explain", "--json")
    assert ran.code == 0
    assert "explanation" not in ran.json


def test_the_published_text_is_shown(texts: Path) -> None:
    ran = steptp("verify", "--notation", "published", texts / "copy.txt", texts / "short.txt", "--explain")
    assert ran.code == 1
    assert "   2 | L^{4}_{a=0}L^{2}_{c=0}[Y" in ran.out
    assert "only in the parent: X[0,2]" in ran.out


def test_a_claim_of_the_loops_is_explained(texts: Path) -> None:
    ran = steptp("verify", "--notation", "published", texts / "copy.txt", texts / "race.txt", "--explain", "--json")
    assert ran.json["verdict"] == "illegal"
    record = ran.json["explanation"]
    assert [dict(s["at"])["c"] for s in record["spots"]] == [0, 1]
    assert record["spots"][0]["shown"].startswith("   1 | L^{4}")


def test_refused_mutants(texts: Path) -> None:
    ran = steptp("mutate", texts / "a.leir", "--operator", "bound_short", "--limit", 3, "--explain", "--json")
    told = [m["explanation"] for m in ran.json["mutants"] if m["outcome"] == "killed"]
    assert ran.code == 0
    assert told
    assert all(one["kind"] == m["verdict"] and one["spots"] for one, m in zip(told, (m for m in ran.json["mutants"] if m["outcome"] == "killed"), strict=True))
    shown = steptp("mutate", texts / "a.leir", "--operator", "bound_short", "--limit", 3, "--explain").out
    assert "they part here" in shown or "why:" in shown
    plain = steptp("mutate", texts / "a.leir", "--operator", "bound_short", "--limit", 3, "--json")
    assert all("explanation" not in m and "told" not in m for m in plain.json["mutants"])
