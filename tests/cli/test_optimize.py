"""``steptp optimize`` end to end on a small matmul: real workers, real timing, files that load."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest
from margin_file import keep_margin
from typer.testing import CliRunner

from steptp.cli import app
from steptp.errors import UsageError
from steptp.ir import parse, print_program
from steptp.rewrite.trace import Trace, replay

WORK = ["optimize", "einsum:ij,jk->ik@48x64,64x48", "--search", "greedy", "--threads", "1", "--json"]


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("optimize") / "out"
    keep_margin(folder)
    done = CliRunner().invoke(app, [*WORK, "--samples", "4", "--out", str(folder)], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return folder


def test_the_result_is_faster_verified_and_replayable(out: Path) -> None:
    result = json.loads((out / "result.json").read_text())
    assert result["final"]["kind"] == "ok"
    assert result["speedup"] > 1.5
    assert 1 <= result["spent"]["samples"] <= 4
    assert sorted(p.name for p in out.iterdir() if p.is_file()) == result["files"]
    trace = Trace.from_json((out / "trace.json").read_text())
    assert print_program(replay(trace).last) == (out / "program.leir").read_text()
    assert parse((out / "program.leir").read_text())
    assert len(result["steps"]) == len(trace.steps)
    assert all("Effect:" in step["reason"] for step in result["steps"])


def test_the_report_can_be_made_again(out: Path) -> None:
    page = (out / "report.html").read_text()
    assert "timed afresh" in page
    (out / "report.html").unlink()
    done = CliRunner().invoke(app, ["report", str(out)], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    assert (out / "report.html").read_text() == page


def test_resuming_continues_the_tree(out: Path) -> None:
    before = json.loads((out / "result.json").read_text())["tree"]
    with pytest.raises(UsageError, match="holds a search already"):
        CliRunner().invoke(app, [*WORK, "--out", str(out)], catch_exceptions=False)
    done = CliRunner().invoke(app, [*WORK, "--samples", "4", "--out", str(out), "--resume"], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    assert json.loads((out / "result.json").read_text())["tree"] == before


@pytest.mark.skipif(shutil.which("gcc") is None, reason="needs a C compiler")
def test_the_header_calls_the_library(out: Path, tmp_path: Path) -> None:
    import tvm_ffi.libinfo as libinfo

    (tmp_path / "main.c").write_text(
        """
#include <stdio.h>
#include "program.h"
static float a[48*64], b[64*48], y[48*48];
static DLTensor tensor(float *data, int64_t *shape) {
  DLTensor t = {.data = data, .device = {kDLCPU, 0}, .ndim = 2, .dtype = {kDLFloat, 32, 1}, .shape = shape};
  return t;
}
int main(void) {
  int64_t s0[] = {48, 64}, s1[] = {64, 48}, s2[] = {48, 48};
  for (int i = 0; i < 48*64; ++i) { a[i] = 1; b[i] = 2; }
  DLTensor ta = tensor(a, s0), tb = tensor(b, s1), ty = tensor(y, s2);
  int status = steptp_run(&ta, &tb, &ty);
  printf("%d %g %g\\n", status, y[0], y[48*48-1]);
  return 0;
}
"""
    )
    includes = [f"-I{p}" for p in libinfo.include_paths()]
    library = Path(libinfo.find_libtvm_ffi())
    subprocess.run(
        ["gcc", "-std=c11", str(tmp_path / "main.c"), f"-I{out}", *includes, str(out / "program.so"), str(library), f"-Wl,-rpath,{out}:{library.parent}", "-o", str(tmp_path / "main")],
        check=True,
    )  # fmt: skip
    done = subprocess.run([str(tmp_path / "main")], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["0", "128", "128"]


def test_a_language_model_that_does_not_answer_is_an_error_at_once(tmp_path: Path) -> None:
    work = [*WORK, "--policy", "openai", "--out", str(tmp_path)]
    with pytest.raises(UsageError, match="needs a model"):
        CliRunner().invoke(app, work, catch_exceptions=False)
    with pytest.raises(UsageError, match="no answer from"):
        CliRunner().invoke(app, [*work, "--model", "toy", "--base-url", "http://127.0.0.1:9/v1"], catch_exceptions=False)
