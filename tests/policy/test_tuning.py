"""Ways to tuned programs: what their ends look like, that every step verifies, and that values stay."""

from __future__ import annotations

import pytest
from policy_states import state_of

from steptp.analysis.features import features
from steptp.ir import parse, print_program
from steptp.ir.nodes import Program
from steptp.policy.tuning import Way, next_step, way
from steptp.policy.tuning.view import View
from steptp.rewrite import derivations, engine
from steptp.verify.ladder import verify_step

HOST = state_of("in X f32[N=4]\nout Y[N]\nfor i Y[i]=X[i]\n").host
SMALL = {
    "matmul": "in a f32[N=64,K=64] b[K,M=512]\nout Y[N,M]\nfor i j k Y[i,j]+=a[i,k]*b[k,j]\n",
    "softmax": "in x f32[N=64,K=256]\nout Y[N,K]\ntmp m s[N]\nfor i j m[i] max=x[i,j]\nfor i j s[i]+=exp(x[i,j]-m[i])\nfor i j Y[i,j]=exp(x[i,j]-m[i])/s[i]\n",
}


def walked(name: str, choice: int = 0) -> Way:
    return way(derivations.get(name).program, HOST, 2, choice)


def nests(program: Program) -> int:
    return len(program.body)


@pytest.mark.parametrize("name", ["matmul", "conv2d", "gemm_bias_gelu", "softmax", "layer_norm", "attention"])
def test_ways_end_as_one_parallel_nest_with_vectors(name: str) -> None:
    end = walked(name).end
    assert nests(end) == 1
    found = features(end)
    kinds = {ln.path: ln.kind for ln in found.loops}
    assert kinds[0,] == "par"
    assert "vec" in kinds.values()
    assert next_step(end, HOST, 2) is None


@pytest.mark.parametrize("name", ["matmul", "conv2d", "gemm_bias_gelu"])
def test_contractions_end_in_register_tiles_over_packed_operands(name: str) -> None:
    end = walked(name).end
    (heavy,) = [w for w in View(end, HOST, 2).works if w.share > 0.5]
    assert [ln.kind for ln in heavy.loops[-2:]] == ["unroll", "vec"]
    assert [ln.extent for ln in heavy.loops[-2:]] == [4, 16]
    assert heavy.loops[-3].carried == "reduction"
    assert all(dict(a.strides)[heavy.loops[-1].var] in (0, 1) for a in heavy.row.accesses)


def test_choices_are_other_tiles() -> None:
    ends = {print_program(walked("matmul", choice).end) for choice in range(3)}
    assert len(ends) == 3


def test_each_exponential_of_a_softmax_is_computed_once() -> None:
    program = derivations.get("softmax").program
    n, k = program.size_env["N"], program.size_env["K"]
    assert features(program).transcendentals == 2 * n * k
    assert features(walked("softmax").end).transcendentals == n * k


def test_a_chain_of_pointwise_nests_becomes_one() -> None:
    text = "in X f32[N=512,M=512] Z[M]\nout Y[N,M]\ntmp T[N,M]\nfor i j T[i,j]=X[i,j]*2\nfor i j Y[i,j]=max(T[i,j],0)+Z[j]\n"
    found = way(parse(text), HOST, 2)
    assert nests(found.end) == 1
    assert found.steps[0].site.strategy == "compute_inline"


def test_a_dear_producer_is_not_computed_again_for_each_use() -> None:
    text = "in X f32[N=64,K=64] W[K,M=64]\nout Y[N,M]\ntmp T[N,K]\nfor i k T[i,k]=exp(X[i,k])\nfor i j k Y[i,j]+=T[i,k]*W[k,j]\n"
    program = parse(text)
    assert features(way(program, HOST, 2).end).transcendentals == features(program).transcendentals


def test_sizes_that_no_vector_divides_keep_their_loops() -> None:
    found = way(parse("in a f32[N=100,K=70] b[K,M=90]\nout Y[N,M]\nfor i j k Y[i,j]+=a[i,k]*b[k,j]\n"), HOST, 2)
    assert {s.site.strategy for s in found.steps} == {"loop_reorder", "loop_parallelization"}


def test_the_next_step_is_the_first_of_the_way() -> None:
    program = derivations.get("gemm_bias_gelu").program
    step = next_step(program, HOST, 2)
    assert step is not None
    assert step.site == walked("gemm_bias_gelu").steps[0].site
    assert step.why
    outcome = engine.apply(program, step.site.id)
    assert print_program(outcome.program) == print_program(step.program)  # type: ignore[union-attr]


@pytest.mark.parametrize("name", sorted(SMALL))
def test_every_step_of_a_way_verifies(name: str) -> None:
    here = parse(SMALL[name])
    steps = way(here, HOST, 2).steps
    assert len(steps) > 8
    for step in steps:
        applied = engine.apply(here, step.site)
        verdict = verify_step(here, step.program, applied=applied, build_tiers=False)  # type: ignore[arg-type]
        assert verdict.ok, f"{step.site.id}: {verdict.kind}: {verdict.message}"
        here = step.program
