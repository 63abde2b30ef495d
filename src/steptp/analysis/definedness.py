"""Is every element defined before it is read, and is every output fully written?

A read of a temporary or output is covered when stores that surely happen, earlier in the same iteration of all common loops, write at
least the elements that it reads. Reads that this does not cover (running state, prefix arrays) go to isl's exact dataflow
(last writer of every read). A temporary is fresh on every entry to the loop that declares it.
"""

from __future__ import annotations

from collections.abc import Iterator

import islpy as isl

from steptp.analysis.affine import CTX, DIM, Frame, box, point_of, sample
from steptp.analysis.model import Access, Model, Statement, common_loops
from steptp.analysis.problems import Problem
from steptp.ir.nodes import Program, Var

__all__ = ["definedness_problems", "undefined_part", "schedule_map", "copies"]


def definedness_problems(program: Program) -> Iterator[Problem]:
    """Reads of elements that were not written, and outputs with elements that are never written."""
    model = Model.of(program)
    writers: dict[str, list[Statement]] = {}
    for st in model.statements:
        if not st.never_runs:
            writers.setdefault(st.store.buffer, []).append(st)
    for st in (*model.statements, *model.conditions):
        if st.never_runs:
            continue
        seen: set[tuple[object, ...]] = set()
        for access in st.reads:
            if access.in_guard or model.declarations[access.buffer].role == "in":
                continue
            key = (access.buffer, access.indices, access.conditions)
            if key not in seen:
                seen.add(key)
                yield from _read(model, st, access, writers.get(access.buffer, []))
    for buffer in program.outputs:
        yield from _output(model, buffer.name, writers.get(buffer.name, []))


def _read(model: Model, st: Statement, access: Access, writers: list[Statement]) -> Iterator[Problem]:
    before = [w for w in writers if w.path < st.path]
    if any(_covers(w, access, common_loops(w, st)) for w in reversed(before)):
        return
    sure = [w for w in before if w.write.must]
    if sure and _included(access, sure):
        return
    missing = undefined_part(model, access, writers)
    if missing is None:
        return
    pair = sample(missing)
    assert pair is not None
    point, element = pair[0], pair[1][model.private_depth(st, access.buffer) :]
    certain = access.must and all(w.write.must for w in writers)
    shown = f"{access.buffer}[{','.join(map(str, element))}]"
    what = "that nothing has written yet" if certain else "and it is not proven that it was written before (look-ups or conditions on data)"
    yield Problem(
        "undefined", f"{st.instance(point)} reads {shown}, {what}", st.origin, certain, tuple(zip(st.vars, point, strict=True)), access.buffer, element
    )


def _covers(w: Statement, access: Access, common: int) -> bool:
    """Cheap sufficient test: without guards, dimension by dimension, ``w`` writes what the access reads (or is its own reset)."""
    st = access.statement
    if w.is_reset and w.origin == st.origin and access.load is None:
        return True
    if w.guards or w.rectangular is None or 0 in w.rectangular:
        return False
    shared = set(w.vars[:common])
    extents = dict(zip(w.vars, w.rectangular, strict=True))
    free = set(w.vars[common:])
    for f, g in zip(w.write.forms, access.forms, strict=True):
        if f is None or g is None:
            return False
        names = {v for v, _ in f[0]}
        if names <= shared and f == g:
            continue
        if len(f[0]) != 1 or f[0][0][1] != 1 or f[0][0][0] not in free:
            return False
        name = f[0][0][0]
        free.discard(name)
        low = high = g[1]
        for v, c in g[0]:
            start, end = st.intervals[v]
            low += min(c * start, c * end)
            high += max(c * start, c * end)
        if low < f[1] or high > f[1] + extents[name] - 1:
            return False
    return True


def _included(access: Access, writers: list[Statement]) -> bool:
    """Whether the writers, in the same iteration of the loops they share with the read, write all that it reads."""
    st = access.statement
    for depth in sorted({common_loops(w, st) for w in writers}, reverse=True):
        read = _projected(access.map, depth)
        done = isl.Map.empty(read.get_space())
        for w in writers:
            if common_loops(w, st) >= depth:
                done = done.union(_projected(w.write.map, depth))
        if read.is_subset(done):
            return True
    return False


