"""The vectorised oracle agrees with the specification, whatever the loops look like and however it is chunked."""

from __future__ import annotations

from unittest import mock

import numpy as np
import pytest
from eval_programs import PROGRAMS
from hypothesis import given, settings
from hypothesis import strategies as st
from leir_gen import random_program

from steptp.interp import EvalError, evaluate
from steptp.interp.fast_eval import _Runner, fast_evaluate
from steptp.interp.fast_expr import _BINARY, _UNARY
from steptp.interp.fast_plan import Planner
from steptp.ir import OPS, Loop, materialize, parse, rebind
from steptp.verify.regimes import float_inputs


@pytest.mark.parametrize("chunk", [1 << 21, 7, 1])
@pytest.mark.parametrize("name", sorted(PROGRAMS))
def test_agrees_with_the_specification(name: str, chunk: int) -> None:
    program = parse(PROGRAMS[name][0])
    inputs = float_inputs(program, "normal", 5)
    wanted = evaluate(program, inputs, dtype_override="f64")
    for output, value in fast_evaluate(program, inputs, chunk=chunk).items():
        assert value.dtype == wanted[output].dtype
        np.testing.assert_allclose(value, wanted[output], rtol=1e-12, atol=1e-12)


@given(st.integers(0, 10**6))
@settings(max_examples=60, deadline=None)
def test_agrees_on_random_programs(seed: int) -> None:
    program = random_program(seed)
    inputs = float_inputs(program, "mixed", seed)
    wanted = evaluate(program, inputs, dtype_override="f64")
    for chunk in (1 << 21, 3):
        for output, value in fast_evaluate(program, inputs, chunk=chunk).items():
            np.testing.assert_allclose(value, wanted[output], rtol=1e-9, atol=1e-9)


def _top(text: str, number: int = 0) -> tuple[Planner, Loop]:
    program = materialize(parse(text)).program
    loop = program.body[number]
    assert isinstance(loop, Loop)
    return Planner(program), loop


def test_carried_loops_are_not_axes() -> None:
    head = "size N=8\nin A f64[N]\nout Y f64[N]\n"
    for body, independent in (
        ("for i:N Y[i] = A[i]", True),
        ("for i:N if i==0: Y[i] = A[i]\nfor i:N if i>0: Y[i] = Y[i-1]+A[i]", True),
        ("for i:N//2\n Y[2*i] = A[i]\n Y[2*i+1] = -A[i]", True),
        ("for i:N//2\n Y[2*i] = A[i]\n if 2*i+2<N: Y[2*i+2] = A[i]", False),
        ("for i:N\n Y[0] = A[i]\n Y[i] = Y[0]", False),
    ):
        planner, loop = _top(head + body + "\n")
        assert planner.independent(loop) is independent, body
    planner, loop = _top(head + "for i:N if i==0: Y[i] = A[i]\nfor i:N if i>0: Y[i] = Y[i-1]+A[i]\n", 1)
    assert not planner.independent(loop)
    assert planner.nest(loop) is None


def test_a_store_that_is_not_injective_runs_serially() -> None:
    text = "size N=4\nin A f64[N]\nout Y f64[N]\nfor i:N Y[i] = 0\nfor i:N j:N carry Y[(i+j)%N] += A[j]\n"
    program = parse(text)
    inputs = float_inputs(program, "normal", 0)
    np.testing.assert_allclose(fast_evaluate(program, inputs)["Y"], evaluate(program, inputs)["Y"], rtol=1e-12)


def test_long_serial_statements_go_to_the_closure_evaluator() -> None:
    text = "size N=400\nin A f64[N]\nout Y f64[N] s[]\nfor i:N Y[i] = A[i]*2\ns[] = 1\nfor i:N s[] = s[]*0.5+Y[i]\n"
    program = parse(text)
    inputs = float_inputs(program, "normal", 0)
    with mock.patch.object(_Runner, "_closures", autospec=True, side_effect=_Runner._closures) as closures:
        out = fast_evaluate(program, inputs)
    assert closures.call_count == 1
    assert out["s"] == pytest.approx(float(evaluate(program, inputs)["s"]), rel=1e-12)


def test_reads_outside_arrays_are_found_unless_masked() -> None:
    program = parse("size N=4\nin A f64[N]\nout Y f64[N]\nfor i:N Y[i] = A[i+1]\n")
    with pytest.raises(EvalError, match="index"):
        fast_evaluate(program, {"A": np.zeros(4)})
    program = parse("size N=4\nin A f64[N]\nout Y f64[N]\nfor i:N Y[i] = select(i+1<N,A[i+1],9)\n")
    assert fast_evaluate(program, {"A": np.arange(4.0)})["Y"].tolist() == [1, 2, 3, 9]


def test_large_nests_stay_below_the_chunk() -> None:
    program = rebind(parse(PROGRAMS["matmul"][0]), {"N": 40, "K": 30, "L": 20})
    inputs = float_inputs(program, "normal", 0)
    with mock.patch.object(_Runner, "_store", autospec=True, side_effect=_Runner._store) as store:
        out = fast_evaluate(program, inputs, chunk=1000)
    volumes = [call.args[3].volume for call in store.call_args_list]
    assert max(volumes) <= 1000
    assert sum(volumes) == 40 * 30 * 20 + 40 * 20  # every instance once, and the reset
    np.testing.assert_allclose(out["Y"], inputs["A"] @ inputs["B"], rtol=1e-12)


def test_every_operator_is_in_a_table() -> None:
    logic = {"and", "or", "select"}
    assert set(_UNARY) | set(_BINARY) | logic == set(OPS)
