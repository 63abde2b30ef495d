"""partially_equivalent_then_correct: windows without their condition in the interior, the border corrected."""

from __future__ import annotations

import numpy as np
import pytest
from rewrite_support import all_applied, check_all, check_golden, check_no_orphans, check_step, program

from steptp.interp import evaluate
from steptp.ir.sizes import rebind
from steptp.rewrite import engine
from steptp.verify.ladder import verify_step

STRATEGY = "partially_equivalent_then_correct"
POOL = "size C=2 H=7\nin x f32[C,H]\nout Y f32[C,OH=(H+1)//2]\nfor i:C j:OH l:3 Y[i,j] += select(0<=2*j+l-1<H,x[i,2*j+l-1],0)\n"
MAX_POOL = (
    "size H=6 W=7\nin x f32[H,W]\nout Y f32[OH=H//2+1,OW=W//2+1]\n"
    "for i:OH j:OW r:2 q:2 Y[i,j] max= select(0<=2*i+r-1<H and 0<=2*j+q-1<W,x[2*i+r-1,2*j+q-1],-inf)\n"
)
CONV = (
    "size C=2 H=5 W=4 P=3 R=3 S=3\nin x f32[C,H,W] k f32[P,C,R,S]\nout Y f32[P,OH=H-R+3,OW=W-S+3]\n"
    "for o:P i:OH j:OW c:C r:R s:S Y[o,i,j] += select(0<=i+r-1<H and 0<=j+s-1<W,x[c,i+r-1,j+s-1],0)*k[o,c,r,s]\n"
)
DILATED = "size H=9 R=3\nin x f32[H] k f32[R]\nout Y f32[H]\nfor i:H r:R Y[i] += select(0<=i-2*r+2<H,x[i-2*r+2],0)*k[r]\n"
ONE_SIDE = "size H=6\nin x f32[H]\nout Y f32[H]\nfor i:H r:3 Y[i] += select(i+r<H,x[i+r],0)\n"
PAD = "size N=2 H=5\nin x f32[N,H]\nout Y f32[N,H+3]\nfor i:N j:H+3 Y[i,j] = select(2<=j<H+2,x[i,j-2],0.5)\n"
FLIPPED = "size H=5\nin x f32[H]\nout Y f32[H+2]\nfor i:H+2 Y[i] = select(0<=H-i and H-i<H,x[H-i],0)\n"
TWO_SELECTS = "size N=4 H=6\nin x f32[H] c bool[H]\nout Y f32[H]\nfor i:H r:3 Y[i] += select(0<=i+r-1<H,x[i+r-1],0)*select(c[i],2,1)\n"
PARALLEL = POOL.replace("for i:C j:OH", "par i:C for j:OH")
BATCH = "size B=2 H=6\nin x f32[B,H]\nout Y f32[B,H]\nfor b:B\n tmp t f32[H]\n for i:H r:3 t[i] += select(0<=i+r-1<H,x[b,i+r-1],0)\n for i:H Y[b,i] = t[i]\n"
DIAGONAL = "size N=4\nin x f32[N,N]\nout Y f32[N,N]\nfor i:N j:N Y[i,j] = select(j<=i,x[i,j],0)\n"
DATA = "size N=4\nin x f32[N] c bool[N]\nout Y f32[]\nfor i:N Y[] += select(c[i],x[i],0)\n"
STRIDES = "size H=4\nin x f32[H]\nout Y f32[2*H]\nfor i:2*H r:2 Y[i] += select((i+r)%2==0,x[i//2],0)\n"
NARROW = "size H=2\nin x f32[H]\nout Y f32[H]\nfor i:H r:5 Y[i] += select(0<=i+r-2<H,x[i+r-2],0)\n"
NO_BORDER = "size H=4\nin x f32[H+2]\nout Y f32[H]\nfor i:H r:3 Y[i] += select(i+r<H+2,x[i+r],0)\n"
SCAN = "size N=5\nin x f32[N]\nout Y f32[N]\nfor i:N Y[i] = select(0<i,Y[i-1],0)+x[i]\n"
INNER_OUTPUT = "size H=6\nin x f32[H]\nout Y f32[H]\nfor r:3 i:H Y[i] += select(0<=i+r-1<H,x[i+r-1],0)\n"
TRIANGLE = "size H=6\nin x f32[H]\nout Y f32[H]\nfor i:H r:i+1 Y[i] += select(i+r<H,x[i+r],0)\n"
TWICE = "size H=6\nin x f32[H]\nout Y f32[H]\nfor i:H Y[i] = 0\nfor i:H Y[i//2] = select(0<i,x[i-1],0)\n"
UNROLLED = ONE_SIDE.replace("for i:H r:3", "unroll i:H for r:3")
CASES = {
    "pool": (POOL, "@0"),
    "max_pool": (MAX_POOL, "@0"),
    "convolution": (CONV, "@0"),
    "dilated_backwards": (DILATED, "@0"),
    "one_side": (ONE_SIDE, "@0"),
    "pad": (PAD, "@0"),
    "flipped": (FLIPPED, "@0"),
    "another_condition_stays": (TWO_SELECTS, "@0"),
    "parallel": (PARALLEL, "@0"),
    "private": (BATCH, "@0.0"),
    "refuse_two_output_loops": (DIAGONAL, "@0"),
    "refuse_data": (DATA, "@0"),
    "refuse_strides": (STRIDES, "@0"),
    "refuse_no_interior": (NARROW, "@0"),
    "refuse_no_border": (NO_BORDER, "@0"),
    "refuse_scan": (SCAN, "@0"),
    "refuse_sum_outside": (INNER_OUTPUT, "@0"),
    "refuse_varying_extent": (TRIANGLE, "@0"),
    "refuse_written_twice": (TWICE, "@1"),
    "refuse_unrolled": (UNROLLED, "@0"),
    "refuse_no_condition": ("matmul", "@0"),
    "refuse_inner_loop": (POOL, "@0.0"),
    "refuse_params": (POOL, "@0:at=1"),
}
STEPS = [POOL, MAX_POOL, CONV, DILATED, ONE_SIDE, PAD, FLIPPED, TWO_SELECTS, PARALLEL]


