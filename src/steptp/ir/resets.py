"""Where accumulations reset, made explicit.

``X[i] op= e`` sets its target to the reducer's identity before the outermost enclosing loop, inside the target's
declaration, that does not index the target (``docs/leir.md``, *Accumulation*). :func:`materialize` writes those resets
out as ordinary stores in nests of their own, so that analyses, evaluators and back ends share one reading of the rule.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from steptp.errors import LeirError
from steptp.ir.nodes import Body, Expr, If, Loop, Op, Path, Program, Stmt, Store, identity_of
from steptp.ir.walk import buffer_table, declaring_path, enclosing, free_vars, get, loads, stores

__all__ = ["ResetPlan", "Origin", "Materialized", "reset_plan", "materialize", "conjuncts"]


@dataclass(frozen=True, slots=True)
class ResetPlan:
    """The reset of one accumulation: it runs just before the loop at ``before``; ``nest`` is the statement that does it."""

    store: Path
    before: Path
    nest: Stmt


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a store of a materialised program comes from: the original path, and whether it is that store's reset."""

    path: Path
    is_reset: bool


@dataclass(frozen=True, slots=True)
class Materialized:
    """A program whose accumulations all carry, with explicit resets; ``origin`` maps its store paths back."""

    program: Program
    origin: dict[Path, Origin]


def conjuncts(cond: Expr) -> Iterator[Expr]:
    """The parts of ``a and b and c``."""
    if isinstance(cond, Op) and cond.name == "and":
        yield from conjuncts(cond.args[0])
        yield from conjuncts(cond.args[1])
    else:
        yield cond


def reset_plan(program: Program, path: Path) -> ResetPlan:
    """The reset of the (non-carrying) accumulation at ``path``.

    Raises :class:`LeirError` ``check-reset`` when no enclosing loop inside the target's declaration leaves the
    target unindexed, or when the reset region would depend on a loop that the reset precedes.
    """
    kept = program._cache.setdefault("reset_plans", {})
    assert isinstance(kept, dict)
    if path not in kept:
        kept[path] = _plan(program, path)
    found = kept[path]
    assert isinstance(found, ResetPlan)
    return found


def _plan(program: Program, path: Path) -> ResetPlan:
    store = get(program, path)
    assert isinstance(store, Store)
    assert store.reduce is not None
    around = enclosing(program, path)
    depth = len(declaring_path(program, store.buffer))  # loops at positions >= depth are inside the declaration
    indexing = frozenset().union(*(free_vars(i) for i in store.indices))
    start = next((n for n in range(depth, len(around)) if isinstance(p := around[n], Loop) and p.var not in indexing), None)
    if start is None:
        raise LeirError(
            "check-reset",
            f"the accumulation into {store.buffer} has no enclosing loop that leaves {store.buffer} unindexed, so it would not accumulate anything",
            hint="write '=' for an assignment, or 'carry' to continue from the present value",
        )
    inner = around[start:]
    gone = {p.var for p in inner if isinstance(p, Loop) and p.var not in indexing}
    dtype = buffer_table(program)[store.buffer].dtype
    nest: Stmt = Store(store.buffer, store.indices, identity_of(store.reduce, dtype))
    for owner in reversed(inner):
        if isinstance(owner, If):
            kept = [c for c in conjuncts(owner.cond) if not free_vars(c) & gone and not any(loads(c))]
            for cond in reversed(kept):
                nest = If(cond, (nest,))
        elif owner.var in indexing:
            if free_vars(owner.extent) & gone:
                raise LeirError(
                    "check-reset",
                    f"the reset of {store.buffer} would depend on a loop inside it: the extent of {owner.var} changes with {sorted(free_vars(owner.extent) & gone)[0]}",
                    hint="set the initial value with '=' and accumulate with 'carry'",
                )
            nest = Loop(owner.var, owner.extent, (nest,), owner.kind)
    return ResetPlan(path, path[: start + 1], nest)


def materialize(program: Program) -> Materialized:
    """Write every reset out. Stores keep their order; resets stand just before the loop they precede.

    Raises :class:`LeirError` ``check-reset`` (see :func:`reset_plan`).
    """
    cached = program._cache.get("materialized")
    if isinstance(cached, Materialized):
        return cached
    plans: dict[Path, list[ResetPlan]] = {}
    for met in stores(program):
        assert isinstance(met.stmt, Store)
        if met.stmt.reduce is not None and not met.stmt.carry:
            plan = reset_plan(program, met.path)
            plans.setdefault(plan.before, []).append(plan)
    origin: dict[Path, Origin] = {}

    def rebuild(body: Body, old: Path, new: Path) -> Body:
        out: list[Stmt] = []
        for position, stmt in enumerate(body):
            here = (*old, position)
            for plan in plans.get(here, ()):
                _record(plan.nest, (*new, len(out)), Origin(plan.store, True), origin)
                out.append(plan.nest)
            there = (*new, len(out))
            if isinstance(stmt, Store):
                origin[there] = Origin(here, False)
                out.append(replace(stmt, carry=True) if stmt.reduce is not None else stmt)
            else:
                out.append(replace(stmt, body=rebuild(stmt.body, here, there)))
        return tuple(out)

    result = Materialized(program.with_(body=rebuild(program.body, (), ())), origin)
    program._cache["materialized"] = result
    return result


def _record(nest: Stmt, path: Path, source: Origin, origin: dict[Path, Origin]) -> None:
    while not isinstance(nest, Store):
        nest, path = nest.body[0], (*path, 0)
    origin[path] = source
