"""``exp(a-b)`` becomes ``exp(a)*exp(-b)``, or ``exp(a-c)*exp(c-b)`` around an expression c of the statement."""

from __future__ import annotations

from collections.abc import Iterator

from steptp.ir import Expr, Op, call
from steptp.ir.nodes import op
from steptp.ir.walk import subexprs
from steptp.rewrite.algebra import Algebra, Here, Params, Rewritten, Undo, refused, shown
from steptp.rewrite.base import Family, NotApplicable
from steptp.rewrite.exprs import Place, exprs_of, parse_place, place_param
from steptp.rewrite.strategies.powsimp import negated

__all__ = ["ExponentialSplit", "STRATEGY"]


def _difference(expr: Expr) -> tuple[Expr, Expr] | None:
    """``(a, b)`` of ``exp(a-b)``."""
    inside = expr.args[0] if isinstance(expr, Op) and expr.name == "exp" else None
    return (inside.args[0], inside.args[1]) if isinstance(inside, Op) and inside.name == "-" else None


class ExponentialSplit(Algebra):
    """``by=terms``, or ``by`` = place, in the store, of the expression that the exponent is split around.

    Sites of the second form split around an operand of another ``exp(p-q)``, so that the two have a factor in common.
    """

    name = "exponential_split"
    family = Family.ONLINE
    summary = "split the exponential of a difference into two factors"
    keys = ("by",)

    def options(self, here: Here) -> Iterator[Params]:
        mine = _difference(here.expr)
        if mine is None:
            return
        yield {"by": "terms"}
        met: set[Expr] = set(mine)
        for place, expr in exprs_of(here.store):
            other = _difference(expr)
            if other is None or len({*mine} & {*other}) != 1:
                continue
            n = 1 if other[0] in mine else 0
            if other[n] not in met:
                met.add(other[n])
                yield {"by": place_param((*place, 0, n))}

    def rewrite(self, here: Here, params: Params) -> Rewritten | NotApplicable:
        parts = _difference(here.expr)
        if parts is None:
            return refused("no-difference", f"`{shown(here.expr)}` is no exponential of a difference")
        a, b = parts
        if params["by"] == "terms":
            if (problem := here.overflow(a, b)) is not None:
                return problem
            return Rewritten(op("*", call("exp", a), call("exp", negated(b))), here.invariant(call("exp", negated(b))), Undo("powsimp", {"by": "exp"}))
        pivot = here.shared(params["by"])
        if isinstance(pivot, NotApplicable):
            return pivot
        if pivot in parts or any(e == here.expr for e in subexprs(pivot)) or _inside(here.place, params["by"]):
            return refused("no-op", f"`{shown(pivot)}` is part of the exponent `{shown(op('-', a, b))}`")
        domain = here.prove("finite", pivot)
        if isinstance(domain, NotApplicable):
            return domain
        return Rewritten(op("*", call("exp", op("-", a, pivot)), call("exp", op("-", pivot, b))), domain)


def _inside(place: Place, at: object) -> bool:
    return (parse_place(at) or ())[: len(place)] == place


STRATEGY = ExponentialSplit()
