"""Tier 2: is the child the same set of operations as the parent, under a legal order?

The strategy hands over an instance map (which child store runs which parent instances). Nothing else of the strategy is
trusted. Proven here, for programs that tier 1 finds safe, exactly and for all inputs at their real sizes: every parent instance runs exactly once; every
child instance evaluates the parent's operator tree on the same elements; every dependence of the parent keeps its direction,
resets of accumulations included; and no value is lost where a temporary lives elsewhere. Stores of temporaries that only one
of the programs has (inlined, split off, copied) need no entry when they are purely defined (:mod:`steptp.analysis.expand`) or only
copied out (:mod:`steptp.analysis.promote`).
"""

from __future__ import annotations

import math
import time

import islpy as isl

from steptp.analysis.affine import DIM, Frame, box, map_between
from steptp.analysis.coverage import coverage_problem
from steptp.analysis.equal import Place, compare_statements
from steptp.analysis.expand import expand
from steptp.analysis.mapping import Links, link_statements, order_of_links
from steptp.analysis.model import Model, Statement
from steptp.analysis.order import Order, Violation
from steptp.analysis.problems import BudgetExceeded, budget
from steptp.analysis.promote import is_self_copy, promote
from steptp.analysis.storage import storage_problem
from steptp.errors import LeirError
from steptp.ir.nodes import Path, Program, Store, Var
from steptp.ir.walk import free_vars, get, loads
from steptp.rewrite.base import Exactness, InstanceMap
from steptp.verify.verdict import Counterexample, TierReport, VerdictKind

__all__ = ["tier2"]


class _Stop(Exception):
    """The first finding that decides."""

    def __init__(
        self, kind: VerdictKind, message: str, statement: Statement | None = None, point: tuple[int, ...] | None = None, *, expressions: bool = False
    ) -> None:
        super().__init__(message)
        self.expressions = expressions
        self.kind = kind
        self.message = message
        self.statement = statement
        self.point = point


def tier2(parent: Program, child: Program, instances: InstanceMap, exactness: Exactness) -> TierReport:
    """``ok``: proven the same schedule of operations for all inputs.

    ``illegal``: a dependence is broken (a reassociated accumulation counts when ``exactness`` is ``bitwise``); ``not_equal``: an
    instance is missing, doubled or computes something else; ``unknown``: outside of the fragment (buffers without a place, maps that are
    not quasi-affine), tier 3 decides. Evidence: ``class`` (``bitwise`` or ``reassociated``), ``statements``, ``instances`` (where countable
    cheaply), ``dependences``, ``dropped`` (dead stores). Orders of ``max``, ``min``, ``and``, ``or`` and integer accumulations count as equal bits
    (of equal elements, max and min return the same up to the sign of zero and the payload of NaN).
    """
    start = time.perf_counter()
    evidence: dict[str, object] = {}
    try:
        with budget():
            kind, message = VerdictKind.OK, _prove(parent, child, instances, exactness, evidence)
        found: _Stop | None = None
    except _Stop as stop:
        kind, message, found = stop.kind, stop.message, stop
    except LeirError as err:
        kind, message, found = VerdictKind.UNKNOWN, err.message, None
    except BudgetExceeded as err:
        kind, message, found = VerdictKind.UNKNOWN, f"the proof needs more polyhedral work than its budget ({err})", None
    return TierReport(2, kind, message, evidence, _counterexample(found, child), time.perf_counter() - start)


def _prove(parent: Program, child: Program, instances: InstanceMap, exactness: Exactness, evidence: dict[str, object]) -> str:
    """With local accumulators in place of what they are copied to; where expressions differ, once more with the copies read through.

    Either reading is the same program, so one that agrees is a proof. Only one side may show a copy out, and then they agree in the second.
    """
    _same_sizes(parent, child)
    for program, who in ((parent, "parent"), (child, "child")):
        _stable_guards(Model.of(program), who)
    mine = {e.parent for e in instances.entries} | _dead(parent)
    theirs = {e.child for e in instances.entries}
    first, second = _promoted(parent, mine), _promoted(child, theirs)
    try:
        return _compared(_read_through(first, mine), _read_through(second, theirs), instances, exactness, evidence)
    except _Stop as stop:
        if stop.kind is not VerdictKind.NOT_EQUAL or not stop.expressions or (first is parent and second is child):
            raise
        first_stop = stop
    try:
        return _compared(_read_through(parent, mine), _read_through(child, theirs), instances, exactness, evidence)
    except _Stop as again:
        raise again if again.kind is VerdictKind.UNKNOWN else first_stop from None


