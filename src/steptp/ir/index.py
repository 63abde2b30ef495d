"""Canonical form of quasi-affine index expressions.

An index is kept as a polynomial over loop variables and sizes with integer coefficients; ``//``, ``%``,
``max``, ``min``, ``select`` and look-ups are opaque atoms. The printed order is fixed (higher degree, then larger
coefficient, then name; constant last), so equal polynomials give equal nodes. Nothing here needs size
*values*, so a simplification holds for every re-binding.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache, reduce

from steptp.ir.nodes import Const, Expr, Loop, Op, Size, Var, op
from steptp.ir.types import DType

__all__ = ["Poly", "simplify_index", "simplify_cond", "expr_of", "poly_of", "extents_of", "same_index", "ix"]

_Key = tuple[Expr, ...]
Poly = dict[_Key, int]
_ONE: _Key = ()


@lru_cache(maxsize=4096, typed=True)
def ix(value: int) -> Const:
    """The ``i64`` literal ``value``."""
    return Const(value, DType.I64)


def extents_of(loops: Iterable[object]) -> dict[str, Expr]:
    """Loop variable → extent, for :func:`simplify_index`."""
    return {loop.var: loop.extent for loop in loops if isinstance(loop, Loop)}


def simplify_index(expr: Expr, extents: Mapping[str, Expr] | None = None) -> Expr:
    """The canonical form of an ``i64`` expression; equal polynomials give equal nodes.

    ``extents`` (loop variable → extent) lets ``(i*T+j)//T`` become ``i`` when ``j`` runs below ``T``.
    Expressions of another dtype are returned as they are.
    """
    if expr.dtype is not DType.I64 or isinstance(expr, (Var, Size, Const)):
        return expr
    return expr_of(_poly(expr, extents or {}))


def simplify_cond(expr: Expr, extents: Mapping[str, Expr] | None = None) -> Expr:
    """Simplify the ``i64`` sides of comparisons inside a condition."""
    if isinstance(expr, Op) and expr.type is DType.BOOL and expr.name != "select":
        return Op(expr.name, tuple(simplify_cond(a, extents) if a.dtype is DType.BOOL else simplify_index(a, extents) for a in expr.args), expr.type)
    return expr


def poly_of(expr: Expr, extents: Mapping[str, Expr] | None = None) -> Poly:
    """Monomial (sorted tuple of atoms) → coefficient."""
    return _poly(expr, extents or {})


def same_index(a: Expr, b: Expr) -> bool:
    """Whether two index expressions are equal as polynomials (a sufficient test, not a complete one)."""
    return a == b or poly_of(a) == poly_of(b)


def _text(atom: Expr) -> str:
    if isinstance(atom, Var):
        return f"0{atom.name}"
    return f"1{atom.name}" if isinstance(atom, Size) else f"2{atom!r}"


def _add(a: Poly, b: Poly, scale: int = 1) -> Poly:
    return _collect(dict(a), b.items(), scale)


def _collect(out: Poly, terms: Iterable[tuple[_Key, int]], scale: int = 1) -> Poly:
    """``out`` with the terms added in place."""
    for key, value in terms:
        total = out.get(key, 0) + scale * value
        if total:
            out[key] = total
        else:
            out.pop(key, None)
    return out


def _mul(a: Poly, b: Poly) -> Poly:
    if len(b) == 1 and _ONE in b:
        return {key: value * b[_ONE] for key, value in a.items()}
    if len(a) == 1 and _ONE in a:
        return {key: value * a[_ONE] for key, value in b.items()}
    return _collect({}, ((tuple(sorted(ka + kb, key=_text)), va * vb) for ka, va in a.items() for kb, vb in b.items()))


def _poly(expr: Expr, extents: Mapping[str, Expr]) -> Poly:
    if isinstance(expr, (Var, Size)):
        return {(expr,): 1}
    if isinstance(expr, Const):
        return {_ONE: int(expr.value)} if expr.value else {}
    if isinstance(expr, Op) and expr.type is DType.I64:
        if expr.name in ("+", "-"):
            return _add(_poly(expr.args[0], extents), _poly(expr.args[1], extents), 1 if expr.name == "+" else -1)
        if expr.name == "*":
            return _mul(_poly(expr.args[0], extents), _poly(expr.args[1], extents))
        if expr.name == "neg":
            return _add({}, _poly(expr.args[0], extents), -1)
        if expr.name in ("//", "%"):
            return _divide(expr.name, _poly(expr.args[0], extents), _poly(expr.args[1], extents), extents)
        if expr.name in ("max", "min", "abs"):
            args = [expr_of(_poly(a, extents)) for a in expr.args]
            if all(isinstance(a, Const) for a in args):
                values = [int(a.value) for a in args if isinstance(a, Const)]
                folded = abs(values[0]) if expr.name == "abs" else max(values) if expr.name == "max" else min(values)
                return {_ONE: folded} if folded else {}
            return {(op(expr.name, *args),): 1}
        if expr.name == "select":
            args = [simplify_cond(expr.args[0], extents), *(expr_of(_poly(a, extents)) for a in expr.args[1:])]
            return {(Op("select", tuple(args), DType.I64),): 1}
    return {(expr,): 1}


def _divide(name: str, top: Poly, bottom: Poly, extents: Mapping[str, Expr]) -> Poly:
    """``top // bottom`` or ``top % bottom`` for a divisor that is one monomial (else an opaque atom)."""
    if len(bottom) == 1:
        (key, coef), quotient, rest = next(iter(bottom.items())), {}, {}
        for mono, value in top.items():
            left = _without(mono, key)
            if left is not None and value % coef == 0:
                quotient[left] = value // coef
            else:
                rest[mono] = value
        if key == _ONE and coef > 0 and _ONE in rest:  # a constant: keep its remainder only
            whole, part = divmod(rest.pop(_ONE), coef)
            quotient = _add(quotient, {_ONE: whole} if whole else {})
            if part:
                rest[_ONE] = part
        if coef > 0 and _below(rest, bottom, extents):
            return quotient if name == "//" else rest
        if bottom.get(_ONE) != 1:
            atom = op(name, expr_of(rest), expr_of(bottom))
            return _add(quotient, {(atom,): 1}) if name == "//" else {(atom,): 1}
        return quotient if name == "//" else {}
    return {(op(name, expr_of(top), expr_of(bottom)),): 1}


