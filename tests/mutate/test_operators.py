"""The mutation operators: deterministic, on nodes, named, valid unless they are wrong by construction."""

from __future__ import annotations

import pytest

from steptp.errors import UsageError
from steptp.ir import Program, parse, print_program, problems, program_hash
from steptp.mutate.registry import FAMILIES, every_mutant, get, operators, sample_mutants

SOFTMAX = """
in x f32[N=3,K=5]
out Y[N,K]
tmp m s[N]
for i j m[i] max=x[i,j]
for i j s[i]+=exp(x[i,j]-m[i])
for i j Y[i,j]=exp(x[i,j]-m[i])/s[i]
"""
TILED = """
size T=2
in A f32[N=5,K=7] B[K] T0 i64[N] 0..N
out Y f32[N] Z[N]
tmp c d[N]
for i c[i]=0
for k0:(K-1)//T+1 i k1:T if k0*T+k1<K: carry c[i]+=A[i,k0*T+k1]*B[k0*T+k1]
for i d[i]=c[T0[i]]+0.5
par i
 tmp u f32[2] local
 u[0]=d[i]-1
 u[1]=select(u[0]>2,u[0],max(u[0],0))
 Y[i]=u[1]/f32(N)
for i Z[i]=0
for i if i%2==0 and i<4: carry Z[i]+=sqrt(abs(Y[i]))
"""


@pytest.fixture(scope="module", params=["softmax", "tiled"])
def program(request: pytest.FixtureRequest) -> Program:
    return parse(SOFTMAX if request.param == "softmax" else TILED)


def test_there_are_operators_of_every_family() -> None:
    found = operators()
    assert len(found) >= 25
    assert {o.family for o in found} == set(FAMILIES)
    assert len({o.name for o in found}) == len(found)


def test_mutants_are_valid_and_different(program: Program) -> None:
    own = program_hash(program)
    for mutant in every_mutant(program):
        if not get(mutant.operator).construction:
            assert not problems(mutant.program)
            assert program_hash(mutant.program) != own
            assert print_program(parse(print_program(mutant.program))) == print_program(mutant.program)


def test_names_are_unique_and_choices_repeatable(program: Program) -> None:
    names = [m.name for m in every_mutant(program)]
    assert len(set(names)) == len(names)
    assert names == [m.name for m in every_mutant(program)]
    some, again, other = (sample_mutants(program, 30, seed) for seed in (1, 1, 2))
    assert [m.name for m in some] == [m.name for m in again] != [m.name for m in other]
    assert len({m.operator for m in some}) >= 25


def test_nearly_every_operator_has_a_mutant_of_the_two_programs() -> None:
    made = {m.operator for text in (SOFTMAX, TILED) for o in operators() for m in o.mutants(parse(text))}
    silent = {o.name for o in operators()} - made
    assert silent <= {
        "layout_divmod",
        "layout_swapped",
        "scale_missing",
        "kind_outward",
        "tmp_sunk",
        "guarded_once",
        "fused_too_far",
        "bound_size",
        "axis_swapped",
    }, silent


@pytest.mark.parametrize(
    ("text", "operator", "line"),
    [
        ("in a f32[N=4]\nout Y[N]\nfor i Y[i]=a[i]*2\n", "constant_negated", "for i Y[i]=a[i]*-2"),
        ("in a f32[N=4]\nout Y[N]\nfor i Y[i]=a[i]*2\n", "bound_short", "for i:N-1 Y[i]=a[i]*2"),
        ("in a f32[N=4,N]\nout Y[N,N]\nfor i j Y[i,j]=a[i,j]\n", "axis_swapped", "for i j Y[i,j]=a[j,i]"),
        ("in a f32[N=4]\nout Y[N]\nfor i if 0<i: Y[i]=a[i]\nfor i if i<=0: Y[i]=0\n", "guard_dropped", "for i Y[i]=a[i]"),
        ("size T=2\nin a f32[N=4]\nout Y[N]\nfor i:(N-1)//T+1 j:T if i*T+j<N: Y[i*T+j]=a[i*T+j]\n", "layout_swapped", "j*T+i"),
        ("size T=2\nin a f32[N=5]\nout Y[N]\nfor i:(N-1)//T+1 j:T if i*T+j<N: Y[i*T+j]=a[i*T+j]\n", "tail_dropped", "for i:N//T"),
        ("in a f32[N=4,K=3]\nout Y[N]\nfor i j Y[i]+=a[i,j]\n", "reset_inside", "for i j Y[i]=a[i,j]"),
        ("in a f32[N=4]\nout Y[N]\ntmp t[N]\nfor i t[i]=a[i]\nfor i Y[i]=t[i]+1\n", "accumulation_narrow", "tmp t f16[N]"),
    ],
)
def test_what_an_operator_does(text: str, operator: str, line: str) -> None:
    assert any(line in print_program(m.program) for m in get(operator).mutants(parse(text)))


def test_an_unknown_operator_has_a_hint() -> None:
    with pytest.raises(UsageError) as caught:
        get("bound_shorter")
    assert "bound_short" in (caught.value.hint or "")
