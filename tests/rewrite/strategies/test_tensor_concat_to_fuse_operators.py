"""tensor_concat_to_fuse_operators: one nest for two computations, and for two halves of one."""

from __future__ import annotations

import pytest
from moving_support import MATMUL, after, check_everything
from rewrite_support import check_all, check_golden, check_no_orphans, program

from steptp.ir import program_hash
from steptp.rewrite import engine

STRATEGY = "tensor_concat_to_fuse_operators"
HALVES = after(MATMUL, "tensor_split_to_decouple_operators@0:at=0,cut=half")
OUTER_K = after("in a f32[K=5,N=7] b[K,M=8]\nout Y[N,M]\nfor k i j Y[i,j]+=a[k,i]*b[k,j]\n", "tensor_split_to_decouple_operators@0:at=0.0,cut=half")
GATED = "in x f32[N=3,K=5] W[M=4,K] V[M,K]\nout Y[N,M]\ntmp g u[N,M]\nfor i j k g[i,j]+=x[i,k]*W[j,k]\nfor i j k u[i,j]+=x[i,k]*V[j,k]\nfor i j Y[i,j]=sigmoid(g[i,j])*u[i,j]\n"
UNEQUAL = "in x f32[N=3,K=5] W[M=4,K] V[L=2,K]\nout Y[N] Z[N]\ntmp g[N,M] u[N,L]\nfor i j k g[i,j]+=x[i,k]*W[j,k]\nfor i j k u[i,j]+=x[i,k]*V[j,k]\nfor i j Y[i]+=g[i,j]\nfor i j Z[i]+=u[i,j]\n"
APART = GATED.replace("for i j k u", "for i j Z[i,j]=max(g[i,j],0)\nfor i j k u").replace("out Y[N,M]", "out Y Z[N,M]")
OTHER_K = "in x f32[N=3,K=5] z[N,L=4] W[M=4,K] V[M,L]\nout Y[N,M]\ntmp g u[N,M]\nfor i j k g[i,j]+=x[i,k]*W[j,k]\nfor i j k u[i,j]+=z[i,k]*V[j,k]\nfor i j Y[i,j]=g[i,j]*u[i,j]\n"
OTHER_SUM = GATED.replace("x[i,k]*V", "x[i,k]+V")
MADE_BETWEEN = (
    GATED.replace("V[M,K]\n", "v[M,K]\n").replace("tmp g u[N,M]", "tmp g u[N,M] V[M,K]").replace("for i j k u", "for i j V[i,j]=v[i,j]*2\nfor i j k u")
)
SAME_WEIGHT = GATED.replace("V[j,k]", "W[j,k]")
SQUARE = "in W f32[M=4,M] V[M,M]\nout Y[M,M]\ntmp g u[M,M]\nfor i j k g[i,j]+=W[j,k]*W[k,i]\nfor i j k u[i,j]+=V[j,k]*W[k,i]\nfor i j Y[i,j]=g[i,j]*u[i,j]\n"
PART = GATED.replace("W[M=4,K] V[M,K]", "W[P=5,K] V[P,K]").replace("Y[N,M]", "Y[N,M=4]").replace("i j k", "i j:M k")
NOT_HALVES = HALVES.replace("b[k,j]\nfor", "b[k,j]\nfor", 1).replace("carry Y[i+N//2,j]+=a[i+N//2,k]", "carry Y[i+N//2,j]+=2*a[i+N//2,k]")
FEEDS = "in X f32[N=3,K=5]\nout Y[N,K]\ntmp g u[N,K]\nfor i j g[i,j]=X[i,j]*2\nfor i j u[i,j]=g[i,j]*2\nfor i j Y[i,j]=u[i,j]\n"
CASES = {
    "gated": (GATED, "tensor_concat_to_fuse_operators@0:at=0.0,other=1"),
    "unequal_lengths": (UNEQUAL, "tensor_concat_to_fuse_operators@0:at=0.0,other=1"),
    "apart": (APART, "tensor_concat_to_fuse_operators@0:at=0.0,other=2"),
    "halves": (HALVES, "tensor_concat_to_fuse_operators@0:at=0"),
    "halves_and_a_reset": (OUTER_K, "tensor_concat_to_fuse_operators@0:at=0.0"),
    "refuse_other_terms": (OTHER_K, "tensor_concat_to_fuse_operators@0:at=0.0,other=1"),
    "refuse_other_operator": (OTHER_SUM, "tensor_concat_to_fuse_operators@0:at=0.0,other=1"),
    "refuse_operand_made_between": (MADE_BETWEEN, "tensor_concat_to_fuse_operators@0:at=0.0,other=2"),
    "refuse_same_operand": (SAME_WEIGHT, "tensor_concat_to_fuse_operators@0:at=0.0,other=1"),
    "refuse_operand_without_the_axis": (SQUARE, "tensor_concat_to_fuse_operators@0:at=0.0,other=1"),
    "refuse_part_of_an_operand": (PART, "tensor_concat_to_fuse_operators@0:at=0.0,other=1"),
    "refuse_shared_axis": (GATED, "tensor_concat_to_fuse_operators@0:at=0,other=1"),
    "refuse_output": (GATED, "tensor_concat_to_fuse_operators@0:at=0.0,other=2"),
    "refuse_other_half": (NOT_HALVES, "tensor_concat_to_fuse_operators@0:at=0"),
    "refuse_nothing_behind": (MATMUL, "tensor_concat_to_fuse_operators@0:at=0"),
    "refuse_before": (GATED, "tensor_concat_to_fuse_operators@1:at=1.0,other=0"),
    "refuse_place": (GATED, "tensor_concat_to_fuse_operators@0:at=1,other=1"),
    "refuse_one_feeds_the_other": (FEEDS, "tensor_concat_to_fuse_operators@0:at=0,other=1"),
    "refuse_params": (GATED, "tensor_concat_to_fuse_operators@0:other=1"),
}


@pytest.mark.parametrize("name", CASES)
def test_golden(name: str, update_goldens: bool) -> None:
    check_golden(STRATEGY, name, *CASES[name], update_goldens)


def test_no_orphan_goldens() -> None:
    check_no_orphans(STRATEGY, CASES)


def test_every_site_keeps_the_meaning() -> None:
    assert check_all(STRATEGY) == 0  # the small programs hold no two nests of one computation


@pytest.mark.parametrize("text", [GATED, UNEQUAL, APART, HALVES, OUTER_K])
def test_sites_of_the_cases(text: str) -> None:
    assert check_everything(STRATEGY, text) >= 1


def test_it_undoes_a_split_and_the_split_undoes_it() -> None:
    subject = program(MATMUL)
    split = engine.applied_or_raise(subject, "tensor_split_to_decouple_operators@0:at=0.0,cut=half")
    joined = engine.applied_or_raise(split.program, split.inverse[0])
    assert program_hash(joined.program) == program_hash(subject)
    assert program_hash(engine.applied_or_raise(joined.program, joined.inverse[0]).program) == program_hash(split.program)
