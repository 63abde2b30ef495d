"""Short derivations with tiles: every step is verified, and the whole ends as one nest with local tiles."""

from __future__ import annotations

from moving_support import GEMM
from rewrite_support import assert_equal_meaning, program

from steptp.ir import Program, print_program
from steptp.rewrite import engine
from steptp.rewrite.base import Exactness
from steptp.verify.ladder import verify_step

ATTENTION = """
in q f32[N=6,K=4] k[M=10,K] v[M,L=4]
out Y[N,L]
tmp c t[N,M] m s[N] y[N,M]
for i j l c[i,j]+=q[i,l]*k[j,l]
for i j t[i,j]=c[i,j]*(1/sqrt(f32(K)))
for i j m[i] max=t[i,j]
for i j s[i]+=exp(t[i,j]-m[i])
for i j y[i,j]=exp(t[i,j]-m[i])/s[i]
for i j l Y[i,j]+=y[i,l]*v[l,j]
"""


def _derive(text: str, *sites: str) -> Program:
    """The end of the derivation; fails at the first step that does not apply or is not verified."""
    root = here = program(text)
    for site in sites:
        step = engine.applied_or_raise(here, site)
        verdict = verify_step(here, step.program, applied=step, build_tiers=False)
        assert verdict.ok, f"{site}: {verdict.message}\n{print_program(step.program)}"
        here = step.program
    assert_equal_meaning(root, here, Exactness.ALGEBRAIC)
    return here


def test_gemm_bias_relu_in_one_nest_of_guarded_tiles() -> None:
    end = _derive(
        GEMM,
        "loop_tiling@0:outer=4,inner=3,tail=guard",
        "reverse_compute_at@1:at=0.0",
        "cache_write@0.0:buffer=d",
        "dead_code_elimination@0.0.2.0.0.0:buffer=d",
        "loop_peeling@0.0:part=tile",
    )
    text = print_program(end)
    assert "tmp dl[T0,T1] local" in text
    assert " d[" not in text


def test_attention_in_one_nest_with_a_tile_of_scores() -> None:
    end = _derive(
        ATTENTION,
        "flashattention_wo_tiling@2",
        "loop_split@2.3:factor=4,tail=guard",
        "compute_at@1:at=2.3,storage=region",
        "compute_at@0:at=1.3,storage=region",
        "cache_write@0:buffer=s",
        "cache_write@0:buffer=m",
        "cache_write@0:buffer=Y",
    )
    assert len(end.body) == 1
    assert "tmp tl cl[T0] local" in print_program(end)
