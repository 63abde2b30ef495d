"""What answers are worth: the search's workers carry moves out, check every tier and, where it matters, time the program against its parent."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from steptp.dataset.samples import Sample
from steptp.ir.seeds import digest
from steptp.search.evaluator import Judge, judged_json
from steptp.search.moves import Action, Answer, Failed, Move, move_key
from steptp.verify.isolation import settle

__all__ = ["STAGES", "Work", "judge_all", "stages"]

STAGES = ("read", "differs", "legal", "equal")
"""How far an answer comes: it can be read; it leads to another program; that is well-formed and no tier up to 2 refuses it; every tier finds it equal."""
_STATIC = 2  # the last tier that looks at the program's text alone


@dataclass(frozen=True, slots=True)
class Work:
    """A move on the program of a sample; ``timed``: its gain is wanted too."""

    sample: Sample
    move: Move
    timed: bool

    @property
    def key(self) -> str:
        """Equal for equal moves on equal programs, whoever made them."""
        return digest("verdict", self.sample.state, move_key(self.move), self.timed, length=24)


def judge_all(
    work: Sequence[Work], roots: Mapping[str, str], recorded: Mapping[tuple[str, str], str], *, threads: int, jobs: int, seed: int, margin: Callable[[Judge], None],
    done: Callable[[str, dict[str, Any]], None],
) -> None:  # fmt: skip
    """Judge pieces of work, no two of one key, and give ``done(key, verdict)`` what came of each.

    A verdict has ``kind`` (of the verifier, ``refused``, ``no_op``), ``tier``, ``message``, ``child`` (hash), and ``ratio`` and ``label`` where it was timed. ``roots``: hash of a root → its text; ``recorded``: (state, child) → the verdict that the dataset holds: untimed, it is not
    sought again. ``margin`` is called once with the judge before the first timing.
    """
    by_root: dict[str, list[Work]] = defaultdict(list)
    for piece in work:
        by_root[piece.sample.root].append(piece)
    order = sorted(by_root)
    with Judge(roots[order[0]], threads=threads, jobs=jobs, seed=seed) as judge:
        if any(piece.timed for piece in work):
            margin(judge)
        for root in order:
            judge.start = roots[root]
            _of_root(judge, by_root[root], recorded, done)


def _of_root(judge: Judge, work: Sequence[Work], recorded: Mapping[tuple[str, str], str], done: Callable[[str, dict[str, Any]], None]) -> None:
    flying = []
    by_parent: dict[str, list[Work]] = defaultdict(list)
    for piece in work:
        by_parent[piece.sample.program].append(piece)
    for parent, pieces in by_parent.items():
        for piece, made in zip(pieces, judge.make(parent, [piece.move for piece in pieces], None), strict=True):
            sample = piece.sample
            known = recorded.get((sample.state, made.hash))
            if made.refused:
                done(piece.key, {"kind": made.refused, "tier": 0, "message": made.message})
            elif made.hash == sample.state:
                done(piece.key, {"kind": "no_op", "tier": 0, "message": "the program as it was", "child": made.hash})
            elif known is not None and not piece.timed:
                done(piece.key, {"kind": known, "tier": 0, "message": "as the dataset has it", "child": made.hash})
            else:
                task = judge.task(parent, made) if piece.timed else replace(judge.task(parent, made), timer=None)
                flying.append((piece, made, task, judge.submit(task)))
    for piece, made, task, future in flying:
        result = settle(task, future.result())
        if result is None:
            continue  # cancelled: nothing is known, and a resumed run judges it
        found = judged_json(result)
        timing = found["timing"] or {}
        done(
            piece.key,
            {k: found[k] for k in ("kind", "tier", "message")} | {"child": made.hash} | {k: timing[k] for k in ("ratio", "label") if k in timing},
        )


def stages(answer: Answer, verdict: Mapping[str, Any] | None) -> dict[str, bool]:
    """Which of :data:`STAGES` an answer reaches."""
    if isinstance(answer, Failed) or verdict is None:
        return dict.fromkeys(STAGES, False)
    kind = verdict["kind"]
    readable = kind != "malformed" and not (kind == "refused" and not isinstance(answer.move, Action))
    differs = readable and kind not in ("no_op", "refused")
    legal = differs and (kind == "ok" or verdict["tier"] > _STATIC)
    return {"read": readable, "differs": differs, "legal": legal, "equal": kind == "ok"}
