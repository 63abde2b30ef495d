"""tensor_split_to_decouple_operators: halves of a result, two tensors, partial results."""

from __future__ import annotations

import pytest
from moving_support import MATMUL, after, check_everything
from rewrite_support import check_all, check_golden, check_no_orphans, program

from steptp.rewrite import engine
from steptp.rewrite.base import Exactness

STRATEGY = "tensor_split_to_decouple_operators"
TAIL = after(MATMUL, "loop_split@0.0.0:factor=3,tail=guard")
OUTER_K = "in a f32[K=5,N=7] b[K,M=8]\nout Y[N,M]\nfor k i j Y[i,j]+=a[k,i]*b[k,j]\n"
QKV = "size L=3\nin x f32[N=4,K=5] W[M=2*L,K]\nout Y[N,L]\ntmp t[N,M]\nfor i j k t[i,j]+=x[i,k]*W[j,k]\nfor i j:L Y[i,j]=t[i,j]*t[i,j+L]\n"
ACROSS = QKV.replace("t[i,j+L]", "t[i,j+1]")
MAXIMUM = "in X f32[N=4,M=6]\nout Y[N]\nfor i j Y[i] max=X[i,j]\n"
INNER = "in X f32[R=2,N=4,M=6]\nout Y[R,N]\nfor r\n for i j Y[r,i]+=X[r,i,j]\n for i Y[r,i]=Y[r,i]*2\n"
SCAN = "in X f32[N=4,M=6]\nout Y[N,M]\nfor i j Y[i,j]=select(j>0,Y[i,j-1],0)+X[i,j]\n"
TRIANGLE = "in X f32[N=4,N]\nout Y[N]\nfor i j:i+1 Y[i]+=X[i,j]\n"
CARRY = "in X f32[N=4,M=6]\nout Y[N]\nfor i Y[i]=1\nfor i j carry Y[i]+=X[i,j]\n"
SKEW = "in X f32[N=4,M=6]\nout Y[N+M]\nfor i:N+M Y[i]=0\nfor i:N j Y[i+j]=X[i,j]\n"
OVERWRITES = "in X f32[N=4,M=6]\nout Y[N]\nfor i j Y[i]=X[i,j]\n"
ONE = "in X f32[N=1,M=6]\nout Y[N,M]\nfor i j Y[i,j]=X[i,j]\n"
TABLE = "size N=6 M=4\nin X f32[N,M]\nout Y f32[N,M]\ntmp T i64[N]\nfor i:N T[i]=N-i-1\nfor i:N j:M Y[i,j]=X[T[i],j]\n"
CASES = {
    "rows": (MATMUL, "tensor_split_to_decouple_operators@0:at=0,cut=half"),
    "columns": (MATMUL, "tensor_split_to_decouple_operators@0:at=0.0,cut=half"),
    "terms": (MATMUL, "tensor_split_to_decouple_operators@0:at=0.0.0,cut=half"),
    "terms_under_a_guard": (TAIL, "tensor_split_to_decouple_operators@0:at=0.0.0,cut=half"),
    "reset_before_all": (OUTER_K, "tensor_split_to_decouple_operators@0:at=0.0,cut=half"),
    "outer_terms": (OUTER_K, "tensor_split_to_decouple_operators@0:at=0,cut=half"),
    "two_tensors": (QKV, "tensor_split_to_decouple_operators@0:at=0.0,cut=reads"),
    "maximum": (MAXIMUM, "tensor_split_to_decouple_operators@0:at=0.0,cut=half"),
    "inside_a_loop": (INNER, "tensor_split_to_decouple_operators@0.0:at=0.0.0,cut=half"),
    "pointwise": (QKV, "tensor_split_to_decouple_operators@1:at=1.0,cut=half"),
    "refuse_straddling": (ACROSS, "tensor_split_to_decouple_operators@0:at=0.0,cut=reads"),
    "refuse_output_in_two": (MATMUL, "tensor_split_to_decouple_operators@0:at=0,cut=reads"),
    "refuse_no_boundary": (QKV, "tensor_split_to_decouple_operators@0:at=0,cut=reads"),
    "refuse_scan": (SCAN, "tensor_split_to_decouple_operators@0:at=0.0,cut=half"),
    "refuse_triangle": (TRIANGLE, "tensor_split_to_decouple_operators@0:at=0,cut=half"),
    "refuse_carry": (CARRY, "tensor_split_to_decouple_operators@1:at=1.0,cut=half"),
    "refuse_sum_of_loops": (SKEW, "tensor_split_to_decouple_operators@1:at=1.0,cut=half"),
    "refuse_overwrites": (OVERWRITES, "tensor_split_to_decouple_operators@0:at=0.0,cut=half"),
    "refuse_one": (ONE, "tensor_split_to_decouple_operators@0:at=0,cut=half"),
    "refuse_elsewhere": (QKV, "tensor_split_to_decouple_operators@0:at=1,cut=half"),
    "refuse_two_stores": (INNER, "tensor_split_to_decouple_operators@0:at=0,cut=half"),
    "refuse_table": (TABLE, "tensor_split_to_decouple_operators@0:at=0,cut=half"),
    "refuse_params": (MATMUL, "tensor_split_to_decouple_operators@0:at=0,cut=third"),
}


@pytest.mark.parametrize("name", CASES)
def test_golden(name: str, update_goldens: bool) -> None:
    check_golden(STRATEGY, name, *CASES[name], update_goldens)


def test_no_orphan_goldens() -> None:
    check_no_orphans(STRATEGY, CASES)


def test_every_site_keeps_the_meaning() -> None:
    assert check_all(STRATEGY) >= 15


@pytest.mark.parametrize("text", [MATMUL, TAIL, OUTER_K, QKV, MAXIMUM, INNER])
def test_sites_of_the_cases(text: str) -> None:
    assert check_everything(STRATEGY, text) >= 2


def test_the_class_depends_on_the_axis_and_the_operator() -> None:
    def of(text: str, site: str) -> Exactness:
        return engine.applied_or_raise(program(text), f"{STRATEGY}@0:{site}").exactness

    assert of(MATMUL, "at=0,cut=half") is Exactness.BITWISE
    assert of(MATMUL, "at=0.0.0,cut=half") is Exactness.REASSOCIATED
    assert of(MAXIMUM, "at=0.0,cut=half") is Exactness.BITWISE
