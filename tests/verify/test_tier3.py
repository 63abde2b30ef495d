"""Tier 3 accepts what is equal over the reals and nothing else, and its counterexamples can be checked by hand."""

from __future__ import annotations

import numpy as np
import pytest
from eval_programs import ARGMAX, CONV, CUMSUM, IMPERFECT, LAYERNORM, LOOKUP, MATMUL, MATMUL_TILED, ONLINE_SOFTMAX, PEELED, PROGRAMS, SOFTMAX, TRIANGLE
from flint import arb, fmpq
from hypothesis import given, settings
from hypothesis import strategies as st
from leir_gen import random_program

from steptp.interp import evaluate, reals
from steptp.ir import DType, Load, Loop, Program, Stmt, Store, Var, op, parse
from steptp.verify import tier3 as tier3_module
from steptp.verify.bindings import apply_binding
from steptp.verify.regimes import exact_inputs, float_inputs
from steptp.verify.tier3 import Budget, clear_cache, tier3
from steptp.verify.verdict import Counterexample, TierReport, VerdictKind


@pytest.fixture(autouse=True)
def _fresh() -> object:
    clear_cache()
    yield
    clear_cache()


def check(parent: str, child: str, **kwargs: object) -> TierReport:
    return tier3(parse(parent), parse(child), **kwargs)  # type: ignore[arg-type]


def recheck(parent: Program, child: Program, found: Counterexample) -> tuple[float, float]:
    """Both values at a counterexample, by the NumPy evaluator in f64 on the inputs that it names."""
    sizes = dict(found.sizes)
    values = []
    for program in (parent, child):
        bound = apply_binding(program, sizes)
        inputs = {n: d.array() for n, d in exact_inputs(bound, found.regime, found.seed).items()}
        values.append(float(evaluate(bound, inputs, dtype_override="f64")[found.output][found.index]))
    return values[0], values[1]


SAFE_LAYERNORM = LAYERNORM.replace("v[i] += (X[i,j]-u[i])*(X[i,j]-u[i])/f64(D)\n", "w[i] += X[i,j]*X[i,j]/f64(D)\nfor i:N v[i] = w[i]-u[i]*u[i]\n").replace(
    "v[N]", "v[N] w[N]"
)
SPLIT_K = MATMUL.replace("K=5", "K=5 T=2").replace(
    "for i:N j:L k:K Y[i,j] += A[i,k]*B[k,j]",
    "for i:N j:L k:K//T k1:T Y[i,j] += A[i,k*T+k1]*B[k*T+k1,j]\nfor i:N j:L k1:K%T carry Y[i,j] += A[i,K//T*T+k1]*B[K//T*T+k1,j]",
)
NO_MAX = SOFTMAX.replace("-m[i]", "").replace("for i:N j:L m[i] max= X[i,j]\n", "").replace("m f64[N] s[N]", "s f64[N]")

EQUAL = {
    "itself": (MATMUL, MATMUL),
    "tiled with a tail guard": (MATMUL, MATMUL_TILED),
    "split reduction with a peeled tail": (MATMUL, SPLIT_K),
    "softmax without its max": (SOFTMAX, NO_MAX),
    "online softmax": (SOFTMAX, ONLINE_SOFTMAX),
    "variance as a difference": (LAYERNORM, SAFE_LAYERNORM),
    "swapped factors": (MATMUL, MATMUL.replace("A[i,k]*B[k,j]", "B[k,j]*A[i,k]")),
    "rsqrt as a quotient": (LAYERNORM, LAYERNORM.replace("*rsqrt(v[i]+1e-5)", "/sqrt(v[i]+1e-5)")),
    "distributed": (MATMUL, MATMUL.replace("A[i,k]*B[k,j]", "(A[i,k]*3-A[i,k]*2)*B[k,j]")),
    "argmax backwards": (
        ARGMAX,
        ARGMAX.replace("if X[i,j]>b[i]:", "if X[i,L-1-j]>=b[i]:").replace("= j", "= L-1-j").replace("b[i] = X[i,j]", "b[i] = X[i,L-1-j]"),
    ),
    "inner temporary": (CUMSUM, "size N=3 T=6\nin X f64[N,T]\nout Y f64[N,T]\nfor t:T i:N u:t+1 Y[i,t] += X[i,u]\n"),
    "triangle as a guard": (TRIANGLE, TRIANGLE.replace("j:i+1 Y", "j:N if j<=i: Y")),
    "sigmoid by its formula": (
        "size N=4\nin X f64[N]\nout Y f64[N]\nfor i:N Y[i] = sigmoid(X[i])*X[i]\n",
        "size N=4\nin X f64[N]\nout Y f64[N]\nfor i:N Y[i] = X[i]/(1+exp(-X[i]))\n",
    ),
    "tanh by exponentials": (
        "size N=4\nin X f64[N]\nout Y f64[N]\nfor i:N Y[i] = tanh(X[i])\n",
        "size N=4\nin X f64[N]\nout Y f64[N]\nfor i:N Y[i] = 1-2/(exp(2*X[i])+1)\n",
    ),
}


