"""A small dataset and a tiny model, made once."""

from __future__ import annotations

from pathlib import Path

import pytest
from dataset_build import build_small, small_config
from tiny_model import tiny_model

from steptp.dataset.store import Dataset


@pytest.fixture(scope="session")
def data(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    here = tmp_path_factory.mktemp("dataset")
    return build_small(small_config(here / "in"), here / "out")


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_model(tmp_path_factory.mktemp("model"), context=1024)
