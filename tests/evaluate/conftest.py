"""A dataset that looks measured, and a folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from steptp.dataset.store import Dataset


@pytest.fixture(scope="session")
def measured(data: Dataset) -> Dataset:
    """The same with a state whose steps look measured: the first of a state's steps gains 4, the second 2, the others lose."""
    import copy
    from collections import defaultdict

    made = Dataset(data.folder, copy.deepcopy(data.steps), data.programs, data.info)
    groups = defaultdict(list)
    for row in made.steps:
        if row["verdict"] == "ok":
            groups[row["parent"]].append(row)
    for group in groups.values():
        first = sorted(group, key=lambda s: s["id"])
        while len(first) < 8:  # other steps of the same program, by other names
            first.append(
                {**first[0], "id": f"{first[0]['id']}-{len(first)}", "site": f"{first[0]['site']}{',' if ':' in first[0]['site'] else ':'}copy={len(first)}"}
            )
            made.steps.append(first[-1])
        for place, row in enumerate(first):
            row.update(measured=True, ratio={0: 4.0, 1: 2.0}.get(place, 0.5), best_sibling=place == 0, label="faster" if place < 2 else "slower")
    return made


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "run"
