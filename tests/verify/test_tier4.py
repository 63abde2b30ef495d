"""Tier 4: reorderings and other exact rewrites pass; wrong, unsafe and imprecise programs do not."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from typing import cast

import numpy as np
import pytest

from steptp.ir import parse
from steptp.lower import build
from steptp.lower.build import Arguments, Built
from steptp.verify.compiled import guarded_run
from steptp.verify.tier4 import tier4
from steptp.verify.tier4_inputs import TIER4_REGIMES, default_regimes, make_inputs, work
from steptp.verify.verdict import VerdictKind

SOFT = "size N=8 K=96\nin X f32[N,K]\nout Y f32[N,K]\n"
SOFTMAX = SOFT + "tmp m f32[N] s[N]\nfor i:N j:K m[i] max= X[i,j]\nfor i:N j:K s[i] += exp(X[i,j]-m[i])\nfor i:N j:K Y[i,j] = exp(X[i,j]-m[i])/s[i]\n"
ONLINE = SOFT + (
    "par i:N\n  tmp m f32[] s[] p[]\n  m[] = -inf\n  s[] = 0\n  for k:K\n    p[] = m[]\n    m[] = max(m[],X[i,k])\n"
    "    s[] = s[]*select(p[]==m[],1,exp(p[]-m[]))+select(X[i,k]==m[],1,exp(X[i,k]-m[]))\n  for k:K Y[i,k] = exp(X[i,k]-m[])/s[]\n"
)
NO_MAX = SOFT + "tmp s f32[N]\nfor i:N j:K s[i] += exp(X[i,j])\nfor i:N j:K Y[i,j] = exp(X[i,j])/s[i]\n"
VAR = "size N=8 K=256\nin X f32[N,K]\nout V f32[N]\ntmp m f32[N]{more}\nfor i:N j:K m[i] += X[i,j]\n"
TWO_PASS = VAR.format(more="") + "for i:N j:K V[i] += (X[i,j]-m[i]/f32(K))*(X[i,j]-m[i]/f32(K))\n"
ONE_PASS = VAR.format(more=" q[N]") + "for i:N j:K q[i] += X[i,j]*X[i,j]\nfor i:N V[i] = q[i]-m[i]*m[i]/f32(K)\n"
MM = "size N=24 K=256 L=32 T=16\nin A f32[N,K] B[K,L]\nout C f32[N,L]\n"
MATMUL = MM + "for i:N j:L k:K C[i,j] += A[i,k]*B[k,j]\n"
EQUAL = {
    "itself": (MATMUL, MATMUL),
    "reordered": (MATMUL, MM + "par i:N for k:K vec j:L C[i,j] += A[i,k]*B[k,j]\n"),
    "split reduction": (MATMUL, MM + "for i:N j:L\n  tmp r f32[T]\n  for kt:T ko:K//T r[kt] += A[i,ko*T+kt]*B[ko*T+kt,j]\n  for kt:T C[i,j] += r[kt]\n"),
    "backwards": (MATMUL, MM + "for i:N j:L k:K C[i,j] += A[i,K-1-k]*B[K-1-k,j]\n"),
    "softmax": (SOFTMAX, SOFTMAX),
    "online softmax": (SOFTMAX, ONLINE),
    "reciprocal": (SOFTMAX, SOFTMAX.replace("/s[i]", "*(1/s[i])")),
}
WRONG = {
    "missing term": (MATMUL, MM + "for i:N j:L k:K-1 C[i,j] += A[i,k]*B[k,j]\n", VerdictKind.NOT_EQUAL),
    "slightly scaled": (MATMUL, MM + "for i:N j:L k:K C[i,j] += A[i,k]*B[k,j]*1.000001\n", VerdictKind.NOT_EQUAL),
    "zeros": (MATMUL, MM + "for i:N j:L C[i,j] = 0\n", VerdictKind.NOT_EQUAL),
    "copied input": (MATMUL, MM + "for i:N j:L C[i,j] = B[i,j]\n", VerdictKind.NOT_EQUAL),
    "not a number": (MATMUL, MM + "for i:N j:L C[i,j] = nan\n", VerdictKind.NOT_EQUAL),
    "unwritten row": (MATMUL, MM + "for i:N-1 j:L k:K C[i,j] += A[i,k]*B[k,j]\n", VerdictKind.NOT_EQUAL),
    "half inputs": (MATMUL, MM + "for i:N j:L k:K C[i,j] += f32(f16(A[i,k]))*B[k,j]\n", VerdictKind.NUMERICALLY_UNSAFE),
    "half sum": (MATMUL, MM + "tmp D f16[N,L]\nfor i:N j:L k:K D[i,j] += f16(A[i,k]*B[k,j])\nfor i:N j:L C[i,j] = f32(D[i,j])\n", VerdictKind.NUMERICALLY_UNSAFE),
    "softmax without its max": (SOFTMAX, NO_MAX, VerdictKind.NUMERICALLY_UNSAFE),
    "variance by squares": (TWO_PASS, ONE_PASS, VerdictKind.NUMERICALLY_UNSAFE),
}  # fmt: skip


@pytest.mark.parametrize("name", EQUAL)
def test_equal_programs_pass(name: str) -> None:
    root, child = (parse(t) for t in EQUAL[name])
    report = tier4(root, root, child, seed=3, equal_over_reals=True)
    assert report.kind is VerdictKind.OK, report.message
    assert report.evidence["regimes"] == list(default_regimes(root, child))
    assert max(report.evidence["worst_ratio"].values()) < 1  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", WRONG)
def test_wrong_programs_fail(name: str) -> None:
    root, child, kind = parse(WRONG[name][0]), parse(WRONG[name][1]), WRONG[name][2]
    report = tier4(root, root, child, seed=3)
    assert report.kind is kind, report.message
    assert pickle.loads(pickle.dumps(report)) == report


def test_counterexample_rebuilds_the_failure() -> None:
    root, child = parse(TWO_PASS), parse(ONE_PASS)
    found = tier4(root, root, child, seed=3).counterexample
    assert found is not None
    inputs = make_inputs(root, found.regime, found.seed)
    assert repr(build(child).run(inputs)[found.output][found.index].item()) == found.actual
    exact = inputs["X"].astype(np.float64)
    assert float(found.expected) == pytest.approx(float(exact[found.index[0]].var() * 256), rel=1e-9)


def test_errors_do_not_add_up_along_a_trajectory() -> None:
    root = parse(MATMUL)
    drifted = parse(MM + "for i:N j:L k:K C[i,j] += A[i,k]*B[k,j]*1.0001\n")
    report = tier4(root, drifted, drifted, seed=3)
    assert report.kind is not VerdictKind.OK
    assert report.evidence["parent_fails_too"] is True


def test_integer_and_bool_outputs_must_match() -> None:
    head = "size N=6 K=40\nin X f32[N,K]\nout A i64[N] P bool[N]\ntmp M f32[N]\n"
    body = "for i:N\n  M[i] = -inf\n  A[i] = 0\n  for k:K if X[i,k]>M[i]:\n    A[i] = k\n    M[i] = X[i,k]\nfor i:N P[i] = M[i]>1\n"
    root = parse(head + body)
    assert tier4(root, root, parse(head + body.replace("for i:N\n", "par i:N\n", 1)), seed=1).kind is VerdictKind.OK
    last = tier4(root, root, parse(head + body.replace("X[i,k]>M[i]", "X[i,k]>=M[i]")), seed=1)
    assert last.kind is VerdictKind.NOT_EQUAL  # ties
    assert last.counterexample is not None
    assert last.counterexample.output == "A"


def test_masked_rows_keep_their_kind() -> None:
    root = parse(SOFTMAX.replace("= exp(X[i,j]-m[i])/s[i]", "= select(X[i,j]==-inf,0,exp(X[i,j]-m[i])/s[i])"))
    report = tier4(root, root, parse(SOFTMAX), seed=3, regimes=("masked",))  # a row of -inf is 0 in the root and NaN here
    assert report.kind is VerdictKind.NUMERICALLY_UNSAFE
    hidden = [tier4(parse(SOFTMAX), root, root, seed=3, regimes=("masked",), equal_over_reals=equal).kind for equal in (False, True)]
    assert hidden == [VerdictKind.NUMERICALLY_UNSAFE, VerdictKind.OK]  # NaN is a value, but equality over the reals does not speak of it


def test_infinite_results_stay_infinite() -> None:
    head = "size N=64\nin X f32[N]\nout Y f32[N]\n"
    root, capped = parse(head + "for i:N Y[i] = log(X[i]*0)\n"), parse(head + "for i:N Y[i] = max(log(X[i]*0),-3e38)\n")
    assert tier4(root, root, root).kind is VerdictKind.OK
    assert tier4(root, root, capped).kind is VerdictKind.NUMERICALLY_UNSAFE


class _Wild:
    """A compiled program that writes next to its output, or into an input."""

    def __init__(self, built: Built, target: int, offset: int) -> None:
        self.built, self.target, self.offset = built, target, offset
        self.program, self.interface, self.configure = built.program, built.interface, built.configure

    def prepare(self, arrays: Sequence[np.ndarray], poison: int) -> Arguments:
        self.address = arrays[self.target].ctypes.data
        return self.built.prepare(arrays, poison)

    def call(self, arguments: Arguments) -> None:
        import ctypes

        self.built.call(arguments)
        ctypes.memset(self.address + self.offset, 0x11, 4)


@pytest.mark.parametrize(("target", "offset", "message"), [(2, -4, "wrote outside C"), (2, 24 * 32 * 4, "wrote outside C"), (0, 8, "changed input A")])
def test_memory_damage_is_seen(target: int, offset: int, message: str) -> None:
    built = build(parse(MATMUL))
    wild = cast("Built", _Wild(built, target, offset))
    inputs = make_inputs(built.program, "normal", 0)
    assert guarded_run(built, inputs).damage == ""
    assert guarded_run(wild, inputs).damage == message


def test_regimes_shrink_with_the_work() -> None:
    program = parse(MATMUL)
    assert work(program) == 24 * 32 * 256
    assert {"normal", "wide", "cancel", "huge"} <= default_regimes(program).keys() < set(TIER4_REGIMES)
    assert len(default_regimes(parse(MATMUL.replace("N=24", "N=24000")))) < len(default_regimes(program))


def test_inputs_are_reproducible_and_distinct() -> None:
    program = parse(MATMUL)
    for regime in TIER4_REGIMES:
        first, again = make_inputs(program, regime, 5), make_inputs(program, regime, 5)
        assert all(np.array_equal(first[k], again[k], equal_nan=True) for k in first)
        assert not np.array_equal(first["A"], make_inputs(program, regime, 6)["A"], equal_nan=True)
    wide = make_inputs(program, "wide", 0)
    assert set(np.unique(wide["B"])) == {-1, 0, 1}
    assert np.all(np.abs(wide["A"]) % 2 == 1)
