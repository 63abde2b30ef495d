"""What tier 3 has found so far at tiny and at real sizes, and the verdicts that end it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, TypeAlias

from flint import arb

from steptp.interp.compare import shown
from steptp.interp.errors import EvalError
from steptp.interp.exact import Same, compare_exact
from steptp.ir.nodes import Buffer
from steptp.verify.verdict import Counterexample, VerdictKind

__all__ = ["Ending", "Findings", "Sizes", "is_nan", "same_value", "sizes_text", "vanishes"]

_NOTHING = arb(10) ** -1000
Ending: TypeAlias = tuple[VerdictKind, str]
Sizes: TypeAlias = tuple[tuple[str, int], ...]


@dataclass(slots=True)
class Findings:
    """Points that stayed ``open``, points ``skipped`` because the parent has no value there, outputs ``decided`` by a value that is not NaN."""

    counterexample: Counterexample | None = None
    bits: int = 0
    open: list[str] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)
    decided: set[str] = field(default_factory=set)

    def differs(self, buffer: Buffer, index: tuple[int, ...], a: Any, b: Any, sizes: Sizes, regime: str, seed: int, note: str = "") -> Ending:
        """Two values that are not equal."""
        found = self.counterexample = Counterexample(buffer.name, index, shown(a), shown(b), sizes, regime, seed, note)
        at = f"{found.output}[{','.join(map(str, index))}]"
        return VerdictKind.NOT_EQUAL, f"{at} is {found.expected} in the parent and {found.actual} in the child ({sizes_text(sizes)}, regime {regime})"

    def child_fails(self, err: EvalError, sizes: Sizes, regime: str, seed: int) -> Ending:
        """The child has no value where the parent has one."""
        kind = VerdictKind.UNSAFE_MEMORY if err.code in ("eval-bounds", "eval-undefined") else VerdictKind.NOT_EQUAL
        if err.code == "check-reset":
            kind = VerdictKind.MALFORMED
        elif kind is VerdictKind.NOT_EQUAL:
            self.counterexample = Counterexample("", (), "a value", err.message, sizes, regime, seed, err.code)
        return kind, f"the child has no value: {err.message} ({sizes_text(sizes)}, regime {regime})"


def is_nan(value: Any) -> bool:
    """Whether an exact value is the kind NaN."""
    return type(value) is float and value != value


def vanishes(value: Any) -> bool:
    """Whether a value is a ball within 1e-1000 of 0 (of which only thousands of bits can tell)."""
    return type(value) is arb and bool(value.abs_upper() < _NOTHING)


def same_value(buffer: Buffer, a: Any, b: Any) -> Same:
    """Two values of one output, floats over the reals."""
    if buffer.dtype.is_float:
        return compare_exact(a, b)
    return Same.EQUAL if a == b else Same.DIFFERENT


def sizes_text(sizes: Sizes) -> str:
    """``N=3 K=5``."""
    return " ".join(f"{k}={v}" for k, v in sizes) or "fixed sizes"
