"""Claims of algebra steps: an expression that becomes an equal one, what it has in common, and the domain that this needs.

Equality over the reals is tried at random rational points that meet the claimed conditions, zeros among them, in ball arithmetic. One side alone
may not be infinite or undefined, so a condition that is needed and not claimed shows.
"""

from __future__ import annotations

import random
from typing import Any

from steptp.errors import LeirError
from steptp.interp import reals
from steptp.interp.compare import Same, compare_exact
from steptp.interp.exact import NeedPrecision, precision
from steptp.ir.nodes import Cast, Const, Expr, Load, Op, Path, Program, Size, Store, Var
from steptp.ir.printer import print_expr
from steptp.ir.sizes import eval_index
from steptp.ir.walk import free_vars, get, map_expr, replace_at
from steptp.reason.patterns import Claim
from steptp.reason.rederive.context import CheckContext, Rederivation, loop_at
from steptp.reason.rederive.figures import _below
from steptp.reason.rederive.signs import Signs
from steptp.reason.rederive.structure import _walk

__all__ = ["ALGEBRA"]

_POINTS, _TRIES = 4, 200
_NAMES = {
    "+": "add", "-": "sub", "*": "mul", "/": "div", "max": "maximum", "min": "minimum", "pow": "power", "neg": "neg", "abs": "absolute", "round": "nearest",
}  # fmt: skip


def _text(expr: Expr) -> str:
    return print_expr(expr, expr.dtype)


def _store(program: Program, path: Path) -> Store:
    found = get(program, path)
    if not isinstance(found, Store):
        raise KeyError(path)
    return found


def _parts(expr: Expr) -> tuple[Expr, ...]:
    return expr.args if isinstance(expr, Op) else expr.indices if isinstance(expr, Load) else (expr.arg,) if isinstance(expr, Cast) else ()


def _pair(ctx: CheckContext) -> tuple[Expr, Expr]:
    """The expression at the site's place in the parent and in the child."""
    place = [int(n) for n in ctx.params["at"].split(".")]
    found = []
    for program in (ctx.parent, ctx.child):
        store = _store(program, ctx.path)
        expr = (*store.indices, store.value)[place[0]]
        for step in place[1:]:
            expr = _parts(expr)[step]
        found.append(expr)
    return found[0], found[1]


def _only_there(ctx: CheckContext) -> bool:
    """Whether the child is the parent with that one expression exchanged."""
    place = [int(n) for n in ctx.params["at"].split(".")]
    before, after = _store(ctx.parent, ctx.path), _store(ctx.child, ctx.path)
    if before.indices != after.indices or place[0] != len(before.indices):
        return False
    a, b = before.value, after.value
    for step in place[1:]:
        if type(a) is not type(b) or getattr(a, "name", "") != getattr(b, "name", ""):
            return False
        left, right = _parts(a), _parts(b)
        if len(left) != len(right) or any(x != y for n, (x, y) in enumerate(zip(left, right, strict=True)) if n != step):
            return False
        a, b = left[step], right[step]
    return replace_at(ctx.parent, ctx.path, after) == ctx.child


