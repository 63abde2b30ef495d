"""One search: what algorithms call, and the loop around them that always ends with the best verified program so far."""

from __future__ import annotations

import random
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

from steptp.analysis.host import HostInfo
from steptp.errors import StepTPError, UsageError
from steptp.ir import Program
from steptp.ir.seeds import derive_seed
from steptp.search.budget import Budget, Limits, Spent
from steptp.search.checkpoint import Store
from steptp.search.evaluator import Evaluator, Made, OutOfTime
from steptp.search.moves import Answer, Failed, Move, Proposal, answer_json, answer_of
from steptp.search.policy import Policy
from steptp.search.tree import Attempt, Node, Tree

__all__ = ["Algorithm", "Found", "Progress", "Search", "run_search"]


@dataclass(frozen=True, slots=True)
class Algorithm(ABC):
    """A way through the tree. Its fields are its settings, which identify it together with ``name``."""

    name: ClassVar[str]

    @property
    def settings(self) -> dict[str, Any]:
        return asdict(self)

    @abstractmethod
    def run(self, search: Search) -> None:
        """Return when there is nothing more to do; spent budgets end it from inside."""


@dataclass(frozen=True, slots=True)
class Progress:
    """What is known after a batch of proposals at ``node``."""

    node: Node
    attempts: tuple[Attempt, ...]
    best: Node
    nodes: int
    spent: dict[str, float]


@dataclass(frozen=True, slots=True)
class Found:
    """How a search ended. ``stopped``: ``done`` (the algorithm had nothing more to do), a budget's name, or ``interrupted``.

    ``curve``: after how many samples and seconds which speedup was the best.
    """

    tree: Tree
    best: Node
    stopped: str
    spent: dict[str, float]
    curve: tuple[tuple[int, float, float], ...]


