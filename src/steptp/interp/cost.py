"""How much work a program is: statement instances at given sizes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from steptp.errors import LeirError
from steptp.ir.nodes import Body, Cast, Const, Expr, If, Load, Loop, Op, Program, Size, Store, Var
from steptp.ir.sizes import eval_index
from steptp.ir.walk import buffers, free_vars, visit

__all__ = ["access_check", "count_instances", "instance_counter", "size_code", "expr_size", "index_bounds"]

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
    if expr.name == "%" and c == d > 0 and a // c == b // c:  # within one period
        return a % c, b % c
    if expr.name == "%" and c > 0:
        return (a, b) if a >= 0 and b < c else (0, d - 1)
    if expr.name in ("max", "min"):
        pick = max if expr.name == "max" else min
        return pick(a, c), pick(b, d)
    if expr.name == "select":
        (a, b) = parts[1]
        return min(a, c), max(b, d)
    return _WIDE


def size_code(expr: Expr) -> Callable[[Mapping[str, int]], int]:
    """A closure of an integer expression over sizes; division by zero raises :class:`LeirError` ``check-index``."""
    if isinstance(expr, Const):
        value = int(expr.value)
        return lambda env: value
    if isinstance(expr, Size):
        name = expr.name
        return lambda env: env[name]
    if isinstance(expr, Op) and expr.name in ("+", "-", "*", "//"):
        left, right = size_code(expr.args[0]), size_code(expr.args[1])
        if expr.name == "+":
            return lambda env: left(env) + right(env)
        if expr.name == "-":
            return lambda env: left(env) - right(env)
        if expr.name == "*":
            return lambda env: left(env) * right(env)
        return lambda env: left(env) // _divisor(right(env))
    return lambda env: eval_index(expr, env)


def _divisor(value: int) -> int:
    if value == 0:
        raise LeirError("check-index", "division by zero in a size or index")
    return value


def count_instances(program: Program, sizes: Mapping[str, int]) -> int:
    """Statement instances of one run, guards ignored and inner extents at their largest: an upper bound, exact for rectangular nests."""
    return instance_counter(program)(sizes)


def instance_counter(program: Program) -> Callable[[Mapping[str, int]], int]:
    """:func:`count_instances` of one program, compiled for many values of its sizes (derived sizes included)."""
    run = _body_counter(program.body)
    return lambda sizes: run(sizes, {})


_Counter = Callable[[Mapping[str, int], dict[str, tuple[int, int]]], int]


def _body_counter(body: Body) -> _Counter:
    parts: list[_Counter] = []
    stores = 0
    for stmt in body:
        if isinstance(stmt, Store):
            stores += 1
        elif isinstance(stmt, If):
            parts.append(_body_counter(stmt.body))
        else:
            parts.append(_loop_counter(stmt))
    return lambda sizes, bounds: stores + sum(p(sizes, bounds) for p in parts)


def _loop_counter(loop: Loop) -> _Counter:
    inner, var = _body_counter(loop.body), loop.var
    if not free_vars(loop.extent):
        extent = size_code(loop.extent)

        def rectangular(sizes: Mapping[str, int], bounds: dict[str, tuple[int, int]]) -> int:
            trips = max(extent(sizes), 0)
            bounds[var] = (0, max(trips - 1, 0))
            return trips * inner(sizes, bounds)

        return rectangular

    def ragged(sizes: Mapping[str, int], bounds: dict[str, tuple[int, int]]) -> int:
        trips = max(index_bounds(loop.extent, {**bounds, **{n: (v, v) for n, v in sizes.items()}})[1], 0)
        bounds[var] = (0, max(trips - 1, 0))
        return trips * inner(sizes, bounds)

    return ragged


def access_check(program: Program) -> Callable[[Mapping[str, int]], bool]:
    """A test of sizes (derived ones included): whether no access outside guards and ``select`` surely reaches beyond its array (look-ups count as fitting)."""
    shapes = {b.name: b.shape for b in buffers(program)}
    nests: dict[tuple[tuple[str, Expr], ...], dict[tuple[Expr, Expr], None]] = {}
    for met in visit(program):
        if not isinstance(met.stmt, Store) or any(isinstance(p, If) for p in met.parents):
            continue
        pairs = nests.setdefault(tuple((loop.var, loop.extent) for loop in met.loops), {})
        accesses = [(met.stmt.buffer, met.stmt.indices), *((r.buffer, r.indices) for e in (met.stmt.value, *met.stmt.indices) for r in _certain_loads(e))]
        for name, indices in accesses:
            pairs.update(dict.fromkeys(pair for pair in zip(indices, shapes[name], strict=True) if not isinstance(pair[0], Const) or pair[0].value))

    def fit(sizes: Mapping[str, int]) -> bool:
        fixed = {n: (v, v) for n, v in sizes.items()}
        for loops, pairs in nests.items():
            env = dict(fixed)
            empty = False
            for var, extent in loops:
                trips = index_bounds(extent, env)[1]
                empty = empty or trips < 1
                env[var] = (0, max(trips - 1, 0))
            if empty:
                continue
            for index, dim in pairs:
                low, high = index_bounds(index, env)
                if (low, high) != _WIDE and (low < 0 or high >= index_bounds(dim, env)[1]):
                    return False
        return True

    return fit


def _certain_loads(expr: Expr) -> Iterator[Load]:
    """Reads that happen whenever the expression is evaluated."""
    if isinstance(expr, Load):
        yield expr
        for index in expr.indices:
            yield from _certain_loads(index)
    elif isinstance(expr, Cast):
        yield from _certain_loads(expr.arg)
    elif isinstance(expr, Op):
        for arg in expr.args[:1] if expr.name in ("select", "and", "or") else expr.args:
            yield from _certain_loads(arg)
