"""The ladder's logic, with stand-in tiers: order, early ends, undecided tiers, crashes."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import ModuleType

import pytest

import steptp.verify
from steptp.errors import LeirError, StepTPError, UsageError
from steptp.ir import Program, parse, print_program, program_hash
from steptp.rewrite import engine
from steptp.rewrite.base import Applied, Exactness, InstanceMap
from steptp.verify.ladder import engine_match, verify_pair, verify_step
from steptp.verify.tier0 import tier0
from steptp.verify.verdict import TierReport, VerdictKind

ADD = "size N=6 M=4\nin A f32[N,M] B[N,M]\nout Y f32[N,M]\nfor i:N j:M Y[i,j] = A[i,j]+B[i,j]\n"
SWAPPED = ADD.replace("for i:N j:M", "for j:M i:N")
OK, UNKNOWN = VerdictKind.OK, VerdictKind.UNKNOWN


class Tiers:
    """Stand-ins for tiers 1 to 5: each gives a set kind or raises, and notes that it ran and with what."""

    def __init__(self) -> None:
        self.kinds: dict[int, VerdictKind | BaseException] = dict.fromkeys(range(1, 6), OK)
        self.ran: list[int] = []
        self.arguments: dict[int, tuple[object, ...]] = {}

    def make(self, tier: int) -> Callable[..., TierReport]:
        def run(*args: object, **options: object) -> TierReport:
            self.ran.append(tier)
            self.arguments[tier] = (*args, options)
            kind = self.kinds[tier]
            if isinstance(kind, BaseException):
                raise kind
            return TierReport(tier, kind, f"tier {tier} says {kind}")

        return run


@pytest.fixture
def tiers(monkeypatch: pytest.MonkeyPatch) -> Tiers:
    stand_in = Tiers()
    for tier in range(1, 6):
        module = ModuleType(f"steptp.verify.tier{tier}")
        setattr(module, f"tier{tier}", stand_in.make(tier))
        monkeypatch.setitem(sys.modules, module.__name__, module)
        monkeypatch.setattr(steptp.verify, f"tier{tier}", module, raising=False)
    return stand_in


def applied(program: Program, exactness: Exactness = Exactness.BITWISE, mapped: bool = True) -> Applied:
    return Applied(program, exactness, (), InstanceMap(()) if mapped else None)


def test_a_proof_ends_tiers_0_to_3(tiers: Tiers) -> None:
    parent, child = parse(ADD), parse(SWAPPED)
    verdict = verify_step(parent, child, applied=applied(child))
    assert (verdict.kind, verdict.tier) == (OK, 5)
    assert [r.tier for r in verdict.reports] == [0, 1, 2, 4, 5]
    assert all(r.seconds >= 0 for r in verdict.reports)
    assert verify_step(parent, child, applied=applied(child), build_tiers=False).tier == 2


def test_without_an_instance_map_tier_3_decides(tiers: Tiers) -> None:
    child = parse(SWAPPED)
    verdict = verify_step(parse(ADD), child, applied=applied(child, Exactness.ALGEBRAIC, mapped=False), build_tiers=False)
    assert [r.tier for r in verdict.reports] == [0, 1, 3]
    assert (verdict.kind, verdict.tier) == (OK, 3)


@pytest.mark.parametrize("soft", [UNKNOWN, VerdictKind.TIMEOUT, ValueError("a bug"), LeirError("check-x", "no")])
def test_an_undecided_tier_2_goes_on_to_tier_3(tiers: Tiers, soft: VerdictKind | Exception) -> None:
    child = parse(SWAPPED)
    tiers.kinds[2] = soft
    verdict = verify_step(parse(ADD), child, applied=applied(child), build_tiers=False)
    assert [r.tier for r in verdict.reports] == [0, 1, 2, 3]
    assert verdict.ok
    tiers.kinds[3] = UNKNOWN
    assert verify_step(parse(ADD), child, applied=applied(child), build_tiers=False).kind is UNKNOWN


def test_a_refused_proof_is_final(tiers: Tiers) -> None:
    child = parse(SWAPPED)
    tiers.kinds[2] = VerdictKind.ILLEGAL
    verdict = verify_step(parse(ADD), child, applied=applied(child))
    assert (verdict.kind, verdict.tier) == (VerdictKind.ILLEGAL, 2)
    assert tiers.ran == [1, 2]
    assert verdict.message == "tier 2 says illegal"


@pytest.mark.parametrize("tier", [1, 3, 4, 5])
@pytest.mark.parametrize("kind", [UNKNOWN, VerdictKind.NOT_EQUAL, VerdictKind.TIMEOUT])
def test_anything_but_ok_ends_the_climb(tiers: Tiers, tier: int, kind: VerdictKind) -> None:
    tiers.kinds[tier] = kind
    verdict = verify_step(parse(ADD), parse(SWAPPED), exactness=Exactness.BITWISE)
    assert (verdict.kind, verdict.tier) == (kind, tier)
    assert not verdict.ok
    assert tiers.ran[-1] == (3 if (tier, kind) == (1, UNKNOWN) else tier)  # what tier 1 cannot decide, tier 3 may still refuse


def test_tier_3_refuses_what_tier_1_leaves_open(tiers: Tiers) -> None:
    tiers.kinds[1], tiers.kinds[3] = UNKNOWN, VerdictKind.NOT_EQUAL
    verdict = verify_step(parse(ADD), parse(SWAPPED))
    assert (verdict.kind, verdict.tier) == (VerdictKind.NOT_EQUAL, 3)


def test_equal_bits_are_checked_only_when_claimed(tiers: Tiers) -> None:
    for claim, expected in ((Exactness.BITWISE, 5), (Exactness.REASSOCIATED, 4), (None, 4)):
        assert verify_step(parse(ADD), parse(SWAPPED), exactness=claim).tier == expected


@pytest.mark.parametrize(
    ("raised", "kind"),
    [
        (ValueError("x"), VerdictKind.CRASHED),
        (RecursionError("deep"), VerdictKind.CRASHED),
        (MemoryError(), VerdictKind.OOM),
        (TimeoutError(), VerdictKind.TIMEOUT),
        (LeirError("check-x", "bad"), VerdictKind.MALFORMED),
        (UsageError("usage-x", "bad"), VerdictKind.CRASHED),
        (StepTPError("build-failed", "no"), VerdictKind.BUILD_FAILED),
    ],
)
@pytest.mark.parametrize("tier", [1, 3, 4, 5])
def test_a_raising_tier_becomes_a_verdict(tiers: Tiers, tier: int, raised: Exception, kind: VerdictKind) -> None:
    tiers.kinds[tier] = raised
    if isinstance(raised, LeirError) and tier > 1:
        kind = VerdictKind.CRASHED  # the child is well-formed: it is the tier that cannot cope
    verdict = verify_step(parse(ADD), parse(SWAPPED), exactness=Exactness.BITWISE)
    assert (verdict.kind, verdict.tier) == (kind, tier)
    assert verdict.reports[-1].evidence["code"]


def test_leaving_out_the_proof_is_not_acceptance(tiers: Tiers) -> None:
    parent, child = parse(ADD), parse(SWAPPED)
    assert verify_step(parent, child, tiers=(0, 1)).kind is UNKNOWN
    assert verify_step(parent, child, tiers=(0, 1, 2)).kind is UNKNOWN  # no instance map: tier 2 has nothing to check
    assert verify_step(parent, child, tiers=(4, 5)).tier == 4
    assert verify_step(parent, child, tiers=(0, 3)).tier == 3


def test_the_map_of_another_program_is_not_used_for_this_one(tiers: Tiers) -> None:
    """A mutant that arrives with its original's proof object is judged as itself."""
    mutant = parse(SWAPPED.replace("A[i,j]+B[i,j]", "A[i,j]-B[i,j]"))
    verify_step(parse(ADD), mutant, applied=applied(parse(SWAPPED)))
    assert tiers.arguments[2][1] is mutant


