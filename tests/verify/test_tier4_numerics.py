"""Tier 4 on programs whose formulas agree over the reals: stable ones pass for one another, unstable ones are found with the input that breaks them."""

from __future__ import annotations

import numpy as np
import pytest

from steptp.ir import parse
from steptp.verify.tier4 import tier4
from steptp.verify.tier4_exact import ExactElements
from steptp.verify.tier4_inputs import default_regimes, make_inputs
from steptp.verify.tier4_oracle import reference
from steptp.verify.verdict import TierReport, VerdictKind

ROWS = "size N=8 K={k} T=16\nin X {t}[N,K]\nout Y {t}[N]\n"
SUM = ROWS + "for i:N k:K Y[i] += X[i,k]\n"
SUM_SPLIT = ROWS + "for i:N\n  tmp r {t}[T]\n  for kt:T ko:K//T r[kt] += X[i,ko*T+kt]\n  for kt:T Y[i] += r[kt]\n"
SUM_SHIFTED = ROWS + "for i:N k:K Y[i] += X[i,k]+100\nfor i:N Y[i] = Y[i]-100*{t}(K)\n"
LSE = ROWS + "tmp m {t}[N] s[N]\nfor i:N k:K m[i] max= X[i,k]\nfor i:N k:K s[i] += exp(X[i,k]-m[i])\nfor i:N Y[i] = m[i]+log(s[i])\n"
LSE_NO_MAX = ROWS + "tmp s {t}[N]\nfor i:N k:K s[i] += exp(X[i,k])\nfor i:N Y[i] = log(s[i])\n"
VAR = ROWS + "tmp m {t}[N]\nfor i:N k:K m[i] += X[i,k]\nfor i:N k:K Y[i] += (X[i,k]-m[i]/{t}(K))*(X[i,k]-m[i]/{t}(K))\n"
VAR_SQUARES = ROWS + "tmp m {t}[N] q[N]\nfor i:N k:K m[i] += X[i,k]\nfor i:N k:K q[i] += X[i,k]*X[i,k]\nfor i:N Y[i] = q[i]-m[i]*m[i]/{t}(K)\n"
WELFORD = ROWS + (
    "for i:N\n  tmp m {t}[] d[]\n  m[] = 0\n  Y[i] = 0\n  for k:K\n    d[] = X[i,k]-m[]\n    m[] = m[]+d[]/{t}(k+1)\n    Y[i] = Y[i]+d[]*(X[i,k]-m[])\n"
)
NORM = ROWS + (
    "tmp m {t}[N] s[N]\nfor i:N k:K m[i] max= abs(X[i,k])\nfor i:N k:K s[i] += select(m[i]==0,0,(X[i,k]/m[i])*(X[i,k]/m[i]))\nfor i:N Y[i] = m[i]*sqrt(s[i])\n"
)
NORM_NAIVE = ROWS + "tmp s {t}[N]\nfor i:N k:K s[i] += X[i,k]*X[i,k]\nfor i:N Y[i] = sqrt(s[i])\n"
DOT = "size N={n} K={k} T=8\nin A {t}[N,K] B[N,K]\nout C {t}[N]\n"
DOT_WIDE = DOT + "tmp r f32[N]\nfor i:N k:K r[i] += f32(A[i,k])*f32(B[i,k])\nfor i:N C[i] = {t}(r[i])\n"
DOT_BACK = DOT + "tmp r f32[N]\nfor i:N k:K r[i] += f32(A[i,K-1-k])*f32(B[i,K-1-k])\nfor i:N C[i] = {t}(r[i])\n"
DOT_NARROW = DOT + "for i:N k:K C[i] += A[i,k]*B[i,k]\n"
DOT_LANES = DOT + "tmp r {t}[N,T]\nfor i:N t:T k:K//T r[i,t] += A[i,k*T+t]*B[i,k*T+t]\nfor i:N t:T C[i] += r[i,t]\n"
SQUARES_WIDE = DOT + "tmp r f32[N]\nfor i:N k:K r[i] += f32(A[i,k])*f32(A[i,k])+f32(B[i,k])*f32(B[i,k])\nfor i:N C[i] = {t}(r[i])\n"
SQUARES_NARROW = DOT + "for i:N k:K C[i] += A[i,k]*A[i,k]+B[i,k]*B[i,k]\n"
MATMUL = "size N=8 K=64 L=8\nin A {t}[N,K] B[K,L]\nout C {t}[N,L]\nfor i:N j:L k:K C[i,j] += A[i,k]*B[k,j]\n"


def points(value: str) -> str:
    """A program that computes one formula of ``x`` and ``z`` at every point."""
    at = value.replace("$x", "X[i,k]").replace("$z", "Z[i,k]")
    return f"size N=4 K=96\nin X {{t}}[N,K] Z[N,K]\nout Y {{t}}[N,K]\nfor i:N k:K Y[i,k] = {at}\n"


