"""The verbs, as a person and as a script use them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from cli_run import MATMUL, Ran, steptp

from steptp.ir import parse, program_hash
from steptp.rewrite import registry
from steptp.rewrite.base import Applied
from steptp.rewrite.engine import apply


@pytest.fixture
def matmul(tmp_path: Path) -> Path:
    path = tmp_path / "mm.leir"
    path.write_text(MATMUL)
    return path


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("cli")
    (folder / "mm.leir").write_text(MATMUL)
    ran = steptp("build", folder / "mm.leir", "--out", folder / "data", "--steps", 6, "--no-measure", "--variants", 0, "--jobs", 1, "--json")
    assert ran.code == 0, ran.err
    assert ran.json["totals"]["verified"] >= 6
    return folder / "data"


def test_help_is_quick_and_names_every_verb() -> None:
    before = os.times()
    done = subprocess.run([sys.executable, "-m", "steptp.cli", "--help"], capture_output=True, text=True, check=True)
    after = os.times()
    spent = after.children_user + after.children_system - before.children_user - before.children_system
    assert spent < 1.0, f"--help took {spent:.2f} s of CPU"
    for verb in ("build", "show", "verify", "mutate", "audit", "sites", "apply", "saturate", "lower", "strategies", "doctor"):
        assert f"  {verb} " in done.stdout


def test_version_and_no_arguments() -> None:
    assert steptp("--version").out.startswith("steptp 0.")
    ran = steptp()
    assert "Usage: steptp" in ran.out + ran.err


@pytest.mark.parametrize("verb", ["build", "show", "verify", "mutate", "audit", "sites", "apply", "saturate", "lower", "strategies", "doctor"])
def test_every_verb_explains_itself(verb: str) -> None:
    ran = steptp(verb, "-h")
    assert ran.code == 0
    assert "Options:" in ran.out


def test_sites_are_listed_and_filtered(matmul: Path) -> None:
    ran = steptp("sites", matmul)
    assert ran.code == 0
    assert "loop_reorder@0:to=1" in ran.out.split()
    listed = steptp("sites", matmul, "-s", "loop_split", "--json").json
    assert listed["sites"]
    assert not listed["cut"]
    assert {s.split("@")[0] for s in listed["sites"]} == {"loop_split"}
    cut = steptp("sites", matmul, "--limit", 5, "--json").json
    assert (len(cut["sites"]), cut["cut"]) == (5, True)


def test_apply_prints_the_next_program(matmul: Path) -> None:
    outcome = apply(parse(MATMUL), "loop_reorder@0:to=1")
    assert isinstance(outcome, Applied)
    for site in ("loop_reorder@0:to=1", "0:to=1", "@0:to=1"):
        ran = steptp("apply", matmul, "loop_reorder", site)
        assert ran.code == 0, ran.err
        assert program_hash(parse(ran.out)) == program_hash(outcome.program)


def test_apply_verifies_and_gives_json(matmul: Path) -> None:
    made = steptp("apply", matmul, "loop_split", "0:factor=4,tail=exact", "--verify", "--json").json
    assert made["applied"]
    assert made["exactness"] == "bitwise"
    assert made["verdict"] == "ok"
    assert program_hash(parse(made["program"])) != program_hash(parse(MATMUL))


def test_a_step_that_does_not_apply_says_why(matmul: Path) -> None:
    ran = steptp("apply", matmul, "loop_split", "0:factor=3,tail=exact")
    assert ran.code == 1
    assert ran.out == ""
    assert ran.err.startswith("not applicable [not-divisible]: 3 does not divide")
    assert steptp("apply", matmul, "loop_split", "7:factor=2", "--json").json == {
        "applied": False, "code": "no-such-place", "message": "the program has no statement at 7",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("form", "sign"),
    [("leir", "Y[i,j]"), ("tvmscript", "def main"), ("llvm", "define "), ("asm", ".text")],
)
def test_lower_prints_every_form(matmul: Path, form: str, sign: str) -> None:
    ran = steptp("lower", matmul, "--emit", form)
    assert ran.code == 0, ran.err
    assert sign in ran.out


def test_lower_prints_cuda_of_bound_loops(tmp_path: Path, matmul: Path) -> None:
    bound = tmp_path / "gpu.leir"
    bound.write_text("size N=8 M=32\nin X f32[N,M]\nout Y f32[N,M]\nbx i:N tx j:M Y[i,j] = X[i,j]*2\n")
    assert "__global__" in steptp("lower", bound, "-e", "cuda").out
    refused = steptp("lower", matmul, "-e", "cuda")
    assert refused.code == 2
    assert "error[build-unbound]" in refused.err


def test_strategies_lists_the_registry() -> None:
    rows = steptp("strategies", "--json").json
    assert [r["name"] for r in rows] == list(registry.names())
    text = steptp("strategies").out
    assert all(name in text for name in registry.names())


def test_doctor_finds_this_installation_well() -> None:
    ran = steptp("doctor", "--json")
    assert ran.code == 0, ran.out
    assert {r["check"] for r in ran.json} >= {"torch", "apache-tvm", "host", "compiler", "evaluators", "isolated worker"}


def _verify(first: Path, second: Path, *more: object) -> Ran:
    return steptp("verify", first, second, *more)


def test_verify_accepts_an_equal_pair(tmp_path: Path, matmul: Path) -> None:
    other = tmp_path / "other.leir"
    other.write_text(steptp("apply", matmul, "loop_reorder", "0:to=1").out)
    ran = _verify(matmul, other)
    assert ran.code == 0, ran.out
    assert ran.out.startswith("ok at tier")
    found = _verify(matmul, other, "--json").json
    assert found["verdict"] == "ok"
    assert [r["tier"] for r in found["reports"]] == sorted(r["tier"] for r in found["reports"])


def test_verify_rejects_another_function_with_a_counterexample(tmp_path: Path, matmul: Path) -> None:
    other = tmp_path / "other.leir"
    other.write_text(MATMUL.replace("+b[j]", "-b[j]"))
    ran = _verify(matmul, other)
    assert ran.code == 1
    assert ran.out.startswith("not_equal at tier 3")
    assert "Y[" in ran.out
    assert "should be" in ran.out
    rejected = _verify(matmul, other, "--json")
    assert rejected.code == 1
    assert any("counterexample" in r for r in rejected.json["reports"])


def test_verify_rejects_another_interface(tmp_path: Path, matmul: Path) -> None:
    other = tmp_path / "other.leir"
    other.write_text("size N=8\nin A f32[N]\nout Y f32[N]\nfor i:N Y[i] = A[i]\n")
    ran = _verify(matmul, other)
    assert ran.code == 1
    assert ran.out.startswith("malformed at tier 0")


def test_verify_of_bad_text_shows_the_place(tmp_path: Path, matmul: Path) -> None:
    other = tmp_path / "other.leir"
    other.write_text(MATMUL.replace("max(", "maxx("))
    ran = _verify(matmul, other)
    assert ran.code == 2
    first, shown, caret, *_ = ran.err.splitlines()
    assert first.startswith("error[")
    assert f"{other}:6:" in first
    assert "maxx(" in shown
    assert caret.strip().startswith("^")
    assert shown.index("maxx") == caret.index("^")


def test_show_summary_step_and_json(dataset: Path) -> None:
    ran = steptp("show", dataset)
    assert ran.code == 0
    assert "verified steps over 1 workload" in ran.out
    assert "faster" not in ran.out
    summary = steptp("show", dataset, "--json").json
    assert summary["totals"]["verified"] >= 6
    assert "none is the best" in steptp("show", dataset, "best").out
    unknown = steptp("show", dataset, "zzzz")
    assert unknown.code == 2
    step = unknown.err.split("for example ")[1].strip()
    shown = steptp("show", dataset, step[:10])
    assert shown.code == 0
    assert shown.out.startswith(f"step {step}")
    assert "verdict " in shown.out
    (record,) = steptp("show", dataset, step, "--json").json
    assert record["id"] == step


def test_audit_and_verify_of_a_dataset(dataset: Path) -> None:
    audited = steptp("audit", dataset, "--corrupt", 20, "--json")
    assert audited.code in (0, 1)
    names = {c["name"] for c in audited.json["checks"]}
    assert names
    text = steptp("audit", dataset, "--corrupt", 20)
    assert all(name in text.out for name in names)
    again = steptp("verify", dataset, "--sample", 3, "--jobs", 1, "--json")
    assert again.code == 0, again.out
    assert again.json["checked"] == 3
    assert again.json["mismatches"] == []


def test_building_again_continues_and_prints_the_summary(dataset: Path) -> None:
    again = ("build", dataset.parent / "mm.leir", "--out", dataset, "--steps", 6, "--no-measure", "--variants", 0, "--jobs", 1)
    before = steptp("show", dataset, "--json").json
    ran = steptp(*again)
    assert ran.code == 0, ran.err
    assert "verified steps over 1 workload" in ran.out
    assert "steptp verify" in ran.out
    assert steptp("show", dataset, "--json").json == before
