"""What binding loops to GPU axes and scopes to memories may not break: values that pass between blocks or threads, barriers, limits.

The rules are those of :mod:`steptp.analysis.races`, asked of the program as it would be, from the dependences of the program as it is: a loop's kind and
a temporary's scope change none.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from steptp.analysis.affine import DIM, sample
from steptp.analysis.model import LoopRef, Statement
from steptp.ir.checks_gpu import limit_problems
from steptp.ir.kernels import Kernel, divergent_barrier, kernels, may_diverge, placement
from steptp.ir.nodes import Loop, Path, Program
from steptp.ir.resets import materialize
from steptp.ir.types import LoopKind, Scope
from steptp.ir.walk import buffers, declaring_path
from steptp.rewrite.base import NotApplicable
from steptp.rewrite.context import Context, path_text
from steptp.rewrite.directions import NEG, POS, Dep
from steptp.rewrite.legality import Witness

__all__ = ["crossing_problem", "launch_problem", "kernel_of", "out_of_reach"]

_BLOCKS = tuple(k for k in LoopKind if k.is_block)
_THREADS = tuple(k for k in LoopKind if k.is_thread)


def kernel_of(program: Program, path: Path) -> Kernel | None:
    """The kernel that holds the statement at ``path``, if any."""
    return next((k for k in kernels(program) if k.path == path[: len(k.path)]), None)


def out_of_reach(ctx: Context, name: str, scope: Scope, at: Path) -> Loop | None:
    """The loop that lies between the declaration of a temporary and the place ``at``, and whose iterations could not all see it in ``scope``."""
    if scope is Scope.GLOBAL:
        return None
    home = len(declaring_path(ctx.program, name))
    for path, loop in ctx.enclosing_loops((*at, 0)):
        leaves = loop.kind.is_block or loop.kind is LoopKind.PARALLEL or (scope is Scope.LOCAL and loop.kind.is_thread)
        if len(path) > home and leaves:
            return loop
    return None


def launch_problem(child: Program) -> NotApplicable | None:
    """Why kernels of ``child`` could not run: a limit, or a barrier that some threads would not reach."""
    if (found := next(limit_problems(child), None)) is not None:
        return NotApplicable("limit", found.message)
    if not may_diverge(child):
        return None
    made = materialize(child)
    place = divergent_barrier(made.program)
    if place is None:
        return None
    below = next((source.path for path, source in made.origin.items() if path[: len(place)] == place), place)
    return NotApplicable("barrier", f"threads would have to wait for one another at {path_text(below[: len(place)])}, where only some of them come")


def crossing_problem(ctx: Context, child: Program, kinds: Mapping[Path, LoopKind]) -> NotApplicable | None:
    """A value that would pass between blocks of one launch, or through memory that the other side cannot see.

    ``child`` is the program with other kinds of loops (``kinds``, by path) or other scopes.
    """
    if not kernels(child):
        return None
    view = _View(ctx, child, kinds)
    for dep in ctx.legality.deps:
        for what, axis in view.asked(dep):
            if (found := view.crossing(dep, axis)) is not None:
                scope = view.scope(dep.buffer)
                how = f"through {scope} memory" if scope is not Scope.GLOBAL else "inside one kernel"
                return NotApplicable("crossing", f"a value of {dep.buffer} would pass between {what} ({axis}) {how}: {found.text}")
    return None


class _View:
    """The dependences of the program under the kinds and scopes of ``child``."""

    def __init__(self, ctx: Context, child: Program, kinds: Mapping[Path, LoopKind]) -> None:
        self.ctx, self.kinds = ctx, kinds
        self.roots: dict[int, int | None] = {}
        self.scopes = {**placement(child), **{b.name: b.scope for b in buffers(child) if b.scope is not Scope.GLOBAL}}

    def kind(self, st: Statement, loop: LoopRef) -> LoopKind:
        """A loop that repeats a reset is of the kind of the loop that it stands for."""
        path = loop.origin
        if path is None:
            path = next(p for p, other in self.ctx.enclosing_loops(st.origin) if other.var == loop.var)
        return self.kinds.get(path, loop.kind)

    def scope(self, buffer: str) -> Scope:
        return self.scopes.get(buffer, Scope.GLOBAL)

    def kernel(self, st: Statement) -> int | None:
        """Position of the outermost bound loop."""
        if st.id not in self.roots:
            self.roots[st.id] = next((k for k, loop in enumerate(st.loops) if self.kind(st, loop).is_bound), None)
        return self.roots[st.id]

    def asked(self, dep: Dep) -> Iterator[tuple[str, LoopKind]]:
        """The axes between whose coordinates no value of the dependence may pass."""
        source, sink = dep.source.statement, dep.sink.statement
        first, second = self.kernel(source), self.kernel(sink)
        if first is None and second is None:
            return
        scope = self.scope(dep.buffer)
        one = first is not None and second is not None and source.loops[first].path == sink.loops[second].path and dep.level >= first
        if one or scope is not Scope.GLOBAL:
            yield from (("blocks", k) for k in _BLOCKS)
        if scope is Scope.LOCAL:
            yield from (("threads", k) for k in _THREADS)

    def crossing(self, dep: Dep, axis: LoopKind) -> Witness | None:
        """A pair of the dependence whose coordinates on the axis differ, or of which only one has any."""
        first, second = dep.source.statement, dep.sink.statement
        source, sink = first.loops, second.loops
        a = next((k for k, loop in enumerate(source) if self.kind(first, loop) is axis), None)
        b = next((k for k, loop in enumerate(sink) if self.kind(second, loop) is axis), None)
        legality = self.ctx.legality
        if a is None and b is None:
            return None
        if a is None or b is None:
            return legality.exists(dep, ())
        if a == b and source[a].path == sink[b].path:
            if a <= dep.level:  # equal there, or carried by the loop itself, which is asked elsewhere
                return None
            signs = ((POS, "<"), (NEG, ">"))
            return next((w for bit, sign in signs if dep.masks[a] & bit and (w := legality.exists(dep, ((a, sign),))) is not None), None)
        return self._apart(dep, a, b)

    def _apart(self, dep: Dep, a: int, b: int) -> Witness | None:
        """Exactly: the axis belongs to two loops that stand beside each other."""
        pairs = dep.source.map.apply_range(dep.sink.map.reverse())
        for k in range(dep.level):
            pairs = pairs.equate(DIM.in_, k, DIM.out, k)
        if dep.level < len(dep.masks):
            pairs = pairs.order_lt(DIM.in_, dep.level, DIM.out, dep.level)
        found = sample(pairs.subtract(pairs.equate(DIM.in_, a, DIM.out, b)))
        return None if found is None else Witness(dep, *found)
