"""Claims of steps that use the distributive law on whole nests, fold factors into weights, unfold windows, or hoist invariants."""

from __future__ import annotations

from steptp.ir.nodes import Cast, Expr, Load, Loop, Op, Path, Program, Store
from steptp.ir.printer import print_expr
from steptp.ir.sizes import eval_index
from steptp.ir.walk import free_vars, get
from steptp.reason.patterns import Claim
from steptp.reason.rederive.context import CheckContext, Rederivation
from steptp.reason.rederive.copies import _new_buffers
from steptp.reason.rederive.field import field_values
from steptp.reason.rederive.figures import _below, _declared
from steptp.reason.rederive.signs import Signs
from steptp.reason.rederive.structure import _walk

__all__ = ["LINEAR"]

_Writer = tuple[Path, Store, list[Loop]]


def _text(expr: Expr) -> str:
    return print_expr(expr, expr.dtype)


def _writers(program: Program, buffer: str) -> list[_Writer]:
    return [(p, s, [x for x in around if isinstance(x, Loop)]) for p, s, around in _walk(program) if isinstance(s, Store) and s.buffer == buffer]


def _summed(store: Store, loops: list[Loop]) -> list[str]:
    """Variables of the loops that do not index the target."""
    used = set().union(*(free_vars(i) for i in store.indices))
    return [p.var for p in loops if p.var not in used]


def _contracted_first(c: Claim, ctx: CheckContext) -> str | None:
    made = _writers(ctx.child, c["name"])
    if c["name"] not in _new_buffers(ctx) or len(made) != 1 or made[0][1].reduce != "+":
        return f"{c['name']} is no new sum"
    _, store, loops = made[0]
    inside = _summed(store, [p for p in loops if p.var not in _outer(ctx)])
    if _text(store.value) != c["text"] or list(c.names("loops")) != inside:
        return f"it sums `{_text(store.value)}` over {', '.join(inside)}"
    users = [s for _, s, _ in _walk(ctx.child) if isinstance(s, Store) and any(isinstance(e, Load) and e.buffer == c["name"] for e in _below(s.value))]
    return None if len(users) == 1 else "it is not an operand of one other sum"


def _outer(ctx: CheckContext) -> set[str]:
    """Variables of the loops around the site."""
    return {p.var for n in range(1, len(ctx.path)) if isinstance(p := get(ctx.parent, ctx.path[:n]), Loop)}


def _operand_finite(c: Claim, ctx: CheckContext) -> str | None:
    store = get(ctx.parent, c.place("at"))
    found = next((e for e in _below(store.value) if _text(e) == c["text"]), None) if isinstance(store, Store) else None
    if found is None:
        return f"`{c['text']}` is not in the store at {c['at']}"
    return None if Signs.at(ctx.parent, c.place("at")).of(found).says("finite") else "it is not known to be finite"


def _distributive(c: Claim, ctx: CheckContext) -> str | None:
    """At tiny sizes both programs leave the same in every element of the buffer, where sums and products are exact."""
    if all(p[: len(ctx.path)] != ctx.path for p, _, _ in _writers(ctx.parent, c["buffer"])):
        return f"the site does not write {c['buffer']}"
    if not ctx.tiny:
        return "no tiny sizes to try it at"
    for before, after in ctx.tiny:
        a, b = ({e: v for e, v in field_values(p).items() if e[0] == c["buffer"]} for p in (before, after))
        if a != b or not a:
            return f"{c['buffer']} gets other values"
    return None


def _factors(expr: Expr) -> int:
    return _factors(expr.args[0]) + _factors(expr.args[1]) if isinstance(expr, Op) and expr.name == "*" else 1


def _work(program: Program, names: set[str]) -> int:
    """Multiplications of the factors of what is stored, and additions to a sum, in the stores of these buffers."""
    total = 0
    for _, store, around in _walk(program):
        if isinstance(store, Store) and store.buffer in names:
            here = _factors(store.value) - 1 + (store.reduce == "+")
            for p in around:
                here *= eval_index(p.extent, program.size_env) if isinstance(p, Loop) else 1
            total += here
    return total


def _contraction_cost(c: Claim, ctx: CheckContext) -> str | None:
    gone = {b.name for b in _declared(ctx.parent)} - {b.name for b in _declared(ctx.child)}
    want = _work(ctx.parent, {c["buffer"]} | gone), _work(ctx.child, {c["buffer"]} | _new_buffers(ctx))
    if all(p[: len(ctx.path)] != ctx.path for p, _, _ in _writers(ctx.parent, c["buffer"])):
        return f"the site does not write {c['buffer']}"
    return None if (c.number("before"), c.number("after")) == want else f"{want[0]} before and {want[1]} after"


