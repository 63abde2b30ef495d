"""Claims about nests that are cut, joined or padded."""

from __future__ import annotations

from steptp.ir.nodes import Body, Cast, Const, If, Load, Loop, Op, Path, Program, Store, Var
from steptp.ir.printer import print_expr
from steptp.ir.sizes import eval_index
from steptp.ir.walk import free_vars
from steptp.reason.patterns import Claim
from steptp.reason.rederive.context import CheckContext, Rederivation, loop_at
from steptp.reason.rederive.copies import _new_buffers, _under
from steptp.reason.rederive.figures import _below, _declared
from steptp.reason.rederive.moves import _all_writers, _writers
from steptp.reason.rederive.structure import _conditions, _elements

__all__ = ["CUTS"]


def _behind(program: Program, place: Path) -> list[tuple[Path, Store, tuple[Loop | If, ...]]]:
    """The stores in later siblings of the statement at ``place``."""
    depth = len(place)
    return [w for w in _all_writers(program) if len(w[0]) >= depth and w[0][: depth - 1] == place[:-1] and w[0][depth - 1] > place[-1]]


def _peeled(c: Claim, ctx: CheckContext) -> str | None:
    loop, count = loop_at(ctx.parent, ctx.path), c.number("count")
    if loop is None or loop.var != c["loop"] or ctx.params.get("part") != c["part"] or ctx.params.get("count") != c["count"]:
        return "not what the site says"
    whole = eval_index(loop.extent, ctx.parent.size_env)
    front, back = (loop_at(ctx.child, (*ctx.path[:-1], ctx.path[-1] + n)) for n in (0, 1))
    if front is None or back is None:
        return "the child has no two loops there"
    got = tuple(eval_index(p.extent, ctx.child.size_env) for p in (front, back))
    if got != ((count, whole - count) if c["part"] == "first" else (whole - count, count)):
        return f"the loops run {got[0]} and {got[1]} iterations"
    new = {print_expr(x) for x in ctx.child.constraints} - {print_expr(x) for x in ctx.parent.constraints}
    return None if {c["constraint"]} - {""} == new else f"new constraints: {sorted(new)}"


def _tile_peeled(c: Claim, ctx: CheckContext) -> str | None:
    loop, main = loop_at(ctx.parent, ctx.path), loop_at(ctx.child, ctx.path)
    if c.place("at") != ctx.path or loop is None or main is None or loop.var != c["loop"]:
        return f"the site is no loop {c['loop']}"
    full = eval_index(main.extent, ctx.child.size_env)
    if full != c.number("full") or eval_index(loop.extent, ctx.parent.size_env) != full + 1:
        return f"it keeps {full} tiles"
    tails = {
        eval_index(p.extent, ctx.child.size_env)
        for _, _, around in _behind(ctx.child, ctx.path)
        for p in around
        if isinstance(p, Loop) and not free_vars(p.extent)
    }
    return None if c.number("rest") in tails else "no loop behind it runs them"


def _guard_dropped(c: Claim, ctx: CheckContext) -> str | None:
    before, after = (
        [p for path, _, a in _all_writers(x) if path[: len(ctx.path)] == ctx.path for p in a if isinstance(p, If)] for x in (ctx.parent, ctx.child)
    )
    gone = _conditions(ctx.parent.with_(body=tuple(before))) - _conditions(ctx.child.with_(body=tuple(after)))
    loop = loop_at(ctx.parent, ctx.path)
    return None if c["cond"] in gone and loop is not None and loop.var == c["loop"] else f"guards that go: {sorted(gone)}"


def _reset_written(c: Claim, ctx: CheckContext) -> str | None:
    def plain(program: Program) -> int:
        return sum(s.buffer == c["buffer"] and s.reduce is None and isinstance(s.value, Const) for _, s, _ in _behind(program, ctx.path))

    reduced = any(s.buffer == c["buffer"] and s.reduce is not None for p, s, _ in _all_writers(ctx.parent) if p[: len(ctx.path)] == ctx.path)
    return None if reduced and plain(ctx.child) > plain(ctx.parent) else f"no new assignment resets {c['buffer']}"


def _renamed_copy(c: Claim, ctx: CheckContext) -> str | None:
    if c["name"] not in _new_buffers(ctx):
        return f"{c['name']} is not new"
    made, old = (next((b for b in _declared(x) if b.name == name), None) for x, name in ((ctx.child, c["name"]), (ctx.parent, c["old"])))
    if made is None or old is None or made.dtype is not old.dtype:
        return f"{c['old']} is no temporary of that kind"
    return None if _elements(made, ctx.child) == c.number("elements") == _elements(old, ctx.child) else f"it has {_elements(made, ctx.child)} elements"