def test_tier_4_is_anchored_at_the_root(tiers: Tiers) -> None:
    root, parent, child = parse(ADD), parse(SWAPPED), parse(ADD.replace("for i:N", "par i:N for"))
    verify_step(parent, child, root=root, seed=5)
    assert tiers.arguments[4] == (root, parent, child, {"seed": 5, "regimes": None, "equal_over_reals": True})


def test_a_free_rewrite_is_first_matched(tiers: Tiers) -> None:
    parent, child = parse(ADD), parse(SWAPPED)
    renamed = parse(SWAPPED.replace("for j:M i:N", "for b:M a:N").replace("[i,j]", "[a,b]"))
    verdict = verify_step(parent, child, one_step=lambda p, c: applied(renamed), build_tiers=False)
    assert (verdict.kind, verdict.tier) == (OK, 2)
    assert tiers.arguments[2][1] is renamed
    for search in (lambda p, c: None, lambda p, c: applied(p)):  # nothing found; a match with another hash
        assert verify_step(parent, child, one_step=search, build_tiers=False).tier == 3

    def fails(p: Program, c: Program) -> Applied:
        raise ValueError("a strategy that cannot cope")

    assert verify_step(parent, child, one_step=fails, build_tiers=False).tier == 3


def test_engine_match_finds_the_strategy_that_made_a_program() -> None:
    parent = parse(ADD)
    steps = [o for s in engine.sites(parent, limit=8) if isinstance(o := engine.apply(parent, s), Applied)]
    assert steps
    for step in steps:
        found = engine_match(parent, parse(print_program(step.program)))
        assert found is not None
        assert program_hash(found.program) == program_hash(step.program)
    assert engine_match(parent, parse(ADD.replace("A[i,j]+B[i,j]", "A[i,j]+B[i,j]+B[i,j]"))) is None


