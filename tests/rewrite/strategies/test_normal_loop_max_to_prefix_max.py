"""normal_loop_max_to_prefix_max: the maximum of every prefix of a row."""

from __future__ import annotations

import numpy as np
import pytest
from rewrite_support import all_applied, check_all, check_golden, check_no_orphans, check_step, program

from steptp.interp import evaluate
from steptp.ir.sizes import rebind
from steptp.rewrite import engine
from steptp.verify.ladder import verify_step

STRATEGY = "normal_loop_max_to_prefix_max"
WHOLE = "size L=6\nin X f32[L]\nout m f32[]\nfor j:L m[] max= X[j]\n"
INTEGERS = "size N=3 L=5\nin X i32[N,L]\nout m i32[N]\nfor i:N j:L m[i] max= X[i,j]*2\n"
COLUMNS = "size N=3 L=5\nin X f32[N,L]\nout m f32[1,L]\nfor i:L j:N m[0,i] max= X[j,i]\n"
PRIVATE = (
    "size B=2 N=3 L=5\nin X f32[B,N,L]\nout Y f32[B,N]\nfor b:B\n tmp m f32[N]\n for i:N m[i] = 0\n for i:N Y[b,i] = m[i]\n"
    "for b:B\n tmp t f32[N]\n for i:N j:L t[i] max= X[b,i,j]\n for i:N Y[b,i] = t[i]\n"
)
PARALLEL = "size N=3 L=4\nin X f32[N,L]\nout m f32[N]\npar i:N for j:L m[i] max= X[i,j]\n"
BEHIND = "size L=4\nin X f32[L]\nout m f32[] y f32[]\nfor j:L m[] max= X[j]\nfor j:L y[] += X[j]-m[]\n"
ROW_OUTSIDE = "size N=3 L=4\nin X f32[N,L]\nout m f32[N]\nfor j:L i:N m[i] max= X[i,j]\n"
TWO_LOOPS = "size N=3 K=2 L=4\nin X f32[N,K,L]\nout m f32[N]\nfor i:N k:K l:L m[i] max= X[i,k,l]\n"
ACROSS = "size B=2 N=3 L=5\nin X f32[B,N,L]\nout Y f32[B,N]\ntmp m f32[N]\nfor b:B\n for i:N j:L m[i] max= X[b,i,j]\n for i:N Y[b,i] = m[i]\n"
CAUSAL = "size N=4\nin X f32[N,N]\nout m f32[N]\nfor i:N j:i+1 m[i] max= X[i,j]\n"
SHRINKS = "size N=3 L=5\nin X f32[N,L+2]\nout m f32[N]\nfor i:N j:L-2 m[i] max= X[i,j]\n"
UNROLLED = "size N=3 L=4\nin X f32[N,L]\nout m f32[N]\nfor i:N unroll j:L m[i] max= X[i,j]\n"
CASES = {
    "softmax": ("softmax", "@0"),
    "whole": (WHOLE, "@0"),
    "integers": (INTEGERS, "@0"),
    "columns": (COLUMNS, "@0"),
    "private": (PRIVATE, "@1.0"),
    "parallel": (PARALLEL, "@0"),
    "refuse_sum": ("softmax", "@1"),
    "refuse_inner_loop": ("softmax", "@0.0"),
    "refuse_row_outside": (ROW_OUTSIDE, "@0"),
    "refuse_two_loops": (TWO_LOOPS, "@0"),
    "refuse_across_batches": (ACROSS, "@0.0"),
    "refuse_varying_extent": (CAUSAL, "@0"),
    "refuse_extent_that_may_be_negative": (SHRINKS, "@0"),
    "refuse_unrolled": (UNROLLED, "@0"),
    "refuse_root": ("softmax", "@"),
    "refuse_params": ("softmax", "@0:at=1"),
}


@pytest.mark.parametrize("name", CASES)
def test_golden(name: str, update_goldens: bool) -> None:
    text, place = CASES[name]
    check_golden(STRATEGY, name, text, STRATEGY + place, update_goldens)


def test_no_orphan_goldens() -> None:
    check_no_orphans(STRATEGY, CASES)


def test_every_site_keeps_the_meaning() -> None:
    assert check_all(STRATEGY) == 1


@pytest.mark.parametrize("text", [WHOLE, INTEGERS, COLUMNS, PARALLEL, BEHIND])
def test_sites_of_the_cases(text: str) -> None:
    subject = program(text)
    ((site, step),) = all_applied(STRATEGY, subject)
    check_step(subject, site, step)


def test_a_private_maximum_gets_a_private_prefix_form() -> None:
    step = engine.applied_or_raise(program(PRIVATE), f"{STRATEGY}@1.0")
    assert [b.name for b in step.program.body[1].tmps] == ["t", "pm"]  # type: ignore[union-attr]


@pytest.mark.parametrize("row", [[np.nan, 1, 2], [1, np.nan, 2], [-np.inf] * 3, [0.0, -0.0, 0.0], [-0.0, 0.0, -0.0], [1, np.inf, np.nan]])
def test_special_values_give_the_same_bits(row: list[float]) -> None:
    subject = program("size L=3\nin X f32[L]\nout m f32[]\nfor j:L m[] max= X[j]\n")
    child = engine.applied_or_raise(subject, f"{STRATEGY}@0").program
    inputs = {"X": np.array(row, np.float32)}
    assert evaluate(subject, inputs)["m"].tobytes() == evaluate(child, inputs)["m"].tobytes()


def test_an_empty_row_keeps_its_value() -> None:
    subject = program("size N=2 L=3\nin X f32[N,L]\nout m f32[N]\nfor i:N j:L m[i] max= X[i,j]\n")
    child = engine.applied_or_raise(subject, f"{STRATEGY}@0").program
    out = evaluate(rebind(child, {"L": 0}), {"X": np.zeros((2, 0), np.float32)})
    assert (out["m"] == -np.inf).all()


def test_the_ladder_finds_equal_bits() -> None:
    subject = program("softmax")
    step = engine.applied_or_raise(subject, f"{STRATEGY}@0")
    verdict = verify_step(subject, step.program, applied=step)
    assert verdict.ok, verdict.message
    assert verdict.tier == 5
