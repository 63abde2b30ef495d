"""Reading through temporaries: a read of a purely defined temporary is replaced by the expression that defines it.

A temporary is *purely defined* when one plain store writes it, element by element (``T[i,j] = v``, the indices are the loops
between its declaration and the store), and nothing that the store reads is overwritten later. In a safe program (tier 1) a read ``T[f,g]``
then has the bits of ``v`` with ``i, j`` replaced by ``f, g``: the same operators, rounded in the same dtype, on unchanged elements.
"""

from __future__ import annotations

from collections.abc import Collection

from steptp.analysis.dependence import dependences
from steptp.analysis.model import Model, Statement
from steptp.ir.nodes import Expr, Load, Program, Store, Var
from steptp.ir.walk import loads, map_expr, map_program_exprs, stmt_exprs, stores, subexprs, substitute, visit

__all__ = ["expand", "pure_definition"]

_LARGEST = 2000
"""Most nodes of one expression after expansion; larger ones stop it."""


def pure_definition(program: Program, name: str) -> Statement | None:
    """The one store that purely defines temporary ``name`` (see the module's text), or ``None``."""
    model = Model.of(program)
    declaration = model.declarations.get(name)
    if declaration is None or declaration.role != "tmp":
        return None
    writers = [s for s in model.statements if s.store.buffer == name]
    if len(writers) != 1 or writers[0].store.reduce is not None:
        return None
    st = writers[0]
    inner = st.vars[model.private_depth(st, name) :]
    indices = [i.name for i in st.store.indices if isinstance(i, Var)]
    plain = len(indices) == len(st.store.indices) == len(inner) and set(indices) == set(inner)
    if not plain:
        return None
    for access in st.reads:
        home = model.declarations[access.buffer].path
        if access.buffer == name or home != declaration.path[: len(home)]:
            return None  # recursive, or read from storage that does not live as long
    if any(d.src is st and d.buffer != name and "anti" in d.kinds for d in dependences(program)):
        return None
    return st


def expand(program: Program, names: Collection[str] | None = None) -> Program:
    """Read through the purely defined temporaries in ``names`` (``None``: all). Stores stay where they are, so paths stay valid."""
    order = dict.fromkeys(met.stmt.buffer for met in stores(program) if isinstance(met.stmt, Store))
    for name in order:
        if names is not None and name not in names:
            continue
        st = pure_definition(program, name)
        if st is None or not any(e.buffer == name for met in visit(program) for x in stmt_exprs(met.stmt) for e in loads(x)):
            continue
        program = _through(program, name, st) or program
    return program


def _through(program: Program, name: str, st: Statement) -> Program | None:
    value = st.store.value
    variables = [i.name for i in st.store.indices if isinstance(i, Var)]

    def leave(e: Expr) -> Expr:
        if isinstance(e, Load) and e.buffer == name:
            return substitute(value, dict(zip(variables, e.indices, strict=True)))
        return e

    out = map_program_exprs(program, lambda e: map_expr(e, leave))
    largest = max(sum(1 for _ in subexprs(met.stmt.value)) for met in stores(out) if isinstance(met.stmt, Store))
    return None if largest > _LARGEST else out
