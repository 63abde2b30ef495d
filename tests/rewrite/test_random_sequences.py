"""Random sequences of strategies: after each step everything that must hold holds, and the whole still means the root."""

from __future__ import annotations

import random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from rewrite_support import PROGRAMS, all_facts_ok, assert_equal_meaning, check_step, program

from steptp.errors import LeirError
from steptp.ir import problems, program_hash, rebind
from steptp.ir.sizes import free_size_names
from steptp.rewrite import engine, registry
from steptp.rewrite.base import Applied, Exactness
from steptp.rewrite.trace import Trace, replay

MORE = {
    "shared": "size N=4 K=4\nin A f32[N+1,K]\nout C f32[N+1] D f32[N,K]\nfor i:N+1 C[i] = 1\nfor i:N k:K\n carry C[i] += A[i,k]\n D[i,k] = C[i+1]\n",
    "skewed": "size N=6 M=6\nin X f32[N,M]\nout S f32[N,M]\nfor i:N j:M S[i,j] = X[i,j]\nfor i:N-1 j:M-1 S[i+1,j] = S[i,j+1]*X[i,j]\n",
    "conv": "size C=2 O=3 H=4 K=3\nin X f32[C,H+K-1] F f32[O,C,K]\nout Y f32[O,H]\nfor o:O h:H c:C r:K Y[o,h] += X[c,h+r]*F[o,c,r]\n",
    "scatter": "size N=8 B=4\nin T i32[N] 0..B X f32[N]\nout H f32[B]\nfor b:B H[b] = 0\nfor i:N carry H[i64(T[i])] += X[i]\n",
    "outer_reset": "size R=3 N=4 M=4\nin A f32[R,N,M]\nout C f32[N,M] D f32[R,N,M]\nfor r:R i:N j:M\n C[i,j] += A[r,i,j]\n D[r,i,j] = C[i,j]*2\n",
}
EVERY = {**PROGRAMS, **MORE}
_ORDER = (Exactness.BITWISE, Exactness.REASSOCIATED, Exactness.ALGEBRAIC)


@settings(max_examples=25, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
@given(name=st.sampled_from(sorted(EVERY)), seed=st.integers(0, 10**6), length=st.integers(1, 6))
def test_sequences(name: str, seed: int, length: int) -> None:
    rng = random.Random(f"{name}/{seed}")
    root = current = program(EVERY[name])
    trace, weakest = Trace.start(root), Exactness.BITWISE
    for _ in range(length):
        chosen = rng.choice(registry.names())
        listed = engine.sites(current, [chosen], limit=40).sites
        if not listed:
            continue
        site = rng.choice(listed)
        step = engine.apply(current, site)
        assert isinstance(step, Applied), f"{site.id}: {step}"
        check_step(current, site, step, seed=seed)
        weakest = max(weakest, step.exactness, key=_ORDER.index)
        current = step.program
        trace = trace.then(site, current)
    assert_equal_meaning(root, current, weakest, seed)
    assert program_hash(replay(Trace.from_json(trace.to_json())).last) == program_hash(current)


@settings(max_examples=25, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
@given(name=st.sampled_from(sorted(EVERY)), seed=st.integers(0, 10**6), length=st.integers(1, 4))
def test_schedules_hold_at_other_sizes(name: str, seed: int, length: int) -> None:
    """A schedule found at the present sizes means the same at every re-binding that its header allows."""
    rng = random.Random(f"{name}/{seed}/sizes")
    root = current = program(EVERY[name])
    weakest = Exactness.BITWISE
    for _ in range(length):
        listed = engine.sites(current, [n for n in registry.names() if n.startswith("loop_")], limit=60).sites
        step = engine.applied_or_raise(current, rng.choice(listed))
        weakest = max(weakest, step.exactness, key=_ORDER.index)
        current = step.program
    compared = 0
    for _ in range(40):
        values = {size: rng.randint(1, 4 if size.startswith("T") else 9) for size in free_size_names(current)}
        try:
            child, parent = rebind(current, values), rebind(root, {k: v for k, v in values.items() if k in free_size_names(root)})
        except LeirError:
            continue  # the header forbids these sizes
        if problems(parent):
            continue  # the root itself has no meaning there
        assert not problems(child)
        assert_equal_meaning(parent, child, weakest, seed)
        compared += 1
        if compared == 3:
            break


@pytest.mark.parametrize("name", sorted(EVERY))
def test_every_listed_site_of_every_strategy_applies(name: str) -> None:
    subject = program(EVERY[name])
    for site in engine.sites(subject, limit=None):
        step = engine.apply(subject, site)
        assert isinstance(step, Applied), f"{site.id}: {step}"
        assert all_facts_ok(step)
