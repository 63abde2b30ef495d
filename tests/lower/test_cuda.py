"""CUDA source: it compiles for real architectures, waits where threads must wait, and computes what LEIR says."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
from cuda_on_cpu import compiler, run_on_cpu
from gpu_texts import tiled

from steptp.analysis import safety_problems
from steptp.interp import evaluate
from steptp.interp.emulate import emulate
from steptp.ir import Program, parse, shape_of
from steptp.lower import BuildError, cuda_source, tvmscript
from steptp.rewrite import engine

TILED = tiled("N=8 K=6 L=4 T=2")
SOFTMAX = """size N=3 L=6
in X f32[N,L]
out Y f32[N,L]
bx i:N
 tmp e f32[L] shared m f32[] shared s f32[] shared
 for j:L m[] max= X[i,j]
 tx j:L e[j] = exp(X[i,j]-m[])
 for j:L s[] += e[j]
 tx j:L Y[i,j] = e[j]/s[]
"""
HALVES = """size N=3 L=6
in X f16[N,L] W bf16[L]
out Y f16[N,L] Z bf16[N]
bx i:N
 tx j:L Y[i,j] = max(X[i,j]*2,0)
 Z[i] = 0
 for j:L carry Z[i] += W[j]*bf16(f32(X[i,j]))
"""
IDLE = """size N=2 M=3 K=2
in X f32[N,M]
out Y f32[N] Z f32[N,M,K] V f32[N,M]
bx i:N
 Y[i] = 1
 for j:M carry Y[i] += X[i,j]
 tx j:M
  V[i,j] = 0
  for k:K carry V[i,j] += X[i,j]
  ty k:K Z[i,j,k] = V[i,j]*Y[i]
"""
PRIVATE = """size N=2 M=4
in X f32[N,M]
out Y f32[N,M] Z f32[N,M]
bx i:N
 tmp p f32[] local q f32[M]
 tx j:M q[j] = X[i,j]*2
 p[] = 0
 for j:M carry p[] += q[j]
 tx j:M Y[i,j] = q[M-1-j]
 for t:3
  tx j:M q[j] = Y[i,j]
  tx j:M Y[i,(j+1)%M] = q[j]
 Z[i,0] = p[]
 for j:M-1 Z[i,j+1] = Y[i,j]
