"""What a re-derivation may look at: the two programs, the site, the candidates, the host. Nothing of the strategies."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from steptp.errors import LeirError
from steptp.ir.nodes import Loop, Path, Program, Stmt
from steptp.ir.printer import print_program
from steptp.ir.walk import get
from steptp.reason.patterns import Claim
from steptp.reason.rederive.symbolic import Event, Run, run

__all__ = ["CheckContext", "Rederivation", "loop_at"]

Rederivation = Callable[[Claim, "CheckContext"], "str | None"]


def loop_at(program: Program, path: Path) -> Loop | None:
    """The loop at ``path``, or ``None``."""
    try:
        found: Stmt = get(program, path)
    except KeyError:
        return None
    return found if isinstance(found, Loop) else None


@dataclass
class CheckContext:
    """``strategy``, ``path`` and ``params`` are read from the site id."""

    parent: Program
    child: Program
    site: str
    strategy: str
    path: Path
    params: Mapping[str, str]
    candidates: Sequence[str]
    host: Mapping[str, Any]
    said: list[Claim] = field(default_factory=list)

    @cached_property
    def lines(self) -> tuple[list[str], list[str]]:
        return print_program(self.parent).splitlines(), print_program(self.child).splitlines()

    @cached_property
    def tiny(self) -> tuple[tuple[Program, Program], ...]:
        """Both programs at tiny sizes, up to two bindings; loops run at least twice where the sizes allow."""
        return self._bound(preferred=1200)

    def _bound(self, preferred: int) -> tuple[tuple[Program, Program], ...]:
        from steptp.verify.bindings import apply_binding, tiny_bindings

        # sizes that the programs pin can leave no small binding of both: then a larger one of the child, which has every size of the parent
        pair = (self.parent, self.child)
        options = (tiny_bindings(*subjects, preferred=preferred, limit=limit).found for subjects, limit in ((pair, 8000), (pair[1:], 60_000)))
        found = sorted(next((f for f in options if f), ()), key=lambda b: b.instances)
        return tuple((apply_binding(self.parent, b.values), apply_binding(self.child, b.values)) for b in found[-2:])

    def near(self, place: Path) -> bool:
        """Whether a path speaks of this step: at, above or below the site."""
        shared = min(len(place), len(self.path))
        return place[:shared] == self.path[:shared]

    @cached_property
    def runs(self) -> tuple[tuple[Run, Run, Run, Run], ...]:
        """For each tiny binding: parent and child in order, parent and child as multisets."""
        return tuple((run(a), run(b), run(a, ordered=False), run(b, ordered=False)) for a, b in self.tiny)

    def roomy(self) -> Iterator[tuple[Program, Program]]:
        """As ``tiny``, at larger sizes, where more than one pair of tiled loops has several tiles; then with the step's own tile sizes."""
        from steptp.ir.sizes import rebind

        larger = self._bound(preferred=3000)
        yield from reversed(larger)
        old = {s.name for s in self.parent.sizes}
        own = {s.name: s.value for s in self.child.sizes if s.expr is None and s.name not in old}
        for parent, child in larger if own else ():
            try:
                yield parent, rebind(child, {**{s.name: s.value for s in child.sizes if s.expr is None}, **own})
            except LeirError:  # a constraint ties the tiles to the other sizes
                continue

    def events(self, program: Program) -> list[Event]:
        out: list[Event] = []
        run(program, watch=out.append)
        return out

    def guarded(self, check: Rederivation, claim: Claim) -> str | None:
        """Run a re-derivation; what cannot be worked out is not supported."""
        try:
            return check(claim, self)
        except (LeirError, KeyError, ValueError, IndexError) as err:
            return f"cannot be re-derived ({type(err).__name__}: {str(err).splitlines()[0] if str(err) else ''})"
