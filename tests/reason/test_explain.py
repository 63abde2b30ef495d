"""Explanations hold, sentence by sentence; corrupted ones do not."""

from __future__ import annotations

import itertools
import random
from collections import Counter
from dataclasses import dataclass

import pytest

from steptp.analysis.host import HostInfo
from steptp.ir import Program, parse
from steptp.reason import explain
from steptp.reason.checker import check_text
from steptp.reason.corrupt import KINDS, corrupt_text
from steptp.rewrite import engine
from steptp.rewrite.base import Applied, Site

SOFTMAX = """size N=12 K=8 L=6
in A f32[N,K] B[K,L]
out Y f32[N,L]
tmp C f32[N,L] m[N] s[N]
for i:N j:L k:K C[i,j] += A[i,k]*B[k,j]
for i:N j:L m[i] max= C[i,j]
for i:N j:L s[i] += exp(C[i,j]-m[i])
for i:N j:L Y[i,j] = exp(C[i,j]-m[i])/s[i]
"""
COPY = """size N=10 M=4
in A i64[N,M]
out B i64[M,N]
for j:M i:N B[j,i] = A[i,j]
"""
CHAIN = """size N=6 K=4 L=5
in A f32[N,K] B[K,L] bias[L]
out Y f32[N,L] Z[N]
tmp C f32[N,L] D[N,L] E[N,L]
for i:N j:L k:K C[i,j] += A[i,k]*B[k,j]
for i:N j:L D[i,j] = C[i,j]+bias[j]
for i:N j:L E[i,j] = max(D[i,j],0)*2
for i:N
 tmp t f32[L] s[]
 for j:L t[j] = D[i,j]*2
 for j:L s[] += t[j]
 Z[i] = s[]
 for j:L Y[i,j] = t[j]/s[]
"""
HOST = HostInfo.detect()


@dataclass
class Made:
    parent: Program
    applied: Applied
    site: Site
    candidates: list[Site]
    text: str

    def problems(self, text: str | None = None) -> tuple[str, ...]:
        names = [s.id for s in self.candidates]
        return check_text(self.text if text is None else text, self.parent, self.applied.program, self.site.id, candidates=names, host=HOST.to_dict())


def _make(text: str, count: int, seed: int) -> list[Made]:
    parent, rng = parse(text), random.Random(seed)
    by_strategy: dict[str, list[Site]] = {}
    for site in engine.sites(parent).sites:
        by_strategy.setdefault(site.strategy, []).append(site)
    out = []
    for name in sorted(by_strategy):
        for site in rng.sample(by_strategy[name], min(count, len(by_strategy[name]))):
            applied = engine.apply(parent, site)
            assert isinstance(applied, Applied), (site.id, applied)
            candidates = [s for group in by_strategy.values() for s in group[:3] if s != site] + [site]
            why = explain(parent, applied, site, candidates=candidates, rule="balanced-random", host=HOST, seed=rng.randrange(99))
            out.append(Made(parent, applied, site, candidates, why.text))
    return out


@pytest.mark.parametrize("text", [SOFTMAX, COPY, CHAIN], ids=["softmax", "copy", "chain"])
def test_every_sentence_of_every_strategy_is_rederived(text: str) -> None:
    made = _make(text, 4, seed=1)
    assert len({m.site.strategy for m in made}) >= 5
    for one in made:
        assert one.problems() == (), one.text


def test_same_seed_same_text_and_other_seeds_other_words() -> None:
    parent = parse(SOFTMAX)
    site = engine.sites(parent).sites[0]
    applied = engine.apply(parent, site)
    assert isinstance(applied, Applied)
    texts = [explain(parent, applied, site, candidates=[site], rule="balanced-random", host=HOST, seed=s).text for s in (0, 0, *range(1, 8))]
    assert texts[0] == texts[1]
    assert len(set(texts)) > 4


def test_corrupted_texts_are_rejected() -> None:
    made, rng = _make(SOFTMAX, 6, seed=2), random.Random(3)
    tried: Counter[str] = Counter()
    accepted = []
    while sum(tried.values()) < 250:
        one, other = rng.choice(made), rng.choice(made)
        changed = corrupt_text(one.text, rng, other.text, rng.choice([m.text for m in made if m.site.strategy == one.site.strategy]))
        if changed is None:
            continue
        tried[changed[0]] += 1
        if not one.problems(changed[1]):
            accepted.append((one.site.id, changed))
    assert set(tried) == set(KINDS)
    assert len(accepted) <= 0.01 * sum(tried.values()), accepted[:3]


def test_a_reason_of_another_step_does_not_hold() -> None:
    made = _make(SOFTMAX, 2, seed=4)
    for one, other in itertools.pairwise(made):
        assert one.problems(other.text)


@pytest.mark.parametrize(
    ("old", "new", "word"),
    [("Legal:", "Lawful:", "stray"), ("Dominant:\n", "Dominant:\nDominant:\n", "twice"), ("Effect:", "Rewrite:", "twice"), ("\n- ", "\n* ", "stray")],
)
def test_structure_is_checked(old: str, new: str, word: str) -> None:
    one = _make(SOFTMAX, 1, seed=5)[0]
    assert any(word in p for p in one.problems(one.text.replace(old, new, 1)))


def test_an_empty_text_is_no_explanation() -> None:
    one = _make(SOFTMAX, 1, seed=6)[0]
    assert {p for p in one.problems("") if "missing" in p}
