"""Explanations of accesses that fail and of loops that race."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace

from steptp.analysis.dependence import Dependence, dependences
from steptp.analysis.problems import Problem, budget
from steptp.analysis.safety import safety_problems
from steptp.errors import LeirError
from steptp.interp.errors import EvalError
from steptp.interp.trace import Instance
from steptp.ir.nodes import Program, Store
from steptp.ir.sizes import eval_index, free_size_names, shape_of
from steptp.ir.sourcemap import SourceMap
from steptp.ir.walk import buffer_table, stores
from steptp.verify.cases import Case
from steptp.verify.explain_text import access_of, spot_of
from steptp.verify.explanation import Explanation, Spot, iteration
from steptp.verify.verdict import VerdictKind

__all__ = ["fault", "placed", "unflat", "unsafe"]

_TOUCHED = re.compile(r"(?:output )?(\w+): (?:element (\d+) \(flat\)|index (-?\d+) of dimension (\d+))")


def unsafe(base: Explanation, child: Program, kind: VerdictKind) -> Explanation:
    """What the proof of safety found, at the program's own sizes."""
    found = [p for p in safety_problems(child) if kind is VerdictKind.UNKNOWN or (p.certain and (p.code == "race") == (kind is VerdictKind.ILLEGAL))]
    if not found:
        return replace(base, notes=(base.message,))
    worst = found[0]
    sizes = tuple((s.name, s.value) for s in child.sizes)
    base = replace(base, output=worst.buffer, index=worst.element, sizes=sizes, how=worst.message)
    if worst.code == "race":
        return _race(base, child, worst)
    here = spot_of("child", child, worst.path, access_of(child, worst.path, worst.buffer), worst.instance)
    return replace(base, spots=(here,), notes=tuple(_about(child, child, worst.buffer, worst.code)))


def _race(base: Explanation, child: Program, worst: Problem) -> Explanation:
    """Both iterations, and where each touches the element."""
    with budget():
        fitting = [d for d in dependences(child) if d.buffer == worst.buffer and d.dst.origin == worst.path and worst.message.find(d.explain()) >= 0]
    here = spot_of("child", child, worst.path, access_of(child, worst.path, worst.buffer), worst.instance, "the later iteration in serial order")
    if not fitting:
        return replace(base, spots=(here,), notes=(f"the iteration: {iteration(worst.instance)}",))
    d: Dependence = fitting[0]
    first = tuple(zip(d.src.vars, d.sample[0], strict=True))
    there = spot_of("child", child, d.src.origin, access_of(child, d.src.origin, d.buffer), first, "the earlier iteration in serial order")
    loop = f"{d.loop.kind} loop {d.loop.var}" if d.loop is not None else "the kernel"
    note = f"{loop} may run the iterations {iteration(first)} and {iteration(worst.instance)} at once or in any order"
    return replace(base, spots=(there, here), notes=(note,))


def fault(base: Explanation, child: Program, case: Case, err: EvalError, run: Instance | None) -> Explanation:
    """The access that fails, its iteration and the bounds."""
    touched = _TOUCHED.match(err.message)
    base = placed(base, case)
    if touched is None:
        spots = () if run is None else (spot_of("child", child, run.path, None, run.at),)
        return replace(base, how=err.message, spots=spots)
    name, how = touched[1], err.message
    index: tuple[int, ...] = ()
    shape = shape_of(buffer_table(case.child)[name].shape, case.child)
    if touched[2] is not None:
        index = unflat(int(touched[2]), shape)
        how = err.message.replace(f"{name}: element {touched[2]} (flat)", f"{name}[{','.join(map(str, index))}]")
    elif run is not None and (met := access_of(child, run.path, name)) is not None:
        with suppress(LeirError):  # an index that is looked up
            index = tuple(eval_index(i, case.child.size_env | dict(run.at)) for i in met.indices)
            how = f"{name}[{','.join(map(str, index))}] is outside of its shape [{','.join(map(str, shape))}]: {err.message.partition(': ')[2]}"
    if run is None:
        place = SourceMap.of(child).name(name)
        spots = (Spot("child", place.line, place.column, place.length, place.filename, place.render(), (), name, ""),)
    else:
        what = "the reset of the accumulation" if run.is_reset else ""
        spots = (spot_of("child", child, run.path, access_of(child, run.path, name), run.at, what),)
    return replace(base, output=name, index=index, how=how, spots=spots, notes=tuple(_about(child, case.child, name, err.code)))


def _about(child: Program, bound: Program, name: str, code: str) -> Iterator[str]:
    """The array's shape for bounds, the stores that write it for undefined reads."""
    buffer = buffer_table(bound).get(name)
    if buffer is None:
        return
    if "bounds" in code:
        shape = shape_of(buffer.shape, bound)
        yield f"{name} has shape [{','.join(map(str, shape))}]"
    if "undefined" in code or code == "unwritten":
        lines = SourceMap.of(child)
        found = [str(lines.place(m.path).line) for m in stores(child) if isinstance(m.stmt, Store) and m.stmt.buffer == name]
        yield f"{name} is written in line {' and '.join(dict.fromkeys(found))}" if found else f"nothing writes {name}"


def unflat(flat: int, shape: tuple[int, ...]) -> tuple[int, ...]:
    strides = [math.prod(shape[d + 1 :]) for d in range(len(shape))]
    return tuple((flat // s) % n if n else 0 for s, n in zip(strides, shape, strict=True))


def placed(base: Explanation, case: Case) -> Explanation:
    values = case.parent.size_env | case.child.size_env
    names = dict.fromkeys((*free_size_names(case.parent), *free_size_names(case.child)))
    return replace(base, sizes=tuple((n, values[n]) for n in names), regime=case.regime, seed=case.seed, note=case.note)