@pytest.mark.parametrize("name", sorted(EQUAL))
def test_equal_programs_are_accepted(name: str) -> None:
    report = check(*EQUAL[name])
    assert report.kind is VerdictKind.OK, report.message
    assert report.message.startswith("equal at ")
    assert report.evidence["undecided"] == []
    assert report.counterexample is None


WRONG = {
    "off by one bound": (MATMUL, MATMUL.replace("k:K Y", "k:K-1 Y")),
    "off by one index": (CUMSUM, CUMSUM.replace("+= X[i,t]", "+= X[i,max(t-1,0)]")),
    "dropped tail": (PEELED, PEELED.replace("for j:N%T carry s[] += X[N//T*T+j]\n", "")),
    "wrong tail": (PEELED, PEELED.replace("carry s[] += X[N//T*T+j]", "carry s[] += X[N//T*T]")),
    "tail counted twice": (PEELED, PEELED.replace("for i:N//T*T s", "for i:N s")),
    "missing carry": (SPLIT_K, SPLIT_K.replace("k1:T Y[i,j] +=", "k1:T if k>0: Y[i,j] +=")),
    "wrong axis": (SOFTMAX, SOFTMAX.replace("exp(X[i,j]-m[i])/s[i]", "exp(X[i,j]-m[i])/s[j%N]")),
    "min for max": (IMPERFECT, IMPERFECT.replace("t[] max=", "t[] min=")),
    "dropped eps": (LAYERNORM, LAYERNORM.replace("+1e-5", "")),
    "wrong eps": (LAYERNORM, LAYERNORM.replace("1e-5", "1.1e-5")),
    "swapped operands": (LAYERNORM, LAYERNORM.replace("(X[i,j]-u[i])*rsqrt", "(u[i]-X[i,j])*rsqrt")),
    "dropped bias": (LAYERNORM, LAYERNORM.replace("+B[j]", "")),
    "last of equal maxima": (ARGMAX, ARGMAX.replace("X[i,j]>b[i]", "X[i,j]>=b[i]")),
    "no padding": (CONV, CONV.replace("h+r>=1 and", "h+r>=0 and").replace("X[c,h+r-1", "X[c,max(h+r-1,0)")),
    "strict triangle": (TRIANGLE, TRIANGLE.replace("j:i+1 Y", "j:i Y")),
    "wrong row of a table": (LOOKUP, LOOKUP.replace("E[T[i],d]", "E[T[N-1-i],d]")),
    "stale scale": (ONLINE_SOFTMAX, ONLINE_SOFTMAX.replace("s[]*select(m[]==n[],1,exp(m[]-n[]))", "s[]")),
    "tiny constant": (MATMUL, MATMUL.replace("A[i,k]*B[k,j]", "A[i,k]*B[k,j]*1.000000000000001")),
    "relu for identity": (MATMUL, MATMUL.replace("A[i,k]*B", "max(A[i,k],0)*B")),
    "clamp that is never reached by small values": (MATMUL, MATMUL.replace("A[i,k]*B", "min(A[i,k],6)*B")),
}