def _axis_cut(c: Claim, ctx: CheckContext) -> str | None:
    place = c.place("at")
    loop = loop_at(ctx.parent, place)
    if loop is None or loop.var != c["loop"] or place[: len(ctx.path)] != ctx.path or ctx.params.get("at") != c["at"]:
        return f"{c['at']} is no loop {c['loop']} of the site"
    env = ctx.parent.size_env
    if c.number("first") + c.number("second") != eval_index(loop.extent, env):
        return f"it runs {eval_index(loop.extent, env)} iterations"
    runs = []
    for n in (0, 1):
        top = (*ctx.path[:-1], ctx.path[-1] + n)
        runs.append(
            {
                eval_index(p.extent, ctx.child.size_env)
                for _, _, a in _at(ctx.child, top)
                for p in a
                if isinstance(p, Loop) and p.var == loop.var and not free_vars(p.extent)
            }
        )
    return None if c.number("first") in runs[0] and c.number("second") in runs[1] else f"the loops run {runs} iterations"


def _at(program: Program, place: Path) -> list[tuple[Path, Store, tuple[Loop | If, ...]]]:
    return [w for w in _all_writers(program) if w[0][: len(place)] == place]


def _tensor_cut(c: Claim, ctx: CheckContext) -> str | None:
    names = [b.name for b in _declared(ctx.child)]
    if c["buffer"] in names or not {c["lower"], c["upper"]} <= _new_buffers(ctx) or c["buffer"] not in _under(ctx.parent, ctx.path)[1]:
        return f"{c['buffer']} is not cut into those"
    whole, parts = (
        next(b for b in _declared(ctx.parent) if b.name == c["buffer"]),
        [next(b for b in _declared(ctx.child) if b.name == c[k]) for k in ("lower", "upper")],
    )
    return (
        None
        if sum(_elements(b, ctx.child) for b in parts) == _elements(whole, ctx.parent) and len({b.dtype for b in (whole, *parts)}) == 1
        else "the parts are not the whole"
    )


def _partial_results(c: Claim, ctx: CheckContext) -> str | None:
    if not {c["lower"], c["upper"]} <= _new_buffers(ctx) or c["lower"] == c["upper"]:
        return "no such temporaries"
    reduced = {s.reduce for _, s, _ in _at(ctx.parent, ctx.path) if s.buffer == c["buffer"]}
    made = [{s.reduce for _, s, _ in _writers(ctx.child, c[k])} for k in ("lower", "upper")]
    taken = [e.buffer for _, s, _ in _writers(ctx.child, c["buffer"]) for e in _below(s.value) if isinstance(e, Load)]
    ok = reduced == made[0] == made[1] == {c["reduce"]} and taken.count(c["lower"]) == taken.count(c["upper"]) == 1
    return None if ok else f"{c['buffer']} does not combine them"


def _axis_joined(c: Claim, ctx: CheckContext) -> str | None:
    first, second = (loop_at(ctx.parent, c.place(k)) for k in ("first", "second"))
    if first is None or second is None or c.place("first")[: len(ctx.path)] != ctx.path or c.place("second")[: len(ctx.path)] == ctx.path:
        return "not the loops of two nests of the step"
    total = sum(eval_index(p.extent, ctx.parent.size_env) for p in (first, second))
    runs = {eval_index(p.extent, ctx.child.size_env) for _, _, a in _all_writers(ctx.child) for p in a if isinstance(p, Loop) and not free_vars(p.extent)}
    return None if total == c.number("extent") and total in runs else f"together they run {total} iterations"


def _tensors_joined(c: Claim, ctx: CheckContext) -> str | None:
    old = {b.name: b for b in _declared(ctx.parent)}
    new = {b.name: b for b in _declared(ctx.child) if b.name in _new_buffers(ctx)}
    if c["into"] not in new or c["lower"] not in old or c["upper"] not in old:
        return "no such tensors"
    shapes = [
        [eval_index(s, p.size_env) for s in b.shape] for b, p in ((old[c["lower"]], ctx.parent), (old[c["upper"]], ctx.parent), (new[c["into"]], ctx.child))
    ]
    dim = c.number("dim")
    if not all(len(s) > dim for s in shapes):
        return f"there is no dimension {dim}"
    a, b, both = shapes
    ok = both[dim] == a[dim] + b[dim] and all(x[:dim] + x[dim + 1 :] == both[:dim] + both[dim + 1 :] for x in (a, b))
    return None if ok else f"the shapes are {a}, {b} and {both}"


