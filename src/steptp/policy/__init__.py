"""Policies: what proposes steps. Most need no weights; ``openai`` and ``local`` ask a language model."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from steptp.errors import UsageError

if TYPE_CHECKING:
    from steptp.search.policy import Policy

__all__ = ["NAMES", "policy", "usual_search"]

_MODULES = {"heuristic": "heuristic", "local": "local", "openai": "openai_compatible", "random": "random"}
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


def usual_search(policy: str) -> str:
    """The search that suits a policy best: the heuristic's first choice is meant to be followed to its end before another is tried."""
    return "beam:width=1,k=1,depth=64" if policy == "heuristic" else "beam"
