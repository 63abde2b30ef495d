"""Dependences as strategies see them: masks, witnesses, and agreement with brute force."""

from __future__ import annotations

from itertools import product

import pytest
from rewrite_support import PROGRAMS, program

from steptp.analysis import is_parallel
from steptp.ir import Loop, eval_index
from steptp.ir.nodes import Path, Program
from steptp.rewrite.context import Context

MORE = {
    "shifted": "size N=6\nin X f32[N]\nout Y f32[N]\nfor i:N Y[i] = X[i]\nfor i:N-2 Y[i+2] = Y[i]*2\n",
    "stride": "size N=4\nin X f32[2*N]\nout Y f32[2*N]\nfor i:N\n Y[2*i] = X[i]\n Y[2*i+1] = X[i]\n",
    "tiles": "size N=8 T0=4\nwhere N%T0==0\nin X f32[N]\nout Y f32[N]\nfor i0:N//T0 i1:T0 Y[i0*T0+i1] = X[i0*T0+i1]\n",
    "fused": "size N=3 M=4\nin X f32[N,M]\nout Y f32[N,M]\nfor f:N*M Y[f//M,f%M] = X[f//M,f%M]\n",
    "folded": "size N=6\nin X f32[N]\nout Y f32[3] Z f32[N]\nfor i:3 Y[i] = 0\nfor i:N carry Y[i//2] += X[i]\nfor i:N Z[i] = X[i]\n",
    "guard": "size N=6\nin X f32[N]\nout Y f32[N]\nfor i:N Y[i] = 0\nfor i:N if i<1: Y[i] = X[i]\nfor i:N j:N if i==j: Y[j] = X[i]\n",
    "reverse": "size N=6\nin X f32[N]\nout Y f32[N]\nfor i:N Y[i] = X[i]\nfor i:N Y[i] = Y[N-1-i]\n",
    "triangle": "size N=4\nin X f32[N,N]\nout Y f32[N,N]\nfor i:N j:N Y[i,j] = X[i,j]\nfor i:N j:i+1 Y[i,j] = Y[j,i]\n",
    "private": "size N=4\nin X f32[N]\nout Y f32[N]\nfor i:N\n tmp t f32[]\n t[] = X[i]\n Y[i] = t[]\n",
}


def _instances(subject: Program, path: Path) -> list[dict[str, int]]:
    """Loop values of every run of the statement at ``path``."""
    ctx = Context(subject)
    found: list[dict[str, int]] = [{}]
    for _, loop in ctx.enclosing_loops(path):
        found = [{**env, loop.var: x} for env in found for x in range(eval_index(loop.extent, {**ctx.env, **env}))]
    return [env for env in found if all(eval_index(g, {**ctx.env, **env}) for g in ctx.guards_around(path))]


def _carried_by_brute_force(subject: Program, loop_path: Path) -> bool:
    """Whether two iterations of the loop (all outer ones equal) touch one element and one writes, resets left out."""
    ctx = Context(subject)
    loop = ctx.loop(loop_path)
    assert isinstance(loop, Loop)
    outer = [o.var for _, o in ctx.enclosing_loops(loop_path)]
    private = {b.name for _, o in ctx.loops_under(loop_path) for b in o.tmps}
    touched: dict[tuple[object, ...], list[tuple[int, bool]]] = {}
    for st in ctx.model.statements:
        if st.is_reset or st.origin[: len(loop_path)] != loop_path:
            continue
        for env in _instances(subject, st.origin):
            values = {**ctx.env, **env}
            for access in st.accesses:
                if access.buffer in private:
                    continue
                where = (tuple(env[v] for v in outer), access.buffer, tuple(eval_index(i, values) for i in access.indices))
                touched.setdefault(where, []).append((env[loop.var], access.is_write))
    return any(a[0] != b[0] and (a[1] or b[1]) for found in touched.values() for a, b in product(found, found))


@pytest.mark.parametrize("name", [*PROGRAMS, *MORE])
def test_carried_agrees_with_brute_force(name: str) -> None:
    subject = program(MORE.get(name, name))
    ctx = Context(subject)
    for path, loop in ctx.loops:
        found = ctx.legality.carried(path)
        assert (found is not None) == _carried_by_brute_force(subject, path), f"{loop.var} at {path}: {found.text if found else 'nothing'}"


@pytest.mark.parametrize("name", [*PROGRAMS, *MORE])
def test_carried_agrees_with_the_exact_analysis(name: str) -> None:
    ctx = Context(program(MORE.get(name, name)))
    for path, _ in ctx.loops:
        assert (ctx.legality.carried(path) is None) == is_parallel(ctx.program, path)[0]


@pytest.mark.parametrize("name", [*PROGRAMS, *MORE])
def test_witnesses_are_real(name: str) -> None:
    ctx = Context(program(MORE.get(name, name)))
    for dep in ctx.legality.deps:
        found = ctx.legality.exists(dep, ())
        if found is None:
            continue
        a, b = dep.source.statement, dep.sink.statement
        for st, point in ((a, found.source), (b, found.sink)):
            if not st.is_reset:
                assert dict(zip(st.vars, point, strict=True)) in _instances(ctx.program, st.origin)
        ends = [
            tuple(eval_index(i, {**ctx.env, **dict(zip(st.vars, point, strict=True))}) for i in access.indices)
            for st, access, point in ((a, dep.source, found.source), (b, dep.sink, found.sink))
        ]
        assert ends[0] == ends[1]
        assert found.source[: dep.level] == found.sink[: dep.level]
        if dep.level < len(dep.masks):
            assert found.source[dep.level] < found.sink[dep.level]
        assert dep.buffer in found.text


def test_a_tile_pair_needs_no_isl() -> None:
    ctx = Context(program(MORE["tiles"]))
    assert ctx.legality.deps == ()


def test_a_collapsed_loop_needs_no_isl() -> None:
    assert Context(program(MORE["fused"])).legality.deps == ()


def test_reductions_are_marked() -> None:
    deps = Context(program("matmul")).legality.deps
    assert [d.reduction for d in deps if not d.source.statement.is_reset] == [True]
