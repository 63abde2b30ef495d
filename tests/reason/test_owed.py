"""Leaving a reason out, or saying one that is true of any step, does not pass."""

from __future__ import annotations

import pytest

from steptp.analysis.host import HostInfo
from steptp.ir import parse
from steptp.ir.nodes import Program
from steptp.reason import explain
from steptp.reason.checker import REDERIVE, check_text
from steptp.reason.patterns import read_sentence
from steptp.reason.rederive.owed import OWED
from steptp.rewrite import engine, registry
from steptp.rewrite.base import Applied, Site

HOST = HostInfo.detect()
GEMM = """size N=12 K=8 L=6
in A f32[N,K] B[K,L]
out Y f32[N,L]
tmp C f32[N,L]
for i:N j:L k:K C[i,j] += A[i,k]*B[k,j]
for i:N j:L Y[i,j] = max(C[i,j],0)*2
"""
ROWS = """in X f32[N=4,M=6] w[N]
out Y[N,M]
tmp s[N]
for i j s[i] += X[i,j]*w[i]
for i j Y[i,j] = X[i,j]/s[i]
"""
SUMS = """in A B f32[N=4,M=6]
out Y Z[N]
for i
 for j Y[i] += A[i,j]
 for j Z[i] += B[i,j]
"""
WINDOW = """in X f32[N=9] W[R=3]
out Y[N]
for i r Y[i] += select(0<=i+r-1<N,X[i+r-1],0)*W[r]
"""
FOLDED = """in X f32[N=6,M=4]
out Y[N,M]
for i j Y[i,j] = X[(i*2+1)%N,j]
"""
SOFTMAX = """in X f32[N=3,L=8]
out Y[N,L]
tmp m s[N]
for i j m[i] max= X[i,j]
for i j s[i] += exp(X[i,j]-m[i])
for i j Y[i,j] = exp(X[i,j]-m[i])/s[i]
"""
TEXTS = {"gemm": GEMM, "rows": ROWS, "sums": SUMS, "window": WINDOW, "folded": FOLDED, "softmax": SOFTMAX}


def _told(parent: Program, site: Site) -> tuple[Applied, str]:
    applied = engine.apply(parent, site)
    assert isinstance(applied, Applied), applied
    return applied, explain(parent, applied, site, candidates=[site], rule="balanced-random", host=HOST, seed=3).text


def _problems(parent: Program, applied: Applied, site: Site, text: str) -> tuple[str, ...]:
    return check_text(text, parent, applied.program, site.id, candidates=[site.id], host=HOST.to_dict())


def _legal(text: str) -> list[str]:
    return text.split("Legal:\n")[1].split("Effect:\n")[0].splitlines()


def _without(text: str, sentence: str) -> str:
    return text.replace(sentence + "\n", "", 1)


def test_every_strategy_has_a_row_and_every_kind_of_it_a_check() -> None:
    assert set(OWED) == set(registry.names())
    assert {kind for due in OWED.values() for kind in due.known} <= set(REDERIVE)


@pytest.mark.parametrize("name", sorted(TEXTS))
def test_a_sentence_that_a_strategy_owes_cannot_be_left_out(name: str) -> None:
    parent = parse(TEXTS[name])
    first = {site.strategy: site for site in reversed(engine.sites(parent).sites)}
    assert len(first) >= 5
    for site in first.values():
        applied, text = _told(parent, site)
        assert _problems(parent, applied, site, text) == (), text
        for sentence in _legal(text):
            claim = read_sentence(sentence.removeprefix("- "))
            assert claim is not None
            assert _problems(parent, applied, site, _without(text, sentence)), (site.id, sentence)


