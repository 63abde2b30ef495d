"""Policies: what proposes steps. Most need no weights; ``openai`` asks a language model."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from steptp.errors import UsageError

if TYPE_CHECKING:
    from steptp.search.policy import Policy

__all__ = ["NAMES", "policy"]

_MODULES = {"heuristic": "heuristic", "openai": "openai_compatible", "random": "random"}
NAMES = tuple(_MODULES)
"""Policies by name; :class:`steptp.policy.scripted.Scripted` needs a script."""


def policy(name: str, **settings: object) -> Policy:
    """The policy called ``name``; ``settings`` replace its defaults. Raises :class:`UsageError` ``usage-policy``."""
    if name not in _MODULES:
        raise UsageError("usage-policy", f"there is no policy called {name!r}", hint=f"policies: {', '.join(NAMES)}")
    kind = import_module(f"{__name__}.{_MODULES[name]}").POLICY
    try:
        made: Policy = kind(**settings)
    except TypeError:
        raise UsageError("usage-policy", f"{name} has no such settings: {', '.join(sorted(settings))}") from None
    return made
