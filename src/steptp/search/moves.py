"""What a policy may propose: a site of the engine, an edit of lines, or a whole program; and an answer that could not be read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias, Union

from steptp.errors import internal
from steptp.ir.edits import edited_places

__all__ = ["Action", "Answer", "Edit", "Failed", "Move", "Proposal", "Rewrite", "answer_json", "answer_of", "move_json", "move_key", "move_of"]


@dataclass(frozen=True, slots=True)
class Action:
    """A strategy at a site, by the site's id."""

    site: str


@dataclass(frozen=True, slots=True)
class Edit:
    """Lines of the program's text change: ``lines`` are those of an edit (:mod:`steptp.ir.edits`)."""

    lines: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Rewrite:
    """The whole next program in LEIR."""

    text: str


Move: TypeAlias = Union[Action, Edit, Rewrite]


@dataclass(frozen=True, slots=True)
class Proposal:
    """A move with what the policy says of it; ``tokens`` is what it cost."""

    move: Move
    reason: str = ""
    tokens: int = 0


@dataclass(frozen=True, slots=True)
class Failed:
    """An answer without a move: a stable ``code`` (``answer-unreadable``, ``policy-timeout``, …) and a sentence."""

    code: str
    message: str
    tokens: int = 0


Answer: TypeAlias = Union[Proposal, Failed]


def move_key(move: Move) -> str:
    """Text that is equal for equal moves and short for sites."""
    if isinstance(move, Action):
        return move.site
    if isinstance(move, Edit):
        return f"edit {edited_places(move.lines)}\n" + "\n".join(move.lines)
    return f"rewrite\n{move.text}"


def move_json(move: Move) -> dict[str, Any]:
    """Plain JSON data; :func:`move_of` reads it back."""
    if isinstance(move, Action):
        return {"site": move.site}
    if isinstance(move, Edit):
        return {"lines": list(move.lines)}
    return {"text": move.text}


def move_of(data: dict[str, Any]) -> Move:
    """The move of :func:`move_json`."""
    if "site" in data:
        return Action(data["site"])
    if "lines" in data:
        return Edit(tuple(data["lines"]))
    if "text" in data:
        return Rewrite(data["text"])
    raise internal(f"no move has the fields {sorted(data)}")


def answer_json(answer: Answer) -> dict[str, Any]:
    """Plain JSON data; :func:`answer_of` reads it back."""
    if isinstance(answer, Failed):
        return {"code": answer.code, "message": answer.message, "tokens": answer.tokens}
    return {"move": move_json(answer.move), "reason": answer.reason, "tokens": answer.tokens}


def answer_of(data: dict[str, Any]) -> Answer:
    """The answer of :func:`answer_json`."""
    if "move" in data:
        return Proposal(move_of(data["move"]), data["reason"], data["tokens"])
    return Failed(data["code"], data["message"], data["tokens"])
