"""``a*x + b*x + c`` becomes ``(a+b)*x + c``, and ``a-b-c`` becomes ``a-(b+c)``; back: expand_collect."""

from __future__ import annotations

from collections.abc import Iterator

from steptp.ir import Expr, Op
from steptp.ir.facts import Fact
from steptp.rewrite.algebra import Algebra, Here, Params, Rewritten, Undo, refused, shown
from steptp.rewrite.base import NotApplicable
from steptp.rewrite.exprs import Place, parse_place, place_param, place_text
from steptp.rewrite.fact_kinds import fact
from steptp.rewrite.strategies.factorization import finite_terms
from steptp.rewrite.terms import Factor, Term, at_place, built, factors, is_literal, put_at, spine, spine_place, without

__all__ = ["Collect", "ExpandCollect", "STRATEGIES", "is_sum"]


def is_sum(expr: Expr | None) -> bool:
    return isinstance(expr, Op) and expr.name in ("+", "-")


def _within(here: Here) -> bool:
    """Whether the sum is only the front of a longer one."""
    return is_sum(here.above) and here.place[-1] == 0


def _factor_in(term: Expr, wanted: Expr) -> Factor | None:
    return next((f for f in factors(term) if f.power > 0 and f.expr == wanted), None)


class Collect(Algebra):
    """``by``: place, below the sum, of a factor that is collected from all terms, or ``minus`` for the sign of those subtracted."""

    name = "collect"
    summary = "collect the terms of a longer sum that share a factor or a sign"
    keys = ("by",)

    def options(self, here: Here) -> Iterator[Params]:
        if not is_sum(here.expr) or _within(here):
            return
        terms = spine(here.expr)
        if len(terms) < 3:
            return
        met: set[Expr] = set()
        for n, term in enumerate(terms):
            for one in factors(term.expr):
                shared = any(_factor_in(t.expr, one.expr) for t in terms[n + 1 :])
                if one.power > 0 and shared and one.expr not in met and not is_literal(one.expr, 1) and not is_literal(one.expr, 0):
                    met.update(f.expr for f in factors(one.expr))
                    yield {"by": place_param((*term.place, *one.place))}
        if sum(t.sign < 0 for t in terms) >= 2:
            yield {"by": "minus"}

    def rewrite(self, here: Here, params: Params) -> Rewritten | NotApplicable:
        terms = spine(here.expr)
        if len(terms) < 3:
            return refused("short", f"`{shown(here.expr)}` is no sum of three or more terms")
        if _within(here):
            return refused("not-whole", f"`{shown(here.expr)}` is only the front of a longer sum")
        if params["by"] == "minus":
            return _minus(here, terms)
        place = parse_place(params["by"])
        wanted = at_place(here.expr, place) if place else None
        if wanted is None or place is None:
            return refused("no-factor", f"there is no factor at {params['by']} of `{shown(here.expr)}`")
        found = [(n, t, f) for n, t in enumerate(terms) if (f := _factor_in(t.expr, wanted)) is not None]
        if len(found) < 2 or is_literal(wanted, 1) or is_literal(wanted, 0):
            return refused("no-factor", f"`{shown(wanted)}` is a factor of {len(found)} of the {len(terms)} terms")
        first = found[0]
        rest = [(t.sign * first[1].sign, without(t.expr, f.place)) for _, t, f in found]
        domain = finite_terms(here, [t.expr for _, t, _ in found], [wanted, *(e for _, e in rest)])
        if isinstance(domain, NotApplicable):
            return domain
        right = any(f.place and f.place[-1] == 1 for f in (first[2], found[1][2])) if not first[2].place else first[2].place[-1] == 1
        inner = built(rest)
        whole = Op("*", (inner, wanted) if right else (wanted, inner), here.expr.dtype)
        gone = {n for n, _, _ in found[1:]}
        after = [(t.sign, whole if n == first[0] else t.expr) for n, t in enumerate(terms) if n not in gone]
        facts = (fact("common_factor", "rule", factor=shown(wanted), count=len(found)), *domain, *here.invariant(inner))
        return Rewritten(built(after), facts, Undo("expand_collect", {"term": first[0], "sum": 0 if right else 1}))


def _minus(here: Here, terms: list[Term]) -> Rewritten | NotApplicable:
    minus = [n for n, t in enumerate(terms) if t.sign < 0]
    if len(minus) < 2:
        return refused("no-factor", f"`{shown(here.expr)}` subtracts {len(minus)} terms; collecting their sign takes two")
    inner = built([(1, terms[n].expr) for n in minus])
    after = [(t.sign, inner if n == minus[0] else t.expr) for n, t in enumerate(terms) if n not in minus[1:]]
    facts = (fact("common_factor", "rule", factor="-1", count=len(minus)), *here.invariant(inner))
    return Rewritten(built(after), facts, Undo("expand_collect", {"term": minus[0], "sum": "whole"}))


