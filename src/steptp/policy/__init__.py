"""Policies: what proposes steps. The ones here need no weights."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from steptp.errors import UsageError

if TYPE_CHECKING:
    from steptp.search.policy import Policy

__all__ = ["NAMES", "policy"]

NAMES = ("heuristic", "random")
"""Policies that take no more than their name; :class:`steptp.policy.scripted.Scripted` needs a script."""


def policy(name: str) -> Policy:
    """The policy called ``name``; raises :class:`UsageError` ``usage-policy``."""
    if name not in NAMES:
        raise UsageError("usage-policy", f"there is no policy called {name!r}", hint=f"policies: {', '.join(NAMES)}")
    made: Policy = import_module(f"{__name__}.{name}").POLICY()
    return made
