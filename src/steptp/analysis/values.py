"""Ranges of float expressions over all inputs: signs, bounds, and whether a value is surely finite.

Values are real numbers, rounding is ignored; inputs are any finite reals, literals are exact. A read of a temporary or output has the hull of
everything that the program stores there (whatever the order), so no dependence analysis is needed. Interval arithmetic after R. E.
Moore, *Interval Analysis*, 1966, with ends computed exactly and rounded outward.

Sizes may be 0, but a size that is the extent of a loop around the expression is at least 1 wherever the expression is evaluated; the
:class:`Scope` of a statement knows these sizes, and the conditions that hold there.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from steptp.analysis.valuemath import ANY, REAL, ValueRange, function, hull, meet, point, power, product, quotient, total
from steptp.ir.nodes import Cast, Const, Expr, If, Load, Loop, Op, Path, Program, Size, Store, Var
from steptp.ir.walk import declaring_path, enclosing, loads, stores

__all__ = ["ValueRange", "Scope", "scope_of", "value_range"]

_COMPARE = {"<": ">=", "<=": ">", ">": "<=", ">=": "<", "==": "!=", "!=": "=="}
_MIRROR = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "==": "==", "!=": "!="}


@dataclass(frozen=True)
class Scope:
    """What holds where an expression stands: sizes that are at least 1, and ranges known from conditions."""

    program: Program
    ones: frozenset[str] = frozenset()
    known: Mapping[Expr, ValueRange] = field(default_factory=dict)

    def of(self, expr: Expr) -> ValueRange:
        """The range of a float (or integer) expression."""
        found = self._known(expr)
        limit = self.known.get(expr)
        return found if limit is None else meet(found, limit)

    def _known(self, expr: Expr) -> ValueRange:
        if isinstance(expr, Const):
            return point(float(expr.value))
        if isinstance(expr, Var):
            return ValueRange(0.0, math.inf, False, True)
        if isinstance(expr, Size):
            return ValueRange(1.0 if expr.name in self.ones else 0.0, math.inf, expr.name in self.ones, True)
        if isinstance(expr, Cast):
            return self._cast(expr)
        if isinstance(expr, Load):
            return _stored(self.program, expr.buffer, self.ones)
        assert isinstance(expr, Op)
        return self._op(expr)

    def _cast(self, expr: Cast) -> ValueRange:
        if not expr.type.is_float:
            return REAL
        if expr.arg.dtype.is_float or expr.arg.dtype.is_int:
            return self.of(expr.arg)
        return ValueRange(0.0, 1.0, False, True)

    def _op(self, expr: Op) -> ValueRange:
        name, args = expr.name, expr.args
        if name == "select":
            return hull(self.under(args[0], True).of(args[1]), self.under(args[0], False).of(args[2]))
        if name == "*" and args[0] == args[1]:
            inner = self.of(args[0])
            return meet(product(inner, inner), ValueRange(0.0, math.inf, inner.nonzero, inner.finite))
        given = [self.of(a) for a in args]
        if name == "+":
            return total(*given)
        if name == "-":
            return total(given[0], given[1].negated)
        if name == "*":
            return product(*given)
        if name == "/":
            return quotient(*given)
        if name == "pow":
            return power(given[0], args[1], given[1])
        if expr.dtype.is_float or name in ("neg", "abs", "max", "min"):
            return function(name, *given)
        return _integer(name, given)

    def under(self, cond: Expr, holds: bool) -> Scope:
        """The scope where ``cond`` is true (or false): comparisons narrow what they compare."""
        found = dict(self.known)
        _narrow(self, cond, holds, found)
        return replace(self, known=found) if found != self.known else self

    def at_least_one(self, extent: Expr) -> bool:
        """Whether a loop of this extent surely runs."""
        return self.of(extent).low >= 1


def _integer(name: str, given: list[ValueRange]) -> ValueRange:
    """Floor division and remainder by something positive."""
    a, b = given
    if name == "//" and a.low >= 0 and b.low >= 1:
        return ValueRange(0.0, a.high, False, True)
    if name == "%" and b.low >= 1:
        return ValueRange(0.0, max(b.high - 1, 0.0), False, True)
    return REAL


def _narrow(scope: Scope, cond: Expr, holds: bool, found: dict[Expr, ValueRange]) -> None:
    if not isinstance(cond, Op):
        return
    if cond.name == "not":
        _narrow(scope, cond.args[0], not holds, found)
    elif cond.name == ("and" if holds else "or"):
        for part in cond.args:
            _narrow(scope, part, holds, found)
    elif cond.name in _COMPARE and cond.args[0].dtype.is_float:
        name = cond.name if holds else _COMPARE[cond.name]
        left, right = cond.args
        if not holds and name not in ("==", "!=") and not (scope.of(left).finite and scope.of(right).finite):
            return  # a comparison with NaN is false, and so says nothing
        for a, b, how in ((left, right, name), (right, left, _MIRROR[name])):
            if not isinstance(a, Const) and (limit := _limit(how, scope.of(b), scope.of(a))) is not None:
                found[a] = meet(found[a], limit) if a in found else limit
                if limit.finite and isinstance(a, Op) and a.name == "abs":
                    found[a.args[0]] = meet(found.get(a.args[0], REAL), REAL)


def _limit(name: str, other: ValueRange, own: ValueRange) -> ValueRange | None:
    """What ``a name b`` says of a, which is in ``own``, for b in ``other``."""
    if name in ("<", "<="):
        return ValueRange(-math.inf, other.high, name == "<" and other.high <= 0, False)
    if name in (">", ">="):
        return ValueRange(other.low, math.inf, name == ">" and other.low >= 0, False)
    if name == "==":
        return other
    if abs(other.low) == abs(other.high) == math.inf and other.low == other.high and own.number:
        return REAL if -other.low not in (own.low, own.high) else None
    return ValueRange(-math.inf, math.inf, True, False) if (other.low, other.high) == (0.0, 0.0) else None


def scope_of(program: Program, path: Path) -> Scope:
    """The scope of the statement at ``path``: sizes of the loops around it are at least 1, its guards hold."""
    ones: set[str] = set()
    around = enclosing(program, path)
    for owner in around:
        if isinstance(owner, Loop):
            ones |= _ones_of(owner.extent)
    scope = Scope(program, frozenset(ones))
    for owner in around:
        if isinstance(owner, If) and not {e.buffer for e in loads(owner.cond)} & _written_in(owner):
            scope = scope.under(owner.cond, True)
    return scope


def _written_in(owner: If) -> set[str]:
    return {met.stmt.buffer for met in stores(owner.body) if isinstance(met.stmt, Store)}


def _ones_of(extent: Expr) -> set[str]:
    """Sizes that are at least 1 when the extent is: the size itself, and the factors of a product of sizes."""
    if isinstance(extent, Size):
        return {extent.name}
    if isinstance(extent, Op) and extent.name == "*":
        return _ones_of(extent.args[0]) | _ones_of(extent.args[1])
    return _ones_of(extent.args[0]) if isinstance(extent, Op) and extent.name == "//" else set()


def value_range(program: Program, path: Path, expr: Expr) -> ValueRange:
    """The range of ``expr`` in the statement at ``path``, wherever it is evaluated there."""
    return scope_of(program, path).of(expr)


def _stored(program: Program, buffer: str, ones: frozenset[str]) -> ValueRange:
    """The hull of all that is stored in a buffer; inputs are any finite number. Kept with the program."""
    cache = program._cache.setdefault("float_ranges", {})
    assert isinstance(cache, dict)
    key = (buffer, ones)
    if key not in cache:
        declared = next((b for b in program.inputs if b.name == buffer), None)
        if declared is not None:
            low = declared.range[0] if declared.range is not None else None
            cache[key] = ValueRange(max(float(low.value), -math.inf), math.inf, False, True) if isinstance(low, Const) else REAL
        else:
            cache[key] = ANY  # for reads of itself while it is worked out
            cache[key] = _written(program, buffer, ones)
    found = cache[key]
    assert isinstance(found, ValueRange)
    return found


def _written(program: Program, buffer: str, ones: frozenset[str]) -> ValueRange:
    out: ValueRange | None = None
    home = len(declaring_path(program, buffer))
    for met in stores(program):
        store = met.stmt
        assert isinstance(store, Store)
        if store.buffer != buffer:
            continue
        inside = scope_of(program, met.path)
        value = replace(inside, ones=ones | inside.ones).of(store.value)
        if store.reduce is not None:
            surely = not met.guards and all(Scope(program, ones).at_least_one(p.extent) for p in met.parents[home:] if isinstance(p, Loop))
            value = _accumulated(store, value, surely)
        out = value if out is None else hull(out, value)
    return ANY if out is None else out


def _accumulated(store: Store, term: ValueRange, surely: bool) -> ValueRange:
    """What an accumulation of such terms can be; ``surely``: of at least one."""
    if store.carry:  # from a value that other stores have set, in any mixture
        return ANY
    if store.reduce == "+":
        low = term.low if surely and term.low >= 0 else 0.0 if term.low >= 0 else -math.inf
        high = term.high if surely and term.high <= 0 else 0.0 if term.high <= 0 else math.inf
        return ValueRange(low, high, surely and term.nonzero and (term.low >= 0 or term.high <= 0), term.finite)
    if store.reduce in ("max", "min"):
        start = -math.inf if store.reduce == "max" else math.inf
        return term if surely else hull(term, ValueRange(start, start, True, False, True))
    if store.reduce == "*":
        return ValueRange(0.0 if term.low >= 0 else -math.inf, math.inf, term.nonzero, term.finite)
    return ANY