def verdict(root: str, child: str, t: str = "f32", **more: int) -> TierReport:
    sizes = {"k": 256, "n": 8, **more}
    a, b = parse(root.format(t=t, **sizes)), parse(child.format(t=t, **sizes))
    return tier4(a, a, b, equal_over_reals=True)


UNSTABLE = {
    "logsumexp without its max": (LSE, LSE_NO_MAX),
    "variance by squares": (VAR, VAR_SQUARES),
    "norm without scaling": (NORM, NORM_NAIVE),
    "shifted sum": (SUM, SUM_SHIFTED),
    "log of exp": (points("$x+$z"), points("log(exp($x+$z))")),
    "log of 1+x": (points("log1p(abs($x))"), points("log(1+abs($x))")),
    "exp minus 1": (points("expm1($x)"), points("exp($x)-1")),
    "softplus": (points("max($x,0)+log1p(exp(-abs($x)))"), points("log1p(exp($x))")),
    "exponents apart": (points("exp($x-$z)"), points("exp($x)/exp($z)")),
    "1-cos": (points("2*sin($x/2)*sin($x/2)"), points("1-cos($x)")),
    "sine of a reduced argument": (points("sin($x)"), points("sin($x-6.2831853*round($x/6.2831853))")),
    "difference of roots": (points("1/(sqrt(1+abs($x))+sqrt(abs($x)))"), points("sqrt(1+abs($x))-sqrt(abs($x))")),
    "difference of squares": (points("($x-$z)*($x+$z)"), points("$x*$x-$z*$z")),
    "root of a product": (points("sqrt(abs($x))*sqrt(abs($z))"), points("sqrt(abs($x)*abs($z))")),
    "logarithm of a product": (points("log(abs($x)+1)+log(abs($z)+1)"), points("log((abs($x)+1)*(abs($z)+1))")),
    "mean that overflows": (points("$x/2+$z/2"), points("($x+$z)/2")),
    "there and back": (points("$x"), points("($x+$z)-$z")),
}
STABLE = {
    "logsumexp": (LSE_NO_MAX, LSE),
    "two-pass variance": (VAR_SQUARES, VAR),
    "running variance": (VAR, WELFORD),
    "scaled norm": (NORM_NAIVE, NORM),
    "split sum": (SUM, SUM_SPLIT),
    "joined sum": (SUM_SPLIT, SUM),
    "factored squares": (points("$x*$x-$z*$z"), points("($x-$z)*($x+$z)")),
    "half angles": (points("1-cos($x)"), points("2*sin($x/2)*sin($x/2)")),
    "sum of roots": (points("sqrt(1+abs($x))-sqrt(abs($x))"), points("1/(sqrt(1+abs($x))+sqrt(abs($x)))")),
    "sigmoid": (points("sigmoid($x)"), points("1/(1+exp(-$x))")),
}


@pytest.mark.parametrize("t", ["f32", "f64"])
@pytest.mark.parametrize("name", UNSTABLE)
def test_unstable_formulas_are_unsafe(name: str, t: str) -> None:
    report = verdict(*UNSTABLE[name], t)
    assert report.kind is VerdictKind.NUMERICALLY_UNSAFE, report.message
    failure = report.evidence["failure"]
    assert isinstance(failure, dict)
    assert report.counterexample is not None
    assert failure["child"] == report.counterexample.actual
    assert failure["regime"] in report.evidence["regimes"]  # type: ignore[operator]


@pytest.mark.parametrize("t", ["f32", "f64"])
@pytest.mark.parametrize("name", STABLE)
def test_stable_formulas_pass(name: str, t: str) -> None:
    report = verdict(*STABLE[name], t)
    assert report.kind is VerdictKind.OK, (report.message, report.evidence)


def test_long_sums_pass_in_either_form() -> None:
    assert verdict(SUM_SPLIT, SUM, k=16384).kind is VerdictKind.OK  # constant rows are rounded the same way every time
    assert verdict(SUM, SUM_SPLIT, k=16384).kind is VerdictKind.OK


@pytest.mark.parametrize("t", ["f16", "bf16"])
@pytest.mark.parametrize(("n", "k"), [(1, 64), (8, 64), (8, 4096)])
def test_narrow_accumulators_are_unsafe(t: str, n: int, k: int) -> None:
    assert verdict(DOT_WIDE, DOT_BACK, t, n=n, k=k).kind is VerdictKind.OK
    for root, child in ((DOT_WIDE, DOT_NARROW), (DOT_WIDE, DOT_LANES), (SQUARES_WIDE, SQUARES_NARROW)):
        report = verdict(root, child, t, n=n, k=k)
        assert report.kind in (VerdictKind.NUMERICALLY_UNSAFE, VerdictKind.NOT_EQUAL), (child, report.evidence)


@pytest.mark.parametrize("value", ["log($x)", "sqrt($x)", "($x*0)/($z*0)"])
def test_where_the_root_is_not_a_number_nothing_else_passes(value: str) -> None:
    root = points(value)
    assert verdict(root, root).kind is VerdictKind.OK
    report = verdict(root, points(f"select(isnan({value}),1,{value})"))
    assert report.kind is VerdictKind.NUMERICALLY_UNSAFE
    assert report.counterexample is not None
    assert report.counterexample.expected == "nan"


