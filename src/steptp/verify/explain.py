"""Why a pair was rejected, for people: one output element, the expressions that compute it in both programs, where they part, and on which inputs.

:func:`explain` works on a verdict after the fact, at the smallest sizes at which the difference survives. It proves nothing and decides
nothing; what it cannot reconstruct it leaves out.
"""

from __future__ import annotations

import logging
import math
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy as np

from steptp.analysis.model import Model
from steptp.analysis.safety import safety_problems
from steptp.errors import LeirError, Place
from steptp.interp.errors import EvalError
from steptp.interp.exact import precision
from steptp.interp.numpy_eval import FloatAlgebra
from steptp.interp.trace import Term, Tracer
from steptp.ir import parse, problems
from steptp.ir.nodes import Program
from steptp.ir.sizes import shape_of
from steptp.ir.sourcemap import SourceMap
from steptp.ir.walk import all_tmps
from steptp.verify.amplify import birth
from steptp.verify.cases import Case, find_case
from steptp.verify.explain_memory import fault, placed, unflat, unsafe
from steptp.verify.explain_text import decimal, distinct, range_of, shown, spot_of, term_spot, unfolded
from steptp.verify.explanation import Explanation, Spot, indexed
from steptp.verify.narrowing import rounded_away
from steptp.verify.parting import Parting, core, part
from steptp.verify.tier0 import interface_difference
from steptp.verify.verdict import Counterexample, Verdict, VerdictKind

__all__ = ["Explanation", "explain"]

_log = logging.getLogger("steptp.verify")
_INPUTS = 400  # inputs kept in a record
_SHARE = 0.1  # of the compiled error: if operators in the right dtypes make less than this, the code is at fault


def explain(parent: Program, child: Program | str, verdict: Verdict, *, seed: int = 0, root: Program | None = None) -> Explanation:
    """Explain a verdict other than ``ok`` on ``parent`` → ``child``; ``root`` is what tier 4 compared with (default: the parent). Never raises."""
    base = Explanation(str(verdict.kind), verdict.tier, verdict.message, seed=seed)
    try:
        if isinstance(child, str):
            try:
                child = parse(child, "<candidate>")
            except LeirError as err:
                return _malformed(base, err)
        return _explained(base, parent, child, verdict, root or parent)
    except Exception as err:  # noqa: BLE001 - whatever a bad pair does to an explanation, the verdict stands
        _log.warning("no explanation: %s: %s", type(err).__name__, err, exc_info=True)
        return replace(base, notes=(f"nothing more can be said: {type(err).__name__}: {err}",))


def _explained(base: Explanation, parent: Program, child: Program, verdict: Verdict, root: Program) -> Explanation:
    kind, known = verdict.kind, verdict.counterexample
    if kind is VerdictKind.MALFORMED:
        found = problems(child)
        return _malformed(base, found[0]) if found else _interface(base, parent, child)
    if kind in (VerdictKind.CRASHED, VerdictKind.TIMEOUT, VerdictKind.OOM, VerdictKind.BUILD_FAILED):
        return replace(base, notes=tuple(_ran(verdict)))
    if verdict.tier >= 4 and known is not None:
        with np.errstate(all="ignore"):
            return _numeric(base, root, child, known)
    if verdict.tier >= 4 and (lost := rounded_away(root, child)) is not None:
        return replace(base, how=base.message, spots=(spot_of("child", child, lost.path, lost.expr, ()),))
    case = None
    if kind is not VerdictKind.ILLEGAL or verdict.tier != 1:
        case = find_case(parent, child, known if verdict.tier != 1 else None, base.seed)
    if case is not None and case.fault is not None:
        told = fault(base, child, case, case.fault, case.instance)
        own = "at its own sizes the child is safe; at these, which its text allows, it is not"
        return replace(told, notes=(*told.notes, own)) if verdict.tier > 1 and not safety_problems(child) else told
    if verdict.tier == 1:
        return unsafe(base, child, kind)
    if case is None:
        equal = "exact evaluation finds no inputs on which the two programs differ"
        return _claim(base, parent, child, equal) if verdict.tier == 2 else replace(base, how=base.message, notes=(*_ran(verdict), equal))
    try:
        return _values(base, parent, child, case)
    except EvalError as err:  # the child has no value at sizes too large to run it whole
        return fault(base, child, case, err, None)


