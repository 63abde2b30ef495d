"""Minimal steps for filter tests."""

from __future__ import annotations

from typing import Any


def make_step(parent: str, child: str, *, strategy: str = "loop_split", trajectory: str = "t", role: str = "walk") -> dict[str, Any]:
    return {"id": f"{parent}-{strategy}-{child}", "parent": parent, "child": child, "strategy": strategy, "trajectory": trajectory, "role": role}
