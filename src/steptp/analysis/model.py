"""The polyhedral model of a program: instances, accesses and their order, at real sizes.

The model describes the *materialised* program (:func:`steptp.ir.materialize`): resets are statements too. Everything that
needs isl is built on demand, so that callers that only look at loops and intervals pay nothing for it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property

import islpy as isl

from steptp.analysis.affine import DIM, Frame, Linear, box, linear, map_between
from steptp.analysis.intervals import Interval, interval, loop_intervals, narrow, value_ranges
from steptp.ir.nodes import Buffer, Cast, Expr, If, Load, Loop, Op, Path, Program, Store
from steptp.ir.resets import Materialized, conjuncts, materialize
from steptp.ir.sizes import shape_of
from steptp.ir.types import LoopKind
from steptp.ir.walk import all_tmps, loads, visit

__all__ = ["LoopRef", "Access", "Statement", "Model", "Declaration", "Condition", "common_loops"]


@dataclass(frozen=True, slots=True)
class LoopRef:
    """A loop around a statement. ``path`` is in the materialised program; ``origin`` in the program itself, ``None`` in a reset's own nest."""

    var: str
    extent: Expr
    kind: LoopKind
    path: Path
    origin: Path | None


@dataclass(frozen=True, slots=True)
class Declaration:
    """A buffer, its shape at real sizes, and the materialised path of the loop that declares it (``()``: the program)."""

    buffer: Buffer
    shape: tuple[int, ...]
    path: Path
    role: str  # "in", "out" or "tmp"


@dataclass(frozen=True)
class Condition:
    """A condition under which a read happens, and whether it must be true or false."""

    expr: Expr
    holds: bool


@dataclass(frozen=True)
class Access:
    """One read or write of a statement.

    ``conditions`` are those of the ``select``, ``and`` and ``or`` around a read. ``in_guard``: the read stands in a guard
    around the statement. It counts as read by the statement in dependences; whether it is safe is asked of the guard itself
    (:attr:`Model.conditions`), which reads also where the statement then does not run.
    """

    statement: Statement = field(repr=False, compare=False)
    buffer: str
    indices: tuple[Expr, ...]
    is_write: bool
    load: Load | None = None
    conditions: tuple[Condition, ...] = ()
    in_guard: bool = False

    @cached_property
    def forms(self) -> tuple[Linear | None, ...]:
        """Each index as a linear form over loop variables; ``None`` where it is not linear."""
        return tuple(linear(i, self.statement.frame.sizes) for i in self.indices)

    @cached_property
    def happens(self) -> tuple[isl.Set, bool]:
        """Instances in which the access happens, and whether all of them surely do."""
        where, exact = self.statement.domain, self.statement.exact
        for c in self.conditions:
            part, sure = self.statement.frame.cond(c.expr, c.holds)
            where, exact = where.intersect(part), exact and sure
        return where, exact

    @cached_property
    def _relation(self) -> tuple[isl.Map, bool]:
        st = self.statement
        shape = st.model.declarations[self.buffer].shape
        functions = [st.frame.aff(i) for i in self.indices]
        bounds: list[Interval | None] = []
        for f, index, size in zip(functions, self.indices, shape, strict=True):
            bounds.append(None if f is not None else st.index_bounds(index, self.conditions) or (0, size - 1))
        relation, exact = map_between(st.frame, functions, bounds)
        domain, sure = self.happens
        return relation.intersect_domain(domain), exact and sure

    @property
    def map(self) -> isl.Map:
        """Instances → elements. With ``must`` unset it may hold pairs that do not happen, never too few."""
        return self._relation[0]

    @property
    def must(self) -> bool:
        """Every pair of :attr:`map` happens in every execution."""
        return self._relation[1]


