"""Move a temporary to local or shared storage, or back to global."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from steptp.ir import Buffer, Path, Program, Scope, Store
from steptp.ir.kernels import SHARED_BYTES, bytes_of, placement
from steptp.ir.walk import all_tmps, loads, stmt_exprs
from steptp.rewrite.base import Applied, Exactness, Family, NotApplicable, Outcome, Site, Strategy
from steptp.rewrite.context import Context
from steptp.rewrite.fact_kinds import fact
from steptp.rewrite.gpu import crossing_problem, kernel_of, launch_problem, out_of_reach
from steptp.rewrite.strategies.layout_transformation import _redeclare
from steptp.rewrite.tools import identity_map

__all__ = ["SetStorageScope", "STRATEGY", "LOCAL_BYTES"]

LOCAL_BYTES = 32 * 1024
"""Largest local temporary: what a CPU thread keeps on its stack, and what a GPU thread still keeps near."""


class SetStorageScope(Strategy):
    """Site: path of the loop that declares ``buffer`` (empty: the program), ``scope`` = ``local``, ``shared`` or ``global``.

    ``local`` belongs to one thread: no ``par``, block or thread loop may lie between the declaration and an access. ``shared`` belongs to a block and is
    declared in a block loop outside thread loops. In kernels no value may pass to a thread or block that does not see the memory.

    Listed are steps that move the temporary in the lowered program: those of temporaries that a kernel declares. Outside of kernels a scope is only a
    claim about readers; the CPU back end allocates every temporary alike.
    """

    name = "set_storage_scope"
    family = Family.MEMORY
    classes = (Exactness.BITWISE,)
    summary = "move a temporary to local, shared or global storage"

    def sites(self, ctx: Context) -> Iterator[Site]:
        places = placement(ctx.program)
        for home, buffer in all_tmps(ctx.program):
            if kernel_of(ctx.program, home) is None:
                continue
            for scope in (Scope.LOCAL, Scope.SHARED, Scope.GLOBAL):
                child = _plan(ctx, home, buffer, scope) if scope is not buffer.scope else None
                if isinstance(child, Program) and placement(child)[buffer.name] is not places[buffer.name]:
                    yield Site.of(self.name, home, buffer=buffer.name, scope=str(scope))

    def apply(self, ctx: Context, site: Site) -> Outcome:
        params = dict(site.params)
        found = next(((home, b) for home, b in all_tmps(ctx.program) if b.name == params.get("buffer")), None)
        if set(params) != {"buffer", "scope"} or params["scope"] not in {str(s) for s in Scope}:
            return NotApplicable("bad-site", "set_storage_scope takes buffer=<name> and scope=local, shared or global")
        if found is None:
            return NotApplicable("not-a-tmp", f"{params['buffer']} is no temporary; inputs and outputs are global")
        home, buffer = found
        if site.path != home:
            return NotApplicable("bad-site", f"{buffer.name} is not declared there")
        scope = Scope(params["scope"])
        if scope is buffer.scope:
            return NotApplicable("no-op", f"{buffer.name} is {scope} already")
        child = _plan(ctx, home, buffer, scope)
        if isinstance(child, NotApplicable):
            return child
        facts = [fact("storage_scope", "child", buffer=buffer.name, old=str(buffer.scope), new=str(scope))]
        if scope is not Scope.GLOBAL:
            facts.append(fact("scope_bytes", "child", buffer=buffer.name, bytes=bytes_of(buffer, ctx.env), limit=_limit(scope), scope=str(scope)))
            facts.append(fact("one_holder", "dependence", buffer=buffer.name, holder="thread" if scope is Scope.LOCAL else "block"))
        back = Site.of(self.name, home, buffer=buffer.name, scope=str(buffer.scope))
        inverse = () if isinstance(_plan(Context.of(child), home, replace(buffer, scope=scope), buffer.scope), NotApplicable) else (back,)
        return Applied(child, Exactness.BITWISE, tuple(facts), identity_map(child), inverse=inverse)


def _limit(scope: Scope) -> int:
    return LOCAL_BYTES if scope is Scope.LOCAL else SHARED_BYTES


def _plan(ctx: Context, home: Path, buffer: Buffer, scope: Scope) -> Program | NotApplicable:
    """The program with the temporary in its new place, or why it cannot be there."""
    name = buffer.name
    if scope is Scope.SHARED and (problem := _not_in_a_block(ctx, home, name)) is not None:
        return problem
    if scope is not Scope.GLOBAL:
        if (problem := _out_of_reach(ctx, name, scope)) is not None:
            return problem
        if (size := bytes_of(buffer, ctx.env)) > _limit(scope):
            return NotApplicable("size", f"{name} takes {size} bytes; {scope} storage is for at most {_limit(scope)}")
    child = _redeclare(ctx.program, home, replace(buffer, scope=scope))
    return launch_problem(child) or crossing_problem(ctx, child, {}) or child


def _not_in_a_block(ctx: Context, home: Path, name: str) -> NotApplicable | None:
    around = [loop for _, loop in ctx.enclosing_loops((*home, 0))]
    if not any(loop.kind.is_block for loop in around):
        return NotApplicable("no-block", f"{name} is declared outside of any block loop, so there is no block to share it")
    if (inner := next((loop for loop in around if loop.kind.is_thread), None)) is not None:
        return NotApplicable("inside-thread", f"{name} is declared inside the {inner.kind} loop {inner.var}, where each thread has its own")
    return None


def _out_of_reach(ctx: Context, name: str, scope: Scope) -> NotApplicable | None:
    """An access inside a loop that other threads (or blocks) run."""
    for met in ctx.visits:
        if (isinstance(met.stmt, Store) and met.stmt.buffer == name) or any(e.buffer == name for x in stmt_exprs(met.stmt) for e in loads(x)):
            if (loop := out_of_reach(ctx, name, scope, met.path[:-1])) is not None:
                whom = "one thread" if scope is Scope.LOCAL else "one block"
                return NotApplicable("reach", f"{scope} storage belongs to {whom}, but {name} is touched inside the {loop.kind} loop {loop.var}")
    return None


STRATEGY = SetStorageScope()