def _site_sum(ctx: CheckContext) -> _Writer:
    """The one store at the site, with the loops around it from the site on."""
    (found,) = [(p, s, around) for p, s, around in _walk(ctx.parent) if isinstance(s, Store) and p[: len(ctx.path)] == ctx.path]
    return found[0], found[1], [x for x in found[2][len(ctx.path) - 1 :] if isinstance(x, Loop)]


def _runs(loops: list[Loop], program: Program) -> int:
    total = 1
    for p in loops:
        total *= eval_index(p.extent, program.size_env)
    return total


def _unfolded(c: Claim, ctx: CheckContext) -> str | None:
    _, store, loops = _site_sum(ctx)
    made = _writers(ctx.child, c["name"])
    declared = next((b for b in _declared(ctx.child) if b.name == c["name"]), None)
    if declared is None or c["name"] not in _new_buffers(ctx) or len(made) != 1 or len(declared.shape) < 2:
        return f"{c['name']} is no new matrix"
    shape = [eval_index(s, ctx.child.size_env) for s in declared.shape[-2:]]
    if shape != [c.number("rows"), c.number("columns")]:
        return f"it has columns of {shape[0]} elements, {shape[1]} of them"
    last = made[0][1].indices[-1]
    pixels = [p for p in loops if p.var in free_vars(last)]
    summed = [p for p in loops if p.var in _summed(store, loops)]
    if [p.var for p in pixels] != list(c.names("loops")) or [_runs(summed, ctx.parent), _runs(pixels, ctx.parent)] != shape:
        return f"its columns are numbered by {', '.join(p.var for p in pixels)}"
    return None


def _flattened(c: Claim, ctx: CheckContext) -> str | None:
    _, store, loops = _site_sum(ctx)
    summed = [p for p in loops if p.var in _summed(store, loops)]
    if [p.var for p in summed] != list(c.names("loops")) or _runs(summed, ctx.parent) != c.number("extent"):
        return f"the summed loops {', '.join(p.var for p in summed)} run {_runs(summed, ctx.parent)} iterations"
    new = [
        (s, around) for _, s, around in _writers(ctx.child, store.buffer) if any(isinstance(e, Load) and e.buffer in _new_buffers(ctx) for e in _below(s.value))
    ]
    after = [loop for s, around in new for loop in around if loop.var in _summed(s, around)]
    ok = [p.var for p in after if p.var not in _outer(ctx)] == [c["loop"]] and _runs(after[-1:], ctx.child) == c.number("extent")
    return None if ok else f"{store.buffer} is summed over {', '.join(p.var for p in after)}"


def _around(program: Program, path: Path) -> list[tuple[Path, Loop]]:
    return [(path[:n], p) for n in range(1, len(path)) if isinstance(p := get(program, path[:n]), Loop)]


def _invariant_over(c: Claim, ctx: CheckContext) -> str | None:
    top, names = c.place("at"), list(c.names("loops"))
    inner = [(p, loop) for p, loop in _around(ctx.parent, ctx.path) if p[: len(top)] == top]
    if not inner or inner[0][0] != top or [loop.var for _, loop in inner] != names:
        return f"the loops there are {', '.join(loop.var for _, loop in inner)}"
    store = get(ctx.parent, ctx.path)
    found = next((e for e in _below(store.value) if print_expr(e) == c["text"]), None) if isinstance(store, Store) else None
    if found is None:
        return f"`{c['text']}` is not in the store"
    written = {s.buffer for p, s, _ in _walk(ctx.parent) if isinstance(s, Store) and p[: len(top)] == top}
    reads = {e.buffer for e in _below(found) if isinstance(e, Load)}
    return "it changes there" if free_vars(found) & set(names) or reads & written else None


def _evaluated(c: Claim, ctx: CheckContext) -> str | None:
    made = _writers(ctx.child, c["name"])
    if c["name"] not in _new_buffers(ctx) or len(made) != 1:
        return f"{c['name']} is no new value"
    want = _runs([loop for _, loop in _around(ctx.parent, ctx.path)], ctx.parent), _runs(made[0][2], ctx.child)
    return None if (c.number("before"), c.number("after")) == want else f"{want[0]} times before and {want[1]} after"


