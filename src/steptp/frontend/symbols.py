"""Symbolic sizes of an export → LEIR size expressions.

``torch.export`` describes dims by sympy expressions over symbols plus *guards* (facts that its trace relied on). Guards that
say two expressions are equal, or that a symbol is divisible, are solved, so that ``view(B, T, 4, C//4)`` becomes a size
``D`` with ``C=4*D``. What cannot be solved becomes a ``where`` constraint.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce

import sympy
from torch.utils._sympy import functions as torch_functions

from steptp.errors import FrontendError
from steptp.ir import DType, Expr, Size, cast, const, eval_index, ix, op, simplify_index

__all__ = ["Extents", "Solution", "solve", "to_index", "to_number", "Unrepresentable"]

_MOD = (torch_functions.Mod, torch_functions.PythonMod)


class Unrepresentable(FrontendError):
    """A symbolic size expression has no LEIR form; the capture then uses fixed sizes."""

    def __init__(self, expr: object) -> None:
        super().__init__("frontend-size", f"the size expression {expr} has no LEIR form")


@dataclass(slots=True)
class Solution:
    """What the guards say: solved symbols (symbol → expression over free symbols) and left-over conditions.

    ``divisions`` are floor divisions that a guard equates with an expression; ``values`` the present values of free symbols.
    """

    by: dict[sympy.Symbol, sympy.Expr] = field(default_factory=dict)
    divisions: dict[sympy.Expr, sympy.Expr] = field(default_factory=dict)
    values: dict[sympy.Symbol, int] = field(default_factory=dict)
    conditions: list[sympy.Basic] = field(default_factory=list)

    def apply(self, expr: sympy.Basic, divisions: bool = True) -> sympy.Basic:
        """``expr`` over free symbols only, and without equated floor divisions unless ``divisions`` is false."""
        by = {**self.by, **self.divisions} if divisions else self.by
        for _ in range(8):
            new = expr.xreplace(by) if by else expr
            if new == expr:
                break
            expr = _again(new)
        return expr


def _again(expr: sympy.Basic) -> sympy.Basic:
    """Evaluate floor divisions and remainders again after a substitution."""
    if not expr.has(torch_functions.FloorDiv, *_MOD):
        return expr
    return expr.replace(lambda e: isinstance(e, (torch_functions.FloorDiv, *_MOD)), lambda e: _reduce_division(e))


def _reduce_division(expr: sympy.Expr) -> sympy.Expr:
    """Take multiples of the divisor out of a floor division or remainder."""
    top, bottom = expr.args
    whole: list[sympy.Expr] = []
    rest: list[sympy.Expr] = []
    for term in sympy.Add.make_args(sympy.expand(top)):
        quotient = sympy.cancel(term / bottom)
        coefficient, factor = quotient.as_coeff_Mul()
        exact = coefficient.is_integer and not factor.atoms(sympy.Pow) and sympy.fraction(quotient)[1] == 1
        (whole if exact else rest).append(quotient if exact else term)
    left = sympy.Add(*rest)
    if left.is_Integer and bottom.is_Integer:
        quotient_rest, remainder = divmod(int(left), int(bottom))
        return sympy.Integer(remainder) if isinstance(expr, _MOD) else sympy.Add(*whole, quotient_rest)
    if isinstance(expr, _MOD):
        return sympy.Integer(0) if left == 0 else expr.func(left, bottom)
    return sympy.Add(*whole) if left == 0 else sympy.Add(*whole, expr.func(left, bottom))


def solve(guards: Iterable[sympy.Basic], values: Mapping[sympy.Symbol, int]) -> Solution:
    """Solve divisibility and equality guards; ``values`` are the present values of all symbols."""
    found = Solution(values=dict(values))
    todo = list(dict.fromkeys(g for g in guards if not g.has(torch_functions.Max, torch_functions.Min, sympy.Max, sympy.Min, sympy.Or, sympy.Ne)))
    exact: set[tuple[sympy.Basic, sympy.Basic]] = set()
    for _ in range(12):
        before = (dict(found.by), dict(found.divisions))
        for guard in todo:
            now = found.apply(guard)
            if isinstance(now, sympy.Eq) and isinstance(now.lhs, _MOD) and now.rhs == 0:
                _divisible(found, now.lhs.args[0], now.lhs.args[1], exact)
            elif isinstance(now, sympy.Eq):
                _equal(found, now, exact)
        if (found.by, found.divisions) == before:
            break
    for symbol, expr in found.by.items():
        if found.apply(expr).xreplace({k: sympy.Integer(v) for k, v in found.values.items()}) != found.values.get(symbol):
            raise Unrepresentable(expr)  # cannot happen if every guard holds for the present values; the capture then uses numbers
    _keep_conditions(found, todo)
    return found


def _divisible(found: Solution, top: sympy.Basic, bottom: sympy.Basic, exact: set[tuple[sympy.Basic, sympy.Basic]]) -> None:
    exact.add((top, bottom))
    if bottom.is_Integer:  # terms that are multiples of the divisor do not matter
        top = sympy.Add(*(t for t in sympy.Add.make_args(sympy.expand(top)) if t.as_coeff_Mul()[0] % bottom != 0))
    if isinstance(top, sympy.Symbol) and bottom.is_Integer and bottom > 1 and top not in found.by:
        if found.values[top] == bottom:  # one part: a fixed extent, as the tracer does with 1
            _bind(found, top, bottom)
            return
        part = sympy.Symbol(f"{top.name}_{bottom}", integer=True, positive=True)
        found.values[part] = found.values[top] // int(bottom)
        _bind(found, top, bottom * part)


def _bind(found: Solution, symbol: sympy.Symbol, expr: sympy.Expr) -> None:
    found.by = {s: _again(e.xreplace({symbol: expr})) for s, e in found.by.items()}
    found.by[symbol] = expr


def _equal(found: Solution, guard: sympy.Eq, exact: set[tuple[sympy.Basic, sympy.Basic]]) -> None:
    difference = guard.lhs - guard.rhs
    for division in difference.atoms(torch_functions.FloorDiv):
        top, bottom = division.args
        if any(found.apply(t) == top and found.apply(b) == bottom for t, b in exact):
            difference = difference.xreplace({division: top / bottom})
    difference = _without_common(sympy.expand(difference))
    if difference == 0:
        return
    inside: set[sympy.Basic] = set()
    for division in difference.atoms(torch_functions.FloorDiv, *_MOD):
        inside |= division.free_symbols
    if _is_divided(found, difference, exact):
        return
    answers: list[tuple[bool, sympy.Symbol, sympy.Expr]] = []
    for symbol in sorted(difference.free_symbols - inside, key=lambda s: (-len(s.name), s.name)):
        slope = difference.coeff(symbol)
        if slope.free_symbols or slope == 0 or sympy.degree(difference, symbol) != 1:
            continue
        answer = sympy.expand(-(difference - slope * symbol) / slope)
        coefficients = [t.as_coeff_Mul()[0] for t in sympy.Add.make_args(answer)]
        if all(k.is_integer for k in coefficients):
            answers.append((any(k < 0 for k in coefficients), symbol, answer))
    if answers:  # prefer a size that grows with the others: C=A+B rather than A=C-B
        _, symbol, answer = min(answers, key=lambda a: a[0])
        _bind(found, symbol, answer)
        return
    for division in sorted(difference.atoms(torch_functions.FloorDiv), key=str):
        slope = difference.coeff(division)
        rest = sympy.expand(difference - slope * division)
        if slope in (1, -1) and not rest.has(division):
            found.divisions[division] = sympy.expand(-slope * rest)
            return
    if len(difference.free_symbols) == 1:  # a condition on one size that does not solve: the size keeps its value
        symbol = next(iter(difference.free_symbols))
        _bind(found, symbol, sympy.Integer(found.values[symbol]))


def _is_divided(found: Solution, difference: sympy.Expr, exact: set[tuple[sympy.Basic, sympy.Basic]]) -> bool:
    """Recognise ``n*((e+k)//n) == e`` with 0 <= k < n, which says that ``n`` divides ``e``."""
    for division in sorted(difference.atoms(torch_functions.FloorDiv), key=str):
        top, bottom = division.args
        slope = difference.coeff(division)
        if bottom.is_Integer and slope in (bottom, -bottom):
            other = sympy.expand(division * bottom - difference * sympy.sign(slope))
            if (spare := sympy.expand(top - other)).is_Integer and 0 <= spare < bottom:
                _divisible(found, other, bottom, exact)
                return True
    return False


def _without_common(expr: sympy.Expr) -> sympy.Expr:
    """A sum without the symbols that all its terms have as a factor (sizes are positive)."""
    terms = sympy.Add.make_args(expr)
    common = set.intersection(*(set(sympy.Mul.make_args(t.as_coeff_Mul()[1])) for t in terms)) if expr != 0 else set()
    for factor in common:
        if isinstance(factor, sympy.Symbol):
            expr = sympy.expand(expr / factor)
    return expr


def _keep_conditions(found: Solution, guards: Sequence[sympy.Basic]) -> None:
    bounds: dict[sympy.Expr, tuple[sympy.Expr, sympy.Basic]] = {}
    for guard in guards:
        now = found.apply(guard, divisions=False)
        if now in (sympy.true, sympy.false) or not isinstance(now, sympy.core.relational.Relational):
            continue
        if isinstance(now, sympy.Eq):
            if _without_common(sympy.expand(now.lhs - now.rhs)) != 0 and now not in found.conditions and not _always(now):
                found.conditions.append(now)
            continue
        difference = sympy.expand(now.lhs - now.rhs)
        if difference.atoms(torch_functions.FloorDiv, *_MOD, torch_functions.ToFloat) or not difference.is_polynomial() or _degree(difference) != 1:
            continue  # contiguity and emptiness tests of the tracer
        terms = [t.as_coeff_Mul() for t in sympy.Add.make_args(difference) if not t.is_number]
        constant = abs(int(difference.as_coeff_Add()[0])) if difference.as_coeff_Add()[0].is_Integer else 0
        if len(terms) == 1 and constant <= 2:  # sizes 0 and 1 are special only to the tracer
            continue
        if isinstance(now, (sympy.Ge, sympy.Gt)) and all(c > 0 for c, _ in terms) and constant <= 2:
            continue
        if now not in found.conditions and not _always(now):
            at_least = _at_least(now)
            moving = at_least - at_least.as_coeff_Add()[0]
            if moving not in bounds or bounds[moving][0] > at_least.as_coeff_Add()[0]:
                bounds[moving] = (at_least.as_coeff_Add()[0], now)
    found.conditions += [condition for _, condition in bounds.values()]


def _at_least(condition: sympy.core.relational.Relational) -> sympy.Expr:
    """The integer expression that an inequality says is not negative."""
    difference = sympy.expand(condition.lhs - condition.rhs)
    if isinstance(condition, (sympy.Lt, sympy.Le)):
        difference = -difference
    return sympy.expand(difference - 1 if isinstance(condition, (sympy.Gt, sympy.Lt)) else difference)


def _always(condition: sympy.Basic) -> bool:
    """Whether a condition holds at 24 fixed assignments of small and large sizes (then it says nothing worth keeping)."""
    symbols = sorted(condition.free_symbols, key=lambda s: s.name)
    rng = random.Random(len(symbols))
    for trial in range(24):
        top = (3, 12, 100, 100_000)[trial % 4]
        if condition.xreplace({s: sympy.Integer(rng.randint(1, top)) for s in symbols}) != sympy.true:
            return False
    return True


def _degree(expr: sympy.Expr) -> int:
    return max((sympy.total_degree(t) for t in sympy.Add.make_args(expr)), default=0)


def to_index(expr: sympy.Basic, names: Mapping[sympy.Symbol, str]) -> Expr:
    """A sympy integer (or relation) over free symbols as a LEIR expression; raises :class:`Unrepresentable`."""
    if isinstance(expr, sympy.core.relational.Relational):
        sign = {"==": "==", "!=": "!=", "<": "<", "<=": "<=", ">": ">", ">=": ">="}.get(expr.rel_op)
        if sign is None:
            raise Unrepresentable(expr)
        return op(sign, to_index(expr.lhs, names), to_index(expr.rhs, names))
    return simplify_index(_index(sympy.expand(expr), names))


def _index(expr: sympy.Basic, names: Mapping[sympy.Symbol, str]) -> Expr:
    if isinstance(expr, sympy.Integer):
        return ix(int(expr))
    if isinstance(expr, sympy.Symbol) and expr in names:
        return Size(names[expr])
    args = [_index(a, names) for a in expr.args] if isinstance(expr, sympy.Expr) else []
    if isinstance(expr, sympy.Add):
        return reduce(lambda a, b: op("+", a, b), args)
    if isinstance(expr, sympy.Mul):
        return reduce(lambda a, b: op("*", a, b), args)
    if isinstance(expr, sympy.Pow) and expr.exp.is_Integer and 0 < int(expr.exp) < 8:
        return reduce(lambda a, b: op("*", a, b), [args[0]] * int(expr.exp))
    if isinstance(expr, (torch_functions.FloorDiv, torch_functions.CleanDiv)):
        return op("//", args[0], args[1])
    if isinstance(expr, _MOD):
        return op("%", args[0], args[1])
    if isinstance(expr, (torch_functions.Max, sympy.Max)):
        return reduce(lambda a, b: op("max", a, b), args)
    if isinstance(expr, (torch_functions.Min, sympy.Min)):
        return reduce(lambda a, b: op("min", a, b), args)
    raise Unrepresentable(expr)


def to_number(expr: sympy.Basic, names: Mapping[sympy.Symbol, str], dtype: DType) -> Expr:
    """A sympy real number over free symbols as an expression of the float ``dtype``; raises :class:`Unrepresentable`."""
    if expr.is_number:
        return const(float(expr), dtype)
    if expr.is_integer and not expr.has(torch_functions.ToFloat):
        return cast(dtype, to_index(expr, names))
    if isinstance(expr, torch_functions.ToFloat):
        return cast(dtype, to_index(expr.args[0], names))
    if isinstance(expr, (torch_functions.FloatPow, sympy.Pow)):
        base = to_number(expr.args[0], names, dtype)
        power = float(expr.args[1]) if expr.args[1].is_number else None
        if power == 0.5:
            return op("sqrt", base)
        if power == -0.5:
            return op("/", const(1, dtype), op("sqrt", base))
        if power == -1.0:
            return op("/", const(1, dtype), base)
        return op("pow", base, to_number(expr.args[1], names, dtype))
    if type(expr).__name__ == "OpaqueUnaryFn_sqrt":
        return op("sqrt", to_number(expr.args[0], names, dtype))
    args = [to_number(a, names, dtype) for a in expr.args]
    if isinstance(expr, (torch_functions.FloatTrueDiv, torch_functions.IntTrueDiv)):
        return op("/", *args)
    if isinstance(expr, sympy.Add):
        return reduce(lambda a, b: op("+", a, b), args)
    if isinstance(expr, sympy.Mul):
        return reduce(lambda a, b: op("*", a, b), args)
    raise Unrepresentable(expr)


class Extents:
    """Names for free symbols and, as they are met, for compound extents of the graph's tensors.

    A dim such as ``(H-R)//2+1`` becomes one derived size, so that products, sums and divisions of dims stay short.
    """

    def __init__(self, solution: Solution) -> None:
        self.solution = solution
        self.names: dict[sympy.Symbol, str] = {}
        self.derived: dict[str, Expr] = {}
        self.values: dict[str, int] = {}
        self._floors: dict[sympy.Basic, sympy.Expr] = {}
        self._sums: dict[sympy.Expr, sympy.Symbol] = {}

    def name(self, symbol: sympy.Symbol, name: str) -> None:
        """Name a free symbol."""
        self.names[symbol] = name
        self.values[name] = self.solution.values[symbol]

    def reduced(self, expr: sympy.Basic) -> sympy.Basic:
        """``expr`` over free symbols and the symbols of derived sizes."""
        expr = self.solution.apply(expr)
        for _ in range(12):
            new = expr.xreplace(self._floors) if self._floors else expr
            if new == expr:
                break
            expr = new
        if isinstance(expr, sympy.Expr) and self._sums:
            expr = self._match(sympy.expand(expr))
        return expr

    def _match(self, expr: sympy.Expr) -> sympy.Expr:
        if expr in self._sums:
            return self._sums[expr]
        if isinstance(expr, sympy.Add) and expr.is_polynomial() and _degree(expr) > 1:
            return sympy.Mul(*(self._known(f) for f in sympy.Mul.make_args(sympy.factor(expr))))
        return expr

    def _known(self, factor: sympy.Expr) -> sympy.Expr:
        """The derived size that a factor is, up to its sign."""
        negated = sympy.expand(-factor)
        return self._sums[factor] if factor in self._sums else -self._sums[negated] if negated in self._sums else factor

    def compound(self, expr: sympy.Basic) -> sympy.Expr | None:
        """The part of a dim that deserves a size of its own: a sum, or a lone floor division."""
        reduced = self.reduced(expr)
        if isinstance(reduced, sympy.Mul):
            sums = [f for f in reduced.args if isinstance(f, sympy.Add)]
            return sums[0] if len(sums) == 1 else None
        return reduced if isinstance(reduced, (sympy.Add, torch_functions.FloorDiv)) else None

    def derive(self, expr: sympy.Expr, name: str) -> None:
        """Give ``expr`` (from :meth:`compound`) the derived size ``name``."""
        index = to_index(expr, self.names)
        symbol = sympy.Symbol(name, integer=True, positive=True)
        divisions = [t for t in sympy.Add.make_args(expr) if isinstance(t, torch_functions.FloorDiv)]
        if len(divisions) == 1:
            self._floors[divisions[0]] = symbol - (expr - divisions[0])
        else:
            self._sums[sympy.expand(expr)] = symbol
        self.names[symbol] = name
        self.derived[name] = index
        self.values[name] = eval_index(index, self.values)

    def index(self, expr: sympy.Basic) -> Expr:
        """The LEIR expression; raises :class:`Unrepresentable`."""
        return to_index(self.reduced(expr), self.names)

    def number(self, expr: sympy.Basic, dtype: DType) -> Expr:
        """A real number computed from sizes, as an expression of ``dtype``; raises :class:`Unrepresentable`."""
        return to_number(self.reduced(expr), self.names, dtype)