@pytest.mark.parametrize("name", CASES)
def test_golden(name: str, update_goldens: bool) -> None:
    text, place = CASES[name]
    check_golden(STRATEGY, name, text, STRATEGY + place, update_goldens)


def test_no_orphan_goldens() -> None:
    check_no_orphans(STRATEGY, CASES)


def test_small_programs_have_no_padding() -> None:
    assert check_all(STRATEGY) == 0


@pytest.mark.parametrize("text", [*STEPS, BATCH])
def test_tier_2_proves_every_step(text: str) -> None:
    subject = program(text)
    ((site, step),) = all_applied(STRATEGY, subject)
    assert step.instances is not None
    check_step(subject, site, step)


@pytest.mark.parametrize("size", [1, 2, 3, 4, 8, 11])
@pytest.mark.parametrize("text", [POOL, DILATED, ONE_SIDE, PAD, FLIPPED])
def test_the_border_is_right_at_other_sizes(text: str, size: int) -> None:
    """Also at sizes where no window fits."""
    subject = program(text)
    child = engine.applied_or_raise(subject, f"{STRATEGY}@0").program
    before, after = rebind(subject, {"H": size}), rebind(child, {"H": size})
    rng = np.random.default_rng(size)
    inputs = {}
    for buffer in before.inputs:
        shape = [before.size_env[s.name] for s in buffer.shape]  # type: ignore[attr-defined]
        inputs[buffer.name] = rng.standard_normal(shape).astype(np.float32)
    assert evaluate(before, inputs)["Y"].tobytes() == evaluate(after, inputs)["Y"].tobytes()


@pytest.mark.parametrize("text", [MAX_POOL, CONV, PAD])
def test_the_ladder_finds_equal_bits(text: str) -> None:
    subject = program(text)
    step = engine.applied_or_raise(subject, f"{STRATEGY}@0")
    verdict = verify_step(subject, step.program, applied=step)
    assert verdict.ok, verdict.message
    assert verdict.tier == 5
    assert [r.tier for r in verdict.reports] == [0, 1, 2, 4, 5]
