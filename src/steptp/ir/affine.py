"""Quasi-affine forms of index expressions at the present size values, and when a tuple of them is injective.

A form is ``sum(coefficient * atom) + constant``. Atoms are loop variables (their names), floor divisions and remainders of
forms by a number, and opaque nodes (look-ups, ``max``, ``min``, ``abs``, ``select``).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TypeAlias, Union

from steptp.errors import LeirError
from steptp.ir.nodes import Cast, Const, Expr, Load, Op, Size, Var
from steptp.ir.sizes import eval_index
from steptp.ir.types import DType

__all__ = ["Form", "Divided", "NotAffine", "Range", "form_of", "interval", "is_injective", "is_pure", "term_count", "MAX_TERMS"]

MAX_TERMS = 256
"""Most terms that an index may have when multiplied out."""

Range: TypeAlias = tuple[int, int]
_COMPARE = frozenset({"<", "<=", ">", ">=", "==", "!=", "and", "or", "not"})


class NotAffine(Exception):
    """Why an expression is not quasi-affine: one clause, to follow "an index ..."."""


@dataclass(frozen=True, slots=True)
class Divided:
    """The atom ``form // by`` or ``form % by``."""

    form: Form
    by: int
    is_remainder: bool


Atom: TypeAlias = Union[str, Divided, Expr]


@dataclass(frozen=True, slots=True)
class Form:
    """Terms (atom, coefficient) in a fixed order, and the constant."""

    terms: tuple[tuple[Atom, int], ...]
    constant: int = 0

    @staticmethod
    def of(terms: Mapping[Atom, int], constant: int) -> Form:
        kept = [(atom, value) for atom, value in terms.items() if value]
        if len(kept) > 1:
            kept.sort(key=lambda item: item[0] if isinstance(item[0], str) else f"~{item[0]!r}")
        return Form(tuple(kept), constant)


def is_pure(expr: Expr) -> bool:
    """Whether an expression holds only sizes and literals."""
    if isinstance(expr, Op):
        return all(is_pure(a) for a in expr.args)
    return isinstance(expr, (Const, Size))


def term_count(expr: Expr) -> int:
    """An upper bound on the terms of an ``i64`` expression multiplied out, capped at ``MAX_TERMS + 1`` (counts inside atoms too)."""
    if isinstance(expr, Op):
        counts = [term_count(a) for a in expr.args]
        if expr.name == "*":
            return min(counts[0] * counts[1], MAX_TERMS + 1)
        return min(sum(counts), MAX_TERMS + 1)
    if isinstance(expr, Load):
        return max((term_count(i) for i in expr.indices), default=1)
    return term_count(expr.arg) if isinstance(expr, Cast) else 1


def form_of(expr: Expr, env: Mapping[str, int], ranges: Mapping[str, Range]) -> Form:
    """The form of an ``i64`` expression; ``env`` values the sizes, ``ranges`` bounds loop variables.

    Raises :class:`NotAffine`.
    """
    if isinstance(expr, Var):
        return Form(((expr.name, 1),))
    if isinstance(expr, Const):
        return Form((), int(expr.value))
    if isinstance(expr, Size):
        return Form((), env[expr.name])
    if isinstance(expr, Load):
        return _look_up(expr, expr, env, ranges)
    if isinstance(expr, Cast):
        if isinstance(expr.arg, Load):
            return _look_up(expr, expr.arg, env, ranges)
        raise NotAffine("casts something other than a look-up")
    assert isinstance(expr, Op)
    return _operator(expr, env, ranges)


def _look_up(node: Expr, load: Load, env: Mapping[str, int], ranges: Mapping[str, Range]) -> Form:
    if not load.type.is_int:
        raise NotAffine(f"looks up {load.buffer}, which holds {load.type}, not integers")
    for index in load.indices:
        form_of(index, env, ranges)
    return Form(((node, 1),))


def _operator(expr: Op, env: Mapping[str, int], ranges: Mapping[str, Range]) -> Form:
    name, args = expr.name, expr.args
    if name in ("+", "-"):
        left, right = form_of(args[0], env, ranges), form_of(args[1], env, ranges)
        return _add(left, right, 1 if name == "+" else -1)
    if name == "neg":
        return _scale(form_of(args[0], env, ranges), -1)
    if name == "*":
        left, right = form_of(args[0], env, ranges), form_of(args[1], env, ranges)
        if is_pure(args[1]):
            return _scale(left, right.constant)
        if is_pure(args[0]):
            return _scale(right, left.constant)
        raise NotAffine("multiplies two loop variables or look-ups")
    if name in ("//", "%"):
        if not is_pure(args[1]):
            raise NotAffine(f"divides ({name}) by something other than a size or a number")
        top, by = form_of(args[0], env, ranges), form_of(args[1], env, ranges).constant
        if by < 0:
            raise NotAffine(f"divides ({name}) by a negative number")
        if by == 0:
            return Form(((expr, 1),))
        return _divide(top, by, name == "%", ranges)
    if name in ("max", "min", "abs", "select"):
        for arg in args:
            _opaque_part(arg, env, ranges)
        if is_pure(expr):
            try:
                return Form((), eval_index(expr, env))
            except LeirError:
                pass
        return Form(((expr, 1),))
    raise NotAffine(f"uses {name}")