def _without(mono: _Key, factor: _Key) -> _Key | None:
    """``mono`` divided by ``factor``, or ``None``."""
    left = list(mono)
    for atom in factor:
        if atom not in left:
            return None
        left.remove(atom)
    return tuple(left)


def _below(rest: Poly, bound: Poly, extents: Mapping[str, Expr]) -> bool:
    """Whether 0 <= rest < bound for all loop iterations and all sizes >= 1 (a sufficient test)."""
    top: Poly = {}
    for mono, value in rest.items():
        if value < 0:
            return False
        largest: Poly = {_ONE: value}
        for atom in mono:
            if isinstance(atom, Var):
                if atom.name not in extents:
                    return False
                largest = _mul(largest, _add(_poly(extents[atom.name], {}), {_ONE: 1}, -1))
            elif isinstance(atom, Size):
                largest = _mul(largest, {(atom,): 1})
            elif isinstance(atom, Op) and atom.name == "%":
                largest = _mul(largest, _add(_poly(atom.args[1], {}), {_ONE: 1}, -1))
            else:
                return False
        top = _add(top, largest)
    slack = _add(_add(bound, top, -1), {_ONE: 1}, -1)  # bound - 1 - top must be >= 0
    if any(not isinstance(atom, Size) for mono in slack for atom in mono):
        return False
    # sizes are >= 1: non-negative coefficients may lend to a negative constant
    return all(v >= 0 for k, v in slack.items() if k != _ONE) and sum(slack.values()) >= 0


def expr_of(poly: Poly) -> Expr:
    """The expression of a polynomial, in its one order of terms."""

    def rank(item: tuple[_Key, int]) -> tuple[object, ...]:
        mono, value = item
        return (mono == _ONE, value < 0, -len(mono), -abs(value), tuple(map(_text, mono)))

    out: Expr | None = None
    for mono, value in sorted(poly.items(), key=rank) if len(poly) > 1 else poly.items():
        if mono == _ONE:
            term: Expr = ix(abs(value) if out is not None else value)
        else:
            term = reduce(lambda a, b: op("*", a, b), mono)
            if abs(value) != 1 or (out is None and value < 0):
                term = op("*", ix(abs(value) if out is not None else value), term)
        out = term if out is None else op("+" if value > 0 else "-", out, term)
    return out if out is not None else ix(0)
