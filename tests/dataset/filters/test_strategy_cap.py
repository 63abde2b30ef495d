from __future__ import annotations

from filter_steps import make_step

from steptp.dataset.filters import Kept, admit
from steptp.dataset.filters.strategy_cap import FILTER, cap_of


def test_a_strategy_stops_at_its_share() -> None:
    kept = Kept(target=20, cap_share=0.15)
    verdicts = [admit(make_step("a", f"c{n}"), kept, (FILTER,)) for n in range(5)]
    assert verdicts == [None, None, None, "strategy_cap", "strategy_cap"]
    assert admit(make_step("a", "z", strategy="loop_reorder"), kept, (FILTER,)) is None


def test_the_cap_is_never_nothing() -> None:
    assert cap_of(3, 0.1) == 1
