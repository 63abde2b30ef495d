"""Validity of statements: extents, writes, accumulations, loop kinds and storage scopes."""

from __future__ import annotations

from collections.abc import Iterator

from steptp.errors import LeirError
from steptp.ir.affine import form_of, is_injective, is_pure
from steptp.ir.nodes import If, Load, Loop, Path, Store
from steptp.ir.ops import REDUCERS
from steptp.ir.resets import reset_plan
from steptp.ir.survey import Met, Problem, Survey
from steptp.ir.types import DType, LoopKind, Scope
from steptp.ir.walk import free_vars, subexprs

__all__ = ["extents", "writes", "reducers", "resets", "lookup_writes", "kinds", "scopes"]


def extents(survey: Survey) -> Iterator[Problem]:
    for met in survey.met:
        if isinstance(met.stmt, Store):
            continue
        if not met.stmt.body:
            yield Problem("a loop or guard without a body", met.path)
        if isinstance(met.stmt, Loop) and any(isinstance(node, Load) for node in met.nodes):
            hint = "loop to the largest extent and guard the body"
            yield Problem(f"the extent of loop {met.stmt.var} reads memory", met.path, hint=hint)


def writes(survey: Survey) -> Iterator[Problem]:
    program = survey.program
    inputs = {b.name for b in program.inputs}
    written = {store.buffer for _, store in survey.stores}
    for met, store in survey.stores:
        if store.buffer in inputs:
            yield Problem(f"{store.buffer} is an input and cannot be written", met.path, hint="write to a temporary or an output")
    if not program.outputs:
        yield Problem("the program has no output", hint="declare one: out Y f32[N]")
    for buffer in program.outputs:
        if buffer.name not in written:
            yield Problem(f"output {buffer.name} is never written", name=buffer.name)
    for buffer in survey.tmps:
        if buffer.name not in written:
            yield Problem(f"temporary {buffer.name} is never written", name=buffer.name, hint="remove its declaration")


def reducers(survey: Survey) -> Iterator[Problem]:
    for met, store in survey.stores:
        if store.reduce is None:
            if store.carry:
                yield Problem("'carry' continues an accumulation; '=' does not accumulate", met.path)
            continue
        row = REDUCERS.get(store.reduce)
        if row is None:
            yield Problem(f"no reducer named {store.reduce!r}", met.path)
            continue
        is_bool = survey.table[store.buffer].dtype is DType.BOOL
        if is_bool != (store.reduce in ("or", "and")):
            hint = "bools accumulate with or= and and=" if is_bool else ""
            yield Problem(f"{row.token} does not fit {store.buffer}, which holds {survey.table[store.buffer].dtype}", met.path, hint=hint)


def resets(survey: Survey) -> Iterator[Problem]:
    first: dict[str, Path] = {}
    for met, store in survey.stores:
        if store.reduce not in REDUCERS or store.carry:
            continue
        try:
            reset_plan(survey.program, met.path)
        except LeirError as err:
            yield Problem(err.message, met.path, hint=err.hint)
            continue
        if any(isinstance(node, Load) for index in store.indices for node in subexprs(index)):
            yield Problem(f"the accumulation into {store.buffer} through a look-up cannot reset its target", met.path, hint=_CARRY)
        elif not _injective(survey, met, store):
            yield Problem(
                f"the accumulation into {store.buffer} would reset elements that other iterations have accumulated: its index is not injective",
                met.path,
                hint=_CARRY,
            )
        if store.buffer in first:
            message = f"a second resetting accumulation into {store.buffer} would discard the first"
            yield Problem(message, met.path, hint="write 'carry' to continue from the present value")
        first.setdefault(store.buffer, met.path)


_CARRY = "set the initial value with '=' and accumulate with 'carry'"


def _injective(survey: Survey, met: Met, store: Store) -> bool:
    indexing = frozenset().union(*(free_vars(i) for i in store.indices))
    if not indexing:
        return True
    depth = len(survey.declared[store.buffer])
    inside = [p.var for p in met.parents[depth:] if isinstance(p, Loop) and p.var in indexing]
    ranges = survey.ranges(met.parents)
    forms = [form_of(i, survey.env, ranges) for i in store.indices]
    return is_injective(forms, inside, ranges)


