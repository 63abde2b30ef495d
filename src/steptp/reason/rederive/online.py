"""Claims about softmax rows in prefix and running form, and about windows that leave their array."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import product

from steptp.ir.index import same_index, simplify_index
from steptp.ir.nodes import Cast, Const, Expr, If, Load, Loop, Op, Program, Store, Var, identity_of
from steptp.ir.printer import print_expr
from steptp.ir.sizes import eval_index
from steptp.ir.types import DType
from steptp.ir.walk import body_at, free_vars, loads, subexprs, substitute
from steptp.reason.patterns import Claim
from steptp.reason.rederive.context import CheckContext, Rederivation
from steptp.reason.rederive.figures import _declared
from steptp.reason.rederive.structure import _elements, _walk
from steptp.reason.rederive.values import _stores

__all__ = ["ONLINE"]


def _fresh(ctx: CheckContext) -> set[str]:
    return {b.name for b in _declared(ctx.child)} - {b.name for b in _declared(ctx.parent)}


def _renamed(*exprs: Expr) -> tuple[Expr, ...]:
    """The expressions with loop variables numbered by first appearance."""
    names: dict[str, Expr] = {}
    for expr in exprs:
        for part in subexprs(expr):
            if isinstance(part, Var):
                names.setdefault(part.name, Var(f"#{len(names)}"))
    return tuple(substitute(e, names) for e in exprs)


def _target(store: Store) -> Load:
    return Load(store.buffer, store.indices, store.value.dtype)


def _plain(expr: Expr) -> Expr:
    while isinstance(expr, Cast) and expr.type.is_float and expr.arg.dtype.is_float:
        expr = expr.arg
    return expr


def _is(expr: Expr, name: str) -> bool:
    return isinstance(expr, Op) and expr.name == name


def _difference(expr: Expr) -> tuple[Expr, Load] | None:
    """``x`` and the read that is subtracted in ``exp(x-m[...])``."""
    if isinstance(expr, Op) and expr.name == "exp" and isinstance(expr.args[0], Op) and expr.args[0].name == "-":
        x, m = expr.args[0].args
        return (x, m) if isinstance(m, Load) else None
    return None


def _holds_maximum(program: Program, m: Load, x: Expr) -> bool:
    """Some statement leaves the maximum of ``x`` in ``m``: an accumulation, the last of its prefix maxima, or a running maximum."""
    want = _renamed(m, x)
    for _, store in _stores(program, m.buffer):
        if store.reduce == "max" and _renamed(_target(store), store.value) == want:
            return True
        if store.reduce is None and isinstance(store.value, Load):
            for _, step in _stores(program, store.value.buffer):
                if isinstance(step.value, Op) and step.value.name == "max" and _renamed(step.value.args[1]) == _renamed(x):
                    return True
    return False


def _running_maximum(c: Claim, ctx: CheckContext) -> str | None:
    beside = (*ctx.path[:-1], ctx.path[-1] + 1)
    top = next(((s, a) for p, s, a in _walk(ctx.parent) if isinstance(s, Store) and p[: len(ctx.path)] == ctx.path), None)
    total = next((s for p, s, _ in _walk(ctx.parent) if isinstance(s, Store) and p[: len(beside)] == beside), None)
    if top is None or total is None or (top[0].buffer, top[0].reduce, total.buffer, total.reduce) != (c["buffer"], "max", c["sum"], "+"):
        return "the site is no maximum followed by a sum"
    loops = [p for p in top[1] if isinstance(p, Loop)]
    if not loops or loops[-1].var != c["loop"] or print_expr(top[0].value) != c["text"] or any(c["loop"] in free_vars(i) for i in top[0].indices):
        return f"{c['buffer']} is not the maximum of that over {c['loop']}"
    return None if _difference(total.value) is not None else f"{c['sum']} does not sum exponentials of a difference"


def _meaning(program: Program, expr: Expr) -> Expr:
    """What a read of a scalar stands for, if one store sets it."""
    if isinstance(expr, Load) and not expr.indices:
        made = _stores(program, expr.buffer)
        return made[0][1].value if len(made) == 1 and made[0][1].reduce is None else expr
    return expr


def _products(expr: Expr) -> Iterator[Expr]:
    if isinstance(expr, Op) and expr.name == "*":
        for part in expr.args:
            yield from _products(part)
    else:
        yield expr


def _rescaled(c: Claim, ctx: CheckContext) -> str | None:
    """Some store of the child: ``sum = select(old==-inf,0,sum*exp(old-now)) + … exp(x-now) …``, with ``now = max(old,x)`` stored in ``peak``."""
    before = [s for _, s in _stores(ctx.parent, c["sum"])]
    for _, store in _stores(ctx.child, c["sum"]):
        value = store.value
        if store in before or not (isinstance(value, Op) and value.name == "+" and isinstance(value.args[0], Op) and value.args[0].name == "select"):
            continue
        cond, none, kept = value.args[0].args
        dropped = isinstance(cond, Op) and cond.name == "==" and isinstance(cond.args[1], Const) and cond.args[1].value == -math.inf
        if not (dropped and isinstance(none, Const) and none.value == 0 and isinstance(kept, Op) and isinstance(cond, Op)):
            continue
        held, factor = kept.args
        scale = _difference(_meaning(ctx.child, factor))
        if (
            kept.name != "*"
            or not isinstance(held, Load)
            or held.buffer != c["sum"]
            or scale is None
            or scale[0] != cond.args[0]
            or scale[1].buffer != c["peak"]
        ):
            continue
        old, now = scale
        parts = [_difference(_meaning(ctx.child, f)) for f in _products(value.args[1])]
        xs = [d[0] for d in parts if d is not None and d[1] == now]
        for _, step in _stores(ctx.child, c["peak"]):
            if isinstance(step.value, Op) and step.value.name == "max" and len(xs) == 1 and _instance_of(step, now, (old, xs[0])):
                return None
    return f"{c['sum']} is not scaled like that"


def _instance_of(store: Store, read: Load, args: tuple[Expr, ...]) -> bool:
    """``read`` reads the element where ``store`` leaves its operator's value on ``args``: as in the store, or at other indices in their place."""
    assert isinstance(store.value, Op)
    if _renamed(_target(store), *store.value.args) == _renamed(read, *args):
        return True
    by: dict[str, Expr] = {}
    for own, other in zip(store.indices, read.indices, strict=True):
        names = free_vars(own)
        shift = simplify_index(own - Var(next(iter(names)))) if len(names) == 1 else own
        if free_vars(shift) or (not names and not same_index(own, other)):
            return False
        for name in names:
            value = simplify_index(other - shift)
            if by.setdefault(name, value) != value:
                return False
    return all(free_vars(a) <= by.keys() and _alike(substitute(a, by), b) for a, b in zip(store.value.args, args, strict=True))


