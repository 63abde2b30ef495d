"""The random policy: sites that apply, seeded by the state, each once."""

from __future__ import annotations

from dataclasses import replace

from policy_states import sites, state_of

from steptp.rewrite import engine
from steptp.rewrite.base import Applied

MATMUL = "in A f32[N=24,K=16] B[K,L=20]\nout C[N,L]\nfor i j k C[i,j]+=A[i,k]*B[k,j]\n"


def test_sites_apply_and_follow_the_seed() -> None:
    state = state_of(MATMUL)
    found = sites(state, 6, "random")
    assert len(set(found)) == 6
    assert all(isinstance(engine.apply(state.program, s), Applied) for s in found)
    assert len({s.partition("@")[0] for s in found}) >= 5
    assert sites(state, 6, "random") == found
    assert sites(state_of(MATMUL, seed=1), 6, "random") != found


def test_no_site_is_proposed_twice_and_none_is_left_in_the_end() -> None:
    state, seen = state_of("in X f32[N=6]\nout Y[N]\nfor i Y[i]=X[i]\n"), list[str]()
    while found := sites(replace(state, tried=frozenset(seen)), 5, "random"):
        assert not set(found) & set(seen)
        seen += found
    assert len(seen) > 5
    assert not any(s.startswith("loop_binding") for s in seen)
