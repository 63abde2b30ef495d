from __future__ import annotations

from filter_steps import make_step

from steptp.dataset.filters import Kept, admit
from steptp.dataset.filters.undo import FILTER


def test_going_straight_back_goes_even_when_the_way_there_was_not_kept() -> None:
    kept = Kept(target=10, cap_share=1.0)
    kept.walked(make_step("a", "b"))
    assert admit(make_step("b", "a", role="sibling"), kept, (FILTER,)) == "undo"
    assert admit(make_step("b", "c"), kept, (FILTER,)) is None
    assert admit(make_step("b", "a", trajectory="other"), kept, (FILTER,)) is None