def test_text_pairs(tiers: Tiers) -> None:
    assert verify_pair(ADD, SWAPPED, one_step=None).ok
    bad = verify_pair(ADD, SWAPPED.replace("B[i,j]", "B[i,"))
    assert (bad.kind, bad.tier) == (VerdictKind.MALFORMED, 0)
    assert bad.reports[0].evidence["line"] == 4
    reference = verify_pair("nonsense", ADD)
    assert reference.kind is VerdictKind.MALFORMED
    assert "reference" in reference.message
    assert tiers.ran == [1, 3, 4]


def test_deep_nesting_is_malformed_not_a_crash() -> None:
    deep = ADD.replace("A[i,j]+B[i,j]", "(" * 20_000 + "A[i,j]" + ")" * 20_000)
    assert verify_pair(ADD, deep).kind is VerdictKind.MALFORMED


@pytest.mark.parametrize(
    ("change", "word"),
    [
        (("out Y f32", "out Z f32"), "missing"),
        (("A f32[N,M] B[N,M]", "B f32[N,M] A[N,M]"), "order"),
        (("out Y f32[N,M]", "out Y f64[N,M]"), "dtype"),
        (("out Y f32[N,M]", "out Y f32[M,N]"), "shape"),
        (("B[N,M]\n", "B[N,M] C[N]\n"), "not an input"),
    ],
)
def test_interface_changes_are_malformed(change: tuple[str, str], word: str) -> None:
    text = ADD.replace(*change)
    text = text.replace("Y[i,j] =", "Z[i,j] =") if "Z" in change[1] else text
    text = text.replace("Y[i,j] = A[i,j]+B[i,j]", "Y[i,j] = f64(A[i,j]+B[i,j])") if "f64" in change[1] else text
    text = text.replace("Y[i,j] =", "Y[j,i] =") if "[M,N]" in change[1] else text
    report = tier0(parse(ADD), parse(text))
    assert report.kind is VerdictKind.MALFORMED
    assert word in report.message


def test_interface_shapes_by_family() -> None:
    assert tier0(parse(ADD), parse(SWAPPED)).evidence["family"] is True
    pinned = ADD.replace("in A f32[N,M]", "in A f32[N,4]")
    report = tier0(parse(ADD), parse(pinned))
    assert (report.kind, report.evidence["family"]) == (OK, False)
    derived = ADD.replace("M=4", "M=4 K=M*1").replace("out Y f32[N,M]", "out Y f32[N,K]")
    assert tier0(parse(ADD), parse(derived)).evidence["family"] is True
    constrained = ADD.replace("\nin", "\nwhere N%2==0\nin")
    assert tier0(parse(ADD), parse(constrained)).evidence["constraints"] == ["N%2==0"]


def test_value_ranges_are_part_of_the_interface() -> None:
    text = "size N=4 V=9\nin T i64[N] 0..V X f32[V]\nout Y f32[N]\nfor i:N Y[i] = X[T[i]]\n"
    assert tier0(parse(text), parse(text)).kind is OK
    assert "range" in tier0(parse(text), parse(text.replace("0..V", "0..8"))).message
