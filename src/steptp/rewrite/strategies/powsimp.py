"""Powers with one base or one exponent: ``exp(a)*exp(b)`` becomes ``exp(a+b)``, ``1/sqrt(a)`` becomes ``rsqrt(a)``, and back."""

from __future__ import annotations

from collections.abc import Iterator

from steptp.ir import Expr, Op, call
from steptp.ir.facts import Fact
from steptp.ir.nodes import Const, const, op
from steptp.rewrite.algebra import Algebra, Here, Params, Rewritten, Undo, refused, shown
from steptp.rewrite.base import NotApplicable
from steptp.rewrite.exprs import Place
from steptp.rewrite.terms import Factor, divided, factors, is_literal, one, put_at, spine_of, times, without

__all__ = ["ExpandPowsimp", "MAX_POWER", "Powsimp", "STRATEGIES", "added", "negated"]

MAX_POWER = 8
"""The largest whole power that is written out as a product, or made of one."""


def negated(expr: Expr) -> Expr:
    """``-expr``; two signs cancel."""
    if isinstance(expr, Const):
        return const(-expr.value, expr.dtype)
    return expr.args[0] if isinstance(expr, Op) and expr.name == "neg" else op("neg", expr)


def added(a: Expr, b: Expr, sign: int) -> Expr:
    """``a+b`` or ``a-b``, without a sign in front of b."""
    if isinstance(b, Op) and b.name == "neg":
        b, sign = b.args[0], -sign
    return op("+" if sign > 0 else "-", a, b)


def _of(expr: Expr, name: str) -> Expr | None:
    """The operand of a function."""
    return expr.args[0] if isinstance(expr, Op) and expr.name == name else None


def _both(here: Here, a: Expr, b: Expr, quotient: bool) -> tuple[Fact, ...] | NotApplicable:
    """The domain of sqrt(a)*sqrt(b) = sqrt(a*b): one positive, or both not negative; with a/b, a divisor that is no infinity."""
    if here.holds(b, "positive"):
        return here.prove("positive", b)
    if here.holds(a, "positive"):
        return here.prove_all(("positive", a), ("finite", b)) if quotient else here.prove("positive", a)
    return here.prove("nonnegative", a, b)


class Powsimp(Algebra):
    """``by``: ``exp``, ``root`` (two square roots), ``reciprocal`` (over a square root) or ``power`` (equal factors)."""

    name = "powsimp"
    summary = "combine exponentials, square roots or equal factors of a product"
    keys = ("by",)

    def options(self, here: Here) -> Iterator[Params]:
        if isinstance(here.expr, Op) and here.expr.name in ("*", "/"):
            yield from ({"by": how} for how in ("exp", "root", "reciprocal", "power"))

    def rewrite(self, here: Here, params: Params) -> Rewritten | NotApplicable:
        expr, how = here.expr, params["by"]
        if not isinstance(expr, Op) or expr.name not in ("*", "/") or how not in ("exp", "root", "reciprocal", "power"):
            return refused("not-a-product", f"powsimp takes by=exp, root, reciprocal or power at a product or quotient, and `{shown(expr)}` must be one")
        if how == "power":
            return _power(here)
        if how == "reciprocal":
            inside = _of(expr.args[1], "sqrt") if expr.name == "/" else None
            if inside is None:
                return refused("no-powers", f"`{shown(expr)}` does not divide by a square root")
            new = times(expr.args[0], call("rsqrt", inside))
            simple = is_literal(expr.args[0], 1)
            return Rewritten(new, here.invariant(call("rsqrt", inside)), Undo("expand_powsimp", {"by": "reciprocal" if simple else "quotient"}))
        return _pair(here, expr, "exp" if how == "exp" else "sqrt")


def _pair(here: Here, expr: Op, name: str) -> Rewritten | NotApplicable:
    """Two exponentials, or two square roots, on the two sides of a product or quotient."""
    left = next((f for f in factors(expr.args[0], (0,)) if _of(f.expr, name) is not None), None)
    right = next((f for f in factors(expr.args[1], (1,), 1 if expr.name == "*" else -1) if _of(f.expr, name) is not None), None)
    if left is None or right is None:
        inside = _of(expr.args[1], "exp") if name == "exp" and expr.name == "/" else None
        if inside is None:
            return refused("no-powers", f"`{shown(expr)}` does not combine two of {name}(…)")
        new = times(expr.args[0], call("exp", negated(inside)))
        return Rewritten(new, (), Undo("expand_powsimp", {"by": "exp"}))
    a, b = _of(left.expr, name), _of(right.expr, name)
    assert a is not None
    assert b is not None
    same = left.power == right.power
    if name == "exp":
        joined: Expr = call("exp", added(a, b, 1 if same else -1))
        domain: tuple[Fact, ...] | NotApplicable = ()
    elif left.power < 0:
        return refused("no-powers", f"a square root of `{shown(expr)}` is a divisor on the left")
    elif a == b:
        joined, domain = (a if same else one(expr.dtype)), here.prove("nonnegative" if same else "positive", a)
    else:
        joined, domain = call("sqrt", op("*" if same else "/", a, b)), _both(here, a, b, not same)
    if isinstance(domain, NotApplicable):
        return domain
    new, below = _joined(expr, left, right, joined)
    return Rewritten(new, domain, Undo("expand_powsimp", {"by": "exp" if name == "exp" else "root"}, below))