def _alike(a: Expr, b: Expr) -> bool:
    """The same tree, indices compared as functions."""
    if a.dtype is DType.I64 and not isinstance(a, Load):
        return same_index(a, b)
    if isinstance(a, Load) and isinstance(b, Load):
        return a.buffer == b.buffer and all(map(_alike, a.indices, b.indices))
    if isinstance(a, Op) and isinstance(b, Op):
        return (a.name, a.type, len(a.args)) == (b.name, b.type, len(b.args)) and all(map(_alike, a.args, b.args))
    return (isinstance(a, Cast) and isinstance(b, Cast) and a.type is b.type and _alike(a.arg, b.arg)) or a == b


def _recurrence(c: Claim, ctx: CheckContext, start: Expr | None) -> tuple[Store, Loop] | str:
    """The step of a new prefix form ``buffer``: stores at ``[...,0]`` and, over ``loop``, at ``[...,loop+1]``, which read ``[...,loop]``."""
    found = [(s, a) for _, s, a in _walk(ctx.child) if isinstance(s, Store) and s.buffer == c["buffer"]]
    if c["buffer"] not in _fresh(ctx) or len(found) != 2 or found[0][0].reduce is not None or found[1][0].reduce is not None:
        return f"{c['buffer']} is no new array with a first value and a step"
    (first, _), (step, around) = found
    loops = [p for p in around if isinstance(p, Loop)]
    if not loops or loops[-1].var != c["loop"] or print_expr(step.indices[-1]) != f"{c['loop']}+1" or print_expr(first.indices[-1], DType.I64) != "0":
        return f"{c['buffer']} does not grow by one over {c['loop']}"
    if first.value != (start if start is not None else identity_of("max", first.value.dtype)):
        return f"{c['buffer']} starts from {print_expr(first.value)}"
    here = Load(step.buffer, (*step.indices[:-1], Var(c["loop"])), step.value.dtype)
    return (step, loops[-1]) if here in set(loads(step.value)) else f"the step does not read {print_expr(here)}"


def _last_of(c: Claim, ctx: CheckContext, loop: Loop) -> bool:
    """The child stores the last element of ``buffer`` into ``of``."""
    ends = [s.value for _, s in _stores(ctx.child, c["of"]) if s.reduce is None and isinstance(s.value, Load) and s.value.buffer == c["buffer"]]
    return len(ends) == 1 and ends[0].indices[-1] == loop.extent