@pytest.mark.parametrize("name", sorted(WRONG))
def test_wrong_variants_are_rejected_with_a_true_counterexample(name: str) -> None:
    parent, child = parse(WRONG[name][0]), parse(WRONG[name][1])
    report = tier3(parent, child)
    assert report.kind is VerdictKind.NOT_EQUAL, report.message
    found = report.counterexample
    assert found is not None
    assert found.expected != found.actual
    a, b = recheck(parent, child, found)
    assert a != b
    for shown, value in ((found.expected, a), (found.actual, b)):
        text = shown.split(" = ")[-1]
        number = float(fmpq(*map(int, text.split("/")))) if "/" in text else float(text)
        assert number == pytest.approx(value, rel=1e-9)


def test_counterexamples_are_small_and_repeatable() -> None:
    first, second = (check(SOFTMAX, SOFTMAX.replace("s[i] += exp(X[i,j]-m[i])", "s[i] += exp(X[i,j])")) for _ in range(2))
    assert first.counterexample == second.counterexample
    assert first.counterexample is not None
    assert max(v for _, v in first.counterexample.sizes) <= 7
    other = check(SOFTMAX, SOFTMAX.replace("s[i] += exp(X[i,j]-m[i])", "s[i] += exp(X[i,j])"), seed=1)
    assert other.kind is VerdictKind.NOT_EQUAL
    assert other.counterexample != first.counterexample


def test_a_difference_only_at_the_real_size_is_found_there() -> None:
    child = MATMUL.replace("N=6", "N=100").replace("A[i,k]*B[k,j]", "select(N>=100,2*A[i,k],A[i,k])*B[k,j]")
    report = check(MATMUL.replace("N=6", "N=100"), child)
    assert report.kind is VerdictKind.NOT_EQUAL
    assert report.counterexample is not None
    assert dict(report.counterexample.sizes)["N"] == 100
    assert "real sizes" in report.counterexample.note


def test_real_sizes_are_sampled_within_the_budget_and_said_so() -> None:
    big = MATMUL.replace("N=6 K=5 L=4", "N=512 K=64 L=512")
    report = check(big, big.replace("A[i,k]*B[k,j]", "B[k,j]*A[i,k]"))
    assert report.kind is VerdictKind.OK
    assert report.evidence["real_elements"] == 5  # two corners and three random elements
    report = check(big, big, budget=Budget(element=50))
    assert report.kind is VerdictKind.OK
    assert report.evidence["real_elements"] == 0
    assert "tier 4" in str(report.evidence["real_note"])


def test_all_tile_shapes_are_bound() -> None:
    report = check(MATMUL, MATMUL_TILED)
    covers = {c for b in report.evidence["bindings"] for c in b["covers"]}  # type: ignore[attr-defined]
    assert covers == {"full", "tail", "short"}
    for binding in report.evidence["bindings"]:  # type: ignore[attr-defined]
        whole, rest = divmod(binding["sizes"]["N"], binding["sizes"]["T"])
        assert {"full": whole >= 2 and not rest, "tail": whole >= 2 and bool(rest), "short": whole == 0}[binding["covers"][0]]


def test_a_child_that_reads_or_leaves_undefined_elements_is_unsafe() -> None:
    for child in (MATMUL.replace("A[i,k]", "A[i+1,k]"), MATMUL_TILED.replace("(N+T-1)//T", "N//T")):
        report = check(MATMUL, child)
        assert report.kind is VerdictKind.UNSAFE_MEMORY
        assert "the child has no value" in report.message


def test_another_interface_is_malformed() -> None:
    for child in (MATMUL.replace("f64[N,L]", "f32[N,L]").replace("A[i,k]*B[k,j]", "f32(A[i,k]*B[k,j])"), MATMUL.replace("N=6", "N=7")):
        assert check(MATMUL, child).kind is VerdictKind.MALFORMED


