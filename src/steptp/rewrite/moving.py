"""Nests with one store, and what moving one under another loop needs: places in sites, names, guards and counts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from steptp.errors import LeirError
from steptp.ir import Expr, If, Loop, LoopKind, Op, Path, Program, Scope, Size, Stmt, Store, Var, ix, op, simplify_cond, simplify_index
from steptp.ir.resets import conjuncts
from steptp.ir.sizes import eval_index
from steptp.ir.walk import buffer_table, declaring_path, enclosing, free_vars, fresh_name, loads, map_expr, substitute
from steptp.rewrite.base import NotApplicable, ParamValue
from steptp.rewrite.context import Context, path_text
from steptp.rewrite.regions import Span, covers, resolved, tiling
from steptp.rewrite.second_copy import decided
from steptp.rewrite.tools import fold_multiples, substitute_body

__all__ = [
    "SingleNest",
    "single_nest",
    "inputs_of",
    "untiled",
    "place_param",
    "read_place",
    "run_count",
    "bounds",
    "rebuilt",
    "changed",
    "outer_extents",
    "NewLoop",
    "stores_between",
    "scope_problem",
]


@dataclass(frozen=True, slots=True)
class SingleNest:
    """A nest at ``path`` that holds one store; ``owners`` are its loops and guards, outermost first.

    ``origin``: the program's loop variables over those of ``owners``, where :func:`untiled` has collapsed pairs.
    """

    path: Path
    store_path: Path
    store: Store
    owners: tuple[Loop | If, ...]
    origin: tuple[tuple[str, Expr], ...] = ()

    @property
    def loops(self) -> tuple[Loop, ...]:
        return tuple(p for p in self.owners if isinstance(p, Loop))

    @property
    def vars(self) -> frozenset[str]:
        return frozenset(loop.var for loop in self.loops)

    def iters(self, by: Mapping[str, Expr], parent: Program, child: Program) -> dict[str, Expr]:
        """The parent's loop variables of the nest when those of ``owners`` become ``by``; tile sizes that the child no longer declares have their values."""
        gone = {name: ix(value) for name, value in parent.size_env.items() if name not in child.size_env}

        def valued(expr: Expr) -> Expr:
            return map_expr(expr, lambda e: gone.get(e.name, e) if isinstance(e, Size) else e)

        return {**by, **{v: simplify_index(valued(substitute(e, by))) for v, e in self.origin}}

    def dims(self) -> dict[int, Loop]:
        """Dimension of the target → the loop of the nest whose variable alone indexes it."""
        own = {loop.var: loop for loop in self.loops}
        return {d: own[i.name] for d, i in enumerate(self.store.indices) if isinstance(i, Var) and i.name in own}


def single_nest(ctx: Context, path: Path) -> SingleNest | NotApplicable:
    """The nest at ``path`` if it is a chain of loops and guards without temporaries around one store; kept with the program."""
    return ctx.kept("single_nest", path, lambda: _single_nest(ctx, path))


def _single_nest(ctx: Context, path: Path) -> SingleNest | NotApplicable:
    stmt, here = ctx.stmt(path), path
    owners: list[Loop | If] = []
    if not isinstance(stmt, Loop):
        return NotApplicable("not-a-nest", f"there is no nest of loops at {path_text(path)}")
    while not isinstance(stmt, Store):
        assert stmt is not None
        if len(stmt.body) != 1 or (isinstance(stmt, Loop) and stmt.tmps):
            what = f"loop {stmt.var}" if isinstance(stmt, Loop) else "the guard"
            return NotApplicable("not-single", f"{what} at {path_text(here)} holds more than one statement or a temporary; a nest with one store moves")
        owners.append(stmt)
        stmt, here = stmt.body[0], (*here, 0)
    return SingleNest(path, here, stmt, tuple(owners))


def inputs_of(ctx: Context, nest: SingleNest) -> frozenset[str]:
    """The buffers that the store of a nest reads, its target not counted; kept with the program."""
    return ctx.kept("inputs_of", nest.path, lambda: frozenset(e.buffer for x in (*nest.store.indices, nest.store.value) for e in loads(x)))


