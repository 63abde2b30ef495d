"""What search asks of a policy: proposals for a state."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from steptp.analysis.host import HostInfo
from steptp.ir.nodes import Program
from steptp.search.moves import Answer, Move

__all__ = ["FailedTry", "Policy", "State", "Taken"]


@dataclass(frozen=True, slots=True)
class Taken:
    """A step on the way to a state. ``ratio``: time before over time after; ``speedup`` over the start. ``None`` where nothing was timed."""

    move: Move
    ratio: float | None
    speedup: float | None


@dataclass(frozen=True, slots=True)
class FailedTry:
    """A move that was proposed for a state and came to nothing: ``kind`` is a verdict, ``refused``, ``no_op``, ``known`` or a policy's own code."""

    move: Move | None
    kind: str
    message: str


@dataclass(frozen=True, slots=True)
class State:
    """What a policy sees. Equal states get equal answers: whatever is random in a policy comes from ``seed``.

    ``text`` is the canonical text of ``program``; ``root`` the start's. ``parent`` is the text of the program before (``None`` at the start, or
    where an algorithm withholds it). ``tried``: keys (:func:`steptp.search.moves.move_key`) of moves proposed for this state before. ``deadline``: when
    the search's seconds are over, by ``time.monotonic``; no part of the state's identity.
    """

    program: Program
    text: str
    hash: str
    root: str
    parent: str | None
    history: tuple[Taken, ...]
    failed: tuple[FailedTry, ...]
    tried: frozenset[str]
    host: HostInfo
    threads: int
    seed: int
    deadline: float | None = field(default=None, compare=False)

    @property
    def seconds_left(self) -> float | None:
        """Seconds until the deadline, not below 0; ``None`` without one."""
        return None if self.deadline is None else max(0.0, self.deadline - time.monotonic())


class Policy(Protocol):
    """Proposes moves. ``name`` and ``settings`` identify it: a search resumes only with the policy that it began with."""

    name: str

    @property
    def settings(self) -> dict[str, Any]: ...

    def propose(self, state: State, k: int) -> Sequence[Answer]:
        """At most ``k`` answers, best first; none when it has nothing (more) to propose. Ends at the state's deadline with what it has: the search drops it."""
        ...

    def tokens_at_most(self, state: State, k: int) -> int:
        """A bound on the tokens that ``propose(state, k)`` uses; 0 for policies without tokens."""
        ...
