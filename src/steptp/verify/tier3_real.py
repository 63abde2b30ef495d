"""Tier 3 at real sizes: sampled output elements, each computed on demand with all that it needs and nothing else.

Elements come from :mod:`steptp.verify.samples`; each is compared in one regime of inputs, or, where no tiny binding exists and this is all the evidence there
will be, in every regime. Inputs are drawn lazily, so the sizes do not matter; the work of an element does, and is bounded.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from steptp.errors import LeirError
from steptp.interp.demand import BudgetExceeded, DemandEvaluator, Source
from steptp.interp.errors import EvalError
from steptp.interp.exact import PRECISIONS, Same, Undecided, precision
from steptp.ir.nodes import Buffer, Program
from steptp.verify.branches import branch_sources, compares_values
from steptp.verify.cache import Lru, program_key
from steptp.verify.findings import Ending, Findings, Sizes, is_nan, same_value
from steptp.verify.regimes import ALL_ZERO, LAZY_NOTE, LazyDraw, lazy_inputs
from steptp.verify.samples import sample_indices
from steptp.verify.verdict import VerdictKind

__all__ = ["RealSizes", "clear_elements"]

_REGIMES = ("normal", "ties", "positive", "zeros", "clamped", "constant_rows", "negatives")  # in turn, those that are relevant
_DRAWS = 3  # regimes in which an element is tried until one decides it
_ALONE = 30  # times the effort where there is no other evidence
_BRANCHED, _LIGHT = 2, 400  # elements for which comparisons are looked at, and the most visited statements of one


@dataclass(frozen=True, slots=True)
class _Element:
    """One element of one program; ``state`` is ``value``, ``budget``, ``undecided`` or ``error``."""

    state: str
    value: Any = None
    bits: int = 0
    error: EvalError | None = None
    work: int = 0


_elements: Lru[_Element] = Lru(2048)


def clear_elements() -> None:
    """Forget the elements of parents."""
    _elements.clear()


@dataclass(slots=True)
class RealSizes:
    """One comparison at the programs' own sizes. ``element`` and ``total`` bound visited statements; ``alone``: nothing was compared at tiny sizes."""

    parent: Program
    child: Program
    seed: int
    points: int
    regimes: Sequence[str]
    found: Findings
    element: int
    total: int
    alone: bool
    sizes: Sizes = ()
    elements: int = 0
    work: int = 0
    branch_points: int = 0
    note: str = ""

    def run(self) -> Ending | None:
        """Compare; ``None`` where nothing speaks against the child."""
        chosen = [r for r in _REGIMES if r in self.regimes] or ["normal"]
        if "zeros" in chosen:
            chosen.append(ALL_ZERO)
        sources: dict[str, dict[str, LazyDraw]] = {}
        regime = chosen[0]

        def source(name: str, flat: int) -> Any:
            return sources[regime][name].exact(flat)

        effort = self.element * (_ALONE if self.alone else 1)
        try:
            pair = (DemandEvaluator(self.parent, source, effort), DemandEvaluator(self.child, source, effort))
        except LeirError as err:
            return VerdictKind.MALFORMED, err.message
        beyond: set[str] = set()
        places = list(sample_indices(self.parent, self.child, self.points, self.seed))
        for turn in range(len(chosen) if self.alone else 1):
            for number, (buffer, index) in enumerate(places):
                if self.work > self.total:
                    break
                if buffer.name in beyond:
                    continue
                for again in range(min(_DRAWS, len(chosen))):
                    regime = chosen[(number + turn + again) % len(chosen)]
                    if regime not in sources:
                        sources[regime] = lazy_inputs(self.parent, regime, self.seed)
                    outcome = self._compare(pair, buffer, index, regime, effort)
                    if isinstance(outcome, tuple):
                        return outcome
                    if outcome != "undecided":
                        break
                else:
                    self.found.open.append(f"{buffer.name}{list(index)} at real sizes in regime {regime}")
                if outcome == "budget":
                    beyond.add(buffer.name)
        if beyond:
            self.note = f"{', '.join(sorted(beyond))} at real sizes needs more work than the budget; tier 4 decides there"
        return self._branches([p for p in places if p[0].name not in beyond][:_BRANCHED]) if self.alone else None

    def _branches(self, places: Sequence[tuple[Buffer, tuple[int, ...]]]) -> Ending | None:
        """Compare at inputs made for comparisons that the regimes leave one-sided; only a difference counts."""
        if not (compares_values(self.parent) or compares_values(self.child)):
            return None
        here: list[Source] = []
        pair = [DemandEvaluator(p, lambda name, flat: here[0](name, flat), _LIGHT) for p in (self.parent, self.child)]
        for buffer, index in places:
            for number, source in enumerate(branch_sources((self.parent, self.child), buffer.name, index, self.regimes, self.seed, _LIGHT)):
                here[:] = [source]
                expected, actual = (_demand(evaluator, buffer.name, index, PRECISIONS[:2]) for evaluator in pair)
                if not expected.state == actual.state == "value":
                    continue
                self.branch_points += 1
                with precision(max(expected.bits, actual.bits)):
                    if same_value(buffer, expected.value, actual.value) is Same.DIFFERENT:
                        note = f"one element at real sizes, point {number} beside a comparison"
                        return self.found.differs(buffer, index, expected.value, actual.value, self.sizes, "branches", self.seed, note)
        return None

    def _compare(self, pair: tuple[DemandEvaluator, DemandEvaluator], buffer: Buffer, index: tuple[int, ...], regime: str, effort: int) -> Ending | str:
        """Compare one element: a verdict against the child, or ``equal``, ``skipped``, ``budget`` or ``undecided``."""
        for start in range(len(PRECISIONS)):
            precisions = PRECISIONS[start:]
            key = (program_key(self.parent), self.seed, regime, buffer.name, index, precisions, effort)
            expected = _elements.get(key, partial(_demand, pair[0], buffer.name, index, precisions))
            if expected.error is not None:
                self.found.skipped.append(f"{buffer.name}{list(index)} at real sizes: {expected.error.message}")
                return "skipped"
            if expected.state == "budget":
                return "budget"
            actual = _demand(pair[1], buffer.name, index, precisions)
            self.work += actual.work
            if actual.error is not None:
                return self.found.child_fails(actual.error, self.sizes, regime, self.seed)
            if actual.state == "budget":
                return "budget"
            if not expected.state == actual.state == "value":
                return "undecided"
            self.found.bits = max(self.found.bits, expected.bits, actual.bits)
            with precision(self.found.bits):
                same = same_value(buffer, expected.value, actual.value)
            if same is Same.DIFFERENT:
                return self.found.differs(buffer, index, expected.value, actual.value, self.sizes, regime, self.seed, LAZY_NOTE)
            if same is Same.EQUAL:
                self.elements += 1
                if not is_nan(expected.value):
                    self.found.decided.add(buffer.name)
                return "equal"
        return "undecided"


def _demand(evaluator: DemandEvaluator, output: str, index: tuple[int, ...], precisions: Sequence[int]) -> _Element:
    try:
        value, bits = evaluator.element(output, index, precisions)
    except BudgetExceeded:
        return _Element("budget", work=evaluator.work)
    except Undecided:
        return _Element("undecided", work=evaluator.work)
    except EvalError as err:
        return _Element("error", error=err, work=evaluator.work)
    return _Element("value", value, bits, work=evaluator.work)
