"""Do loops that may run concurrently carry no dependence?

``par``, ``vec`` and bound loops are claims; here they are proven. Inside one launch of a kernel (an outermost nest of bound loops) no
dependence may cross blocks, because blocks cannot wait for one another, and storage that lives with a thread (a block) may not be
used to pass values between threads (blocks).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import islpy as isl

from steptp.analysis.affine import DIM, sample
from steptp.analysis.dependence import Dependence, dependences
from steptp.analysis.model import LoopRef, Model, Statement
from steptp.analysis.problems import Problem
from steptp.ir.kernels import placement
from steptp.ir.nodes import Program
from steptp.ir.types import LoopKind, Scope

__all__ = ["race_problems"]


def race_problems(program: Program) -> Iterator[Problem]:
    """Dependences carried by concurrent loops, across blocks of one kernel, or through storage that the other side cannot see."""
    model = Model.of(program)
    if not any(loop.kind.is_concurrent for st in model.statements for loop in st.loops):
        return
    where = placement(program)
    for d in dependences(program):
        if d.loop is not None and d.loop.kind.is_concurrent:
            yield _race(d)
        elif any(loop.kind.is_bound for loop in (*d.src.loops, *d.dst.loops)):
            yield from _bound(model, where, d)


def _race(d: Dependence) -> Problem:
    assert d.loop is not None
    first, second = d.sample
    may = "" if d.exact else " (unless the look-up or condition on data excludes it)"
    message = f"{d.loop.kind} loop {d.loop.var} carries a dependence on {d.buffer}{may}: {d.explain()}"
    instance = tuple(zip(d.dst.vars, second, strict=True))
    return Problem("race", message, d.dst.origin, d.exact, instance, d.buffer, first)


def _bound(model: Model, where: Mapping[str, Scope], d: Dependence) -> Iterator[Problem]:
    scope = model.declarations[d.buffer].buffer.scope
    if scope is Scope.GLOBAL:
        scope = where.get(d.buffer, scope)
    kernel = _kernel(d.src)
    relaunched = d.loop is not None and kernel is not None and len(d.loop.path) < len(kernel.path)
    one_kernel = kernel is not None and kernel == _kernel(d.dst) and not relaunched
    checks: list[tuple[str, list[LoopKind]]] = []
    blocks = [k for k in LoopKind if k.is_block]
    if one_kernel or scope is not Scope.GLOBAL:
        checks.append(("blocks", blocks))
    if scope is Scope.LOCAL:
        checks.append(("threads", [k for k in LoopKind if k.is_thread]))
    for what, kinds in checks:
        for kind in kinds:
            crossing = _crossing(d, kind)
            if crossing is None:
                continue
            pair = sample(crossing)
            assert pair is not None
            how = f"through {scope} storage " if scope is not Scope.GLOBAL else "inside one kernel "
            message = f"a dependence on {d.buffer} crosses {what} ({kind}) {how}: {d.explain(pair)}"
            yield Problem("race", message.replace(" :", ":"), d.dst.origin, d.exact, tuple(zip(d.dst.vars, pair[1], strict=True)), d.buffer)
            return


def _kernel(st: Statement) -> LoopRef | None:
    return next((loop for loop in st.loops if loop.kind.is_bound), None)


def _crossing(d: Dependence, kind: LoopKind) -> isl.Map | None:
    """Pairs of the dependence whose coordinates on one axis differ; ``None`` when there are none."""
    a = next((k for k, loop in enumerate(d.src.loops) if loop.kind is kind), None)
    b = next((k for k, loop in enumerate(d.dst.loops) if loop.kind is kind), None)
    if a is None and b is None:
        return None
    if a is None or b is None:
        return d.relation
    out = d.relation.subtract(d.relation.equate(DIM.in_, a, DIM.out, b))
    return None if out.is_empty() else out
