"""Random renaming of what must not matter: loop variables, temporaries, sizes, and the order in which the last two are declared."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from typing import TypeVar

from steptp.ir import Body, Buffer, Expr, If, Load, Loop, Program, Size, SizeDecl, Stmt, Store, Var, is_name
from steptp.ir.walk import all_tmps, free_sizes, map_expr, used_names

__all__ = ["alpha_rename"]

_T = TypeVar("_T")


def alpha_rename(program: Program, rng: random.Random) -> Program:
    """The same program under other names; interface tensors keep theirs."""
    kept = {b.name for b in (*program.inputs, *program.outputs)}
    taken = set(used_names(program))

    def fresh() -> str:
        while True:
            name = "".join(rng.choice("abcdefgxyzN") for _ in range(rng.randint(1, 3))) + rng.choice(["", "", str(rng.randrange(100))])
            if is_name(name) and name not in taken:
                taken.add(name)
                return name

    sizes = {s.name: fresh() for s in program.sizes}
    tmps = {b.name: fresh() for _, b in all_tmps(program) if b.name not in kept}

    def expr(e: Expr, by: dict[str, str]) -> Expr:
        def leave(node: Expr) -> Expr:
            if isinstance(node, Var):
                return Var(by[node.name])
            if isinstance(node, Size):
                return Size(sizes[node.name])
            return Load(tmps.get(node.buffer, node.buffer), node.indices, node.type) if isinstance(node, Load) else node

        return map_expr(e, leave)

    def buffer(b: Buffer) -> Buffer:
        limits = (expr(b.range[0], {}), expr(b.range[1], {})) if b.range else None
        return replace(b, name=tmps.get(b.name, b.name), shape=tuple(expr(s, {}) for s in b.shape), range=limits)

    def shuffled(items: Sequence[_T]) -> tuple[_T, ...]:
        return tuple(rng.sample(list(items), len(items)))

    def body(statements: Body, by: dict[str, str]) -> Body:
        out: list[Stmt] = []
        for s in statements:
            if isinstance(s, Store):
                out.append(replace(s, buffer=tmps.get(s.buffer, s.buffer), indices=tuple(expr(i, by) for i in s.indices), value=expr(s.value, by)))
            elif isinstance(s, If):
                out.append(If(expr(s.cond, by), body(s.body, by)))
            else:
                var = fresh()
                out.append(Loop(var, expr(s.extent, by), body(s.body, {**by, s.var: var}), s.kind, shuffled([buffer(b) for b in s.tmps])))
        return tuple(out)

    decls = [SizeDecl(sizes[s.name], s.value, None if s.expr is None else expr(s.expr, {})) for s in program.sizes]
    ordered: list[SizeDecl] = []
    waiting = list(shuffled(decls))
    while waiting:  # any order in which sizes follow those they derive from
        ready = next(d for d in waiting if d.expr is None or free_sizes(d.expr) <= {o.name for o in ordered})
        waiting.remove(ready)
        ordered.append(ready)
    inputs, outputs = tuple(map(buffer, program.inputs)), tuple(map(buffer, program.outputs))
    constraints = shuffled([expr(c, {}) for c in program.constraints])
    return Program(tuple(ordered), inputs, outputs, body(program.body, {}), shuffled([buffer(b) for b in program.tmps]), constraints)