# text and interface


def _malformed(base: Explanation, err: LeirError) -> Explanation:
    place = err.place or Place()
    spot = Spot("child", place.line, place.column, place.length, place.filename, place.render(), (), "", "")
    return replace(base, how=f"{err.code}: {err.message}", spots=(spot,) if place.line else (), notes=(f"hint: {err.hint}",) if err.hint else ())


def _interface(base: Explanation, parent: Program, child: Program) -> Explanation:
    difference = interface_difference(parent, child)
    names = [b.name for p in (parent, child) for b in (*p.inputs, *p.outputs) if re.search(rf"\b{re.escape(b.name)}\b", difference)]
    spots = []
    for who, program in (("child", child), ("parent", parent)):
        place = next((p for n in dict.fromkeys(names) if (p := SourceMap.of(program).name(n)).line and n in SourceMap.of(program).names), None)
        if place is not None:
            spots.append(Spot(who, place.line, place.column, place.length, place.filename, place.render(), (), "", ""))
    return replace(base, how=difference or base.message, spots=tuple(spots))


def _ran(verdict: Verdict) -> Iterator[str]:
    """What each tier did, and what the last one knows."""
    for report in verdict.reports:
        yield f"tier {report.tier}: {report.kind}, {report.message or 'no message'} ({report.seconds * 1e3:.0f} ms)"
    if verdict.reports:
        for key, value in verdict.reports[-1].evidence.items():
            if isinstance(value, (str, int, float)) and str(value):
                yield f"{key}: {value}"


def _claim(base: Explanation, parent: Program, child: Program, equal: str) -> Explanation:
    """What tier 2 says against a step's instance map where the functions are equal: the statements that it names."""
    broken = "breaks a dependence" in base.message or "another order" in base.message
    who, program = ("parent", parent) if broken else ("child", child)
    named = dict.fromkeys(re.findall(r"\bS\d+(?:\.reset)?", base.message))
    found = [st for st in Model.of(program).statements if st.name in named]
    spots = tuple(spot_of(who, program, st.origin, None, (), st.name) for st in found[:2])
    return replace(base, how=base.message, spots=spots, notes=(f"{equal} over the reals: what does not hold is the step's own account of what it did",))


# values


def _values(base: Explanation, parent: Program, child: Program, case: Case) -> Explanation:
    asked: dict[tuple[str, int], Any] = {}

    def source(name: str, flat: int) -> Any:
        value = asked[name, flat] = case.source(name, flat)
        return value

    ours, theirs = Tracer(case.parent, source), Tracer(case.child, source)
    (a, bits), (b, more) = ours.element(case.output, case.index), theirs.element(case.output, case.index)
    with precision(max(bits, more)):
        first, second = _again(ours, case, bits, more), _again(theirs, case, more, bits)
        found = part(first, second, _computed(parent) & _computed(child))
        inputs, left_out = _inputs(case, asked, found)
        a_text, b_text = distinct(a, b)
        wide = [_wide(p, case) for p in (case.parent, case.child)]
        spots = _spots(parent, child, found)
        return replace(
            placed(base, case), output=case.output, index=case.index, inputs=inputs, inputs_left_out=left_out,
            parent_value=a_text, child_value=b_text, parent_float=wide[0], child_float=wide[1],
            parent_tree=unfolded(first, found, 0, SourceMap.of(parent)), child_tree=unfolded(second, found, 1, SourceMap.of(child)),
            how=found.how, missing=_listed(found.missing), extra=_listed(found.extra), spots=spots, notes=tuple(_ranges(found)),
        )  # fmt: skip


def _again(tracer: Tracer, case: Case, own: int, other: int) -> Term:
    """The element's term at the precision that both sides need."""
    if other > own:
        tracer.element(case.output, case.index, (other,))
    return tracer.trace(case.output, case.index)


def _wide(program: Program, case: Case) -> str:
    """The element as f64 arithmetic gives it, or why it has no value there (a branch that rounding takes the other way)."""

    def source(name: str, flat: int) -> Any:
        value = case.source(name, flat)
        return value if isinstance(value, (bool, int, float)) else int(value.numerator) / int(value.denominator)

    try:
        return repr(float(Tracer(program, source, algebra=FloatAlgebra(wide=True)).element(case.output, case.index)[0]))
    except EvalError as err:
        return err.message