"""
GUARDED = """size N=3 M=4
in X f32[N,M] f i32[1] 0..3
out Y f32[N,M]
for i:N j:M Y[i,j] = 1
if f[0]>0: bx i:N tx j:M Y[i,j] = X[i,j]
bx i:N tx j:2 if X[i,j]>0: Y[i,j] = 3
"""
STEPS = """size T=3 N=5
in X f32[N]
out Y f32[T+1,N]
tmp t f32[N]
bx i:N t[i] = X[i]
bx i:N Y[0,i] = t[i]
for s:T bx i:N Y[s+1,i] = Y[s,(i+1)%N]
"""
PROGRAMS = {"tiled": TILED, "softmax": SOFTMAX, "halves": HALVES, "idle": IDLE, "private": PRIVATE, "guarded": GUARDED, "steps": STEPS}
NVCC = shutil.which("nvcc")


STEPS = [
    *("loop_tiling@0:outer=2,inner=2,tail=exact", "loop_split@0.0.0.0.0:factor=T0,tail=exact", "loop_reorder@0.0.0.0.0:to=2"),
    *(f"cache_read_write@0.0.0:mode={mode}" for mode in ("accumulate,buffer=C", "read,buffer=A", "read,buffer=B")),
    *("loop_binding@0:axis=by", "loop_binding@0.0:axis=bx"),
    *(f"set_storage_scope@{where},scope=shared" for where in ("0.0:buffer=Cl", "0.0.0:buffer=Al", "0.0.0:buffer=Bl")),
    *(f"loop_binding@{nest}{inner}:axis={axis}" for nest in ("0.0.0.0", "0.0.0.1", "0.0.0.2", "0.0.1") for inner, axis in ((".0", "tx"), ("", "ty"))),
]


def _derived() -> Program:
    """Naive matrix product → tiles in shared memory, one thread an element, by atomic steps."""
    program = parse("size N=8 K=6 L=4\nin A f32[N,K] B[K,L]\nout C f32[N,L]\nfor i:N j:L k:K C[i,j] += A[i,k]*B[k,j]\n")
    for site in STEPS:
        program = engine.applied_or_raise(program, site).program
        assert not list(safety_problems(program)), site
    return program


def _program(name: str) -> Program:
    return _derived() if name == "derived" else parse(PROGRAMS[name])


@pytest.mark.skipif(NVCC is None, reason="no nvcc")
@pytest.mark.parametrize("name", ["tiled", "softmax", "halves", "private", "derived"])
def test_source_compiles_for_sm_80_and_sm_90(name: str, tmp_path: Path) -> None:
    _compile(cuda_source(_program(name)), tmp_path)


def _compile(source: str, folder: Path) -> None:
    (folder / "kernel.cu").write_text(source)
    arches = [part for arch in ("80", "90") for part in ("-gencode", f"arch=compute_{arch},code=sm_{arch}")]
    done = subprocess.run([str(NVCC), "-fatbin", *arches, "-o", "kernel.fatbin", "kernel.cu"], cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[:2000]
    assert (folder / "kernel.fatbin").stat().st_size


UNARY = ["exp", "expm1", "log", "log1p", "sqrt", "rsqrt", "tanh", "sigmoid", "erf", "sin", "cos", "floor", "ceil", "round", "abs"]
OTHERS = ["pow(x,X[0])", "max(x,1)", "min(x,X[0])", "-x", "x/3", "X[i64(T[i])]", "select(isnan(x) or P[i],0,x)", "X[i*3%N]"]
TARGETS = {"T": "i32", "B": "i8", "P": "bool", "L": "i64"}


def _every_operation(dtype: str) -> str:
    """All functions, comparisons and casts on one float dtype, in one kernel."""
    values = [f"{f}(x)" for f in UNARY] + OTHERS + [f"{dtype}({name}[i])" for name in TARGETS]
    outs = [other for other in ("f16", "bf16", "f32", "f64", "i8", "i32", "i64") if other != dtype]
    head = f"size N=8 F={len(values)}\nin X {dtype}[N] T i32[N] 0..N B i8[N] P bool[N] L i64[N] -9..9\nout Y {dtype}[F,N] Q bool[N] I i64[N] "
    lines = [head + " ".join(f"to_{o} {o}[N]" for o in outs), "tx i:N"]
    lines += [f" Y[{n},i] = {v}" for n, v in enumerate(values)] + [f" to_{o}[i] = {o}(x)" for o in outs]
    return re.sub(r"\bx\b", "X[i]", "\n".join([*lines, " Q[i] = x>0 and not P[i] or x!=x", " I[i] = L[i]//3+L[i]%3+i64(T[i])", ""]))


@pytest.mark.skipif(NVCC is None, reason="no nvcc")
@pytest.mark.parametrize("dtype", ["f16", "bf16", "f32", "f64"])
def test_every_operation_compiles(dtype: str, tmp_path: Path) -> None:
    _compile(cuda_source(parse(_every_operation(dtype))), tmp_path)


@pytest.mark.skipif(compiler() is None, reason="no C++ compiler")
@pytest.mark.parametrize("name", ["derived", "idle", "private", "guarded"])
def test_kernels_on_cpu_threads_have_no_race_and_the_bits_of_serial_order(name: str, tmp_path: Path) -> None:
    program, rng = _program(name), np.random.default_rng(0)
    shapes = {b: shape_of(b.shape, program) for b in program.inputs}
    inputs = {b.name: rng.integers(0, 3, s) if b.dtype.is_int else rng.standard_normal(s).astype(np.float32) for b, s in shapes.items()}
    got, want = run_on_cpu(program, inputs, tmp_path), evaluate(program, inputs)
    assert all(np.array_equal(got[n], value) for n, value in want.items())


def test_a_derived_kernel_waits_twice_a_tile() -> None:
    program = _derived()
    assert cuda_source(program).count("__syncthreads();") == 2
    inputs = {b.name: np.ones(shape_of(b.shape, program), np.float32) for b in program.inputs}
    assert np.array_equal(emulate(program, inputs)["C"], evaluate(program, inputs)["C"])


def test_threads_wait_where_others_read_what_they_wrote() -> None:
    counts = {name: cuda_source(parse(text)).count("__syncthreads();") for name, text in PROGRAMS.items()}
    assert counts == {"tiled": 2, "softmax": 3, "halves": 0, "idle": 2, "private": 5, "guarded": 0, "steps": 0}


def test_one_thread_runs_what_stands_in_no_thread_loop() -> None:
    source = cuda_source(parse(IDLE))
    assert source.count("((int)threadIdx.x) == 0) && (((int)threadIdx.y) == 0)") == 2
    assert source.count("if (((int)threadIdx.y) == 0)") == 2


def test_blocks_of_an_axis_without_a_loop_do_nothing() -> None:
    text = "size N=2 M=3\nin X f32[N,M]\nout Y f32[N] Z f32[N,M]\nbx i:N\n Y[i] = 0\n for j:M carry Y[i] += X[i,j]\n by j:M Z[i,j] = X[i,j]\n"
    assert cuda_source(parse(text)).count("if (((int)blockIdx.y) == 0)") == 2


def test_temporaries_live_where_those_who_use_them_see_them() -> None:
    text = tvmscript(parse(PRIVATE), cuda=True)
    assert "local" in text
    assert "shared" in text
    assert "__shared__" not in cuda_source(parse(GUARDED))


def test_guards_that_read_memory_move_into_the_kernels() -> None:
    source = cuda_source(parse(GUARDED))
    assert "if (f_ptr[0] > 0)" in source
    changed = "size N=3\nin X f32[N]\nout Y f32[N]\nfor i:N Y[i] = 1\nif Y[0]>0: bx i:N Y[i] = X[i]\n"
    with pytest.raises(BuildError) as caught:
        cuda_source(parse(changed))
    assert "reads Y, which they write" in caught.value.message
