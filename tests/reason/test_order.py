"""The order of accumulation is told at sizes where the loops concerned have room, whatever else the program does."""

from __future__ import annotations

import pytest

from steptp.analysis.host import HostInfo
from steptp.ir import Program, parse
from steptp.reason import explain
from steptp.reason.checker import check_text
from steptp.reason.patterns import read_sentence
from steptp.reason.rederive.context import CheckContext
from steptp.reason.rederive.nests import nests_behind
from steptp.reason.rederive.order import ORDER
from steptp.reason.rederive.symbolic import run
from steptp.rewrite import engine
from steptp.rewrite.base import Applied, Site

HOST = HostInfo.detect()
WINDOWS = """in x f32[B=2,D=4,H=5,W=5] kernel[N=4,M=3,K=3,L=3]
out Y[B]
tmp c[B,N,OD=D-M+1,OH=H-K+1,OW=W-L+1] d[B]
for i j k l p q r u c[i,j,k,l,p]+=x[i,k+q,l+r,p+u]*kernel[j,q,r,u]
for i j k l p d[i]+=c[i,j,k,l,p]
for i Y[i]=d[i]/f32(OD*OH*OW)
"""
"""Small bindings of the whole program leave two or three iterations to the loops of ``d``: one tile."""

SPREAD = """in a f32[D=3,H=3,W=3] w[K=2,L=2,M=2]
out Y[OD=2*D+K-2,OH=2*H+L-2,OW=2*W+M-2]
for k l p q r u Y[k,l,p]+=select(0<=k-q and (k-q)%2==0 and (k-q)//2<D and 0<=l-r and (l-r)%2==0 and (l-r)//2<H and 0<=p-u and (p-u)%2==0 and (p-u)//2<W,a[(k-q)//2,(l-r)//2,(p-u)//2],0)*w[q,r,u]
"""


def _applied(text: str, site: str) -> tuple[Program, Applied, Site]:
    parent, where = parse(text), Site.parse(site)
    applied = engine.apply(parent, where)
    assert isinstance(applied, Applied), applied
    return parent, applied, where


def _claim(sentence: str, parent: Program, child: Program, path: tuple[int, ...]) -> str | None:
    claim = read_sentence(sentence)
    assert claim is not None
    return ORDER[claim.kind](claim, CheckContext(parent, child, "", "", path, {}, (), {}))


def _changed(buffer: str) -> str:
    return f"The order of accumulation (+) into {buffer} changes, the terms do not."


def _kept(buffer: str) -> str:
    return f"The order of accumulation (+) into each element of {buffer} is kept."


@pytest.mark.parametrize(
    ("text", "site", "buffer"),
    [
        (WINDOWS, "loop_tiling@1.0.0.0:outer=2,inner=2,tail=guard", "d"),
        (WINDOWS, "loop_reorder@1.0.0.0.0:to=3", "d"),
        (SPREAD, "loop_reorder@0.0.0.0.0:to=3", "Y"),
    ],
)
def test_a_changed_order_is_confirmed_and_a_kept_one_is_not(text: str, site: str, buffer: str) -> None:
    parent, applied, where = _applied(text, site)
    why = explain(parent, applied, where, candidates=[where], rule="balanced-random", host=HOST)
    assert any(f.kind == "order_changed" for f in applied.facts)
    assert check_text(why.text, parent, applied.program, where.id, candidates=[where.id], host=HOST.to_dict()) == ()
    assert _claim(_changed(buffer), parent, applied.program, where.path) is None
    assert _claim(_kept(buffer), parent, applied.program, where.path) == "the order differs"


def test_a_kept_order_is_confirmed_and_a_changed_one_is_not() -> None:
    parent, applied, where = _applied(WINDOWS, "loop_split@1.0.0.0:factor=2,tail=guard")
    assert _claim(_kept("d"), parent, applied.program, where.path) is None
    assert _claim(_changed("d"), parent, applied.program, where.path) == "the order is the same"


def test_a_transposed_temporary_changes_no_order() -> None:
    """Read in isolation, the sum would seem to run over other elements."""
    text = "in A f32[N=4,M=4]\nout s[]\ntmp t[N,N]\nfor i:N j:N t[i,j]=A[i,j]\nfor i:N j:N s[]+=t[i,j]\n"
    parent, child = parse(text), parse(text.replace("t[i,j]", "t[j,i]"))
    assert _claim(_kept("s"), parent, child, (1,)) is None
    assert _claim(_changed("s"), parent, child, (1,)) == "the order is the same"


