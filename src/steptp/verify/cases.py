"""The smallest case in which two programs part: sizes, inputs, and one output element or one fault of the child."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np

from steptp.errors import LeirError
from steptp.interp.cost import count_instances
from steptp.interp.demand import BudgetExceeded, DemandEvaluator, Source
from steptp.interp.errors import EvalError
from steptp.interp.exact import ExactAlgebra, ExactMachine, Undecided, at_rising_precision, precision
from steptp.interp.faults import locate_fault
from steptp.interp.trace import Instance
from steptp.ir.nodes import Program
from steptp.ir.sizes import shape_of
from steptp.verify.bindings import apply_binding, tiny_bindings
from steptp.verify.branches import branch_inputs, branch_sources, compares_values
from steptp.verify.parting import apart
from steptp.verify.regimes import ALL_ZERO, LAZY_NOTE, REGIMES, exact_inputs, relevant_regimes
from steptp.verify.shrink import smallest
from steptp.verify.verdict import Counterexample
from steptp.verify.witness import probe, source_of

__all__ = ["Case", "find_case"]

_WHOLE = 4000  # statement instances of both programs up to which every output element is evaluated
_SHRINK = 60  # smaller sizes tried
_ELEMENT = 60_000  # visited statements of one element at real sizes
_BRANCHES = "branches"
_REAL = "one element at real sizes"
Lists = dict[str, list[Any]]


@dataclass(frozen=True, slots=True)
class Case:
    """Both programs at the case's sizes, exact inputs, and what goes wrong there.

    ``index`` is the first element of ``output`` that differs; with ``fault`` the child has no value instead, and ``instance`` is the run that fails (nothing
    where an output stays unwritten).
    """

    parent: Program
    child: Program
    source: Callable[[str, int], Any]
    regime: str
    seed: int
    note: str = ""
    output: str = ""
    index: tuple[int, ...] = ()
    fault: EvalError | None = None
    instance: Instance | None = None


def find_case(parent: Program, child: Program, known: Counterexample | None, seed: int = 0) -> Case | None:
    """A case as small as it gets, beginning with the counterexample if there is one; nothing where exact evaluation finds no difference."""
    regimes = tuple(
        dict.fromkeys((*([known.regime] if known and known.regime in (*REGIMES, ALL_ZERO, _BRANCHES) else []), *relevant_regimes(parent, child), _BRANCHES))
    )
    draw = known.seed if known else seed
    found = _at_real_sizes(parent, child, known) if known is not None else None
    found = found or next((c for pair in _starts(parent, child, known) if (c := _search(*pair, regimes, draw)) is not None), None)
    if found is None:
        return None
    best = found
    first = (found.regime, *[r for r in ("normal", "ties") if r != found.regime])

    def holds(ours: Program, theirs: Program) -> bool:
        nonlocal best
        smaller = _search(ours, theirs, first, draw, faults=best.fault is not None)
        if smaller is None or (smaller.fault is None) != (best.fault is None):
            return False
        best = smaller
        return True

    smallest(found.parent, found.child, holds, _SHRINK)
    return best


def _at_real_sizes(parent: Program, child: Program, known: Counterexample) -> Case | None:
    """The counterexample itself where it is one element at real sizes."""
    if not known.note.startswith(_REAL) or not known.output:
        return None
    sources: Iterable[Source] = [source_of(parent, known.regime, known.seed)] if known.regime != _BRANCHES else ()
    if known.regime == _BRANCHES:
        sources = branch_sources((parent, child), known.output, known.index, relevant_regimes(parent, child), known.seed, _ELEMENT)
    for source in sources:
        try:
            (a, bits), (b, more) = (DemandEvaluator(p, source, _ELEMENT).element(known.output, known.index) for p in (parent, child))
        except (EvalError, Undecided, BudgetExceeded):
            continue
        with precision(max(bits, more)):
            if apart(a, b):
                return Case(parent, child, source, known.regime, known.seed, known.note, known.output, known.index)
    return None


def _starts(parent: Program, child: Program, known: Counterexample | None) -> Iterator[tuple[Program, Program]]:
    """Sizes to begin at: the counterexample's, tiny ones, the programs' own."""
    if known is not None and known.sizes and not known.note.startswith(_REAL):
        with suppress(LeirError):
            yield apply_binding(parent, dict(known.sizes)), apply_binding(child, dict(known.sizes))
    if known is None or not known.note.startswith(_REAL):
        for binding in tiny_bindings(parent, child, preferred=1200, limit=_WHOLE).found:
            yield apply_binding(parent, binding.values), apply_binding(child, binding.values)
    yield parent, child


def _search(parent: Program, child: Program, regimes: Sequence[str], seed: int, *, faults: bool = True) -> Case | None:
    try:
        if sum(count_instances(p, p.size_env) for p in (parent, child)) <= _WHOLE:
            return _whole(parent, child, regimes, seed, faults)
        chosen = [r for r in regimes if r != _BRANCHES]
        found = probe(parent, child, chosen[:3], seed=seed, points=2, element=20_000, total=60_000).counterexample
    except LeirError:
        return None
    if found is None or found.output == "":
        return None
    return Case(parent, child, source_of(parent, found.regime, seed), found.regime, seed, LAZY_NOTE, found.output, found.index)


def _whole(parent: Program, child: Program, regimes: Sequence[str], seed: int, faults: bool) -> Case | None:
    """Every output element of both programs, in one regime after the other."""
    ours, theirs = ExactMachine(parent), ExactMachine(child)
    for regime, number, inputs in _points(parent, child, regimes, seed):
        try:
            expected, bits = ours.run(inputs)
        except (EvalError, Undecided):
            continue
        note = f"point {number} beside a comparison" if regime == _BRANCHES else ""
        source = _source(inputs)
        try:
            actual, more = theirs.run(inputs)
        except Undecided:
            continue
        except EvalError:
            located = _fault(child, inputs) if faults else None
            if located is not None:
                return Case(parent, child, source, regime, seed, note, "", (), *located)
            continue
        with precision(max(bits, more)):
            for buffer in parent.outputs:
                for flat, (a, b) in enumerate(zip(expected[buffer.name], actual[buffer.name], strict=True)):
                    if apart(a, b):
                        return Case(
                            parent, child, source, regime, seed, note, buffer.name, tuple(map(int, np.unravel_index(flat, shape_of(buffer.shape, parent))))
                        )
    return None


def _points(parent: Program, child: Program, regimes: Sequence[str], seed: int) -> Iterator[tuple[str, int, Lists]]:
    """The draws of the regimes, and inputs beside comparisons of values."""
    for regime in regimes:
        if regime == ALL_ZERO:
            get = source_of(parent, ALL_ZERO, seed)
            yield regime, 0, {b.name: [get(b.name, flat) for flat in range(math.prod(shape_of(b.shape, parent)))] for b in parent.inputs}
        elif regime != _BRANCHES:
            yield regime, 0, {name: draw.exact_list() for name, draw in exact_inputs(parent, regime, seed).items()}
        elif compares_values(parent) or compares_values(child):
            for number, point in enumerate(branch_inputs((parent, child), relevant_regimes(parent, child), seed)):
                yield regime, number, point


def _source(inputs: Lists) -> Callable[[str, int], Any]:
    return lambda name, flat: inputs[name][flat]


def _fault(child: Program, inputs: Lists) -> tuple[EvalError, Instance | None] | None:
    try:
        return at_rising_precision(lambda: locate_fault(child, ExactAlgebra(), inputs))[0]
    except Undecided:
        return None
