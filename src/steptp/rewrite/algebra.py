"""What the strategies of the algebra family share: a place in a stored value, proofs about its domain, and the step itself.

A strategy says which parameters to try at an expression (:meth:`Algebra.options`) and what the expression becomes there
(:meth:`Algebra.rewrite`): an expression that is equal over the reals, with the preconditions proven by
:mod:`steptp.analysis.values`. Everything else is the same for all of them.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

from steptp.analysis.values import Scope, scope_of
from steptp.ir import Expr, Load, Op, Path, Store, print_expr
from steptp.ir.facts import Fact
from steptp.ir.nodes import Cast, Const, Program
from steptp.ir.types import DType
from steptp.ir.walk import free_vars, loads, replace_at, subexprs
from steptp.rewrite.base import Applied, Exactness, Family, NotApplicable, Outcome, ParamValue, Site, Strategy
from steptp.rewrite.context import Context, path_text
from steptp.rewrite.exprs import Place, expr_at, parse_place, place_param, place_text, replace_expr_at
from steptp.rewrite.fact_kinds import fact

__all__ = ["Algebra", "Here", "Params", "Rewritten", "Undo", "MAX_NODES", "shown", "refused"]

MAX_NODES = 80
"""The largest value that a step may grow to."""

Params = Mapping[str, ParamValue]


def shown(expr: Expr) -> str:
    """Canonical text, a literal without its dtype."""
    return print_expr(expr, expr.dtype)


def refused(code: str, message: str) -> NotApplicable:
    return NotApplicable(code, message)


@dataclass(frozen=True, slots=True)
class Undo:
    """The step that may lead back: a strategy, its parameters beside ``at``, and where below the new expression it stands."""

    strategy: str
    params: Params
    below: Place = ()


@dataclass(frozen=True, slots=True)
class Rewritten:
    """What an expression becomes. ``facts``: why. ``undo``, ``then``: the steps to try for the way back (claimed only if they lead there)."""

    new: Expr
    facts: tuple[Fact, ...] = ()
    undo: Undo | None = None
    then: tuple[Undo, ...] = ()


@dataclass(frozen=True)
class Here:
    """An expression in the value of a store."""

    ctx: Context
    path: Path
    store: Store
    place: Place
    expr: Expr

    @cached_property
    def scope(self) -> Scope:
        """What holds where the expression is evaluated: loops and guards around, and the selects that it is a side of."""
        scope = _scope(self.ctx.program, self.path)
        for n in range(1, len(self.place)):
            above = expr_at(self.store, self.place[:n])
            if isinstance(above, Op) and above.name == "select" and self.place[n] > 0:
                scope = scope.under(above.args[0], self.place[n] == 1)
        return scope

    @property
    def above(self) -> Expr | None:
        """What the expression is an operand of, if it is not the whole value."""
        return expr_at(self.store, self.place[:-1]) if len(self.place) > 1 else None

    def holds(self, expr: Expr, condition: str) -> bool:
        """Whether ``expr`` is proven ``positive``, ``nonnegative``, ``nonzero`` or ``finite`` here (the first three for finite values)."""
        found = self.scope.of(expr)
        if condition == "finite":
            return found.finite
        return found.finite and bool(getattr(found, condition))

    def prove(self, condition: str, *exprs: Expr) -> tuple[Fact, ...] | NotApplicable:
        """Facts that state the condition of each expression (literals speak for themselves, and inputs are finite), or the refusal that names one."""
        for expr in exprs:
            if not self.holds(expr, condition):
                return refused(f"not-{condition}", f"`{shown(expr)}` is not proven {condition} for all inputs: {self._why_not(expr, condition)}")
        forms = {e: "condition" if e in self.scope.known else _because(self.ctx.program, e) for e in exprs}
        plain = ("literal", "input") if condition == "finite" else ("literal",)
        return tuple(fact("proven", "rule", text=shown(e), condition=condition, because=form) for e, form in forms.items() if form not in plain)

    def prove_all(self, *wanted: tuple[str, Expr]) -> tuple[Fact, ...] | NotApplicable:
        """Several conditions, each of one expression."""
        facts: tuple[Fact, ...] = ()
        for condition, expr in wanted:
            found = self.prove(condition, expr)
            if isinstance(found, NotApplicable):
                return found
            facts += found
        return facts

    def _why_not(self, expr: Expr, condition: str) -> str:
        found = self.scope.of(expr)
        if not found.finite:
            return "it may be infinite or undefined"
        left, right = ("(" if found.low == float("-inf") else "["), (")" if found.high == float("inf") else "]")
        return f"it lies in {left}{found.low:g}, {found.high:g}{right}" + ("" if condition == "finite" or not found.nonzero else " without 0")

    def overflow(self, *exprs: Expr) -> NotApplicable | None:
        """The refusal where a literal that is a value of some of these expressions leaves the range of ``exp`` in their dtype."""
        for expr in exprs:
            found = _sentinel(self.ctx, expr, _EXP_LIMIT[expr.dtype], frozenset())
            if found is not None:
                return refused("overflow", f"`{shown(expr)}` is {found:g} for some elements, and exp({abs(found):g}) is out of range in {expr.dtype}")
        return None

    def shared(self, at: object) -> Expr | NotApplicable:
        """The expression at another place of the value, if it is evaluated wherever this one is."""
        place = parse_place(at)
        found = expr_at(self.store, place) if place is not None else None
        if place is None or found is None or found.dtype is not self.expr.dtype or place[0] != len(self.store.indices):
            return refused("no-such-expression", f"the value stored has no {self.expr.dtype} expression at {at}")
        for n in range(1, len(place)):
            above = expr_at(self.store, place[:n])
            if isinstance(above, Op) and above.name == "select" and place[n] > 0 and self.place[: n + 1] != place[: n + 1]:
                return refused("conditional", f"`{shown(found)}` is evaluated under a condition only")
        return found

    def invariant(self, expr: Expr) -> tuple[Fact, ...]:
        """The fact that ``expr`` stays the same in the innermost loop, where it does and reads memory."""
        around = self.ctx.enclosing_loops(self.path)
        read = {e.buffer for e in loads(expr)}
        if not around or not read:
            return ()
        where, loop = around[-1]
        if loop.var in free_vars(expr) or read & {s.buffer for _, s in self.ctx.stores_under(where)}:
            return ()
        return (fact("unchanged_in", "child", text=shown(expr), loop=loop.var, at=path_text(where)),)


_EXP_LIMIT = {DType.F16: 9.0, DType.BF16: 87.0, DType.F32: 87.0, DType.F64: 708.0}


def _sentinel(ctx: Context, expr: Expr, limit: float, seen: frozenset[str]) -> float | None:
    """A finite literal beyond the limit that the expression takes as it is: through selects, and reads of what stores it."""
    if isinstance(expr, Const):
        return float(expr.value) if limit < abs(expr.value) < float("inf") else None
    parts: tuple[Expr, ...] = ()
    if isinstance(expr, Op) and expr.name in ("select", "neg"):
        parts = expr.args[-2:] if expr.name == "select" else expr.args
    elif isinstance(expr, Cast) and expr.arg.dtype.is_float:
        parts = (expr.arg,)
    elif isinstance(expr, Load) and expr.buffer not in seen:
        seen |= {expr.buffer}
        parts = tuple(s.value for _, s in ctx.stores if s.buffer == expr.buffer and s.reduce in (None, "max", "min"))
    return next((found for part in parts if (found := _sentinel(ctx, part, limit, seen)) is not None), None)


def _scope(program: Program, path: Path) -> Scope:
    return Context.of(program).kept("scope", path, lambda: scope_of(program, path))


_FORMS = {
    "+": "sum", "-": "difference", "*": "product", "/": "quotient", "exp": "exponential", "sqrt": "root", "rsqrt": "root", "abs": "magnitude",
    "max": "maximum", "min": "minimum", "select": "selection", "pow": "power", "neg": "negation",
}  # fmt: skip


def _because(program: Program, expr: Expr) -> str:
    """The form of an expression, which the proof of its range starts from where no condition speaks of it."""
    if isinstance(expr, Load):
        kinds = {s.reduce for _, s in Context.of(program).stores if s.buffer == expr.buffer}
        return "input" if not kinds else "definition" if None in kinds else "accumulation"
    if isinstance(expr, Cast):
        return "conversion"
    return _FORMS.get(expr.name, "function") if isinstance(expr, Op) else "literal"


def _everywhere(ctx: Context) -> tuple[Here, ...]:
    """Every floating-point expression in the value of a store; kept with the program."""
    return ctx.kept("everywhere", (), lambda: tuple(Here(ctx, *found) for found in ctx.values if found[-1].dtype.is_float))


class Algebra(Strategy):
    """Site: path of a store, ``at`` = place of the expression, and the parameters that :attr:`keys` names."""

    family = Family.ALGEBRA
    classes = (Exactness.ALGEBRAIC,)
    keys: tuple[str, ...] = ()

    @abstractmethod
    def options(self, here: Here) -> Iterator[Params]:
        """Parameters worth trying at the expression; those that :meth:`rewrite` refuses are not listed."""

    @abstractmethod
    def rewrite(self, here: Here, params: Params) -> Rewritten | NotApplicable:
        """What the expression becomes, for any parameters named :attr:`keys`."""

    def sites(self, ctx: Context) -> Iterator[Site]:
        for here in _everywhere(ctx):
            for params in self.options(here):
                if isinstance(self.checked(here, params), Rewritten):
                    yield Site.of(self.name, here.path, at=place_param(here.place), **params)

    def apply(self, ctx: Context, site: Site) -> Outcome:
        made = self._at(ctx, site)
        if isinstance(made, NotApplicable):
            return made
        here, done = made
        child = _placed(here, done.new)
        facts = (fact("expression_becomes", "rule", at=path_text(here.path), old=shown(here.expr), new=shown(done.new)), *done.facts)
        return Applied(child, Exactness.ALGEBRAIC, facts, inverse=_inverse(here, done, child))

    def _at(self, ctx: Context, site: Site) -> tuple[Here, Rewritten] | NotApplicable:
        params = dict(site.params)
        store, place = ctx.stmt(site.path), parse_place(params.pop("at", ""))
        if not isinstance(store, Store) or place is None or set(params) != set(self.keys):
            more = "".join(f", {key}=…" for key in self.keys)
            return refused("bad-site", f"{self.name} takes the path of a store and at=<place of an expression>{more}")
        expr = expr_at(store, place)
        if expr is None or place[0] != len(store.indices):
            return refused("no-such-expression", f"the value stored at {path_text(site.path)} has no expression at {place_text(place)}")
        if not expr.dtype.is_float:
            return refused("not-real", f"`{shown(expr)}` is {expr.dtype}; the identity is one of real numbers")
        here = Here(ctx, site.path, store, place, expr)
        done = self.checked(here, params)
        return done if isinstance(done, NotApplicable) else (here, done)

    def checked(self, here: Here, params: Params) -> Rewritten | NotApplicable:
        """What the expression becomes, unless that is nothing new or too big."""
        done = self.rewrite(here, params)
        if isinstance(done, NotApplicable):
            return done
        if done.new == here.expr:
            return refused("no-op", f"`{shown(here.expr)}` would stay as it is")
        before = sum(1 for _ in subexprs(here.store.value))
        after = before + sum(1 for _ in subexprs(done.new)) - sum(1 for _ in subexprs(here.expr))
        if after > max(before, MAX_NODES):
            return refused("too-big", f"the expression would have {after} nodes, more than {MAX_NODES}")
        return done


def _placed(here: Here, new: Expr) -> Program:
    return replace_at(here.ctx.program, here.path, replace_expr_at(here.store, here.place, new))


def _inverse(here: Here, done: Rewritten, child: Program) -> tuple[Site, ...]:
    """The steps back, tried out: they are claimed only where they give the parent again."""
    from steptp.rewrite import registry

    back: list[Site] = []
    for undo in (done.undo, *done.then):
        if undo is None:
            return ()
        strategy = registry.get(undo.strategy)
        assert isinstance(strategy, Algebra)
        back.append(Site.of(strategy.name, here.path, at=place_param((*here.place, *undo.below)), **undo.params))
        made = strategy._at(Context.of(child), back[-1])
        if isinstance(made, NotApplicable):
            return ()
        child = _placed(made[0], made[1].new)
    return tuple(back) if len(back) <= 3 and child.body == here.ctx.program.body else ()
