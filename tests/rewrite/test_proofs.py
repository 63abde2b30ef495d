"""Graph and memory strategies prove their steps on real operators: tier 2 accepts every site, or tier 3 has to decide for a stated reason."""

from __future__ import annotations

import pytest
from rewrite_support import all_applied, check_step

from steptp.ir import parse
from steptp.rewrite import registry
from steptp.rewrite.base import Family
from steptp.verify.ladder import verify_step
from steptp.verify.verdict import VerdictKind

ATTENTION = """
size N=3 K=4 M=5 L=2
in q f32[N,K] k[M,K] v[M,L]
out out0 f32[N,L]
tmp c f32[N,M] t[N,M] m[N] s[N] y[N,M]
for i:N j:M l:K c[i,j] += q[i,l]*k[j,l]
for i:N j:M t[i,j] = c[i,j]*(1/sqrt(f32(K)))
for i:N j:M m[i] max= t[i,j]
for i:N j:M s[i] += exp(t[i,j]-m[i])
for i:N j:M y[i,j] = exp(t[i,j]-m[i])/s[i]
for i:N j:L l:M out0[i,j] += y[i,l]*v[l,j]
"""
NORM = """
size B=2 D=5
in x f32[B,D] w[D]
out y f32[B,D]
tmp q f32[B,D] s[B] r[B]
for b:B d:D q[b,d] = x[b,d]*x[b,d]
for b:B d:D s[b] += q[b,d]
for b:B r[b] = rsqrt(s[b]/f32(D)+0.00001)
for b:B d:D y[b,d] = x[b,d]*r[b]*w[d]
"""
GELU = """
size B=3 D=4 E=5
in x f32[B,D] W[E,D] c[E]
out y f32[B,E]
tmp h f32[B,E] a[B,E]
for b:B e:E d:D h[b,e] += x[b,d]*W[e,d]
for b:B e:E a[b,e] = h[b,e]+c[e]
for b:B e:E y[b,e] = 0.5*a[b,e]*(1+erf(a[b,e]*0.70710677))
"""
LEFT_TO_TIER_3 = {"tensor_split_to_decouple_operators"}  # partial results are no schedule of the parent's stores
PROVEN = tuple(s.name for s in registry.all_strategies() if s.family in (Family.GRAPH, Family.MEMORY))


@pytest.mark.parametrize("text", [ATTENTION, NORM, GELU], ids=["attention", "norm", "gelu"])
@pytest.mark.parametrize("strategy", PROVEN)
def test_every_site_is_proven_for_all_inputs(strategy: str, text: str) -> None:
    subject = parse(text.lstrip("\n"))
    for site, step in all_applied(strategy, subject):
        check_step(subject, site, step)
        if step.instances is None and strategy in LEFT_TO_TIER_3:
            verdict = verify_step(subject, step.program, applied=step, build_tiers=False)
            assert verdict.kind in (VerdictKind.OK, VerdictKind.UNKNOWN), verdict.message
        else:
            assert step.instances is not None, site.id
