"""The default policy: walk to where no goal of tuning asks for more, in the model, and propose the first steps of the best ways.

A way (:mod:`steptp.policy.tuning`) is a few dozen steps, most of which make nothing faster by themselves; so a state is valued by the end of its ways, which a roofline
model of this host ranks (:mod:`steptp.policy.roofline`). Ways differ in their register tiles. Where the ways are used up, single steps that the model finds faster follow.
Equal states get equal answers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from steptp.analysis.features import features
from steptp.analysis.host import HostInfo
from steptp.errors import LeirError
from steptp.ir import program_hash
from steptp.ir.nodes import Program
from steptp.policy.roofline import predicted_cycles
from steptp.policy.tuning import CHOICES, way
from steptp.policy.tuning.view import after
from steptp.rewrite import engine
from steptp.rewrite.base import Site
from steptp.search.moves import Action, Answer, Proposal
from steptp.search.policy import State

__all__ = ["POLICY", "Heuristic", "cycles_after"]

_LOOSE = 1.5  # ways that end at most this much slower than the best one are worth a sample
_DOUBT = 0.1  # a later choice has to be better by this much: the tiles themselves are ranked more closely than whole programs
_GAIN = 0.9  # modelled time that a single step has to reach
_LIMIT = 120  # sites listed
_LOOK = (
    "compute_at",
    "compute_inline",
    "loop_fusion",
    "loop_parallelization",
    "loop_reorder",
    "loop_unrolling",
    "loop_vectorization",
    "operator_fusion",
)


class Heuristic:
    """At most as many answers as there are good ways: where the next step is plain, one. ``choices``: register tiles that are tried."""

    name = "heuristic"

    def __init__(self, choices: int = CHOICES) -> None:
        self.choices = choices

    @property
    def settings(self) -> dict[str, Any]:
        return {"choices": self.choices}

    def propose(self, state: State, k: int) -> Sequence[Answer]:
        try:
            found = list(_ways(state, self.choices))
            if not found:
                found = list(_looked(state))
        except LeirError:  # no features: a program whose resets are not defined
            return []
        return [Proposal(Action(site.id), reason=why) for site, why in found[:k]]

    def tokens_at_most(self, state: State, k: int) -> int:
        return 0


def _ways(state: State, choices: int) -> Iterator[tuple[Site, str]]:
    """First steps of the ways from here, that with the best end first."""
    ends: dict[str, tuple[float, int, Site, str]] = {}
    for choice in range(choices):
        if choice and _late(state):
            break
        found = way(state.program, state.host, state.threads, choice)
        if found.steps:
            cycles = predicted_cycles(found.end, state.host, state.threads)
            cycles *= 1.0 + _DOUBT * choice
            ends.setdefault(program_hash(found.end), (cycles, choice, found.steps[0].site, found.steps[0].why))
    rows = sorted(ends.values(), key=lambda row: row[:2])
    firsts: dict[str, tuple[Site, str]] = {}
    for cycles, _, site, why in rows:
        if cycles <= _LOOSE * rows[0][0] and site.id not in state.tried:
            firsts.setdefault(site.id, (site, why))
    yield from firsts.values()


def _looked(state: State) -> Iterator[tuple[Site, str]]:
    """Single steps in the nest that does most of the work, as far as the model finds them faster."""
    now = predicted_cycles(state.program, state.host, state.threads)
    top = features(state.program).dominating[:1]
    rows: list[tuple[float, int, Site]] = []
    for n, site in enumerate(engine.sites(state.program, _LOOK, limit=_LIMIT)):
        if _late(state):
            break
        if site.id in state.tried or site.path[:1] not in (top, ()):
            continue
        cycles = cycles_after(state.program, site, state.host, state.threads)
        if cycles is not None and cycles <= _GAIN * now:
            rows.append((cycles, n, site))
    for cycles, _, site in sorted(rows, key=lambda row: row[:2]):
        yield site, f"the roofline model expects {now / max(cycles, 1.0):.2f} times the speed"


def cycles_after(program: Program, site: Site, host: HostInfo, threads: int) -> float | None:
    """What the roofline model expects after a step; ``None`` where it does not apply or has no features."""
    made = after(program, site)
    try:
        return None if made is None else predicted_cycles(made, host, threads)
    except LeirError:
        return None


def _late(state: State) -> bool:
    return state.seconds_left == 0.0


POLICY = Heuristic
