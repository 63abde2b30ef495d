"""LEIR candidates that cheat: refused by the ladder without compiled code, and by tier 4 alone."""

from __future__ import annotations

import pytest

from steptp.ir import parse
from steptp.verify.ladder import verify_step
from steptp.verify.tier4 import tier4
from steptp.verify.verdict import VerdictKind

HEAD = "size N=12 K=20\nin A f32[N,K] B[N,K]\nout C f32[N]\n"
ROOT = HEAD + "for i:N k:K C[i] += A[i,k]*B[i,k]\n"
CHEATS = {
    "a constant": HEAD + "for i:N C[i] = 0.5\n",
    "an input": HEAD + "for i:N C[i] = A[i,0]\n",
    "one operand": HEAD + "for i:N k:K C[i] += A[i,k]\n",
    "half of the work": HEAD + "for i:N k:K//2 C[i] += A[i,2*k]*B[i,2*k]\n",
    "the last row skipped": HEAD + "for i:N-1 k:K C[i] += A[i,k]*B[i,k]\nfor i:1 C[N-1] = 0.0\n",
    "a row for all": HEAD + "for i:N k:K C[i] += A[0,k]*B[0,k]\n",
    "0/0 everywhere": HEAD + "for i:N C[i] = 0.0/(A[i,0]-A[i,0])\n",
    "inf-inf": HEAD + "for i:N C[i] = inf-inf\n",
    "NaN behind a comparison": HEAD + "for i:N k:K C[i] += select(A[i,k]>0.25,nan,A[i,k]*B[i,k])\n",
    "another result behind a comparison": HEAD + "for i:N k:K C[i] += select(A[i,k]>0.25,B[i,k],A[i,k]*B[i,k])\n",
    "an infinity instead": HEAD + "for i:N C[i] = inf\n",
    "the terms in absolute value": HEAD + "for i:N k:K C[i] += abs(A[i,k]*B[i,k])\n",
}
PRECISION = {
    "f16 terms": HEAD + "for i:N k:K C[i] += f32(f16(A[i,k]*B[i,k]))\n",
    "bf16 operands": HEAD + "for i:N k:K C[i] += f32(bf16(A[i,k]))*B[i,k]\n",
    "f16 sum": HEAD + "tmp t f16[N]\nfor i:N k:K t[i] += f16(A[i,k]*B[i,k])\nfor i:N C[i] = f32(t[i])\n",
    "bf16 temporary": HEAD + "tmp t bf16[N,K]\nfor i:N k:K t[i,k] = bf16(A[i,k]*B[i,k])\nfor i:N k:K C[i] += f32(t[i,k])\n",
}


@pytest.mark.parametrize("name", CHEATS)
def test_the_ladder_refuses_without_running_anything(name: str) -> None:
    verdict = verify_step(parse(ROOT), CHEATS[name], build_tiers=False)
    assert verdict.kind is VerdictKind.NOT_EQUAL, f"{verdict.kind}: {verdict.message}"


@pytest.mark.parametrize("name", CHEATS)
def test_tier_4_refuses_alone(name: str) -> None:
    root, child = parse(ROOT), parse(CHEATS[name])
    assert tier4(root, root, child).kind is VerdictKind.NOT_EQUAL


@pytest.mark.parametrize("name", PRECISION)
def test_lower_precision_is_numerically_unsafe(name: str) -> None:
    """Over the reals these are right; what they lose is for tier 4."""
    root, child = parse(ROOT), parse(PRECISION[name])
    verdict = verify_step(root, child)
    assert (verdict.kind, verdict.tier) == (VerdictKind.NUMERICALLY_UNSAFE, 4), verdict.message


def test_the_reference_under_other_names_passes() -> None:
    """No cheat: the same function by the same operations."""
    assert verify_step(parse(ROOT), HEAD + "for row:N term:K C[row] += A[row,term]*B[row,term]\n").ok
