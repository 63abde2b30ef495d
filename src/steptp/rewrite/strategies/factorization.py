"""``a*x + b*x`` becomes ``(a+b)*x``, and back; likewise for the two sides of a ``select``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from steptp.ir import Expr, Load, Op, Var
from steptp.ir.facts import Fact
from steptp.ir.nodes import select
from steptp.ir.walk import buffer_table, loads
from steptp.rewrite.algebra import Algebra, Here, Params, Rewritten, Undo, refused, shown
from steptp.rewrite.base import NotApplicable
from steptp.rewrite.exprs import Place, parse_place, place_param
from steptp.rewrite.fact_kinds import fact
from steptp.rewrite.terms import factors, is_literal, times, without

__all__ = ["ExpandFactorization", "Factorization", "STRATEGIES", "finite_terms", "two_terms"]


def two_terms(expr: Expr) -> tuple[int, int] | None:
    """Which operands are the terms of a sum, a difference or a ``select``."""
    if not isinstance(expr, Op):
        return None
    return (0, 1) if expr.name in ("+", "-") else (1, 2) if expr.name == "select" else None


class Factorization(Algebra):
    """``first`` and ``second``: places of the common factor below the sum; ``side``: where it goes."""

    name = "factorization"
    summary = "take a common factor out of two terms"
    keys = ("first", "second", "side")

    def options(self, here: Here) -> Iterator[Params]:
        terms = two_terms(here.expr)
        if terms is None:
            return
        assert isinstance(here.expr, Op)
        left, right = (here.expr.args[n] for n in terms)
        met: list[Place] = []
        for one in factors(left):
            if one.power < 0 or is_literal(one.expr, 1) or is_literal(one.expr, 0) or any(one.place[: len(p)] == p for p in met):
                continue
            other = next((f for f in factors(right) if f.power > 0 and f.expr == one.expr), None)
            if other is not None and (one.place or other.place):
                met.append(one.place)
                yield _params(terms, one.place, other.place)
        if here.expr.name == "select":
            yield from _beside_zero(terms, left, right)

    def rewrite(self, here: Here, params: Params) -> Rewritten | NotApplicable:
        terms = two_terms(here.expr)
        if terms is None:
            return refused("not-a-sum", f"`{shown(here.expr)}` is no sum, difference or select")
        assert isinstance(here.expr, Op)
        sides: list[tuple[Expr, Place, Expr]] = []
        for n, key in zip(terms, ("first", "second"), strict=True):
            place, term = parse_place(params[key]), here.expr.args[n]
            found = next((f.expr for f in factors(term) if place == (n, *f.place) and f.power > 0), None)
            if found is None or place is None:
                return refused("no-factor", f"first and second must be places of factors of the terms {terms[0]} and {terms[1]} of `{shown(here.expr)}`")
            sides.append((term, place[1:], found))
        zero = here.expr.name == "select" and any(is_literal(e, 0) for *_, e in sides)
        factor = next((e for *_, e in sides if not (zero and is_literal(e, 0))), None)
        if factor is None or any(e != factor and not (zero and is_literal(e, 0)) for *_, e in sides):
            return refused("different-factors", f"the factors at {params['first']} and {params['second']} differ")
        if not any(place for _, place, _ in sides) or params["side"] not in ("left", "right"):
            return refused("bad-site", "factorization takes side=left or side=right, and a term that is more than the factor")
        rest = [without(term, place) for term, place, _ in sides]
        if here.expr.name == "select":
            inner = select(here.expr.args[0], *rest)
            if zero and (read := next((e for e in loads(factor) if not _readable(here, e)), None)) is not None:
                return refused("conditional", f"`{shown(read)}` is read where `{shown(here.expr.args[0])}` decides so; elsewhere it may be out of bounds")
            domain = here.prove("finite", factor) if zero else ()
        else:
            inner = Op(here.expr.name, tuple(rest), here.expr.type)
            domain = finite_terms(here, [term for term, *_ in sides], [factor, *rest])
        if isinstance(domain, NotApplicable):
            return domain
        left = params["side"] == "left"
        new = Op("*", (factor, inner) if left else (inner, factor), here.expr.type)
        facts = (fact("common_factor", "rule", factor=shown(factor), count=2), *domain, *here.invariant(inner))
        return Rewritten(new, facts, Undo("expand_factorization", {"over": int(left)}))


def finite_terms(here: Here, terms: Sequence[Expr], parts: Sequence[Expr]) -> tuple[Fact, ...] | NotApplicable:
    """Facts that the terms are finite; what they are made of must be finite too, or 0*inf would hide in them."""
    inside = here.prove("finite", *parts)
    return inside if isinstance(inside, NotApplicable) else here.prove("finite", *terms)


def _readable(here: Here, read: Load) -> bool:
    """Whether the element exists whatever the select's condition: the condition reads it too, or loop variables index it in whole dimensions."""
    assert isinstance(here.expr, Op)
    if any(e == read for e in loads(here.expr.args[0])):
        return True
    extents = here.ctx.extents_around(here.path)
    shape = buffer_table(here.ctx.program)[read.buffer].shape
    return all(isinstance(i, Var) and extents.get(i.name) == size for i, size in zip(read.indices, shape, strict=True))


