"""Options and fixtures for all tests."""

from __future__ import annotations

import copy
import sys
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from steptp.dataset.store import Dataset

sys.path.insert(0, str(Path(__file__).parent / "support"))


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-goldens", action="store_true", help="rewrite golden files with what the code gives now")


@pytest.fixture
def update_goldens(request: pytest.FixtureRequest) -> bool:
    return bool(request.config.getoption("--update-goldens"))


@pytest.fixture(scope="session")
def data(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    """A small dataset, built once."""
    from dataset_build import build_small, small_config

    here = tmp_path_factory.mktemp("dataset")
    return build_small(small_config(here / "in"), here / "out")


@pytest.fixture(scope="session")
def measured(data: Dataset) -> Dataset:
    """The same with a state whose steps look measured: the first of a state's steps gains 4, the second 2, the others lose."""
    from steptp.dataset.store import Dataset

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
