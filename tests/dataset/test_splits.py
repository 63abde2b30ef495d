from __future__ import annotations

from steptp.dataset.roots import Root
from steptp.dataset.splits import assign_splits


def _roots(families: int, members: int) -> list[Root]:
    return [Root(f"r{f}-{m}", "", f"w{f}", f"family{f}") for f in range(families) for m in range(members)]


def test_new_families_are_disjoint_from_all_others() -> None:
    roots = _roots(40, 3)
    splits = assign_splits(roots, seed=0)
    new = {r.family for r in roots if splits[r.hash] == "test_new_family"}
    seen = {r.family for r in roots if splits[r.hash] != "test_new_family"}
    assert new
    assert not new & seen
    assert set(splits.values()) == {"train", "validation", "test_seen_family", "test_new_family"}
    for family in seen:
        assert any(splits[r.hash] == "train" for r in roots if r.family == family)


def test_a_family_with_one_root_is_never_split_off_as_seen() -> None:
    splits = assign_splits(_roots(6, 1), seed=3)
    assert set(splits.values()) == {"train", "test_new_family"}


def test_more_workloads_do_not_move_families() -> None:
    few, many = _roots(20, 2), _roots(30, 2)
    before, after = assign_splits(few, 1), assign_splits(many, 1)
    new = lambda s, rs: {r.family for r in rs if s[r.hash] == "test_new_family"}  # noqa: E731
    assert new(before, few) <= new(after, many)
