"""Unfolding one element, and locating the statement that fails."""

from __future__ import annotations

import numpy as np
import pytest

from steptp.interp.exact import ExactAlgebra, precision
from steptp.interp.faults import locate_fault
from steptp.interp.numpy_eval import FloatAlgebra, evaluate
from steptp.interp.trace import Term, Tracer
from steptp.ir import Program, parse

SOFTMAX = "in X f32[N=2,M=3]\nout Y[N,M]\ntmp m s[N]\nfor i j m[i] max=X[i,j]\nfor i j s[i]+=exp(X[i,j]-m[i])\nfor i j Y[i,j]=exp(X[i,j]-m[i])/s[i]\n"
SCAN = "in X f32[N=5]\nout Y[N]\nfor i if i==0: Y[i]=X[i]\nfor i:N-1 Y[i+1]=Y[i]*0.5+X[i+1]\n"
GATHER = "size V=4\nin T i32[N=3] 0..V X f32[V]\nout Y f32[N]\nfor i Y[i]=select(X[i64(T[i])]>0,X[i64(T[i])],0)\n"


def _traced(program: Program, output: str, index: tuple[int, ...]) -> tuple[Term, dict[str, np.ndarray]]:
    rng = np.random.default_rng(1)
    inputs = {b.name: rng.integers(0, 4, 3) if b.dtype.is_int else rng.normal(size=_shape(program, b.name)) for b in program.inputs}
    tracer = Tracer(program, lambda name, flat: inputs[name].flat[flat].item(), algebra=FloatAlgebra(wide=True))
    tracer.element(output, index)
    return tracer.trace(output, index), inputs


def _shape(program: Program, name: str) -> tuple[int, ...]:
    from steptp.ir.sizes import shape_of

    return next(shape_of(b.shape, program) for b in program.inputs if b.name == name)


def _all(term: Term) -> list[Term]:
    return [term, *(t for a in term.args for t in _all(a))]


@pytest.mark.parametrize(("text", "index"), [(SOFTMAX, (1, 2)), (SCAN, (4,)), (GATHER, (0,))])
def test_the_value_of_a_term_is_what_evaluation_gives(text: str, index: tuple[int, ...]) -> None:
    program = parse(text)
    term, inputs = _traced(program, "Y", index)
    assert term.value == evaluate(program, inputs, dtype_override="f64")["Y"][index]
    for part in _all(term):
        if part.head == "input" and part.element is not None:
            assert part.value == inputs[part.element[0]][part.element[1]]


def test_an_accumulation_is_one_term_of_its_runs() -> None:
    term, _ = _traced(parse(SOFTMAX), "Y", (1, 2))
    quotient = term.args[0]
    assert (quotient.head, quotient.text) == ("/", "exp(X[1,2]-m[1])/s[1]")
    total = quotient.args[1].args[0]
    assert (total.head, total.folded, len(total.args)) == ("+", True, 3)
    assert total.value == pytest.approx(sum(a.value for a in total.args))
    assert [a.instance.at for a in total.args if a.instance is not None] == [(("i", 1), ("j", n)) for n in range(3)]
    assert total.start is not None
    assert total.start.is_reset
    assert total.key == {("X", (1, n)) for n in range(3)}


def test_a_recurrence_opens_back_to_its_first_value() -> None:
    term, _ = _traced(parse(SCAN), "Y", (4,))
    assert term.key == {("X", (n,)) for n in range(5)}
    assert {t.instance.path for t in _all(term) if t.instance is not None} == {(0, 0, 0), (1, 0)}


def test_look_ups_count_among_the_inputs() -> None:
    term, inputs = _traced(parse(GATHER), "Y", (1,))
    assert term.key == {("T", (1,)), ("X", (int(inputs["T"][1]),))}


@pytest.mark.parametrize(
    ("text", "code", "path", "at", "is_reset"),
    [
        ("in X f32[N=3]\nout Y[N]\nfor i Y[i]=X[i+1]\n".replace("for i Y", "for i:N Y"), "eval-bounds", (0, 0), (("i", 2),), False),
        ("in X f32[N=3]\nout Y[N]\ntmp t[N]\nfor i t[i]=Y[i]\nfor i Y[i]=X[i]+t[i]\n", "eval-undefined", (0, 0), (("i", 0),), False),
        ("in X f32[N=3]\nout Y[N-1]\nfor i:N j:2 Y[i]+=X[i]\n", "eval-bounds", (0, 0, 0), (("i", 2),), True),
    ],
)
def test_the_run_that_fails_is_located(text: str, code: str, path: tuple[int, ...], at: tuple[tuple[str, int], ...], is_reset: bool) -> None:
    program = parse(text)
    with precision(256):
        found = locate_fault(program, ExactAlgebra(), {"X": [1, 2, 3]})
    assert found is not None
    err, run = found
    assert run is not None
    assert (err.code, run.path, run.at, run.is_reset) == (code, path, at, is_reset)


def test_an_unwritten_output_has_no_run_and_a_good_program_no_fault() -> None:
    found = locate_fault(parse("in X f32[N=3]\nout Y[N]\nfor i:N-1 Y[i]=X[i]\n"), FloatAlgebra(), {"X": [1.0, 2.0, 3.0]})
    assert found is not None
    assert (found[0].code, found[1]) == ("eval-undefined", None)
    assert locate_fault(parse("in X f32[N=3]\nout Y[N]\nfor i Y[i]=X[i]\n"), FloatAlgebra(), {"X": [1.0, 2.0, 3.0]}) is None
