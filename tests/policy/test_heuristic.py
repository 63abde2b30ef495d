"""The heuristic policy: deterministic, legal, plain where the next step is plain, and pointed at the end of a whole way."""

from __future__ import annotations

import time
from dataclasses import replace

from policy_states import sites, state_of

from steptp.policy import policy
from steptp.policy.roofline import predicted_cycles
from steptp.policy.tuning import way
from steptp.rewrite import engine
from steptp.rewrite.base import Applied

BIG = "in A f32[N=256,K=256] B[K,L=256]\nout C[N,L]\nfor i j k C[i,j]+=A[i,k]*B[k,j]\n"
ROWS = BIG.replace("for i j k", "for i k j")


def test_a_matmul_is_first_made_to_run_along_rows() -> None:
    state = state_of(BIG)
    first = sites(state, 4, "heuristic")
    applied = engine.apply(state.program, first[0])
    assert isinstance(applied, Applied)
    assert predicted_cycles(applied.program, state.host, 2) < predicted_cycles(state.program, state.host, 2) / 3
    assert first[0] == "loop_reorder@0.0:to=2"
    assert sites(state, 4, "heuristic") == first


def test_the_first_answers_followed_lead_to_the_end_of_the_best_way() -> None:
    state = state_of(BIG)
    here, taken = state, 0
    while (answers := sites(here, 1, "heuristic")) and answers[0] in {s.site.id for s in way(here.program, here.host, 2).steps}:
        outcome = engine.apply(here.program, answers[0])
        assert isinstance(outcome, Applied)
        here, taken = replace(state, program=outcome.program), taken + 1
    assert taken == len(way(state.program, state.host, 2).steps)
    assert predicted_cycles(here.program, state.host, 2) == predicted_cycles(way(state.program, state.host, 2).end, state.host, 2)


def test_other_tiles_are_offered_where_tiles_are_chosen() -> None:
    state = state_of(ROWS)
    first = sites(state, 4, "heuristic")
    assert len(first) > 1
    assert {s.partition("@")[0] for s in first} == {"loop_split"}
    assert len(sites(replace(state, tried=frozenset(first[:1])), 4, "heuristic")) >= len(first) - 1


def test_one_tile_only_when_one_is_wanted() -> None:
    assert len(policy("heuristic", choices=1).propose(state_of(ROWS), 4)) == 1


def test_threads_are_proposed_where_they_pay() -> None:
    tiled = way(state_of(BIG).program, state_of(BIG).host, 2)
    assert [s.site.strategy for s in tiled.steps].count("loop_parallelization") == 1
    assert tiled.steps[-1].site.id == "loop_parallelization@0"
    small = state_of(BIG.replace("256", "8"))
    assert not any(s.site.strategy == "loop_parallelization" for s in way(small.program, small.host, 2).steps)
    assert not any(s.site.strategy == "loop_parallelization" for s in way(small.program, small.host, 1).steps)


def test_what_was_tried_is_not_proposed_again() -> None:
    state = state_of(BIG)
    first = sites(state, 4, "heuristic")
    again = sites(replace(state, tried=frozenset(first)), 4, "heuristic")
    assert again  # single steps that the model finds faster
    assert not set(first) & set(again)


def test_a_finished_program_gets_only_steps_that_the_model_finds_faster() -> None:
    state = state_of(BIG)
    end = replace(state, program=way(state.program, state.host, 2).end)
    now = predicted_cycles(end.program, end.host, 2)
    for site in sites(end, 8, "heuristic"):
        outcome = engine.apply(end.program, site)
        assert isinstance(outcome, Applied)
        assert predicted_cycles(outcome.program, end.host, 2) < 0.9 * now


def test_a_spent_deadline_leaves_the_first_way() -> None:
    state = replace(state_of(ROWS), deadline=time.monotonic() - 1.0)
    assert len(sites(state, 4, "heuristic")) == 1
