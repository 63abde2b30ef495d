"""Which loops the vectorised oracle may turn into array axes. All tests are sufficient ones: a doubtful loop runs serially."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from steptp.interp.cost import index_bounds
from steptp.ir.affine import Form, NotAffine, Range, form_of, is_injective
from steptp.ir.nodes import Expr, If, Load, Loop, Program, Stmt, Store
from steptp.ir.walk import free_vars, loads, stmt_exprs, visit

__all__ = ["Nest", "Planner"]


@dataclass(frozen=True, slots=True)
class Nest:
    """A chain of loops and guards around one store; ``reduced`` are the loops that do not index the target."""

    chain: tuple[Loop | If, ...]
    store: Store
    reduced: frozenset[str]


class Planner:
    """Plans for the loops of one materialised program at its present sizes."""

    def __init__(self, program: Program) -> None:
        self.sizes = program.size_env
        self.ranges: dict[str, Range] = {}
        known: dict[str, tuple[int, int]] = {n: (v, v) for n, v in self.sizes.items()}
        for met in visit(program):
            if isinstance(met.stmt, Loop):
                inner = dict(known)
                inner.update({p.var: self.ranges[p.var] for p in met.loops})
                high = max(index_bounds(met.stmt.extent, inner)[1] - 1, 0)
                old = self.ranges.get(met.stmt.var, (0, 0))
                self.ranges[met.stmt.var] = (0, max(high, old[1]))  # siblings may reuse a name
        self._nests: dict[int, Nest | None] = {}
        self._independent: dict[int, bool] = {}

    def form(self, expr: Expr) -> Form | None:
        """The quasi-affine form of an index, or ``None``."""
        try:
            return form_of(expr, self.sizes, self.ranges)
        except NotAffine:
            return None

    def nest(self, stmt: Stmt) -> Nest | None:
        """The perfect nest that ``stmt`` is, if all its loops can be axes at once."""
        if id(stmt) not in self._nests:
            self._nests[id(stmt)] = self._find_nest(stmt)
        return self._nests[id(stmt)]

    def _find_nest(self, stmt: Stmt) -> Nest | None:
        chain: list[Loop | If] = []
        while not isinstance(stmt, Store):
            if len(stmt.body) != 1 or (isinstance(stmt, Loop) and stmt.tmps):
                return None
            chain.append(stmt)
            stmt = stmt.body[0]
        loops = [p.var for p in chain if isinstance(p, Loop)]
        forms = [self.form(i) for i in stmt.indices]
        used = frozenset().union(*(free_vars(i) for i in stmt.indices))
        reduced = frozenset(v for v in loops if v not in used)
        if any(f is None for f in forms) or (stmt.reduce is None and reduced) or len(set(loops)) != len(loops):
            return None
        if not is_injective([f for f in forms if f is not None], [v for v in loops if v in used], self.ranges):
            return None
        reads = [r for e in (stmt.value, *stmt.indices, *(x for p in chain for x in stmt_exprs(p))) for r in loads(e) if r.buffer == stmt.buffer]
        if any(r.indices != stmt.indices or stmt.reduce is not None for r in reads):
            return None
        return Nest(tuple(chain), stmt, reduced)

    def independent(self, loop: Loop) -> bool:
        """Whether the iterations of ``loop`` touch disjoint elements of everything that they write, its own temporaries apart."""
        if id(loop) not in self._independent:
            self._independent[id(loop)] = self._find_independent(loop)
        return self._independent[id(loop)]

    def _find_independent(self, loop: Loop) -> bool:
        private = {b.name for b in loop.tmps} | {b.name for v in visit(loop.body) if isinstance(v.stmt, Loop) for b in v.stmt.tmps}
        inner = {v.stmt.var for v in visit(loop.body) if isinstance(v.stmt, Loop)}
        if loop.var in inner:
            return False
        written = {v.stmt.buffer for v in visit(loop.body) if isinstance(v.stmt, Store)} - private
        accesses: dict[str, list[tuple[Expr, ...]]] = {name: [] for name in written}
        for name, indices in _accesses(loop):
            if name in accesses:
                accesses[name].append(indices)
        return all(any(self._separates(loop.var, inner, [a[d] for a in found]) for d in range(len(found[0]))) for found in accesses.values())

    def _separates(self, var: str, inner: set[str], indices: list[Expr]) -> bool:
        """Whether equal values of these indices need equal values of ``var``: ``c*var + outer + rest`` with one ``c`` and ``outer`` and |rest| < |c|."""
        common: tuple[int, Mapping[object, int]] | None = None
        low: int | None = None
        high = 0
        for index in indices:
            form = self.form(index)
            if form is None:
                return False
            coef, least, most = 0, form.constant, form.constant
            outer: dict[object, int] = {}
            for atom, value in form.terms:
                if atom == var:
                    coef = value
                elif isinstance(atom, str) and atom in inner:
                    a, b = self.ranges[atom]
                    least += min(value * a, value * b)
                    most += max(value * a, value * b)
                elif isinstance(atom, str):
                    outer[atom] = value
                else:
                    return False
            if common is None:
                common = coef, outer
            if coef == 0 or common != (coef, outer):
                return False
            low, high = (least, most) if low is None else (min(low, least), max(high, most))
        return common is not None and low is not None and high - low < abs(common[0])


def _accesses(loop: Loop) -> Iterator[tuple[str, tuple[Expr, ...]]]:
    def reads(expr: Expr) -> Iterator[Load]:
        return loads(expr)

    for met in visit(loop.body):
        for expr in stmt_exprs(met.stmt):
            yield from ((r.buffer, r.indices) for r in reads(expr))
        if isinstance(met.stmt, Store):
            yield met.stmt.buffer, met.stmt.indices
