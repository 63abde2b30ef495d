"""A policy that answers what it was told to: for tests and for replaying."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from steptp.ir.seeds import digest
from steptp.search.moves import Action, Answer, Edit, Failed, Move, Proposal, Rewrite, move_key
from steptp.search.policy import State

__all__ = ["Scripted"]


class Scripted:
    """``script``: the moves on the way to a state (their keys, joined by ``" > "``) → answers, taken in turn as the state is asked again; site ids may
    stand for actions. The entry ``"*"`` answers for every state that has none of its own. ``tokens`` is what each answer is said to cost."""

    name = "scripted"

    def __init__(self, script: Mapping[str, Sequence[str | Move | Failed]], tokens: int = 0) -> None:
        self.script, self.tokens = script, tokens
        self.seen: list[State] = []

    @property
    def settings(self) -> dict[str, Any]:
        return {"script": digest(sorted((k, [str(a) for a in v]) for k, v in self.script.items())), "tokens": self.tokens}

    def propose(self, state: State, k: int) -> Sequence[Answer]:
        self.seen.append(state)
        way = " > ".join(move_key(t.move) for t in state.history)
        answers = [_answer(a, self.tokens) for a in self.script.get(way, self.script.get("*", ()))]
        failures = sum(1 for f in state.failed if f.move is None)
        left: list[Answer] = []
        for answer in answers:
            if isinstance(answer, Proposal):
                if move_key(answer.move) not in state.tried:
                    left.append(answer)
            elif failures:
                failures -= 1
            else:
                left.append(answer)
        return left[:k]

    def tokens_at_most(self, state: State, k: int) -> int:
        return k * self.tokens


def _answer(given: str | Move | Failed, tokens: int) -> Answer:
    if isinstance(given, Failed):
        return Failed(given.code, given.message, tokens)
    if isinstance(given, Action | Edit | Rewrite):
        return Proposal(given, tokens=tokens)
    return Proposal(Action(given), tokens=tokens)
