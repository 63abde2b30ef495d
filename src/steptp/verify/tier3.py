"""Tier 3: equal over the reals, without a tolerance.

Parent and child are evaluated exactly (:mod:`steptp.interp.exact`) at tiny re-bindings of their sizes in every input regime that can
tell their operators apart, and, element by element, at their real sizes. Disjoint values prove that the programs differ; only values
that are decided equal count as equal; whatever stays open makes the verdict ``unknown``.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from steptp.errors import LeirError
from steptp.interp.compare import shown
from steptp.interp.demand import BudgetExceeded, DemandEvaluator
from steptp.interp.errors import EvalError
from steptp.interp.exact import PRECISIONS, ExactMachine, Same, Undecided, compare_exact, precision
from steptp.ir.nodes import Buffer, Program
from steptp.ir.sizes import free_size_names, shape_of
from steptp.verify.bindings import Binding, Bindings, apply_binding, tiny_bindings
from steptp.verify.branches import branch_inputs, compares_values
from steptp.verify.cache import Lru, program_key
from steptp.verify.regimes import SPECIAL_REGIMES, LazyDraw, exact_inputs, lazy_inputs, relevant_regimes
from steptp.verify.samples import sample_indices
from steptp.verify.verdict import Counterexample, TierReport, VerdictKind

__all__ = ["Budget", "tier3", "clear_cache"]

_RESAMPLES = 2  # further seeds for a point that stays undecided
_OTHER_BINDING_REGIMES = ("normal", "ties", "zeros")  # beyond the smallest binding
_PRIORITY = ("normal", "ties", "positive", "unit", "zeros", "constant_rows", "negatives", "large", "clamped", "tiny", "mixed", *SPECIAL_REGIMES)


@dataclass(frozen=True, slots=True)
class Budget:
    """Bounds on work, in counted units so that a verdict does not depend on the machine's speed.

    ``preferred`` and ``instances``: statement instances of a tiny binding, both programs together; ``runs``: instances of one binding over
    all regimes. ``element`` and ``real``: visited statements
    of one element and of all elements at real sizes.
    """

    preferred: int = 1200
    instances: int = 20_000
    runs: int = 24_000
    element: int = 3_000
    real: int = 6_000


@dataclass(frozen=True, slots=True)
class _Point:
    """All outputs of one program at one point, or why there are none."""

    outputs: dict[str, list[Any]] | None
    bits: int = 0
    error: EvalError | None = None  # None with no outputs: undecided


@dataclass(frozen=True, slots=True)
class _Element:
    """One element of one program at real sizes; ``state`` is ``value``, ``budget``, ``undecided`` or ``error``."""

    state: str
    value: Any = None
    bits: int = 0
    error: EvalError | None = None
    work: int = 0


_machines: Lru[ExactMachine | LeirError] = Lru(64)
_points: Lru[_Point] = Lru(512)
_elements: Lru[_Element] = Lru(2048)


def clear_cache() -> None:
    """Forget compiled programs and the results of parents."""
    _machines.clear()
    _points.clear()
    _elements.clear()


def tier3(parent: Program, child: Program, *, seed: int = 0, points: int = 3, budget: Budget | None = None, regimes: Sequence[str] | None = None) -> TierReport:
    """Compare ``child`` with ``parent`` over the reals.

    ``points`` is the number of random output elements at real sizes, besides corners and tile edges; ``regimes`` overrides the choice of
    :func:`relevant_regimes`. Never raises for a bad child: kinds are ``ok``, ``not_equal`` (with a counterexample), ``unsafe_memory`` (the child reads or
    leaves something undefined or out of bounds where the parent does not), ``malformed`` (another interface, or no reset) and ``unknown``.
    """
    started = time.perf_counter()
    run = _Run(parent, child, seed, points, budget or Budget(), tuple(regimes or relevant_regimes(parent, child)))
    kind, message = run.all()
    return TierReport(3, kind, message, run.evidence(), run.counterexample, time.perf_counter() - started)


@dataclass(slots=True)
class _Run:
    parent: Program
    child: Program
    seed: int
    points: int
    budget: Budget
    regimes: tuple[str, ...]
    counterexample: Counterexample | None = None
    elements: int = 0
    real_elements: int = 0
    real_work: int = 0
    effort: int = 0  # work allowed for one element at real sizes
    inputs: int = 0  # random points at which everything was compared
    branch_points: int = 0  # points beside comparisons of values
    bits: int = 0
    bindings: list[Binding] = field(default_factory=list)
    note: str = ""
    open: list[str] = field(default_factory=list)  # points that stayed undecided
    skipped: list[str] = field(default_factory=list)  # points where the parent has no value
    real_note: str = ""
    decided: set[str] = field(default_factory=set)  # outputs with at least one element compared that is not NaN

    def evidence(self) -> dict[str, object]:
        return {
            "points": self.inputs,
            "elements": self.elements,
            "real_elements": self.real_elements,
            "bindings": [{"sizes": b.values, "covers": list(b.covers)} for b in self.bindings],
            "bindings_note": self.note,
            "real_note": self.real_note,
            "regimes": list(self.regimes),
            "branch_points": self.branch_points,
            "precision": self.bits,
            "undecided": list(self.open),
            "skipped": list(self.skipped),
        }

    def all(self) -> tuple[VerdictKind, str]:
        if (problem := _interface_problem(self.parent, self.child)) is not None:
            return VerdictKind.MALFORMED, problem
        chosen = self._bindings()
        for number, binding in enumerate(chosen.found):
            self.bindings.append(binding)
            for regime in self._regimes_for(binding, number):
                if (bad := self._tiny(binding, regime)) is not None:
                    return bad
            if not number and (bad := self._branches(binding)) is not None:
                return bad
        if (bad := self._real({b.sizes for b in chosen.found})) is not None:
            return bad
        if self.open:
            return VerdictKind.UNKNOWN, f"not decided over the reals at {', '.join(self.open[:3])}"
        silent = [b.name for b in self.parent.outputs if b.name not in self.decided and 0 not in shape_of(b.shape, self.parent)]
        if silent:
            return VerdictKind.UNKNOWN, f"no element of {', '.join(silent)} other than NaN was compared{': ' + self.real_note if self.real_note else ''}"
        count = self.inputs + self.real_elements
        where = f"{self.elements} elements at {len(self.bindings)} tiny bindings, {self.real_elements} at real sizes"
        return VerdictKind.OK, f"equal at {count} random points ({where}; {self.bits} bits)"

    # tiny sizes: every output element

    def _bindings(self) -> Bindings:
        """Bindings within the budget; where sizes are pinned, the smallest one within ten times the budget."""
        budget = self.budget
        chosen = tiny_bindings(self.parent, self.child, preferred=budget.preferred, limit=budget.instances)
        if not chosen.found:
            wide = tiny_bindings(self.parent, self.child, preferred=10 * budget.instances, limit=10 * budget.instances)
            chosen = Bindings(wide.found[:1], wide.note)
        self.note = chosen.note
        return chosen

    def _regimes_for(self, binding: Binding, number: int) -> tuple[str, ...]:
        """All regimes at the smallest binding, a few at the others, and only as many as large bindings can afford."""
        some = self.regimes if not number else tuple(r for r in self.regimes if r in _OTHER_BINDING_REGIMES or len(self.regimes) <= 3)
        affordable = max(self.budget.runs // max(binding.instances, 1), 1)
        return some if len(some) <= affordable else tuple(sorted(some, key=_PRIORITY.index)[:affordable])

    def _tiny(self, binding: Binding, regime: str) -> tuple[VerdictKind, str] | None:
        """Compare all output elements. Those that stay undecided are drawn again; each must be decided equal in some draw."""
        bound = apply_binding(self.parent, binding.values)
        missing = {(b.name, flat) for b in self.parent.outputs for flat in range(math.prod(shape_of(b.shape, bound)))}
        for again in range(_RESAMPLES + 1):
            seed = self.seed + 1_000_003 * again
            for start in range(len(PRECISIONS)):
                outcome = self._draw(binding, bound, regime, seed, PRECISIONS[start:], missing)
                if isinstance(outcome, tuple):
                    return outcome
                if outcome is None or not missing:
                    return None
                if outcome is Same.EQUAL:  # some elements decided nothing at this precision
                    continue
                break
        self.open.append(f"{_sizes_text(binding.sizes)} in regime {regime}")
        return None

    def _branches(self, binding: Binding) -> tuple[VerdictKind, str] | None:
        """Compare at inputs made for comparisons that the regimes leave one-sided; only a difference counts."""
        if not (compares_values(self.parent) or compares_values(self.child)) or binding.instances > self.budget.preferred:
            return None
        machines = [_machines.get((program_key(p), binding.sizes), partial(_compile, p, binding)) for p in (self.parent, self.child)]
        ours, theirs = (None if isinstance(m, LeirError) else m for m in machines)
        if ours is None or theirs is None:
            return None
        for number, point in enumerate(branch_inputs((ours.program, theirs.program), self.regimes, self.seed)):
            try:
                (expected, bits), (actual, more) = ours.run(point), theirs.run(point)
            except (Undecided, EvalError):
                continue
            self.branch_points += 1
            with precision(max(bits, more)):
                for buffer in self.parent.outputs:
                    for flat, (a, b) in enumerate(zip(expected[buffer.name], actual[buffer.name], strict=True)):
                        if _same(buffer, a, b) is Same.DIFFERENT:
                            index = _index(shape_of(buffer.shape, ours.program), flat)
                            return self._differs(buffer, index, a, b, binding.sizes, "branches", self.seed, f"point {number} beside a comparison")
        return None

    def _draw(
        self, binding: Binding, bound: Program, regime: str, seed: int, precisions: Sequence[int], missing: set[tuple[str, int]]
    ) -> tuple[VerdictKind, str] | Same | None:
        """One draw of inputs, which removes decided elements from ``missing``. ``None``: the parent has no value here; undecided: no outputs."""
        key = (program_key(self.parent), binding.sizes, regime, seed, precisions)
        expected = _points.get(key, partial(_evaluate, self.parent, binding, regime, seed, precisions))
        if expected.error is not None:
            self.skipped.append(f"{_sizes_text(binding.sizes)} in regime {regime}: {expected.error.message}")
            return None
        actual = _evaluate(self.child, binding, regime, seed, precisions)
        if actual.error is not None:
            return self._child_fails(actual.error, binding.sizes, regime, seed)
        if expected.outputs is None or actual.outputs is None:
            return Same.UNDECIDED
        bits = max(expected.bits, actual.bits)
        self.bits = max(self.bits, bits)
        self.inputs += 1
        with precision(bits):
            for buffer in self.parent.outputs:
                name = buffer.name
                for flat, (a, b) in enumerate(zip(expected.outputs[name], actual.outputs[name], strict=True)):
                    same = _same(buffer, a, b)
                    if same is Same.DIFFERENT:
                        return self._differs(buffer, _index(shape_of(buffer.shape, bound), flat), a, b, binding.sizes, regime, seed)
                    if same is Same.EQUAL:
                        self.elements += 1
                        missing.discard((name, flat))
                        if not _is_nan(a):
                            self.decided.add(name)
        return Same.EQUAL

    # real sizes: sampled output elements

    def _real(self, done: set[tuple[tuple[str, int], ...]]) -> tuple[VerdictKind, str] | None:
        own = self.parent.size_env | self.child.size_env
        sizes = tuple((n, own[n]) for n in dict.fromkeys((*free_size_names(self.parent), *free_size_names(self.child))))
        if sizes in done:
            self.real_note = "the real sizes are one of the bindings"
            return None
        chosen = [r for r in self.regimes if r in ("normal", "ties", "positive")] or ["normal"]
        sources: dict[str, dict[str, LazyDraw]] = {}
        regime = chosen[0]

        def source(name: str, flat: int) -> Any:
            return sources[regime][name].exact(flat)

        try:
            self.effort = self.budget.element * (1 if done else 30)  # the only evidence there will be
            pair = (DemandEvaluator(self.parent, source, self.effort), DemandEvaluator(self.child, source, self.effort))
        except LeirError as err:
            return VerdictKind.MALFORMED, err.message
        beyond: set[str] = set()
        for number, (buffer, index) in enumerate(sample_indices(self.parent, self.child, self.points, self.seed)):
            if self.real_work > self.budget.real:
                break
            if buffer.name in beyond:
                continue
            regime = chosen[number % len(chosen)]
            if regime not in sources:
                sources[regime] = lazy_inputs(self.parent, regime, self.seed)
            outcome = self._element(pair, buffer, index, sizes, regime)
            if isinstance(outcome, tuple):
                return outcome
            if outcome:
                beyond.add(buffer.name)
        if beyond:
            self.real_note = f"{', '.join(sorted(beyond))} at real sizes needs more work than the budget; tier 4 decides there"
        return None

    def _element(
        self, pair: tuple[DemandEvaluator, DemandEvaluator], buffer: Buffer, index: tuple[int, ...], sizes: tuple[tuple[str, int], ...], regime: str
    ) -> tuple[VerdictKind, str] | bool:
        """Compare one element; true if it was beyond the budget."""
        for start in range(len(PRECISIONS)):
            precisions = PRECISIONS[start:]
            key = (program_key(self.parent), self.seed, regime, buffer.name, index, precisions, self.effort)
            expected = _elements.get(key, partial(_demand, pair[0], buffer.name, index, precisions))
            if expected.error is not None:
                self.skipped.append(f"{buffer.name}{list(index)} at real sizes: {expected.error.message}")
                return False
            if expected.state == "budget":
                return True
            actual = _demand(pair[1], buffer.name, index, precisions)
            self.real_work += actual.work
            if actual.error is not None:
                return self._child_fails(actual.error, sizes, regime, self.seed)
            if actual.state == "budget":
                return True
            if expected.state == actual.state == "value":
                self.bits = max(self.bits, expected.bits, actual.bits)
                with precision(self.bits):
                    same = _same(buffer, expected.value, actual.value)
                if same is Same.DIFFERENT:
                    return self._differs(buffer, index, expected.value, actual.value, sizes, regime, self.seed, "one element at real sizes (lazy inputs)")
                if same is Same.EQUAL:
                    self.real_elements += 1
                    if not _is_nan(expected.value):
                        self.decided.add(buffer.name)
                    return False
            else:
                break
        self.open.append(f"{buffer.name}{list(index)} at real sizes in regime {regime}")
        return False

    # verdicts

    def _differs(
        self, buffer: Buffer, index: tuple[int, ...], a: Any, b: Any, sizes: tuple[tuple[str, int], ...], regime: str, seed: int, note: str = ""
    ) -> tuple[VerdictKind, str]:
        found = self.counterexample = Counterexample(buffer.name, index, shown(a), shown(b), sizes, regime, seed, note)
        at = f"{found.output}[{','.join(map(str, index))}]"
        return VerdictKind.NOT_EQUAL, f"{at} is {found.expected} in the parent and {found.actual} in the child ({_sizes_text(sizes)}, regime {regime})"

    def _child_fails(self, err: EvalError, sizes: tuple[tuple[str, int], ...], regime: str, seed: int) -> tuple[VerdictKind, str]:
        kind = VerdictKind.UNSAFE_MEMORY if err.code in ("eval-bounds", "eval-undefined") else VerdictKind.NOT_EQUAL
        if err.code == "check-reset":
            kind = VerdictKind.MALFORMED
        elif kind is VerdictKind.NOT_EQUAL:
            self.counterexample = Counterexample("", (), "a value", err.message, sizes, regime, seed, err.code)
        return kind, f"the child has no value: {err.message} ({_sizes_text(sizes)}, regime {regime})"


def _evaluate(program: Program, binding: Binding, regime: str, seed: int, precisions: Sequence[int]) -> _Point:
    machine = _machines.get((program_key(program), binding.sizes), lambda: _compile(program, binding))
    if isinstance(machine, LeirError):
        return _Point(None, 0, EvalError(machine.code, machine.message))
    inputs = {name: draw.exact_list() for name, draw in exact_inputs(machine.program, regime, seed).items()}
    try:
        outputs, bits = machine.run(inputs, precisions)
    except Undecided:
        return _Point(None)
    except EvalError as err:
        return _Point(None, 0, err)
    return _Point(outputs, bits)


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


def _compile(program: Program, binding: Binding) -> ExactMachine | LeirError:
    try:
        return ExactMachine(apply_binding(program, binding.values))
    except LeirError as err:
        return err


def _is_nan(value: Any) -> bool:
    return type(value) is float and value != value


def _same(buffer: Buffer, a: Any, b: Any) -> Same:
    if buffer.dtype.is_float:
        return compare_exact(a, b)
    return Same.EQUAL if a == b else Same.DIFFERENT


def _index(shape: tuple[int, ...], flat: int) -> tuple[int, ...]:
    index: list[int] = []
    for n in reversed(shape):
        flat, here = divmod(flat, n)
        index.append(here)
    return tuple(reversed(index))


def _sizes_text(sizes: tuple[tuple[str, int], ...]) -> str:
    return " ".join(f"{k}={v}" for k, v in sizes) or "fixed sizes"


def _interface_problem(parent: Program, child: Program) -> str | None:
    for title in ("inputs", "outputs"):
        sides = [[(b.name, b.dtype, shape_of(b.shape, p)) for b in getattr(p, title)] for p in (parent, child)]
        if sides[0] != sides[1]:
            return f"the {title} of parent and child differ in names, order, dtypes or shapes"
    return None