UNDECIDABLE = "size N=4\nin X f64[N]\nout Y f64[N]\nfor i:N Y[i] = select({},1,2)\n"


def test_an_open_branch_is_unknown_never_a_guess() -> None:
    same = UNDECIDABLE.format("exp(X[i])*exp(-X[i])>=1")
    report = check(same, same)
    assert report.kind is VerdictKind.UNKNOWN
    assert report.evidence["undecided"]
    decided = UNDECIDABLE.format("exp(X[i])*exp(-X[i])>=0.5")
    assert check(decided, decided).kind is VerdictKind.OK


def test_a_ball_around_zero_is_not_equal_to_zero() -> None:
    text = "size N=4\nin X f64[N]\nout Y f64[N]\nfor i:N Y[i] = {}\n"
    report = check(text.format("X[i]-X[i]"), text.format("log(exp(X[i]))-X[i]"))
    assert report.kind is VerdictKind.UNKNOWN


def test_a_regime_in_which_everything_cancels_is_left_to_the_others() -> None:
    """Equal rows have no divergence: there both sides are balls around zero, which decide nothing."""
    text = "size N=3 K=4\nin X f64[N,K]\nout Y f64[N]\nfor i j Y[i] += {}\n"
    parent = text.format("exp(X[i,j])*(X[i,j]-log(exp(X[i,0])))")
    report = check(parent, text.format("exp(X[i,j])*X[i,j]-exp(X[i,j])*log(exp(X[i,0]))"), regimes=("normal", "constant_rows"))
    assert report.kind is VerdictKind.OK, report.message
    assert report.evidence["near_zero"]
    other = text.format("exp(X[i,j])*X[i,j]-exp(X[i,j])*log(exp(X[i,1]))")
    assert check(parent, other, regimes=("normal", "constant_rows")).kind is VerdictKind.NOT_EQUAL
    assert check(parent, parent.replace("exp(X[i,j])*", "2*exp(X[i,j])/2*"), regimes=("constant_rows",)).kind is VerdictKind.UNKNOWN


def test_nan_is_no_wild_card() -> None:
    text = "size N=4\nin X f64[N]\nout Y f64[N]\nfor i:N Y[i] = {}\n"
    assert check(text.format("X[i]"), text.format("nan*X[i]")).kind is VerdictKind.NOT_EQUAL
    assert check(text.format("0/(X[i]-X[i])"), text.format("nan*X[i]")).kind is VerdictKind.UNKNOWN  # nothing finite was compared
    assert check(text.format("sqrt(X[i])"), text.format("pow(X[i],0.5)")).kind is VerdictKind.OK
    assert check(text.format("1/X[i]"), text.format("select(X[i]==0,0,1/X[i])")).kind is VerdictKind.NOT_EQUAL


def test_the_verdict_rests_on_the_ball_operations(monkeypatch: pytest.MonkeyPatch) -> None:
    """Breaking one operation on purpose moves verdicts both ways."""
    wrong = SOFTMAX.replace("s[i] += exp(X[i,j]-m[i])", "s[i] += exp(X[i,j])")
    assert check(SOFTMAX, NO_MAX).kind is VerdictKind.OK
    assert check(SOFTMAX, wrong).kind is VerdictKind.NOT_EQUAL
    monkeypatch.setattr(reals, "exp", lambda x: fmpq(1))
    clear_cache()
    assert check(SOFTMAX, wrong).kind is VerdictKind.OK
    monkeypatch.setattr(reals, "exp", lambda x: arb(1) + x)
    clear_cache()
    assert check(SOFTMAX, NO_MAX).kind is VerdictKind.NOT_EQUAL


@pytest.mark.parametrize("broken", ["add", "mul", "exp", "maximum"])
def test_kills_fall_when_an_operation_is_broken(monkeypatch: pytest.MonkeyPatch, broken: str) -> None:
    def kills() -> int:
        clear_cache()
        return sum(check(*pair).kind is VerdictKind.NOT_EQUAL for pair in WRONG.values())

    monkeypatch.setattr(reals, broken, lambda *operands: fmpq(0))
    assert kills() < len(WRONG)


