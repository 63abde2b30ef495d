"""A model of how long a program takes on this host: what the cores issue, and what moves between caches and memory.

Coarse on purpose: it ranks programs of one origin and claims no times. The innermost ``vec`` and ``unroll`` loops form the *register block* of a store; operands that do
not change within it are loaded once, and local accumulators stay in registers while they fit (Goto and van de Geijn, "Anatomy of high-performance matrix multiplication",
2008). Widths and sizes come from :class:`HostInfo`; bytes a cycle between levels are those of a current server core.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from math import ceil, prod

from steptp.analysis.features import AccessFeatures, LoopFeatures, StatementFeatures, features
from steptp.analysis.host import HostInfo
from steptp.ir.nodes import Path, Program
from steptp.ir.types import Scope
from steptp.ir.walk import buffers

__all__ = ["LATENCY", "LOADS", "PIPES", "predicted_cycles", "registers", "statement_cycles"]

LATENCY = 4.0
"""Cycles from one addition of an accumulation to the next."""
PIPES = 2.0
"""Arithmetic instructions a cycle."""
LOADS = 2.0
"""Loads a cycle."""
_REGION = 20_000.0  # cycles to start and join threads
_ENTRY = 10.0  # cycles to enter and leave a loop that is not unrolled
_TURN = 1.0  # cycles of a loop's own instructions an iteration
_BODY = 512  # copies of a statement beyond which straight-line code stops paying
_LOCAL = Scope.LOCAL


def registers(host: HostInfo) -> int:
    """Vector registers of a core."""
    return 32 if host.vector_bits >= 512 else 16


def predicted_cycles(program: Program, host: HostInfo, threads: int) -> float:
    """Modelled cycles of one run on ``threads`` threads. Raises :class:`LeirError` as :func:`features` does."""
    return sum(cycles for _, cycles in statement_cycles(program, host, threads))


def statement_cycles(program: Program, host: HostInfo, threads: int) -> list[tuple[StatementFeatures, float]]:
    """The modelled cycles of each statement; the start of a parallel loop is shared out among what it holds."""
    found = features(program)
    local = frozenset(b.name for b in buffers(program) if b.scope is _LOCAL)
    rows = [(st, found.around(st)) for st in found.statements]
    held = Counter(shared.path for _, around in rows if (shared := _shared(around)) is not None)
    return [(st, _statement(st, around, local, host, threads, held)) for st, around in rows]


def _shared(around: Sequence[LoopFeatures]) -> LoopFeatures | None:
    return next((ln for ln in around if ln.kind == "par"), None)


def _statement(st: StatementFeatures, around: Sequence[LoopFeatures], local: frozenset[str], host: HostInfo, threads: int, held: Mapping[Path, int]) -> float:
    if not around or not st.instances:
        return float(st.instances)
    cycles = st.instances / host.lanes(4) if st.is_reset else _issued(st, around, local, host) + _moved(st, around, host)
    shared = _shared(around)
    if shared is not None and threads > 1:
        entered = prod(ln.extent for ln in around[: around.index(shared)])
        turns = ceil(shared.extent / threads) / max(shared.extent, 1)
        cycles = cycles * turns + _REGION * entered / held[shared.path]
    return cycles


def _issued(st: StatementFeatures, around: Sequence[LoopFeatures], local: frozenset[str], host: HostInfo) -> float:
    """Cycles in which instructions are issued, or an accumulation waits for itself."""
    lanes, vector = _vector(st, around, host)
    block = _block(around)
    if vector not in block and lanes > 1:
        block = [*block, vector]
    copies = prod(ln.extent for ln in block)
    vectors = copies / vector.extent * ceil(vector.extent / lanes) if vector in block else float(copies)
    turns = st.instances / max(copies, 1)
    kept = not any(ln.carried != "none" for ln in block) and vectors <= registers(host) - 2
    accumulates = st.accesses[-1].kind == "update"
    work = max(st.flops / st.instances, 1.0) / (2.0 if accumulates and st.flops == 2 * st.instances else 1.0)
    loads = sum(_loads(a, block, vector, lanes, vectors) for a in st.accesses[:-1])
    stays = accumulates and kept and st.accesses[-1].buffer in local and _still(st.accesses[-1], around, block)
    stores = 0.0 if stays else _loads(st.accesses[-1], block, vector, lanes, vectors) * (2.0 if accumulates else 1.0)
    issued = max(vectors * work / PIPES, loads / LOADS + stores)
    serial = next((ln for ln in reversed(around) if ln not in block), None)
    if accumulates and serial is not None and serial.carried != "none":
        issued = max(issued, LATENCY if stays or serial is around[-1] else 2 * LATENCY)
    if accumulates and not kept and vectors > registers(host):
        issued += 2.0 * vectors / LOADS
    cycles = turns * (issued + (_TURN if serial is not None else 0.0))
    if copies > _BODY and vector.kind != "for":
        cycles *= copies / _BODY
    if serial is not None:
        cycles += _ENTRY * turns / max(serial.extent, 1)
    return cycles


def _block(around: Sequence[LoopFeatures]) -> list[LoopFeatures]:
    """The innermost loops that make straight-line code."""
    out: list[LoopFeatures] = []
    for ln in reversed(around):
        if ln.kind not in ("unroll", "vec"):
            break
        out.append(ln)
    return out


def _still(access: AccessFeatures, around: Sequence[LoopFeatures], block: list[LoopFeatures]) -> bool:
    """Whether the loop around the block leaves the access where it is, so that it can stay in registers."""
    serial = next((ln for ln in reversed(around) if ln not in block), None)
    return serial is None or access.stride(serial.var) == 0


def _loads(access: AccessFeatures, block: list[LoopFeatures], vector: LoopFeatures, lanes: int, vectors: float) -> float:
    """Load (or store) instructions of one access in one run of the block."""
    step = access.stride(vector.var)
    moving = prod(ln.extent for ln in block if ln is not vector and access.stride(ln.var) != 0)
    if vector not in block or step == 0:
        return float(moving)
    return moving * (ceil(vector.extent / lanes) if step == 1 else vector.extent)


def _vector(st: StatementFeatures, around: Sequence[LoopFeatures], host: HostInfo) -> tuple[int, LoopFeatures]:
    """Lanes that one instruction works on, and the loop that they run along: ``vec``, or an innermost one that a compiler would choose."""
    vector = next((ln for ln in around if ln.kind == "vec"), around[-1])
    steps = [a.stride(vector.var) for a in st.accesses]
    if vector.carried != "none" or (vector.kind != "vec" and any(s not in (0, 1) for s in steps)):
        return 1, vector
    return max(1, min(host.lanes(st.itemsize), vector.extent)), vector


def _moved(st: StatementFeatures, around: Sequence[LoopFeatures], host: HostInfo) -> float:
    """Cycles of the traffic beyond each cache."""
    moved = st.bytes_read + st.bytes_written
    levels = ((host.l1_bytes, 32.0), (host.l2_bytes, 16.0), (max(host.l3_bytes // max(host.cores, 1), host.l2_bytes), 8.0))
    return sum(_traffic(around, moved, capacity) / rate for capacity, rate in levels)


def _traffic(around: Sequence[LoopFeatures], moved: int, capacity: int) -> float:
    """Bytes that come from beyond ``capacity``: what the outermost fitting loop touches, as often as it runs."""
    for loop in around:
        if loop.working_set <= capacity:
            runs = prod(ln.extent for ln in around[: around.index(loop)])
            return min(float(loop.working_set * runs), float(moved))
    return float(moved)
