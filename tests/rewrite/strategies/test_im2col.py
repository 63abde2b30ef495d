"""im2col: the windows of a convolution copied into a matrix."""

from __future__ import annotations

import pytest
from rewrite_support import all_applied, check_golden, check_no_orphans, check_step, program

from steptp.ir import parse, print_program
from steptp.rewrite import engine
from steptp.verify.tier1 import tier1
from steptp.verify.tier2 import tier2
from steptp.verify.verdict import VerdictKind

STRATEGY = "im2col"
CONV = "in x f32[B=2,C=2,H=4,W=5] w[P=3,C,R=2,S=3]\nout Y[B,P,OH=H-R+1,OW=W-S+1]\nfor i j k l p q r Y[i,j,k,l]+=x[i,p,k+q,l+r]*w[j,p,q,r]\n"
PADDED = "in x f32[C=2,W=5] w[P=3,C,S=3]\nout Y[P,W]\nfor j k p s Y[j,k]+=w[j,p,s]*select(0<=2*k+s-1<W,x[p,2*k+s-1],0)\n"
DEPTHWISE = "in x f32[C=3,W=6] w[C,S=3]\nout Y[C,OW=W-S+1]\nfor i k s Y[i,k]+=x[i,k+s]*w[i,s]\n"
GROUPED = "size N=2 M=3\nin x f32[2*N,W=5] w[P=2*M,N,S=3]\nout Y[P,OW=W-S+1]\nfor j:2 k:M l q s Y[j*M+k,l]+=x[j*N+q,l+s]*w[j*M+k,q,s]\n"
HALF = "in x f16[C=2,W=5] w[P=3,C,S=3]\nout Y f32[P,OW=W-S+1]\nfor j k p s Y[j,k]+=f32(x[p,k+s])*f32(w[j,p,s])\n"
MATMUL = "in A f32[N=3,K=4] B[K,M=5]\nout Y[N,M]\nfor i j k Y[i,j]+=A[i,k]*B[k,j]\n"
BOTH = "in x f32[W=5] y[W]\nout Y[OW=W-2]\nfor k s:3 Y[k]+=x[k+s]*y[k+s]\n"
POOL = "in x f32[W=5]\nout Y[OW=W-2]\nfor k s:3 Y[k]+=x[k+s]\n"
BROADCAST = "in x f32[W=5] w[S=3]\nout Y[OW=W-S+1]\nfor k s t:2 Y[k]+=x[k+s]*w[s]\n"
LOCAL = "in x f32[W=5] w[W,S=3]\nout Y[W-2]\nfor k:W-2 s Y[k]+=x[k+s]*w[k,s]\n"
LOOK_UP = "in x f32[C=2,W=5] T i64[C] 0..C w f32[P=3,C,S=3]\nout Y[P,OW=W-S+1]\nfor j k p s Y[j,k]+=x[T[p],k+s]*w[j,p,s]\n"
MAXIMUM = CONV.replace("+=x", " max=x")
CASES = {
    "conv2d": (CONV, "im2col@0"),
    "image_by_image": (CONV, "im2col@0.0"),
    "padded_strided": (PADDED, "im2col@0"),
    "depthwise": (DEPTHWISE, "im2col@0"),
    "grouped": (GROUPED, "im2col@0"),
    "half_precision": (HALF, "im2col@0"),
    "refuse_same_windows_for_every_filter": (CONV, "im2col@0.0.0"),
    "refuse_pixel_loop_outside": (DEPTHWISE, "im2col@0.0.0"),
    "refuse_no_window": (MATMUL, "im2col@0"),
    "refuse_two_windows": (BOTH, "im2col@0"),
    "refuse_no_kernel": (POOL, "im2col@0"),
    "refuse_broadcast": (BROADCAST, "im2col@0"),
    "refuse_kernel_per_position": (LOCAL, "im2col@0"),
    "refuse_look_up": (LOOK_UP, "im2col@0"),
    "refuse_maximum": (MAXIMUM, "im2col@0"),
    "refuse_store": (MATMUL, "im2col@0.0.0.0"),
    "refuse_parameters": (CONV, "im2col@0:tile=2"),
}


@pytest.mark.parametrize("name", CASES)
def test_golden(name: str, update_goldens: bool) -> None:
    check_golden(STRATEGY, name, *CASES[name], update_goldens)


def test_no_orphan_goldens() -> None:
    check_no_orphans(STRATEGY, CASES)


@pytest.mark.parametrize(("text", "sites"), [(CONV, 2), (PADDED, 1), (DEPTHWISE, 2), (GROUPED, 2), (HALF, 1), (MATMUL, 0), (BOTH, 0), (LOCAL, 0)])
def test_every_site_keeps_the_bits(text: str, sites: int) -> None:
    subject = program(text)
    found = list(all_applied(STRATEGY, subject))
    assert len(found) == sites
    for site, step in found:
        check_step(subject, site, step)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("Y_col[i,p*R*S+q*S+r,k*OW+l]=", "Y_col[i,p*R*S+r*R+q,k*OW+l]="),
        ("Y_col[i,p*R*S+q*S+r,k*OW+l]=", "Y_col[i,p*R*S+q*S+r,l*OH+k]="),
        ("Y_col[i,p*R*S+q*S+r,k*OW+l]=", "Y_col[i,p*R*S+q+r,k*OW+l]="),
        ("Y_ker[j,p*R*S+q*S+r]=", "Y_ker[j,q*C*S+p*S+r]="),
        ("=x[i,p,k+q,l+r]", "=x[i,p,k+r,l+q]"),
        ("+=Y_col[i,k0,k*OW+l]", "+=Y_col[i,k0,l*OH+k]"),
        ("*Y_ker[j,k0]", "*Y_ker[j,C*R*S-1-k0]"),
        ("for j p q r Y_ker", "for j p:C-1 q:R r:S Y_ker"),
    ],
    ids=["rows transposed", "columns transposed", "rows overlap", "channels inside", "window turned", "position turned", "kernel mirrored", "channel left out"],
)
def test_wrong_unfoldings_are_not_proven(old: str, new: str) -> None:
    """The proof reads through flattened copies; a copy that another read would fit is no proof. (What is left out is unsafe: tier 1 sees it.)"""
    subject = program(CONV)
    step = engine.applied_or_raise(subject, "im2col@0")
    text = print_program(step.program)
    assert old in text
    child = parse(text.replace(old, new))
    assert step.instances is not None
    assert tier2(subject, step.program, step.instances, step.exactness).kind is VerdictKind.OK
    safe = tier1(child).kind is VerdictKind.OK
    assert not safe or tier2(subject, child, step.instances, step.exactness).kind is not VerdictKind.OK