def _scale_folded(c: Claim, ctx: CheckContext) -> str | None:
    made = _writers(ctx.child, c["name"])
    if c["name"] not in _new_buffers(ctx) or len(made) != 1 or made[0][1].reduce is not None or _text(made[0][1].value) != c["text"]:
        return f"{c['name']} is not set to that"
    if c["buffer"] != ctx.params.get("buffer"):
        return f"{c['buffer']} is not the sum of this step"
    sums = [s for _, s, _ in _writers(ctx.child, c["buffer"]) if s.reduce == "+"]
    inside = [e.buffer for s in sums for e in _below(s.value) if isinstance(e, Load)]
    old, new = (len(_scales(_site_store(p, ctx), c["buffer"])) for p in (ctx.parent, ctx.child))
    return None if inside.count(c["name"]) == 1 and new == 0 < old else f"{c['buffer']} is scaled {new} times afterwards"


def _site_store(program: Program, ctx: CheckContext) -> Store:
    """The store of the site; in the child the one into the same buffer."""
    parent = get(ctx.parent, ctx.path)
    if not isinstance(parent, Store):
        raise KeyError(ctx.path)
    return parent if program is ctx.parent else next(s for _, s, _ in _writers(program, parent.buffer))


def _scales(store: Store, buffer: str) -> list[Expr]:
    """What multiplies or divides the affine expression around the read of ``buffer``."""

    def below(expr: Expr) -> tuple[bool, bool, list[Expr]]:
        """Whether the read is there, whether the expression is affine in it, and its scale."""
        if isinstance(expr, Load) and expr.buffer == buffer:
            return True, True, []
        parts = expr.args if isinstance(expr, Op) else (expr.arg,) if isinstance(expr, Cast) else ()
        for n, part in enumerate(parts):
            there, affine, scale = below(part)
            if not there:
                continue
            if not affine or not isinstance(expr, Op) or expr.name not in ("+", "-", "neg", "*", "/") or (expr.name == "/" and n == 1):
                return True, False, scale
            return True, True, [*scale, parts[1 - n]] if expr.name in ("*", "/") else scale
        return False, False, []

    return below(store.value)[2]


def _scales_whole(c: Claim, ctx: CheckContext) -> str | None:
    if c.place("at") != ctx.path or c["buffer"] != ctx.params.get("buffer"):
        return "not the store or the sum of this step"
    found = [_text(e) for e in _scales(_site_store(ctx.parent, ctx), c["buffer"])]
    return None if c["text"] in found else f"the scale is {found}"


def _combines(program: Program, buffer: str) -> tuple[str, str] | None:
    """The two sums whose sum or difference is stored in the buffer."""
    made = _writers(program, buffer)
    value = made[0][1].value if len(made) == 1 and made[0][1].reduce is None else None
    if not isinstance(value, Op) or value.name not in ("+", "-") or not all(isinstance(a, Load) for a in value.args):
        return None
    first, second = (a.buffer for a in value.args if isinstance(a, Load))
    alone = all(
        sum(isinstance(e, Load) and e.buffer == name for _, s, _ in _walk(program) if isinstance(s, Store) for e in _below(s.value)) == 1
        for name in (first, second)
    )
    summed = all([s.reduce for _, s, _ in _writers(program, name)] == ["+"] for name in (first, second))
    return (first, second) if alone and summed else None


def _summed_apart(c: Claim, ctx: CheckContext) -> str | None:
    ok = _combines(ctx.child, c["buffer"]) == (c["lower"], c["upper"]) and {c["lower"], c["upper"]} <= _new_buffers(ctx)
    whole = [s.reduce for _, s, _ in _writers(ctx.parent, c["buffer"])]
    return None if ok and whole == ["+"] else f"{c['buffer']} does not combine those"


def _summed_together(c: Claim, ctx: CheckContext) -> str | None:
    kept = {b.name for b in _declared(ctx.child)}
    ok = _combines(ctx.parent, c["buffer"]) == (c["lower"], c["upper"]) and not {c["lower"], c["upper"]} & kept
    after = [s.reduce for _, s, _ in _writers(ctx.child, c["buffer"])]
    return None if ok and after == ["+"] else f"{c['buffer']} did not combine those"


LINEAR: dict[str, Rederivation] = {
    "contracted_first": _contracted_first,
    "operand_finite": _operand_finite,
    "distributive": _distributive,
    "contraction_cost": _contraction_cost,
    "unfolded": _unfolded,
    "flattened": _flattened,
    "invariant_over": _invariant_over,
    "evaluated": _evaluated,
    "scale_folded": _scale_folded,
    "scales_whole": _scales_whole,
    "summed_apart": _summed_apart,
    "summed_together": _summed_together,
}
