"""Logarithms of products become sums (``log(a*b)`` is ``log(a)+log(b)``), and back: logsimp."""

from __future__ import annotations

from collections.abc import Iterator

from steptp.ir import Expr, Op, call
from steptp.ir.facts import Fact
from steptp.ir.nodes import Const, const, op
from steptp.rewrite.algebra import Algebra, Here, Params, Rewritten, Undo, refused, shown
from steptp.rewrite.base import NotApplicable
from steptp.rewrite.strategies.powsimp import negated
from steptp.rewrite.terms import divided, is_literal, one

__all__ = ["ExpandLog", "Logsimp", "STRATEGIES"]


def _of(expr: Expr, name: str) -> Expr | None:
    return expr.args[0] if isinstance(expr, Op) and expr.name == name else None


def _one_positive(here: Here, a: Expr, b: Expr, quotient: bool) -> tuple[Fact, ...] | NotApplicable:
    """With one operand positive, log(a*b) and log(a)+log(b) are defined for the same values of the other; with a/b, if b is finite."""
    if not here.holds(a, "positive") or here.holds(b, "positive"):
        return here.prove("positive", b)
    return here.prove_all(("positive", a), ("finite", b)) if quotient else here.prove("positive", a)


def _log(expr: Expr) -> Expr:
    """Its logarithm; that of an exponential is the exponent."""
    inside = _of(expr, "exp")
    return call("log", expr) if inside is None else inside


class ExpandLog(Algebra):
    """No parameters: the operand's form decides (product, quotient, root, power, exponential)."""

    name = "expand_log"
    summary = "write the logarithm of a product, quotient or power as a sum or multiple"

    def options(self, here: Here) -> Iterator[Params]:
        if isinstance(here.expr, Op) and here.expr.name in ("log", "log1p"):
            yield {}

    def rewrite(self, here: Here, params: Params) -> Rewritten | NotApplicable:
        expr = here.expr
        if not isinstance(expr, Op) or expr.name not in ("log", "log1p"):
            return refused("no-logarithm", f"`{shown(expr)}` is no logarithm")
        inside = expr.args[0]
        if not isinstance(inside, Op) or (expr.name == "log1p" and inside.name != "exp"):
            return refused(
                "no-product", f"`{shown(inside)}` is no product, quotient or power" if expr.name == "log" else f"`{shown(inside)}` is no exponential"
            )
        if expr.name == "log1p":  # 1+exp(a) = exp(a)*(1+exp(-a))
            a = inside.args[0]
            domain = here.prove("finite", a)
            if isinstance(domain, NotApplicable):
                return domain
            return Rewritten(op("+", a, call("log1p", call("exp", negated(a)))), domain, Undo("logsimp", {"by": "product"}))
        if inside.name == "exp":
            return Rewritten(inside.args[0])
        if inside.name in ("*", "/"):
            a, b = inside.args
            if inside.name == "/" and is_literal(a, 1):
                domain = here.prove("finite", b)
                return domain if isinstance(domain, NotApplicable) else Rewritten(negated(_log(b)), domain, Undo("logsimp", {"by": "inverse"}))
            domain = _one_positive(here, a, b, inside.name == "/")
            return (
                domain
                if isinstance(domain, NotApplicable)
                else Rewritten(op("+" if inside.name == "*" else "-", _log(a), _log(b)), domain, Undo("logsimp", {"by": "product"}))
            )
        if inside.name in ("sqrt", "rsqrt"):
            half = const(0.5 if inside.name == "sqrt" else -0.5, expr.dtype)
            return Rewritten(op("*", half, call("log", inside.args[0])))
        if inside.name == "pow" and isinstance(inside.args[1], Const):
            domain = here.prove("positive", inside.args[0])
            return domain if isinstance(domain, NotApplicable) else Rewritten(op("*", inside.args[1], call("log", inside.args[0])), domain)
        return refused("no-product", f"`{shown(inside)}` is no product, quotient or power")


class Logsimp(Algebra):
    """``by=product``: a sum or difference with a logarithm becomes one logarithm; ``by=inverse``: ``t-log(b)`` becomes ``t+log(1/b)``."""

    name = "logsimp"
    summary = "write a sum with logarithms as the logarithm of a product or quotient"
    keys = ("by",)

    def options(self, here: Here) -> Iterator[Params]:
        if isinstance(here.expr, Op) and here.expr.name in ("+", "-", "neg"):
            yield from ({"by": how} for how in ("product", "inverse"))

    def rewrite(self, here: Here, params: Params) -> Rewritten | NotApplicable:
        expr = here.expr
        if not isinstance(expr, Op) or expr.name not in ("+", "-", "neg") or params["by"] not in ("product", "inverse"):
            return refused("no-logarithm", f"logsimp takes by=product or by=inverse at a sum, difference or negation, and `{shown(expr)}` must be one")
        if params["by"] == "inverse":
            inside = _of(expr.args[-1], "log") if expr.name != "+" else None
            if inside is None:
                return refused("no-logarithm", f"`{shown(expr)}` does not subtract a logarithm")
            domain = here.prove("finite", inside)
            if isinstance(domain, NotApplicable):
                return domain
            part = call("log", divided(one(expr.dtype), inside))
            new = part if expr.name == "neg" else op("+", expr.args[0], part)
            return Rewritten(new, (*domain, *here.invariant(part)), Undo("expand_log", {}))
        return _combined(here, expr)


def _combined(here: Here, expr: Op) -> Rewritten | NotApplicable:
    left, right = expr.args[0], expr.args[-1]
    softplus = _of(right, "log1p") if expr.name == "+" else None
    exponent = _of(softplus, "exp") if softplus is not None else None
    if exponent is not None and exponent == negated(left):
        domain = here.prove("finite", left)
        return domain if isinstance(domain, NotApplicable) else Rewritten(call("log1p", call("exp", left)), domain, Undo("expand_log", {}))
    a, b = _of(left, "log"), _of(right, "log")
    if expr.name == "neg" or (a is None and b is None):
        return refused("no-logarithm", f"no operand of the sum `{shown(expr)}` is a logarithm" if expr.name != "neg" else f"`{shown(expr)}` is no sum")
    if a is not None and b is not None:
        domain = _one_positive(here, a, b, expr.name == "-")
    else:  # t = log(exp(t))
        other = right if b is None else left
        domain = here.overflow(other) or here.prove("finite", other)
        if b is not None and expr.name == "-" and not isinstance(domain, NotApplicable):
            domain = here.prove_all(("finite", other), ("finite", b))
    if isinstance(domain, NotApplicable):
        return domain
    parts = (a if a is not None else call("exp", left), b if b is not None else call("exp", right))
    return Rewritten(call("log", op("*" if expr.name == "+" else "/", *parts)), domain, Undo("expand_log", {}))


STRATEGIES = (ExpandLog(), Logsimp())
