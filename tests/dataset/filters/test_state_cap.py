from __future__ import annotations

from filter_steps import make_step

from steptp.dataset.filters import Kept, admit
from steptp.dataset.filters.state_cap import FILTER, MOST


def test_one_strategy_at_one_state_is_bounded() -> None:
    kept = Kept(target=1000, cap_share=1.0)
    for n in range(MOST):
        assert admit(make_step("a", f"c{n}"), kept, (FILTER,)) is None
    assert admit(make_step("a", "more"), kept, (FILTER,)) == "state_cap"
    assert admit(make_step("b", "more"), kept, (FILTER,)) is None
