"""Wrong memory, seen by tier 4 alone: guard zones, poison, what survives from an earlier call. Tier 1 refuses each of these by proof."""

from __future__ import annotations

import pytest

from steptp.ir import parse
from steptp.verify.tier1 import tier1
from steptp.verify.tier4 import tier4
from steptp.verify.verdict import VerdictKind

HEAD = "size N=24\nin A f32[N] B[N]\nout C f32[N] D[N]\n"
REST = "for i:N D[i] = B[i]*3.0\n"
ROOT = HEAD + "for i:N C[i] = A[i]+1.0\n" + REST
UNSAFE, WRONG = VerdictKind.UNSAFE_MEMORY, VerdictKind.NOT_EQUAL
CASES = {
    "one past the end": (HEAD + "for i:N+1 C[i] = A[i]+1.0\n" + REST, UNSAFE),
    "one before the start": (HEAD + "for i:N C[i] = A[i]+1.0\nfor i:1 C[i-1] = 0.0\n" + REST, UNSAFE),
    "poison copied from zone to zone": (HEAD + "for i:N C[i] = A[i]+1.0\nfor i:1 D[i+N] = B[i+N]\n" + REST, UNSAFE),
    "a constant far behind": (HEAD + "for i:N C[i] = A[i]+1.0\nfor i:1 C[i+1000] = 7.0\n" + REST, UNSAFE),
    "a read past the end": (HEAD + "for i:N C[i] = A[i+1]+1.0\n" + REST, WRONG),
    "a read times zero": (HEAD + "for i:N C[i] = A[i]+1.0+B[i+N]*0.0\n" + REST, WRONG),
    "a row not written": (HEAD + "for i:N-1 C[i] = A[i]+1.0\n" + REST, WRONG),
    "an output as it was before": (HEAD + "for i:N C[i] = max(C[i],A[i]+1.0)\n" + REST, WRONG),
    "a temporary half written": ("size N=24\nin A f32[N] B[N]\nout C f32[N] D[N]\ntmp t f32[N]\nfor i:N-1 t[i] = A[i]\nfor i:N C[i] = t[i]+1.0\n" + REST, WRONG),
    "a temporary before it is written": (
        "size N=24\nin A f32[N] B[N]\nout C f32[N] D[N]\ntmp t f32[N]\nfor i:N C[i] = t[i]+1.0\nfor i:N t[i] = A[i]\n" + REST, WRONG,
    ),
    "outputs in one another's place": (HEAD + "for i:N D[i] = A[i]+1.0\nfor i:N C[i] = B[i]*3.0\n", WRONG),
    "an output as temporary, left so": (HEAD + "for i:N C[i] = A[i]+1.0\nfor i:N D[i] = B[i]*3.0\nfor i:N C[i] = D[i]\n", WRONG),
}  # fmt: skip
SAFE = {"outputs in one another's place", "an output as temporary, left so"}


@pytest.mark.parametrize("name", CASES)
def test_tier_4_alone(name: str) -> None:
    text, kind = CASES[name]
    root, child = parse(ROOT), parse(text)
    report = tier4(root, root, child, regimes=("normal",))
    assert report.kind is kind, report.message


@pytest.mark.parametrize("name", sorted(CASES.keys() - SAFE))
def test_tier_1_refuses_by_proof(name: str) -> None:
    assert tier1(parse(CASES[name][0])).kind is VerdictKind.UNSAFE_MEMORY


def test_the_same_program_passes() -> None:
    root = parse(ROOT)
    assert tier4(root, root, root, regimes=("normal",)).kind is VerdictKind.OK
