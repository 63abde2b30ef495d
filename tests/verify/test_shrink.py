"""The smallest sizes at which something holds."""

from __future__ import annotations

from steptp.errors import LeirError
from steptp.ir import Program, parse
from steptp.verify.shrink import smallest

TEXT = "size T=4\nin X f32[N=300,M=40]\nout Y[N]\nwhere M%T==0\nfor i j Y[i]+=X[i,j]\n"


def test_every_size_shrinks_as_far_as_the_others_allow() -> None:
    program = parse(TEXT)
    small, other = smallest(program, program, lambda a, b: a.size_env["N"] > 20 and a.size_env["M"] >= 6)
    assert small.size_env == other.size_env == {"T": 1, "N": 21, "M": 6}


def test_constraints_and_failures_bound_it() -> None:
    program = parse(TEXT)

    def fails_when_small(a: Program, b: Program) -> bool:
        if a.size_env["N"] < 100:
            raise LeirError("size-negative", "too small")
        return a.size_env["T"] == 4

    small, _ = smallest(program, program, fails_when_small)
    assert small.size_env == {"T": 4, "N": 100, "M": 4}


def test_the_number_of_questions_is_bounded() -> None:
    asked = []
    program = parse(TEXT)
    assert smallest(program, program, lambda a, b: bool(asked.append(a)), most=7) == (program, program)
    assert len(asked) == 7