def _compared(first: Program, second: Program, instances: InstanceMap, exactness: Exactness, evidence: dict[str, object]) -> str:
    """Directly first; where expressions differ, once more with reads of purely defined temporaries replaced by their definitions.

    At first those of the temporaries that only one side reads, then all.
    """
    try:
        return _attempt(first, second, instances, exactness, evidence)
    except _Stop as stop:
        if stop.kind is not VerdictKind.NOT_EQUAL or not stop.expressions:
            raise
    evidence["expanded"] = True
    some = _read_by_one_side(first, second, instances)
    few = expand(first, some), expand(second, some)
    try:
        return _attempt(few[0], few[1], instances, exactness, evidence)
    except _Stop as stop:
        whole = expand(few[0]), expand(few[1])
        if stop.kind is not VerdictKind.NOT_EQUAL or not stop.expressions or (whole[0] is few[0] and whole[1] is few[1]):
            raise
    return _attempt(whole[0], whole[1], instances, exactness, evidence)


def _read_by_one_side(parent: Program, child: Program, instances: InstanceMap) -> frozenset[str]:
    """Buffers that one of two linked stores reads and the other does not: expanding these is mostly enough, and much cheaper."""
    out: set[str] = set()
    for entry in instances.entries:
        a, b = get(parent, entry.parent), get(child, entry.child)
        if isinstance(a, Store) and isinstance(b, Store):
            out |= {e.buffer for e in loads(a.value)} ^ {e.buffer for e in loads(b.value)}
    return frozenset(out)


def _dead(program: Program) -> set[Path]:
    """Stores into temporaries that nothing reads: the child may leave them out, so they are not taken for copies of what the child computes in place."""
    model = Model.of(program)
    read = {a.buffer for st in (*model.statements, *model.conditions) for a in st.reads if a.load is not None}
    return {st.origin for st in model.statements if model.declarations[st.store.buffer].role == "tmp" and st.store.buffer not in read}


def _promoted(program: Program, linked: set[Path]) -> Program:
    """The program without the local accumulators that stores outside of the instance map only copy out."""
    return program if all(st.origin in linked for st in Model.of(program).statements) else promote(program, linked)


def _read_through(program: Program, linked: set[Path]) -> Program:
    """The program with reads of temporaries that only stores outside of the instance map write replaced by their definitions, where they have one."""
    names = frozenset(st.store.buffer for st in Model.of(program).statements if st.origin not in linked and not st.is_reset)
    return expand(program, names) if names else program


def _attempt(parent: Program, child: Program, instances: InstanceMap, exactness: Exactness, evidence: dict[str, object]) -> str:
    before, after = Model.of(parent), Model.of(child)
    links = link_statements(before, after, [(e.child, e.parent, dict(e.iters)) for e in instances.entries])
    if links.problem:
        raise _Stop(VerdictKind.UNKNOWN, links.problem)
    places = _places(before, after, links, instances)
    dropped = _dropped(before, after, links)
    evidence.update(statements=len(after.statements), dropped=[st.name for st in dropped])
    evidence["instances"] = sum(math.prod(st.rectangular) for st in after.statements if st.rectangular is not None and not st.guards)
    for st in before.statements:
        if st not in dropped:
            gap = coverage_problem(st, links.by_parent.get(st.id, []))
            if gap is not None:
                raise _Stop(VerdictKind.NOT_EQUAL if gap.certain else VerdictKind.UNKNOWN, gap.message, st, gap.point)
    for link in links.links:
        difference = compare_statements(link, places)
        if difference is not None:
            raise _Stop(VerdictKind.NOT_EQUAL, difference.message, link.child, difference.point, expressions=True)
    order = order_of_links(parent, links)
    evidence["dependences"] = order.checked
    if order.broken:
        bad = order.broken[0]
        raise _Stop(VerdictKind.ILLEGAL, f"the child breaks a dependence: {bad.explain()}", bad.dependence.dst, bad.pair[1])
    moved = storage_problem(parent, child, links, places)
    if moved is not None:
        raise _Stop(VerdictKind.ILLEGAL if moved.lost else VerdictKind.UNKNOWN, moved.message)
    return _class(before, order, exactness, evidence)


