"""batch_norm_folding: the scale after a product moves into the product's weights."""

from __future__ import annotations

import pytest
from rewrite_support import all_applied, check_golden, check_no_orphans, check_step, program

STRATEGY = "batch_norm_folding"
CONV = "in x f32[C=2,W=6] w[P=3,C,S=3] g b mean var[P]\nout Y[P,OW=W-S+1]\ntmp c[P,OW]\nfor i j k s c[i,j]+=x[k,j+s]*w[i,k,s]\n"
NORM = CONV + "for i j Y[i,j]=max((c[i,j]-mean[i])*rsqrt(abs(var[i])+1)*g[i]+b[i],0)\n"
EVAL = CONV + "for i j Y[i,j]=(c[i,j]-mean[i])*rsqrt(var[i]+1e-5)*g[i]+b[i]\n"
TRAINING = CONV + "for i j Y[i,j]=(c[i,j]-mean[i])*m[i]\n"
TRAINING = TRAINING.replace("tmp c[P,OW]", "tmp c[P,OW] m[P]").replace("for i j Y", "for i m[i]=g[i]*2\nfor i j Y")
SCORES = "in q f32[T=3,C=4] k[N=2,C]\nout Y[T,N]\ntmp c[T,N]\nfor i j l c[i,j]+=q[i,l]*k[j,l]\nfor i j Y[i,j]=c[i,j]*(1/sqrt(f32(C)))\n"
MASKED = SCORES.replace("=c[i,j]*(1/sqrt(f32(C)))", "=select(i>=j,c[i,j]/3,-inf)")
TRANSPOSED = SCORES.replace("for i j Y[i,j]=c[i,j]*(1/sqrt(f32(C)))", "for j i Y[i,j]=2*c[i,j]-q[i,0]")
VARIANCE = "in x f32[N=3,K=4]\nout Y[N]\ntmp v[N]\nfor i j v[i]+=x[i,j]*x[i,j]\nfor i Y[i]=v[i]/4\n"
ROW_SCALE = SCORES.replace("(1/sqrt(f32(C)))", "q[i,0]*k[j,0]")
NO_SCALE = SCORES.replace("*(1/sqrt(f32(C)))", "+1")
NEGATED = SCORES.replace("c[i,j]*(1/sqrt(f32(C)))", "(1-c[i,j])*2")
TWO_READS = SCORES.replace("*(1/sqrt(f32(C)))", "*c[i,0]")
MEAN = "in x f32[N=3,K=4]\nout Y[N]\ntmp v[N]\nfor i j v[i]+=x[i,j]\nfor i Y[i]=v[i]/4\n"
UNROUNDED = "in q f16[T=3,C=4] k[N=2,C]\nout Y[T,N]\ntmp c f32[T,N]\nfor i j l c[i,j]+=f32(q[i,l])*f32(k[j,l])\nfor i j Y[i,j]=f16(c[i,j]*0.5)\n"
GUARDED = SCORES.replace("for i j Y[i,j]=c[i,j]*(1/sqrt(f32(C)))", "for i j Y[i,j]=0\nfor i j if j<=i: Y[i,j]=c[i,j]*2")
CASES = {
    "convolution": (NORM, "batch_norm_folding@1.0.0:buffer=c,into=1"),
    "scale_not_proven_finite": (EVAL, "batch_norm_folding@1.0.0:buffer=c,into=1"),
    "scores_into_the_queries": (SCORES, "batch_norm_folding@1.0.0:buffer=c,into=0"),
    "scores_into_the_keys": (SCORES, "batch_norm_folding@1.0.0:buffer=c,into=1"),
    "under_a_mask": (MASKED, "batch_norm_folding@1.0.0:buffer=c,into=1"),
    "shift_that_varies_with_a_row": (TRANSPOSED, "batch_norm_folding@1.0.0:buffer=c,into=1"),
    "half_precision_result": (UNROUNDED, "batch_norm_folding@1.0.0:buffer=c,into=0"),
    "refuse_image": (NORM, "batch_norm_folding@1.0.0:buffer=c,into=0"),
    "refuse_training": (TRAINING, "batch_norm_folding@2.0.0:buffer=c,into=1"),
    "refuse_scale_of_both_factors": (ROW_SCALE, "batch_norm_folding@1.0.0:buffer=c,into=0"),
    "refuse_own_operand_of_every_element": (VARIANCE, "batch_norm_folding@1.0:buffer=v,into=0"),
    "refuse_no_product": (MEAN, "batch_norm_folding@1.0:buffer=v,into=0"),
    "refuse_no_scale": (NO_SCALE, "batch_norm_folding@1.0.0:buffer=c,into=0"),
    "refuse_negated": (NEGATED, "batch_norm_folding@1.0.0:buffer=c,into=0"),
    "refuse_read_twice": (TWO_READS, "batch_norm_folding@1.0.0:buffer=c,into=0"),
    "refuse_guard": (GUARDED, "batch_norm_folding@2.0.0.0:buffer=c,into=0"),
    "refuse_input": (SCORES, "batch_norm_folding@1.0.0:buffer=q,into=0"),
    "refuse_loop": (SCORES, "batch_norm_folding@1:buffer=c,into=0"),
    "refuse_bad_site": (SCORES, "batch_norm_folding@1.0.0:buffer=c"),
}


@pytest.mark.parametrize("name", CASES)
def test_golden(name: str, update_goldens: bool) -> None:
    check_golden(STRATEGY, name, *CASES[name], update_goldens)


def test_no_orphan_goldens() -> None:
    check_no_orphans(STRATEGY, CASES)


@pytest.mark.parametrize(("text", "sites"), [(NORM, 1), (SCORES, 2), (MASKED, 2), (TRANSPOSED, 2), (VARIANCE, 0), (ROW_SCALE, 0), (TWO_READS, 0), (GUARDED, 0)])
def test_every_site_keeps_the_meaning(text: str, sites: int) -> None:
    subject = program(text)
    found = list(all_applied(STRATEGY, subject))
    assert len(found) == sites
    for site, step in found:
        check_step(subject, site, step)


def test_a_scale_that_is_undefined_somewhere_is_undefined_before_and_after() -> None:
    subject = program(EVAL)
    found = list(all_applied(STRATEGY, subject))
    assert len(found) == 1
    check_step(subject, *found[0])
    assert any(f.kind == "scales_whole" for f in found[0][1].facts)