@pytest.mark.parametrize(
    ("text", "site", "gone"),
    [
        (GEMM, "loop_split@0:factor=4,tail=exact", "divides"),
        (GEMM, "loop_tiling@1:outer=4,inner=3,tail=exact", "divides"),
        (GEMM, "loop_binding@0:axis=bx", "blocks_independent"),
        (GEMM, "loop_vectorization@1.0", "stride"),
        (GEMM, "compute_at@0:at=1,storage=region", "inputs_kept"),
        (GEMM, "compute_at@0:at=1,storage=region", "buffer_removed"),
        (GEMM, "loop_parallelization@0", "order_kept"),
        (SUMS, "operator_fission@0:at=1,depth=1", "order_kept"),
        (FOLDED, "precompute_indices@0.0.0", "index_inside"),
    ],
)
def test_what_the_programs_make_due_is_due(text: str, site: str, gone: str) -> None:
    parent = parse(text)
    where = next(s for s in engine.sites(parent).sites if s.id.startswith(site)) if gone == "index_inside" else Site.parse(site)
    applied, told = _told(parent, where)
    assert _problems(parent, applied, where, told) == (), told
    kinds = {s: c.kind for s in _legal(told) if (c := read_sentence(s.removeprefix("- "))) is not None}
    assert gone in kinds.values(), kinds
    for sentence in (s for s, kind in kinds.items() if kind == gone):
        assert any("nothing is said of" in p for p in _problems(parent, applied, where, _without(told, sentence)))


@pytest.mark.parametrize(
    ("site", "true"),
    [
        ("loop_reorder@0:by=1", "- Every element of Y comes from the same operations in the same order.\n"),
        ("loop_parallelization@0", "- The body of loop i at 0 is written 12 times.\n"),
        ("loop_unrolling@0.0.0", "- No two conflicting accesses to C change their order.\n"),
        ("loop_unrolling@0.0.0", "- The body of loop j at 0.0 is written 6 times.\n"),
    ],
)
def test_a_true_claim_about_something_else_has_no_place(site: str, true: str) -> None:
    parent = parse(GEMM)
    where = next((s for s in engine.sites(parent).sites if s.id.split(":")[0] == site.split(":")[0]), None)
    assert where is not None
    applied, text = _told(parent, where)
    more = text.replace("Legal:\n", "Legal:\n" + true)
    assert _problems(parent, applied, where, text) == ()
    assert any("says nothing of" in p or "not the step's site" in p for p in _problems(parent, applied, where, more))


def test_a_sign_of_what_the_step_leaves_alone_is_no_reason() -> None:
    parent = parse("in X w f32[N=4]\nout Y[N]\nfor i Y[i] = (X[i]+w[i])*2-exp(w[i])\n")
    site = next(s for s in engine.sites(parent, ["expand_factorization"]).sites)
    applied, text = _told(parent, site)
    assert _problems(parent, applied, site, text) == (), text
    more = text.replace("Legal:\n", "Legal:\n- `exp(w[i])` is positive for all finite inputs, proven from its exponential.\n")
    assert any("not in what the step rewrites" in p for p in _problems(parent, applied, site, more))


def test_an_access_that_wraps_around_has_no_stride_to_state() -> None:
    parent = parse("in X f32[N=8]\nout Y[N]\nfor i Y[i] = X[(i+1)%N]\n")
    applied, text = _told(parent, site := Site.parse("loop_vectorization@0"))
    assert "X[" not in "".join(_legal(text))
    assert _problems(parent, applied, site, text) == ()


def test_the_loops_that_a_reordered_nest_reads_are_those_of_the_nest() -> None:
    parent = parse(GEMM)
    site = next(s for s in engine.sites(parent).sites if s.id == "loop_reorder@0.0:to=2")
    applied, text = _told(parent, site)
    claim = next(c for s in _legal(text) if (c := read_sentence(s.removeprefix("- "))) is not None and c.kind == "loop_moved")
    short = "Loop j at 0.0 moves from position 0 to 1; the nest then reads k, j."
    assert any("the nest has other loops" in p for p in _problems(parent, applied, site, text.replace(claim.sentence, short)))


def test_the_cache_of_the_data_is_due() -> None:
    parent = parse(GEMM)
    site = next(s for s in engine.sites(parent).sites if s.strategy == "loop_reorder")
    applied, text = _told(parent, site)
    sentence = next(s for s in text.splitlines() if (c := read_sentence(s.removeprefix("- "))) is not None and c.kind.startswith("cache"))
    assert any("nothing is said of cache" in p for p in _problems(parent, applied, site, _without(text, sentence)))