def _class(before: Model, order: Order, exactness: Exactness, evidence: dict[str, object]) -> str:
    changed = [v for v in order.reassociated if _order_matters(before, v)]
    evidence["class"] = str(Exactness.REASSOCIATED if changed else Exactness.BITWISE)
    if changed and exactness is Exactness.BITWISE:
        bad = changed[0]
        raise _Stop(VerdictKind.ILLEGAL, f"claimed bitwise, but an accumulation runs in another order: {bad.explain()}", bad.dependence.dst, bad.pair[1])
    return "the same operations on the same elements, every dependence kept" + (", accumulations reassociated" if changed else "")


def _order_matters(model: Model, violation: Violation) -> bool:
    st = violation.dependence.src
    return st.store.reduce in ("+", "*") and model.declarations[st.store.buffer].buffer.dtype.is_float


def _same_sizes(parent: Program, child: Program) -> None:
    mine = child.size_env
    for name, value in parent.size_env.items():
        if mine.get(name, value) != value:
            raise _Stop(VerdictKind.UNKNOWN, f"size {name} is {value} in the parent and {mine[name]} in the child")
    for kind, a, b in (("input", parent.inputs, child.inputs), ("output", parent.outputs, child.outputs)):
        before, after = Model.of(parent).declarations, Model.of(child).declarations
        if [(x.name, x.dtype, before[x.name].shape) for x in a] != [(x.name, x.dtype, after[x.name].shape) for x in b]:
            raise _Stop(VerdictKind.NOT_EQUAL, f"the {kind}s of the child are not those of the parent")


def _stable_guards(model: Model, who: str) -> None:
    """A guard must not read what its own body writes: the model dates its reads with each statement of the body."""
    for guard in model.conditions:
        read = {a.buffer for a in guard.reads}
        for st in model.statements:
            if st.path[: len(guard.path)] == guard.path and st.store.buffer in read:
                raise _Stop(VerdictKind.UNKNOWN, f"a guard of the {who} reads {st.store.buffer}, which its body writes")


def _places(before: Model, after: Model, links: Links, instances: InstanceMap) -> dict[str, Place]:
    """Where each parent buffer lives in the child. Index maps must be injective and no two buffers may share one."""
    named = {m.parent: m for m in instances.buffers}
    out: dict[str, Place] = {}
    for name, declaration in before.declarations.items():
        entry = named.get(name)
        place = Place(name) if entry is None else Place(entry.child, entry.indices)
        target = after.declarations.get(place.buffer)
        if target is None or target.buffer.dtype is not declaration.buffer.dtype:
            continue  # reads and writes of it will not match; a dead buffer does not matter
        if declaration.role != "tmp" and (place.indices is not None or place.buffer != name):
            raise _Stop(VerdictKind.UNKNOWN, f"the interface tensor {name} may not move")
        if place.indices is None and len(target.shape) != len(declaration.shape):
            raise _Stop(VerdictKind.UNKNOWN, f"{name} has another rank in the child and the instance map does not say where its elements are")
        if place.indices is not None:
            if entry is not None and entry.per_iteration:
                _injective_in_iterations(before, after, links, name, place)
            else:
                _injective(before, name, place)
        out[name] = place
    used = [p.buffer for p in out.values()]
    for name in used:
        if used.count(name) > 1:
            raise _Stop(VerdictKind.UNKNOWN, f"two buffers of the parent live in {name}")
    return out


