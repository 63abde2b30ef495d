"""Static features of a program: work, traffic, locality and parallelism at real sizes.

Counts are closed forms over loop boxes (:mod:`steptp.analysis.counting`); whatever is an upper bound or a model rather than
a count is listed in ``estimates``. No isl, so features cost about a millisecond.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass

from steptp.analysis.counting import footprint, instances, stride
from steptp.analysis.dependence import may_carry
from steptp.analysis.model import Access, LoopRef, Model, Statement
from steptp.ir.nodes import Cast, Expr, Load, Op, Path, Program
from steptp.ir.types import LoopKind

__all__ = ["Features", "StatementFeatures", "LoopFeatures", "AccessFeatures", "features", "WEIGHTS", "TRANSCENDENTAL"]

TRANSCENDENTAL = frozenset({"exp", "expm1", "log", "log1p", "tanh", "sigmoid", "erf", "sin", "cos", "pow"})
"""Operators counted as ``transcendentals``."""

WEIGHTS = {
    **dict.fromkeys(("+", "-", "*", "neg", "max", "min", "abs", "floor", "ceil", "round", "select", "%", "//"), 1),
    **dict.fromkeys(("<", "<=", ">", ">=", "==", "!=", "and", "or", "not", "isnan"), 1),
    **dict.fromkeys(("/", "sqrt", "rsqrt"), 4),
    **dict.fromkeys(TRANSCENDENTAL, 10),
}
"""Weight of an operator in ``flops``: about its cost relative to an addition on a CPU core. Index arithmetic counts nothing."""


@dataclass(frozen=True, slots=True)
class AccessFeatures:
    """One distinct access. ``strides``: loop variable → elements between neighbouring iterations (``None``: not linear)."""

    buffer: str
    kind: str  # "read", "write" or "update"
    elements: int
    bytes: int
    strides: tuple[tuple[str, int | None], ...]

    def stride(self, var: str) -> int | None:
        """Elements between neighbouring iterations of ``var``; 0 for a loop that is not around."""
        return dict(self.strides).get(var, 0)


@dataclass(frozen=True, slots=True)
class StatementFeatures:
    """One store (or reset). Bytes count every access of every instance once, as if nothing stayed in a register or cache."""

    name: str
    path: Path
    is_reset: bool
    instances: int
    flops: int
    transcendentals: int
    bytes_read: int
    bytes_written: int
    accesses: tuple[AccessFeatures, ...]

    @property
    def itemsize(self) -> int:
        """Bytes of the widest element that it touches."""
        return max((a.bytes // a.elements for a in self.accesses if a.elements), default=4)


@dataclass(frozen=True, slots=True)
class LoopFeatures:
    """One loop of the program. ``carried`` is ``none``, ``reduction`` or ``dependence``; ``working_set`` the bytes that one run of it touches."""

    path: Path
    var: str
    extent: int
    kind: str
    carried: str
    working_set: int


@dataclass(frozen=True, slots=True)
class Features:
    """Everything together; ``to_dict`` gives plain JSON data.

    ``compulsory_bytes``: inputs read once and outputs written once. ``intensity``: flops over compulsory bytes. ``unit_stride`` and
    ``invariant``: shares of all accesses with stride 1 or 0 in their innermost loop. ``parallelism``: product of the outermost
    loops of the dominating nest that carry nothing. ``vector_lanes``: extent of its ``vec`` loop (1: none). ``register_tile``: extents of the
    ``unroll`` and ``vec`` loops around its heaviest store. ``dominating``: path of the top-level statement with most flops, with its shares.
    """

    statements: tuple[StatementFeatures, ...]
    loops: tuple[LoopFeatures, ...]
    instances: int
    flops: int
    transcendentals: int
    bytes_read: int
    bytes_written: int
    compulsory_bytes: int
    footprints: tuple[tuple[str, int], ...]
    intensity: float
    unit_stride: float
    invariant: float
    parallelism: int
    vector_lanes: int
    register_tile: tuple[int, ...]
    dominating: Path
    dominating_flops: float
    dominating_bytes: float
    estimates: tuple[str, ...]

    def around(self, statement: StatementFeatures) -> tuple[LoopFeatures, ...]:
        """The loops around a statement, outermost first."""
        return tuple(sorted((ln for ln in self.loops if statement.path[: len(ln.path)] == ln.path), key=lambda ln: len(ln.path)))

    def to_dict(self) -> dict[str, object]:
        """Plain JSON data; tuples become lists when written."""
        return asdict(self)


def features(program: Program) -> Features:
    """The features of a program; cached on it. Raises :class:`LeirError` ``check-reset`` when its resets are not defined."""
    cached = program._cache.get("features")
    if not isinstance(cached, Features):
        cached = program._cache["features"] = _features(Model.of(program))
    return cached


def _features(model: Model) -> Features:
    rows: list[StatementFeatures] = []
    estimates: list[str] = ["working_set: bounding boxes", "loops.carried: cheap tests, may name a loop that carries nothing"]
    weights: list[tuple[Statement, StatementFeatures]] = []
    unit = still = moving = 0
    for st in model.statements:
        row, exact = _statement(st)
        rows.append(row)
        weights.append((st, row))
        if not exact:
            estimates.append(f"{row.name}: an upper bound of its instances")
        inner = st.loops[-1].var if st.loops else ""
        for a in row.accesses:
            step = a.stride(inner)
            moving += row.instances
            unit += row.instances * (step in (1, -1))
            still += row.instances * (step == 0)
    sizes = _footprints(model)
    roles = {name: d.role for name, d in model.declarations.items()}
    compulsory = sum(n for name, n in sizes if roles[name] != "tmp")
    flops = sum(r.flops for r in rows)
    carried = may_carry(model.program)
    top, share_flops, share_bytes = _dominating(weights)
    heavy = max((w for w in weights if w[0].origin[:1] == top), key=lambda w: (w[1].flops, w[1].instances), default=None)
    return Features(
        tuple(rows),
        tuple(_loops(model, carried)),
        sum(r.instances for r in rows),
        flops,
        sum(r.transcendentals for r in rows),
        sum(r.bytes_read for r in rows),
        sum(r.bytes_written for r in rows),
        compulsory,
        sizes,
        round(flops / compulsory, 4) if compulsory else 0.0,
        round(unit / moving, 4) if moving else 0.0,
        round(still / moving, 4) if moving else 0.0,
        _parallelism(heavy[0], carried) if heavy else 1,
        next((heavy[0].intervals[ln.var][1] + 1 for ln in heavy[0].loops if ln.kind is LoopKind.VECTOR), 1) if heavy else 1,
        tuple(heavy[0].intervals[ln.var][1] + 1 for ln in heavy[0].loops if ln.kind in (LoopKind.UNROLL, LoopKind.VECTOR)) if heavy else (),
        top,
        share_flops,
        share_bytes,
        tuple(estimates),
    )


def _statement(st: Statement) -> tuple[StatementFeatures, bool]:
    count, exact = instances(st)
    weight = functions = 0
    for name in _operators(st.store.value):
        weight += WEIGHTS[name]
        functions += name in TRANSCENDENTAL
    if st.store.reduce is not None:
        weight += 1
    accesses: list[AccessFeatures] = []
    read = written = 0
    for access, kind in _distinct(st):
        declaration = st.model.declarations[access.buffer]
        size = declaration.buffer.dtype.itemsize
        read += size * (kind != "write")
        written += size * (kind != "read")
        elements = footprint(access)
        steps = tuple((v, stride(access, v)) for v in st.vars)
        accesses.append(AccessFeatures(access.buffer, kind, elements, elements * size, steps))
    row = StatementFeatures(st.name, st.origin, st.is_reset, count, count * weight, count * functions, count * read, count * written, tuple(accesses))
    return row, exact


def _distinct(st: Statement) -> Iterator[tuple[Access, str]]:
    """Each element access of one instance once; an accumulation's target is one update."""
    seen: set[tuple[object, ...]] = set()
    update = st.store.reduce is not None
    for access in st.reads:
        key = (access.buffer, access.indices)
        if key not in seen and not (update and access.load is None):
            seen.add(key)
            yield access, "read"
    yield st.write, "update" if update else "write"


