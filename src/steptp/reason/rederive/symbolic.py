"""A small symbolic executor: runs a program at tiny sizes on hashes instead of numbers.

Two programs that store equal hashes do the same operations on the same inputs. Accumulations are hashed in order, or (``ordered=False``) as
multisets of their terms. Touched elements are reported per store, so that conflicts between iterations can be counted out.
"""

from __future__ import annotations

import hashlib
import operator
from collections.abc import Callable
from dataclasses import dataclass, field

from steptp.errors import LeirError
from steptp.ir.nodes import Cast, Const, Expr, If, Load, Loop, Op, Path, Program, Size, Stmt, Store, Var, identity_of
from steptp.ir.ops import REDUCERS
from steptp.ir.resets import materialize
from steptp.ir.sizes import eval_index
from steptp.ir.types import DType

__all__ = ["Element", "Event", "Run", "run", "Value"]

Value = int | str
"""A known integer, or a hash of the operations that make the value."""

Element = tuple[str, tuple[int, ...]]
_MASK = (1 << 128) - 1


def _hash(*parts: object) -> str:
    return hashlib.blake2b(repr(parts).encode(), digest_size=16).hexdigest()


@dataclass(frozen=True)
class Event:
    """One executed store: its path in the original program, whether it is a reset, loop values, elements touched."""

    path: Path
    is_reset: bool
    loops: dict[str, int]
    reads: tuple[Element, ...]
    write: Element


@dataclass
class _Multiset:
    reduce: str
    base: Value
    total: int = 0
    count: int = 0
    fresh: bool = False  # it started from the operator's identity

    def value(self) -> Value:
        return _hash("sum", self.reduce, self.base, self.total, self.count) if self.count else self.base


@dataclass
class Run:
    """The history of values of every element, in order of writing (an accumulation counts as one value). ``undefined``: an element was read that nothing
    has written, so the values mean nothing."""

    histories: dict[Element, list[Value]] = field(default_factory=dict)
    undefined: bool = False

    def of(self, buffer: str) -> dict[Element, list[Value]]:
        return {e: h for e, h in self.histories.items() if e[0] == buffer}


def run(program: Program, *, ordered: bool = True, watch: Callable[[Event], None] | None = None, limit: int = 60_000) -> Run:
    """Execute ``program`` at its present sizes. Raises :class:`LeirError` ``check-budget`` beyond ``limit`` stores."""
    return _Executor(program, ordered, watch, limit).run()


def _identities(reduce: str) -> frozenset[Value]:
    """How the operator's identity looks as a constant of each dtype."""
    found: set[Value] = set()
    for dtype in DType:
        try:
            c = identity_of(reduce, dtype)
        except LeirError:
            continue
        found.add(_constant(c))
    return frozenset(found)


def _constant(expr: Const) -> Value:
    return int(expr.value) if expr.dtype.is_int or isinstance(expr.value, bool) else _hash("const", repr(expr.value), str(expr.type))


_IDENTITIES = {reduce: _identities(reduce) for reduce in REDUCERS}


_PLAIN: dict[str, Callable[[int, int], int | bool]] = {
    "+": operator.add, "-": operator.sub, "*": operator.mul, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
    "==": operator.eq, "!=": operator.ne, "max": max, "min": min,
}  # fmt: skip
"""Integer operators that cannot fail; ``eval_index`` does the others."""

_Code = Callable[[], Value]


