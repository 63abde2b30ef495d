"""Explanations of rejected pairs: they come out, their values are what evaluation gives, and they point into the texts."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flint import fmpq

from steptp.interp.compare import Same, compare_exact
from steptp.interp.demand import DemandEvaluator
from steptp.interp.exact import precision
from steptp.interp.numpy_eval import FloatAlgebra
from steptp.ir import Program, parse
from steptp.ir.sizes import shape_of
from steptp.ir.sourcemap import SourceMap
from steptp.mutate.registry import get, sample_mutants
from steptp.rewrite import engine
from steptp.rewrite.base import Applied
from steptp.verify.bindings import apply_binding
from steptp.verify.explain import Explanation, explain
from steptp.verify.explain_text import distinct
from steptp.verify.ladder import verify_pair, verify_step
from steptp.verify.verdict import Counterexample, TierReport, Verdict, VerdictKind

GOLDENS = Path(__file__).parent / "goldens" / "explain"

PROGRAMS = {
    "matmul": "in A f32[N=64,K=48] B[K,L=32]\nout Y[N,L]\ntmp C[N,L]\nfor i j k C[i,j]+=A[i,k]*B[k,j]\nfor i j Y[i,j]=max(C[i,j]-0.5,0)\n",
    "softmax": "in X f32[N=6,M=9]\nout Y[N,M]\ntmp m s[N]\nfor i j m[i] max=X[i,j]\nfor i j s[i]+=exp(X[i,j]-m[i])\nfor i j Y[i,j]=exp(X[i,j]-m[i])/s[i]\n",
    "norm": "in X f32[N=5,M=7] G[M]\nout Y[N,M]\ntmp u v[N]\nfor i j u[i]+=X[i,j]/f32(M)\nfor i j v[i]+=(X[i,j]-u[i])*(X[i,j]-u[i])/f32(M)\n"
    "for i j Y[i,j]=(X[i,j]-u[i])*rsqrt(v[i]+0.001)*G[j]\n",
    "conv": "in X f32[C=3,W=12] K[F=4,C,R=3]\nout Y[F,V=W-R+1]\nfor f v c r Y[f,v]+=X[c,v+r]*K[f,c,r]\n",
    "padded": "in X f32[W=12] K[R=3]\nout Y[W]\nfor v r Y[v]+=select(v+r>0 and v+r<W+1,X[v+r-1],0)*K[r]\n",
    "scan": "in X f32[N=9]\nout Y[N]\nfor i if i==0: Y[i]=X[i]\nfor i:N-1 Y[i+1]=Y[i]*0.5+X[i+1]\n",
    "gather": "size V=5\nin T i32[N=6] 0..V X f32[V,M=4]\nout Y f32[N,M]\nfor i j Y[i,j]=X[i64(T[i]),j]*2\n",
    "tiled": "size T=4\nin A f32[N=10,K=8] B[K,L=6]\nout Y[N,L]\nfor a:(N+T-1)//T b:T if a*T+b<N: for j k Y[a*T+b,j]+=A[a*T+b,k]*B[k,j]\n",
    "two": "in X f32[N=6,M=5]\nout P[N] Q[M]\nfor i j P[i] max=X[i,j]\nfor j i Q[j]+=abs(X[i,j])\n",
    "count": "in X f32[N=7,M=5]\nout Y i32[M]\nfor j i Y[j]+=i32(X[i,j]>0.25)\n",
    "parallel": "in X f32[N=8,M=5]\nout Y[N]\npar i for j Y[i]+=X[i,j]*X[i,j]\n",
}  # fmt: skip


def _source(bound: Program, told: Explanation, convert: Callable[[str], Any]) -> Callable[[str, int], Any]:
    """Input elements as the explanation gives them; an element that it leaves out is an error."""
    rows = {(name, tuple(index)): value for name, index, value in told.inputs}
    shapes = {b.name: (shape_of(b.shape, bound), b.dtype) for b in bound.inputs}

    def get(name: str, flat: int) -> Any:
        shape, dtype = shapes[name]
        text = rows[name, tuple(map(int, np.unravel_index(flat, shape)))]
        return convert(text) if dtype.is_float else int(text)

    return get


def _exact(text: str) -> Any:
    top, _, below = text.partition("/")
    return fmpq(int(top), int(below or 1))


def _double(text: str) -> float:
    value = _exact(text)
    return int(value.numerator) / int(value.denominator)


def _holds_up(parent: Program, child: Program, told: Explanation) -> None:
    """Both values come out of both evaluators on the inputs that the explanation lists, and they differ."""
    found = []
    for program, shown in ((parent, told.parent_float), (child, told.child_float)):
        bound = apply_binding(program, dict(told.sizes))
        found.append(DemandEvaluator(bound, _source(bound, told, _exact)).element(told.output, told.index))
        wide, _ = DemandEvaluator(bound, _source(bound, told, _double), algebra=FloatAlgebra(wide=True)).element(told.output, told.index)
        assert shown == repr(float(wide))
    (a, bits), (b, more) = found
    with precision(max(bits, more)):
        assert a != b if isinstance(a, int) else compare_exact(a, b) is Same.DIFFERENT
        assert (told.parent_value, told.child_value) == distinct(a, b)
    assert told.parent_value != told.child_value


def _points(parent: Program, child: Program, told: Explanation) -> None:
    """Every spot is in the text of its program."""
    for spot in told.spots:
        lines = SourceMap.of(parent if spot.who == "parent" else child).source.split("\n")
        assert lines[spot.line - 1][spot.column - 1 : spot.column - 1 + spot.length].strip()
        assert lines[spot.line - 1].strip() in spot.shown


@pytest.mark.parametrize("name", PROGRAMS)
def test_every_rejected_mutant_is_explained(name: str) -> None:
    parent = parse(PROGRAMS[name])
    kinds = set()
    for mutant in sample_mutants(parent, 9, seed=5):
        verdict = verify_step(parent, mutant.program, build_tiers=False)
        if verdict.ok:
            continue
        told = explain(parent, mutant.program, verdict)
        kinds.add(verdict.kind)
        assert not any(note.startswith("nothing more") for note in told.notes), mutant.name
        assert told.how, mutant.name
        assert json.loads(json.dumps(told.as_dict()))["kind"] == str(verdict.kind)
        assert told.how in told.render()
        _points(parent, mutant.program, told)
        if told.parent_tree:
            _holds_up(parent, mutant.program, told)
            assert told.spots[0].who == "child"
        else:
            assert verdict.kind is not VerdictKind.NOT_EQUAL
    assert VerdictKind.NOT_EQUAL in kinds


MATMUL = PROGRAMS["matmul"]
SOFTMAX = PROGRAMS["softmax"]
SQUARE = SOFTMAX.replace("X f32[N=6,M=9]", "X f32[N=6,N]").replace("Y[N,M]", "Y[N,N]")
BUGS = {
    "off_by_one_bound": (MATMUL, MATMUL.replace("for i j k C", "for i j k:K-1 C")),
    "swapped_operand": (MATMUL, MATMUL.replace("C[i,j]-0.5", "0.5-C[i,j]")),
    "missing_init": (MATMUL, MATMUL.replace("for i j k C", "for i j k carry C")),
    "dropped_tail": (MATMUL, "size T=4\n" + MATMUL.replace("for i j k C[i,j]+=A[i,k]*B[k,j]", "for i j q:K//T r:T C[i,j]+=A[i,q*T+r]*B[q*T+r,j]")),
    "wrong_axis": (SQUARE, SQUARE.replace("/s[i]", "/s[j]")),
    "stale_temporary": (
        "in X f32[N=6]\nout Y[N]\ntmp a[N]\nfor i a[i]=X[i]\nfor i a[i]=a[i]*2\nfor i Y[i]=a[i]+1\n",
        "in X f32[N=6]\nout Y[N]\ntmp a[N]\nfor i a[i]=X[i]\nfor i Y[i]=a[i]+1\nfor i a[i]=a[i]*2\n",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", BUGS)
def test_typical_bugs(name: str, update_goldens: bool) -> None:
    first, second = BUGS[name]
    verdict = verify_pair(first, second, build_tiers=False, one_step=None)
    assert not verdict.ok
    text = explain(parse(first), second, verdict).render(headed=False) + "\n"
    golden = GOLDENS / f"{name}.txt"
    if update_goldens:
        golden.write_text(text)
    assert text == golden.read_text()


def test_a_race_shows_both_iterations() -> None:
    child = "in X f32[N=8,M=5]\nout Y[N]\ntmp s[1]\npar i:N\n s[0]=0\n for j carry s[0]+=X[i,j]*X[i,j]\n Y[i]=s[0]\n"
    parent = parse(PROGRAMS["parallel"])
    verdict = verify_step(parent, child, build_tiers=False)
    assert verdict.kind is VerdictKind.ILLEGAL
    told = explain(parent, child, verdict)
    assert [dict(s.at)["i"] for s in told.spots] == [0, 1]
    assert "par loop i may run" in told.notes[0]
    _points(parent, parse(child), told)


def test_a_malformed_text_keeps_its_caret() -> None:
    parent = parse(MATMUL)
    bad = MATMUL.replace("B[k,j]", "B[k]")
    told = explain(parent, bad, verify_step(parent, bad))
    assert told.kind == "malformed"
    assert "^^^" in told.render()
    assert told.spots[0].line == 4
    other = MATMUL.replace("Y", "Z")
    told = explain(parent, other, verify_step(parent, other))
    assert told.how == "the output Y is missing"
    assert [s.who for s in told.spots] == ["parent"]


def test_an_unsafe_program_shows_where_its_error_is_born() -> None:
    parent = parse(SOFTMAX)
    child = parse(SOFTMAX.replace("-m[i]", ""))
    verdict = verify_step(parent, child)
    assert verdict.kind is VerdictKind.NUMERICALLY_UNSAFE
    told = explain(parent, child, verdict)
    assert "the error is born in exp(X" in told.how
    assert told.spots[0].value == "inf"
    assert told.inputs
    assert any("allowed distance" in note for note in told.notes)
    assert any("the f64 oracle gives" in note for note in told.notes)
    _points(parent, child, told)


def test_narrow_accumulation_is_the_place_of_its_error() -> None:
    wide = "in A f16[N=2,K=512] B[K,L=2]\nout Y f32[N,L]\nfor i j k Y[i,j]+=f32(A[i,k])*f32(B[k,j])\n"
    narrow = "in A f16[N=2,K=512] B[K,L=2]\nout Y f32[N,L]\ntmp C f16[N,L]\nfor i j k C[i,j]+=A[i,k]*B[k,j]\nfor i j Y[i,j]=f32(C[i,j])\n"
    parent, child = parse(wide), parse(narrow)
    told = explain(parent, child, verify_step(parent, child))
    assert told.kind == "numerically_unsafe"
    assert told.spots[0].line == 4
    assert "512 terms" in told.how


@pytest.mark.parametrize("kind", [VerdictKind.CRASHED, VerdictKind.TIMEOUT, VerdictKind.OOM, VerdictKind.BUILD_FAILED])
def test_what_ran_is_told_of_a_candidate_that_died(kind: VerdictKind) -> None:
    parent = parse(MATMUL)
    verdict = Verdict(kind, 4, (TierReport(0, VerdictKind.OK, "well-formed"), TierReport(4, kind, "the worker ended", {"code": "signal"})))
    told = explain(parent, parent, verdict)
    assert told.notes[1].startswith(f"tier 4: {kind}, the worker ended")
    assert "code: signal" in told.render()


def test_a_claim_that_does_not_hold_names_its_statement() -> None:
    parent = parse(MATMUL)
    applied = engine.apply(parent, next(s for s in engine.sites(parent) if s.strategy == "loop_reorder"))
    assert isinstance(applied, Applied)
    mutant = next(get("value_narrow").mutants(applied.program)).program
    verdict = verify_step(parent, mutant, applied=replace(applied, program=mutant), build_tiers=False)
    assert (verdict.kind, verdict.tier) == (VerdictKind.NOT_EQUAL, 2)
    told = explain(parent, mutant, verdict)
    assert told.how == verdict.message
    assert "account" in told.notes[0]
    assert told.spots[0].expression.startswith("S")
    _points(parent, mutant, told)


def test_other_bits_name_the_element() -> None:
    parent = parse(MATMUL)
    known = Counterexample("Y", (1, 2), "0.25", "0.250000001", (("N", 64),), "normal", 3, "5 of 2048 elements differ")
    told = explain(parent, parent, Verdict(VerdictKind.NOT_EQUAL, 5, (TierReport(5, VerdictKind.NOT_EQUAL, "other bits", counterexample=known),)))
    assert told.how.startswith("Y[1,2] is 0.250000001 in the child's build and 0.25")
    assert told.notes == ("5 of 2048 elements differ",)


def test_a_bad_pair_ends_no_run() -> None:
    """Counterexamples that fit nothing leave an explanation that says so."""
    parent = parse(MATMUL)
    known = Counterexample("Q", (7,), "1", "2", (("N", 3),), "normal")
    told = explain(parent, parse(SOFTMAX), Verdict(VerdictKind.NUMERICALLY_UNSAFE, 4, (TierReport(4, VerdictKind.NOT_EQUAL, "", counterexample=known),)))
    assert told.notes[0].startswith("nothing more can be said: ")


def test_a_difference_at_real_sizes_only() -> None:
    """The tail of the last tile is wrong from 20 rows on: the case is as small as that allows."""
    text = "in X f32[N=300,M=4]\nout Y[N]\nfor i j Y[i]+=X[i,j]\n"
    wrong = "in X f32[N=300,M=4]\nout Y[N]\nfor i j if i<20 or j<3: Y[i]+=X[i,j]\n"
    parent, child = parse(text), parse(wrong)
    verdict = verify_step(parent, child, build_tiers=False)
    assert verdict.kind is VerdictKind.NOT_EQUAL
    told = explain(parent, child, verdict)
    assert (dict(told.sizes), told.index) == ({"N": 21, "M": 4}, (20,))
    assert told.missing[0][0] == "X[20,3]"
    _holds_up(parent, child, told)


@pytest.mark.parametrize(
    "wrong",
    [
        "for i j k Y[i,j]+=select(i==417 and j==333,2,1)*A[i,k]*B[k,j]\n",
        "for i j k Y[i,j]+=select(A[i,k]==0.140625,A[i,k]+1,A[i,k])*B[k,j]\n",
    ],
)
def test_one_element_among_many(wrong: str) -> None:
    """No small sizes show the fault: it stays at its own."""
    head = "in A f32[600,20] B[20,500]\nout Y[600,500]\n"
    parent, child = parse(head + "for i j k Y[i,j]+=A[i,k]*B[k,j]\n"), parse(head + wrong)
    verdict = verify_step(parent, child, build_tiers=False)
    assert verdict.kind is VerdictKind.NOT_EQUAL
    told = explain(parent, child, verdict)
    assert told.sizes == ()
    assert "real sizes" in told.note
    assert told.how
    _holds_up(parent, child, told)
    _points(parent, child, told)