def _opaque_part(expr: Expr, env: Mapping[str, int], ranges: Mapping[str, Range]) -> None:
    if expr.dtype is DType.BOOL and isinstance(expr, Op) and expr.name in _COMPARE:
        for arg in expr.args:
            _opaque_part(arg, env, ranges)
    elif expr.dtype is DType.I64:
        form_of(expr, env, ranges)
    elif not isinstance(expr, Const):
        raise NotAffine(f"chooses by a {expr.dtype} value")


def _add(a: Form, b: Form, sign: int) -> Form:
    if not b.terms:
        return Form(a.terms, a.constant + sign * b.constant)
    terms = dict(a.terms)
    for atom, value in b.terms:
        terms[atom] = terms.get(atom, 0) + sign * value
    return Form.of(terms, a.constant + sign * b.constant)


def _scale(form: Form, by: int) -> Form:
    return Form(tuple((atom, value * by) for atom, value in form.terms) if by else (), form.constant * by)


def _divide(form: Form, by: int, is_remainder: bool, ranges: Mapping[str, Range]) -> Form:
    whole = {atom: value // by for atom, value in form.terms if value % by == 0}
    rest = Form(tuple((atom, value) for atom, value in form.terms if value % by), form.constant % by)
    quotient = Form.of(whole, form.constant // by)
    span = range_of(rest, ranges)
    if span is not None and span[0] >= 0 and span[1] < by:
        return rest if is_remainder else quotient
    if is_remainder:
        return Form(((Divided(rest, by, True), 1),))
    inner = rest.terms[0][0] if len(rest.terms) == 1 and rest.terms[0][1] == 1 and not rest.constant else None
    if isinstance(inner, Divided) and not inner.is_remainder:  # (x // a) // b is x // (a*b)
        return _add(quotient, _divide(inner.form, inner.by * by, False, ranges), 1)
    return _add(quotient, Form(((Divided(rest, by, False), 1),)), 1)


def range_of(form: Form, ranges: Mapping[str, Range]) -> Range | None:
    """Smallest and largest value, or ``None`` where an atom has no known bound."""
    low = high = form.constant
    for atom, value in form.terms:
        span = _atom_range(atom, ranges)
        if span is None:
            return None
        low += value * (span[0] if value > 0 else span[1])
        high += value * (span[1] if value > 0 else span[0])
    return low, high


def _atom_range(atom: Atom, ranges: Mapping[str, Range]) -> Range | None:
    if isinstance(atom, str):
        return ranges.get(atom)
    if isinstance(atom, Divided):
        if atom.is_remainder:
            return 0, atom.by - 1
        span = range_of(atom.form, ranges)
        return None if span is None else (span[0] // atom.by, span[1] // atom.by)
    return None


def interval(expr: Expr, env: Mapping[str, int], ranges: Mapping[str, Range]) -> Range | None:
    """Bounds of an ``i64`` expression over sizes and loop variables, or ``None``."""
    if isinstance(expr, Op) and expr.name in ("max", "min"):
        spans = [interval(a, env, ranges) for a in expr.args]
        known = [s for s in spans if s is not None]
        if len(known) == 2:
            pick = max if expr.name == "max" else min
            return pick(known[0][0], known[1][0]), pick(known[0][1], known[1][1])
        return None
    try:
        return range_of(form_of(expr, env, ranges), ranges)
    except NotAffine:
        return None


def is_injective(forms: Iterable[Form], over: Iterable[str], ranges: Mapping[str, Range]) -> bool:
    """Whether different values of the loop variables ``over`` always give different tuples of ``forms`` (a sufficient test).

    Variables outside ``over`` count as fixed. The test peels: a form whose unknown atoms make up a mixed radix (each coefficient larger than
    the reach of all smaller ones) determines them; ``x // d`` with ``x % d`` determines ``x``.
    """
    wanted = {v for v in over if (span := ranges.get(v)) is None or span[1] > span[0]}
    known: set[Atom] = set()
    pending = list(forms)
    remainders = {atom for form in pending for atom in _remainders(form)}
    progress = True
    while progress and not wanted <= known:
        progress = False
        for form in list(pending):
            fresh = [(atom, value) for atom, value in form.terms if atom not in known and not (isinstance(atom, str) and atom not in wanted)]
            if _mixed_radix(fresh, ranges):
                pending.remove(form)
                known.update(atom for atom, _ in fresh)
                progress = True
        for atom in list(remainders):
            if atom in known and all(part in known for part, _ in _divide(atom.form, atom.by, False, ranges).terms):
                remainders.remove(atom)
                pending.append(atom.form)
                progress = True
    return wanted <= known


def _remainders(form: Form) -> Iterable[Divided]:
    for atom, _ in form.terms:
        if isinstance(atom, Divided):
            if atom.is_remainder:
                yield atom
            yield from _remainders(atom.form)


def _mixed_radix(terms: list[tuple[Atom, int]], ranges: Mapping[str, Range]) -> bool:
    reach = 0
    for atom, value in sorted(terms, key=lambda item: abs(item[1])):
        span = _atom_range(atom, ranges)
        if span is None or abs(value) <= reach:
            return False
        reach += abs(value) * max(span[1] - span[0], 0)
    return True
