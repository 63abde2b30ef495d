"""``a*b/b`` becomes ``a`` and ``a+b-b`` becomes ``a``; back, an expression is brought to a denominator that its statement uses."""

from __future__ import annotations

from collections.abc import Iterator

from steptp.ir import Expr, Op, Store
from steptp.ir.nodes import const
from steptp.rewrite.algebra import Algebra, Here, Params, Rewritten, Undo, refused, shown
from steptp.rewrite.base import NotApplicable
from steptp.rewrite.exprs import Place, exprs_of, parse_place, place_param, place_text, replace_expr_at
from steptp.rewrite.terms import at_place, built, divided, factors, fraction, is_literal, spine, times, without

__all__ = ["Cancellation", "ExpandCancellation", "STRATEGIES"]


class Cancellation(Algebra):
    """``first`` and ``second``: places, below the expression, of what cancels."""

    name = "cancellation"
    summary = "cancel a factor against an equal divisor, or a term against its opposite"
    keys = ("first", "second")

    def options(self, here: Here) -> Iterator[Params]:
        expr = here.expr
        if not isinstance(expr, Op):
            return
        if expr.name in ("*", "/"):
            met: list[Place] = []
            for one in factors(expr.args[0], (0,)):
                if is_literal(one.expr, 1) or any(one.place[: len(p)] == p for p in met):
                    continue
                power = one.power if expr.name == "/" else -one.power
                other = next((f for f in factors(expr.args[1], (1,)) if f.power == power and f.expr == one.expr), None)
                if other is not None:
                    met.append(one.place)
                    yield _pair(one.place, other.place)
        elif expr.name in ("+", "-"):
            *before, last = spine(expr)
            found = next((t for t in before if t.sign == -last.sign and t.expr == last.expr), None)
            if found is not None:
                yield _pair(found.place, last.place)

    def rewrite(self, here: Here, params: Params) -> Rewritten | NotApplicable:
        expr = here.expr
        places = [parse_place(params[key]) for key in self.keys]
        if not isinstance(expr, Op) or expr.name not in ("*", "/", "+", "-") or None in places:
            return refused("nothing-cancels", f"cancellation takes two places in a product, quotient, sum or difference; `{shown(expr)}` has no such")
        first, second = places[0] or (), places[1] or ()
        one = at_place(expr, first)
        if one is None or not first or not second or one != at_place(expr, second):
            return refused("nothing-cancels", f"the expressions at {params['first']} and {params['second']} of `{shown(expr)}` are not equal")
        if expr.name in ("+", "-"):
            return self._terms(here, one, first, second)
        powers = {f.place: f.power for f in factors(expr)}
        if first[0] == second[0] or powers.get(first, 0) * powers.get(second, 0) != -1:
            return refused("nothing-cancels", f"`{shown(one)}` is not a factor on one side of `{shown(expr)}` and a divisor on the other")
        domain = here.prove("nonzero", one)
        if isinstance(domain, NotApplicable):
            return domain
        rest = [without(expr.args[n], (first if first[0] == n else second)[1:]) for n in (0, 1)]
        new = times(*rest) if expr.name == "*" else divided(*rest)
        return Rewritten(new, domain, _back(here, new, one))

    def _terms(self, here: Here, one: Expr, first: Place, second: Place) -> Rewritten | NotApplicable:
        terms = spine(here.expr)
        signs = {t.place: t.sign for t in terms}
        if first == second or signs.get(first, 0) * signs.get(second, 0) != -1:
            return refused("nothing-cancels", f"`{shown(one)}` is not added and subtracted in `{shown(here.expr)}`")
        domain = here.prove("finite", one)
        if isinstance(domain, NotApplicable):
            return domain
        left = [(t.sign, t.expr) for t in terms if t.place not in (first, second)]
        return Rewritten(built(left) if left else const(0.0, here.expr.dtype), domain)


def _pair(first: Place, second: Place) -> Params:
    return {"first": place_param(first), "second": place_param(second)}


def _back(here: Here, new: Expr, one: Expr) -> Undo | None:
    """Bringing the rest to the cancelled denominator, if the child still has that in the statement."""
    child = replace_expr_at(here.store, here.place, new)
    assert isinstance(child, Store)
    for place, expr in exprs_of(child):
        if expr == one and place[0] == len(child.indices):
            return Undo("expand_cancellation", {"by": place_param(place)})
    return None


class ExpandCancellation(Algebra):
    """``by``: place, in the store, of the expression that multiplies and divides the one at ``at``.

    Sites are terms beside a fraction, whose denominator they get: ``x + p/c`` becomes ``x*c/c + p/c``.
    """

    name = "expand_cancellation"
    summary = "multiply and divide by an expression that is never 0: x becomes x*c/c"
    keys = ("by",)

    def options(self, here: Here) -> Iterator[Params]:
        above, n = here.above, here.place[-1]
        if not isinstance(above, Op) or above.name not in ("+", "-"):
            return
        mine, beside = fraction(here.expr), fraction(above.args[1 - n])
        if beside is not None and (mine is None or mine[1] != beside[1]) and not is_literal(here.expr, 0):
            yield {"by": place_text((*here.place[:-1], 1 - n, 1))}

    def rewrite(self, here: Here, params: Params) -> Rewritten | NotApplicable:
        factor = here.shared(params["by"])
        if isinstance(factor, NotApplicable):
            return factor
        if is_literal(factor, 1) or is_literal(here.expr, 0):
            return refused("no-op", f"`{shown(here.expr)}` times and over `{shown(factor)}` changes nothing")
        domain = here.prove("nonzero", factor)
        if isinstance(domain, NotApplicable):
            return domain
        new = Op("/", (times(here.expr, factor), factor), here.expr.dtype)
        return Rewritten(new, domain, Undo("cancellation", _pair((0,) if is_literal(here.expr, 1) else (0, 1), (1,))))


STRATEGIES = (Cancellation(), ExpandCancellation())
