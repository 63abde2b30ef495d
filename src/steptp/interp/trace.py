"""How one output element comes about: its value unfolded through temporaries and accumulations, with a value beside every subterm.

A dynamic slice (H. Agrawal and J. Horgan, *Dynamic program slicing*, PLDI 1990) of one element, kept as a tree of terms that opens on demand.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from steptp.interp.demand import DemandEvaluator, Source, _Node
from steptp.interp.errors import EvalError
from steptp.interp.expressions import Code, Env, Scope
from steptp.interp.scalars import Algebra, Scalar
from steptp.ir.nodes import Cast, Const, Expr, Load, Loop, Op, Path, Program, Store, Var
from steptp.ir.ops import REDUCERS
from steptp.ir.printer import print_expr
from steptp.ir.resets import materialize
from steptp.ir.types import DType
from steptp.ir.walk import enclosing, get, loads

__all__ = ["Element", "Instance", "Term", "Tracer"]

Element = tuple[str, tuple[int, ...]]
"""A buffer's name and an index."""


@dataclass(frozen=True, slots=True)
class Instance:
    """One run of a store: where it stands in the program, the loop variables, and whether it only resets what that store accumulates."""

    path: Path
    at: tuple[tuple[str, int], ...]
    is_reset: bool = False

    def shown(self) -> str:
        """``i=0 k=3``."""
        return " ".join(f"{name}={value}" for name, value in self.at)


@dataclass(eq=False)
class Term:
    """One subterm and its value.

    ``head``: an operator of LEIR; ``read`` (of a computed element: its one argument is what was written there), ``input`` (its arguments are look-ups in its
    indices), ``const``, ``index``, ``cast``; an accumulation has the head of its reducer's operator and ``folded``, and its arguments are the value it started from, unless that is the
    identity, and the terms in their order. ``expr`` is the subterm as the program writes it; ``instance`` the run of the store that it stands in.
    """

    head: str
    text: str
    value: Scalar
    dtype: DType
    instance: Instance | None
    expr: Expr | None = None
    element: Element | None = None
    folded: bool = False
    start: Instance | None = None
    _open: object = field(default=None, repr=False)

    @cached_property
    def args(self) -> tuple[Term, ...]:
        """The subterms, made when they are first asked for."""
        return tuple(self._open()) if callable(self._open) else ()

    def leaves(self, most: int = 4000) -> list[Term] | None:
        """The distinct input elements below, in order of first use; ``None`` where there are more than ``most`` terms."""
        found: dict[Element, Term] = {}
        seen: set[int] = set()
        pending = [self]
        while pending:
            here = pending.pop()
            if id(here) in seen:
                continue
            seen.add(id(here))
            if len(seen) > most:
                return None
            if here.head == "input" and here.element is not None:
                found.setdefault(here.element, here)
            pending += here.args[::-1]
        return list(found.values())

    @cached_property
    def key(self) -> frozenset[Element] | None:
        """The input elements that the term depends on; ``None`` where there are too many to tell."""
        found = self.leaves()
        return None if found is None else frozenset(t.element for t in found if t.element is not None)


