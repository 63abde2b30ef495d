"""Slow programs checked at smaller sizes: the same tiles, valid in every program, and never the last word on a rejection."""

from __future__ import annotations

import pytest

from steptp.ir import parse
from steptp.verify import smaller
from steptp.verify.ladder import verify_step
from steptp.verify.smaller import smaller_sizes
from steptp.verify.verdict import Verdict, VerdictKind

MATMUL = parse("in A f32[N=64,K=64] B[K,M=64]\nout C[N,M]\nfor i j k C[i,j]+=A[i,k]*B[k,j]\n")
TILED = parse("size T=16\nin A f32[N=64,K=64] B[K,M=64]\nout C[N,M]\nwhere N%T==0\nfor io:N//T ii:T j k C[io*T+ii,j]+=A[io*T+ii,k]*B[k,j]\n")


@pytest.fixture
def _slow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(smaller, "SLOW", 1e5)
    monkeypatch.setattr(smaller, "_ENOUGH", 1e4)


def _light(child: str, tiers: tuple[int, ...] = (4, 5)) -> Verdict:
    return verify_step(MATMUL, parse(child), tiers=tiers, light=True)


def _ran(verdict: Verdict) -> list[tuple[int, object]]:
    return [(r.tier, r.evidence.get("sizes")) for r in verdict.reports]


@pytest.mark.usefixtures("_slow")
def test_sizes_are_halved_where_every_program_allows_it() -> None:
    assert smaller_sizes(MATMUL) == {"N": 16, "K": 16, "M": 32}
    found = smaller_sizes(MATMUL, TILED)
    assert found["T"] == 16
    assert found["N"] % 16 == 0
    assert found["N"] * found["K"] * found["M"] <= 1e4
    stuck = parse("in A f32[N=64,K=64] B[K,M=64]\nout C[N,M]\nwhere K>=64\nfor i j k C[i,j]+=A[i,k]*B[k,j]\n")
    assert smaller_sizes(MATMUL, stuck) == {"N": 8, "K": 64, "M": 16}


@pytest.mark.usefixtures("_slow")
def test_programs_that_hold_at_their_sizes_only_have_no_smaller_ones() -> None:
    assert smaller_sizes(parse("in A f32[64,64] B[64,64]\nout C[64,64]\nfor i:64 j:64 k:64 C[i,j]+=A[i,k]*B[k,j]\n")) == {}
    literal = parse("in A f32[N=64,K=64] B[K,M=64]\nout C[N,M]\nfor i:64 j:64 k:64 C[i,j]+=A[i,k]*B[k,j]\n")
    assert smaller_sizes(MATMUL, literal) == {}


def test_quick_programs_run_at_their_own_sizes() -> None:
    assert smaller_sizes(MATMUL) == {}
    assert _ran(_light("in A f32[N=64,K=64] B[K,M=64]\nout C[N,M]\nfor j i k C[i,j]+=A[i,k]*B[k,j]\n", (4,))) == [(4, None)]


@pytest.mark.usefixtures("_slow")
def test_all_regimes_at_smaller_sizes_and_one_at_real_ones() -> None:
    verdict = verify_step(MATMUL, TILED, tiers=(4,), light=True)
    assert verdict.ok
    small, real = verdict.reports
    assert small.evidence["sizes"] == smaller_sizes(MATMUL, MATMUL, TILED)
    assert "at smaller sizes" in small.message
    assert {"ties", "huge", "cancel"} <= set(small.evidence["regimes"])  # type: ignore[call-overload]
    assert real.evidence["regimes"] == ["normal"]


@pytest.mark.usefixtures("_slow")
def test_what_is_wrong_at_real_sizes_only_is_rejected() -> None:
    verdict = _light("in A f32[N=64,K=64] B[K,M=64]\nout C[N,M]\nfor i j k C[i,j]+=select(k<32, A[i,k]*B[k,j], 0.0)\n", (4,))
    assert str(verdict.kind) == "numerically_unsafe"  # only compiled code was looked at
    assert [r.evidence.get("sizes") is not None for r in verdict.reports] == [True, False]


@pytest.mark.usefixtures("_slow")
def test_a_rejection_is_that_of_the_whole_check() -> None:
    text = "in A f32[N=64,K=64] B[K,M=64]\nout C[N,M]\nfor i j k C[i,j]+=A[i,k]*B[k,j]*select(k<8, 1.5, 1.0)\n"
    verdict, whole = _light(text, (4,)), verify_step(MATMUL, parse(text), tiers=(4,))
    assert verdict.kind is whole.kind is VerdictKind.NUMERICALLY_UNSAFE
    assert _ran(verdict) == _ran(whole) == [(4, None)]
    assert verdict.counterexample == whole.counterexample
