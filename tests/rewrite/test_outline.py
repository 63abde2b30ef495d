"""The quick test for programs that are not the same: it may stay silent, but never claims a difference that is none."""

from __future__ import annotations

import random

import pytest

from steptp.frontend import zoo
from steptp.ir import parse, program_hash
from steptp.rewrite import engine
from steptp.rewrite.base import Applied
from steptp.rewrite.outline import surely_differ

ROOT = """
in x f32[N=8,M=6]
out Y[N]
tmp t[N,M]
for i j t[i,j]=exp(x[i,j])+1
for i j Y[i]+=t[i,j]
"""


def test_names_make_no_difference() -> None:
    other = parse(ROOT.replace("t[", "u[").replace("for i j", "for a b").replace("[i,j]", "[a,b]").replace("Y[i]+", "Y[a]+"))
    assert program_hash(other) == program_hash(parse(ROOT))
    assert not surely_differ(parse(ROOT), other)


@pytest.mark.parametrize(
    ("old", "new"),
    [("exp(x", "sqrt(x"), ("+1", "+2"), ("+=", " max="), ("M=6", "M=7"), ("x[i,j])+1", "x[i,j])"), ("for i j t", "par i for j t")],
)
def test_what_is_not_a_name_makes_one(old: str, new: str) -> None:
    assert surely_differ(parse(ROOT), parse(ROOT.replace(old, new)))


@pytest.mark.parametrize("name", ["softmax", "gemm_bias_relu", "layer_norm", "conv2d"])
def test_steps_that_differ_for_certain_have_other_hashes(name: str) -> None:
    rng = random.Random(name)
    program = zoo.get(name, "tiny").program
    claimed = 0
    for site in rng.sample(engine.sites(program).sites, 24):
        outcome = engine.apply(program, site)
        assert isinstance(outcome, Applied), site.id
        if surely_differ(program, outcome.program):
            claimed += 1
            assert program_hash(outcome.program) != program_hash(program), site.id
    assert claimed >= 8