def lookup_writes(survey: Survey) -> Iterator[Problem]:
    for met, store in survey.stores:
        if not any(isinstance(node, Load) for index in store.indices for node in subexprs(index)):
            continue
        if store.reduce is None:
            yield Problem(f"a write to {store.buffer} through a look-up must carry", met.path, hint="write 'carry' with an accumulation")
        if any(loop.kind.is_concurrent for loop in met.loops):
            message = f"a write to {store.buffer} through a look-up cannot stand in a par, vec or bound loop: two iterations may hit one element"
            yield Problem(message, met.path)


def kinds(survey: Survey) -> Iterator[Problem]:
    for met in survey.met:
        if not isinstance(met.stmt, Loop):
            continue
        loop, around = met.stmt, tuple(met.loops)
        if any(outer.kind is LoopKind.VECTOR for outer in around):
            yield Problem(f"loop {loop.var} stands inside a vec loop", met.path, hint="a vec loop is innermost: it holds only stores and guards")
        if (loop.kind.is_bound or loop.kind is LoopKind.VECTOR) and not is_pure(loop.extent):
            yield Problem(f"the extent of {loop.kind} loop {loop.var} must hold only sizes", met.path, hint="loop to the largest extent and guard the body")
        if loop.kind is LoopKind.PARALLEL and any(outer.kind is LoopKind.PARALLEL or outer.kind.is_bound for outer in around):
            yield Problem(f"par loop {loop.var} stands inside a par or bound loop", met.path, hint="make it a 'for' loop, or fuse it with the outer one")
        if loop.kind.is_bound:
            if any(outer.kind is LoopKind.PARALLEL for outer in around):
                yield Problem(f"{loop.kind} loop {loop.var} stands inside a par loop", met.path)
            if any(outer.kind is loop.kind for outer in around):
                yield Problem(f"GPU axis {loop.kind} is bound twice, by {loop.var} and a loop around it", met.path)
            if loop.kind.is_block and any(outer.kind.is_thread for outer in around):
                yield Problem(f"block loop {loop.var} stands inside a thread loop", met.path, hint="put bx, by and bz loops outside tx, ty and tz loops")


def scopes(survey: Survey) -> Iterator[Problem]:
    for buffer in (*survey.program.inputs, *survey.program.outputs):
        if buffer.scope is not Scope.GLOBAL:
            yield Problem(f"interface tensor {buffer.name} must be global, not {buffer.scope}", name=buffer.name)
    narrow = {b.name: b.scope for b in survey.tmps if b.scope is not Scope.GLOBAL}
    if not narrow:
        return
    for met in survey.met:
        if isinstance(met.stmt, Loop):
            yield from _declared_shared(met.stmt, met)
        names = {node.buffer for node in met.nodes if isinstance(node, Load)}
        if isinstance(met.stmt, Store):
            names.add(met.stmt.buffer)
        for name in sorted(names & set(narrow)):
            yield from _reach(name, narrow[name], met, survey)
    for buffer in survey.program.tmps:
        if buffer.scope is Scope.SHARED:
            yield Problem(f"shared temporary {buffer.name} is declared outside any block loop", name=buffer.name, hint="declare it in a bx, by or bz loop")


def _declared_shared(loop: Loop, met: Met) -> Iterator[Problem]:
    for buffer in loop.tmps:
        if buffer.scope is Scope.SHARED:
            kinds_around = [outer.kind for outer in met.loops] + [loop.kind]
            if not any(k.is_block for k in kinds_around):
                hint = "declare it in a bx, by or bz loop"
                yield Problem(f"shared temporary {buffer.name} is declared outside any block loop", met.path, hint=hint)
            elif any(k.is_thread for k in kinds_around):
                hint = "declare it outside the thread loops"
                yield Problem(f"shared temporary {buffer.name} is declared inside a thread loop, where each thread would have its own", met.path, hint=hint)


def _reach(name: str, scope: Scope, met: Met, survey: Survey) -> Iterator[Problem]:
    """A loop between the declaration and the access that leaves the thread or block that may access the temporary."""
    for outer in met.parents[len(survey.declared[name]) :]:
        if isinstance(outer, If):
            continue
        crosses = outer.kind.is_block or outer.kind is LoopKind.PARALLEL or (scope is Scope.LOCAL and outer.kind.is_thread)
        if crosses:
            whom = "threads of one block" if scope is Scope.SHARED else "one thread"
            message = f"{scope} temporary {name} belongs to {whom}, but {outer.kind} loop {outer.var} lies between its declaration and this access"
            yield Problem(message, met.path)
            return