class Statement:
    """A store of the materialised program with its loops, guards, domain and accesses."""

    def __init__(
        self, model: Model, number: int, path: Path, origin: Path, is_reset: bool, store: Store, loops: tuple[LoopRef, ...], parents: tuple[Loop | If, ...]
    ) -> None:
        self.model = model
        self.id = number
        self.path = path
        self.origin = origin
        self.is_reset = is_reset
        self.store = store
        self.loops = loops
        self.parents = parents
        self.guards: tuple[Expr, ...] = tuple(c for p in parents if isinstance(p, If) for c in conjuncts(p.cond))
        self.lasting: tuple[Expr, ...] = tuple(c for p in parents if isinstance(p, If) for c in conjuncts(p.cond) if not _overwritten(p, c))
        """The guards that still hold when the statement runs: nothing inside them stores what they read."""
        self.frame = Frame([loop.var for loop in loops], model.sizes)
        self.intervals: dict[str, Interval] = loop_intervals(((loop.var, loop.extent) for loop in loops), model.sizes)
        self.write = Access(self, store.buffer, store.indices, True)

    @property
    def name(self) -> str:
        """``S3`` for the store at position 3, ``S3.reset`` for the reset of an accumulation (ids count materialised stores)."""
        return f"S{self.id}.reset" if self.is_reset else f"S{self.id}"

    @property
    def vars(self) -> tuple[str, ...]:
        return self.frame.names

    @property
    def is_accumulation(self) -> bool:
        return self.store.reduce is not None

    @property
    def never_runs(self) -> bool:
        """Some loop has no iteration (a sufficient test)."""
        return any(high < 0 for _, high in self.intervals.values())

    @cached_property
    def rectangular(self) -> tuple[int, ...] | None:
        """Extents when every loop's extent is constant (guards not counted), else ``None``."""
        out = []
        for loop in self.loops:
            form = linear(loop.extent, self.model.sizes)
            if form is None or form[0]:
                return None
            out.append(max(form[1], 0))
        return tuple(out)

    @cached_property
    def _domain(self) -> tuple[isl.Set, bool]:
        extents = self.rectangular
        exact = True
        if extents is not None:
            domain = box(extents)
        else:
            domain = isl.Set.universe(self.frame.space)
            for k, loop in enumerate(self.loops):
                domain = domain.lower_bound_val(DIM.set, k, 0)
                limit = self.frame.aff(loop.extent)
                if limit is None:
                    low, high = self.intervals[loop.var]
                    domain, exact = domain.lower_bound_val(DIM.set, k, low).upper_bound_val(DIM.set, k, high), False
                else:
                    variable = self.frame.var_aff(k)
                    domain = domain.intersect(variable.lt_set(limit))
        for guard in self.guards:
            part, sure = self.frame.cond(guard)
            domain, exact = domain.intersect(part), exact and sure
        return domain, exact

    @property
    def domain(self) -> isl.Set:
        """Loop variables, outermost first, of the instances that run (of those that may run when :attr:`exact` is unset)."""
        return self._domain[0]

    @property
    def exact(self) -> bool:
        """Whether every instance of :attr:`domain` runs (no data-dependent guard)."""
        return self._domain[1]

    @cached_property
    def reads(self) -> tuple[Access, ...]:
        """Every read, in order of evaluation; an accumulation reads its target first. Guards of the statement read too."""
        found: list[Access] = []
        if self.store.reduce is not None:
            found.append(Access(self, self.store.buffer, self.store.indices, False))
        for guard in self.guards:
            _collect(self, guard, (), found, True)
        for expr in (*self.store.indices, self.store.value):
            _collect(self, expr, (), found)
        return tuple(found)

    @property
    def accesses(self) -> tuple[Access, ...]:
        return (*self.reads, self.write)

    def index_bounds(self, expr: Expr, conditions: tuple[Condition, ...] = ()) -> Interval | None:
        """Interval of an index (a look-up through its declared range) where the guards and ``conditions`` hold; ``None``: unknown."""
        sizes, ranges = self.model.sizes, value_ranges(self.model.program)
        known: dict[Expr, Interval] = {}
        for cond, holds in (*((g, True) for g in self.lasting), *((c.expr, c.holds) for c in conditions)):
            known = narrow(cond, holds, self.intervals, sizes, ranges, known)
        return interval(expr, self.intervals, sizes, ranges, known)

    @cached_property
    def time(self) -> tuple[int | str, ...]:
        """Position in the tree and loop variables in turn: the lexicographic order of these is the order of execution."""
        out: list[int | str] = []
        for n, position in enumerate(self.path):
            out.append(position)
            if n < len(self.parents):
                owner = self.parents[n]
                out.append(owner.var if isinstance(owner, Loop) else 0)
        return tuple(out)

    def instance(self, point: tuple[int, ...]) -> str:
        """``S3(i=0,k=2)``."""
        return f"{self.name}({','.join(f'{v}={p}' for v, p in zip(self.vars, point, strict=True))})"


def _overwritten(owner: If, cond: Expr) -> bool:
    """Whether a statement inside the guard stores a buffer that ``cond`` reads."""
    read = {found.buffer for found in loads(cond)}
    return bool(read) and any(isinstance(v.stmt, Store) and v.stmt.buffer in read for v in visit(owner.body))


