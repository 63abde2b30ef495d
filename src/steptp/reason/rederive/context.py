"""What a re-derivation may look at: the two programs, the site, the candidates, the host. Nothing of the strategies."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from steptp.errors import LeirError
from steptp.interp.cost import count_instances
from steptp.ir.nodes import Loop, Path, Program, Stmt
from steptp.ir.printer import print_program
from steptp.ir.walk import get
from steptp.reason.patterns import Claim
from steptp.reason.rederive.symbolic import Event, Run, run

__all__ = ["CheckContext", "Rederivation", "little_work", "loop_at"]

Rederivation = Callable[[Claim, "CheckContext"], "str | None"]

_AS_IS = 20_000  # most instances of both programs that are run at their present sizes
_CAPS = (4, 6, 9, 14)  # how large sizes may be where tiny ones do not do


def little_work(parent: Program, child: Program) -> bool:
    """Whether both programs may be run at their present sizes."""
    return sum(count_instances(p, p.size_env) for p in (parent, child)) <= _AS_IS


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
        return self.bound(self.parent, self.child, preferred=1200)

    def bound(self, parent: Program, child: Program, preferred: int) -> tuple[tuple[Program, Program], ...]:
        """A parent and a child at common small sizes: the two largest bindings found; larger ones where the programs pin their sizes."""
        from steptp.verify.bindings import apply_binding, tiny_bindings

        found = tiny_bindings(parent, child, preferred=preferred, limit=8000).found or tiny_bindings(parent, child, limit=100_000).found
        return tuple((apply_binding(parent, b.values), apply_binding(child, b.values)) for b in found[-2:])

    def near(self, place: Path) -> bool:
        """Whether a path speaks of this step: at, above or below the site. A site that names a buffer only is near to no path."""
        shared = min(len(place), len(self.path))
        return shared > 0 and place[:shared] == self.path[:shared]

    @cached_property
    def runs(self) -> tuple[tuple[Run, Run, Run, Run], ...]:
        """For each tiny binding at which the parent reads nothing that was never written: parent and child in order, parent and child as multisets.

        Where no tiny binding does, larger ones are tried until one does.
        """
        pairs = [(first, a, b) for a, b in self.tiny if not (first := run(a)).undefined]
        if not pairs:
            pairs = next(([(first, a, b)] for a, b in self._larger() if not (first := run(a)).undefined), [])
        return tuple((first, run(b), run(a, ordered=False), run(b, ordered=False)) for first, a, b in pairs)

    def _larger(self) -> Iterator[tuple[Program, Program]]:
        """Both programs at their present sizes cut down to a few, then to more, and as they are; only where that is little work."""
        from steptp.verify.bindings import apply_binding

        free = {s.name: s.value for p in (self.parent, self.child) for s in p.sizes if s.expr is None}
        for most in (*_CAPS, max(free.values(), default=0)):
            values = {name: min(value, most) for name, value in free.items()}
            try:
                pair = (apply_binding(self.parent, values), apply_binding(self.child, values))
            except LeirError:  # a constraint wants other sizes
                continue
            if little_work(*pair):
                yield pair

    @property
    def no_runs(self) -> str:
        """Why ``runs`` is empty."""
        return "at all sizes tried, the parent reads elements that nothing has written" if self.tiny else "no tiny sizes to try it at"

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
