"""The tensors of a text: who writes and reads them, their dtypes and ranks, and how far they reach."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from steptp.ir.published.boxes import Interval, Table, accesses, interval, same_term
from steptp.ir.published.notes import Note
from steptp.ir.published.tree import Access, Binary, Call, LoopHead, Name, Statement, Term, Text, Unary, walk
from steptp.ir.types import DType

__all__ = ["Tensor", "Write", "Scan", "scan", "Update", "update_of", "same_element"]


@dataclass(frozen=True, slots=True)
class Update:
    """``X = X op rest``: the reducer and what is combined. ``subtracted`` marks terms of a sum that are taken away."""

    reduce: str
    rest: tuple[Term, ...]
    subtracted: tuple[bool, ...]


@dataclass(frozen=True, slots=True)
class Write:
    """A statement that writes a tensor, by its position in the text."""

    nest: int
    position: int
    statement: Statement
    update: Update | None
    absent: tuple[LoopHead, ...]  # loops around that the target is not indexed by
    reads_itself: bool


@dataclass(slots=True)
class Tensor:
    """One name. ``first`` is its first access in the text; ``box`` counts elements by dimension."""

    name: str
    first: Access
    dtype: DType
    rank: int
    reach: list[int]
    scopes: dict[str, Access] = field(default_factory=dict)
    writes: list[Write] = field(default_factory=list)
    readers: set[tuple[int, int]] = field(default_factory=set)  # statements that read it, other than its own updates
    nests: set[int] = field(default_factory=set)

    @property
    def box(self) -> tuple[int, ...]:
        return tuple(n + 1 for n in self.reach)


@dataclass(slots=True)
class Scan:
    """All tensors by name, in order of first appearance, and notes on the way."""

    text: Text
    tensors: dict[str, Tensor]
    notes: list[Note]

    @property
    def inputs(self) -> tuple[str, ...]:
        """What is read and never written."""
        return tuple(t.name for t in self.tensors.values() if not t.writes)

    @property
    def outputs(self) -> tuple[str, ...]:
        """What is written and read by no other statement, in order of writing."""
        found = [t for t in self.tensors.values() if t.writes and not t.readers]
        return tuple(t.name for t in sorted(found, key=lambda t: (t.writes[0].nest, t.writes[0].position)))


def scan(text: Text) -> Scan:
    """Gather the tensors; raises :class:`LeirError` ``published-rank``, ``-dtype``, ``-bounds`` or ``-index``."""
    out = Scan(text, {}, [])
    written = {st.target.name: DType(st.target.dtype) for nest in reversed(text.nests) for st in reversed(nest.statements)}
    tables: dict[str, Table] = {}
    for number, nest in enumerate(text.nests):
        ranges = {h.var: (0, h.extent - 1) for h in nest.loops}
        for position, st in enumerate(nest.statements):
            for access, guards in (*accesses(st.value), *accesses(st.target)):
                tensor = _tensor(out, access, written, is_target=access is st.target)
                tensor.nests.add(number)
                tensor.scopes.setdefault(access.scope, access)
                for dim, index in enumerate(access.indices):
                    tensor.reach[dim] = max(tensor.reach[dim], _reach(text, access, index, interval(index, ranges, guards, tables)))
                if access is not st.target and access.name != st.target.name:
                    tensor.readers.add((number, position))
            _write(out, number, position, st, nest.loops)
            _tabulate(out.tensors[st.target.name], st, ranges, tables)
    return out


def _tabulate(target: Tensor, st: Statement, ranges: Mapping[str, Interval], tables: dict[str, Table]) -> None:
    """Note what the statement says of the values of an integer tensor."""
    if not target.dtype.is_int:
        return
    values, before = interval(st.value, ranges, (), tables), tables.pop(target.name, None)
    if values is None or (before is None and len(target.writes) > 1):
        return
    if before is not None:
        tables[target.name] = Table((min(values[0], before.bounds[0]), max(values[1], before.bounds[1])))
        return
    formals = tuple(i.name for i in st.target.indices if isinstance(i, Name))
    free = {t.name for t in walk(st.value) if isinstance(t, Name)}
    reads = any(isinstance(t, Access) for t in walk(st.value))
    if len(set(formals)) == target.rank and free <= set(formals) and not reads:
        tables[target.name] = Table(values, formals, st.value)
    else:
        tables[target.name] = Table(values)


def _tensor(out: Scan, access: Access, written: dict[str, DType], *, is_target: bool) -> Tensor:
    text, dtype, rank = out.text, DType(access.dtype), len(access.indices)
    found = out.tensors.get(access.name)
    if found is None:
        found = out.tensors[access.name] = Tensor(access.name, access, written.get(access.name, dtype), rank, [0] * rank)
    if rank != found.rank:
        raise text.error("published-rank", f"{access.name} has {rank} indices here and {found.rank} elsewhere", access.span, "one name stands for one tensor")
    if dtype is not found.dtype:
        if is_target or access.name not in written:
            raise text.error("published-dtype", f"{access.name} is {dtype} here and {found.dtype} elsewhere", access.span, "one name stands for one tensor")
        out.notes.append(Note("dtype-read", f"{access.name} is written as {found.dtype} and read as {dtype}", text.place(access.span)))
    return found


def _reach(text: Text, access: Access, index: Term, span: Interval | None) -> int:
    if span is None:
        hint = "an index is made of loop variables, whole numbers, + - * // % min max and integer tensors whose values are in the text"
        raise text.error("published-index", f"the range of this index of {access.name} cannot be told", index.span, hint)
    if span[0] < 0:
        hint = "arrays start at 0; an access may be guarded by if_then_else"
        raise text.error("published-bounds", f"this index of {access.name} reaches {span[0]}", index.span, hint)
    return span[1]


def _write(out: Scan, nest: int, position: int, st: Statement, loops: tuple[LoopHead, ...]) -> None:
    inside = {t.name for index in st.target.indices for t in walk(index) if isinstance(t, Name)}
    absent = tuple(h for h in loops if h.var not in inside)
    own = any(isinstance(t, Access) and t.name == st.target.name for t in walk(st.value))
    out.tensors[st.target.name].writes.append(Write(nest, position, st, update_of(st), absent, own))


_JOINS = {"+": "+", "-": "+", "*": "*"}


def update_of(st: Statement) -> Update | None:
    """The reading of ``st`` as ``X = X op rest``: the target occurs once, as an operand of the outermost sum, product, ``max`` or ``min``."""
    value = st.value
    if isinstance(value, Binary) and value.op in _JOINS:
        reduce = _JOINS[value.op]
        parts = _flat(value, reduce)
        if value.op == reduce and isinstance(value.left, Access) and same_element(value.left, st.target):
            parts = [(value.left, False), (value.right, False)]  # the rest stays one operand: X=X+(a+b)
    elif isinstance(value, Call) and value.name in ("max", "min"):
        reduce = value.name
        parts = [(p, False) for p in _flat_calls(value, reduce)]
    else:
        return None
    own = [n for n, (p, away) in enumerate(parts) if not away and isinstance(p, Access) and same_element(p, st.target)]
    if len(own) != 1:
        return None
    rest = [p for n, p in enumerate(parts) if n != own[0]]
    if any(isinstance(t, Access) and t.name == st.target.name for p, _ in rest for t in walk(p)):
        return None
    return Update(reduce, tuple(p for p, _ in rest), tuple(away for _, away in rest))


def same_element(a: Access, b: Access) -> bool:
    """Whether two accesses name one element by equal indices."""
    return a.name == b.name and len(a.indices) == len(b.indices) and all(same_term(x, y) for x, y in zip(a.indices, b.indices, strict=True))


def _flat(term: Term, reduce: str, away: bool = False) -> list[tuple[Term, bool]]:
    if isinstance(term, Binary) and _JOINS.get(term.op) == reduce:
        return [*_flat(term.left, reduce, away), *_flat(term.right, reduce, away != (term.op == "-"))]
    if isinstance(term, Unary) and reduce == "+":
        return _flat(term.arg, reduce, not away)
    return [(term, away)]


def _flat_calls(term: Term, name: str) -> list[Term]:
    if isinstance(term, Call) and term.name == name:
        return [p for arg in term.args for p in _flat_calls(arg, name)]
    return [term]
