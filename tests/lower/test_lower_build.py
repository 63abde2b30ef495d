"""Building, calling, options, caching, artefacts and determinism."""

from __future__ import annotations

import pickle
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from gpu_texts import tiled

from steptp.errors import StepTPError
from steptp.ir import parse
from steptp.lower import BuildError, BuildOptions, assembly, build, cuda_source, export_library, llvm_ir, structural_hash, tvmscript
from steptp.lower.build import aligned

ADD = "size N=40\nin X f32[N] I i32[N] 0..7\nout Y f32[N]\nvec i:N Y[i] = X[i]+f32(I[i])\n"
TILED = tiled("N=64 K=64 L=64 T=16")


def test_equal_text_gives_equal_tir_in_two_processes() -> None:
    code = f"from steptp.ir import parse\nfrom steptp.lower import structural_hash\nprint(structural_hash(parse({ADD!r})), structural_hash(parse({TILED!r})))"
    there = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert there == [structural_hash(parse(ADD)), structural_hash(parse(TILED))]
    assert there[0] != there[1]


def test_builds_are_cached_by_program_and_options() -> None:
    assert build(parse(ADD)) is build(parse(ADD))
    assert build(parse(ADD)) is not build(parse(ADD), BuildOptions(fma=False))


def test_arguments_are_checked() -> None:
    built = build(parse(ADD))
    good = {"X": np.ones(40, np.float32), "I": np.ones(40, np.int32)}
    assert np.array_equal(built.run(good)["Y"], np.full(40, 2, np.float32))
    for bad, code in (
        ({"X": good["X"]}, "call-input"),
        ({**good, "X": np.ones(41, np.float32)}, "call-shape"),
        ({**good, "I": np.full(40, 7, np.int32)}, "call-range"),
    ):
        with pytest.raises(BuildError) as caught:
            built.run(bad)
        assert caught.value.code == code
    x, i, y = aligned((40,), np.float32), aligned((40,), np.int32), aligned((41,), np.float32)
    for arrays, code in (([x, i, y[1:]], "call-layout"), ([x, x, y[:40]], "call-dtype"), ([x, i], "call-shape")):
        with pytest.raises(BuildError) as caught:
            built.prepare(arrays)
        assert caught.value.code == code


def test_options_are_checked_and_errors_survive_pickling() -> None:
    for bad in ({"opt_level": 4}, {"math": "fast"}, {"threads": 0}):
        with pytest.raises(StepTPError):
            BuildOptions(**bad)  # type: ignore[arg-type]
    error = pickle.loads(pickle.dumps(BuildError("build-failed", "why", hint="what")))
    assert (error.code, error.message, error.hint) == ("build-failed", "why", "what")


def test_large_temporaries_and_many_calls() -> None:
    program = parse("size N=8 M=300000\nin X f32[N]\nout Y f32[N]\npar i:N\n  tmp T f32[M]\n  for j:M T[j] = X[i]*f32(j)\n  Y[i] = T[M-1]-T[M-2]\n")
    x = np.arange(8, dtype=np.float32)
    built = build(program)
    for _ in range(20):  # freed on every call, or this takes 190 MB
        assert np.array_equal(built.run({"X": x})["Y"], x)


def test_thread_counts_agree() -> None:
    program = parse("size N=33 M=50\nin X f32[N,M]\nout Y f32[N]\npar i:N for j:M Y[i] += X[i,j]\n")
    x = np.random.default_rng(1).standard_normal((33, 50)).astype(np.float32)
    results = [build(program, BuildOptions(threads=t)).run({"X": x})["Y"] for t in (1, 2, 3)]
    assert np.array_equal(results[0], results[1])
    assert np.array_equal(results[0], results[2])


def test_text_artefacts() -> None:
    program = parse(ADD)
    assert "T.vectorized" in tvmscript(program)
    assert "define" in llvm_ir(program)
    assert ".text" in assembly(program)


def test_shared_library_checks_its_arguments(tmp_path: Path) -> None:
    import tvm

    path = export_library(parse(ADD.replace("f32", "bf16", 2).replace("f32(I", "bf16(I")), tmp_path / "add.so")
    main = tvm.runtime.load_module(str(path))["main"]
    x, i, y = aligned((40,), np.uint16), aligned((40,), np.int32), aligned((40,), np.uint16)
    x[:], i[:] = 0x3F80, 2  # 1.0
    main(*(tvm.runtime.from_dlpack(a) for a in (x, i, y)))
    assert set(y.tolist()) == {0x4040}  # 3.0
    with pytest.raises(ValueError):
        main(*(tvm.runtime.from_dlpack(a) for a in (x, i, aligned((20,), np.uint16))))


def test_cuda_source_has_one_kernel_with_barriers() -> None:
    source = cuda_source(parse(TILED))
    assert source.count('extern "C" __global__ void __launch_bounds__(256) main_kernel(') == 2  # declaration and definition
    assert source.count("__syncthreads();") == 2  # between filling the tiles and using them, and before the next are filled
    assert "__shared__" in source
    assert "blockIdx.y" in source


def test_cuda_predicates_short_loops_and_serial_parts() -> None:
    source = cuda_source(
        parse(
            "size N=6 M=16 S=3\nin X f32[N,M]\nout Y f32[N,M] Z f32[N] W f32[]\nbx i:N\n  tx j:M Y[i,j] = X[i,j]\n  tx j:S if j<1: Z[i] = -inf\nfor i:N W[] += X[i,0]\n"
        )
    )
    assert "if (((int)threadIdx.x) < 3)" in source
    assert source.count("main_kernel_") >= 2


def test_cuda_refuses_divergent_barriers_and_unbound_programs() -> None:
    with pytest.raises(BuildError) as caught:
        cuda_source(parse(ADD))
    assert caught.value.code == "build-unbound"
    text = "size N=4 M=16 S=8\nin X f32[N,M]\nout Y f32[N,M]\nbx i:N\n  tmp B f32[S,M] shared\n  tx j:M Y[i,j] = 0\n  ty k:S\n    if k<2:\n      tx j:M B[k,j] = X[i,j]\n"
    with pytest.raises(BuildError) as caught:
        cuda_source(parse(text + "      tx j:M Y[i,j] = B[k,M-1-j]\n"))
    assert "divergent" in caught.value.message
