"""What the notation leaves open, as a table: one row per point that a program may meet, with what is chosen."""

from __future__ import annotations

from dataclasses import dataclass

from steptp.errors import Place

__all__ = ["Note", "OPEN_POINTS", "REFUSALS"]

OPEN_POINTS: dict[str, str] = {
    "init-continue": "an accumulation into a tensor that was written before continues from its present value",
    "init-update": "X=X+e in which every loop indexes X updates X once; a tensor that nothing wrote before starts at the identity",
    "init-partial": "a tensor of which a reduction reaches only a part starts at the identity everywhere",
    "sum-rest": "X=X+a-b is read as the reduction X+=(a-b), so a-b is rounded before it is added",
    "order-serial": "a tensor that is updated in terms of itself, but is no reduction, takes the serial order of the loops",
    "shape-inferred": "shapes are not written; a tensor is as large as the farthest access reaches",
    "dtype-literal": "a literal has no dtype; it takes its partner's where that holds it exactly, else the operation is done in f64",
    "dtype-mixed": "operands of two dtypes meet in the wider one, and a store rounds to the dtype of its target",
    "dtype-read": "a tensor that is read under another dtype than it is written is converted",
    "division": "the quotient of whole numbers is a real number outside indices",
    "condition": "'&' joins conditions and binds weaker than comparisons",
    "kind-dropped": "a loop kind that LEIR cannot give to a loop there is dropped; it never changes the meaning",
    "scope-dropped": "storage scopes are not kept: a nest does not say which block or thread owns a tensor",
    "scope-across": "a shared or local tensor carries values from one nest to another, although each nest is its own kernel",
    "output-chosen": "outputs are the tensors that are written and then read by no other statement",
    "name-changed": "a name that LEIR reserves is changed",
}
"""Code → the reading that is chosen. The program converts."""

REFUSALS: dict[str, str] = {
    "published-bounds": "an index surely or possibly falls below 0",
    "published-dtype": "a tensor has two dtypes and no store decides between them",
    "published-index": "an index is no integer, or reads values whose range is unknown",
    "published-init": "what a tensor starts as is not determined",
    "published-input": "a tensor is read as an input and written as well",
    "published-interface": "the tensors of two programs cannot be matched in one way only",
    "published-output": "an output of the reference is not written, or there is none",
    "published-rank": "a tensor is accessed with different numbers of indices",
    "published-scope": "an interface tensor is shared or local, so nobody outside can see it",
    "published-type": "an operand is of a kind that its operator does not take",
}
"""Code → why a program has no unique meaning. The program does not convert."""


@dataclass(frozen=True, slots=True)
class Note:
    """One open point that a program meets: its code, what it is about, where, and the reading taken."""

    code: str
    message: str
    place: Place | None = None

    @property
    def reading(self) -> str:
        return OPEN_POINTS[self.code]

    def render(self) -> str:
        """As printed for a person."""
        at = f" at {self.place.filename}:{self.place.line}:{self.place.column}" if self.place else ""
        shown = f"\n{self.place.render()}" if self.place else ""
        return f"open[{self.code}]{at}: {self.message}{shown}\nread as: {self.reading}"