def _same_computation(c: Claim, ctx: CheckContext) -> str | None:
    first, second = c.place("first"), c.place("second")
    if first != ctx.path or ctx.params.get("other") != c["second"]:
        return "not the nests of the step"
    (one,), (two,) = _at(ctx.parent, first), _at(ctx.parent, second)
    pairs: list[str] = []
    names = {a.var: b.var for a, b in zip([p for p in one[2] if isinstance(p, Loop)], [p for p in two[2] if isinstance(p, Loop)], strict=True)}

    def same(a: object, b: object) -> bool:
        if isinstance(a, Load) and isinstance(b, Load):
            if a.buffer != b.buffer and a.buffer not in pairs[::2]:
                pairs.extend((a.buffer, b.buffer))
            return a.dtype is b.dtype and len(a.indices) == len(b.indices) and all(same(x, y) for x, y in zip(a.indices, b.indices, strict=True))
        if isinstance(a, Var) and isinstance(b, Var):
            return names.get(a.name, a.name) == b.name
        if isinstance(a, (Op, Cast)) and type(a) is type(b):
            parts = [(x.name, x.args) if isinstance(x, Op) else ("cast", (x.arg,)) for x in (a, b) if isinstance(x, (Op, Cast))]
            return parts[0][0] == parts[1][0] and a.dtype is b.dtype and all(same(x, y) for x, y in zip(parts[0][1], parts[1][1], strict=True))
        return a == b

    alike = one[1].reduce == two[1].reduce and same(one[1].value, two[1].value)
    return None if alike and list(c.names("operands")) == pairs else f"operands: {pairs}"


def _rewritten(ctx: CheckContext) -> tuple[Body, Body]:
    """The top-level statements of parent and child between those that both begin and end with."""
    before, after = ctx.parent.body, ctx.child.body
    most = min(len(before), len(after))
    start = next((n for n in range(most) if before[n] != after[n]), most)
    end = next((n for n in range(most - start) if before[-1 - n] != after[-1 - n]), most - start)
    return before[start : len(before) - end], after[start : len(after) - end]


def _guard_padded(c: Claim, ctx: CheckContext) -> str | None:
    before, after = (_conditions(x.with_(body=body)) for x, body in zip((ctx.parent, ctx.child), _rewritten(ctx), strict=True))
    loop = loop_at(ctx.parent, ctx.path)
    if c["cond"] not in before - after or loop is None or loop.var != c["loop"]:
        return f"guards that go: {sorted(before - after)}"
    tiles = eval_index(loop.extent, ctx.parent.size_env)
    inner = {eval_index(p.extent, ctx.parent.size_env) for _, _, a in _at(ctx.parent, ctx.path) for p in a if isinstance(p, Loop) and not free_vars(p.extent)}
    return None if any(tiles * n == c.number("iterations") for n in inner) else f"the {tiles} tiles have not so many iterations"


def _padded(c: Claim, ctx: CheckContext) -> str | None:
    old = next((b for b in _declared(ctx.parent) if b.name == c["buffer"]), None)
    new = next((b for b in _declared(ctx.child) if b.name == c["into"]), None)
    if old is None or new is None or (c["into"] != c["buffer"] and c["into"] not in _new_buffers(ctx)):
        return "no such tensors"
    before, after = ([eval_index(s, p.size_env) for s in x.shape] for x, p in ((old, ctx.parent), (new, ctx.child)))
    dim = c.number("dim")
    if not (len(before) == len(after) > dim and before[:dim] + before[dim + 1 :] == after[:dim] + after[dim + 1 :]):
        return f"the shapes are {before} and {after}"
    return None if (before[dim], after[dim]) == (c.number("before"), c.number("after")) and after[dim] > before[dim] else f"from {before[dim]} to {after[dim]}"


def _zero_terms(c: Claim, ctx: CheckContext) -> str | None:
    """In the child every factor of the terms is read from a new temporary that one store fills with ``select(inside, copy, 0)``."""
    loop = loop_at(ctx.parent, ctx.path)
    if loop is None or loop.var != c["loop"]:
        return f"the site is no loop {c['loop']}"
    filled: set[str] = set()
    for name in _new_buffers(ctx):
        made = [s.value for _, s, _ in _writers(ctx.child, name)]
        if len(made) == 1 and isinstance(made[0], Op) and made[0].name == "select" and isinstance(made[0].args[2], Const) and made[0].args[2].value == 0:
            filled.add(name)

    def zero(value: object) -> bool:
        if isinstance(value, Cast):
            return zero(value.arg)
        if isinstance(value, Op):
            return value.name == "*" and all(map(zero, value.args))
        return isinstance(value, Load) and value.buffer in filled

    kept = [s for _, s, _ in _writers(ctx.parent, c["buffer"])]
    new = [(s, around) for _, s, around in _writers(ctx.child, c["buffer"]) if s.reduce == "+" and s not in kept]
    terms = [s for s, around in new if any(isinstance(p, Loop) and p.var == loop.var for p in around)]
    return None if terms and all(zero(s.value) for s in terms) else f"the terms of {c['buffer']} are no products of padded reads"


CUTS: dict[str, Rederivation] = {
    "peeled": _peeled,
    "axis_cut": _axis_cut,
    "tensor_cut": _tensor_cut,
    "partial_results": _partial_results,
    "axis_joined": _axis_joined,
    "tensors_joined": _tensors_joined,
    "same_computation": _same_computation,
    "tile_peeled": _tile_peeled,
    "guard_dropped": _guard_dropped,
    "reset_written": _reset_written,
    "renamed_copy": _renamed_copy,
    "guard_padded": _guard_padded,
    "padded": _padded,
    "zero_terms": _zero_terms,
}
