"""How much work a program is: statement instances at given sizes."""

from __future__ import annotations

from collections.abc import Mapping

from steptp.ir.nodes import Body, Cast, Const, Expr, If, Load, Loop, Op, Program, Size, Store, Var

__all__ = ["count_instances", "expr_size", "index_bounds"]

_WIDE = (-(1 << 62), 1 << 62)


def expr_size(expr: Expr) -> int:
    """Number of value nodes: operators, casts, literals and loads, not the arithmetic inside indices."""
    if isinstance(expr, Op):
        return 1 + sum(expr_size(a) for a in expr.args)
    return 1 + expr_size(expr.arg) if isinstance(expr, Cast) else 1


def index_bounds(expr: Expr, env: Mapping[str, tuple[int, int]]) -> tuple[int, int]:
    """Inclusive bounds of an index expression; ``env`` bounds sizes and loop variables. Wide where nothing is known."""
    if isinstance(expr, Const):
        return int(expr.value), int(expr.value)
    if isinstance(expr, (Var, Size)):
        return env.get(expr.name, _WIDE)
    if isinstance(expr, Load) or not isinstance(expr, Op):
        return _WIDE
    parts = [index_bounds(a, env) for a in expr.args]
    (a, b), (c, d) = parts[0], parts[-1]
    if expr.name == "+":
        return a + c, b + d
    if expr.name == "-":
        return a - d, b - c
    if expr.name == "neg":
        return -b, -a
    if expr.name == "*":
        corners = (a * c, a * d, b * c, b * d)
        return min(corners), max(corners)
    if expr.name == "//" and c > 0:
        corners = (a // c, a // d, b // c, b // d)
        return min(corners), max(corners)
    if expr.name == "%" and c > 0:
        return (a, b) if a >= 0 and b < c else (0, d - 1)
    if expr.name in ("max", "min"):
        pick = max if expr.name == "max" else min
        return pick(a, c), pick(b, d)
    if expr.name == "select":
        (a, b) = parts[1]
        return min(a, c), max(b, d)
    return _WIDE


def count_instances(program: Program, sizes: Mapping[str, int]) -> int:
    """Statement instances of one run, guards ignored and inner extents at their largest: an upper bound, exact for rectangular nests."""
    env: dict[str, tuple[int, int]] = {name: (value, value) for name, value in sizes.items()}
    return _count(program.body, env)


def _count(body: Body, env: dict[str, tuple[int, int]]) -> int:
    total = 0
    for stmt in body:
        if isinstance(stmt, Store):
            total += 1
        elif isinstance(stmt, If):
            total += _count(stmt.body, env)
        elif isinstance(stmt, Loop):
            trips = max(index_bounds(stmt.extent, env)[1], 0)
            total += trips * _count(stmt.body, {**env, stmt.var: (0, max(trips - 1, 0))})
    return total