def _computed(program: Program) -> set[str]:
    """Outputs and temporaries."""
    return {b.name for b in (*program.outputs, *(b for _, b in all_tmps(program)))}


def _inputs(case: Case, asked: dict[tuple[str, int], Any], found: Parting) -> tuple[tuple[tuple[str, tuple[int, ...], str], ...], int]:
    """Input elements that the two computations ask for, those of the parting terms first."""
    first: dict[tuple[str, tuple[int, ...]], Any] = {}
    for term in (*found.missing, *found.extra, found.parent, found.child):
        first |= {leaf.element: leaf.value for leaf in term.leaves() or () if leaf.element is not None and leaf.element not in first}
    shapes = {b.name: shape_of(b.shape, case.parent) for b in case.parent.inputs}
    rows = first | {(name, unflat(flat, shapes[name])): value for (name, flat), value in sorted(asked.items(), key=lambda item: item[0])}
    kept = [(name, index, str(value)) for (name, index), value in rows.items()]
    return tuple(kept[:_INPUTS]), max(len(kept) - _INPUTS, 0)


def _spots(parent: Program, child: Program, found: Parting) -> tuple[Spot, ...]:
    values = distinct(found.parent.value, found.child.value)
    made = [term_spot("child", child, found.child, values[1]), term_spot("parent", parent, found.parent, values[0])]
    return tuple(s for s in made if s is not None)


def _listed(terms: Sequence[Term]) -> tuple[tuple[str, str], ...]:
    return tuple((shown(t), decimal(t.value)) for t in terms[:8])


def _ranges(found: Parting) -> Iterator[str]:
    """For accumulations with other terms: which iterations each of them runs."""
    p, c = core(found.parent), core(found.child)
    if (found.missing or found.extra) and p.folded and c.folded:
        yield f"the parent accumulates over {range_of([a.instance for a in p.args if a.instance])}"
        yield f"the child accumulates over {range_of([a.instance for a in c.args if a.instance])}"


# rounding


def _numeric(base: Explanation, root: Program, child: Program, known: Counterexample) -> Explanation:
    """The input that breaks it, all values that tier 4 knows, and where the error is born; for tier 5 both builds' values."""
    from steptp.verify.tier4_inputs import make_inputs  # loads lowering

    base = replace(
        base, output=known.output, index=known.index, sizes=known.sizes, regime=known.regime, seed=known.seed, note=known.note,
        parent_value=known.expected, child_value=known.actual,
    )  # fmt: skip
    if base.tier == 5:
        how = f"{indexed(known.output, known.index)} is {known.actual} in the child's build and {known.expected} in the parent's"
        return replace(base, how=how, notes=(known.note,))
    told = (f"the f64 oracle gives {indexed(known.output, known.index)} = {known.expected}", known.note, f"the compiled child gives {known.actual}")
    arrays = make_inputs(root, known.regime, known.seed)
    try:
        born = birth(child, lambda name, flat: arrays[name].flat[flat].item(), known.output, known.index)
    except LeirError as err:
        return replace(base, notes=(*told, f"the element cannot be unfolded: {err.message}"))
    if born is None:
        return replace(base, notes=(*told, "the element needs more work than an explanation may take"))
    path = Parting("", born.term, born.term, trail=[(t, t) for t in born.trail])
    tree = unfolded(born.trail[0], path, 1, SourceMap.of(child))
    base = replace(base, child_float=repr(born.result), inputs=born.inputs, child_tree=tree)
    with suppress(ValueError):  # bools
        want, got = float(known.expected), float(known.actual)
        if abs(born.result - want) < _SHARE * abs(got - want):
            fault_of = f"operator by operator in its own dtypes the child gives {born.result!r}: the fault lies in the compiled code"
            return replace(base, notes=(*told, fault_of))
    spot = term_spot("child", child, born.term, born.own)
    how = f"the error is born in {shown(born.term)}: {born.own} in its dtype {born.term.dtype}, {born.exact} exactly"
    grown = "its operands have no error worth naming" if math.isinf(born.amplified) else f"that is {born.amplified:.3g} times the error of its operands"
    return replace(base, how=how, spots=(spot,) if spot is not None else (), notes=(*told, grown))
