"""Equality saturation of one expression with egglog: which expressions equal it over the reals, and which of them costs least.

The rules are those of the algebra strategies, with the same preconditions, so that what the graph holds can be reached by named steps
(:mod:`steptp.rewrite.saturation`). Preconditions are facts of the expression's parts and what follows from them for new expressions.
After M. Willsey et al., *egg: Fast and Extensible Equality Saturation*, POPL 2021, and Y. Zhang et al., *Better Together: Unifying
Datalog and Equality Saturation*, PLDI 2023.

Iterations and nodes are bounded by count, never by time, and every choice among equals is by text: the result is the same in every process.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from heapq import heappop, heappush
from itertools import count, product
from typing import Any

from steptp.analysis.features import WEIGHTS
from steptp.analysis.literals import exact_literal, is_power_of_two
from steptp.ir.nodes import Const, Expr, Op, const, op
from steptp.ir.ops import OPS, OpRule
from steptp.ir.printer import print_expr
from steptp.ir.types import DType
from steptp.ir.walk import subexprs
from steptp.rewrite.saturation_rules import COMMON, RULES

__all__ = ["ITERATIONS", "NODES", "Graph", "Best", "grown"]

ITERATIONS = 6
NODES = 1000
"""Bounds of saturation: rounds of all rules, and nodes after which no further round starts."""

_SYMBOLS = {"+": "Add", "-": "Sub", "*": "Mul", "/": "Div"}
_NAMES = {
    name: _SYMBOLS.get(name, name.capitalize())
    for name, spec in OPS.items()
    if spec.rule in (OpRule.FLOAT, OpRule.NUMERIC, OpRule.SELECT)
}  # fmt: skip
_BACK = {constructor: name for name, constructor in _NAMES.items()}
_MAX_POWER = 8

Conditions = Mapping[Expr, frozenset[str]]
"""Expression → what is proven of it: ``positive``, ``nonnegative``, ``nonzero``, ``finite``."""


@dataclass(frozen=True, slots=True)
class Best:
    """The cheapest expression of a class. ``level``: how many of the loops around, from the outermost, it moves with."""

    cost: int
    size: int
    level: int
    expr: Expr


class _Leaves:
    """Numbers of the parts that no rule looks into: reads, casts, literals, conditions."""

    def __init__(self, dtype: DType) -> None:
        self.dtype = dtype
        self.exprs: list[Expr] = []

    def number(self, expr: Expr) -> int:
        if expr not in self.exprs:
            self.exprs.append(expr)
        return self.exprs.index(expr)

    def text(self, expr: Expr) -> str:
        """The expression as a term of egglog."""
        if isinstance(expr, Const) and expr.dtype is self.dtype and expr.value == 1:
            return "(One)"
        if isinstance(expr, Op) and expr.dtype is self.dtype and expr.name in _NAMES:
            return f"({_NAMES[expr.name]} {' '.join(map(self.text, expr.args))})"
        return f"(Leaf {self.number(expr)})"


@dataclass
class Graph:
    """The classes of equal expressions of one dtype. ``saturated``: no rule has anything to add."""

    dtype: DType
    leaves: list[Expr]
    nodes: dict[str, list[tuple[str, tuple[str, ...]]]]
    root: str
    saturated: bool

    def __post_init__(self) -> None:
        self._table = {(name, below): where for where, found in self.nodes.items() for name, below in found}
        self._numbers = {expr: n for n, expr in enumerate(self.leaves)}

    @property
    def size(self) -> int:
        return len(self._table)

    def class_of(self, expr: Expr) -> str | None:
        """The class that holds this very expression; ``None`` where the graph has no such node."""
        if isinstance(expr, Const) and expr.dtype is self.dtype and expr.value == 1:
            return self._table.get(("One", ()))
        if isinstance(expr, Op) and expr.dtype is self.dtype and expr.name in _NAMES:
            below = [self.class_of(a) for a in expr.args]
            return self._table.get((_NAMES[expr.name], tuple(b for b in below if b is not None)))
        return self._table.get((f"Leaf {self._numbers.get(expr)}", ()))

    def best(self, trips: tuple[int, ...], level_of: Callable[[Expr], int]) -> Best:
        """The cheapest expression equal to the root: weight of every operator times ``trips`` of the level that it moves with.

        Classes are settled in order of cost, then of nodes, then of text (D. E. Knuth, *A Generalization of Dijkstra's Algorithm*, 1977).
        """
        users: dict[str, list[tuple[str, str, tuple[str, ...]]]] = {}
        heap: list[tuple[int, int, str, int, str, Best]] = []
        counter = count()
        known: dict[str, Best] = {}

        def offer(where: str, name: str, below: tuple[str, ...]) -> None:
            made = self._costed(name, [known[b] for b in below], trips, level_of)
            heappush(heap, (made.cost, made.size, print_expr(made.expr, made.expr.dtype), next(counter), where, made))

        for where, found in self.nodes.items():
            for name, below in found:
                for child in set(below):
                    users.setdefault(child, []).append((where, name, below))
                if not below:
                    offer(where, name, below)
        while heap:
            *_, where, made = heappop(heap)
            if where in known:
                continue
            known[where] = made
            if where == self.root:
                break
            for user, name, below in users.get(where, ()):
                if user not in known and all(b in known for b in below):
                    offer(user, name, below)
        return known[self.root]

    def cost_of(self, expr: Expr, trips: tuple[int, ...], level_of: Callable[[Expr], int]) -> int:
        """What :meth:`best` minimises, of one expression."""
        return self._weighed(expr, trips, level_of)[0]

    def _weighed(self, expr: Expr, trips: tuple[int, ...], level_of: Callable[[Expr], int]) -> tuple[int, int]:
        if isinstance(expr, Op) and expr.dtype is self.dtype and expr.name in _NAMES:
            below = [self._weighed(a, trips, level_of) for a in expr.args]
            level = max(n for _, n in below)
            return sum(c for c, _ in below) + WEIGHTS[expr.name] * trips[level], level
        return 0, level_of(expr)

    def _costed(self, name: str, below: list[Best], trips: tuple[int, ...], level_of: Callable[[Expr], int]) -> Best:
        if name == "One":
            return Best(0, 1, 0, const(1.0, self.dtype))
        if name.startswith("Leaf "):
            leaf = self.leaves[int(name[5:])]
            return Best(0, 1, level_of(leaf), leaf)
        expr = op(_BACK[name], *(b.expr for b in below))
        level = max(b.level for b in below)
        cost = sum(b.cost for b in below) + WEIGHTS[expr.name] * trips[level]
        return Best(cost, 1 + sum(b.size for b in below), level, expr)


def grown(expr: Expr, conditions: Conditions, iterations: int = ITERATIONS, nodes: int = NODES) -> Graph:
    """Saturate: all rules, round by round, until nothing is new or a bound is met. Imports egglog."""
    leaves = _Leaves(expr.dtype)
    lines = [*_literal_rules(expr, leaves), f"(let $root {leaves.text(expr)})"]
    for part, proven in sorted(conditions.items(), key=lambda item: print_expr(item[0], item[0].dtype)):
        lines += [f"({name} {leaves.text(part)})" for name in sorted(proven)]
    engine = _engine(_repeats(expr))
    engine.run_program(*engine.parse_program("(push)\n" + "\n".join(lines)))
    try:
        return _rounds(engine, leaves, expr, iterations, nodes)
    finally:
        engine.run_program(*engine.parse_program("(pop)"))


def _rounds(engine: Any, leaves: _Leaves, expr: Expr, iterations: int, nodes: int) -> Graph:
    step = engine.parse_program("(run 1)")
    made = _read(engine, leaves, expr)
    for _ in range(iterations):
        if made.size > nodes:
            break
        (report,) = engine.run_program(*step)
        if not report.report.updated:
            made.saturated = True
            break
        made = _read(engine, leaves, expr)
    return made


@cache
def _engine(common: bool) -> Any:
    """egglog with the rules; loading them takes longer than most graphs, so they are loaded once a process."""
    from egglog import bindings

    engine = bindings.EGraph()
    for line in (*_language(), *RULES, *(COMMON if common else ())):  # one by one: egglog takes the square of a text's length
        engine.run_program(*engine.parse_program(line))
    return engine


def _repeats(expr: Expr) -> bool:
    """Whether a part without operators occurs twice."""
    parts = [e for e in subexprs(expr) if e.dtype is expr.dtype and not (isinstance(e, Op) and e.name in _NAMES)]
    return len(parts) > len(set(parts))


def _language() -> list[str]:
    kinds = [f"({constructor} {' '.join('E' for _ in range(OPS[name].arity))})" for name, constructor in _NAMES.items()]
    return [f"(datatype E (Leaf i64) (One) {' '.join(kinds)})", *(f"(relation {name} (E))" for name in ("finite", "nonnegative", "nonzero", "positive"))]


def _literal_rules(expr: Expr, leaves: _Leaves) -> list[str]:
    """What constant_folding and expand_powsimp know of the literals that occur: exact results, reciprocals of powers of two, whole powers."""
    literals = sorted({e for e in subexprs(expr) if isinstance(e, Const) and e.dtype is expr.dtype}, key=lambda e: float(e.value))
    out = []
    for literal in literals:
        value, text = float(literal.value), leaves.text(literal)
        if is_power_of_two(value) and value != 1:
            out.append(f"(rewrite (Div a {text}) (Mul a {leaves.text(const(1 / value, expr.dtype))}))")
        if value in range(2, _MAX_POWER + 1):
            out.append(f"(rewrite (Pow a {text}) {_power(int(value))})")
    for a, b, name in product(literals, literals, ("+", "-", "*", "/")):
        whole = op(name, a, b)
        folded = exact_literal(whole, {})
        if folded is not None:
            out.append(f"(rewrite ({_NAMES[name]} {leaves.text(a)} {leaves.text(b)}) {leaves.text(folded)})")
    return out


def _power(times: int) -> str:
    return "a" if times == 1 else f"(Mul {_power(times - 1)} a)"


def _read(engine: Any, leaves: _Leaves, root: Expr) -> Graph:
    """egglog's graph as plain data; classes are named by egglog and compared by identity only."""
    data = json.loads(engine.serialize([], max_functions=None, max_calls_per_function=None).to_json())["nodes"]
    nodes: dict[str, list[tuple[str, tuple[str, ...]]]] = {}
    for row in data.values():
        below = [data[child] for child in row["children"]]
        if row["op"] == "Leaf":
            nodes.setdefault(row["eclass"], []).append((f"Leaf {below[0]['op']}", ()))
        elif row["op"] == "One" or row["op"] in _BACK:
            nodes.setdefault(row["eclass"], []).append((row["op"], tuple(b["eclass"] for b in below)))
    made = Graph(leaves.dtype, list(leaves.exprs), nodes, "", False)
    made.root = made.class_of(root) or ""
    return made
