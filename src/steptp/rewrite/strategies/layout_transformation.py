"""Permute the dimensions of a temporary, or read an input through a permuted copy."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import permutations

from steptp.ir import Buffer, If, Load, Loop, Path, Program, Store, Var
from steptp.ir.nodes import Body, Expr, Stmt
from steptp.ir.sizes import shape_of
from steptp.ir.walk import all_tmps, buffer_table, declaring_path, map_expr
from steptp.rewrite.base import Applied, BufferMap, Exactness, Family, Forwarding, InstanceMap, NotApplicable, Outcome, Site, Strategy
from steptp.rewrite.context import Context
from steptp.rewrite.fact_kinds import fact
from steptp.rewrite.regions import reads_of, writes_of
from steptp.rewrite.strategies.expression_splitting import before_insertion
from steptp.rewrite.tools import identity_map, instance_map

__all__ = ["LayoutTransformation", "STRATEGY", "rewrite_accesses"]


class LayoutTransformation(Strategy):
    """Site: path of the loop that declares ``buffer`` (empty: the program); ``perm`` lists the old dimensions in their new order.

    A temporary is stored permuted. An input keeps its layout; a permuted copy is made at the start of the program (``via=copy``) and read instead.
    """

    name = "layout_transformation"
    family = Family.MEMORY
    classes = (Exactness.BITWISE,)
    summary = "permute the dimensions of a temporary, or of a copy of an input"

    def sites(self, ctx: Context) -> Iterator[Site]:
        read = ctx.touched(())[0]
        inputs = {b.name for b in ctx.program.inputs}
        for home, buffer in [*all_tmps(ctx.program), *(((), b) for b in ctx.program.inputs)]:
            if len(buffer.shape) < 2 or buffer.name not in read or len(buffer.shape) > 4:
                continue
            copied = buffer.name in inputs
            if copied and _only_copied(ctx, buffer.name):
                continue  # the input is read through a copy already, which can itself be permuted
            accesses = () if copied else _accesses(ctx, buffer.name)
            for perm in _permutations(len(buffer.shape)):
                text = ".".join(map(str, perm))
                if not copied and _symmetric(buffer, accesses, perm):
                    continue
                yield Site.of(self.name, home, buffer=buffer.name, perm=text, via="copy") if copied else Site.of(self.name, home, buffer=buffer.name, perm=text)

    def apply(self, ctx: Context, site: Site) -> Outcome:
        params = dict(site.params)
        buffer = buffer_table(ctx.program).get(str(params.get("buffer")))
        perm = _read_perm(params.get("perm"))
        if buffer is None or perm is None or set(params) - {"buffer", "perm", "via"}:
            return NotApplicable("bad-site", "layout_transformation takes buffer=<name>, perm=<old dimensions in new order, as 1.0> and, for inputs, via=copy")
        if sorted(perm) != list(range(len(buffer.shape))):
            return NotApplicable("perm", f"{buffer.name} has {len(buffer.shape)} dimensions, so {params['perm']} is no permutation of them")
        if list(perm) == sorted(perm):
            return NotApplicable("no-op", f"{params['perm']} leaves every dimension of {buffer.name} where it is")
        if site.path != declaring_path(ctx.program, buffer.name):
            return NotApplicable("bad-site", f"{buffer.name} is not declared there")
        if buffer in ctx.program.outputs:
            return NotApplicable("interface", f"{buffer.name} is an output, whose layout is part of the interface")
        if buffer in ctx.program.inputs:
            return _copy(ctx, buffer, perm) if params.get("via") == "copy" else NotApplicable("interface", f"{buffer.name} is an input; use via=copy")
        return _permute(ctx, site, buffer, perm) if "via" not in params else NotApplicable("bad-site", f"{buffer.name} is a temporary, which needs no copy")


def _permutations(rank: int) -> Iterator[tuple[int, ...]]:
    """All but the identity up to rank 3; for rank 4 those that move one dimension."""
    for perm in permutations(range(rank)):
        one_moved = any([x for x in perm if x != d] == sorted(x for x in perm if x != d) for d in perm)
        if list(perm) != sorted(perm) and (rank <= 3 or one_moved):
            yield perm


def _read_perm(text: object) -> tuple[int, ...] | None:
    parts = str(text).split(".")
    return tuple(map(int, parts)) if all(p.isdigit() for p in parts) else None


def _only_copied(ctx: Context, name: str) -> bool:
    """Whether every read of a buffer just copies elements elsewhere."""
    reading = [a.met.stmt for a in reads_of(ctx.program).get(name, ())]
    return all(isinstance(s, Store) and s.reduce is None and isinstance(s.value, Load) and s.value.buffer == name for s in reading)


def _accesses(ctx: Context, name: str) -> tuple[tuple[Expr, ...], ...]:
    """The indices of every read and write of a buffer."""
    return (*(a.indices for a in reads_of(ctx.program).get(name, ())), *(s.indices for _, s in writes_of(ctx).get(name, ())))


def _symmetric(buffer: Buffer, accesses: tuple[tuple[Expr, ...], ...], perm: Sequence[int]) -> bool:
    """Whether permuting changes neither the shape nor any access."""
    return all(tuple(i[d] for d in perm) == i for i in (buffer.shape, *accesses))


def rewrite_accesses(body: Body, old: str, new: str, perm: Sequence[int]) -> Body:
    """Every read and write of ``old`` becomes one of ``new`` with permuted indices."""

    def in_expr(expr: Expr) -> Expr:
        return map_expr(expr, lambda e: Load(new, tuple(e.indices[d] for d in perm), e.type) if isinstance(e, Load) and e.buffer == old else e)

    def one(stmt: Stmt) -> Stmt:
        if isinstance(stmt, Store):
            indices = tuple(in_expr(i) for i in stmt.indices)
            if stmt.buffer == old:
                return replace(stmt, buffer=new, indices=tuple(indices[d] for d in perm), value=in_expr(stmt.value))
            return replace(stmt, indices=indices, value=in_expr(stmt.value))
        inner = tuple(one(s) for s in stmt.body)
        return If(in_expr(stmt.cond), inner) if isinstance(stmt, If) else replace(stmt, extent=in_expr(stmt.extent), body=inner)

    return tuple(one(s) for s in body)


def _redeclare(program: Program, home: Path, buffer: Buffer) -> Program:
    def swap(tmps: tuple[Buffer, ...]) -> tuple[Buffer, ...]:
        return tuple(buffer if b.name == buffer.name else b for b in tmps)

    def one(stmt: Stmt) -> Stmt:
        if isinstance(stmt, Store):
            return stmt
        inner = tuple(one(s) for s in stmt.body)
        return If(stmt.cond, inner) if isinstance(stmt, If) else replace(stmt, body=inner, tmps=swap(stmt.tmps))

    return program.with_(tmps=swap(program.tmps)) if not home else program.with_(body=tuple(one(s) for s in program.body))


def _permute(ctx: Context, site: Site, buffer: Buffer, perm: tuple[int, ...]) -> Outcome:
    changed = replace(buffer, shape=tuple(buffer.shape[d] for d in perm))
    child = _redeclare(ctx.program.with_(body=rewrite_accesses(ctx.program.body, buffer.name, buffer.name, perm)), site.path, changed)
    back = tuple(perm.index(d) for d in range(len(perm)))
    same = identity_map(ctx.program)
    return Applied(
        child,
        Exactness.BITWISE,
        (
            fact("dimensions", "child", buffer=buffer.name, old=_dims(ctx, buffer), new=_dims(ctx, changed)),
            fact("accesses_rewritten", "child", buffer=buffer.name, count=len(_accesses(ctx, buffer.name))),
        ),
        InstanceMap(same.entries, (BufferMap(buffer.name, buffer.name, tuple(Var(f"d{d}") for d in perm)),)),
        Forwarding(),
        (Site.of(site.strategy, site.path, buffer=buffer.name, perm=".".join(map(str, back))),),
    )


def _dims(ctx: Context, buffer: Buffer) -> str:
    return "x".join(map(str, shape_of(buffer.shape, ctx.program)))


def _copy(ctx: Context, buffer: Buffer, perm: tuple[int, ...]) -> Outcome:
    program = ctx.program
    count = len(_accesses(ctx, buffer.name))
    if not count:
        return NotApplicable("not-read", f"nothing reads {buffer.name}")
    if _only_copied(ctx, buffer.name):
        return NotApplicable("copied", f"{buffer.name} is only copied already; permute the copy instead")
    (name,) = ctx.fresh_global(f"{buffer.name}t")
    rank = len(perm)
    names = ctx.fresh_vars((), *(f"p{d}" for d in range(rank)))
    permuted = Buffer(name, buffer.dtype, tuple(buffer.shape[d] for d in perm))
    source = Load(buffer.name, tuple(Var(names[perm.index(d)]) for d in range(rank)), buffer.dtype)
    nest: Stmt = Store(name, tuple(map(Var, names)), source)
    for var, extent in reversed(list(zip(names, permuted.shape, strict=True))):
        nest = Loop(var, extent, (nest,))
    body = rewrite_accesses(program.body, buffer.name, name, perm)
    child = program.with_(body=(nest, *body), tmps=(*program.tmps, permuted))
    return Applied(
        child,
        Exactness.BITWISE,
        (
            fact("buffer_added", "child", name=name, dtype=str(buffer.dtype), elements=math.prod(shape_of(permuted.shape, child))),
            fact("dimensions", "child", buffer=name, old=_dims(ctx, buffer), new=_dims(ctx, permuted)),
            fact("accesses_rewritten", "child", buffer=buffer.name, count=count),
        ),
        instance_map(program, child, lambda p: before_insertion(p, (0,)), lambda _: {}),
        Forwarding(tuple(((n,), (n + 1,)) for n in range(len(program.body)))),
    )


STRATEGY = LayoutTransformation()