class _Point:
    """A random value for every variable and every read; equal texts get equal values."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.known: dict[str, Any] = {}

    def real(self, expr: Expr) -> Any:
        if isinstance(expr, Const):
            return reals.exact_const(float(expr.value))
        if isinstance(expr, Load):
            return self._drawn(expr)
        if isinstance(expr, Cast):
            return (
                self.real(expr.arg)
                if expr.arg.dtype.is_float
                else reals.rational(self._drawn(expr.arg) if expr.arg.dtype.value == "bool" else self.whole(expr.arg))
            )
        assert isinstance(expr, Op)
        if expr.name == "select":
            return self.real(expr.args[1] if self.holds(expr.args[0]) else expr.args[2])
        return getattr(reals, _NAMES.get(expr.name, expr.name))(*map(self.real, expr.args))

    def whole(self, expr: Expr) -> int:
        plain = map_expr(expr, lambda e: Const(self._drawn(e), e.dtype) if isinstance(e, (Var, Size, Load)) else e)
        return eval_index(plain, {})

    def _drawn(self, expr: Expr) -> Any:
        key = _text(expr)
        if key not in self.known:
            rng = self.rng
            if expr.dtype.is_float:
                value = reals.exact_const(rng.choice((-1, 1, 1)) * rng.choice((0, 1, 1, 1, 1, 1, 1)) * rng.randint(1, 300) / rng.choice((64, 64, 8, 512)))
            else:
                value = rng.randint(0, 1) if expr.dtype.value == "bool" else rng.randint(1, 9)
            self.known[key] = value
        return self.known[key]

    def holds(self, cond: Expr) -> bool:
        if not isinstance(cond, Op):
            return bool(self._drawn(cond))
        if cond.name in ("and", "or"):
            return (all if cond.name == "and" else any)([self.holds(a) for a in cond.args])
        if cond.name == "not":
            return not self.holds(cond.args[0])
        if cond.name == "isnan":
            return False
        a, b = (self.real(x) if x.dtype.is_float else reals.rational(self.whole(x)) for x in cond.args)
        less, same = reals.less(a, b), reals.equal(a, b)
        return {"<": less, "<=": less or same, ">": not less and not same, ">=": not less, "==": same, "!=": not same}[cond.name]

    def meets(self, expr: Expr, condition: str) -> bool:
        value = self.real(expr)
        if type(value) is float:
            return False
        return condition == "finite" or {"positive": value > 0, "nonnegative": value >= 0, "nonzero": value != 0}[condition]


def _differ(old: Expr, new: Expr, ctx: CheckContext) -> str | None:
    """Why the two are not known equal over the reals."""
    store = _store(ctx.parent, ctx.path)
    table = {_text(e): e for e in _below(store.value) if e.dtype.is_float}
    needs = [(table[c["text"]], c["condition"]) for c in ctx.said if c.kind == "proven" and c["text"] in table]
    rng, good = random.Random(f"{_text(old)}/{_text(new)}"), 0
    with precision(256):
        for _ in range(_TRIES):
            point = _Point(rng)
            try:
                if not all(point.meets(e, condition) for e, condition in needs):
                    continue
                a, b = point.real(old), point.real(new)
                same = compare_exact(a, b)
            except (NeedPrecision, LeirError):
                continue
            if same is Same.UNDECIDED or (type(a) is float and same is Same.EQUAL):
                continue
            if same is Same.DIFFERENT:
                return f"at a random point one is {str(a)[:40]}, the other {str(b)[:40]}"
            good += 1
            if good == _POINTS:
                return None
    return "no points at which both could be compared"


def _expression_becomes(c: Claim, ctx: CheckContext) -> str | None:
    if c.place("at") != ctx.path:
        return "not the site"
    old, new = _pair(ctx)
    if (c["old"], c["new"]) != (_text(old), _text(new)):
        return f"`{_text(old)}` becomes `{_text(new)}`"
    return _differ(old, new, ctx) if _only_there(ctx) else "more than that changes"


def _literal_at_size(c: Claim, ctx: CheckContext) -> str | None:
    """Exactly that number at the present sizes, in ball arithmetic; the header states the one size that the expression has."""
    if c.place("at") != ctx.path:
        return "not the site"
    old, new = _pair(ctx)
    if (c["old"], c["new"]) != (_text(old), _text(new)) or not isinstance(new, Const):
        return f"`{_text(old)}` becomes `{_text(new)}`"
    constraints = ctx.child.constraints
    if replace_at(ctx.parent, ctx.path, _store(ctx.child, ctx.path)).with_(constraints=constraints) != ctx.child:
        return "more than that changes"
    stated = next((x for x in constraints if print_expr(x) == c["constraint"]), None)
    if not isinstance(stated, Op) or stated.name != "==" or not isinstance(stated.args[1], Const) or stated.args[0] not in set(_below(old)):
        return "the header does not state that"
    size, env = stated.args[0], ctx.parent.size_env
    pinned = map_expr(old, lambda e: stated.args[1] if e == size else e)
    if eval_index(size, env) != stated.args[1].value or any(isinstance(e, (Size, Var, Load)) for e in _below(pinned)):
        return f"`{_text(old)}` has more in it than that size"
    with precision(256):
        value = _Point(random.Random(0)).real(pinned)
        same = type(value) is not float and compare_exact(value, reals.exact_const(float(new.value)))
    return None if same is Same.EQUAL else "the value is another one"


_FORMS = {
    "+": "sum", "-": "difference", "*": "product", "/": "quotient", "exp": "exponential", "sqrt": "root", "rsqrt": "root", "abs": "magnitude",
    "max": "maximum", "min": "minimum", "select": "selection", "pow": "power", "neg": "negation",
}  # fmt: skip


def _form(expr: Expr, program: Program) -> str:
    if isinstance(expr, Load):
        how = [s.reduce for _, s, _ in _walk(program) if isinstance(s, Store) and s.buffer == expr.buffer]
        return "definition" if None in how else "accumulation" if how else "input"
    return "conversion" if isinstance(expr, Cast) else _FORMS.get(expr.name, "function") if isinstance(expr, Op) else "literal"


def _signs_at(ctx: CheckContext) -> Signs:
    """What holds where the step's expression is evaluated: guards, and the selects that it is a side of."""
    store = _store(ctx.parent, ctx.path)
    signs = Signs.at(ctx.parent, ctx.path)
    place = [int(n) for n in ctx.params["at"].split(".")]
    expr = (*store.indices, store.value)[place[0]]
    for step in place[1:]:
        if isinstance(expr, Op) and expr.name == "select" and step > 0:
            signs = signs.given(expr.args[0], step == 1)
        expr = _parts(expr)[step]
    return signs


