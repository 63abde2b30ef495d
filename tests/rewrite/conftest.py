"""Strategies that build an invalid program raise in tests instead of answering with a refusal."""

from __future__ import annotations

import pytest

from steptp.rewrite.engine import STRICT_VARIABLE


@pytest.fixture(autouse=True)
def _strict(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(STRICT_VARIABLE, "1")
