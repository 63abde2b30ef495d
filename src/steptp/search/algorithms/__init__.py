"""The algorithms, found in the modules of this package: one file each, which offers its class as ``ALGORITHM``."""

from __future__ import annotations

import difflib
import importlib
import json
import pkgutil
from functools import lru_cache
from typing import TYPE_CHECKING

from steptp.errors import UsageError

if TYPE_CHECKING:
    from steptp.search.session import Algorithm

__all__ = ["algorithm", "names"]


@lru_cache(maxsize=1)
def _classes() -> dict[str, type[Algorithm]]:
    modules = [importlib.import_module(f"{__name__}.{info.name}") for info in pkgutil.iter_modules(__path__)]
    return {m.ALGORITHM.name: m.ALGORITHM for m in sorted(modules, key=lambda m: m.__name__)}


def names() -> tuple[str, ...]:
    """Names of all algorithms, sorted."""
    return tuple(sorted(_classes()))


def algorithm(name: str, **settings: object) -> Algorithm:
    """The algorithm called ``name``, or ``name:setting=value,…``; settings replace its defaults. Raises :class:`UsageError` ``usage-search``."""
    name, _, written = name.partition(":")
    for part in filter(None, written.split(",")):
        key, _, value = part.partition("=")
        try:
            settings[key.strip()] = json.loads(value)
        except ValueError:
            raise UsageError("usage-search", f"{part!r} is no setting of a search", hint="write --search beam:width=2,k=4") from None
    found = _classes().get(name)
    if found is None:
        near = difflib.get_close_matches(name, names(), n=1)
        raise UsageError("usage-search", f"there is no search called {name!r}", hint=f"did you mean {near[0]}?" if near else f"searches: {', '.join(names())}")
    try:
        return found(**settings)
    except TypeError:
        raise UsageError("usage-search", f"{name} has no such settings: {', '.join(sorted(settings))}") from None
