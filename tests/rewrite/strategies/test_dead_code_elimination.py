"""dead_code_elimination: removing temporaries that nothing reads."""

from __future__ import annotations

import pytest
from rewrite_support import all_applied, check_all, check_golden, check_no_orphans, check_step, program

STRATEGY = "dead_code_elimination"
DEAD = "size N=4 M=3\nin X f32[N,M]\nout Y f32[N,M]\ntmp t f32[N,M]\nfor i:N j:M t[i,j] = X[i,j]*2\nfor i:N j:M Y[i,j] = X[i,j]\n"
IN_NEST = "size N=4 M=3\nin X f32[N,M]\nout Y f32[N,M]\nfor i:N\n tmp t f32[M] u f32[]\n for j:M t[j] = X[i,j]\n u[] = X[i,0]\n if X[i,0]>0: t[0] = 1\n for j:M Y[i,j] = X[i,j]*u[]\n"
SUM = "size N=4 M=3\nin X f32[N,M]\nout Y f32[N]\ntmp s f32[N]\nfor i:N\n for j:M s[i] += X[i,j]\n Y[i] = X[i,0]\n"
SELF = "size N=4\nin X f32[N]\nout Y f32[N]\ntmp t f32[N+1]\nt[0] = 0\nfor i:N t[i+1] = t[i]+X[i]\nfor i:N Y[i] = X[i]\n"
SIZE = "size N=4 D=7\nin X f32[N]\nout Y f32[N]\ntmp t f32[D]\nfor d:D t[d] = 0\nfor i:N Y[i] = X[i]\n"
GUARD = "size N=4\nin X f32[N]\nout Y f32[N]\ntmp t f32[N]\nfor i:N t[i] = X[i]\nfor i:N Y[i] = 0\nfor i:N if t[i]>0: Y[i] = 1\n"
COPIED_SUM = "size N=4 M=3\nin X f32[N,M]\nout Y f32[N] Z f32[N]\ntmp s f32[N] u f32[N]\nfor i:N j:M u[i] += X[i,j]\nfor i:N s[i] = u[i]\nfor i:N Y[i] = u[i]\nfor i:N Z[i] = 0\n"
CASES = {
    "nest": (DEAD, "dead_code_elimination@0.0.0:buffer=t"),
    "inside_a_nest": (IN_NEST, "dead_code_elimination@0.0.0:buffer=t"),
    "sum": (SUM, "dead_code_elimination@0.0.0:buffer=s"),
    "reads_only_itself": (SELF, "dead_code_elimination@0:buffer=t"),
    "size_goes_too": (SIZE, "dead_code_elimination@0.0:buffer=t"),
    "copy_of_a_sum": (COPIED_SUM, "dead_code_elimination@1.0:buffer=s"),
    "refuse_read_by_a_guard": (GUARD, "dead_code_elimination@0.0:buffer=t"),
    "refuse_read": ("softmax", "dead_code_elimination@0.0.0:buffer=m"),
    "refuse_output": ("softmax", "dead_code_elimination@2.0.0:buffer=Y"),
    "refuse_second_store": (IN_NEST, "dead_code_elimination@0.2.0:buffer=t"),
    "refuse_other_store": (DEAD, "dead_code_elimination@1.0.0:buffer=t"),
    "refuse_params": (DEAD, "dead_code_elimination@0.0.0"),
}


@pytest.mark.parametrize("name", CASES)
def test_golden(name: str, update_goldens: bool) -> None:
    check_golden(STRATEGY, name, *CASES[name], update_goldens)


def test_no_orphan_goldens() -> None:
    check_no_orphans(STRATEGY, CASES)


def test_the_small_programs_hold_no_dead_code() -> None:
    assert check_all(STRATEGY) == 0


@pytest.mark.parametrize("text", [DEAD, IN_NEST, SUM, SELF, SIZE, GUARD, COPIED_SUM])
def test_sites_of_the_cases(text: str) -> None:
    subject = program(text)
    found = list(all_applied(STRATEGY, subject))
    assert len(found) == (0 if text == GUARD else 1)
    for site, step in found:
        check_step(subject, site, step)
        assert step.instances is not None
