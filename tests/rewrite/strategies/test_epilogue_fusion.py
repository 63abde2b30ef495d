"""epilogue_fusion: pointwise tails behind a finished accumulation."""

from __future__ import annotations

import pytest
from moving_support import GEMM, after, check_everything
from rewrite_support import check_all, check_golden, check_no_orphans, program

from steptp.ir import program_hash
from steptp.rewrite import engine

STRATEGY = "epilogue_fusion"
TILED = after(GEMM, "loop_tiling@0:outer=2,inner=4,tail=exact")
TAIL = after(GEMM, "loop_tiling@0:outer=4,inner=3,tail=guard")
KTILED = after(TILED, "loop_split@0.0.0.0.0:factor=2,tail=guard", "loop_reorder@0.0.0.0.0:to=2")
CHAIN = GEMM.replace("tmp d[N,M]", "tmp d t[N,M]").replace("for i j Y[i,j]=max(d[i,j]+c[j],0)", "for i j t[i,j]=d[i,j]+c[j]\nfor i j Y[i,j]=max(t[i,j],0)")
CONV = "in X f32[C=2,P=6] F[O=3,C,R=3]\nout Y[O,N=P-R+1]\ntmp d[O,N]\nfor o i c r d[o,i]+=X[c,i+r]*F[o,c,r]\nfor o i Y[o,i]=d[o,i]*d[o,i]\n"
SUM = GEMM.replace("out Y[N,M]", "out Y[N]").replace("Y[i,j]=max(d[i,j]+c[j],0)", "Y[i]+=d[i,j]*c[j]")
POINTWISE = "in X f32[N=4,M=6]\nout Y[N,M]\ntmp t[N,M]\nfor i j t[i,j]=X[i,j]*2\nfor i j Y[i,j]=t[i,j]+1\n"
SOFTMAX_TAIL = "in X f32[N=4,M=6]\nout Y[N,M]\ntmp s[N]\nfor i j s[i]+=X[i,j]\nfor i j Y[i,j]=X[i,j]/s[i]\n"
CASES = {
    "gemm": (GEMM, "epilogue_fusion@1"),
    "tile": (TILED, "epilogue_fusion@1"),
    "tail": (TAIL, "epilogue_fusion@1"),
    "behind_tiled_reduction": (KTILED, "epilogue_fusion@1"),
    "first_of_two": (CHAIN, "epilogue_fusion@1"),
    "conv": (CONV, "epilogue_fusion@1"),
    "row": (SOFTMAX_TAIL, "epilogue_fusion@1"),
    "refuse_sum": (SUM, "epilogue_fusion@1"),
    "refuse_pointwise_producer": (POINTWISE, "epilogue_fusion@1"),
    "refuse_producer": (GEMM, "epilogue_fusion@0"),
    "refuse_params": (GEMM, "epilogue_fusion@1:at=0"),
}


@pytest.mark.parametrize("name", CASES)
def test_golden(name: str, update_goldens: bool) -> None:
    check_golden(STRATEGY, name, *CASES[name], update_goldens)


def test_no_orphan_goldens() -> None:
    check_no_orphans(STRATEGY, CASES)


def test_every_site_keeps_the_meaning() -> None:
    assert check_all(STRATEGY) >= 1


@pytest.mark.parametrize("text", [GEMM, TILED, TAIL, KTILED, CHAIN, CONV, SOFTMAX_TAIL])
def test_sites_of_the_cases(text: str) -> None:
    assert check_everything(STRATEGY, text) >= 1


def test_it_is_one_reverse_compute_at() -> None:
    subject = program(KTILED)
    step = engine.applied_or_raise(subject, "epilogue_fusion@1")
    same = engine.applied_or_raise(subject, "reverse_compute_at@1:at=0.0")
    assert program_hash(step.program) == program_hash(same.program)
