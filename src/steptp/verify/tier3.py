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

from steptp.analysis.model import Model
from steptp.errors import LeirError
from steptp.interp.errors import EvalError
from steptp.interp.exact import PRECISIONS, ExactMachine, Same, Undecided, precision
from steptp.ir.nodes import Program
from steptp.ir.sizes import free_size_names, shape_of
from steptp.verify.bindings import Binding, Bindings, apply_binding, tiny_bindings
from steptp.verify.branches import branch_inputs, compares_values
from steptp.verify.cache import Lru, program_key
from steptp.verify.findings import Ending, Findings, Sizes, is_nan, same_value, sizes_text, vanishes
from steptp.verify.novel import novel
from steptp.verify.regimes import SPECIAL_REGIMES, exact_inputs, relevant_regimes
from steptp.verify.tier3_real import RealSizes, clear_elements
from steptp.verify.verdict import TierReport, VerdictKind

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


_machines: Lru[ExactMachine | LeirError] = Lru(64)
_points: Lru[_Point] = Lru(512)


def clear_cache() -> None:
    """Forget compiled programs and the results of parents."""
    _machines.clear()
    _points.clear()
    clear_elements()


def tier3(parent: Program, child: Program, *, seed: int = 0, points: int = 3, budget: Budget | None = None, regimes: Sequence[str] | None = None) -> TierReport:
    """Compare ``child`` with ``parent`` over the reals.

    ``points`` is the number of random output elements at real sizes, besides corners and tile edges; ``regimes`` overrides the choice of
    :func:`relevant_regimes`. Never raises for a bad child: kinds are ``ok``, ``not_equal`` (with a counterexample), ``unsafe_memory`` (the child reads or
    leaves something undefined or out of bounds where the parent does not), ``malformed`` (another interface, or no reset) and ``unknown``.
    """
    started = time.perf_counter()
    run = _Run(parent, child, seed, points, budget or Budget(), tuple(regimes or relevant_regimes(parent, child)))
    kind, message = run.all()
    return TierReport(3, kind, message, run.evidence(), run.found.counterexample, time.perf_counter() - started)


