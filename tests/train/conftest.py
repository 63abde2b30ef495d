"""A tiny model, made once."""

from __future__ import annotations

from pathlib import Path

import pytest
from tiny_model import tiny_model


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_model(tmp_path_factory.mktemp("model"), context=1024)