def untiled(ctx: Context, nest: SingleNest) -> SingleNest:
    """The nest with the loop pairs of splits that index its target (``i0*T+i1``) collapsed, so that one loop runs along each dimension; guards of tails go. Kept with the program."""
    return ctx.kept("untiled", nest.path, lambda: _untiled(ctx, nest))


def _untiled(ctx: Context, nest: SingleNest) -> SingleNest:
    while (pair := _pair_of_split(nest)) is not None:
        collapsed = _collapsed(ctx, nest, *pair)
        if collapsed is None:
            return nest
        nest = collapsed
    return nest


def _pair_of_split(nest: SingleNest) -> tuple[Loop, Loop] | None:
    """Loops ``outer`` and ``inner`` of which an index of the target holds ``outer*T+inner``, where ``inner`` runs below ``T``."""
    own = {loop.var: loop for loop in nest.loops}
    for index in nest.store.indices:
        if isinstance(index, Var):
            continue
        mine = sorted(free_vars(index) & own.keys())
        for a in mine:
            for b in mine:
                rest = simplify_index(index - Var(a) * own[b].extent - Var(b))
                if a != b and not free_vars(rest) & {a, b}:
                    return own[a], own[b]
    return None


def _collapsed(ctx: Context, nest: SingleNest, outer: Loop, inner: Loop) -> SingleNest | None:
    """One loop for the pair; ``None`` where something depends on one of both alone, or extents vary."""
    if free_vars(outer.extent) or free_vars(inner.extent) or outer.kind.is_bound or inner.kind.is_bound:
        return None
    name = fresh_name(outer.var.rstrip("0123456789") or outer.var, {p.var for p in nest.loops} | ctx.taken(nest.path))
    by = {inner.var: simplify_index(Var(name) - Var(outer.var) * inner.extent)}
    store = changed(nest.store, by, {})
    assert isinstance(store, Store)
    extent = fold_multiples(ctx.program, op("*", outer.extent, inner.extent))
    owners: list[Loop | If] = []
    tail: Expr | None = None
    for owner in nest.owners:
        if isinstance(owner, If):
            for cond in conjuncts(_expr(owner.cond, by, {})):
                limit = cond.args[1] if isinstance(cond, Op) and cond.name == "<" and cond.args[0] == Var(name) else None
                if tail is None and limit is not None and not free_vars(limit) and covers(ctx.program, extent, limit) is not None:
                    tail = limit
                else:
                    owners.append(If(cond, ()))
        elif owner is not inner:
            owners.append(owner if owner is outer else replace(owner, extent=_expr(owner.extent, by, {})))
    made = tuple(Loop(name, tail if tail is not None else extent, (), outer.kind) if p is outer else p for p in owners)
    exprs = [*store.indices, store.value, *(p.extent if isinstance(p, Loop) else p.cond for p in made)]
    if any({outer.var, inner.var} & free_vars(e) for e in exprs):
        return None
    parts: dict[str, Expr] = {outer.var: op("//", Var(name), inner.extent), inner.var: op("%", Var(name), inner.extent)}
    given = {v for v, _ in nest.origin}
    virtual = {v for _, e in nest.origin for v in free_vars(e)}
    origin = [(v, substitute(e, parts)) for v, e in nest.origin] + [(v, e) for v, e in parts.items() if v not in virtual and v not in given]
    return replace(nest, store=store, owners=made, origin=tuple(origin))


# places and counts


def place_param(path: Path) -> ParamValue:
    """A path as the value of a site parameter; it reads back as itself."""
    return path[0] if len(path) == 1 else path_text(path)


def read_place(value: ParamValue | None) -> Path | None:
    """The path that :func:`place_param` wrote, or ``None``."""
    try:
        return tuple(int(n) for n in str(value).split("."))
    except ValueError:
        return None


def run_count(program: Program, path: Path) -> int | None:
    """How often the statement at ``path`` runs at the present sizes, guards not counted; ``None`` where extents vary."""
    total = 1
    for owner in enclosing(program, path):
        if isinstance(owner, Loop):
            try:
                total *= max(eval_index(owner.extent, program.size_env), 0)
            except LeirError:
                return None
    return total


# regions