def _injective(before: Model, name: str, place: Place) -> None:
    """The index map, over dimensions ``d0`` … and the parent's loops around the declaration, sends no two elements to one place.

    Loops that it does not name are left to the storage check: the temporary stays private to them, or shared in order.
    """
    assert place.indices is not None
    shape = before.declarations[name].shape
    user = next((st for st in before.statements if any(a.buffer == name for a in st.accesses)), None)
    named = frozenset().union(*(free_vars(e) for e in place.indices))
    outer = [v for v in user.vars[: before.private_depth(user, name)] if v in named] if user is not None else []
    trips = tuple(max(user.intervals[v][1] + 1, 0) for v in outer) if user is not None else ()
    frame = Frame([*outer, *(f"d{k}" for k in range(len(shape)))], before.sizes)
    functions = [frame.aff(e) for e in place.indices]
    relation, exact = map_between(frame, functions, [None] * len(functions))
    if not exact or not relation.intersect_domain(box((*trips, *shape))).is_injective():
        raise _Stop(VerdictKind.UNKNOWN, f"the index map of {name} is not an injective quasi-affine function")


def _injective_in_iterations(before: Model, after: Model, links: Links, name: str, place: Place) -> None:
    """The elements that one iteration of the child's loops around the declaration uses have places of their own in it.

    Iterations need not keep apart what they use: the temporary is fresh in each. That no value crosses from one to another is the storage check's.
    """
    assert place.indices is not None
    loops = _private_loops(after, place.buffer)
    shape = before.declarations[name].shape
    frame = Frame([*(f"@{v}" for v in loops), *(f"d{k}" for k in range(len(shape)))], {**before.sizes, **after.sizes})
    functions = [frame.aff(e) for e in (*(Var(f"@{v}") for v in loops), *place.indices)]
    relation, exact = map_between(frame, functions, [None] * len(functions))
    used = isl.Set.empty(frame.space)
    for link in links.links:
        for access in link.parent.accesses:
            if access.buffer != name:
                continue
            if link.child.vars[: len(loops)] != loops:
                raise _Stop(VerdictKind.UNKNOWN, f"{link.child.name} runs accesses to {name} outside of the loops that {place.buffer} is private to")
            reach = link.relation.apply_range(access.map)  # child instances → elements
            reach = reach.project_out(DIM.in_, len(loops), len(link.child.vars) - len(loops))
            used = used.union(reach.wrap().flatten().reset_tuple_id())
    if not exact or not relation.intersect_domain(used).is_injective():
        raise _Stop(VerdictKind.UNKNOWN, f"within an iteration, the index map of {name} is not an injective quasi-affine function")


def _private_loops(after: Model, buffer: str) -> tuple[str, ...]:
    """The loops of the child that a temporary is private to, the same wherever it is used."""
    users = [st for st in after.statements if any(a.buffer == buffer for a in st.accesses)]
    loops = {st.vars[: after.private_depth(st, buffer)] for st in users}
    if len(loops) != 1 or loops == {()}:
        raise _Stop(VerdictKind.UNKNOWN, f"{buffer} is not private to the same loops wherever it is used")
    return loops.pop()


def _dropped(before: Model, after: Model, links: Links) -> tuple[Statement, ...]:
    """Parent statements that the child need not run: nothing that it runs reads their temporary.

    Other statements must be linked, in the child too.
    """
    linked = {ln.child.id for ln in links.links}
    used = {a.buffer for st in after.statements if st.id in linked for a in st.reads} | {st.store.buffer for st in after.statements if st.id in linked}
    for st in after.statements:
        name = st.store.buffer
        if st.id not in linked and not st.never_runs and not is_self_copy(st) and (name in used or after.declarations[name].role != "tmp"):
            raise _Stop(VerdictKind.UNKNOWN, f"{st.name} of the child (it writes {name}) stands for no store of the parent")
    missing = [st for st in before.statements if st.id not in links.by_parent and not st.never_runs]
    read = {a.buffer for st in before.statements if st not in missing for a in st.reads if a.load is not None}
    written = {st.store.buffer for st in before.statements if st not in missing}
    out = []
    for st in missing:
        name = st.store.buffer
        if is_self_copy(st) or (before.declarations[name].role == "tmp" and name not in read and name not in written):
            out.append(st)
    return tuple(out)


def _counterexample(found: _Stop | None, child: Program) -> Counterexample | None:
    if found is None or found.statement is None or found.point is None:
        return None
    st = found.statement
    at = ",".join(f"{v}={n}" for v, n in zip(st.vars, found.point, strict=True))
    return Counterexample(st.store.buffer, (), "", "", tuple((s.name, s.value) for s in child.sizes), note=f"{st.name}({at}): {found.message}")
