"""What the legality of an algebra step rests on: which expressions have to be finite, or to keep clear of 0, and what the terms have in common.

Worked out from the expression before and after. Literals speak for themselves, and inputs are finite.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from steptp.ir.nodes import Cast, Const, Expr, Load, Op, Program, Store
from steptp.ir.walk import free_vars
from steptp.reason.patterns import Claim
from steptp.reason.rederive.algebra import ALGEBRA, _known_by, _multiplied, _pair, _parts, _signs_at, _summands, _terms_of, _text
from steptp.reason.rederive.context import CheckContext, loop_at
from steptp.reason.rederive.figures import _below
from steptp.reason.rederive.structure import _walk

__all__ = ["unsaid_of_domain"]

_EXPANDED = ("expand_factorization", "expand_collect")
_DISTRIBUTIVE = (*_EXPANDED, "factorization", "collect")
_FRACTIONS = ("cancellation", "expand_cancellation", "multiplicative_split", "together", "apart")
_LOGARITHMS = ("logsimp", "expand_log")
_ROOTS = ("powsimp", "expand_powsimp")
_HOISTING = ("apart", "exponential_split", "expand_powsimp", "powsimp", "logsimp", "collect", "factorization")


def unsaid_of_domain(claims: Sequence[Claim], ctx: CheckContext) -> Iterator[str]:
    """Conditions, common factors and invariants that the step needs and does not state."""
    old, new = _pair(ctx)
    told = {c["text"] for c in claims if c.kind == "proven"}
    if ctx.strategy in _DISTRIBUTIVE:
        yield from _factors(claims, ctx, old, new)
        yield from _finite(_distributed(claims, ctx, old, new), told, ctx, "finite")
    if ctx.strategy in _FRACTIONS:
        yield from _finite(_divisors(old, new, ctx), told, ctx, "nonzero")
    if ctx.strategy in ("additive_split", "cancellation", "expand_cancellation"):
        yield from _finite([*_pivots(old, new), *_pivots(new, old)], told, ctx, "finite")
    if ctx.strategy in _LOGARITHMS:
        yield from _finite([*_moved_out(old, new, False), *_moved_out(new, old, ctx.strategy == "logsimp")], told, ctx, "finite")
    if ctx.strategy in _LOGARITHMS + _ROOTS and not told and any(_split_argument(a, b, ctx.strategy != "logsimp") for a, b in ((old, new), (new, old))):
        yield "the sign of an operand"
    if ctx.strategy in _HOISTING and not any(c.kind == "unchanged_in" for c in claims) and any(_invariants(old, new, ctx)):
        yield "what stays the same in the innermost loop"


def _finite(exprs: Sequence[Expr], told: set[str], ctx: CheckContext, condition: str) -> Iterator[str]:
    due = {text: e for e in exprs if (text := _text(e)) not in told}
    signs = _signs_at(ctx) if due else None
    for text, expr in due.items():
        plain = ("literal", "input") if condition == "finite" else ("literal",)
        if signs is not None and _known_by(expr, signs, ctx.parent) not in plain:
            yield f"`{text}`, which has to be {condition}"


def _leaves(expr: Expr) -> list[Expr]:
    """Factors of the numerator that are no products."""
    return [e for e in _multiplied(expr) if not (isinstance(e, Op) and e.name in ("*", "/"))]


def _factors(claims: Sequence[Claim], ctx: CheckContext, old: Expr, new: Expr) -> Iterator[str]:
    """Each factor that at least two terms of the longer side share, and that stands before their sum in the other. Terms that stay have no part in it."""
    told = {c["factor"] for c in claims if c.kind == "common_factor"}
    many, few = (new, old) if ctx.strategy in _EXPANDED else (old, new)
    factors = [f for _, term in _terms_of(many) for f in _multiplied(term)]
    within = {_text(e) for f in factors if _text(f) in told for e in _multiplied(f)}  # factors of a factor that is stated
    terms = {_text(term): term for _, term in _terms_of(many)}
    changed = Counter(_text(term) for _, term in _terms_of(many)) - Counter(_text(term) for _, term in _terms_of(few))
    seen = Counter(text for one in changed.elements() for text in {_text(f) for f in _leaves(terms[one])})
    least = 1 if isinstance(many, Op) and many.name == "select" else 2  # of the two sides of a selection one may be 0
    for text in sorted({*(t for t, times in seen.items() if times >= least), "-1"} - told - within):
        for count in range(2, len(_terms_of(many)) + 1):
            if ALGEBRA["common_factor"](Claim("common_factor", {"factor": text, "count": str(count)}, ""), ctx) is None:
                yield f"the factor `{text}`"


def _distributed(claims: Sequence[Claim], ctx: CheckContext, old: Expr, new: Expr) -> list[Expr]:
    """What the distributive law is applied to: factor and terms of the sum, or the terms that share the factor.

    Of a selection only the factor, and that where a 0 is chosen: it becomes 0 times the factor.
    """
    factors = {c["factor"] for c in claims if c.kind == "common_factor"} - {"-1"}
    many = new if ctx.strategy in _EXPANDED else old
    if isinstance(many, Op) and many.name == "select":
        zeros = any(_text(t) in ("0", "-0") for _, t in _terms_of(many))
        return [f for _, t in _terms_of(many) for f in _multiplied(t) if zeros and _text(f) in factors]
    sharing = [t for _, t in _summands(many) if factors & {_text(f) for f in _multiplied(t)}]
    if ctx.strategy not in _EXPANDED:
        return sharing
    few = [f for _, term in _summands(old) for f in _multiplied(term)] if not (isinstance(old, Op) and old.name == "*") else _multiplied(old)
    sums = [f for f in few if isinstance(f, Op) and f.name in ("+", "-") and _text(f) not in factors]
    sums = sums or [f for f in few if isinstance(f, Op) and f.name in ("+", "-")]
    after = {_text(f) for t in sharing for f in _multiplied(t)}
    inside = [t for f in sums for a in f.args for t in _parts_of_sum(a, after)]
    return [*inside, *(f for t in sharing for f in _multiplied(t) if _text(f) in factors)]


def _parts_of_sum(expr: Expr, wanted: set[str]) -> list[Expr]:
    """The operands of a sum, taken apart as far as one is not ``wanted`` itself."""
    if _text(expr) in wanted:
        return [expr]
    return [p for a in expr.args for p in _parts_of_sum(a, wanted)] if isinstance(expr, Op) and expr.name in ("+", "-") else []


def _divisors(old: Expr, new: Expr, ctx: CheckContext) -> list[Expr]:
    """Factors of divisors of one side that are no divisors of the other, and of those that only one side has beneath a sum.

    A cancellation leaves some factors of a divisor: it is the factors that are compared. A reciprocal divides by the same.
    """
    if ctx.params.get("by") == "reciprocal":
        return []
    if ctx.strategy in ("cancellation", "expand_cancellation"):
        sides = [[f for e in _arithmetic(x) if isinstance(e, Op) and e.name == "/" for f in _leaves(e.args[1]) or [e.args[1]]] for x in (old, new)]
        left, right = (Counter(map(_text, side)) for side in sides)
        return [f for f in sides[0] + sides[1] if _text(f) in (left - right) | (right - left)]
    quotients = [[e for e in _arithmetic(x) if isinstance(e, Op) and e.name == "/"] for x in (old, new)]
    table = {_text(e.args[1]): e.args[1] for side in quotients for e in side}
    counts = [Counter(_text(e.args[1]) for e in side) for side in quotients]
    under = [{_text(e.args[1]) for e in side if len(_summands(e.args[0])) > 1} for side in quotients]
    beneath = under[0] ^ under[1] if len(_summands(old)) != len(_summands(new)) else set()  # else the sum is where it was
    due = sorted({*(counts[0] - counts[1]), *(counts[1] - counts[0]), *beneath})
    return [f for text in due for f in _leaves(table[text]) or [table[text]]]


def _arithmetic(expr: Expr) -> Iterator[Expr]:
    """The expression and the operands of its sums, products and quotients; nothing inside of functions."""
    yield expr
    if isinstance(expr, Op) and expr.name in ("+", "-", "*", "/", "neg"):
        for part in expr.args:
            yield from _arithmetic(part)


def _pivots(one: Expr, other: Expr) -> list[Expr]:
    """Terms that one side adds and subtracts, and the other does not."""
    terms = [_summands(x) for x in (one, other)]
    plus, minus = ({_text(t) for m, t in terms[0] if m is sign} for sign in (False, True))
    there = {_text(t) for _, t in terms[1]}
    return [t for m, t in terms[0] if m and _text(t) in plus & minus - there]


def _moved_out(one: Expr, other: Expr, joined: bool) -> list[Expr]:
    """Exponents and divisors beneath a logarithm of one side that stand outside of exponentials in the other.

    An exponent that only leaves a plain logarithm (not ``joined``) may be anything: both sides are then infinite or undefined alike.
    """
    outside = {_text(e) for e in _outside_exponentials(other)} - {_text(e) for e in _under_logarithms(other, joined)}
    return [e for e in _under_logarithms(one, joined) if _text(e) in outside]


def _under_logarithms(expr: Expr, joined: bool) -> list[Expr]:
    return [
        part
        for e in _below(expr)
        if isinstance(e, Op) and e.name in ("log", "log1p")
        for x in _below(e.args[0])
        for part in _beneath(x, joined or e.name == "log1p")
    ]


def _beneath(expr: Expr, exponents: bool) -> list[Expr]:
    """What an exponential is taken of, or a quotient divided by."""
    if isinstance(expr, Op) and expr.name == "exp":
        return [expr.args[0]] if exponents else []
    return [expr.args[1]] if isinstance(expr, Op) and expr.name == "/" and expr.dtype.is_float else []


def _outside_exponentials(expr: Expr) -> Iterator[Expr]:
    yield expr
    if isinstance(expr, Op) and expr.name != "exp":
        for part in expr.args:
            yield from _outside_exponentials(part)
    elif isinstance(expr, Cast):
        yield from _outside_exponentials(expr.arg)


def _split_argument(one: Expr, other: Expr, bare: bool) -> bool:
    """Whether a logarithm or root of a product or quotient in one side is one of each operand in the other; ``bare``: an exponent alone counts, too."""
    names = ("log", "sqrt", "rsqrt")
    args = {(e.name, _text(e.args[0])) for e in _below(other) if isinstance(e, Op) and e.name in names}
    args |= {("log", f"exp({_text(e)})") for e in _outside_exponentials(other) if bare}  # the logarithm of an exponential is its exponent
    for e in _below(one):
        inner = e.args[0] if isinstance(e, Op) and e.name in names else None
        if isinstance(e, Op) and isinstance(inner, Op) and inner.name in ("*", "/") and not any(isinstance(a, Const) for a in inner.args):
            if all((e.name, _text(a)) in args for a in inner.args):
                return True
    return False


def _invariants(old: Expr, new: Expr, ctx: CheckContext) -> Iterator[Expr]:
    """New parts of the child's expression that read memory and stay the same in the innermost loop, beside others that do not; roots in any case."""
    loops = [p for n in range(1, len(ctx.path)) if loop_at(ctx.parent, p := ctx.path[:n]) is not None]
    loop = loop_at(ctx.parent, loops[-1]) if loops else None
    if loop is None or (ctx.strategy in _ROOTS and ctx.params.get("by") not in ("reciprocal", "quotient")):
        return
    written = _written_under(ctx.parent, loops[-1])
    before = {_text(e) for e in _below(old)}

    def steady(expr: Expr) -> bool:
        read = {e.buffer for e in _below(expr) if isinstance(e, Load)}
        return bool(read) and not read & written and loop.var not in free_vars(expr)

    if ctx.strategy in _ROOTS:
        yield from (e for e in _below(new) if isinstance(e, Op) and e.name in ("sqrt", "rsqrt") and steady(e) and _text(e) not in before)
        return
    if steady(new):
        return
    pending = [new]
    while pending:
        e = pending.pop()
        if not e.dtype.is_float or _text(e) in before:
            continue
        if isinstance(e, Op) and steady(e):
            if ctx.strategy not in ("collect", "factorization") or e.name in ("+", "-", "select"):
                yield e
                return
        if isinstance(e, (Op, Cast)):
            pending += _parts(e)


def _written_under(program: Program, place: tuple[int, ...]) -> set[str]:
    return {s.buffer for p, s, _ in _walk(program) if isinstance(s, Store) and p[: len(place)] == place}