def outer_extents(ctx: Context, loop: Path, above: Path = ()) -> dict[str, Expr]:
    """Variable → extent of the loops from below ``above`` down to the one at ``loop``, itself included."""
    met = {p: s for p, s in ctx.enclosing_loops((*loop, 0)) if len(p) > len(above)}
    return {s.var: s.extent for s in met.values()}


def bounds(program: Program, span: Span, var: str, extent: Expr, outer: Mapping[str, Expr]) -> list[Expr]:
    """The conditions that keep the span's index (``base+var``) in ``0 .. extent-1``, as far as they don't hold for all sizes."""
    found = tiling(program, span, outer)
    if found is not None and covers(program, found[1], extent) == "exact":
        return []
    at = span.base if span.single else simplify_index(span.base + Var(var))
    out = [op("<=", ix(0), at)]
    if free_vars(span.base) or resolved(program, span.base + span.size) != resolved(program, extent):
        out.append(op("<", at, extent))
    inside = {**outer, var: span.size}
    return [simplify_cond(c) for c in out if decided(c, inside) is not True]


def changed(stmt: Stmt, by: Mapping[str, Expr], around: Mapping[str, Expr]) -> Stmt:
    """A statement with loop variables replaced, in canonical form."""
    return substitute_body((stmt,), by, around)[0]


def _expr(expr: Expr, by: Mapping[str, Expr], around: Mapping[str, Expr]) -> Expr:
    made = changed(Store("", (), expr), by, around)
    assert isinstance(made, Store)
    return made.value


@dataclass(frozen=True, slots=True)
class NewLoop:
    """What stands for a loop of a moved nest: ``var`` of ``extent`` (no loop when empty), the old variable's value, guards inside."""

    var: str
    extent: Expr
    becomes: Expr
    conds: tuple[Expr, ...] = ()


def rebuilt(nest: SingleNest, store: Store, made: Mapping[str, NewLoop], around: Mapping[str, Expr]) -> tuple[Stmt, Path]:
    """The nest with its loops replaced by ``made`` around ``store`` (already rewritten), and where the store stands below its top.

    Guards of the nest are rewritten; parallel loops become serial.
    """
    by = {v: m.becomes for v, m in made.items()}
    extents = dict(around)
    layers: list[Loop | If] = []
    for owner in nest.owners:
        if isinstance(owner, If):
            layers.append(If(_expr(owner.cond, by, extents), ()))
            continue
        new = made[owner.var]
        if new.var:
            extents[new.var] = new.extent
            kind = owner.kind if not owner.kind.is_concurrent or owner.kind is LoopKind.VECTOR else LoopKind.SERIAL
            layers.append(Loop(new.var, new.extent, (), kind))
        if new.conds:
            whole = new.conds[0]
            for cond in new.conds[1:]:
                whole = op("and", whole, cond)
            layers.append(If(whole, ()))
    out: Stmt = store
    for layer in reversed(layers):
        out = replace(layer, body=(out,))
    return out, (0,) * len(layers)


def scope_problem(ctx: Context, nest: SingleNest, target: Path) -> NotApplicable | None:
    """A shared or local temporary that the nest could no longer reach from under concurrent loops at or above ``target``."""
    crossed = [
        loop for p, loop in ctx.enclosing_loops((*target, 0)) if len(p) >= len(nest.path) and loop.kind.is_concurrent and loop.kind is not LoopKind.VECTOR
    ]
    if not crossed:
        return None
    table = buffer_table(ctx.program)
    exprs = (*nest.store.indices, nest.store.value, *(p.extent if isinstance(p, Loop) else p.cond for p in nest.owners))
    for name in (nest.store.buffer, *(e.buffer for x in exprs for e in loads(x))):
        if table[name].scope is not Scope.GLOBAL and len(declaring_path(ctx.program, name)) < len(target):
            return NotApplicable("scope", f"the {table[name].scope} temporary {name} cannot be reached from under the {crossed[0].kind} loop {crossed[0].var}")
    return None


def stores_between(ctx: Context, first: Path, last: Path) -> Iterator[tuple[Path, Store]]:
    """The stores behind the statement at ``first`` up to and in its later sibling at ``last``."""
    depth = len(first) - 1
    for path, store in ctx.stores:
        if path[:depth] == first[:depth] and len(path) > depth and first[depth] < path[depth] <= last[depth]:
            yield path, store
