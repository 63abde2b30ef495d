"""Skew the inner loop of a pair by the outer one: ``j`` becomes ``s-f*i``, so that dependences go forward along ``s``."""

from __future__ import annotations

from collections.abc import Iterator

from steptp.ir import DType, Expr, If, Loop, LoopKind, Path, Program, Var, ix, op, print_expr, simplify_cond, simplify_index
from steptp.ir.walk import free_vars, replace_at, substitute
from steptp.rewrite.base import Applied, Exactness, Family, Forwarding, NotApplicable, Outcome, Site, Strategy
from steptp.rewrite.context import Context, no_loop, path_text
from steptp.rewrite.fact_kinds import fact
from steptp.rewrite.injective import reset_index_problem
from steptp.rewrite.tools import accumulation_facts, instance_map, substitute_body, tidy

__all__ = ["LoopSkewing", "STRATEGY"]

_FACTORS = (1, 2)
MAX_FACTOR = 8


class LoopSkewing(Strategy):
    """Site: path of the outer loop of a perfect pair, ``factor`` = how much later the inner loop starts in each of its iterations.

    Listed where both loops carry dependences and, once the loops are swapped, the skewed one carries them all (the wavefront method, Lamport 1974).
    """

    name = "loop_skewing"
    family = Family.LOOP
    classes = (Exactness.BITWISE,)
    summary = "skew an inner loop by an outer one"

    def sites(self, ctx: Context) -> Iterator[Site]:
        for path, loop in ctx.loops:
            if isinstance(_pair(ctx, path, loop), NotApplicable) or not _both_carry(ctx, path):
                continue
            for factor in _FACTORS:
                step = _skewed(ctx, path, factor)
                if not isinstance(step, NotApplicable) and _is_wavefront(step[0], path):
                    yield Site.of(self.name, path, factor=factor)
                    break

    def apply(self, ctx: Context, site: Site) -> Outcome:
        loop, params = ctx.loop(site.path), dict(site.params)
        factor = params.get("factor")
        if loop is None:
            return no_loop(site.path)
        if set(params) != {"factor"} or not isinstance(factor, int) or not 1 <= factor <= MAX_FACTOR:
            return NotApplicable("bad-site", f"loop_skewing takes factor=1 to {MAX_FACTOR}")
        inner = _pair(ctx, site.path, loop)
        if isinstance(inner, NotApplicable):
            return inner
        step = _skewed(ctx, site.path, factor)
        if isinstance(step, NotApplicable):
            return step
        child, var, becomes, cond = step
        path = site.path
        extent = ctx.value(inner.extent)
        assert extent is not None
        facts = [
            fact("perfect_nest", "parent", at=path_text(path), loops=(loop.var, inner.var)),
            fact("skewed", "child", loop=inner.var, around=loop.var, factor=factor, cond=print_expr(cond), extent=extent),
            fact("index_map", "child", loop=inner.var, becomes=print_expr(becomes)),
        ]
        if _is_wavefront(child, path):
            facts.append(fact("wavefront", "dependence", along=var, around=loop.var))
        facts += accumulation_facts(s for _, s in ctx.stores_under(path))
        facts.append(fact("same_operations", "dependence", buffers=tuple(b.name for b in ctx.program.outputs)))
        below = (*path, 0, 0)

        def back(p: Path) -> Path:
            return (*path, 0, *p[len(below) :]) if p[: len(below)] == below else p

        instances = instance_map(ctx.program, child, back, lambda p: {inner.var: becomes} if p[: len(path)] == path else {})
        forward = Forwarding(tuple(((*path, 0, n), (*below, n)) for n in range(len(inner.body))))
        return Applied(child, Exactness.BITWISE, tuple(facts), instances, forward)


def _pair(ctx: Context, path: Path, outer: Loop) -> Loop | NotApplicable:
    inner = outer.body[0]
    if (*path, 0) not in ctx.chain(path) or not isinstance(inner, Loop):
        return NotApplicable("not-perfect", f"{outer.var} is not directly around another loop; a pair with nothing between is skewed")
    if inner.kind is not LoopKind.SERIAL or outer.kind not in (LoopKind.SERIAL, LoopKind.PARALLEL):
        return NotApplicable("loop-kind", f"a {outer.kind} loop around a {inner.kind} loop is not skewed; the inner loop must be serial")
    for loop in (outer, inner):
        if ctx.value(loop.extent) is None:
            return NotApplicable("extent-varies", f"{loop.var} runs {print_expr(loop.extent, DType.I64)} times, which changes with the loops around it")
    for _, store in ctx.stores_under(path):
        used = frozenset().union(*(free_vars(i) for i in store.indices))
        if store.reduce is not None and not store.carry and inner.var in used and outer.var not in used:
            return NotApplicable(
                "reset-changes", f"{store.buffer} accumulates over {outer.var} and is indexed by {inner.var}; skewed, {outer.var} would index it too"
            )
    return inner


def _skewed(ctx: Context, path: Path, factor: int) -> tuple[Program, str, Expr, Expr] | NotApplicable:
    """The child, the new loop variable, what the old one becomes, and the guard."""
    outer = ctx.loop(path)
    assert outer is not None
    inner = outer.body[0]
    assert isinstance(inner, Loop)
    (var,) = ctx.fresh_vars(path, inner.var)
    shift = simplify_index(Var(outer.var) * ix(factor))
    becomes = simplify_index(Var(var) - shift)
    extent = simplify_index(inner.extent + (outer.extent - ix(1)) * ix(factor))
    extents = {**ctx.extents_around(path), outer.var: outer.extent, var: extent}
    by = {inner.var: becomes}
    problem = reset_index_problem(ctx, {(*path, 0): {var: extent}}, lambda e, around: tidy(substitute(e, by), around))
    if problem is not None:
        return problem
    cond = simplify_cond(op("and", op("<=", shift, Var(var)), op("<", Var(var), shift + inner.extent)))
    body = (If(cond, substitute_body(inner.body, by, extents)),)
    return replace_at(ctx.program, (*path, 0), Loop(var, extent, body, inner.kind, inner.tmps)), var, becomes, cond


def _both_carry(ctx: Context, path: Path) -> bool:
    """The outer loop carries a dependence, and the inner one too or the wrong way round."""
    legality = ctx.legality
    if legality.carried(path, reductions=False) is None:
        return False
    if legality.carried((*path, 0), reductions=False) is not None:
        return True
    for dep in legality.through((*path, 0)):
        k = dep.loops.index(path)
        if not dep.reduction and dep.level == k and legality.exists(dep, [(k + 1, ">")]) is not None:
            return True
    return False


def _is_wavefront(child: Program, path: Path) -> bool:
    """With the pair swapped, every dependence goes forward along the skewed loop: the other one then carries none."""
    legality = Context.of(child).legality
    for dep in legality.through((*path, 0)):
        k = dep.loops.index(path)
        if dep.level not in (k, k + 1) or dep.level == len(dep.masks):
            continue
        order = [*range(k), k + 1, k, *range(k + 2, len(dep.masks))]
        if legality.reversed_by(dep, order) is not None or legality.carried_at(dep, order, k + 1) is not None:
            return False
    return True


STRATEGY = LoopSkewing()
