"""Reading through temporaries: a read of a purely defined temporary is replaced by the expression that defines it.

A temporary is *purely defined* when one plain store writes it, element by element (``T[i,j] = v``, the indices are the loops
between its declaration and the store), and nothing that the store reads is overwritten later. In a safe program (tier 1) a read ``T[f,g]``
then has the bits of ``v`` with ``i, j`` replaced by ``f, g``: the same operators, rounded in the same dtype, on unchanged elements. :func:`expand` also reads
through flattened dimensions, ``T[i*M+j]`` with ``j`` below ``M``: there ``i`` is ``f//M`` and ``j`` is ``f%M``, at the present sizes.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from steptp.analysis.affine import linear
from steptp.analysis.dependence import dependences
from steptp.analysis.model import Model, Statement
from steptp.ir.index import ix
from steptp.ir.nodes import Expr, Load, Program, Store, Var, op
from steptp.ir.walk import loads, map_expr, map_program_exprs, stmt_exprs, stores, subexprs, substitute, visit

__all__ = ["expand", "pure_definition"]

_LARGEST = 2000
"""Most nodes of one expression after expansion; larger ones stop it."""


def pure_definition(program: Program, name: str) -> Statement | None:
    """The one store that purely defines temporary ``name`` (see the module's text; no flattened dimensions), or ``None``."""
    found = _definition(program, name)
    return None if found is None or not all(isinstance(i, Var) for i in found[0].store.indices) else found[0]


def _definition(program: Program, name: str) -> tuple[Statement, dict[str, _Digit]] | None:
    """The one store that purely defines the temporary, flattened dimensions included, and where a read's indices hold each of its loop variables."""
    model = Model.of(program)
    declaration = model.declarations.get(name)
    if declaration is None or declaration.role != "tmp":
        return None
    writers = [s for s in model.statements if s.store.buffer == name]
    if len(writers) != 1 or writers[0].store.reduce is not None:
        return None
    st = writers[0]
    digits = _digits(st)
    if digits is None or set(digits) != set(st.vars[model.private_depth(st, name) :]):
        return None
    for access in st.reads:
        home = model.declarations[access.buffer].path
        if access.buffer == name or home != declaration.path[: len(home)]:
            return None  # recursive, or read from storage that does not live as long
    if any(d.src is st and d.buffer != name and "anti" in d.kinds for d in dependences(program)):
        return None
    return st, digits


@dataclass(frozen=True)
class _Digit:
    """A loop variable is ``index//weight%count`` of dimension ``dim``; without a division or remainder where they are 1 and 0."""

    dim: int
    weight: int = 1
    count: int = 0

    def of(self, indices: Sequence[Expr]) -> Expr:
        value = indices[self.dim]
        value = value if self.weight == 1 else op("//", value, ix(self.weight))
        return op("%", value, ix(self.count)) if self.count else value


def _digits(st: Statement) -> dict[str, _Digit] | None:
    """Each index a loop variable, or a number written in the loops' extents (``(i*M+j)*L+k``), every loop in one place: then elements name instances."""
    out: dict[str, _Digit] = {}
    extents = dict(zip(st.vars, st.rectangular, strict=True)) if st.rectangular is not None else {}
    for dim, index in enumerate(st.store.indices):
        if isinstance(index, Var):
            found = {index.name: _Digit(dim)}
        else:
            form = linear(index, st.frame.sizes)
            if form is None or form[1] != 0 or any(v not in extents or w < 1 for v, w in form[0]):
                return None
            found = {v: _Digit(dim, 1, 1) for v, _ in form[0] if extents[v] == 1}  # always 0
            terms = sorted((term for term in form[0] if term[0] not in found), key=lambda term: term[1])
            weight = 1
            for n, (var, own) in enumerate(terms):
                if own != weight or extents[var] < 1:
                    return None
                found[var] = _Digit(dim, weight, extents[var] if n + 1 < len(terms) else 0)
                weight *= extents[var]
        if found.keys() & out.keys():
            return None
        out |= found
    return out


def expand(program: Program, names: Collection[str] | None = None) -> Program:
    """Read through the purely defined temporaries in ``names`` (``None``: all). Stores stay where they are, so paths stay valid."""
    order = dict.fromkeys(met.stmt.buffer for met in stores(program) if isinstance(met.stmt, Store))
    for name in order:
        if names is not None and name not in names:
            continue
        found = _definition(program, name)
        if found is None or not any(e.buffer == name for met in visit(program) for x in stmt_exprs(met.stmt) for e in loads(x)):
            continue
        program = _through(program, name, *found) or program
    return program


def _through(program: Program, name: str, st: Statement, digits: Mapping[str, _Digit]) -> Program | None:
    value = st.store.value

    def leave(e: Expr) -> Expr:
        if isinstance(e, Load) and e.buffer == name:
            return substitute(value, {v: digit.of(e.indices) for v, digit in digits.items()})
        return e

    out = map_program_exprs(program, lambda e: map_expr(e, leave))
    largest = max(sum(1 for _ in subexprs(met.stmt.value)) for met in stores(out) if isinstance(met.stmt, Store))
    return None if largest > _LARGEST else out