def _known_by(expr: Expr, signs: Signs, program: Program) -> str:
    """What the proof of a condition starts from: a guard or select that speaks of the expression, else its form."""
    return "condition" if expr in signs.facts else _form(expr, program)


def _proven(c: Claim, ctx: CheckContext) -> str | None:
    expr = next((e for side in _pair(ctx) for e in _below(side) if e.dtype.is_float and _text(e) == c["text"]), None)
    if expr is None:
        return f"`{c['text']}` is not in what the step rewrites"
    signs = _signs_at(ctx)
    if (form := _known_by(expr, signs, ctx.parent)) != c["because"]:
        return f"it is known by its {form}"
    return None if signs.of(expr).says(c["condition"]) else f"it is not known to be {c['condition']}"


def _unchanged_in(c: Claim, ctx: CheckContext) -> str | None:
    place = c.place("at")
    loops = [p for n in range(1, len(ctx.path)) if loop_at(ctx.parent, p := ctx.path[:n]) is not None]
    loop = loop_at(ctx.parent, place)
    if not loops or loops[-1] != place or loop is None or loop.var != c["loop"]:
        return f"the innermost loop there is not {c['loop']}"
    expr = next((e for e in _below(_pair(ctx)[1]) if e.dtype.is_float and _text(e) == c["text"]), None)
    if expr is None:
        return f"`{c['text']}` is not in what the step computes"
    written = {s.buffer for p, s, _ in _walk(ctx.parent) if p[: len(place)] == place and isinstance(s, Store)}
    moves = c["loop"] in free_vars(expr) or any(isinstance(e, Load) and e.buffer in written for e in _below(expr))
    return "it changes there" if moves else None


def _summands(expr: Expr) -> list[tuple[bool, Expr]]:
    """(subtracted, term) of a sum, in any order; the two sides of a select count as terms."""
    if isinstance(expr, Op) and expr.name in ("+", "-"):
        return [*_summands(expr.args[0]), (expr.name == "-", expr.args[1])]
    return [(False, expr)]


def _terms_of(expr: Expr) -> list[tuple[bool, Expr]]:
    return [(False, a) for a in expr.args[1:]] if isinstance(expr, Op) and expr.name == "select" else _summands(expr)


def _multiplied(expr: Expr) -> list[Expr]:
    found = [expr]
    if isinstance(expr, Op) and expr.name == "*":
        found += _multiplied(expr.args[0]) + _multiplied(expr.args[1])
    elif isinstance(expr, Op) and expr.name == "/":
        found += _multiplied(expr.args[0])
    return found


def _common_factor(c: Claim, ctx: CheckContext) -> str | None:
    old, new = _pair(ctx)
    many, few = (new, old) if ctx.strategy.startswith("expand") else (old, new)
    if c["factor"] == "-1":
        count = sum(minus for minus, _ in _summands(many))
        held = any(minus and len(_summands(term)) > 1 for minus, term in _summands(few))
    else:
        zeros = isinstance(many, Op) and many.name == "select"  # beside a product, 0 is 0 times the factor
        count = sum((zeros and _text(term) in ("0", "-0")) or any(_text(f) == c["factor"] for f in _multiplied(term)) for _, term in _terms_of(many))
        held = False
        for _, term in _summands(few) if not (isinstance(few, Op) and few.name == "*") else [(False, few)]:
            parts = _multiplied(term)
            held |= any(_text(f) == c["factor"] for f in parts) and any(isinstance(f, Op) and f.name in ("+", "-", "select") for f in parts)
    return None if held and c.number("count") == count >= 2 else f"it multiplies {count} terms"


ALGEBRA: dict[str, Rederivation] = {
    "expression_becomes": _expression_becomes,
    "literal_at_size": _literal_at_size,
    "proven": _proven,
    "unchanged_in": _unchanged_in,
    "common_factor": _common_factor,
}