def _operators(expr: Expr) -> Iterator[str]:
    """Operators on values; arithmetic on ``i64`` indices and comparisons of it are left out."""
    if isinstance(expr, Op):
        if not all(a.dtype.value == "i64" for a in expr.args):
            yield expr.name
            for arg in expr.args:
                yield from _operators(arg)
    elif isinstance(expr, Cast):
        yield from _operators(expr.arg)
    elif isinstance(expr, Load):
        return


def _footprints(model: Model) -> tuple[tuple[str, int], ...]:
    """Bytes of each buffer that the program touches: the largest box of its accesses."""
    out: dict[str, int] = dict.fromkeys(model.declarations, 0)
    for st in model.statements:
        for access in st.accesses:
            out[access.buffer] = max(out[access.buffer], footprint(access))
    return tuple((name, n * model.declarations[name].buffer.dtype.itemsize) for name, n in out.items())


def _dominating(weights: Iterable[tuple[Statement, StatementFeatures]]) -> tuple[Path, float, float]:
    work: dict[Path, list[int]] = {}
    for st, row in weights:
        entry = work.setdefault(st.origin[:1], [0, 0])
        entry[0] += row.flops
        entry[1] += row.bytes_read + row.bytes_written
    if not work:
        return (), 0.0, 0.0
    top = max(work, key=lambda p: (work[p][0], work[p][1], [-n for n in p]))
    flops, moved = sum(w[0] for w in work.values()), sum(w[1] for w in work.values())
    return top, round(work[top][0] / flops, 4) if flops else 0.0, round(work[top][1] / moved, 4) if moved else 0.0


def _loops(model: Model, carried: dict[Path, str]) -> Iterator[LoopFeatures]:
    found: dict[Path, tuple[LoopRef, list[Statement]]] = {}
    for st in model.statements:
        for loop in st.loops:
            if loop.origin is not None:
                found.setdefault(loop.path, (loop, []))[1].append(st)
    for path, (loop, inside) in found.items():
        touched: dict[str, int] = {}
        for st in inside:
            depth = next(k for k, other in enumerate(st.loops) if other.path == path)
            moving = frozenset(st.vars[depth:])
            for access in st.accesses:
                touched[access.buffer] = max(touched.get(access.buffer, 0), footprint(access, moving))
        total = sum(n * model.declarations[name].buffer.dtype.itemsize for name, n in touched.items())
        assert loop.origin is not None
        extent = inside[0].intervals[loop.var][1] + 1
        yield LoopFeatures(loop.origin, loop.var, extent, str(loop.kind), carried.get(path, "none"), total)


def _parallelism(st: Statement, carried: dict[Path, str]) -> int:
    total = 1
    for loop in st.loops:
        if carried.get(loop.path, "none") != "none":
            break
        total *= st.intervals[loop.var][1] + 1
    return total
