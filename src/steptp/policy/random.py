"""Random sites: fair between strategies, uniform within one. The baseline of every comparison."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

from steptp.dataset.walk import list_sites, spread
from steptp.rewrite import registry
from steptp.search.moves import Action, Answer, Proposal
from steptp.search.policy import State

__all__ = ["POLICY", "RandomSites"]


class RandomSites:
    """Draws with the state's seed; a site is proposed once a state. Kernel bindings are left out: a CPU cannot time them."""

    name = "random"

    @property
    def settings(self) -> dict[str, Any]:
        return {}

    def propose(self, state: State, k: int) -> Sequence[Answer]:
        rng = random.Random(state.seed)
        listed = [s for s in list_sites(state.program, registry.names_for("cpu"), rng, k + len(state.tried)) if s.id not in state.tried]
        return [Proposal(Action(site.id)) for site in spread(listed, rng, k)]

    def tokens_at_most(self, state: State, k: int) -> int:
        return 0


POLICY = RandomSites
