"""linear_distribution: a sum of terms as a sum of sums, and back."""

from __future__ import annotations

import pytest
from rewrite_support import all_applied, check_golden, check_no_orphans, check_step, program

STRATEGY = "linear_distribution"
PAIR = (
    "in A f32[N=3,K=4] B C[K,M=2]\nout Y[N,M]\ntmp d e[N,M]\nfor i j k d[i,j]+=A[i,k]*B[k,j]\nfor i j k e[i,j]+=A[i,k]*C[k,j]\nfor i j Y[i,j]=d[i,j]-e[i,j]\n"
)
COMPLEX = PAIR.replace("e[i,j]+=A[i,k]*C[k,j]", "e[i,j]+=A[i,k]*A[0,k]*C[k,j]")
TRANSPOSED = PAIR.replace("for i j Y[i,j]=d[i,j]-e[i,j]", "for j i Y[i,j]=e[i,j]+d[i,j]")
DIFFERENCE = "in A f32[N=3,K=4] B C[K,M=2]\nout Y[N,M]\nfor i j k Y[i,j]+=A[i,k]*(B[k,j]-C[k,j])\n"
VARIANCE = "in X f32[N=3,K=4] m[N]\nout v[N]\nfor i j v[i]+=(X[i,j]-m[i])*(X[i,j]-m[i])\n"
COVARIANCE = "in X Z f32[N=3,K=4] m[N]\nout v[N]\nfor i j v[i]+=Z[i,j]*(X[i,j]-m[i])\n"
TOTAL = "in X Y f32[N=3]\nout s[]\nfor i s[]+=X[i]+Y[i]\n"
OTHER_EXTENT = "in A f32[N=3,K=4] B[K,M=2] C[L=4,M] D[N,L]\nout Y[N,M]\ntmp d e[N,M]\nfor i j k d[i,j]+=A[i,k]*B[k,j]\nfor i j k e[i,j]+=D[i,k]*C[k,j]\nfor i j Y[i,j]=d[i,j]-e[i,j]\n"
SQUARE = PAIR.replace("d[i,j]-e[i,j]", "d[i,j]-d[0,j]")
SCALED = PAIR.replace("d[i,j]-e[i,j]", "d[i,j]-2*e[i,j]")
USED = PAIR.replace("out Y[N,M]", "out Y Z[N,M]") + "for i j Z[i,j]=d[i,j]\n"
BIAS = PAIR.replace("for i j k e[i,j]+=A[i,k]*C[k,j]", "for i j e[i,j]=C[0,j]")
INFINITE = "in X Y f32[N=3]\nout s[]\nfor i s[]+=X[i]+1/Y[i]\n"
ONE_TERM = "in X Y f32[N=3]\nout s[]\nfor i s[]+=X[i]*Y[i]\n"
GUARDED = PAIR.replace("for i j Y[i,j]=d", "for i j Y[i,j]=0\nfor i j if j<=i: Y[i,j]=d")
PRODUCT = PAIR.replace("d[i,j]-e[i,j]", "d[i,j]*e[i,j]")
OVERWRITTEN = "in A f32[N=3,K=4] C[K,M=2]\nout Y[N,M]\ntmp b[K,M] d e[N,M]\nfor i j b[i,j]=C[0,j]\nfor i j k d[i,j]+=A[i,k]*b[k,j]\nfor i j b[i,j]=0\nfor i j k e[i,j]+=A[i,k]*C[k,j]\nfor i j Y[i,j]=d[i,j]-e[i,j]\n"
CASES = {
    "merge_common_factor": (PAIR, "linear_distribution@2:do=merge"),
    "merge_without_common_factor": (COMPLEX, "linear_distribution@2:do=merge"),
    "merge_other_loop_order": (TRANSPOSED, "linear_distribution@2:do=merge"),
    "split_factor": (DIFFERENCE, "linear_distribution@0:do=split"),
    "split_covariance": (COVARIANCE, "linear_distribution@0:do=split"),
    "split_total": (TOTAL, "linear_distribution@0:do=split"),
    "refuse_variance": (VARIANCE, "linear_distribution@0:do=split"),
    "refuse_other_loops": (OTHER_EXTENT, "linear_distribution@2:do=merge"),
    "refuse_same_sum": (SQUARE, "linear_distribution@2:do=merge"),
    "refuse_scaled": (SCALED, "linear_distribution@2:do=merge"),
    "refuse_used_elsewhere": (USED, "linear_distribution@2:do=merge"),
    "refuse_no_sum": (BIAS, "linear_distribution@2:do=merge"),
    "refuse_infinite": (INFINITE, "linear_distribution@0:do=split"),
    "refuse_one_term": (ONE_TERM, "linear_distribution@0:do=split"),
    "refuse_guard": (GUARDED, "linear_distribution@3:do=merge"),
    "refuse_product": (PRODUCT, "linear_distribution@2:do=merge"),
    "refuse_overwritten": (OVERWRITTEN, "linear_distribution@4:do=merge"),
    "refuse_store": (PAIR, "linear_distribution@2.0.0:do=merge"),
    "refuse_bad_site": (PAIR, "linear_distribution@2:do=both"),
}


@pytest.mark.parametrize("name", CASES)
def test_golden(name: str, update_goldens: bool) -> None:
    check_golden(STRATEGY, name, *CASES[name], update_goldens)


def test_no_orphan_goldens() -> None:
    check_no_orphans(STRATEGY, CASES)


@pytest.mark.parametrize(
    ("text", "sites"),
    [
        (PAIR, 1),
        (COMPLEX, 1),
        (TRANSPOSED, 1),
        (DIFFERENCE, 3),
        (COVARIANCE, 2),
        (VARIANCE, 0),
        (TOTAL, 1),
        (OTHER_EXTENT, 0),
        (SQUARE, 0),
        (USED, 0),
        (OVERWRITTEN, 0),
    ],
)
def test_every_site_keeps_the_meaning(text: str, sites: int) -> None:
    subject = program(text)
    found = list(all_applied(STRATEGY, subject))
    assert len(found) == sites
    for site, step in found:
        check_step(subject, site, step)


@pytest.mark.parametrize(("text", "site"), [(PAIR, "@2:do=merge"), (DIFFERENCE, "@0:do=split"), (COVARIANCE, "@0:do=split")])
def test_splitting_and_merging_undo_one_another(text: str, site: str) -> None:
    steps = {s.id: step for s, step in all_applied(STRATEGY, program(text))}
    assert steps[STRATEGY + site].inverse
