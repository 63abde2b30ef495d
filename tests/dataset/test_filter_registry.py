from __future__ import annotations

from pathlib import Path

from steptp.dataset.filters import all_filters


def test_every_filter_is_found_and_has_a_test_file() -> None:
    here = Path(__file__).parent / "filters"
    names = [f.name for f in all_filters()]
    assert names == sorted(names)
    assert len(names) >= 5
    assert [n for n in names if not (here / f"test_{n}.py").exists()] == []
