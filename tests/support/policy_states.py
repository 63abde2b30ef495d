"""States to ask policies about, on a host that is the same everywhere."""

from __future__ import annotations

from steptp.analysis.host import HostInfo
from steptp.ir import parse
from steptp.policy import policy
from steptp.search.moves import Action, Proposal
from steptp.search.policy import State
from steptp.search.tree import Tree


def state_of(text: str, threads: int = 2, seed: int = 0) -> State:
    tree = Tree(parse(text))
    return tree.state(tree.start, with_parent=True, host=HostInfo("host", 2, 32768, 524288, 16 << 20, 64, 256), threads=threads, seed=seed)


def sites(state: State, k: int, name: str) -> list[str]:
    return [a.move.site for a in policy(name).propose(state, k) if isinstance(a, Proposal) and isinstance(a.move, Action)]
