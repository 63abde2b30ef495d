"""What tier 2 accepts of small changes computes the same."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest
from instance_maps import instance_entries

from steptp.errors import LeirError
from steptp.interp import evaluate
from steptp.ir import Const, DType, Expr, If, Loop, Op, Program, Store, Var, shape_of
from steptp.ir.checks import problems
from steptp.ir.parser import parse
from steptp.ir.printer import print_program
from steptp.ir.walk import map_expr, map_stmt_exprs, replace_at, stores, visit
from steptp.rewrite.base import Exactness, InstanceMap
from steptp.verify.tier1 import tier1
from steptp.verify.tier2 import tier2
from steptp.verify.verdict import VerdictKind

PARENTS = (
    "size N=6 K=5 L=4\nin A f32[N,K] B[K,L]\nout C f32[N,L]\nfor i:N j:L k:K C[i,j] += A[i,k]*B[k,j]\n",
    "size N=5 T=2\nin A f32[N,N]\nout Y f32[N] Z[N,N]\ntmp U f32[N,N]\nfor i0:(N+T-1)//T i1:T if i0*T+i1<N: for j:N U[i0*T+i1,j] = A[j,i0*T+i1]*2\n"
    "for i:N j:N Y[i] += U[i,j]\nfor i:N j:N Z[i,j] = U[N-1-j,i]+Y[i]\n",
    "in X f32[6,7]\nout Y f32[6,7]\nfor i:6\n tmp m f32[1] p[1]\n m[0] = -8\n for j:7\n  p[0] = m[0]\n  m[0] = max(m[0],X[i,j])\n  Y[i,j] = m[0]-p[0]\n",
)


def _mutant(program: Program, rng: random.Random) -> Program:
    """One small change: a literal, a variable, swapped operands, swapped statements or loops, a guard, a reducer."""
    met = rng.choice(list(visit(program)))
    stmt = met.stmt
    names = [loop.var for loop in met.loops]
    if isinstance(stmt, Store):
        if stmt.reduce and rng.random() < 0.2:
            return replace_at(program, met.path, replace(stmt, carry=not stmt.carry))
        return replace_at(program, met.path, map_stmt_exprs(stmt, lambda e: _changed(e, rng, names)))
    if isinstance(stmt, If):
        return replace_at(program, met.path, *stmt.body)
    inner = stmt.body[0]
    if isinstance(inner, Loop) and len(stmt.body) == 1 and not stmt.tmps and rng.random() < 0.5:
        return replace_at(program, met.path, replace(inner, body=(replace(stmt, body=inner.body, tmps=inner.tmps),), tmps=()))
    if len(stmt.body) > 1:
        return replace_at(program, met.path, replace(stmt, body=(*stmt.body[1:], stmt.body[0])))
    return replace_at(program, met.path, replace(stmt, extent=_changed(stmt.extent, rng, [])))


def _changed(expr: Expr, rng: random.Random, names: list[str]) -> Expr:
    def leave(e: Expr) -> Expr:
        if rng.random() < 0.75:
            return e
        if isinstance(e, Const) and e.type is not DType.BOOL:
            return Const(e.value + 1, e.type)
        if isinstance(e, Var) and names:
            return Var(rng.choice(names))
        if isinstance(e, Op) and len(e.args) == 2:
            return Op(e.name, (e.args[1], e.args[0]), e.type)
        return e

    return map_expr(expr, leave)


@pytest.mark.parametrize("seed", range(6))
def test_accepted_mutants_compute_the_same(seed: int) -> None:
    rng = random.Random(seed)
    accepted = rejected = 0
    for _ in range(60):
        parent = parse(rng.choice(PARENTS))
        child = _mutant(parent, rng).with_()
        if problems(child) or tier1(child).kind is not VerdictKind.OK:
            continue
        pairs = [(c.path, p.path, "") for c, p in zip(stores(child), stores(parent), strict=True)]
        try:
            entries = instance_entries(parent, child, pairs)
        except LeirError:
            continue
        if tier2(parent, child, InstanceMap(entries), Exactness.REASSOCIATED).kind is not VerdictKind.OK:
            rejected += 1
            continue
        accepted += 1
        data = np.random.default_rng(seed)
        inputs = {b.name: data.integers(-4, 5, shape_of(b.shape, parent)).astype(np.float32) for b in parent.inputs}
        before, after = evaluate(parent, inputs), evaluate(child, inputs)
        assert all(np.array_equal(before[name], after[name]) for name in before), print_program(child)
    assert accepted
    assert rejected