class _Executor:
    """Expressions become closures over ``env``, once each."""

    def __init__(self, program: Program, ordered: bool, watch: Callable[[Event], None] | None, limit: int) -> None:
        made = materialize(program)
        self.program, self.origin = made.program, made.origin
        self.inputs = {b.name: b for b in program.inputs}
        self.ordered, self.watch, self.left = ordered, watch, limit
        self.env: dict[str, int] = dict(program.size_env)
        self.loops: dict[str, int] = {}
        self.state: dict[str, dict[tuple[int, ...], Value | _Multiset]] = {}
        self.given: dict[Element, Value] = {}
        self.out = Run()
        self.reads: list[Element] = []
        self.codes: dict[int, _Code] = {}  # by identity: the program keeps its expressions alive

    def run(self) -> Run:
        for position, stmt in enumerate(self.program.body):
            self._stmt(stmt, (position,))
        for buffer in list(self.state):
            self._settle(buffer)
        return self.out

    def _settle(self, buffer: str) -> None:
        """Forget a buffer's elements; what they have accumulated goes down in history."""
        for index, value in self.state.pop(buffer, {}).items():
            if isinstance(value, _Multiset):
                self.out.histories[buffer, index].append(value.value())

    def _stmt(self, stmt: Stmt, path: Path, condition: Value | None = None) -> None:
        if isinstance(stmt, Store):
            self._store(stmt, path, condition)
        elif isinstance(stmt, If):
            cond = self._code(stmt.cond)()
            if cond != 0:
                inner = condition if isinstance(cond, int) else cond if condition is None else _hash("and", condition, cond)
                for n, child in enumerate(stmt.body):
                    self._stmt(child, (*path, n), inner)
        else:
            self._loop(stmt, path, condition)

    def _loop(self, loop: Loop, path: Path, condition: Value | None) -> None:
        for turn in range(eval_index(loop.extent, self.env)):
            self.env[loop.var] = self.loops[loop.var] = turn
            for buffer in loop.tmps:
                self._settle(buffer.name)
            for n, child in enumerate(loop.body):
                self._stmt(child, (*path, n), condition)
        self.env.pop(loop.var, None)
        self.loops.pop(loop.var, None)

    def _store(self, store: Store, path: Path, condition: Value | None) -> None:
        self.left -= 1
        if self.left < 0:
            raise LeirError("check-budget", "too many stores for symbolic execution")
        self.reads = []
        index = self._index(store.indices)
        element = (store.buffer, index)
        value = self._code(store.value)()
        if condition is not None:
            value = _hash("if", condition, value)
        history = self.out.histories.setdefault(element, [])
        held = self.state.setdefault(store.buffer, {})
        if store.reduce is None:
            held[index] = value
            history.append(value)
        else:
            self._accumulate(held, index, store.reduce, self._partial(store) or value, history)
        if self.watch is not None:
            source = self.origin[path]
            reads = tuple(self.reads) + ((element,) if store.reduce is not None else ())
            self.watch(Event(source.path, source.is_reset, dict(self.loops), reads, element))

    def _partial(self, store: Store) -> _Multiset | None:
        """The accumulated terms behind a value that is one read of another accumulation with the same operator."""
        if self.ordered or not isinstance(store.value, Load):
            return None
        held = self.state.get(store.value.buffer, {}).get(self._index(store.value.indices))
        if store.reduce is not None and not isinstance(held, _Multiset) and held in _IDENTITIES[store.reduce]:
            return _Multiset(store.reduce, held, fresh=True)  # an accumulation of no terms
        return held if isinstance(held, _Multiset) and held.reduce == store.reduce and held.fresh else None

    def _accumulate(
        self, held: dict[tuple[int, ...], Value | _Multiset], index: tuple[int, ...], reduce: str, value: Value | _Multiset, history: list[Value]
    ) -> None:
        old = held.get(index, "undefined")
        if self.ordered:
            before = old.value() if isinstance(old, _Multiset) else old
            after = _hash("acc", reduce, before, value)
            held[index] = after
            history.append(after)
            return
        if not (isinstance(old, _Multiset) and old.reduce == reduce):
            base = old.value() if isinstance(old, _Multiset) else old
            old = held[index] = _Multiset(reduce, base, fresh=base in _IDENTITIES[reduce])
        terms, count = (value.total, value.count) if isinstance(value, _Multiset) else (int(_hash("term", value), 16), 1)
        old.total = (old.total + terms) & _MASK
        old.count += count

    def _index(self, indices: tuple[Expr, ...]) -> tuple[int, ...]:
        found: list[int] = []
        for expr in indices:
            value = self._code(expr)()
            if not isinstance(value, int):
                raise LeirError("check-index", "an index that depends on unknown data")
            found.append(value)
        return tuple(found)

    def _read(self, load: Load) -> Value:
        index = self._index(load.indices)
        element = (load.buffer, index)
        self.reads.append(element)
        held = self.state.get(load.buffer, {}).get(index)
        if isinstance(held, _Multiset):
            return held.value()
        if held is not None:
            return held
        if (known := self.given.get(element)) is None:
            known = self.given[element] = self._given(element)
        return known

    def _given(self, element: Element) -> Value:
        """What an element holds that nothing has stored to."""
        source = self.inputs.get(element[0])
        if source is None:
            self.out.undefined = True
            return _hash("undefined", *element)
        if source.range is not None:  # a look-up table: any fixed choice within its range does
            low, high = (eval_index(r, self.env) for r in source.range)
            return low + int(_hash(*element), 16) % max(high - low, 1)
        return _hash("input", *element)

    def _code(self, expr: Expr) -> _Code:
        code = self.codes.get(id(expr))
        if code is None:
            code = self.codes[id(expr)] = self._compile(expr)
        return code

    def _compile(self, expr: Expr) -> _Code:
        env = self.env
        if isinstance(expr, Const):
            constant = _constant(expr)
            return lambda: constant
        if isinstance(expr, (Var, Size)):
            name = expr.name
            return lambda: env[name]
        if isinstance(expr, Load):
            return lambda: self._read(expr)
        if isinstance(expr, Cast):
            arg, dtype = self._code(expr.arg), str(expr.type)
            return lambda: _hash("cast", dtype, arg())
        assert isinstance(expr, Op)
        args = [self._code(a) for a in expr.args]
        if expr.name == "select":
            return lambda: _select(*args)
        if expr.name in ("and", "or"):
            return lambda: _logic(expr.name, *args)
        if (plain := _PLAIN.get(expr.name)) is not None and len(args) == 2:
            return lambda: _binary(expr.name, plain, args[0](), args[1]())
        return lambda: _general(expr, [a() for a in args])


def _binary(name: str, plain: Callable[[int, int], int | bool], a: Value, b: Value) -> Value:
    return int(plain(a, b)) if isinstance(a, int) and isinstance(b, int) else _hash(name, a, b)


def _select(cond: _Code, a: _Code, b: _Code) -> Value:
    chosen = cond()
    if isinstance(chosen, int):
        return a() if chosen else b()
    return _hash("select", chosen, a(), b())


def _logic(name: str, a: _Code, b: _Code) -> Value:
    """``and`` and ``or`` stop early where the left side decides."""
    left = a()
    if isinstance(left, int) and bool(left) == (name == "or"):
        return int(name == "or")
    right = b()
    if isinstance(left, int):
        return right
    return _hash(name, left, right)


def _general(expr: Op, args: list[Value]) -> Value:
    if all(isinstance(a, int) for a in args):
        whole = Op(expr.name, tuple(Var(f"a{n}") for n in range(len(args))), expr.type)
        return eval_index(whole, {f"a{n}": a for n, a in enumerate(args) if isinstance(a, int)})
    return _hash(expr.name, *args)
