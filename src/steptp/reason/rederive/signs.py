"""Bounds of float expressions, worked out again by one recursive rule a node: what the checker believes about signs and zeros.

A value is a pair of bounds with two marks: it is surely not 0, it is surely a finite number.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

from steptp.ir.nodes import Cast, Const, Expr, If, Load, Loop, Op, Path, Program, Size, Stmt, Store, Var
from steptp.reason.rederive.figures import _below

__all__ = ["Bounds", "Signs"]

INF = math.inf


@dataclass(frozen=True)
class Bounds:
    lo: float = -INF
    hi: float = INF
    away: bool = False  # not 0
    sound: bool = False  # a finite number
    never_nan: bool = False

    def __post_init__(self) -> None:
        if self.lo > 0 or self.hi < 0:
            object.__setattr__(self, "away", True)

    @property
    def number(self) -> bool:
        return self.sound or self.never_nan

    def says(self, condition: str) -> bool:
        """Whether the bounds imply the condition (of finite values)."""
        known = {"finite": True, "nonnegative": self.lo >= 0, "nonzero": self.away, "positive": self.lo >= 0 and self.away}
        return self.sound and known.get(condition, False)


UNKNOWN = Bounds()


def _ends(how: Callable[[float, float], float], a: Bounds, b: Bounds) -> tuple[float, float]:
    found = []
    for x in (a.lo, a.hi):
        for y in (b.lo, b.hi):
            value = how(x, y) if not (math.isinf(x) and y == 0) and not (x == 0 and math.isinf(y)) else 0.0
            found.append(value)
    known = [v for v in found if v == v]
    return (min(known), max(known)) if len(known) == 4 else (-INF, INF)


def _mul(a: Bounds, b: Bounds) -> Bounds:
    lo, hi = _ends(lambda x, y: x * y, a, b)
    return Bounds(lo, hi, a.away and b.away and a.sound and b.sound, a.sound and b.sound)


def _add(a: Bounds, b: Bounds) -> Bounds:
    one_side = min(a.lo, b.lo) >= 0 or max(a.hi, b.hi) <= 0
    lo, hi = a.lo + b.lo, a.hi + b.hi
    return Bounds(lo if lo == lo else -INF, hi if hi == hi else INF, one_side and (a.away or b.away), a.sound and b.sound)


def _neg(a: Bounds) -> Bounds:
    return Bounds(-a.hi, -a.lo, a.away, a.sound, a.number)


def _inverse(a: Bounds) -> Bounds:
    """1/a; only its sign is kept where a may be near 0."""
    if a.lo >= 0:
        return Bounds(0.0 if math.isinf(a.hi) or a.hi == 0 else 1 / a.hi, 1 / a.lo if a.lo > 0 else INF, a.sound, a.sound and a.away)
    if a.hi <= 0:
        return _neg(_inverse(_neg(a)))
    return Bounds(-INF, INF, a.sound, a.sound and a.away)


def _join(a: Bounds, b: Bounds) -> Bounds:
    return Bounds(min(a.lo, b.lo), max(a.hi, b.hi), a.away and b.away, a.sound and b.sound, a.number and b.number)


def _both(a: Bounds, b: Bounds) -> Bounds:
    lo, hi = max(a.lo, b.lo), min(a.hi, b.hi)
    return Bounds(lo, hi, a.away or b.away, a.sound or b.sound, a.number or b.number) if lo <= hi else a


_RISING: dict[str, tuple[Callable[[float], float], float, float]] = {
    "exp": (lambda x: math.exp(min(x, 700.0)), 0.0, INF), "expm1": (lambda x: math.expm1(min(x, 700.0)), -1.0, INF), "tanh": (math.tanh, -1.0, 1.0),
    "erf": (math.erf, -1.0, 1.0), "sigmoid": (lambda x: 1 / (1 + math.exp(min(-x, 700.0))), 0.0, 1.0), "sqrt": (lambda x: math.sqrt(max(x, 0.0)), 0.0, INF),
    "log": (lambda x: math.log(x) if x > 0 else -INF, -INF, INF), "log1p": (lambda x: math.log1p(x) if x > -1 else -INF, -INF, INF),
}  # fmt: skip


@dataclass
class Signs:
    """Bounds at one store. Sizes whose loops run around it are at least 1; conditions of guards and selects on the way hold."""

    program: Program
    path: Path
    positive: frozenset[str] = frozenset()
    facts: dict[Expr, Bounds] = field(default_factory=dict)
    open: tuple[str, ...] = ()  # buffers that are being worked out

    @staticmethod
    def at(program: Program, path: Path) -> Signs:
        sizes: set[str] = set()
        guards: list[If] = []
        body: tuple[Stmt, ...] = program.body
        for step in path[:-1]:
            owner = body[step]
            assert not isinstance(owner, Store)
            if isinstance(owner, Loop):
                pending = [owner.extent]
                while pending:
                    e = pending.pop()
                    if isinstance(e, Size):
                        sizes.add(e.name)
                    elif isinstance(e, Op) and e.name in ("*", "//"):
                        pending += e.args if e.name == "*" else e.args[:1]
            else:
                guards.append(owner)
            body = owner.body
        made = Signs(program, path, frozenset(sizes))
        for guard in guards:
            written = {s.buffer for _, s, _ in _stores_of(guard.body)}
            if not any(isinstance(e, Load) and e.buffer in written for e in _below(guard.cond)):
                made = made.given(guard.cond, True)
        return made

    def given(self, cond: Expr, holds: bool) -> Signs:
        facts = dict(self.facts)
        self._learn(cond, holds, facts)
        return Signs(self.program, self.path, self.positive, facts, self.open)

    def _learn(self, cond: Expr, holds: bool, facts: dict[Expr, Bounds]) -> None:
        if not isinstance(cond, Op):
            return
        if cond.name == "not":
            self._learn(cond.args[0], not holds, facts)
        elif (cond.name, holds) in (("and", True), ("or", False)):
            for part in cond.args:
                self._learn(part, holds, facts)
        elif cond.name in ("<", "<=", ">", ">=", "==", "!=") and cond.args[0].dtype.is_float:
            a, b = cond.args
            if cond.name in (">", ">="):
                a, b = b, a
            strict = cond.name in ("<", ">")
            if cond.name in ("==", "!="):
                same = holds == (cond.name == "==")
                for x, y in ((a, b), (b, a)):
                    limit = self.of(y)
                    if same or (limit.lo, limit.hi) == (0, 0):
                        self._note(facts, x, limit if same else Bounds(away=True))
                    elif self.of(x).number and self.of(x).lo > -INF and limit.lo == limit.hi == INF:  # a number that is not infinite
                        self._note(facts, x, Bounds(sound=True))
                        if isinstance(x, Op) and x.name == "abs":
                            self._note(facts, x.args[0], Bounds(sound=True))
                return
            if not holds:
                if not (self.of(a).sound and self.of(b).sound):
                    return
                a, b, strict = b, a, not strict
            top, bottom = self.of(b), self.of(a)
            self._note(facts, a, Bounds(hi=top.hi, away=strict and top.hi <= 0))
            self._note(facts, b, Bounds(lo=bottom.lo, away=strict and bottom.lo >= 0))

    def _note(self, facts: dict[Expr, Bounds], expr: Expr, limit: Bounds) -> None:
        if not isinstance(expr, Const):
            facts[expr] = _both(facts[expr], limit) if expr in facts else limit

    def of(self, expr: Expr) -> Bounds:
        found = self._plain(expr)
        return _both(found, self.facts[expr]) if expr in self.facts else found

    def _plain(self, expr: Expr) -> Bounds:
        if isinstance(expr, Const):
            value = float(expr.value)
            return UNKNOWN if value != value else Bounds(value, value, value != 0, math.isfinite(value), True)
        if isinstance(expr, (Var, Size)):
            least = 1.0 if expr.name in self.positive and isinstance(expr, Size) else 0.0
            return Bounds(least, INF, least > 0, True)
        if isinstance(expr, Cast):
            return (self.of(expr.arg) if expr.arg.dtype.value != "bool" else Bounds(0, 1, False, True)) if expr.type.is_float else Bounds(sound=True)
        if isinstance(expr, Load):
            return self._loaded(expr.buffer)
        assert isinstance(expr, Op)
        return self._operator(expr)

    def _operator(self, expr: Op) -> Bounds:
        name, args = expr.name, expr.args
        if name == "select":
            return _join(self.given(args[0], True).of(args[1]), self.given(args[0], False).of(args[2]))
        a = self.of(args[0])
        if name in _RISING:
            how, floor, ceiling = _RISING[name]
            lo = floor if math.isinf(a.lo) else max(how(a.lo), floor)
            hi = ceiling if math.isinf(a.hi) else min(how(a.hi), ceiling)
            defined = {"sqrt": a.lo >= 0, "log": a.says("positive"), "log1p": a.lo > -1}.get(name, True)
            sure = a.sound if name in ("exp", "sigmoid") else a.says("positive") if name in ("sqrt", "log1p") else a.away and name in ("tanh", "erf", "expm1")
            return Bounds(lo, hi, sure, a.sound and defined)
        if name == "rsqrt":
            root = self._operator(Op("sqrt", args, expr.type))
            return _inverse(root)
        if name == "neg":
            return _neg(a)
        if name == "abs":
            return Bounds(max(a.lo, -a.hi, 0.0), max(abs(a.lo), abs(a.hi)), a.away, a.sound, a.number)
        if name in ("sin", "cos"):
            return Bounds(-1, 1, False, a.sound)
        if name in ("floor", "ceil", "round"):
            return Bounds(a.lo - (name != "ceil"), a.hi + (name != "floor"), False, a.sound)
        return self._two(name, args, a, self.of(args[1])) if len(args) == 2 else UNKNOWN

    def _two(self, name: str, args: tuple[Expr, ...], a: Bounds, b: Bounds) -> Bounds:
        if name == "*":
            square = args[0] == args[1]
            return Bounds(
                0.0 if square and _mul(a, b).lo < 0 else _mul(a, b).lo, _mul(a, b).hi, (a.away and a.sound) if square else _mul(a, b).away, a.sound and b.sound
            )
        if name in ("+", "-"):
            return _add(a, b if name == "+" else _neg(b))
        if name == "/":
            return _mul(a, _inverse(b))
        if name in ("max", "min"):
            pick = max if name == "max" else min
            sure = (
                (a.away and b.away)
                or (name == "max" and any(x.lo >= 0 and x.away for x in (a, b)))
                or (name == "min" and any(x.hi <= 0 and x.away for x in (a, b)))
            )
            return Bounds(pick(a.lo, b.lo), pick(a.hi, b.hi), sure, a.sound and b.sound, a.number and b.number)
        if name == "pow" and a.lo >= 0:
            return Bounds(0, INF, a.away and a.sound and b.sound, a.sound and b.sound and (a.away or b.lo > 0))
        if name == "pow" and isinstance(args[1], Const) and float(args[1].value).is_integer() and args[1].value >= 0:
            return Bounds(-INF if float(args[1].value) % 2 else 0.0, INF, a.away and a.sound, a.sound)
        if name == "//" and a.lo >= 0 and b.lo >= 1:
            return Bounds(0, a.hi, False, True)
        if name == "%" and b.lo >= 1:
            return Bounds(0, max(b.hi - 1, 0), False, True)
        return Bounds(sound=not args[0].dtype.is_float)

    def _loaded(self, buffer: str) -> Bounds:
        for declared in self.program.inputs:
            if declared.name == buffer:
                low = declared.range[0] if declared.range else None
                return Bounds(float(low.value) if isinstance(low, Const) else -INF, INF, False, True)
        if buffer in self.open:
            return UNKNOWN
        out: Bounds | None = None
        for path, store, around in _stores_of(self.program.body):
            if store.buffer == buffer:
                here = Signs.at(self.program, path)
                term = Signs(self.program, path, self.positive | here.positive, here.facts, (*self.open, buffer)).of(store.value)
                value = term if store.reduce is None else self._summed(store, term, buffer, around)
                out = value if out is None else _join(out, value)
        return UNKNOWN if out is None else out

    def _summed(self, store: Store, term: Bounds, buffer: str, around: tuple[Loop | If, ...]) -> Bounds:
        if store.carry or store.reduce not in ("+", "*", "max", "min"):
            return UNKNOWN
        home = next((n + 1 for n, p in enumerate(around) if isinstance(p, Loop) and any(b.name == buffer for b in p.tmps)), 0)
        runs = all(isinstance(p, Loop) for p in around)
        runs = runs and all(Signs(self.program, self.path, self.positive).of(p.extent).lo >= 1 for p in around[home:] if isinstance(p, Loop))
        if store.reduce == "*":
            return Bounds(0 if term.lo >= 0 else -INF, INF, term.away, term.sound)
        if store.reduce == "+":
            lo = -INF if term.lo < 0 else term.lo if runs else 0.0
            hi = INF if term.hi > 0 else term.hi if runs else 0.0
            return Bounds(lo, hi, runs and term.away and (term.lo >= 0 or term.hi <= 0), term.sound)
        start = -INF if store.reduce == "max" else INF
        return term if runs else _join(term, Bounds(start, start, True, False, True))


def _stores_of(body: tuple[Stmt, ...], at: Path = (), around: tuple[Loop | If, ...] = ()) -> list[tuple[Path, Store, tuple[Loop | If, ...]]]:
    found: list[tuple[Path, Store, tuple[Loop | If, ...]]] = []
    for n, stmt in enumerate(body):
        if isinstance(stmt, Store):
            found.append(((*at, n), stmt, around))
        else:
            found += _stores_of(stmt.body, (*at, n), (*around, stmt))
    return found