def test_lost_nan_inputs() -> None:
    root, child = (parse(points(v).format(t="f32")) for v in ("$x+0*$z", "select(isnan($z),$x,$x+0*$z)"))
    assert tier4(root, root, child).kind is VerdictKind.NUMERICALLY_UNSAFE
    assert tier4(root, root, child, equal_over_reals=True).kind is VerdictKind.OK  # equality over the reals says nothing of NaN


def test_an_oracle_beyond_f64_gives_way_to_exact_values() -> None:
    root = parse(LSE_NO_MAX.format(t="f32", k=32))
    known = reference(root, "wide", 0)
    assert known.anchor["beyond_f64"] == 3
    finite = np.isfinite(known.oracle["Y"])
    assert np.count_nonzero(finite) == 3
    np.testing.assert_allclose(known.oracle["Y"][finite], known.inputs["X"].max(axis=1)[finite], rtol=1e-6)
    assert np.array_equal(known.open["Y"], ~finite)


def test_the_oracle_of_f64_programs_is_anchored() -> None:
    root = parse(MATMUL.format(t="f64"))
    known = reference(root, "normal", 0)
    inputs = known.inputs
    assert known.anchor["elements"] in (7, 8)  # random ones may coincide
    assert 0 < float(str(known.anchor["worst_of_estimate"])) < 8
    exact = ExactElements(root, inputs).value("C", (7, 7))
    assert exact == known.oracle["C"][7, 7]
    assert exact == pytest.approx(float(np.dot(inputs["A"][7].astype(np.longdouble), inputs["B"][:, 7])), rel=1e-14)


def test_a_failure_names_the_inputs_it_needs() -> None:
    report = verdict(points("exp($x-$z)"), points("exp($x)/exp($z)"))
    failure = report.evidence["failure"]
    assert isinstance(failure, dict)
    assert len(failure["inputs"]) == 2
    root = parse(points("exp($x-$z)").format(t="f32"))
    given = make_inputs(root, failure["regime"], 0)
    i, k = failure["element"]
    assert failure["inputs"] == {f"X[{i},{k}]": repr(given["X"][i, k].item()), f"Z[{i},{k}]": repr(given["Z"][i, k].item())}
    assert float(failure["exact"]) == pytest.approx(np.exp(float(given["X"][i, k]) - float(given["Z"][i, k])), rel=1e-12)
    assert failure["condition"] > 1


def test_regimes_follow_the_operators() -> None:
    copy, soft = parse(points("max($x,$z)").format(t="f32")), parse(LSE.format(t="f32", k=32))
    assert set(default_regimes(copy)) == {"normal", "ties", "special", "masked"}
    assert {"large", "cancel", "huge", "offset"} <= default_regimes(soft).keys()
    assert "swamped" in default_regimes(parse(DOT_WIDE.format(t="f16", n=8, k=64)))
    assert "log" in default_regimes(copy, parse(points("log(exp($x))").format(t="f32")))["positive"]  # what only the child does can go wrong too


@pytest.mark.parametrize("t", ["f16", "bf16", "f32", "f64"])
def test_extreme_inputs_reach_both_ends(t: str) -> None:
    program = parse(SUM.format(t=t, k=64))
    top = {"f16": 65504.0, "bf16": 3.39e38, "f32": 3.4e38, "f64": 1.79e308}[t]
    normal = {"f16": 2.0**-14, "bf16": 2.0**-126, "f32": 2.0**-126, "f64": 2.0**-1022}[t]
    huge, small = (np.abs(make_inputs(program, regime, 1)["X"].astype(np.float64)) for regime in ("huge", "denormal"))
    assert np.isfinite(huge).all()
    assert huge.max() > top / 2
    assert 0 < small.min() < normal


def test_cancelling_inputs_cancel() -> None:
    program = parse(MATMUL.format(t="f32"))
    given = {name: value.astype(np.float64) for name, value in make_inputs(program, "cancel", 0).items()}
    result = np.abs(given["A"] @ given["B"])
    assert np.all(result < 0.1 * (np.abs(given["A"]) @ np.abs(given["B"])))


def test_inputs_that_follow_the_program_are_not_shared_by_programs_that_differ() -> None:
    """Extreme inputs make divisors extreme; a program of the same interface that does not divide must neither get them nor give its own away."""
    head = "in x f32[N=4,M=6] s[N]\nout Y[N,M]\nfor i j "
    divides, multiplies = parse(head + "Y[i,j]=x[i,j]/s[i]\n"), parse(head + "Y[i,j]=x[i,j]*s[i]\n")
    for first, second in ((divides, multiplies), (multiplies, divides)):
        made = {id(p): make_inputs(p, "denormal", 17 + (first is divides))["s"] for p in (first, second)}
        assert abs(made[id(divides)]).min() < 2.0**-126 < abs(made[id(multiplies)]).min()
