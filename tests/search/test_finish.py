"""What a search leaves in its folder: sources, a library that C can call, TVMScript that TVM reads back, CUDA for bound programs."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from steptp.ir import parse, print_program
from steptp.rewrite.trace import Trace, replay
from steptp.search.finish import write_artefacts

PROGRAM = parse("in x f32[N=6,M=10] k i32[N]\nout total f32[N] twice i32[N]\nfor i j total[i]+=x[i,j]\nfor i twice[i]=k[i]*2\n")
BOUND = parse("size T=8\nin A f32[N=64]\nout C[N]\nwhere N%T==0\nbx b:N//T tx t:T C[b*T+t]=A[b*T+t]*2.0\n")

C = """
#include <stdio.h>
#include "program.h"
static DLTensor tensor(void *data, int ndim, int64_t *shape, uint8_t code) {
  DLTensor t = {.data = data, .device = {kDLCPU, 0}, .ndim = ndim, .dtype = {code, 32, 1}, .shape = shape};
  return t;
}
static _Alignas(64) float x[6*10], total[6];
static _Alignas(64) int k[6], twice[6];
int main(void) {
  int64_t matrix[] = {6, 10}, row[] = {6};
  for (int i = 0; i < 60; ++i) x[i] = i;
  for (int i = 0; i < 6; ++i) k[i] = -i;
  DLTensor tx = tensor(x, 2, matrix, kDLFloat), tk = tensor(k, 1, row, kDLInt), tt = tensor(total, 1, row, kDLFloat), tw = tensor(twice, 1, row, kDLInt);
  int status = steptp_run(&tx, &tk, &tt, &tw);
  printf("%d %g %g %d %d\\n", status, total[0], total[5], twice[1], twice[5]);
  return 0;
}
"""


def _never(text: str) -> None:
    raise AssertionError(text)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("files") / "deep" / "out"
    files = write_artefacts(out, PROGRAM, Trace.start(PROGRAM), {"speedup": 1.0}, _never, {"page.html": lambda result: f"<p>{result['speedup']}"})
    assert files == ["page.html", "program.h", "program.leir", "program.so", "program.tvm.py", "result.json", "trace.json"]
    assert sorted(p.name for p in out.iterdir()) == files
    return out


def test_everything_reads_back(folder: Path) -> None:
    import tvm
    from tvm.script import from_source

    assert parse((folder / "program.leir").read_text()) == PROGRAM
    assert replay(Trace.from_json((folder / "trace.json").read_text())).last == PROGRAM
    assert json.loads((folder / "result.json").read_text())["files"][0] == "page.html"
    assert (folder / "page.html").read_text() == "<p>1.0"
    x, k = np.arange(60, dtype=np.float32).reshape(6, 10), np.arange(6, dtype=np.int32)
    for run in (tvm.compile(from_source((folder / "program.tvm.py").read_text()), "llvm"), tvm.runtime.load_module(str(folder / "program.so"))):
        total, twice = tvm.runtime.tensor(np.full(6, np.nan, np.float32)), tvm.runtime.tensor(np.zeros(6, np.int32))
        run["main"](tvm.runtime.tensor(x), tvm.runtime.tensor(k), total, twice)
        np.testing.assert_array_equal(total.numpy(), x.sum(1))
        np.testing.assert_array_equal(twice.numpy(), k * 2)


@pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")
def test_c_calls_the_library_through_the_header(folder: Path, tmp_path: Path) -> None:
    import tvm_ffi.libinfo as libinfo

    (tmp_path / "main.c").write_text(C)
    library, run = Path(libinfo.find_libtvm_ffi()), tmp_path / "main"
    includes = [f"-I{p}" for p in (folder, *libinfo.include_paths())]
    linked = [str(folder / "program.so"), str(library), f"-Wl,-rpath,{folder}:{library.parent}"]
    subprocess.run(["cc", "-std=c11", "-Wall", "-Werror", str(tmp_path / "main.c"), *includes, *linked, "-o", str(run)], check=True)
    done = subprocess.run([str(run)], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["0", "45", "545", "-2", "-10"]


def test_a_bound_program_is_written_as_cuda(tmp_path: Path) -> None:
    files = write_artefacts(tmp_path, BOUND, None, {}, _never, {})
    assert files == ["program.cu", "program.leir", "program.tvm.py", "result.json"]
    source = (tmp_path / "program.cu").read_text()
    assert "__global__" in source
    assert "blockIdx.x" in source
    assert print_program(parse((tmp_path / "program.leir").read_text())) == print_program(BOUND)
    assert "threadIdx.x" in (tmp_path / "program.tvm.py").read_text()
