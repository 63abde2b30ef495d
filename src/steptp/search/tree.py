"""The tree of verified programs, with every attempt that was made at each."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from steptp.analysis.host import HostInfo
from steptp.ir import Program, parse, print_program, program_hash
from steptp.ir.seeds import derive_seed
from steptp.search.moves import Move, move_json, move_key
from steptp.search.policy import FailedTry, State, Taken

__all__ = ["Attempt", "Node", "Tree"]


@dataclass(frozen=True, slots=True)
class Attempt:
    """What came of one answer. ``kind``: ``ok`` (``node`` is new), ``known`` (``node`` was there before), ``no_op``, ``refused`` (the strategy does not
    apply, or the lines are not there), a verdict's kind, or a policy's code. ``move`` is ``None`` for an answer without one."""

    move: Move | None
    kind: str
    message: str = ""
    tier: int | None = None
    node: int | None = None
    reason: str = ""

    def to_json(self) -> dict[str, Any]:
        """Plain JSON data."""
        move = None if self.move is None else move_json(self.move)
        return {"move": move, "kind": self.kind, "message": self.message, "tier": self.tier, "node": self.node, "reason": self.reason}


@dataclass(eq=False, slots=True)
class Node:
    """A verified program. ``number`` is its place in the order of finding. ``ratio``: time of the parent over its own; ``speedup``: over the start, the
    product of the ratios on the way; ``None`` where nothing was timed. ``judged``: verdict, evidence and timing as plain data."""

    number: int
    text: str
    hash: str
    parent: Node | None = None
    move: Move | None = None
    reason: str = ""
    exactness: str = ""
    ratio: float | None = None
    speedup: float | None = None
    judged: dict[str, Any] = field(default_factory=dict)
    attempts: list[Attempt] = field(default_factory=list)
    children: list[Node] = field(default_factory=list)
    asked: int = 0
    exhausted: bool = False

    @property
    def depth(self) -> int:
        """Steps from the start."""
        return sum(1 for _ in self.path()) - 1

    def path(self) -> Iterator[Node]:
        """From this node up to the start."""
        here: Node | None = self
        while here is not None:
            yield here
            here = here.parent

    @property
    def rank(self) -> tuple[float, int]:
        """Sort key: slowest last, then the order of finding; the smaller the better."""
        return (-(self.speedup or 0.0), self.number)


class Tree:
    """Nodes by number; one node a canonical hash, whichever way it was reached first."""

    def __init__(self, start: Program) -> None:
        text = print_program(start)
        self.nodes: list[Node] = [Node(0, text, program_hash(start), speedup=1.0)]
        self.by_hash: dict[str, Node] = {self.start.hash: self.start}

    @property
    def start(self) -> Node:
        return self.nodes[0]

    @property
    def best(self) -> Node:
        """The fastest node; the earliest of equals."""
        return min(self.nodes, key=lambda n: n.rank)

    def add(self, parent: Node, move: Move, text: str, name: str, judged: dict[str, Any], *, exactness: str, reason: str) -> Node:
        """A new verified program below ``parent``."""
        timing = judged["timing"]
        ratio = None if timing is None else float(timing["ratio"])
        speedup = None if ratio is None or parent.speedup is None else parent.speedup * ratio
        node = Node(len(self.nodes), text, name, parent, move, reason, exactness, ratio, speedup, judged)
        self.nodes.append(node)
        self.by_hash[name] = node
        parent.children.append(node)
        return node

    def state(self, node: Node, *, with_parent: bool, host: HostInfo, threads: int, seed: int, deadline: float | None = None) -> State:
        """What a policy sees at ``node``."""
        way = [n for n in node.path() if n.move is not None][::-1]
        return State(
            program=parse(node.text),
            text=node.text,
            hash=node.hash,
            root=self.start.text,
            parent=node.parent.text if with_parent and node.parent is not None else None,
            history=tuple(Taken(n.move, n.ratio, n.speedup) for n in way if n.move is not None),
            failed=tuple(FailedTry(a.move, a.kind, a.message) for a in node.attempts if a.kind != "ok"),
            tried=frozenset(move_key(a.move) for a in node.attempts if a.move is not None),
            host=host,
            threads=threads,
            seed=derive_seed("ask", seed, node.hash, node.asked),
            deadline=deadline,
        )

    def to_json(self) -> list[dict[str, Any]]:
        """Every node with its attempts, without the programs' texts."""
        return [
            {
                "number": n.number, "hash": n.hash, "parent": None if n.parent is None else n.parent.number,
                "move": None if n.move is None else move_json(n.move), "ratio": n.ratio, "speedup": n.speedup,
                "attempts": [a.to_json() for a in n.attempts],
            }
            for n in self.nodes
        ]  # fmt: skip
