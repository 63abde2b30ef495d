from __future__ import annotations

from filter_steps import make_step

from steptp.dataset.filters import Kept, admit
from steptp.dataset.filters.duplicate import FILTER


def test_the_second_of_two_equal_steps_goes() -> None:
    kept = Kept(target=100, cap_share=0.5)
    assert admit(make_step("a", "b"), kept, (FILTER,)) is None
    assert admit(make_step("a", "b", trajectory="other"), kept, (FILTER,)) == "duplicate"
    assert admit(make_step("a", "c"), kept, (FILTER,)) is None
    assert kept.total == 2
    assert kept.dropped == {"duplicate": 1}
