from __future__ import annotations

from filter_steps import make_step

from steptp.dataset.filters import Kept
from steptp.dataset.filters.no_op import FILTER


def test_a_child_equal_to_its_parent_goes() -> None:
    kept = Kept(target=10, cap_share=1.0)
    assert FILTER.reason(make_step("a", "a"), kept) == "no_op"
    assert FILTER.reason(make_step("a", "b"), kept) is None