class Search:
    """The tree, the budget and the two things an algorithm can do: :meth:`expand` a node by the policy, or :meth:`attempt` moves of its own."""

    def __init__(
        self, start: Program, policy: Policy, evaluator: Evaluator, *, limits: Limits, seed: int = 0, host: HostInfo | None = None, threads: int = 1,
        store: Store | None = None, watch: Callable[[Progress], None] | None = None, clock: Callable[[], float] = time.monotonic,
    ) -> None:  # fmt: skip
        self.tree, self.policy, self.evaluator = Tree(start), policy, evaluator
        self.seed, self.threads, self.host = seed, threads, host or HostInfo.detect()
        self.rng = random.Random(derive_seed("search", seed))
        self.store = store or Store()
        self.budget = Budget(limits, clock=clock, elapsed=self.store.elapsed)
        self.curve: list[tuple[int, float, float]] = [(0, 0.0, 1.0)]
        self._watch = watch
        self._asks = 0
        self._rejected: dict[tuple[str, str], Attempt] = {}

    @property
    def best(self) -> Node:
        return self.tree.best

    def expand(self, node: Node, k: int, *, with_parent: bool = True) -> list[Attempt]:
        """Ask the policy for at most ``k`` proposals at ``node`` and judge them. Empty when it has none; raises :class:`Spent`."""
        if node.exhausted:
            return []
        key, held = self._held(node)
        if held is not None:
            answers = held
        else:
            answers = self._asked(node, k, with_parent)
        node.asked += 1
        node.exhausted = not answers
        self.budget.spend(samples=len(answers), tokens=sum(a.tokens for a in answers))
        if held is None:
            self.store.put(key, {"node": node.hash, "answers": [answer_json(a) for a in answers], "elapsed": self.budget.elapsed})
        return self._settle(node, answers)

    def _asked(self, node: Node, k: int, with_parent: bool) -> list[Answer]:
        """Answers of the policy. Those of a question that the end of the search has cut short cost their tokens and are dropped: they may not be all, and a
        resumed search asks again."""
        left = self.budget.seconds_left
        deadline = None if left is None else time.monotonic() + left
        state = self.tree.state(node, with_parent=with_parent, host=self.host, threads=self.threads, seed=self.seed, deadline=deadline)
        count = self.budget.grant(k, lambda n: self.policy.tokens_at_most(state, n))
        try:
            answers = list(self.policy.propose(state, count))[:count]
        except StepTPError as err:
            answers = [Failed(err.code, err.message)]
        if self.budget.seconds_left == 0.0:
            self.budget.spend(tokens=sum(a.tokens for a in answers))
            raise Spent("seconds")
        return answers

    def attempt(self, node: Node, moves: Sequence[Move], reason: str = "") -> list[Attempt]:
        """Judge moves that the algorithm itself proposes; each counts as a sample. Raises :class:`Spent`."""
        key, held = self._held(node)
        if held is not None:
            answers = held
        else:
            count = self.budget.grant(len(moves), lambda n: 0)
            answers = [Proposal(move, reason) for move in moves[:count]]
            self.store.put(key, {"node": node.hash, "answers": [answer_json(a) for a in answers], "elapsed": self.budget.elapsed})
        self.budget.spend(samples=len(answers))
        return self._settle(node, answers)

    def _held(self, node: Node) -> tuple[str, list[Answer] | None]:
        """The journal's key of the next question, and the answers that it has already."""
        key = f"ask/{self._asks}"
        held = self.store.get(key)
        if held is None:
            return key, None
        if held["node"] != node.hash:
            raise UsageError("usage-checkpoint", f"the journal's {key} is at {held['node']}, the search is at {node.hash}", hint="Step-TP has changed since")
        return key, [answer_of(a) for a in held["answers"]]

    def _settle(self, node: Node, answers: list[Answer]) -> list[Attempt]:
        number = self._asks
        self._asks += 1
        moves = [a.move for a in answers if isinstance(a, Proposal)]
        programs = iter(self._made(f"made/{number}", node, moves))
        rows = [(a, next(programs) if isinstance(a, Proposal) else None) for a in answers]
        fresh: dict[str, Made] = {}
        for _, made in rows:
            if made is not None and not made.refused and made.hash not in self.tree.by_hash and (node.hash, made.hash) not in self._rejected:
                fresh.setdefault(made.hash, made)
        judged, cut = self._judged(f"judged/{number}", node, list(fresh.values()))
        attempts: list[Attempt] = []
        for answer, made in rows:
            if made is not None and made.hash in fresh and made.hash not in judged and made.hash not in self.tree.by_hash:
                continue  # a budget ended before its turn
            attempts.append(self._entered(node, answer, made, judged))
        node.attempts += attempts
        best = self.best
        if best.speedup is not None and best.speedup > self.curve[-1][2]:
            self.curve.append((self.budget.samples, round(self.budget.elapsed, 3), best.speedup))
        if self._watch is not None:
            self._watch(Progress(node, tuple(attempts), best, len(self.tree.nodes), self.budget.to_json()))
        if cut is not None:
            raise cut
        return attempts

    def _made(self, key: str, node: Node, moves: list[Move]) -> list[Made]:
        """The programs of moves. The journal keeps texts only: proofs are made again where a verdict is still missing."""
        if not moves:
            return []
        held = self.store.get(key)
        if held is not None and self.store.get(key.replace("made", "closed")) is not None:
            return [Made(**row) for row in held]
        self.budget.check_time()
        try:
            found = self.evaluator.make(node.text, moves, self.budget.seconds_left)
        except OutOfTime:
            raise Spent("seconds") from None
        if held is None:
            fields = ("text", "hash", "exactness", "refused", "message")
            self.store.put(key, [{name: getattr(made, name) for name in fields} for made in found])
        return found

    def _judged(self, key: str, node: Node, found: list[Made]) -> tuple[dict[str, dict[str, Any]], Spent | None]:
        """Verdicts by hash, as far as the budget goes, and what ended it. A measurement is reserved for every candidate and given back unless it was timed."""
        out: dict[str, dict[str, Any]] = {}
        pending: list[Made] = []
        for made in found:
            held = self.store.get(f"{key}/{made.hash}")
            if held is None:
                pending.append(made)
            else:
                out[made.hash] = held
                self.budget.spend(measurements=held["timing"] is not None)
        cut: Spent | None = None
        while pending and cut is None:
            room = self.budget.measurement_room(len(pending))
            batch, rest = pending[:room], pending[room:]

            def done(n: int, judged: dict[str, Any], batch: list[Made] = batch) -> None:
                out[batch[n].hash] = judged
                self.budget.spend(measurements=judged["timing"] is not None)
                self.store.put(f"{key}/{batch[n].hash}", {**judged, "elapsed": self.budget.elapsed})

            if not batch:
                cut = Spent("measurements")
            elif self.budget.seconds_left == 0.0:
                cut = Spent("seconds")
            else:
                try:
                    self.evaluator.judge(node.text, batch, self.budget.seconds_left, done)
                except OutOfTime:
                    cut = Spent("seconds")
            pending = rest
        closed = key.replace("judged", "closed")
        if cut is None and self.store.get(closed) is None:
            self.store.put(closed, True)
        return out, cut

    def _entered(self, node: Node, answer: Answer, made: Made | None, judged: dict[str, dict[str, Any]]) -> Attempt:
        """The attempt's record; a verified new program becomes a node."""
        if isinstance(answer, Failed) or made is None:
            assert isinstance(answer, Failed)
            return Attempt(None, answer.code, answer.message)
        if made.refused:
            return Attempt(answer.move, made.refused, made.message, reason=answer.reason)
        if made.hash == node.hash:
            return Attempt(answer.move, "no_op", "this is the same program again", reason=answer.reason)
        if (known := self.tree.by_hash.get(made.hash)) is not None:
            return Attempt(answer.move, "known", f"this program was found before (number {known.number})", node=known.number, reason=answer.reason)
        if (before := self._rejected.get((node.hash, made.hash))) is not None:
            return Attempt(answer.move, before.kind, before.message, before.tier, reason=answer.reason)
        verdict = judged[made.hash]
        if verdict["kind"] != "ok":
            attempt = Attempt(answer.move, verdict["kind"], verdict["message"], verdict["tier"], reason=answer.reason)
            self._rejected[node.hash, made.hash] = attempt
            return attempt
        child = self.tree.add(node, answer.move, made.text, made.hash, verdict, exactness=made.exactness, reason=answer.reason)
        return Attempt(answer.move, "ok", verdict["message"], verdict["tier"], child.number, answer.reason)

    def child(self, attempt: Attempt) -> Node | None:
        """The node that an attempt led to, new or known; ``None`` for a failed one."""
        return None if attempt.node is None else self.tree.nodes[attempt.node]

    def fresh(self, attempts: Sequence[Attempt]) -> list[Node]:
        """The new nodes of some attempts, in their order."""
        return [self.tree.nodes[a.node] for a in attempts if a.kind == "ok" and a.node is not None]


def run_search(algorithm: Algorithm, search: Search) -> Found:
    """Run until the algorithm is done, a budget is spent, or Ctrl-C; the best verified program so far is the answer in every case."""
    try:
        algorithm.run(search)
        stopped = "done"
    except Spent as end:
        stopped = end.what
    except KeyboardInterrupt:
        stopped = "interrupted"
    search.store.put("stopped", {"why": stopped, "elapsed": search.budget.elapsed})
    return Found(search.tree, search.best, stopped, search.budget.to_json(), tuple(search.curve))
