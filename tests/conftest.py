"""Options and fixtures for all tests."""

from __future__ import annotations

import sys
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
