"""Claims about loops, indices and partial accumulators of programs that earlier steps have shaped."""

from __future__ import annotations

import pytest

from steptp.analysis.host import HostInfo
from steptp.ir import parse
from steptp.reason import explain
from steptp.reason.checker import check_text
from steptp.reason.patterns import read_sentence
from steptp.reason.rederive.context import CheckContext
from steptp.reason.rederive.structure import STRUCTURE
from steptp.rewrite import engine
from steptp.rewrite.base import Applied, Site

HOST = HostInfo.detect()
PADDED = """size T0=2 T1=2
in x f32[B=2,M=5,C=3]
out Y[B,C]
for i k0:(M-1)//T0+1 j0:(C-1)//T1+1 k1:T0 j1:T1 if k0*T0+k1<M and j0*T1+j1<C: Y[i,j0*T1+j1]+=x[i,k0*T0+k1,j0*T1+j1]
"""
LOOKED_UP = """size T=3
in x f32[N=4,K=5] t i64[N] 0..K
out Y f32[N]
for i0:N//T i1:T Y[i0*T+i1]=x[i0*T+i1,t[i0*T+i1]]
for i:N%T Y[T*(N//T)+i]=x[T*(N//T)+i,t[T*(N//T)+i]]
"""
SPLIT = "size T0=2\nin x f32[H=4]\nout Y[]\nwhere H%T0==0\nfor i0:H//T0 i1:T0 Y[]+=x[i0*T0+i1]\n"
"""Fusing the loops again drops the size."""


@pytest.mark.parametrize(
    ("text", "site", "old", "new"),
    [
        (PADDED, "reduction_factorization@0.0", "3 partial accumulators of 2", "2 partial accumulators of 3"),
        (LOOKED_UP, "loop_fusion@0", "i%T", "i%2"),
        (SPLIT, "loop_fusion@0", "i%2", "i%3"),
    ],
)
def test_claims_hold_and_changed_ones_do_not(text: str, site: str, old: str, new: str) -> None:
    parent, where = parse(text), Site.parse(site)
    applied = engine.apply(parent, where)
    assert isinstance(applied, Applied), applied

    def problems(told: str) -> tuple[str, ...]:
        return check_text(told, parent, applied.program, site, candidates=[site], host=HOST.to_dict())

    texts = [explain(parent, applied, where, candidates=[where], rule="balanced-random", host=HOST, seed=n).text for n in range(8)]
    assert all(problems(t) == () for t in texts)
    changed = [t.replace(old, new) for t in texts if old in t]
    assert changed
    assert all(problems(t) for t in changed)


def _told(sentence: str, text: str, changed: tuple[str, str], site: str) -> str | None:
    claim = read_sentence(sentence)
    assert claim is not None
    strategy, _, place = site.partition("@")
    path = tuple(int(n) for n in place.split(".")) if place else ()
    return STRUCTURE[claim.kind](claim, CheckContext(parse(text), parse(text.replace(*changed)), site, strategy, path, {}, (), {}))


def test_iterations_run_at_once_only_where_the_step_makes_them() -> None:
    text, sentence = "in x f32[N=4,K=3]\nout Y[N,K]\nfor i j Y[i,j]=x[i,j]*2\n", "Loop i at 0 offers 4 iterations that can run at once."
    assert _told(sentence, text, ("for i j", "par i for j"), "loop_parallelization@0") is None
    assert _told(sentence, text, ("*2", "+x[i,j]"), "expression_reorder@0") == "i becomes no parallel loop"
    assert _told(sentence, text, ("for i j", "for i vec j"), "loop_vectorization@0.0") == "0 is not the step's site"


def test_a_site_without_a_place_speaks_of_no_loop() -> None:
    text, sentence = "in x f32[N=4]\nout Y[N]\ntmp t[N]\nfor i t[i]=x[i]\nfor i Y[i]=t[i]\n", "Loop i at 0 runs 4 iterations, its extent is `N`."
    assert _told(sentence, text, ("tmp t[N]", "tmp t[N] local"), "set_storage_scope@") == "0 is not the step's site"
    assert _told(sentence, text, ("for i t", "unroll i t"), "loop_unrolling@0") is None
