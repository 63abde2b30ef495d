"""Listing sites and taking steps: the one way from a program to the next."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

from steptp.errors import LeirError, UsageError, internal
from steptp.ir import print_program, problems
from steptp.ir.nodes import Program
from steptp.rewrite import registry
from steptp.rewrite.base import Applied, NotApplicable, Outcome, Site, Strategy
from steptp.rewrite.context import Context, path_text
from steptp.rewrite.outline import same_up_to_names

__all__ = ["SiteList", "sites", "apply", "applied_or_raise", "STRICT_VARIABLE"]

STRICT_VARIABLE = "STEPTP_STRICT"
"""When this environment variable is ``1`` (tests set it), a strategy that builds an invalid program raises."""

_LOOKAHEAD = 4  # a strategy offers at most this many times the limit before the list is thinned


@dataclass(frozen=True, slots=True)
class SiteList:
    """Sites in stable order (strategy by name, then program order); ``cut`` says that some were left out."""

    sites: tuple[Site, ...]
    cut: bool

    def __iter__(self) -> Iterator[Site]:
        return iter(self.sites)

    def __len__(self) -> int:
        return len(self.sites)


def _chosen(strategies: Iterable[Strategy | str] | None) -> tuple[Strategy, ...]:
    if strategies is None:
        return registry.all_strategies()
    picked = {(s.name if isinstance(s, Strategy) else s): (s if isinstance(s, Strategy) else registry.get(s)) for s in strategies}
    return tuple(picked[name] for name in sorted(picked))


def sites(program: Program, strategies: Iterable[Strategy | str] | None = None, limit: int | None = 400) -> SiteList:
    """Every site of the chosen strategies (all by default), at most ``limit``; ``None`` lists all.

    A list that is cut is shared fairly: strategies with few sites keep all of theirs, the others get equal parts, taken evenly over their
    program order. Raises :class:`LeirError` when the program is not valid.
    """
    _require_valid(program)
    ctx = Context.of(program)
    cut = False
    found: list[list[Site]] = []
    for one in _chosen(strategies):
        every = one.sites(ctx)
        if limit is None:
            mine = list(every)
        else:
            mine = list(islice(every, limit * _LOOKAHEAD + 1))
            if len(mine) > limit * _LOOKAHEAD:
                mine.pop()
                cut = True
        found.append(mine)
    total = sum(map(len, found))
    if limit is not None and total > limit:
        cut = True
        found = [_thin(mine, n) for mine, n in zip(found, _shares([len(m) for m in found], limit), strict=True)]
    return SiteList(tuple(s for mine in found for s in mine), cut)


def _shares(counts: Sequence[int], limit: int) -> list[int]:
    """Max-min fair parts of ``limit``; what does not divide goes to the first strategies."""
    out = [0] * len(counts)
    left = min(limit, sum(counts))
    while left:
        for n, count in enumerate(counts):
            if left and out[n] < count:
                out[n] += 1
                left -= 1
    return out


def _thin(items: list[Site], count: int) -> list[Site]:
    """``count`` of the items, evenly spaced, in order."""
    return [items[n * len(items) // count] for n in range(count)] if count < len(items) else items


def _require_valid(program: Program) -> None:
    if program._cache.get("valid") is True:
        return
    if found := problems(program):
        raise found[0]
    program._cache["valid"] = True


def apply(program: Program, site: Site | str) -> Outcome:
    """Take one step. Whatever is wrong with the site (or the id) comes back as :class:`NotApplicable`.

    Raises :class:`LeirError` only when ``program`` itself is not valid.
    """
    _require_valid(program)
    try:
        place = Site.parse(site) if isinstance(site, str) else site
        strategy = registry.get(place.strategy)
    except UsageError as err:
        return NotApplicable(err.code, err.message + (f" ({err.hint})" if err.hint else ""))
    ctx = Context.of(program)
    if place.path and place.path not in ctx.by_path:
        return NotApplicable("no-such-place", f"the program has no statement at {path_text(place.path)}")
    try:
        outcome = strategy.apply(ctx, place)
    except LeirError as err:  # a construction that the IR refuses
        return _bug(place, f"{err.code}: {err.message}", None)
    if isinstance(outcome, NotApplicable):
        return outcome
    if outcome.exactness not in strategy.classes:
        return _bug(place, f"class {outcome.exactness} is not declared", outcome.program)
    if found := problems(outcome.program):
        return _bug(place, f"{found[0].code}: {found[0].message}", outcome.program)
    outcome.program._cache["valid"] = True
    if same_up_to_names(outcome.program, program):
        return NotApplicable("no-op", f"{place.id} would give the same program again")
    return outcome


def _bug(site: Site, message: str, result: Program | None) -> NotApplicable:
    text = f"{site.id} built an invalid program ({message})"
    if os.environ.get(STRICT_VARIABLE) == "1":
        raise internal(text + (f"\n{print_program(result)}" if result is not None else ""))
    return NotApplicable("internal", text)


def applied_or_raise(program: Program, site: Site | str) -> Applied:
    """Like :func:`apply`, for callers that know that the site applies; raises :class:`UsageError` ``usage-site`` otherwise."""
    outcome = apply(program, site)
    if isinstance(outcome, NotApplicable):
        raise UsageError("usage-site", f"not applicable ({outcome.code}): {outcome.message}")
    return outcome
