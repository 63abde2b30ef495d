"""The heuristic policy: deterministic, legal, and pointed at what the roofline says."""

from __future__ import annotations

from dataclasses import replace

import pytest
from policy_states import sites, state_of

from steptp.errors import UsageError
from steptp.ir import parse
from steptp.policy import policy
from steptp.policy.roofline import predicted_cycles
from steptp.rewrite import engine
from steptp.rewrite.base import Applied

BIG = "in A f32[N=256,K=256] B[K,L=256]\nout C[N,L]\nfor i j k C[i,j]+=A[i,k]*B[k,j]\n"
GOOD = BIG.replace("for i j k", "for i k j")


def test_a_matmul_is_first_made_to_run_along_rows() -> None:
    state = state_of(BIG)
    first = sites(state, 4, "heuristic")
    applied = engine.apply(state.program, first[0])
    assert isinstance(applied, Applied)
    assert predicted_cycles(applied.program, state.host, 2) < predicted_cycles(state.program, state.host, 2) / 3
    assert first[0].startswith("loop_reorder")
    assert sites(state, 4, "heuristic") == first


def test_the_model_knows_rows_threads_and_vectors() -> None:
    host = state_of(BIG).host
    naive, rows = (predicted_cycles(parse(t), host, 2) for t in (BIG, GOOD))
    threads = predicted_cycles(parse(GOOD.replace("for i k j", "par i for k j")), host, 2)
    alone = predicted_cycles(parse(GOOD.replace("for i k j", "par i for k j")), host, 1)
    assert naive > 3 * rows
    assert rows > 1.5 * threads
    assert alone == pytest.approx(rows)


def test_threads_are_proposed_where_they_pay() -> None:
    assert any(s.startswith("loop_parallelization@0") for s in sites(state_of(GOOD, threads=2), 6, "heuristic"))
    small = GOOD.replace("256", "8")
    assert not sites(state_of(small), 1, "heuristic")[0].startswith("loop_parallelization")


def test_producers_are_fused() -> None:
    chain = "in X f32[N=512,M=512]\nout Y[N,M]\ntmp T[N,M]\nfor i j T[i,j]=X[i,j]*2\nfor i j Y[i,j]=max(T[i,j],0)\n"
    fusing = {"compute_inline", "operator_fusion", "epilogue_fusion"}
    assert fusing & {s.partition("@")[0] for s in sites(state_of(chain), 4, "heuristic")}


def test_what_was_tried_is_not_proposed_again() -> None:
    state = state_of(BIG)
    first = sites(state, 4, "heuristic")
    again = sites(replace(state, tried=frozenset(first)), 4, "heuristic")
    assert len(again) == 4
    assert not set(first) & set(again)


def test_unknown_policies() -> None:
    with pytest.raises(UsageError, match="no policy called"):
        policy("oracle")
