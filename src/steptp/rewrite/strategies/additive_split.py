"""An expression is written with a difference that its statement computes: x becomes ``(x-t)+t`` beside another ``x-t``."""

from __future__ import annotations

from collections.abc import Iterator

from steptp.ir import Expr, Op
from steptp.ir.nodes import Const, op
from steptp.rewrite.algebra import Algebra, Here, Params, Rewritten, Undo, refused
from steptp.rewrite.base import Family, NotApplicable
from steptp.rewrite.exprs import exprs_of, parse_place, place_param
from steptp.rewrite.terms import is_literal

__all__ = ["AdditiveSplit", "STRATEGY"]


class AdditiveSplit(Algebra):
    """``by``: place, in the store, of the term t; ``sign=minus`` gives ``(x-t)+t``, ``sign=plus`` gives ``(x+t)-t``.

    Sites are expressions x for which ``x-t`` or ``x+t`` stands elsewhere in the statement.
    """

    name = "additive_split"
    family = Family.ONLINE
    summary = "subtract an expression and add it again: x becomes (x-t)+t"
    keys = ("by", "sign")

    def options(self, here: Here) -> Iterator[Params]:
        if isinstance(here.expr, Const) or (isinstance(here.above, Op) and here.above.name in ("+", "-")):
            return
        met: set[Expr] = set()
        for place, expr in exprs_of(here.store):
            apart = place[: len(here.place)] != here.place
            if apart and isinstance(expr, Op) and expr.name in ("+", "-") and expr.args[0] == here.expr and expr not in met:
                met.add(expr)
                yield {"by": place_param((*place, 1)), "sign": "minus" if expr.name == "-" else "plus"}

    def rewrite(self, here: Here, params: Params) -> Rewritten | NotApplicable:
        term = here.shared(params["by"])
        if isinstance(term, NotApplicable):
            return term
        if params["sign"] not in ("minus", "plus") or is_literal(term, 0) or (parse_place(params["by"]) or ())[: len(here.place)] == here.place:
            return refused("bad-site", "additive_split takes sign=minus or sign=plus and the place of a term outside of the expression, other than 0")
        domain = here.prove("finite", term)
        if isinstance(domain, NotApplicable):
            return domain
        first, second = ("-", "+") if params["sign"] == "minus" else ("+", "-")
        return Rewritten(op(second, op(first, here.expr, term), term), domain, Undo("cancellation", {"first": "0.1", "second": 1}))


STRATEGY = AdditiveSplit()
