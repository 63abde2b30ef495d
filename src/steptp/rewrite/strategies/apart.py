"""One fraction becomes several (``(a+b)/c`` is ``a/c + b/c``, ``a/c`` is ``a*(1/c)``), and back: together."""

from __future__ import annotations

from collections.abc import Iterator

from steptp.ir import Expr, Op
from steptp.ir.facts import Fact
from steptp.ir.nodes import Const
from steptp.rewrite.algebra import Algebra, Here, Params, Rewritten, Undo, refused, shown
from steptp.rewrite.base import NotApplicable
from steptp.rewrite.exprs import place_param
from steptp.rewrite.terms import divided, fraction, is_literal, one, times

__all__ = ["Apart", "STRATEGIES", "Together"]


class Apart(Algebra):
    """``by=sum`` splits the numerator's terms, ``by=reciprocal`` the numerator from ``1/c``."""

    name = "apart"
    summary = "split a fraction into simpler ones"
    keys = ("by",)

    def options(self, here: Here) -> Iterator[Params]:
        parts = fraction(here.expr)
        if parts is not None:
            if isinstance(parts[0], Op) and parts[0].name in ("+", "-"):
                yield {"by": "sum"}
            yield {"by": "reciprocal"}

    def rewrite(self, here: Here, params: Params) -> Rewritten | NotApplicable:
        parts = fraction(here.expr)
        if parts is None or params["by"] not in ("sum", "reciprocal"):
            return refused("not-a-fraction", f"apart takes by=sum or by=reciprocal at a quotient, and `{shown(here.expr)}` must be one")
        top, bottom = parts
        if params["by"] == "reciprocal":
            if isinstance(top, Const):
                return refused("simple", f"the numerator of `{shown(here.expr)}` is a literal")
            part = divided(one(here.expr.dtype), bottom)
            return Rewritten(times(top, part), here.invariant(part), Undo("together", {}))
        if not isinstance(top, Op) or top.name not in ("+", "-"):
            return refused("not-a-sum", f"`{shown(top)}` is no sum or difference")
        domain = here.prove("nonzero", bottom)
        if isinstance(domain, NotApplicable):
            return domain
        return Rewritten(Op(top.name, tuple(divided(a, bottom) for a in top.args), here.expr.dtype), domain, Undo("together", {}))


class Together(Algebra):
    """No parameters: the form of the expression decides how it becomes one fraction."""

    name = "together"
    summary = "bring a sum or product with fractions over one denominator"

    def options(self, here: Here) -> Iterator[Params]:
        if isinstance(here.expr, Op) and here.expr.name in ("+", "-", "*", "/") and any(fraction(a) is not None for a in here.expr.args):
            yield {}

    def rewrite(self, here: Here, params: Params) -> Rewritten | NotApplicable:
        expr = here.expr
        if not isinstance(expr, Op) or expr.name not in ("+", "-", "*", "/") or all(fraction(a) is None for a in expr.args):
            return refused("no-fraction", f"no operand of `{shown(expr)}` is a fraction")
        (a, b), (c, d) = (fraction(arg) or (arg, one(expr.dtype)) for arg in expr.args)
        if expr.name == "*":
            return _product(here, a, b, c, d)
        if expr.name == "/":
            return _quotient(here, a, b, c, d)
        domain = here.prove("nonzero", *dict.fromkeys((b, d)))
        if isinstance(domain, NotApplicable):
            return domain
        if b == d:
            return Rewritten(divided(Op(expr.name, (a, c), expr.dtype), b), domain, Undo("apart", {"by": "sum"}))
        new = divided(Op(expr.name, (times(a, d), times(c, b)), expr.dtype), times(b, d))
        back = [_cancelled(0, a, b, 1)] if not is_literal(d, 1) else []
        back += [_cancelled(1, c, d, 0)] if not is_literal(b, 1) else []
        return Rewritten(new, domain, Undo("apart", {"by": "sum"}), tuple(back))


def _cancelled(term: int, top: Expr, bottom: Expr, side: int) -> Undo:
    """The way back in a term ``top*x/(bottom*x)`` of the sum: x cancels. ``side``: where it stands in the denominator."""
    first = (0,) if is_literal(top, 1) else (0, 1)
    second = (1,) if is_literal(bottom, 1) else (1, side)
    return Undo("cancellation", {"first": place_param(first), "second": place_param(second)}, (term,))


def _product(here: Here, a: Expr, b: Expr, c: Expr, d: Expr) -> Rewritten | NotApplicable:
    """(a/b)*(c/d). With one divisor only, both sides are infinite or undefined for the same values."""
    domain: tuple[Fact, ...] | NotApplicable = ()
    if not is_literal(b, 1) and not is_literal(d, 1):
        domain = here.prove("nonzero", b, d)
    if isinstance(domain, NotApplicable):
        return domain
    return Rewritten(divided(times(a, c), times(b, d)), domain, Undo("apart", {"by": "reciprocal"}))


def _quotient(here: Here, a: Expr, b: Expr, c: Expr, d: Expr) -> Rewritten | NotApplicable:
    """(a/b)/(c/d)."""
    domain = here.prove("nonzero", *(e for e in (b, c, d) if not is_literal(e, 1)))
    return domain if isinstance(domain, NotApplicable) else Rewritten(divided(times(a, d), times(b, c)), domain)


STRATEGIES = (Apart(), Together())
