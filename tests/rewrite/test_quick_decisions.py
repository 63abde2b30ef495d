"""What listing sites decides without building a program, against the program built."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from steptp.frontend import zoo
from steptp.ir import LoopKind, Program
from steptp.rewrite import engine
from steptp.rewrite.base import Applied, NotApplicable, Site
from steptp.rewrite.context import Context
from steptp.rewrite.moving import run_count
from steptp.rewrite.strategies import compute_at, loop_binding, operator_fission, reverse_compute_at

NAMES = ("softmax", "gemm_bias_relu", "layer_norm", "conv2d_bias_relu", "kl_div_loss", "double_cumsum")


def _programs() -> Iterator[Program]:
    """Some workloads, and each with the first two neighbours fused (bodies of several statements) and a loop split."""
    for name in NAMES:
        if name not in zoo.names():
            continue
        program = zoo.get(name, "tiny").program
        yield program
        for strategy in ("operator_fusion", "loop_split"):
            for site in engine.sites(program, [strategy]).sites[:2]:
                outcome = engine.apply(program, site)
                if isinstance(outcome, Applied):
                    yield outcome.program


PROGRAMS = tuple(_programs())


def test_moves_of_consumers() -> None:
    seen = {True: 0, False: 0}
    for ctx in map(Context, PROGRAMS):
        for path, _ in ctx.loops:
            for target in reverse_compute_at.moves(ctx, path):
                tie = reverse_compute_at._tie(ctx, path, target)
                quick = None if isinstance(tie, NotApplicable) else reverse_compute_at._decided(ctx, target, tie)
                if quick is None:
                    continue
                assert not isinstance(tie, NotApplicable)
                move = reverse_compute_at._moved(ctx, tie.nest, target, tie.buffer, tie.spans)
                if quick:
                    assert isinstance(move, reverse_compute_at.Move), (path, target)
                    problem = reverse_compute_at._dependence_problem(ctx, tie.nest, target, move.child, move.instances)
                    assert problem is None, (path, target, problem)
                else:
                    assert isinstance(move, NotApplicable), (path, target)
                seen[quick] += 1
    assert min(seen.values()) >= 3


def test_runs_of_moved_producers() -> None:
    seen = 0
    for ctx in map(Context, PROGRAMS):
        for path, _ in ctx.loops:
            producer = compute_at._producer(ctx, path)
            if isinstance(producer, NotApplicable):
                continue
            for target in compute_at._targets(ctx, producer):
                plan = compute_at._plan(ctx, producer, target, "region")
                if isinstance(plan, compute_at._Plan):
                    child, store, _ = plan.built
                    assert compute_at._runs(plan) == run_count(child, store)
                    seen += 1
    assert seen >= 5


def test_cuts(monkeypatch: pytest.MonkeyPatch) -> None:
    quick: dict[tuple[int, Site], bool | None] = {}
    for n, program in enumerate(PROGRAMS):
        ctx = Context(program)
        for path, loop in ctx.loops:
            for at in range(1, len(loop.body)):
                for depth in range(1, len(path) + 1):
                    if not isinstance(operator_fission._chain(ctx, path, depth), NotApplicable):
                        quick[n, Site.of("operator_fission", path, at=at, depth=depth)] = operator_fission._order_kept(ctx, path, at, depth)
    monkeypatch.setattr(operator_fission, "_order_kept", lambda *_: None)  # compare the programs
    for (n, site), kept in quick.items():
        outcome = operator_fission.STRATEGY.apply(Context(PROGRAMS[n]), site)
        if kept is not None and not (isinstance(outcome, NotApplicable) and outcome.code in ("too-big", "extent-varies")):
            assert isinstance(outcome, Applied) is kept, (site.id, outcome)
    assert {True, False} & set(quick.values())


def test_loops_that_bind_plainly() -> None:
    seen = 0
    for ctx in map(Context, PROGRAMS):
        for path, loop in ctx.loops:
            for axis in (LoopKind.BLOCK_X, LoopKind.THREAD_X):
                if loop_binding._loop_problem(ctx, path, loop) is None and loop_binding._plainly_launched(ctx, path, loop, axis):
                    assert isinstance(loop_binding._bind(ctx, path, loop, axis), Program), (path, axis)
                    seen += 1
    assert seen >= 20