def _joined(expr: Op, left: Factor, right: Factor, joined: Expr) -> tuple[Expr, Place]:
    """The product with ``joined`` in place of the left factor and nothing in place of the right one; where ``joined`` stands."""
    first = put_at(expr.args[0], left.place[1:], joined) if not is_literal(joined, 1) else without(expr.args[0], left.place[1:])
    rest = without(expr.args[1], right.place[1:])
    new = times(first, rest) if expr.name == "*" else divided(first, rest)
    return new, left.place[1:] if new == first else left.place


def _power(here: Here) -> Rewritten | NotApplicable:
    operands = spine_of(here.expr, "*")
    above = here.above
    count = len(operands)
    if count < 3 or any(e != operands[0] for e in operands) or isinstance(operands[0], Const):
        return refused("no-powers", f"`{shown(here.expr)}` is no product of three or more equal factors")
    if count > MAX_POWER:
        return refused("too-big", f"`{shown(here.expr)}` has {count} factors, more than {MAX_POWER}")
    if isinstance(above, Op) and above.name == "*" and here.place[-1] == 0 and above.args[1] == operands[0]:
        return refused("not-whole", f"`{shown(above)}` around it has one more of these factors")
    return Rewritten(call("pow", operands[0], float(count)), (), Undo("expand_powsimp", {"by": "power"}))


class ExpandPowsimp(Algebra):
    """``by``: ``exp``, ``root``, ``reciprocal`` (``rsqrt``), ``quotient`` (a product with ``rsqrt``) or ``power``."""

    name = "expand_powsimp"
    summary = "split an exponential, a square root or a whole power into factors"
    keys = ("by",)

    def options(self, here: Here) -> Iterator[Params]:
        if isinstance(here.expr, Op) and (found := _EXPAND.get(here.expr.name)) is not None:
            yield {"by": found}

    def rewrite(self, here: Here, params: Params) -> Rewritten | NotApplicable:
        expr, how = here.expr, params["by"]
        if not isinstance(expr, Op) or _EXPAND.get(expr.name) != how:
            return refused("no-power", f"expand_powsimp by={how} does not fit `{shown(expr)}`")
        if how == "exp":
            return _exponential(here, expr)
        if how == "root":
            return _root(here, expr)
        if how == "reciprocal":
            part = call("sqrt", expr.args[0])
            return Rewritten(divided(one(expr.dtype), part), here.invariant(part), Undo("powsimp", {"by": "reciprocal"}))
        if how == "quotient":
            inside = _of(expr.args[1], "rsqrt")
            if inside is None:
                return refused("no-power", f"the right factor of `{shown(expr)}` is no rsqrt")
            part = call("sqrt", inside)
            return Rewritten(divided(expr.args[0], part), here.invariant(part), Undo("powsimp", {"by": "reciprocal"}))
        return _written_out(expr)


_EXPAND = {"exp": "exp", "sqrt": "root", "rsqrt": "reciprocal", "*": "quotient", "pow": "power"}


def _exponential(here: Here, expr: Op) -> Rewritten | NotApplicable:
    inside = expr.args[0]
    if isinstance(inside, Op) and inside.name in ("+", "-", "neg"):
        if (problem := here.overflow(*inside.args)) is not None:
            return problem
        parts = [call("exp", a) for a in inside.args]
        new = op("*", *parts) if inside.name == "+" else divided(*parts) if inside.name == "-" else divided(one(expr.dtype), parts[0])
        return Rewritten(new, (), Undo("powsimp", {"by": "exp"}))
    return refused("no-power", f"the exponent `{shown(inside)}` is no sum")


def _root(here: Here, expr: Op) -> Rewritten | NotApplicable:
    inside = expr.args[0]
    if not isinstance(inside, Op) or inside.name not in ("*", "/"):
        return refused("no-power", f"`{shown(inside)}` is no product or quotient")
    a, b = inside.args
    if a == b and inside.name == "*":
        return Rewritten(call("abs", a), ())
    domain = here.prove("positive", b) if inside.name == "/" else _both(here, a, b, False)
    if isinstance(domain, NotApplicable):
        return domain
    return Rewritten(op(inside.name, call("sqrt", a), call("sqrt", b)), domain, Undo("powsimp", {"by": "root"}))


def _written_out(expr: Op) -> Rewritten | NotApplicable:
    base, exponent = expr.args
    if not isinstance(exponent, Const) or float(exponent.value) not in range(2, MAX_POWER + 1):
        return refused("no-power", f"the exponent `{shown(exponent)}` is no whole number from 2 to {MAX_POWER}")
    new = base
    for _ in range(int(exponent.value) - 1):
        new = op("*", new, base)
    return Rewritten(new, (), Undo("powsimp", {"by": "power"}))


STRATEGIES = (Powsimp(), ExpandPowsimp())