def test_parents_are_evaluated_once(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[Program] = []
    real = tier3_module._evaluate

    def counting(program: Program, *rest: object) -> object:
        calls.append(program)
        return real(program, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(tier3_module, "_evaluate", counting)
    parent, child = parse(SOFTMAX), parse(ONLINE_SOFTMAX)
    tier3(parent, child)
    first = len(calls)
    tier3(parent, child)
    assert 0 < len(calls) - first < first
    assert all(p is child for p in calls[first:])


def test_dtypes_are_ignored_but_integers_are_not() -> None:
    """f16 accumulation equals f32 accumulation over the reals (tier 4 judges rounding); a wrapped index does not."""
    f32 = MATMUL.replace("f64", "f32")
    f16 = f32.replace("Y[i,j] += A[i,k]*B[k,j]", "Y[i,j] += f32(f16(A[i,k])*f16(B[k,j]))")
    assert check(f32, f16).kind is VerdictKind.OK
    count = "size N=5\nin T i32[N] 0..N\nout C i64[N]\nfor i:N C[i] = 0\nfor i:N carry C[i64(T[i])] += 1\n"
    assert check(count, count).kind is VerdictKind.OK
    assert check(count, count.replace("+= 1", "+= 2")).kind is VerdictKind.NOT_EQUAL


@pytest.mark.parametrize("name", sorted(PROGRAMS))
def test_every_program_equals_itself_in_f32(name: str) -> None:
    text = PROGRAMS[name][0].replace("f64", str(DType.F32))
    assert check(text, text).kind is VerdictKind.OK


@given(st.integers(0, 10**6))
@settings(max_examples=25, deadline=None)
def test_random_programs_equal_themselves_and_differ_from_a_shifted_copy(seed: int) -> None:
    program = random_program(seed)
    assert tier3(program, program).kind in (VerdictKind.OK, VerdictKind.UNKNOWN)
    target = next((b for b in program.outputs if b.dtype.is_float and b.shape), None)
    if target is None:
        return
    at = tuple(Var(f"z{n}") for n in range(len(target.shape)))
    shift: Stmt = Store(target.name, at, op("+", Load(target.name, at, target.dtype), 1))
    for var, extent in reversed(list(zip(at, target.shape, strict=True))):
        shift = Loop(var.name, extent, (shift,))
    report = tier3(program, program.with_(body=(*program.body, shift)))
    wanted = float_inputs(program, "normal", seed)
    if np.isfinite(evaluate(program, wanted, dtype_override="f64")[target.name]).all():
        assert report.kind is VerdictKind.NOT_EQUAL, report.message


def test_an_element_that_cancels_in_one_draw_is_drawn_again() -> None:
    """Rows of equal entries make w/|w|*(x-y) cancel to a ball around zero in some draws of the tie regime, not in all."""
    text = "size N=4 K=2\nin W f64[N,K] X f64[K]\nout Y f64[N]\ntmp s f64[N]\nfor i:N k:K s[i] += W[i,k]*W[i,k]\nfor i:N k:K Y[i] += W[i,k]/sqrt(s[i]+2)*X[k]\n"
    report = check(text, text.replace("W[i,k]/sqrt(s[i]+2)*X[k]", "X[k]*W[i,k]*rsqrt(s[i]+2)"))
    assert report.kind is VerdictKind.OK, report.message


def test_inputs_of_a_counterexample_come_from_its_regime() -> None:
    report = check(ARGMAX, ARGMAX.replace("X[i,j]>b[i]", "X[i,j]>=b[i]"))
    assert report.counterexample is not None
    assert report.counterexample.regime in ("ties", "zeros", "constant_rows", "clamped")  # a difference that needs equal maxima
    bound = apply_binding(parse(ARGMAX), dict(report.counterexample.sizes))
    row = exact_inputs(bound, report.counterexample.regime, report.counterexample.seed)["X"].array()[report.counterexample.index[0]]
    assert np.count_nonzero(row == row.max()) > 1