class Tracer(DemandEvaluator):
    """A demand-driven evaluator that remembers which stores its values came from.

    Terms open by evaluating, so in exact arithmetic they are used inside :func:`steptp.interp.exact.precision`.
    """

    def __init__(self, program: Program, source: Source, budget: int = 200_000, algebra: Algebra | None = None) -> None:
        self._stores: dict[int, tuple[Store, Scope]] = {}
        self._terms: dict[tuple[str, int, int, tuple[int, ...]], Term] = {}
        self._codes: dict[tuple[int, int], Code] = {}
        super().__init__(program, source, budget, algebra)
        self._original = program
        self._materialized = materialize(program)

    def trace(self, output: str, index: Sequence[int]) -> Term:
        """The term of one output element, after :meth:`element` has given its value at the present precision."""
        self.work = 0
        self._depth = 0
        array = self._arrays[output]
        flat = sum(i * s for i, s in zip(index, array.strides, strict=True))
        writes = self._back_body(self._root.body, len(self._root.body), output, flat, tuple(index), [0] * self._levels)
        return self._written(output, flat, tuple(index), writes, None, None)

    def _build_store(self, node: _Node, stmt: Store, scope: Scope) -> None:
        super()._build_store(node, stmt, scope)
        self._stores[id(node)] = stmt, scope

    # one run of a store

    def _instance(self, node: _Node, at: tuple[int, ...]) -> Instance:
        path: list[int] = []
        here = node
        while here.parent is not None:
            path.append(here.position)
            here = here.parent
        where = tuple(reversed(path))
        origin = self._materialized.origin[where]
        names = [s.var for s in enclosing(self.program, where) if isinstance(s, Loop)]
        return Instance(origin.path, tuple(zip(names, at, strict=True)), origin.is_reset)

    def _written(
        self, name: str, flat: int, index: tuple[int, ...], writes: Iterator[tuple[_Node, tuple[int, ...]]], reader: Instance | None, expr: Expr | None
    ) -> Term:
        """The read of one element, with the assignment before it and the accumulations since."""
        runs: list[tuple[_Node, tuple[int, ...]]] = []
        for node, at in writes:
            runs.append((node, at))
            if node.combine is None:
                break
        else:
            raise EvalError("eval-undefined", f"{name}: element {flat} (flat) is read before it is written")
        last, when = runs[0]
        key = name, flat, id(last), when
        if key not in self._terms:
            runs.reverse()
            self._terms[key] = self._definition(name, flat, runs)
        made = self._terms[key]
        return Term("read", _text_of(name, index), made.value, self._arrays[name].dtype, reader, expr, (name, index), _open=lambda: (made,))

    def _definition(self, name: str, flat: int, runs: list[tuple[_Node, tuple[int, ...]]]) -> Term:
        node, at = runs[0]
        start = self._instance(node, at)
        if len(runs) == 1 and not start.is_reset:
            return self._value_term(node, at)
        last, when = runs[-1]
        owner = get(self._original, self._instance(last, when).path)  # of a reset: the accumulation that it is for
        assert isinstance(owner, Store)
        assert owner.reduce is not None
        value = self._resolve(name, flat, iter(runs[::-1]))

        def opened() -> Iterator[Term]:
            if not start.is_reset:
                yield self._value_term(node, at)
            for one, instant in runs[1:]:
                yield self._value_term(one, instant)

        head = REDUCERS[owner.reduce].op
        return Term(head, "", value, self._arrays[name].dtype, self._instance(last, when), None, None, True, start, opened)

    # expressions

    def _value_term(self, node: _Node, at: tuple[int, ...]) -> Term:
        stmt, scope = self._stores[id(node)]
        env = [*at, *([0] * (self._levels - len(at)))]
        return self._term(stmt.value, _Site(node, scope, env, self._instance(node, at)))

    def _run(self, expr: Expr, site: _Site) -> Scalar:
        key = id(site.node), id(expr)
        if key not in self._codes:
            self._here = site.node
            self._codes[key] = self._compiler.compile(expr, site.scope)
        return self._codes[key](site.env)

    def _term(self, expr: Expr, site: _Site) -> Term:
        value = self._run(expr, site)
        text = print_expr(self._instantiated(expr, site), expr.dtype)
        made = Term("index", text, value, expr.dtype, site.instance, expr)
        if isinstance(expr, Const):
            made.head = "const"
        elif isinstance(expr, Load):
            return self._load(expr, made, site)
        elif isinstance(expr, Cast):
            made.head, made._open = "cast", lambda: (self._term(expr.arg, site),)
        elif isinstance(expr, Op) and not (expr.dtype is DType.I64 and not any(loads(expr))):
            made.head = expr.name
            chosen = expr.args
            if expr.name == "select":
                chosen = (expr.args[0], expr.args[1] if self._run(expr.args[0], site) else expr.args[2])
            elif expr.name in ("and", "or"):  # they stop early
                first = bool(self._run(expr.args[0], site))
                chosen = expr.args[:1] if first is (expr.name == "or") else expr.args
            made._open = lambda: [self._term(a, site) for a in chosen]
        return made

    def _load(self, expr: Load, made: Term, site: _Site) -> Term:
        index = tuple(int(self._run(i, site)) for i in expr.indices)
        if expr.buffer in self._inputs:
            made.head, made.element = "input", (expr.buffer, index)
            made._open = lambda: [self._term(i, site) for i in expr.indices if any(loads(i))]
            return made
        flat = sum(i * s for i, s in zip(index, self._arrays[expr.buffer].strides, strict=True))
        return self._written(expr.buffer, flat, index, self._before(site.node, site.env, expr.buffer, flat), site.instance, expr)

    def _instantiated(self, expr: Expr, site: _Site) -> Expr:
        """``expr`` with numbers for indices; a number stands there as a name, which prints without its dtype."""
        if isinstance(expr, Load):
            try:
                return Load(expr.buffer, tuple(Var(str(int(self._run(i, site)))) for i in expr.indices), expr.type)
            except EvalError:  # on the side of a select that is not taken
                return expr
        if not isinstance(expr, Const) and expr.dtype is DType.I64 and not any(loads(expr)):
            return Var(str(self._run(expr, site)))
        if isinstance(expr, Op):
            return Op(expr.name, tuple(self._instantiated(a, site) for a in expr.args), expr.type)
        return Cast(expr.type, self._instantiated(expr.arg, site)) if isinstance(expr, Cast) else expr


@dataclass(frozen=True, slots=True)
class _Site:
    node: _Node
    scope: Scope
    env: Env
    instance: Instance


def _text_of(name: str, index: tuple[int, ...]) -> str:
    return f"{name}[{','.join(map(str, index))}]"