class ExpandCollect(Algebra):
    """``term``: which term of the sum; ``sum``: place, below it, of the sum that is multiplied out, or ``whole`` for a term in parentheses."""

    name = "expand_collect"
    summary = "multiply out a term of a longer sum, or drop its parentheses"
    keys = ("term", "sum")

    def options(self, here: Here) -> Iterator[Params]:
        if not is_sum(here.expr) or _within(here):
            return
        for n, term in enumerate(spine(here.expr)):
            if is_sum(term.expr):
                yield {"term": n, "sum": "whole"}
            yield from ({"term": n, "sum": place_param(f.place)} for f in factors(term.expr) if f.power > 0 and f.place and is_sum(f.expr))

    def rewrite(self, here: Here, params: Params) -> Rewritten | NotApplicable:
        terms = spine(here.expr)
        n = params["term"]
        if len(terms) < 2 or not isinstance(n, int) or not 0 <= n < len(terms):
            return refused(
                "no-term", f"`{shown(here.expr)}` has {len(terms)} terms, and none is number {n}" if len(terms) > 1 else f"`{shown(here.expr)}` is no sum"
            )
        if _within(here):
            return refused("not-whole", f"`{shown(here.expr)}` is only the front of a longer sum")
        term = terms[n]
        if params["sum"] == "whole":
            if not is_sum(term.expr):
                return refused("not-a-sum", f"`{shown(term.expr)}` is no sum")
            parts = [(t.sign * term.sign, t.expr) for t in spine(term.expr)]
            after = [(t.sign, t.expr) for t in terms[:n]] + parts + [(t.sign, t.expr) for t in terms[n + 1 :]]
            negative = sum(s < 0 for s, _ in after)
            facts = (fact("common_factor", "rule", factor="-1", count=negative),) if term.sign < 0 and negative >= 2 else ()
            return Rewritten(built(after), facts, Undo("collect", {"by": "minus"}) if term.sign < 0 else None)
        place = parse_place(params["sum"])
        inner = at_place(term.expr, place) if place else None
        if not place or inner is None or not is_sum(inner) or all(f.place != place or f.power < 0 for f in factors(term.expr)):
            return refused("not-a-sum", f"there is no sum at {params['sum']} that multiplies `{shown(term.expr)}`")
        return _multiplied(here, terms, n, place, inner)


def _multiplied(here: Here, terms: list[Term], n: int, place: Place, inner: Expr) -> Rewritten | NotApplicable:
    term = terms[n]
    parts = spine(inner)
    beside = _beside(term.expr, place)
    domain: tuple[Fact, ...] = ()
    for condition, exprs in (
        ("finite", [e for power, e in beside if power > 0] + [p.expr for p in parts]),
        ("nonzero", [e for power, e in beside if power < 0]),
    ):
        found = here.prove(condition, *exprs)
        if isinstance(found, NotApplicable):
            return found
        domain += found
    made = [(p.sign * term.sign, without(term.expr, place) if is_literal(p.expr, 1) else put_at(term.expr, place, p.expr)) for p in parts]
    after = [(t.sign, t.expr) for t in terms[:n]] + made + [(t.sign, t.expr) for t in terms[n + 1 :]]
    counts = {e: sum(_factor_in(t, e) is not None for _, t in after) for power, e in beside if power > 0}
    facts = tuple(fact("common_factor", "rule", factor=shown(e), count=count) for e, count in counts.items() if count >= 2)
    below: Place = () if is_literal(parts[0].expr, 1) and len(place) == 1 else (1 - place[0],)
    back = Undo("collect", {"by": place_text((*spine_place(len(after), n), *below))})
    return Rewritten(built(after), (*facts, *domain), back, tuple(_factored(place, (*spine_place(len(terms), n), place[0]))))


def _factored(place: Place, at: Place) -> Iterator[Undo]:
    """The way back from ``a*r*w - b*r*w``: after collecting w, the factors within come out one by one."""
    for step in place[1:]:
        yield Undo("factorization", {"first": f"0.{1 - step}", "second": f"1.{1 - step}", "side": "left" if step else "right"}, at)
        at = (*at, step)


def _beside(expr: Expr, place: Place) -> list[tuple[int, Expr]]:
    """What multiplies (1) or divides (-1) the factor at a place, from the outermost operator inwards."""
    found = []
    for step in place:
        assert isinstance(expr, Op)
        found.append((-1 if expr.name == "/" else 1, expr.args[1 - step]))
        expr = expr.args[step]
    return found


STRATEGIES = (Collect(), ExpandCollect())