@dataclass(slots=True)
class _Run:
    parent: Program
    child: Program
    seed: int
    points: int
    budget: Budget
    regimes: tuple[str, ...]
    found: Findings = field(default_factory=Findings)
    elements: int = 0
    real_elements: int = 0
    inputs: int = 0  # random points at which everything was compared
    branch_points: int = 0  # points beside comparisons of values
    bindings: list[Binding] = field(default_factory=list)
    note: str = ""
    real_note: str = ""
    equal: set[tuple[str, int]] = field(default_factory=set)  # elements of this binding decided equal in some regime
    vanishing: set[tuple[str, int]] = field(default_factory=set)  # elements of this regime where both values are next to 0
    near_zero: list[str] = field(default_factory=list)

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
            "precision": self.found.bits,
            "undecided": list(self.found.open),
            "near_zero": list(self.near_zero),
            "skipped": list(self.found.skipped),
        }

    def all(self) -> Ending:
        if (problem := _interface_problem(self.parent, self.child)) is not None:
            return VerdictKind.MALFORMED, problem
        chosen = self._bindings()
        for number, binding in enumerate(chosen.found):
            self.bindings.append(binding)
            self.equal.clear()
            for regime in self._regimes_for(binding, number):
                if (bad := self._tiny(binding, regime)) is not None:
                    return bad
        if (bad := self._branches(chosen.found)) is not None:
            return bad
        if (bad := self._real({b.sizes for b in chosen.found})) is not None:
            return bad
        if self.found.open:
            return VerdictKind.UNKNOWN, f"not decided over the reals at {', '.join(self.found.open[:3])}"
        silent = [b.name for b in self.parent.outputs if b.name not in self.found.decided and 0 not in shape_of(b.shape, self.parent)]
        if silent:
            return VerdictKind.UNKNOWN, f"no element of {', '.join(silent)} other than NaN was compared{': ' + self.real_note if self.real_note else ''}"
        count = self.inputs + self.real_elements
        where = f"{self.elements} elements at {len(self.bindings)} tiny bindings, {self.real_elements} at real sizes"
        return VerdictKind.OK, f"equal at {count} random points ({where}; {self.found.bits} bits)"

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

    def _tiny(self, binding: Binding, regime: str) -> Ending | None:
        """Compare all output elements. Those that stay undecided are drawn again; each must be decided equal in some draw.

        A regime in which both programs' values vanish whatever is drawn (the divergence of equal rows) decides nothing; there the other regimes must have.
        """
        self.vanishing.clear()
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
        where = f"{sizes_text(binding.sizes)} in regime {regime}"
        cancels = missing <= self.vanishing and missing <= self.equal
        (self.near_zero if cancels else self.found.open).append(where)
        return None

    def _branches(self, found: Sequence[Binding]) -> Ending | None:
        """Compare at inputs made for comparisons that the regimes leave one-sided; only a difference counts.

        At the smallest binding at which every loop runs: at tails alone, whole nests are empty. A child with comparisons of its own is looked at wherever
        the budget allows.
        """
        small = [b for b in found if b.instances <= self.budget.preferred]
        if not small or not (compares_values(self.parent) or compares_values(self.child)):
            return None
        if not novel(self.parent, self.child):
            small = [next((b for b in small if _all_run(self.parent, b) and _all_run(self.child, b)), small[0])]
        return next((bad for b in small if (bad := self._branches_at(b)) is not None), None)

    def _branches_at(self, binding: Binding) -> Ending | None:
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
                        if same_value(buffer, a, b) is Same.DIFFERENT:
                            index = _index(shape_of(buffer.shape, ours.program), flat)
                            return self.found.differs(buffer, index, a, b, binding.sizes, "branches", self.seed, f"point {number} beside a comparison")
        return None

    def _draw(self, binding: Binding, bound: Program, regime: str, seed: int, precisions: Sequence[int], missing: set[tuple[str, int]]) -> Ending | Same | None:
        """One draw of inputs, which removes decided elements from ``missing``. ``None``: the parent has no value here; undecided: no outputs."""
        key = (program_key(self.parent), binding.sizes, regime, seed, precisions)
        expected = _points.get(key, partial(_evaluate, self.parent, binding, regime, seed, precisions))
        if expected.error is not None:
            self.found.skipped.append(f"{sizes_text(binding.sizes)} in regime {regime}: {expected.error.message}")
            return None
        actual = _evaluate(self.child, binding, regime, seed, precisions)
        if actual.error is not None:
            return self.found.child_fails(actual.error, binding.sizes, regime, seed)
        if expected.outputs is None or actual.outputs is None:
            return Same.UNDECIDED
        bits = max(expected.bits, actual.bits)
        self.found.bits = max(self.found.bits, bits)
        self.inputs += 1
        with precision(bits):
            for buffer in self.parent.outputs:
                name = buffer.name
                for flat, (a, b) in enumerate(zip(expected.outputs[name], actual.outputs[name], strict=True)):
                    same = same_value(buffer, a, b)
                    if same is Same.DIFFERENT:
                        return self.found.differs(buffer, _index(shape_of(buffer.shape, bound), flat), a, b, binding.sizes, regime, seed)
                    if same is Same.EQUAL:
                        self.elements += 1
                        missing.discard((name, flat))
                        self.equal.add((name, flat))
                        if not is_nan(a):
                            self.found.decided.add(name)
                    elif vanishes(a) and vanishes(b):
                        self.vanishing.add((name, flat))
        return Same.EQUAL

    # real sizes: sampled output elements

    def _real(self, done: set[Sizes]) -> Ending | None:
        own = self.parent.size_env | self.child.size_env
        sizes = tuple((n, own[n]) for n in dict.fromkeys((*free_size_names(self.parent), *free_size_names(self.child))))
        if sizes in done:
            self.real_note = "the real sizes are one of the bindings"
            return None
        budget = self.budget
        real = RealSizes(self.parent, self.child, self.seed, self.points, self.regimes, self.found, budget.element, budget.real, not done, sizes)
        ending = real.run()
        self.real_elements, self.real_note = real.elements, real.note
        self.branch_points += real.branch_points
        return ending


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


def _all_run(program: Program, binding: Binding) -> bool:
    """Whether every loop that surely can has an iteration."""
    machine = _machines.get((program_key(program), binding.sizes), lambda: _compile(program, binding))
    return not isinstance(machine, LeirError) and not any(s.never_runs for s in Model.of(machine.program).statements)


def _compile(program: Program, binding: Binding) -> ExactMachine | LeirError:
    try:
        return ExactMachine(apply_binding(program, binding.values))
    except LeirError as err:
        return err


def _index(shape: tuple[int, ...], flat: int) -> tuple[int, ...]:
    index: list[int] = []
    for n in reversed(shape):
        flat, here = divmod(flat, n)
        index.append(here)
    return tuple(reversed(index))


def _interface_problem(parent: Program, child: Program) -> str | None:
    for title in ("inputs", "outputs"):
        sides = [[(b.name, b.dtype, shape_of(b.shape, p)) for b in getattr(p, title)] for p in (parent, child)]
        if sides[0] != sides[1]:
            return f"the {title} of parent and child differ in names, order, dtypes or shapes"
    return None
