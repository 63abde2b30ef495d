"""Strategies whose sites are the loops where one pattern matches: no parameters, and the match decides for ``sites`` and ``apply`` alike."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from typing import Generic, TypeVar

from steptp.ir.nodes import Path
from steptp.rewrite.base import NotApplicable, Outcome, Site, Strategy
from steptp.rewrite.context import Context, no_loop

__all__ = ["LoopPattern"]

M = TypeVar("M")


class LoopPattern(Strategy, Generic[M]):
    """A strategy without parameters at the loops that :meth:`match` accepts."""

    @abstractmethod
    def match(self, ctx: Context, path: Path) -> M | NotApplicable:
        """What the rewrite needs to know of the nest at the loop ``path``, or why the strategy does not apply there."""

    @abstractmethod
    def rewrite(self, ctx: Context, path: Path, found: M) -> Outcome:
        """Take the step at a match."""

    def sites(self, ctx: Context) -> Iterator[Site]:
        for path, _ in ctx.loops:
            if not isinstance(self.match(ctx, path), NotApplicable):
                yield Site.of(self.name, path)

    def apply(self, ctx: Context, site: Site) -> Outcome:
        if site.params:
            return NotApplicable("bad-site", f"{self.name} takes no parameters")
        if ctx.loop(site.path) is None:
            return no_loop(site.path)
        found = self.match(ctx, site.path)
        return found if isinstance(found, NotApplicable) else self.rewrite(ctx, site.path, found)
