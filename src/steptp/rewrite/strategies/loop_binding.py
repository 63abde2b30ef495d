"""Bind a loop to a GPU axis, or take the binding away."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import reduce

from steptp.ir import Expr, If, Load, Loop, LoopKind, Path, Program, Scope, ix, op, print_expr, simplify_index
from steptp.ir.affine import is_pure
from steptp.ir.facts import Fact
from steptp.ir.kernels import AXIS_LIMITS, MAX_THREADS, Kernel, kernels
from steptp.ir.types import DType
from steptp.ir.walk import free_sizes, free_vars, loads, replace_at, subexprs, visit
from steptp.rewrite.base import Applied, Exactness, Family, NotApplicable, Outcome, Site, Strategy
from steptp.rewrite.context import Context, no_loop, path_text
from steptp.rewrite.fact_kinds import fact
from steptp.rewrite.gpu import crossing_problem, kernel_of, launch_problem
from steptp.rewrite.outline import same_up_to_names
from steptp.rewrite.strategies.loop_vectorization import _stride_facts
from steptp.rewrite.tools import accumulation_facts, identity_map

__all__ = ["LoopBinding", "STRATEGY"]

_AXES = {str(k): k for k in LoopKind if k.is_bound}
_BLOCKS = tuple(_AXES[name] for name in ("bx", "by", "bz"))
_THREADS = tuple(_AXES[name] for name in ("tx", "ty", "tz"))


class LoopBinding(Strategy):
    """Site: path of the loop, ``axis`` = ``bx``, ``by``, ``bz``, ``tx``, ``ty``, ``tz``, or ``none`` to make a bound loop serial again.

    The loop carries no dependence, stands inside thread loops only as a thread loop, and is the only one on its path with that axis. Inside a kernel (an
    outermost bound loop) no value may pass between blocks, and none through memory that the other side cannot see. Where sizes decide whether a block has at
    most 1024 threads, the header states it. Listed are the first free block axis and the first free thread axis of a loop.
    """

    name = "loop_binding"
    family = Family.GPU
    classes = (Exactness.BITWISE,)
    summary = "bind a loop to a GPU axis"

    def sites(self, ctx: Context) -> Iterator[Site]:
        for path, loop in ctx.loops:
            if loop.kind.is_bound:
                if isinstance(_unbind(ctx, path, loop), Program):
                    yield Site.of(self.name, path, axis="none")
                continue
            if _loop_problem(ctx, path, loop) is not None:
                continue
            taken = {other.kind for _, other in (*ctx.enclosing_loops(path), *ctx.loops_under(path))}
            for axes in (_BLOCKS, _THREADS):
                free = next((axis for axis in axes if axis not in taken), None)
                if free is not None and (_plainly_launched(ctx, path, loop, free) or isinstance(_bind(ctx, path, loop, free), Program)):
                    yield Site.of(self.name, path, axis=str(free))

    def apply(self, ctx: Context, site: Site) -> Outcome:
        loop = ctx.loop(site.path)
        if loop is None:
            return no_loop(site.path)
        params = dict(site.params)
        if set(params) != {"axis"} or params["axis"] not in {*_AXES, "none"}:
            return NotApplicable("bad-site", "loop_binding takes axis=bx, by, bz, tx, ty, tz or none")
        if params["axis"] == "none":
            return _unbound(ctx, site, loop)
        axis = _AXES[str(params["axis"])]
        child = _loop_problem(ctx, site.path, loop) or _bind(ctx, site.path, loop, axis)
        if isinstance(child, NotApplicable):
            return child
        facts = (*_facts(ctx, site.path, loop, axis, child), *_stated(ctx.program, child), *accumulation_facts(s for _, s in ctx.stores_under(site.path)))
        bound = replace(loop, kind=axis)
        undone = _unbind(Context.of(child), site.path, bound)
        inverse = (Site.of(self.name, site.path, axis="none"),) if isinstance(undone, Program) and same_up_to_names(undone, ctx.program) else ()
        return Applied(child, Exactness.BITWISE, facts, identity_map(child), inverse=inverse)


def _loop_problem(ctx: Context, path: Path, loop: Loop) -> NotApplicable | None:
    """Why the loop cannot be bound to any axis."""
    if loop.kind is not LoopKind.SERIAL:
        return NotApplicable("loop-kind", f"{loop.var} is a {loop.kind} loop; only a serial loop can be bound")
    extent = ctx.value(loop.extent)
    if extent is None or not is_pure(loop.extent):
        return NotApplicable(
            "extent-varies", f"{loop.var} runs {print_expr(loop.extent, DType.I64)} times, which changes with the loops around it; an axis has one extent"
        )
    if extent < 2:
        return NotApplicable("extent", f"{loop.var} runs {extent} times, which leaves nothing to run at once")
    for _, other in ctx.enclosing_loops(path):
        if other.kind in (LoopKind.PARALLEL, LoopKind.UNROLL):
            return NotApplicable("nested", f"{loop.var} lies inside the {other.kind} loop {other.var}")
    for at, other in ctx.loops_under(path):
        if at != path and other.kind is LoopKind.PARALLEL:
            return NotApplicable("nested", f"the par loop {other.var} lies inside {loop.var}")
    for _, store in ctx.stores_under(path):
        if any(isinstance(e, Load) for i in store.indices for e in subexprs(i)):
            return NotApplicable("look-up", f"{store.buffer} is written through a look-up, so two iterations of {loop.var} may hit one element")
    if (found := ctx.legality.carried(path)) is not None:
        return NotApplicable("carried", f"{loop.var} carries a dependence: {found.text}")
    return None


def _plainly_launched(ctx: Context, path: Path, loop: Loop, axis: LoopKind) -> bool:
    """The loop would be the only bound one, with nothing in narrow memories and nothing that threads might skip: then only the limit of the axis counts."""
    if kernels(ctx.program) or any(b.scope is not Scope.GLOBAL for _, b in ctx.tmps):
        return False
    for met in ctx.visits_under(path):
        stmt = met.stmt
        if isinstance(stmt, If) and (loop.var in free_vars(stmt.cond) or any(loads(stmt.cond))):
            return False
        if isinstance(stmt, Loop) and (stmt.tmps or loop.var in free_vars(stmt.extent)):
            return False
    extent = ctx.value(loop.extent)
    return extent is not None and extent <= AXIS_LIMITS[axis] and (axis.is_block or extent <= MAX_THREADS)


def _bind(ctx: Context, path: Path, loop: Loop, axis: LoopKind) -> Program | NotApplicable:
    """The program with the loop on the axis, or why it cannot be there."""
    around, under = ctx.enclosing_loops(path), [(p, o) for p, o in ctx.loops_under(path) if p != path]
    for _, other in (*around, *under):
        if other.kind is axis:
            return NotApplicable("axis-taken", f"{axis} belongs to {other.var}, which lies {'around' if (_, other) in around else 'inside'} {loop.var}")
    if axis.is_block and (thread := next((o for _, o in around if o.kind.is_thread), None)) is not None:
        return NotApplicable("order", f"{loop.var} lies inside the thread loop {thread.var}, and blocks are launched outside of threads")
    if axis.is_thread and (block := next((o for _, o in under if o.kind.is_block), None)) is not None:
        return NotApplicable("order", f"the block loop {block.var} lies inside {loop.var}, and blocks are launched outside of threads")
    if (problem := _scope_problem(ctx, path, loop, axis)) is not None:
        return problem
    child = _limited(ctx.program, replace_at(ctx.program, path, replace(loop, kind=axis)))
    return launch_problem(child) or crossing_problem(ctx, child, {path: axis}) or child


def _scope_problem(ctx: Context, path: Path, loop: Loop, axis: LoopKind) -> NotApplicable | None:
    """A narrow temporary from outside that the iterations would have to share, or a shared one inside."""
    reach = {b.name: b.scope for b in ctx.program.tmps} | {b.name: b.scope for _, o in ctx.enclosing_loops(path) for b in o.tmps}
    if all(b.scope is Scope.GLOBAL for _, b in ctx.tmps):
        return None
    narrow = {n for n, s in reach.items() if s is Scope.LOCAL or (s is Scope.SHARED and axis.is_block)}
    if seen := sorted(narrow & frozenset().union(*ctx.touched(path))):
        whom = "thread" if reach[seen[0]] is Scope.LOCAL else "block"
        return NotApplicable("scope", f"{seen[0]}, declared outside of {loop.var}, belongs to one {whom}, so the iterations of {loop.var} could not share it")
    if axis.is_thread:
        inside = [b for met in visit((loop,)) if isinstance(met.stmt, Loop) for b in met.stmt.tmps if b.scope is Scope.SHARED]
        if inside:
            return NotApplicable("scope", f"{inside[0].name}, declared inside of {loop.var}, is shared by a block, so each thread cannot have its own")
    return None


# limits at other sizes


def _limits(kernel: Kernel) -> Iterator[Expr]:
    """What must hold for the sizes, so that the kernel can be launched; nothing where no size matters.

    A grid beyond 2^31-1 blocks is left to the validity table.
    """
    extents: dict[LoopKind, dict[Expr, None]] = {}
    for met in visit((kernel.loop,)):
        if isinstance(met.stmt, Loop) and met.stmt.kind.is_bound:
            extents.setdefault(met.stmt.kind, {})[simplify_index(met.stmt.extent)] = None
    largest = {kind: reduce(lambda a, b: op("max", a, b), sorted(found, key=print_expr)) for kind, found in extents.items()}
    threads: Expr = ix(1)
    for kind, extent in largest.items():
        threads = op("*", threads, extent) if kind.is_thread else threads
    least = {simplify_index(threads): MAX_THREADS}
    for kind in (LoopKind.BLOCK_Y, LoopKind.BLOCK_Z, LoopKind.THREAD_Z):
        if kind in largest:
            least[largest[kind]] = min(AXIS_LIMITS[kind], least.get(largest[kind], AXIS_LIMITS[kind]))
    return (op("<=", e, most) for e, most in least.items() if free_sizes(e))


def _limited(before: Program, after: Program) -> Program:
    """``after`` with the limits of its kernels in the header, in place of those that only the kernels of ``before`` needed."""
    old = {cond for kernel in kernels(before) for cond in _limits(kernel)}
    needed = dict.fromkeys(cond for kernel in kernels(after) for cond in _limits(kernel))
    kept = tuple(c for c in after.constraints if c not in old or c in needed)
    new = tuple(c for c in needed if c not in kept and c not in old)  # a limit that the parent leaves to the reader stays so
    return after if new == () and kept == after.constraints else after.with_(constraints=(*kept, *new))


def _stated(parent: Program, child: Program) -> Iterator[Fact]:
    for cond in child.constraints:
        if cond not in parent.constraints:
            yield fact("limit_stated", "child", constraint=print_expr(cond))


def _unbind(ctx: Context, path: Path, loop: Loop) -> Program | NotApplicable:
    """The program with the bound loop serial, and without limits that only its kernel needed."""
    others = [o for _, o in ctx.enclosing_loops(path) if o.kind.is_block]
    if loop.kind.is_block and not others:
        for at, inner in ctx.loops_under(path):
            still = any(o.kind.is_block for p, o in (*ctx.enclosing_loops(at), (at, inner)) if p != path)
            if not still and (shared := next((b for b in inner.tmps if b.scope is Scope.SHARED), None)) is not None:
                return NotApplicable("scope", f"{shared.name} is shared by the blocks that {loop.var} launches")
    plain = replace_at(ctx.program, path, replace(loop, kind=LoopKind.SERIAL))
    child = _limited(ctx.program, plain)
    return launch_problem(child) or crossing_problem(ctx, child, {path: LoopKind.SERIAL}) or child


def _unbound(ctx: Context, site: Site, loop: Loop) -> Outcome:
    if not loop.kind.is_bound:
        return NotApplicable("loop-kind", f"{loop.var} is a {loop.kind} loop, which is bound to no axis")
    child = _unbind(ctx, site.path, loop)
    if isinstance(child, NotApplicable):
        return child
    facts = (fact("loop_kind", "child", loop=loop.var, at=path_text(site.path), old=str(loop.kind), new="for"), *_stated(ctx.program, child))
    there = Context.of(child)
    serial = replace(loop, kind=LoopKind.SERIAL)
    back = _loop_problem(there, site.path, serial) or _bind(there, site.path, serial, loop.kind)
    inverse = (Site.of(site.strategy, site.path, axis=str(loop.kind)),) if isinstance(back, Program) and same_up_to_names(back, ctx.program) else ()
    return Applied(child, Exactness.BITWISE, facts, identity_map(child), inverse=inverse)


def _facts(ctx: Context, path: Path, loop: Loop, axis: LoopKind, child: Program) -> Iterator[Fact]:
    at, extent = path_text(path), ctx.value(loop.extent)
    kernel = kernel_of(child, path)
    assert kernel is not None
    assert extent is not None
    root = path_text(kernel.path)
    yield fact("loop_kind", "child", loop=loop.var, at=at, old=str(loop.kind), new=str(axis))
    yield fact("carries_no_dependence", "dependence", loop=loop.var, at=at)
    yield fact("axis_fits", "rule", loop=loop.var, at=at, axis=str(axis), extent=extent, limit=AXIS_LIMITS[axis])
    yield fact("launch", "child", at=root, blocks=kernel.blocks, threads=kernel.threads)
    if kernel.blocks > 1:
        yield fact("blocks_independent", "dependence", at=root)
    yield fact("parallel_iterations", "parent", loop=loop.var, at=at, iterations=extent)
    if axis is LoopKind.THREAD_X:  # neighbouring threads: how far apart they reach decides how many transactions a warp makes
        yield from _stride_facts(ctx, loop, at)


STRATEGY = LoopBinding()