def _projected(relation: isl.Map, depth: int) -> isl.Map:
    return relation.project_out(DIM.in_, depth, relation.dim(DIM.in_) - depth)


def copies(model: Model, access: Access) -> isl.Map:
    """Instances → (iterations of the loops a temporary is private to, element)."""
    private = model.private_depth(access.statement, access.buffer)
    if not private:
        return access.map
    dims = len(access.statement.vars)
    prefix = isl.Map.identity(isl.Space.alloc(CTX, 0, dims, dims)).project_out(DIM.out, private, dims - private)
    return prefix.flat_range_product(access.map)


def schedule_map(st: Statement, length: int) -> isl.Map:
    """Instances → dates, padded with zeros to ``length``."""
    frame: Frame = st.frame
    parts = isl.PwAffList.alloc(CTX, length)
    for n in range(length):
        date = st.time[n] if n < len(st.time) else 0
        parts = parts.add(frame.constant(date) if isinstance(date, int) else frame.aff(Var(date)))
    space = isl.Space.alloc(CTX, 0, len(st.vars), length)
    return isl.MultiPwAff.from_pw_aff_list(space, parts).as_map()


def undefined_part(model: Model, access: Access, writers: list[Statement]) -> isl.Map | None:
    """Instances → (private iterations, element) pairs of a read that no sure write precedes; ``None`` when there are none.

    Source of the method: array dataflow analysis (Feautrier 1991) as implemented by isl.
    """
    st = access.statement
    read = copies(model, access)
    if read.is_empty():
        return None
    length = max(len(w.time) for w in (st, *writers))
    schedule = isl.UnionMap.from_map(schedule_map(st, length).intersect_domain(st.domain).set_tuple_name(DIM.in_, "R"))
    info = isl.UnionAccessInfo.from_sink(isl.UnionMap.from_map(read.set_tuple_name(DIM.in_, "R").set_tuple_name(DIM.out, "E")))
    must = isl.UnionMap.empty(isl.Space.params_alloc(CTX, 0))
    for w in writers:
        if not w.write.must:
            continue
        # the statement itself reads before it writes: its write is dated in its own tuple, at the same date
        name = f"W{w.id}"
        must = must.union(isl.UnionMap.from_map(copies(model, w.write).set_tuple_name(DIM.in_, name).set_tuple_name(DIM.out, "E")))
        schedule = schedule.union(isl.UnionMap.from_map(schedule_map(w, length).intersect_domain(w.domain).set_tuple_name(DIM.in_, name)))
    flow = info.set_must_source(must).set_schedule_map(schedule).compute_flow()
    missing = flow.get_may_no_source()
    if missing.is_empty():
        return None
    return isl.Map.from_union_map(missing).reset_tuple_id(DIM.in_).reset_tuple_id(DIM.out)


def _output(model: Model, name: str, writers: list[Statement]) -> Iterator[Problem]:
    shape = model.declarations[name].shape
    if 0 in shape or any(_fills(w, shape) for w in writers):
        return
    missing = box(shape)
    for w in writers:
        if w.write.must:
            missing = missing.subtract(w.write.map.range())
    if missing.is_empty():
        return
    element = point_of(missing.lexmin().sample_point(), len(shape))
    maybe = missing
    for w in writers:
        if not w.write.must:
            maybe = maybe.subtract(w.write.map.range())
    certain = not maybe.is_empty()
    if certain:
        element = point_of(maybe.lexmin().sample_point(), len(shape))
    shown = f"{name}[{','.join(map(str, element))}]"
    message = f"output element {shown} is never written" if certain else f"it is not proven that output element {shown} is written"
    yield Problem("unwritten", message, writers[-1].origin if writers else (), certain, (), name, element)


def _fills(w: Statement, shape: tuple[int, ...]) -> bool:
    """Cheap sufficient test: every dimension has its own unguarded loop over the whole extent."""
    if w.guards or w.rectangular is None or 0 in w.rectangular:
        return False
    extents = dict(zip(w.vars, w.rectangular, strict=True))
    for f, size in zip(w.write.forms, shape, strict=True):
        if f is None:
            return False
        if size == 1 and not f[0] and f[1] == 0:
            continue
        if len(f[0]) != 1 or f[0][0][1] != 1 or f[1] > 0 or extents.pop(f[0][0][0], -1) + f[1] < size:
            return False
    return True
