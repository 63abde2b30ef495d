"""constant_folding: what literals and sizes give exactly."""

from __future__ import annotations

import pytest
from algebra_support import NORM, SCALE, check_sites, stored
from rewrite_support import check_all, check_golden, check_no_orphans, program

from steptp.frontend import zoo
from steptp.ir import print_expr, print_program
from steptp.rewrite import engine
from steptp.rewrite.base import Applied, Exactness
from steptp.verify.ladder import verify_step

STRATEGY = "constant_folding"
DECIDED = "size N=4\nin x f32[N] y f32[N]\nout Y f32[N]\nfor i:N Y[i] = select(f32(1)<2,x[i],y[i])*1\n"
CASES = {
    "literals": (stored("x[i]*(0.5*0.25-1)"), f"{STRATEGY}@0.0:at=1.1,by=literal"),
    "square_root": (stored("x[i]/sqrt(f32(64))"), f"{STRATEGY}@0.0:at=1.1,by=literal"),
    "scale_by_size": (SCALE, f"{STRATEGY}@0.0.0:at=2.1,by=size"),
    "mean": (NORM, f"{STRATEGY}@3.0.0:at=2.0.0.1.0.0.1,by=size"),
    "power_of_two": (NORM, f"{STRATEGY}@1.0:at=1,by=reciprocal"),
    "divisor": (stored("x[i]*0.25"), f"{STRATEGY}@0.0:at=1,by=divisor"),
    "times_one": (DECIDED, f"{STRATEGY}@0.0:at=1,by=identity"),
    "decided_select": (DECIDED, f"{STRATEGY}@0.0:at=1.0,by=identity"),
    "double_negation": (stored("x[i]+-(-y[i])"), f"{STRATEGY}@0.0:at=1.1,by=identity"),
    "equal_sides": (stored("select(x[i]<y[i],z[i],z[i])"), f"{STRATEGY}@0.0:at=1,by=identity"),
    "refuse_rounded": (stored("x[i]*(f32(1)/3)"), f"{STRATEGY}@0.0:at=1.1,by=literal"),
    "refuse_rounded_root": (SCALE.replace("K=4", "K=5"), f"{STRATEGY}@0.0.0:at=2.1,by=size"),
    "refuse_size_as_literal": (SCALE, f"{STRATEGY}@0.0.0:at=2.1,by=literal"),
    "refuse_two_sizes": (SCALE.replace("f32(K)", "f32(K)*f32(N)"), f"{STRATEGY}@0.0.0:at=2.1,by=size"),
    "refuse_read": (stored("x[i]*2"), f"{STRATEGY}@0.0:at=1,by=literal"),
    "refuse_literal": (stored("x[i]*2"), f"{STRATEGY}@0.0:at=1.1,by=literal"),
    "refuse_positive_zero": (stored("x[i]+0"), f"{STRATEGY}@0.0:at=1,by=identity"),
    "refuse_sixth": (stored("x[i]/6"), f"{STRATEGY}@0.0:at=1,by=reciprocal"),
    "refuse_unknown_way": (stored("x[i]*2"), f"{STRATEGY}@0.0:at=1,by=nothing"),
    "refuse_subnormal": (stored("x[i]/32768", "f16"), f"{STRATEGY}@0.0:at=1,by=reciprocal"),
    "refuse_out_of_range": (stored("x[i]/170141183460469231731687303715884105728"), f"{STRATEGY}@0.0:at=1,by=reciprocal"),
}


@pytest.mark.parametrize("name", CASES)
def test_golden(name: str, update_goldens: bool) -> None:
    check_golden(STRATEGY, name, *CASES[name], update_goldens)


def test_no_orphan_goldens() -> None:
    check_no_orphans(STRATEGY, CASES)


def test_every_site_keeps_the_meaning() -> None:
    assert check_all(STRATEGY) == 0


def test_sites_of_the_cases() -> None:
    assert check_sites(STRATEGY, sorted({text for text, _ in CASES.values()})) >= 12


def test_a_size_is_folded_by_proof() -> None:
    """Tier 2 evaluates the literal itself: a step at real sizes needs no run."""
    parent = zoo.get("attention").program
    found = [s for s in engine.sites(parent, [STRATEGY], None) if dict(s.params)["by"] == "size"]
    assert found
    step = engine.apply(parent, found[0])
    assert isinstance(step, Applied)
    assert step.exactness is Exactness.BITWISE
    assert [print_expr(c) for c in step.program.constraints if c not in parent.constraints]
    verdict = verify_step(parent, step.program, applied=step, tiers=(0, 1, 2))
    assert verdict.ok, verdict.message
    assert verdict.tier == 2


def test_a_wrong_literal_is_found() -> None:
    parent = program(SCALE)
    step = engine.applied_or_raise(parent, f"{STRATEGY}@0.0.0:at=2.1,by=size")
    wrong = print_program(step.program).replace("0.5", "0.25")
    verdict = verify_step(parent, wrong, instances=step.instances, exactness=Exactness.BITWISE, tiers=(0, 1, 2, 3))
    assert verdict.kind.value == "not_equal"


def test_a_mean_becomes_a_product_in_two_steps() -> None:
    """Folding the size opens the site for the power of two; both keep the bits."""
    root = program(NORM)
    child = engine.applied_or_raise(root, f"{STRATEGY}@3.0.0:at=2.0.0.1.0.0.1,by=size").program
    step = engine.applied_or_raise(child, f"{STRATEGY}@3.0.0:at=2.0.0.1.0.0,by=reciprocal")
    assert "v[i]*0.25+" in print_program(step.program)
    assert "where K==4" in print_program(step.program)
    assert verify_step(child, step.program, applied=step, tiers=(0, 1, 2, 3, 4, 5)).ok
    assert engine.applied_or_raise(step.program, step.inverse[0]).program == child
