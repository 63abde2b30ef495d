"""What is said of a rejected pair: the record, and the record as text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

__all__ = ["Explanation", "Spot", "indexed", "iteration"]

_LISTED = 12  # inputs shown


@dataclass(frozen=True, slots=True)
class Spot:
    """A place in one of the two texts: its line with a caret, the loop variables there, the subterm and its value."""

    who: str
    line: int
    column: int
    length: int
    file: str
    shown: str
    at: tuple[tuple[str, int], ...]
    expression: str
    value: str


@dataclass(frozen=True, slots=True)
class Explanation:
    """A rejected pair, explained. Values are text: ``inputs`` exact, ``*_value`` with enough digits to differ, ``*_float`` as f64 evaluation gives them.

    ``output`` and ``index`` name the element (of the accessed array for memory faults); ``sizes``, ``regime`` and ``seed`` rebuild all inputs,
    ``inputs`` are those that the element depends on. ``*_tree`` unfold it, ``how`` says where they part, ``spots`` where that stands.
    """

    kind: str
    tier: int
    message: str
    output: str = ""
    index: tuple[int, ...] = ()
    sizes: tuple[tuple[str, int], ...] = ()
    regime: str = ""
    seed: int = 0
    note: str = ""
    inputs: tuple[tuple[str, tuple[int, ...], str], ...] = ()
    inputs_left_out: int = 0
    parent_value: str = ""
    child_value: str = ""
    parent_float: str = ""
    child_float: str = ""
    parent_tree: tuple[str, ...] = ()
    child_tree: tuple[str, ...] = ()
    how: str = ""
    missing: tuple[tuple[str, str], ...] = ()
    extra: tuple[tuple[str, str], ...] = ()
    spots: tuple[Spot, ...] = ()
    notes: tuple[str, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        """The record as JSON-like values."""
        return asdict(self)

    def render(self, headed: bool = True) -> str:
        """The record as text; ``headed`` begins with the verdict."""
        return "\n".join(([f"{self.kind} at tier {self.tier}: {self.message}"] if headed else []) + list(_lines(self)))


def _lines(e: Explanation) -> Iterator[str]:
    if e.regime or e.sizes:
        sizes = " ".join(f"{k}={v}" for k, v in e.sizes) or "fixed sizes"
        yield f"at {sizes}" + (f", inputs '{e.regime}', seed {e.seed}" if e.regime else "") + (f" ({e.note})" if e.note and e.parent_tree else "")
    for name, index, value in e.inputs[:_LISTED]:
        yield f"  {name}[{','.join(map(str, index))}] = {value}"
    if (more := len(e.inputs) - _LISTED + e.inputs_left_out) > 0:
        yield f"  … {more} more"
    if e.parent_tree:
        at = f"{e.output}[{','.join(map(str, e.index))}]"
        yield f"{at} is {e.parent_value} in the parent and {e.child_value} in the child (in f64: {e.parent_float} and {e.child_float})"
    for who, tree in (("parent", e.parent_tree), ("child", e.child_tree)):
        if tree:
            yield f"{who}:" if e.parent_tree else f"the {who}, in its own dtypes:"
            yield from (f"  {line}" for line in tree)
    if e.how:
        yield f"{'they part here' if e.parent_tree else 'why'}: {e.how}"
    for title, terms in (("only in the parent", e.missing), ("only in the child", e.extra)):
        for text, value in terms:
            yield f"  {title}: {text} = {value}"
    yield from (f"  {note}" for note in e.notes)
    for spot in e.spots:
        at = iteration(spot.at) if spot.at else ""
        what = f"{spot.expression}{' = ' + spot.value if spot.value else ''}"
        yield f"{spot.who}{', line ' + str(spot.line) if spot.line else ''}{' at ' + at if at else ''}{': ' + what if what else ''}"
        if spot.shown:
            yield spot.shown


def indexed(name: str, index: Sequence[int]) -> str:
    """``A[0,3]``."""
    return f"{name}[{','.join(map(str, index))}]"


def iteration(instance: Sequence[tuple[str, int]]) -> str:
    """``i=0 j=2``."""
    return " ".join(f"{v}={n}" for v, n in instance) or "(no loops)"
