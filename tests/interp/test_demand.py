"""Demand-driven evaluation finds the same values as whole runs, touches little, and stops at its budget."""

from __future__ import annotations

import numpy as np
import pytest
from eval_programs import PROGRAMS
from hypothesis import given, settings
from hypothesis import strategies as st
from leir_gen import random_program

from steptp.interp import EvalError
from steptp.interp.demand import BudgetExceeded, DemandEvaluator
from steptp.interp.exact import Same, Undecided, compare_exact, evaluate_exact
from steptp.ir import Program, parse, rebind, shape_of
from steptp.verify.regimes import exact_inputs


def _agree(program: Program, regime: str, seed: int, most: int = 40) -> None:
    draws = exact_inputs(program, regime, seed)
    whole = evaluate_exact(program, {n: d.exact_list() for n, d in draws.items()})
    demand = DemandEvaluator(program, lambda name, flat: draws[name].exact(flat), 10**6)
    for buffer in program.outputs:
        shape = shape_of(buffer.shape, program)
        for flat, index in list(enumerate(np.ndindex(*shape)))[:most]:
            value, _ = demand.element(buffer.name, index)
            wanted = whole[buffer.name][flat]
            if buffer.dtype.is_float and (same := compare_exact(value, wanted)) is Same.UNDECIDED:
                raise Undecided  # as of exp(10000), whose ball is wider than what counts as equal
            assert same is Same.EQUAL if buffer.dtype.is_float else value == wanted, (buffer.name, index)


@pytest.mark.parametrize("regime", ["normal", "ties"])
@pytest.mark.parametrize("name", sorted(PROGRAMS))
def test_elements_equal_those_of_a_whole_run(name: str, regime: str) -> None:
    _agree(parse(PROGRAMS[name][0]), regime, 11)


@given(st.integers(0, 10**6), st.sampled_from(["normal", "ties"]))
@settings(max_examples=60, deadline=None)
def test_elements_of_random_programs(seed: int, regime: str) -> None:
    try:
        _agree(random_program(seed), regime, seed, 6)
    except Undecided:
        return


OVERWRITES = """size N=6 T=2
in X f64[N]
out Y f64[N]
tmp b f64[N] c f64[]
for i:N b[i] = X[i]
for k:3 i:N b[i] = b[N-1-i]*2+f64(k)
c[] = 0
for i:N//T
 for j:T if b[i*T+j]>0: b[i*T+j] = -b[i*T+j]
 carry c[] += b[i*T]
for i:N Y[i] = b[i]+c[]
"""


def test_overwritten_guarded_and_mirrored_elements() -> None:
    for regime in ("normal", "ties", "zeros"):
        _agree(parse(OVERWRITES), regime, 1)


def test_only_what_is_needed_is_touched() -> None:
    program = rebind(parse(PROGRAMS["matmul_tiled"][0]), {"N": 1000, "K": 300, "L": 1000, "T": 16})
    asked: set[tuple[str, int]] = set()
    draws = {"A": 1000 * 300, "B": 300 * 1000}

    def source(name: str, flat: int) -> object:
        assert 0 <= flat < draws[name]
        asked.add((name, flat))
        return exact_one

    from flint import fmpq

    exact_one = fmpq(1)
    demand = DemandEvaluator(program, source, 2000)
    assert demand.element("Y", (999, 1))[0] == 300
    assert asked == {("A", 999 * 300 + k) for k in range(300)} | {("B", k * 1000 + 1) for k in range(300)}
    assert demand.work < 1300


def test_budget_and_depth_end_in_a_value_not_a_hang() -> None:
    program = rebind(parse(PROGRAMS["softmax"][0]), {"N": 64, "L": 4096})
    draws = exact_inputs(program, "normal", 0)
    demand = DemandEvaluator(program, lambda name, flat: draws[name].exact(flat), 500)
    with pytest.raises(BudgetExceeded):
        demand.element("Y", (0, 0))
    assert demand.work <= 501
    chain = "size N=5000\nin X f64[N]\nout Y f64[N]\nfor i:N if i==0: Y[i] = X[i]\nfor i:N if i>0: Y[i] = Y[i-1]*0.5+X[i]\n"
    program = parse(chain)
    draws = exact_inputs(program, "normal", 0)
    demand = DemandEvaluator(program, lambda name, flat: draws[name].exact(flat), 10**6)
    assert demand.element("Y", (100,))[1] == 256  # a recurrence of this depth is fine
    with pytest.raises(BudgetExceeded):
        demand.element("Y", (4999,))


def test_undefined_elements_are_errors() -> None:
    program = parse("size N=3\nin A f64[N]\nout Y f64[N]\nfor i:N if i>0: Y[i] = A[i]\n")
    draws = exact_inputs(program, "normal", 0)
    demand = DemandEvaluator(program, lambda name, flat: draws[name].exact(flat))
    with pytest.raises(EvalError, match="before it is written"):
        demand.element("Y", (0,))
    assert demand.element("Y", (1,))[0] == draws["A"].exact(1)
