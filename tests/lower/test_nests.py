"""Programs are compiled nest by nest: what a step leaves alone is not compiled again, and the whole still means the same."""

from __future__ import annotations

import numpy as np
import pytest

from steptp.interp.numpy_eval import evaluate
from steptp.ir import parse
from steptp.lower import BuildOptions, build
from steptp.lower.build import clear_cache
from steptp.lower.nests import BUILDS, nests, prebuild
from steptp.verify.regimes import float_inputs

CHAIN = """size T0=4
in x f32[N=12,K=64] w[K,L=20]
out Y[N,L] z[]
tmp c[N,L] m[N] big[N,K,L] s[]
where N%T0==0
for i j k c[i,j]+=x[i,k]*w[k,j]
for i j m[i] max=c[i,j]
for i j k big[i,j,k]=x[i,j]*w[j,k]
for i0:N//T0 i1:T0 j Y[i0*T0+i1,j]=exp(c[i0*T0+i1,j]-m[i0*T0+i1])+big[i0*T0+i1,0,j]
for i s[]+=m[i]
z[]=s[]*2
"""


@pytest.fixture(autouse=True)
def _fresh() -> None:
    clear_cache()
    BUILDS.update(hits=0, misses=0)


def test_every_top_level_nest_stands_alone() -> None:
    program = parse(CHAIN)
    cut = nests(program)
    assert [[b.name for b in nest.params] for nest in cut] == [["x", "w", "c"], ["c", "m"], ["x", "w", "big"], ["Y", "c", "m", "big"], ["z", "m"]]
    assert [b.name for b in cut[-1].private] == ["s"]  # small, and nobody else's
    assert sum(len(nest.body) for nest in cut) >= len(program.body)


def test_the_nests_together_do_what_the_program_does() -> None:
    program = parse(CHAIN)
    inputs = float_inputs(program, "normal", 1)
    got, want = build(program).run(inputs), evaluate(program, inputs)
    for buffer in program.outputs:
        np.testing.assert_allclose(got[buffer.name], want[buffer.name], rtol=2e-5)


def test_a_step_compiles_only_what_it_changed() -> None:
    build(parse(CHAIN))
    assert BUILDS == {"hits": 0, "misses": 5}
    build(parse(CHAIN.replace("for i j m[i] max", "for i par j m[i] max").replace("par j", "unroll j")))
    assert BUILDS == {"hits": 4, "misses": 6}
    build(parse(CHAIN.replace("T0=4", "T0=3")))  # only one nest uses that size
    assert BUILDS == {"hits": 8, "misses": 7}
    build(parse(CHAIN), BuildOptions(fma=False))  # other options, other code
    assert BUILDS == {"hits": 8, "misses": 12}


def test_code_of_later_programs_is_compiled_along() -> None:
    first, second = parse(CHAIN), parse(CHAIN.replace("for i j m[i] max", "for i unroll j m[i] max"))
    prebuild(first, [second], BuildOptions())
    assert BUILDS["misses"] == 6
    for program in (first, second):
        inputs = float_inputs(program, "normal", 1)
        np.testing.assert_allclose(build(program).run(inputs)["z"], evaluate(program, inputs)["z"], rtol=2e-5)
    assert BUILDS == {"hits": 10, "misses": 6}


def test_single_stores_join_the_nest_before_them_and_resets_the_one_behind() -> None:
    program = parse("in x f32[N=6,K=5]\nout Y[K] z[]\ntmp a[] b[]\na[]=2\nb[]=a[]*3\nfor i j Y[j]+=x[i,j]*b[]\nz[]=b[]\n")
    cut = nests(program)
    assert len(cut) == 1
    x = np.arange(30, dtype=np.float32).reshape(6, 5)
    out = build(program).run({"x": x})
    np.testing.assert_array_equal(out["Y"], (x * 6).sum(0))
    assert out["z"] == 6


def test_a_nest_without_iterations_is_left_out() -> None:
    program = parse("in x f32[N=6]\nout Y[N]\ntmp t[0]\nfor i:0 t[i]=1\nfor i Y[i]=x[i]+1\n")
    assert len(build(program).code) == 1
    np.testing.assert_array_equal(build(program).run({"x": np.zeros(6, np.float32)})["Y"], np.ones(6, np.float32))


def test_temporaries_between_nests_are_poisoned_for_each_set_of_arguments() -> None:
    program = parse("in x f32[N=4]\nout Y[N] Z[N]\ntmp t[N]\nfor i t[i]=x[i]\nfor i Y[i]=t[i]\nfor i Z[i]=t[i]+1\n")
    built = build(program)
    arguments = built.prepare(_arrays())
    workspace = arguments.kept[1][-1]
    assert np.isnan(workspace).all()
    built.call(arguments)
    np.testing.assert_array_equal(workspace, np.ones(4, np.float32))


def _arrays() -> list[np.ndarray]:
    from steptp.lower.build import aligned

    x, y, z = (aligned((4,), np.float32) for _ in range(3))
    x[...] = 1
    return [x, y, z]


def test_a_program_that_does_nothing_keeps_its_interface() -> None:
    from steptp.lower import lower_to_tir

    assert len(lower_to_tir(parse("in x f32[N=0]\nout Y[N]\nfor i Y[i]=x[i]\n")).params) == 2
