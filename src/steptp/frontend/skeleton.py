"""Skeletons: a naive program with sizes, constants, dtypes and pointwise functions erased.

Two workloads with equal skeletons need the same schedules, so the dataset keeps them on one side of a split: a *family* is a
connected component of naive programs with equal skeleton. What is left of a program:

- its tree of loops, named by depth, with extents erased except for the loop variables they depend on;
- for each store the target, the reducer, and the *set* of reads its value depends on, in order of appearance: any pointwise
  function of the same reads is the same (``max(x,0)``, ``0.5*x*(1+erf(x/1.4))``, ``x*x``); conditions over loop variables stay;
- for each index the loop variables it adds up, ``//`` and ``%`` of them, and look-ups; strides, offsets and constant indices go;
- arrays by role and order of appearance; a nest that only copies or rounds a temporary goes, and the two arrays count as one.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence

from steptp.ir.nodes import Body, Cast, Const, Expr, If, Load, Loop, Op, Program, Size, Stmt, Store, Var
from steptp.ir.walk import stores, subexprs

__all__ = ["skeleton", "skeleton_hash"]


def skeleton(program: Program) -> str:
    """The skeleton as text, one line a statement; its format may change, only equality means something."""
    return "\n".join(_Eraser(program).block(program.body, {}, ""))


def skeleton_hash(program: Program) -> str:
    """The first 16 hex digits of the sha256 of :func:`skeleton`."""
    return hashlib.sha256(skeleton(program).encode()).hexdigest()[:16]


class _Eraser:
    def __init__(self, program: Program) -> None:
        roles = {b.name: "I" for b in program.inputs} | {b.name: "O" for b in program.outputs}
        self.roles = roles
        self.names: dict[str, str] = {}
        self.alias: dict[str, str] = {}  # temporary → the array that a plain copy puts it in
        for met in stores(program):
            if isinstance(met.stmt, Store) and (source := _copied(met.stmt)) is not None and source not in roles and self.resolve(met.stmt.buffer) != source:
                self.alias.setdefault(source, met.stmt.buffer)

    def block(self, body: Body, depth: dict[str, str], indent: str) -> Iterator[str]:
        for stmt in body:
            if self.drops(stmt):
                continue
            if isinstance(stmt, Loop):
                name = f"l{len(depth)}"
                over = "".join(sorted({depth[v.name] for v in subexprs(stmt.extent) if isinstance(v, Var)}))
                yield f"{indent}for {name}{':' + over if over else ''}"
                yield from self.block(stmt.body, {**depth, stmt.var: name}, indent + " ")
            elif isinstance(stmt, If):
                yield f"{indent}if {' '.join(self.value(stmt.cond, depth))}"
                yield from self.block(stmt.body, depth, indent + " ")
            else:
                yield indent + self.store(stmt, depth)

    def store(self, stmt: Store, depth: dict[str, str]) -> str:
        reads = " ".join(self.value(stmt.value, depth))
        return f"{self.array(stmt.buffer)}[{self.indices(stmt.indices, depth)}] {stmt.reduce or ''}= {reads}"

    def drops(self, stmt: Stmt) -> bool:
        """Whether the statement is nothing but a copy into the array that stands for its source."""
        while isinstance(stmt, Loop) and len(stmt.body) == 1:
            stmt = stmt.body[0]
        return isinstance(stmt, Store) and (source := _copied(stmt)) is not None and self.alias.get(source) == stmt.buffer

    def resolve(self, name: str) -> str:
        while name in self.alias:
            name = self.alias[name]
        return name

    def array(self, name: str) -> str:
        name = self.resolve(name)
        role = self.roles.get(name, "T")
        if name not in self.names:
            self.names[name] = f"{role}{sum(1 for n in self.names if self.roles.get(n, 'T') == role)}"
        return self.names[name]

    def indices(self, indices: Sequence[Expr], depth: dict[str, str]) -> str:
        return ",".join(text for i in indices if (text := self.index(i, depth)))

    def value(self, expr: Expr, depth: dict[str, str]) -> list[str]:
        """Distinct reads and conditions over loop variables, in order of appearance."""
        found: list[str] = []
        stack = [expr]
        while stack:
            here = stack.pop()
            if isinstance(here, Load):
                found.append(f"{self.array(here.buffer)}[{self.indices(here.indices, depth)}]")
            elif isinstance(here, Cast):
                stack.append(here.arg)
            elif isinstance(here, Var):
                found.append(depth[here.name])
            elif isinstance(here, Op):
                if here.name in ("<", "<=", ">", ">=", "==", "!=") and not any(isinstance(e, Load) for e in subexprs(here)):
                    sides = [text for a in here.args if (text := self.index(a, depth))]
                    if sides:
                        found.append(f"?({','.join(sorted(sides))})")
                else:
                    stack.extend(reversed(here.args))
        return list(dict.fromkeys(found))

    def index(self, expr: Expr, depth: dict[str, str]) -> str:
        """The loop variables and look-ups an index adds up; empty for a constant."""
        return "+".join(sorted(self.terms(expr, depth)))

    def terms(self, expr: Expr, depth: dict[str, str]) -> set[str]:
        if isinstance(expr, (Const, Size)):
            return set()
        if isinstance(expr, Var):
            return {depth[expr.name]}
        if isinstance(expr, Cast):
            return self.terms(expr.arg, depth)
        if isinstance(expr, Load):
            return {f"{self.array(expr.buffer)}[{self.indices(expr.indices, depth)}]"}
        assert isinstance(expr, Op)
        found = set().union(*(self.terms(a, depth) for a in expr.args))
        return {f"({'+'.join(sorted(found))}){expr.name}"} if found and expr.name not in ("+", "-", "*", "neg") else found


def _copied(stmt: Store) -> str | None:
    """The array that ``stmt`` copies element for element, casts aside."""
    value = stmt.value
    while isinstance(value, Cast):
        value = value.arg
    if isinstance(value, Load) and stmt.reduce is None and value.indices == stmt.indices and value.buffer != stmt.buffer:
        return value.buffer
    return None