def _params(terms: tuple[int, int], one: Place, other: Place) -> Params:
    side = (one or other)[-1]
    return {"first": place_param((terms[0], *one)), "second": place_param((terms[1], *other)), "side": "right" if side else "left"}


def _beside_zero(terms: tuple[int, int], left: Expr, right: Expr) -> Iterator[Params]:
    """A select of a product and 0: either factor may go out."""
    for n, (zero, product) in enumerate(((left, right), (right, left))):
        if is_literal(zero, 0) and isinstance(product, Op) and product.name == "*":
            for k in (0, 1):
                if not is_literal(product.args[k], 0):
                    places: tuple[Place, Place] = ((), (k,)) if n == 0 else ((k,), ())
                    yield {"first": place_param((terms[0], *places[0])), "second": place_param((terms[1], *places[1])), "side": "right" if k else "left"}


class ExpandFactorization(Algebra):
    """``over``: which operand of the product is the sum."""

    name = "expand_factorization"
    summary = "multiply a sum out: (a+b)*x becomes a*x + b*x"
    keys = ("over",)

    def options(self, here: Here) -> Iterator[Params]:
        if isinstance(here.expr, Op) and here.expr.name == "*":
            yield from ({"over": n} for n in (0, 1) if two_terms(here.expr.args[n]) is not None)

    def rewrite(self, here: Here, params: Params) -> Rewritten | NotApplicable:
        over = params["over"]
        if not isinstance(here.expr, Op) or here.expr.name != "*" or over not in (0, 1):
            return refused("not-a-product", f"expand_factorization takes over=0 or over=1 at a product, and `{shown(here.expr)}` must be one")
        inner, factor = here.expr.args[int(over)], here.expr.args[1 - int(over)]
        which = two_terms(inner)
        if which is None:
            return refused("not-a-sum", f"`{shown(inner)}` is no sum, difference or select")
        assert isinstance(inner, Op)
        terms = [inner.args[n] for n in which]
        products = [t if is_literal(t, 0) else times(t, factor) if over == 0 else times(factor, t) for t in terms]
        if inner.name == "select":
            domain = here.prove("finite", factor) if any(is_literal(t, 0) for t in terms) else ()
            new: Expr = select(inner.args[0], *products)
        else:
            domain = here.prove("finite", factor, *terms)
            new = Op(inner.name, tuple(products), here.expr.type)
        if isinstance(domain, NotApplicable):
            return domain
        places = [(n,) if is_literal(t, 1) or is_literal(t, 0) else (n, 1 - int(over)) for n, t in zip(which, terms, strict=True)]
        back = {"first": place_param(places[0]), "second": place_param(places[1]), "side": "right" if over == 0 else "left"}
        return Rewritten(new, (fact("common_factor", "rule", factor=shown(factor), count=2), *domain), Undo("factorization", back))


STRATEGIES = (Factorization(), ExpandFactorization())
