"""Verdicts: what the verifier says of a step. A verdict is a record, never an exception."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import Any

__all__ = ["VerdictKind", "Counterexample", "TierReport", "Verdict", "report_json"]


class VerdictKind(str, Enum):
    """``unknown`` is never ``ok``."""

    OK = "ok"
    MALFORMED = "malformed"
    ILLEGAL = "illegal"
    UNSAFE_MEMORY = "unsafe_memory"
    NOT_EQUAL = "not_equal"
    NUMERICALLY_UNSAFE = "numerically_unsafe"
    BUILD_FAILED = "build_failed"
    CRASHED = "crashed"
    TIMEOUT = "timeout"
    OOM = "oom"
    UNKNOWN = "unknown"

    def __str__(self) -> str:
        return self.value


@dataclass(frozen=True, slots=True)
class Counterexample:
    """One output element where two programs part: sizes, regime and seed rebuild the inputs exactly."""

    output: str
    index: tuple[int, ...]
    expected: str
    actual: str
    sizes: tuple[tuple[str, int], ...] = ()
    regime: str = ""
    seed: int = 0
    note: str = ""


@dataclass(frozen=True, slots=True)
class TierReport:
    """What one tier found. ``evidence`` is JSON-like (strings, numbers, lists, dicts); ``seconds`` is never identity."""

    tier: int
    kind: VerdictKind
    message: str = ""
    evidence: dict[str, object] = field(default_factory=dict)
    counterexample: Counterexample | None = None
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Verdict:
    """The verdict on a step: the kind, the tier that decided, and every tier's report in the order it ran."""

    kind: VerdictKind
    tier: int
    reports: tuple[TierReport, ...] = ()

    @property
    def ok(self) -> bool:
        return self.kind is VerdictKind.OK

    @property
    def message(self) -> str:
        """The deciding tier's message."""
        return next((r.message for r in reversed(self.reports) if r.tier == self.tier), "")

    @property
    def counterexample(self) -> Counterexample | None:
        return next((r.counterexample for r in self.reports if r.counterexample), None)


def report_json(report: TierReport) -> dict[str, Any]:
    """A tier's report without its wall time."""
    out: dict[str, Any] = {"tier": report.tier, "kind": str(report.kind), "message": report.message, "evidence": report.evidence}
    if report.counterexample is not None:
        c = report.counterexample
        out["counterexample"] = {
            "output": c.output, "index": list(c.index), "expected": c.expected, "actual": c.actual,
            "sizes": dict(c.sizes), "regime": c.regime, "seed": c.seed, "note": c.note,
        }  # fmt: skip
    return out
