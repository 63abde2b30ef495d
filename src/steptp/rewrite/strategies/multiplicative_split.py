"""A term beside a product gets a factor of it: ``p + q*f`` becomes ``p/f*f + q*f``, for f that is never 0."""

from __future__ import annotations

from collections.abc import Iterator

from steptp.ir import Expr, Op
from steptp.ir.nodes import op
from steptp.rewrite.algebra import Algebra, Here, Params, Rewritten, Undo, refused, shown
from steptp.rewrite.base import Family, NotApplicable
from steptp.rewrite.exprs import place_param
from steptp.rewrite.terms import divided, factors, is_literal

__all__ = ["MultiplicativeSplit", "STRATEGY"]


class MultiplicativeSplit(Algebra):
    """``by``: place, in the store, of the factor. The inverse is a cancellation."""

    name = "multiplicative_split"
    family = Family.ONLINE
    summary = "divide by an expression that is never 0 and multiply by it: p becomes p/f*f"
    keys = ("by",)

    def options(self, here: Here) -> Iterator[Params]:
        above, n = here.above, here.place[-1]
        if not isinstance(above, Op) or above.name not in ("+", "-") or is_literal(here.expr, 0):
            return
        mine = {f.expr for f in factors(here.expr)}
        seen: set[Expr] = set()
        for f in factors(above.args[1 - n]):
            if f.power > 0 and f.place and f.expr not in mine | seen and not (isinstance(f.expr, Op) and f.expr.name in ("*", "/")):
                seen.add(f.expr)
                yield {"by": place_param((*here.place[:-1], 1 - n, *f.place))}

    def rewrite(self, here: Here, params: Params) -> Rewritten | NotApplicable:
        factor = here.shared(params["by"])
        if isinstance(factor, NotApplicable):
            return factor
        if is_literal(factor, 1) or is_literal(here.expr, 0):
            return refused("no-op", f"`{shown(here.expr)}` over and times `{shown(factor)}` changes nothing")
        domain = here.prove("nonzero", factor)
        if isinstance(domain, NotApplicable):
            return domain
        return Rewritten(op("*", divided(here.expr, factor), factor), domain, Undo("cancellation", {"first": "0.1", "second": 1}))


STRATEGY = MultiplicativeSplit()