def _prefix_maximum(c: Claim, ctx: CheckContext) -> str | None:
    found = _recurrence(c, ctx, None)
    if isinstance(found, str):
        return found
    step, loop = found
    if not (isinstance(step.value, Op) and step.value.name == "max" and print_expr(step.value.args[1]) == c["text"]):
        return f"the step of {c['buffer']} takes no maximum with that"
    whole = Load(c["of"], step.indices[:-1], step.value.dtype)
    return None if _last_of(c, ctx, loop) or _holds_maximum(ctx.parent, whole, step.value.args[1]) else f"{c['of']} is not the last one"


def _prefix_sum(c: Claim, ctx: CheckContext) -> str | None:
    dtype = next((b.dtype for b in _declared(ctx.child) if b.name == c["buffer"]), None)
    found = _recurrence(c, ctx, Const(0.0, dtype) if dtype is not None else None)
    if isinstance(found, str):
        return found
    step, loop = found
    if not _is(step.value, "+") or c["peak"] not in {e.buffer for e in loads(step.value)}:
        return f"the step of {c['buffer']} adds nothing beneath a maximum in {c['peak']}"
    return None if _last_of(c, ctx, loop) else f"{c['of']} is not the last one"


def _sum_of_exponentials(c: Claim, ctx: CheckContext) -> str | None:
    here = [(s, a) for p, s, a in _walk(ctx.parent) if isinstance(s, Store) and p[: len(ctx.path)] == ctx.path]
    if len(here) != 1 or (here[0][0].buffer, here[0][0].reduce) != (c["sum"], "+"):
        return f"the site does not sum into {c['sum']}"
    loops = [p for p in here[0][1] if isinstance(p, Loop)]
    parts = _difference(here[0][0].value)
    if parts is None or not loops or loops[-1].var != c["loop"] or (print_expr(parts[0]), parts[1].buffer) != (c["text"], c["buffer"]):
        return f"{c['sum']} does not sum those exponentials over {c['loop']}"
    return None if _holds_maximum(ctx.parent, parts[1], parts[0]) else f"{c['buffer']} is not the maximum of `{c['text']}`"


def _weighted_by_softmax(c: Claim, ctx: CheckContext) -> str | None:
    made = [s for _, s in _stores(ctx.parent, c["weights"])]
    value = _plain(made[0].value) if len(made) == 1 and made[0].reduce is None else None
    parts = _difference(value.args[0]) if isinstance(value, Op) and value.name == "/" else None
    if parts is None or not isinstance(value, Op) or not isinstance(value.args[1], Load) or (parts[1].buffer, value.args[1].buffer) != (c["other"], c["sum"]):
        return f"{c['weights']} are not exponentials beneath {c['other']} over {c['sum']}"
    if not _holds_maximum(ctx.parent, parts[1], parts[0]):
        return f"{c['other']} is not the maximum of `{print_expr(parts[0])}`"
    kept = [s for _, s in _stores(ctx.child, c["buffer"])]
    for path, store, around in _walk(ctx.parent):
        if (
            isinstance(store, Store)
            and store.buffer == c["buffer"]
            and store.reduce == "+"
            and store not in kept
            and path[: len(ctx.path) - 1] == ctx.path[:-1]
        ):
            summed = [p.var for p in around if isinstance(p, Loop) and not any(p.var in free_vars(i) for i in store.indices)]
            factors = list(_products(store.value))
            rest = [f for f in factors if not (isinstance(read := _plain(f), Load) and read.buffer == c["weights"])]
            if c["loop"] in summed and len(rest) == len(factors) - 1 and rest and print_expr(_product(rest)) == c["text"]:
                return None
    return f"{c['buffer']} does not sum `{c['text']}` times {c['weights']} over {c['loop']}"


def _product(factors: list[Expr]) -> Expr:
    out = factors[0]
    for other in factors[1:]:
        out = out * other
    return out


def _divided_once(c: Claim, ctx: CheckContext) -> str | None:
    before = [s for _, s in _stores(ctx.parent, c["buffer"])]
    made = [s for _, s in _stores(ctx.child, c["buffer"]) if s not in before and _is(s.value, "/")]
    if len(made) != 1 or not isinstance(made[0].value, Op) or made[0].value.args[0] != _target(made[0]):
        return f"{c['buffer']} is not divided once"
    by = made[0].value.args[1]
    if not isinstance(by, Load) or by.buffer != c["sum"]:
        return f"{c['buffer']} is divided by {print_expr(by)}"
    whole = next(b for b in _declared(ctx.child) if b.name == c["buffer"])
    count = _elements(whole, ctx.child)
    return None if c.number("count") == count else f"it has {count} elements"


