"""Random sequences of strategies: after each step everything that must hold holds, and the whole still means the root."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from rewrite_support import PROGRAMS, all_facts_ok, assert_equal_meaning, program
from step_sequences import REGRESSIONS, Run, follow, replay, shrunk, store

from steptp.errors import LeirError
from steptp.frontend import zoo
from steptp.ir import Program, problems, rebind
from steptp.ir.sizes import free_size_names
from steptp.rewrite import engine, registry
from steptp.rewrite.base import Applied, Exactness, Outcome, Site, Strategy
from steptp.rewrite.context import Context

MORE = {
    "shared": "size N=4 K=4\nin A f32[N+1,K]\nout C f32[N+1] D f32[N,K]\nfor i:N+1 C[i] = 1\nfor i:N k:K\n carry C[i] += A[i,k]\n D[i,k] = C[i+1]\n",
    "skewed": "size N=6 M=6\nin X f32[N,M]\nout S f32[N,M]\nfor i:N j:M S[i,j] = X[i,j]\nfor i:N-1 j:M-1 S[i+1,j] = S[i,j+1]*X[i,j]\n",
    "conv": "size C=2 O=3 H=4 K=3\nin X f32[C,H+K-1] F f32[O,C,K]\nout Y f32[O,H]\nfor o:O h:H c:C r:K Y[o,h] += X[c,h+r]*F[o,c,r]\n",
    "scatter": "size N=8 B=4\nin T i32[N] 0..B X f32[N]\nout H f32[B]\nfor b:B H[b] = 0\nfor i:N carry H[i64(T[i])] += X[i]\n",
    "outer_reset": "size R=3 N=4 M=4\nin A f32[R,N,M]\nout C f32[N,M] D f32[R,N,M]\nfor r:R i:N j:M\n C[i,j] += A[r,i,j]\n D[r,i,j] = C[i,j]*2\n",
}
EVERY = {**PROGRAMS, **MORE}
_ORDER = (Exactness.BITWISE, Exactness.REASSOCIATED, Exactness.ALGEBRAIC)


CHOICES = st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 10**6)), min_size=1, max_size=12)
LEADS: dict[str, tuple[str, tuple[str, ...]]] = {
    "padding": ("matmul", ("loop_split@0:factor=2,tail=guard",)),
    "loop_skewing": ("double_cumsum", ("operator_fusion@0:depth=2",)),
    "dead_code_elimination": ("gemm_bias_relu", ("compute_inline",)),
    "operator_fission": ("softmax", ("operator_fusion",)),
    "set_storage_scope": ("matmul", ("cache_write@0:buffer=Y", "loop_binding@0:axis=bx")),
}
"""Strategies whose sites come up after another step: a workload, and the sites or strategies that lead there."""


SMALL = {f"small/{name}": text for name, text in EVERY.items()}


def _root(name: str) -> Program:
    return program(SMALL[name]) if name in SMALL else zoo.get(name, "tiny").program


def _judge(run: Run) -> None:
    """Fail with the smallest form of what went wrong, stored to be replayed."""
    if run.wrong is not None:
        smallest = shrunk(run.wrong)
        pytest.fail(f"{smallest}stored in {store(smallest)}")


@settings(max_examples=12, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
@given(name=st.sampled_from((*sorted(SMALL), *zoo.names("tiny"))), choices=CHOICES, compiled=st.integers(0, 7))
def test_sequences(name: str, choices: list[tuple[int, int]], compiled: int) -> None:
    """1 to 12 steps over all strategies: each valid, verified, explained, undone where it says so and lowered; the end still means the root."""
    _judge(follow(_root(name), choices, compiled=compiled == 0))


@pytest.mark.slow
@pytest.mark.parametrize("strategy", registry.names())
def test_sequences_from_every_strategy(strategy: str) -> None:
    """Each strategy once from a workload that it has a site in, then up to 11 random steps over all strategies."""
    lead, before = LEADS.get(strategy, ("", ()))
    offered = [lead] if lead else [n for n in zoo.names("tiny") if len(engine.sites(_root(n), [strategy], limit=1))]
    taken = 0

    @settings(max_examples=3, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
    @given(name=st.sampled_from(offered), choices=CHOICES.filter(lambda c: len(c) < 12), compiled=st.integers(0, 4))
    def sequences(name: str, choices: list[tuple[int, int]], compiled: int) -> None:
        nonlocal taken
        run = follow(_root(name), choices, first=(*before, strategy), compiled=compiled == 0)
        _judge(run)
        taken += strategy in [s.strategy for s in run.sites]

    assert offered, f"no workload offers {strategy} a site"
    sequences()
    assert taken or _may_be_unsafe(strategy), f"{strategy} was never taken"


def _may_be_unsafe(strategy: str) -> bool:
    """Strategies that a sequence need not go on from: their steps may fail in floating point."""
    return registry.get(strategy).classes == (Exactness.ALGEBRAIC,)


@pytest.mark.parametrize("file", sorted(REGRESSIONS.glob("*.json")), ids=lambda f: f.stem)
def test_regressions(file: Path) -> None:
    """What once went wrong: the steps pass every check now, or are refused with a reason."""
    found = json.loads(file.read_text())
    wrong = replay(found["root"], found["sites"])
    assert wrong is None, str(wrong)


def test_a_failure_is_shrunk_stored_and_replayed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A strategy that drops a statement is found, whatever was done before it."""
    strategy = registry.get("loop_unrolling")
    honest = type(strategy).apply

    def wrong_apply(self: Strategy, ctx: Context, site: Site) -> Outcome:
        outcome = honest(self, ctx, site)
        if isinstance(outcome, Applied) and len(outcome.program.body) > 1:
            child = outcome.program.with_(body=(*outcome.program.body[1:-1], outcome.program.body[-1]))
            return replace(outcome, program=child, instances=None, inverse=())
        return outcome

    root = program("softmax")
    first = ("loop_reorder@0:to=1", "loop_split@1:factor=2,tail=guard")
    monkeypatch.setattr(type(strategy), "apply", wrong_apply)
    run = follow(root, [], first=(*first, "loop_unrolling@2.0"))
    assert run.wrong is not None
    assert len(run.wrong.sites) == 3
    smallest = shrunk(run.wrong)
    assert smallest.sites == ("loop_unrolling@2.0",)
    file = store(smallest, tmp_path)
    stored = json.loads(file.read_text())
    assert file.name == "found_loop_unrolling.json"
    assert replay(stored["root"], stored["sites"]) is not None
    monkeypatch.undo()
    assert replay(stored["root"], stored["sites"]) is None


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
