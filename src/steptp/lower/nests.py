"""A program cut into separately compiled nests, so that a step recompiles only what it changed.

A nest is a top-level statement of the materialised program with the resets before it and the single stores behind it.
Temporaries that one nest alone uses stay inside it if they are small; the others are arguments, as inputs and outputs are.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod

from steptp.ir.nodes import Body, Buffer, Loop, Program, Store
from steptp.ir.resets import materialize
from steptp.ir.sizes import shape_of
from steptp.ir.walk import free_sizes, loads, stmt_exprs, visit
from steptp.lower import nodes as n
from steptp.lower.compile import compile_functions, threads_of
from steptp.lower.link import Code, load
from steptp.lower.options import BuildOptions
from steptp.lower.tir import STACK_BUFFER, lower_statements

__all__ = ["BUILDS", "Nest", "clear_nests", "compiled", "nests", "prebuild"]

BUILDS = {"hits": 0, "misses": 0}
"""How many nests of this process's builds were known, and how many were compiled."""

_Key = tuple[object, ...]
_CODE: OrderedDict[_Key, Code | None] = OrderedDict()
_LIMIT = 1024


@dataclass(frozen=True, slots=True)
class Nest:
    """Statements that are compiled together. ``params``: buffers passed to them; ``private``: temporaries of their own."""

    body: Body
    params: tuple[Buffer, ...]
    private: tuple[Buffer, ...]


def clear_nests() -> None:
    """Forget compiled code of this process (programs that were built keep theirs)."""
    _CODE.clear()


def nests(program: Program) -> list[Nest]:
    """The nests of a program in order; together they do what the program does."""
    done = materialize(program)
    ready = done.program
    groups: list[list[int]] = []
    waits = False  # the last group has nothing but resets and single stores so far
    for position, stmt in enumerate(ready.body):
        single = isinstance(stmt, Store)
        resets = all(done.origin[(position, *v.path[1:])].is_reset for v in visit((stmt,)) if isinstance(v.stmt, Store))
        if groups and (waits or (single and not resets)):
            groups[-1].append(position)
            waits = waits and (resets or single)
        else:
            groups.append([position])
            waits = resets or single
    bodies = [tuple(ready.body[p] for p in group) for group in groups]
    used = [_accessed(body) for body in bodies]
    uses = Counter(name for names in used for name in names)
    local = {b.name for b in ready.tmps if uses[b.name] == 1 and prod(shape_of(b.shape, ready)) * b.dtype.itemsize <= STACK_BUFFER}
    interface = (*ready.inputs, *ready.outputs, *ready.tmps)
    return [
        Nest(body, tuple(b for b in interface if b.name in names - local), tuple(b for b in ready.tmps if b.name in names & local))
        for body, names in zip(bodies, used, strict=True)
    ]


def _accessed(body: Body) -> frozenset[str]:
    """Names of the buffers that statements load or store."""
    names: set[str] = set()
    for met in visit(body):
        if isinstance(met.stmt, Store):
            names.add(met.stmt.buffer)
        names.update(found.buffer for expr in stmt_exprs(met.stmt) for found in loads(expr))
    return frozenset(names)


def _sizes(nest: Nest) -> Iterator[str]:
    """Names of the sizes that a nest's code depends on."""
    for met in visit(nest.body):
        for expr in stmt_exprs(met.stmt):
            yield from free_sizes(expr)
        if isinstance(met.stmt, Loop):
            for buffer in met.stmt.tmps:
                for dim in buffer.shape:
                    yield from free_sizes(dim)
    for buffer in (*nest.params, *nest.private):
        for dim in (*buffer.shape, *(buffer.range or ())):
            yield from free_sizes(dim)


def compiled(program: Program, options: BuildOptions) -> list[tuple[Code, tuple[Buffer, ...]]]:
    """The loaded code of every nest and the buffers it is called with; nests that do nothing are left out.

    Raises :class:`steptp.lower.BuildError` ``build-failed``.
    """
    keyed = _keyed(program, options)
    BUILDS["hits"] += sum(key in _CODE for key in keyed)
    _provide([(program, keyed)], options)
    found = []
    for key, nest in keyed.items():
        _CODE.move_to_end(key)
        code = _CODE[key]
        if code is not None:
            found.append((code, nest.params))
    while len(_CODE) > max(_LIMIT, len(keyed)):
        _CODE.popitem(last=False)
    return found


def prebuild(program: Program, ahead: Sequence[Program], options: BuildOptions) -> None:
    """Compile what a build of ``program`` lacks together with what builds of the programs ``ahead`` will lack.

    Much of an LLVM module's cost does not depend on what is in it. Raises :class:`steptp.lower.BuildError` ``build-failed``.
    """
    keyed = _keyed(program, options)
    if any(key not in _CODE for key in keyed):
        _provide([(program, keyed), *((later, _keyed(later, options)) for later in ahead)], options)


def _keyed(program: Program, options: BuildOptions) -> dict[_Key, Nest]:
    """The nests of a program in order, each by everything that its code depends on."""
    env, parallel = program.size_env, threads_of(options) > 1
    keyed: dict[_Key, Nest] = {}
    for nest in nests(program):
        sizes = tuple((name, env[name]) for name in sorted(set(_sizes(nest))))
        keyed[(nest, sizes, options.fma, options.opt_level, options.math, parallel)] = nest
    return keyed


def _provide(programs: Sequence[tuple[Program, dict[_Key, Nest]]], options: BuildOptions) -> None:
    """Compile the nests that are not known, all in one object."""
    lacking: dict[_Key, n.Expr] = {}
    parallel = threads_of(options) > 1
    for program, keyed in programs:
        ready = materialize(program).program
        for key, nest in keyed.items():
            if key not in _CODE and key not in lacking:
                lacking[key] = lower_statements(
                    ready, nest.body, nest.params, nest.private, fma=options.fma, math=options.math, parallel=parallel
                )  # fmt: skip
    BUILDS["misses"] += len(lacking)
    named = {f"nest{number}": func for number, func in enumerate(lacking.values()) if func is not None}
    code = load(compile_functions(named, options.opt_level), list(named)) if named else {}
    _CODE.update((key, code.get(f"nest{number}")) for number, key in enumerate(lacking))
