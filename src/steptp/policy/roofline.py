"""A model of how long a program takes on this host: operations against the traffic between registers, caches and memory.

Coarse on purpose: it ranks neighbours of one program and claims no times. Widths and sizes come from :class:`HostInfo`; bytes a cycle between levels
are those of a current server core.
"""

from __future__ import annotations

from math import prod

from steptp.analysis.features import Features, LoopFeatures, StatementFeatures, features
from steptp.analysis.host import HostInfo
from steptp.ir.nodes import Program

__all__ = ["predicted_cycles"]

_REGISTERS = 16
_CHAIN = 4.0  # cycles from one addition of an accumulation to the next
_REGION = 20_000.0  # cycles to start and join threads
_ENTRY = 10.0  # cycles to enter and leave a loop that is not unrolled
_BODY = 512  # copies of a statement beyond which straight-line code stops paying
_SCALAR = 2.0  # operations a cycle


def predicted_cycles(program: Program, host: HostInfo, threads: int) -> float:
    """Modelled cycles of one run on ``threads`` threads. Raises :class:`LeirError` as :func:`features` does."""
    found = features(program)
    return sum(_statement(st, found, host, threads) for st in found.statements)


def _statement(st: StatementFeatures, found: Features, host: HostInfo, threads: int) -> float:
    around = sorted((ln for ln in found.loops if st.path[: len(ln.path)] == ln.path), key=lambda ln: len(ln.path))
    if not around or not st.instances:
        return float(st.instances)
    if st.is_reset:
        return st.instances / host.lanes(4)
    lanes, chained = _vector(st, around, host)
    moved = st.bytes_read + st.bytes_written
    operations = max(st.flops, st.instances) / (_SCALAR * lanes)
    cycles = max(operations, st.instances * _CHAIN) if chained else operations
    copied = prod(ln.extent for ln in around if ln.kind in ("unroll", "vec"))
    if copied > _BODY:
        cycles *= copied / _BODY
    if around[-1].kind not in ("unroll", "vec"):
        cycles += _ENTRY * st.instances / max(around[-1].extent, 1)
    registers = [ln for ln in around if ln.kind in ("unroll", "vec")] if around[-1].kind in ("unroll", "vec") else []
    width = 64.0 if lanes > 1 else 8.0
    cycles += _traffic(around, registers, moved, _REGISTERS * host.vector_bits // 8) / width
    for capacity, rate in ((host.l1_bytes, 32.0), (host.l2_bytes, 16.0), (max(host.l3_bytes // max(host.cores, 1), host.l2_bytes), 8.0)):
        cycles += _traffic(around, around, moved, capacity) / rate
    shared = next((n for n, ln in enumerate(around) if ln.kind == "par"), None)
    if shared is not None and threads > 1:
        entered = prod(ln.extent for ln in around[:shared])
        cycles = cycles / min(threads, max(around[shared].extent, 1)) + _REGION * entered
    return cycles


def _vector(st: StatementFeatures, around: list[LoopFeatures], host: HostInfo) -> tuple[int, bool]:
    """Lanes that one instruction works on, and whether the innermost loop is an accumulation that waits for itself."""
    size = max((a.bytes // a.elements for a in st.accesses if a.elements), default=4)
    steps = [dict(a.strides) for a in st.accesses]
    vector = next((ln for ln in around if ln.kind == "vec"), around[-1])
    even = all(s.get(vector.var, 0) in (0, 1) for s in steps)
    chained = around[-1].carried != "none" and around[-1].kind != "vec"
    if not even or vector.carried != "none":
        return 1, chained
    return max(1, min(host.lanes(size), vector.extent)), chained and vector is around[-1]


def _traffic(around: list[LoopFeatures], inside: list[LoopFeatures], moved: int, capacity: int) -> float:
    """Bytes that come from beyond ``capacity``: what the outermost fitting loop of ``inside`` touches, as often as it runs."""
    for loop in inside:
        if loop.working_set <= capacity:
            runs = prod(ln.extent for ln in around[: around.index(loop)])
            return min(float(loop.working_set * runs), float(moved))
    return float(moved)