def _row_not_empty(c: Claim, ctx: CheckContext) -> str | None:
    stated = {print_expr(x) for x in ctx.child.constraints} - {print_expr(x) for x in ctx.parent.constraints}
    extents = {print_expr(s.extent) for p, s, _ in _walk(ctx.parent) if isinstance(s, Loop) and s.var == c["loop"]}
    return None if c["constraint"] in stated and c["constraint"] in {f"0<{e}" for e in extents} else "the header does not state that"


def _passes_over(c: Claim, ctx: CheckContext) -> str | None:
    counts = []
    for program in (ctx.parent, ctx.child):
        counts.append(sum(c["buffer"] in _read_below(stmt) for stmt in body_at(program, ctx.path[:-1])))
    return None if (c.number("before"), c.number("after")) == tuple(counts) else f"{counts[0]} before, {counts[1]} after"


def _read_below(stmt: object) -> set[str]:
    if isinstance(stmt, Store):
        return {e.buffer for x in (*stmt.indices, stmt.value) for e in loads(x)}
    return set().union(*map(_read_below, stmt.body)) if isinstance(stmt, (Loop, If)) else set()


# windows


def _conditions(expr: Expr) -> Iterator[Expr]:
    """Comparisons that decide a select in a value."""
    for part in subexprs(expr):
        if isinstance(part, Op) and part.name == "select":
            pending = [part.args[0]]
            while pending:
                cond = pending.pop()
                if isinstance(cond, Op) and cond.name == "and":
                    pending += cond.args
                else:
                    yield cond


def _site_nest(ctx: CheckContext) -> tuple[Store, dict[str, Loop]] | None:
    here = [(s, a) for p, s, a in _walk(ctx.parent) if isinstance(s, Store) and p[: len(ctx.path)] == ctx.path]
    return (here[0][0], {p.var: p for p in here[0][1] if isinstance(p, Loop)}) if len(here) == 1 else None


def _holds(conds: list[Expr], loop: str, value: int, loops: dict[str, Loop], env: dict[str, int]) -> bool:
    """Whether all conditions hold at one iteration of ``loop``, whatever the other loops in them do."""
    for cond in conds:
        others = sorted(free_vars(cond) - {loop})
        for point in product(*(range(eval_index(loops[v].extent, env)) for v in others)):
            if not eval_index(cond, {**env, loop: value, **dict(zip(others, point, strict=True))}):
                return False
    return True


def _interior(c: Claim, ctx: CheckContext) -> str | None:
    found = _site_nest(ctx)
    if found is None or c["loop"] not in found[1]:
        return f"no loop {c['loop']} at the site"
    store, loops = found
    env, low, high = ctx.parent.size_env, c.number("low"), c.number("high")
    conds = [x for x in _conditions(store.value) if c["loop"] in free_vars(x) and not any(loads(x))]
    count = eval_index(loops[c["loop"]].extent, env)
    if not conds or not 0 <= low < high <= count:
        return f"no condition on {c['loop']}, or no such iterations"
    inside = all(_holds(conds, c["loop"], k, loops, env) for k in {low, high - 1, *range(low, high, max((high - low) // 16, 1))})
    wider = any(_holds(conds, c["loop"], k, loops, env) for k in (low - 1, high) if 0 <= k < count)
    return None if inside and not wider else f"it does not hold from {low} up to {high}, or further"


def _boundary_corrected(c: Claim, ctx: CheckContext) -> str | None:
    found = _site_nest(ctx)
    if found is None or found[0].buffer != c["buffer"]:
        return f"the site does not compute {c['buffer']}"
    store, loops = found
    box = {m["loop"]: m.number("high") - m.number("low") for m in ctx.said if m.kind == "interior"}
    extents = {v: eval_index(loops[v].extent, ctx.parent.size_env) for v in loops if any(v in free_vars(i) for i in store.indices)}
    count = math.prod(extents.values()) - math.prod(box.get(v, n) for v, n in extents.items())
    kept = [s for _, s in _stores(ctx.child, store.buffer) if s.value == store.value and s.reduce == store.reduce]
    return None if c.number("count") == count and len(kept) == 1 else f"{count} elements are outside, {len(kept)} stores compute as before"


ONLINE: dict[str, Rederivation] = {
    "running_maximum": _running_maximum,
    "rescaled": _rescaled,
    "prefix_maximum": _prefix_maximum,
    "sum_of_exponentials": _sum_of_exponentials,
    "prefix_sum": _prefix_sum,
    "weighted_by_softmax": _weighted_by_softmax,
    "divided_once": _divided_once,
    "row_not_empty": _row_not_empty,
    "passes_over": _passes_over,
    "interior": _interior,
    "boundary_corrected": _boundary_corrected,
}