def test_only_nests_that_the_step_or_the_accumulation_concerns_are_run() -> None:
    parent, applied, _ = _applied(WINDOWS, "loop_tiling@1.0.0.0:outer=2,inner=2,tail=guard")
    first, second = nests_behind("d", parent, applied.program)
    assert first.body == parent.body[1:2]
    assert second.body == applied.program.body[1:2]
    first, second = nests_behind("c", parent, applied.program)
    assert first.body == parent.body[:2]
    assert second.body == applied.program.body[:2]


PARTIAL = """in x f32[B=4,C=3,R=3,S=3]
out Y[B]
for i:B
 tmp p[C] local
 for j:C k:R l:S p[j]+=x[i,j,k,l]
 for j:C Y[i]+=p[j]
"""


@pytest.mark.parametrize("site", ["loop_split@0:factor=3,tail=guard", "reduction_factorization@0.0.0"])
def test_temporaries_of_an_iteration_keep_what_they_held(site: str) -> None:
    """The last tile may be idle; and the loops around a declaration add no terms to its accumulations."""
    parent, applied, where = _applied(PARTIAL, site)
    why = explain(parent, applied, where, candidates=[where], rule="balanced-random", host=HOST)
    assert check_text(why.text, parent, applied.program, where.id, candidates=[where.id], host=HOST.to_dict()) == ()


TABLE = """size T0=8
in a f32[N=6,K=16] b[K,M=16]
out Y[N,M]
tmp idx i64[M//T0,T0]
where M%T0==0
for j0 j1 idx[j0,j1]=j0*T0+j1
for i j0 k j1 Y[i,j0*T0+j1]+=a[i,k]*b[k,idx[j0,j1]]
"""
COPIED = """in x f32[N=6,K=8]
out Y[N,K]
for i
 for k Y[i,k]=0
 for k carry Y[i,k]+=x[i,k]
"""


@pytest.mark.parametrize(
    ("text", "site"),
    [
        (TABLE, "loop_reorder@1.0.0:to=3"),  # the nest that fills the table belongs to what is run
        (TABLE, "loop_tiling@1.0.0:outer=4,inner=4,tail=exact"),
        (COPIED, "loop_peeling@0:part=last,count=2"),  # two equal lines are added, and the copied assignment is no reset
    ],
)
def test_true_explanations_are_confirmed(text: str, site: str) -> None:
    parent, applied, where = _applied(text, site)
    why = explain(parent, applied, where, candidates=(where,), rule="balanced-random", host=HOST, seed=3)
    assert check_text(why.text, parent, applied.program, site, candidates=[site], host=HOST.to_dict()) == ()


GUARDED = """in x f32[H={size}]
out Y[]
for i:5
 tmp t[] local
 if i<H//4: for j:4 t[]+=x[4*i+j]
 Y[]+=t[]
"""
"""Below H=20 the last iteration reads a sum that nothing has begun."""


@pytest.mark.parametrize("size", [20, 4000])
def test_larger_sizes_are_tried_where_the_tiny_ones_leave_a_read_element_unwritten(size: int) -> None:
    parent, applied, where = _applied(GUARDED.format(size=size), "operator_fission@0:at=1,depth=1")
    ctx = CheckContext(parent, applied.program, where.id, "", where.path, {}, (), {})
    assert ctx.tiny
    assert all(run(program).undefined for program, _ in ctx.tiny)
    why = explain(parent, applied, where, candidates=[where], rule="balanced-random", host=HOST)
    assert check_text(why.text, parent, applied.program, where.id, candidates=[where.id], host=HOST.to_dict()) == ()
    assert _claim(_kept("Y"), parent, applied.program, where.path) is None
    assert _claim(_changed("Y"), parent, applied.program, where.path) == "the order is the same"


def test_without_sizes_at_which_all_is_written_a_claim_is_refused_with_the_reason() -> None:
    text = GUARDED.format(size=20)
    _, applied, where = _applied(text, "operator_fission@0:at=1,depth=1")
    never = parse(text.replace("i<H//4", "i<H//4-1"))
    assert _claim(_kept("Y"), never, applied.program, where.path) == "at all sizes tried, the parent reads elements that nothing has written"
