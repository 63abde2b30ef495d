"""Demand-driven exact evaluation: the value of chosen output elements at real sizes, touching only what they need.

A read of one element at one moment of the serial order asks for the last write before it. Writers are found by walking the
program backwards from the reader and restricting every loop to the iterations that can write the element: an affine index
``c*v + rest`` with ``rest`` in known bounds leaves few values of ``v`` (one for ``i``, ``i*T+j`` and constants). Indices that are not affine
are enumerated. All work is counted and bounded.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from steptp.interp.errors import EvalError
from steptp.interp.exact import PRECISIONS, ExactAlgebra, at_rising_precision
from steptp.interp.expressions import Affine, Array, Code, Env, ExprCompiler, IndexCode, Scope, affine_of, affine_range
from steptp.interp.machine import combiner
from steptp.interp.scalars import Algebra, Binary, Scalar
from steptp.ir.nodes import Body, Buffer, If, Load, Loop, Program, Store
from steptp.ir.resets import materialize
from steptp.ir.sizes import shape_of
from steptp.ir.walk import all_tmps

__all__ = ["BudgetExceeded", "DemandEvaluator", "Source"]

Source: TypeAlias = Callable[[str, int], Scalar]  # (input, flat position) → exact value
_MAX_DEPTH = 250  # reads that wait for one another (a recurrence asks for its own past)
_FRAMES = 12  # Python frames per waiting read, at most, for ordinary expressions
_WIDE = 1 << 62


class BudgetExceeded(Exception):
    """The element needs more work than the budget allows. A value of the verifier, never an error of the program."""


@dataclass(eq=False, slots=True)
class _Node:
    """One statement of the materialised program, linked to its parent; ``depth`` counts the loops around it."""

    parent: _Node | None
    position: int
    depth: int
    body: list[_Node] = field(default_factory=list)
    writes: dict[str, list[_Node]] = field(default_factory=dict)  # buffer → stores at or below this node
    declares: frozenset[str] = frozenset()
    extent: Code | None = None  # loops
    cond: Code | None = None  # guards
    buffer: str = ""  # stores, from here on
    value: Code | None = None
    offset: IndexCode | None = None
    combine: Binary | None = None
    forms: tuple[Affine | None, ...] = ()
    bounds: dict[int, tuple[int, int]] = field(default_factory=dict)


class DemandEvaluator:
    """Evaluates elements of one program at its present sizes. ``source`` gives input elements; ``budget`` bounds the work of one element.

    Work is counted in visited statements, so it is the same on every machine. ``algebra`` computes (default: exactly, over the reals); ``source``
    gives its kind of values.
    """

    def __init__(self, program: Program, source: Source, budget: int = 20_000, algebra: Algebra | None = None) -> None:
        self.program = materialize(program).program
        self._source = source
        self._budget = budget
        self._inputs = frozenset(b.name for b in program.inputs)
        self._arrays = {b.name: self._layout(b) for b in (*program.inputs, *program.outputs, *(b for _, b in all_tmps(self.program)))}
        self._compiler = ExprCompiler(algebra or ExactAlgebra(), program.size_env, self._read)
        self._root = _Node(None, 0, 0)
        self._here = self._root
        self._levels = 0
        self._build(self._root, self.program.body, Scope())
        self._memo: dict[tuple[str, int, int, tuple[int, ...]], Scalar] = {}
        self._depth = 0
        self.work = 0

    def element(self, output: str, index: Sequence[int], precisions: Sequence[int] = PRECISIONS) -> tuple[Scalar, int]:
        """The exact value of ``output[index]`` after the run, and the precision in bits that decided it.

        Raises :class:`BudgetExceeded`, :class:`steptp.interp.exact.Undecided`, and :class:`EvalError` as evaluation does.
        """
        array = self._arrays[output]
        flat = sum(i * s for i, s in zip(index, array.strides, strict=True))
        self.work = 0

        def attempt() -> Scalar:
            self._memo.clear()
            self._depth = 0
            found = self._back_body(self._root.body, len(self._root.body), output, flat, self._unflatten(output, flat), [0] * self._levels)
            return self._resolve(output, flat, found)

        limit = sys.getrecursionlimit()
        sys.setrecursionlimit(max(limit, _MAX_DEPTH * _FRAMES + 2000))
        try:
            return at_rising_precision(attempt, precisions)
        except RecursionError:  # very deep expressions between the reads
            raise BudgetExceeded from None
        finally:
            sys.setrecursionlimit(limit)

    # building

    def _layout(self, buffer: Buffer) -> Array:
        shape = shape_of(buffer.shape, self.program)
        strides, step = [0] * len(shape), 1
        for d in range(len(shape) - 1, -1, -1):
            strides[d] = step
            step *= shape[d]
        return Array(buffer.name, buffer.dtype, shape, tuple(strides), [])

    def _build(self, parent: _Node, body: Body, scope: Scope) -> None:
        for position, stmt in enumerate(body):
            node = self._here = _Node(parent, position, len(scope.slots))
            parent.body.append(node)
            if isinstance(stmt, Store):
                self._build_store(node, stmt, scope)
            elif isinstance(stmt, If):
                node.cond = self._compiler.compile(stmt.cond, scope)
                self._build(node, stmt.body, scope)
            else:
                self._build_loop(node, stmt, scope)

    def _build_store(self, node: _Node, stmt: Store, scope: Scope) -> None:
        array = self._arrays[stmt.buffer]
        node.buffer = stmt.buffer
        node.forms = tuple(affine_of(i, scope, self._compiler.sizes) for i in stmt.indices)
        node.bounds = scope.bounds
        node.offset = self._compiler.offset(array, stmt.indices, scope)
        node.value = self._compiler.compile(stmt.value, scope)
        if stmt.reduce is not None:
            node.combine = combiner(self._compiler.algebra, stmt.reduce, array.dtype)
        above: _Node | None = node
        while above is not None:
            above.writes.setdefault(stmt.buffer, []).append(node)
            above = above.parent

    def _build_loop(self, node: _Node, stmt: Loop, scope: Scope) -> None:
        form = affine_of(stmt.extent, scope, self._compiler.sizes)
        high = affine_range(form, scope)[1] - 1 if form is not None else _WIDE
        node.extent = self._compiler.compile(stmt.extent, scope)
        node.declares = frozenset(b.name for b in stmt.tmps)
        self._levels = max(self._levels, len(scope.slots) + 1)
        self._build(node, stmt.body, scope.enter(stmt.var, (0, max(high, 0))))

    def _read(self, load: Load, scope: Scope) -> Code:
        name = load.buffer
        offset = self._compiler.offset(self._arrays[name], load.indices, scope)
        if name in self._inputs:
            source = self._source
            return lambda env: source(name, offset(env))
        here = self._here
        return lambda env: self._fetch(name, offset(env), here, env)

    # evaluating

    def _spend(self) -> None:
        self.work += 1
        if self.work > self._budget:
            raise BudgetExceeded

    def _unflatten(self, name: str, flat: int) -> tuple[int, ...]:
        index = []
        for stride in self._arrays[name].strides:
            index.append(flat // stride)
            flat %= stride
        return tuple(index)

    def _fetch(self, name: str, flat: int, reader: _Node, env: Env) -> Scalar:
        self._depth += 1
        if self._depth > _MAX_DEPTH:
            raise BudgetExceeded
        value = self._resolve(name, flat, self._before(reader, env, name, flat))
        self._depth -= 1
        return value

    def _resolve(self, name: str, flat: int, writes: Iterator[tuple[_Node, tuple[int, ...]]]) -> Scalar:
        """Fold the accumulations since the last assignment; ``writes`` come last first."""
        pending: list[tuple[_Node, tuple[int, ...]]] = []
        memo = self._memo
        value: Scalar = None
        for store, at in writes:
            value = memo.get((name, flat, id(store), at))
            if value is not None:
                break
            if store.combine is None:
                value = self._value(store, at)
                memo[name, flat, id(store), at] = value
                break
            pending.append((store, at))
        if value is None:
            raise EvalError("eval-undefined", f"{name}: element {flat} (flat) is read before it is written")
        for store, at in reversed(pending):
            assert store.combine is not None
            value = store.combine(value, self._value(store, at))
            memo[name, flat, id(store), at] = value
        return value

    def _value(self, store: _Node, at: tuple[int, ...]) -> Scalar:
        self._spend()
        assert store.value is not None
        env = [*at, *([0] * (self._levels - len(at)))]
        return store.value(env)

    def _before(self, reader: _Node, env: Env, name: str, flat: int) -> Iterator[tuple[_Node, tuple[int, ...]]]:
        """Instances that write element ``flat`` of ``name`` before ``reader`` runs at ``env``, the last one first."""
        node, env, index = reader, list(env), self._unflatten(name, flat)
        while (parent := node.parent) is not None:
            yield from self._back_body(parent.body, node.position, name, flat, index, env)
            if name in parent.declares:
                return
            if parent.extent is not None and name in parent.writes:
                slot = parent.depth
                for value in self._iterations(parent, name, index, env, env[slot]):
                    env[slot] = value
                    yield from self._back_body(parent.body, len(parent.body), name, flat, index, env)
            node = parent

    def _back_body(self, body: list[_Node], end: int, name: str, flat: int, index: tuple[int, ...], env: Env) -> Iterator[tuple[_Node, tuple[int, ...]]]:
        for position in range(end - 1, -1, -1):
            node = body[position]
            if name not in node.writes:
                continue
            self._spend()
            if node.offset is not None:
                if node.offset(env) == flat:
                    yield node, tuple(env[: node.depth])
            elif node.cond is not None:
                if node.cond(env):
                    yield from self._back_body(node.body, len(node.body), name, flat, index, env)
            elif node.extent is not None:
                slot, inner = node.depth, node.body[0]
                values = self._iterations(node, name, index, env, node.extent(env))
                if len(node.body) == 1 and inner.offset is not None:  # the common innermost loop, without a generator per iteration
                    offset = inner.offset
                    for value in values:
                        env[slot] = value
                        self._spend()
                        if offset(env) == flat:
                            yield inner, tuple(env[: inner.depth])
                    continue
                for value in values:
                    env[slot] = value
                    yield from self._back_body(node.body, len(node.body), name, flat, index, env)

    def _iterations(self, loop: _Node, name: str, index: tuple[int, ...], env: Env, end: int) -> range:
        """Iterations below ``end`` in which a store below ``loop`` may write ``name[index]``, from the last to the first."""
        low, high = end, -1
        for store in loop.writes[name]:
            a, b = _solve(store, loop.depth, index, env, end)
            low, high = min(low, a), max(high, b)
        return range(high, low - 1, -1)


def _solve(store: _Node, slot: int, index: tuple[int, ...], env: Env, end: int) -> tuple[int, int]:
    """Inclusive bounds of loop ``slot`` for the store to write ``index``; outer loops have their values in ``env``."""
    low, high = 0, end - 1
    for form, wanted in zip(store.forms, index, strict=True):
        if form is None:
            continue
        coef, least, most = 0, form.base, form.base
        for s, c in form.terms:
            if s < slot:
                least += c * env[s]
                most += c * env[s]
            elif s == slot:
                coef = c
            else:
                a, b = store.bounds[s]
                least += min(c * a, c * b)
                most += max(c * a, c * b)
        a, b = wanted - most, wanted - least  # coef * v must lie between
        if coef == 0:
            if a > 0 or b < 0:
                return end, -1
            continue
        if coef < 0:
            a, b, coef = -b, -a, -coef
        low, high = max(low, -(-a // coef)), min(high, b // coef)
    return low, high
