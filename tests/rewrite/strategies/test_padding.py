"""padding: tensors of whole tiles in place of a guard."""

from __future__ import annotations

import pytest
from moving_support import GEMM, MATMUL, after, check_everything
from rewrite_support import check_all, check_golden, check_no_orphans, program

from steptp.ir import print_program
from steptp.rewrite import engine
from steptp.verify.ladder import verify_step

STRATEGY = "padding"
ROWS = after(MATMUL, "loop_split@0:factor=4,tail=guard")
TILED = after(MATMUL, "loop_tiling@0:outer=4,inner=3,tail=guard")
TEMPORARY = after(GEMM, "loop_split@0:factor=4,tail=guard")
FUSED = after(GEMM, "loop_tiling@1:outer=4,inner=3,tail=guard", "compute_at@0:at=1.0,storage=region")
CONV = after("in X f32[P=9] W[R=3]\nout Y[N=P-R+1]\nfor i r Y[i]+=X[i+r]*W[r]\n", "loop_split@0:factor=4,tail=guard")
REDUCTION = after(MATMUL, "loop_split@0.0.0:factor=3,tail=guard")
OTHER_TERMS = after("in X f32[N=3,K=7]\nout Y[N]\nfor i k Y[i]+=exp(X[i,k])\n", "loop_split@0.0:factor=4,tail=guard")
SCALED = after("in X f32[N=3,K=7] w[N]\nout Y[N]\nfor i k Y[i]+=X[i,k]*w[i]\n", "loop_split@0.0:factor=4,tail=guard")
MAXIMUM = after("in X f32[N=3,K=7]\nout Y[N]\nfor i k Y[i] max=X[i,k]\n", "loop_split@0.0:factor=4,tail=guard")
WINDOWS = after("in X f32[N=7]\nout Y[M=2]\nfor i:M k:3 Y[i]+=X[3*i+k]\n", "loop_split@0.0:factor=2,tail=guard")
PART = after("in X f32[N=7]\nout Y[]\nfor k:3 Y[]+=X[k]\n", "loop_split@0:factor=2,tail=guard")
INTEGERS = after("in X i32[N=7,M=4] -9..9\nout Y[N,M]\nfor i j Y[i,j]=X[i,j]\n", "loop_split@0:factor=4,tail=guard")
TABLE = after("size N=7 M=4\nin X f32[N,M] T i64[M] 0..N\nout Y f32[N,M]\nfor i:N j:M Y[i,j]=X[T[j],j]\n", "loop_split@0:factor=4,tail=guard")
DIAGONAL = after("in X f32[N=7,N]\nout Y[N]\nfor i Y[i]=X[i,i]\n", "loop_split@0:factor=4,tail=guard")
REVERSED = after("in X f32[N=7]\nout Y[N]\nfor i Y[i]=X[N-i-1]\n", "loop_split@0:factor=4,tail=guard")
SCAN = after("in X f32[N=7]\nout Y[N]\nfor i Y[i]=select(i>0,Y[i-1],0)+X[i]\n", "loop_split@0:factor=4,tail=guard")
TWICE = ROWS + "for i j Y[i,j]=0\n"
UNGUARDED = "size N=6 T0=4\nin X f32[N]\nout Y f32[N] Z f32[(N-1)//T0+1]\nfor i0:(N-1)//T0+1\n Z[i0]=0\n for i1:T0 if i0*T0+i1<N: Y[i0*T0+i1]=X[i0*T0+i1]\n"
CASES = {
    "rows": (ROWS, "padding@0"),
    "tile": (TILED, "padding@0.0"),
    "temporary_grows": (TEMPORARY, "padding@0"),
    "tile_of_two_stages": (FUSED, "padding@0"),
    "window": (CONV, "padding@0"),
    "sum": (REDUCTION, "padding@0.0.0"),
    "refuse_other_terms": (OTHER_TERMS, "padding@0.0"),
    "refuse_scaled_terms": (SCALED, "padding@0.0"),
    "refuse_maximum": (MAXIMUM, "padding@0.0"),
    "refuse_windows": (WINDOWS, "padding@0.0"),
    "refuse_part": (PART, "padding@0"),
    "refuse_integers": (INTEGERS, "padding@0"),
    "refuse_look_up": (TABLE, "padding@0"),
    "refuse_diagonal": (DIAGONAL, "padding@0"),
    "refuse_reversed": (REVERSED, "padding@0"),
    "refuse_scan": (SCAN, "padding@0"),
    "refuse_two_writers": (TWICE, "padding@0"),
    "refuse_unguarded": (UNGUARDED, "padding@0"),
    "refuse_no_guard": (MATMUL, "padding@0"),
    "refuse_store": (MATMUL, "padding@0.0.0.0"),
    "refuse_params": (ROWS, "padding@0:to=8"),
}


@pytest.mark.parametrize("name", CASES)
def test_golden(name: str, update_goldens: bool) -> None:
    check_golden(STRATEGY, name, *CASES[name], update_goldens)


def test_no_orphan_goldens() -> None:
    check_no_orphans(STRATEGY, CASES)


def test_every_site_keeps_the_meaning() -> None:
    assert check_all(STRATEGY) == 0  # no guarded split in the small programs


@pytest.mark.parametrize("text", [ROWS, TILED, TEMPORARY, FUSED, CONV, REDUCTION])
def test_sites_of_the_cases(text: str) -> None:
    assert check_everything(STRATEGY, text) >= 1


def test_both_guards_of_a_tile_go() -> None:
    once = engine.applied_or_raise(program(TILED), "padding@0").program
    place = next(s for s in engine.sites(once, [STRATEGY]))
    assert " if " not in print_program(engine.applied_or_raise(once, place).program)


@pytest.mark.parametrize(("text", "site"), [(ROWS, "padding@0"), (REDUCTION, "padding@0.0.0")])
def test_the_verifier_accepts_it(text: str, site: str) -> None:
    subject = program(text)
    step = engine.applied_or_raise(subject, site)
    verdict = verify_step(subject, step.program, applied=step, build_tiers=False)
    assert verdict.ok, verdict.message
