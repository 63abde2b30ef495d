"""The strategies, found in the modules of :mod:`steptp.rewrite.strategies`."""

from __future__ import annotations

import difflib
import importlib
import pkgutil
from functools import lru_cache

from steptp.errors import UsageError, internal
from steptp.rewrite import strategies
from steptp.rewrite.base import Family, Strategy

__all__ = ["all_strategies", "names", "names_for", "get"]


@lru_cache(maxsize=1)
def all_strategies() -> tuple[Strategy, ...]:
    """Every strategy, sorted by name. A module offers one as ``STRATEGY`` or several as ``STRATEGIES``; a leading underscore hides it."""
    found: dict[str, Strategy] = {}
    for info in sorted(pkgutil.iter_modules(strategies.__path__), key=lambda i: i.name):
        if info.name.startswith("_"):
            continue
        module = importlib.import_module(f"{strategies.__name__}.{info.name}")
        offered = tuple(getattr(module, "STRATEGIES", ())) or ((module.STRATEGY,) if hasattr(module, "STRATEGY") else ())
        if not offered:
            raise internal(f"{module.__name__} offers no strategy")
        for one in offered:
            if one.name in found:
                raise internal(f"two strategies are called {one.name}")
            found[one.name] = one
    return tuple(found[name] for name in sorted(found))


def names() -> tuple[str, ...]:
    """Names of all strategies, sorted."""
    return tuple(s.name for s in all_strategies())


def names_for(target: str) -> tuple[str, ...]:
    """Names of the strategies that apply to programs for ``target``: only ``cuda`` binds kernels, which a CPU cannot time."""
    return tuple(s.name for s in all_strategies() if target == "cuda" or s.family is not Family.GPU)


def get(name: str) -> Strategy:
    """The strategy called ``name``; raises :class:`UsageError` ``usage-strategy`` with the nearest names."""
    for one in all_strategies():
        if one.name == name:
            return one
    near = difflib.get_close_matches(name, names(), n=3)
    hint = f"did you mean {' or '.join(near)}?" if near else "'steptp strategies' lists them"
    raise UsageError("usage-strategy", f"there is no strategy called {name!r}", hint=hint)