def _collect(st: Statement, expr: Expr, conditions: tuple[Condition, ...], found: list[Access], in_guard: bool = False) -> None:
    if isinstance(expr, Load):
        for index in expr.indices:
            _collect(st, index, conditions, found, in_guard)
        found.append(Access(st, expr.buffer, expr.indices, False, expr, conditions, in_guard))
    elif isinstance(expr, Cast):
        _collect(st, expr.arg, conditions, found, in_guard)
    elif isinstance(expr, Op):
        if expr.name == "select":
            _collect(st, expr.args[0], conditions, found, in_guard)
            _collect(st, expr.args[1], (*conditions, Condition(expr.args[0], True)), found, in_guard)
            _collect(st, expr.args[2], (*conditions, Condition(expr.args[0], False)), found, in_guard)
        elif expr.name in ("and", "or"):
            _collect(st, expr.args[0], conditions, found, in_guard)
            _collect(st, expr.args[1], (*conditions, Condition(expr.args[0], expr.name == "and")), found, in_guard)
        else:
            for arg in expr.args:
                _collect(st, arg, conditions, found, in_guard)


class Model:
    """All statements of the materialised program. Build it with :meth:`of`, which caches it on the program."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.materialized: Materialized = materialize(program)
        self.sizes: Mapping[str, int] = program.size_env
        made = self.materialized.program
        self.declarations: dict[str, Declaration] = {}
        for role, group in (("in", program.inputs), ("out", program.outputs)):
            for buffer in group:
                self.declarations[buffer.name] = Declaration(buffer, shape_of(buffer.shape, program), (), role)
        for path, buffer in all_tmps(made):
            self.declarations[buffer.name] = Declaration(buffer, shape_of(buffer.shape, program), path, "tmp")
        self.statements: tuple[Statement, ...] = tuple(self._build(made))
        self._by_origin = {(s.origin, s.is_reset): s for s in self.statements}
        self.loop_origins: dict[Path, Path] = {loop.path: loop.origin for s in self.statements for loop in s.loops if loop.origin is not None}

    @staticmethod
    def of(program: Program) -> Model:
        """The model of a program; raises :class:`LeirError` ``check-reset`` when its resets are not defined."""
        cached = program._cache.get("model")
        if not isinstance(cached, Model):
            cached = program._cache["model"] = Model(program)
        return cached

    def _build(self, made: Program) -> Iterator[Statement]:
        number = 0
        for met in visit(made):
            if not isinstance(met.stmt, Store):
                continue
            source = self.materialized.origin[met.path]
            # a store and its origin lie equally deep; a reset shares only the owners above the loop it precedes
            shared = self._reset_depth(met.path, source.path) if source.is_reset else len(met.parents)
            loops = _loops(met.path, source.path, met.parents, shared)
            yield Statement(self, number, met.path, source.path, source.is_reset, met.stmt, loops, met.parents)
            number += 1

    @cached_property
    def conditions(self) -> tuple[Statement, ...]:
        """One pseudo-statement for each guard that reads memory; its value is the condition and it writes nothing."""
        out: dict[Path, Statement] = {}
        for st in self.statements:
            for depth, owner in enumerate(st.parents):
                path, origin = st.path[: depth + 1], st.origin[: depth + 1]
                if isinstance(owner, If) and path not in out and any(loads(owner.cond)):
                    loops = _loops(path, origin, st.parents[:depth], depth)
                    out[path] = Statement(self, st.id, path, origin, False, Store("", (), owner.cond), loops, st.parents[:depth])
        return tuple(out.values())

    def _reset_depth(self, path: Path, origin: Path) -> int:
        """How many owners a reset shares with its accumulation."""
        twin = self._twin(origin)
        depth = 0
        while depth < min(len(path), len(twin)) and path[depth] == twin[depth]:
            depth += 1
        return depth

    @cached_property
    def _twins(self) -> dict[Path, Path]:
        return {o.path: p for p, o in self.materialized.origin.items() if not o.is_reset}

    def _twin(self, origin: Path) -> Path:
        return self._twins[origin]

    def at(self, origin: Path, *, reset: bool = False) -> Statement:
        """The statement of the store at ``origin`` in the program (its reset with ``reset``); raises ``KeyError``."""
        return self._by_origin[(origin, reset)]

    def under(self, origin: Path) -> tuple[Statement, ...]:
        """Statements (not resets of other places) whose origin lies at or below a path of the program."""
        return tuple(s for s in self.statements if s.origin[: len(origin)] == origin)

    def private_depth(self, st: Statement, buffer: str) -> int:
        """How many of the statement's loops are outside or at the loop that declares ``buffer``: it is private to one iteration of those."""
        path = self.declarations[buffer].path
        return sum(1 for loop in st.loops if len(loop.path) <= len(path)) if path else 0


def _loops(path: Path, origin: Path, parents: tuple[Loop | If, ...], shared: int) -> tuple[LoopRef, ...]:
    return tuple(LoopRef(p.var, p.extent, p.kind, path[: n + 1], origin[: n + 1] if n < shared else None) for n, p in enumerate(parents) if isinstance(p, Loop))


def common_loops(a: Statement, b: Statement) -> int:
    """How many loops enclose both statements."""
    return sum(1 for x, y in zip(a.loops, b.loops, strict=False) if x.path == y.path)
