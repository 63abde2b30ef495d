"""Claims about copies, layouts and named expressions."""

from __future__ import annotations

from collections.abc import Iterator

from steptp.ir.nodes import Cast, Expr, Load, Op, Path, Program, Store
from steptp.ir.printer import print_expr
from steptp.ir.sizes import eval_index
from steptp.ir.walk import get
from steptp.reason.patterns import Claim
from steptp.reason.rederive.context import CheckContext, Rederivation, loop_at
from steptp.reason.rederive.figures import _below, _declared
from steptp.reason.rederive.storage import laid_out
from steptp.reason.rederive.structure import _elements, _walk
from steptp.reason.rederive.symbolic import run
from steptp.reason.rederive.values import _reads, _stores

__all__ = ["COPIES"]


def _new_buffers(ctx: CheckContext) -> set[str]:
    return {b.name for b in _declared(ctx.child)} - {b.name for b in _declared(ctx.parent)}


def _shape(program: Program, name: str) -> str | None:
    found = next((b for b in _declared(program) if b.name == name), None)
    return None if found is None else "x".join(str(eval_index(s, program.size_env)) for s in found.shape)


def _dimensions(c: Claim, ctx: CheckContext) -> str | None:
    name, new = c["buffer"], _shape(ctx.child, c["buffer"])
    old = _shape(ctx.parent, name)
    if old is None:  # a copy of an input: the layout it departs from is the input's
        if name not in _new_buffers(ctx):
            return f"no buffer {name}"
        old = _shape(ctx.parent, ctx.params.get("buffer", ""))
    elif name != ctx.params.get("buffer"):
        return f"{name} is not the buffer of this step"
    if (c["old"], c["new"]) != (old, new):
        return f"from {old} to {new}"
    if ctx.strategy == "set_storage_layout":
        return None if new == laid_out(ctx) else f"the site makes it {laid_out(ctx)}"
    perm = [int(d) for d in ctx.params.get("perm", "").split(".")]
    dims = (old or "").split("x")
    return None if [dims[d] for d in perm] == (new or "").split("x") else f"{new} is not {old} permuted as the site says"


def _accesses(program: Program, name: str) -> int:
    own = sum(
        1
        for _, s, _ in _walk(program)
        if isinstance(s, Store)
        for x in (*s.indices, s.value)
        for e in _below(x)
        if isinstance(e, Load) and e.buffer == name and s.buffer == name
    )
    return _reads(program)[name] + own + len(_stores(program, name))


def _accesses_rewritten(c: Claim, ctx: CheckContext) -> str | None:
    if c["buffer"] != ctx.params.get("buffer"):
        return f"{c['buffer']} is not the buffer of this step"
    count = _accesses(ctx.parent, c["buffer"])
    return None if c.number("count") == count > 0 else f"there are {count}"


def _site_loop(c: Claim, ctx: CheckContext) -> str | None:
    loop = loop_at(ctx.parent, c.place("at"))
    if c.place("at") != ctx.path or loop is None or loop.var != c["loop"]:
        return f"the site is no loop {c['loop']}"
    return None if c["buffer"] == ctx.params.get("buffer") else f"{c['buffer']} is not the buffer of this step"


def _under(program: Program, place: Path) -> tuple[set[str], set[str]]:
    """Buffers read and written at or below a path."""
    reads: set[str] = set()
    writes: set[str] = set()
    for path, stmt, _ in _walk(program):
        if path[: len(place)] == place and isinstance(stmt, Store):
            writes.add(stmt.buffer)
            reads |= {e.buffer for x in (*stmt.indices, stmt.value) for e in _below(x) if isinstance(e, Load)}
    return reads, writes


def _region_copied(c: Claim, ctx: CheckContext) -> str | None:
    if (problem := _site_loop(c, ctx)) is not None:
        return problem
    holder = loop_at(ctx.child, ctx.path)
    if c["into"] not in _new_buffers(ctx) or holder is None or all(b.name != c["into"] for b in holder.tmps):
        return f"the loop declares no new {c['into']}"
    copies = [s for _, s in _stores(ctx.child, c["into"])]
    if len(copies) != 1 or not isinstance(copies[0].value, Load) or copies[0].value.buffer != c["buffer"]:
        return f"{c['into']} is not a copy of {c['buffer']}"
    others = [s for p, s, _ in _walk(ctx.child) if p[: len(ctx.path)] == ctx.path and isinstance(s, Store) and s.buffer != c["into"]]
    left = any(isinstance(e, Load) and e.buffer == c["buffer"] for s in others for x in (*s.indices, s.value) for e in _below(x))
    return f"{c['buffer']} is still read there" if left else None


def _not_written_under(c: Claim, ctx: CheckContext) -> str | None:
    if (problem := _site_loop(c, ctx)) is not None:
        return problem
    return f"{c['buffer']} is written there" if c["buffer"] in _under(ctx.parent, ctx.path)[1] else None


def _accumulates_in(c: Claim, ctx: CheckContext) -> str | None:
    if (problem := _site_loop(c, ctx)) is not None:
        return problem
    before = [s for p, s in _stores(ctx.parent, c["buffer"]) if p[: len(ctx.path)] == ctx.path]
    after = [s for p, s in _stores(ctx.child, c["into"]) if p[: len(ctx.path)] == ctx.path]
    same = len(before) == len(after) == 1 and before[0].reduce == after[0].reduce is not None and before[0].value == after[0].value
    return None if same and c["into"] in _new_buffers(ctx) else f"{c['into']} does not accumulate what {c['buffer']} did"


def _written_back(c: Claim, ctx: CheckContext) -> str | None:
    if c["buffer"] != ctx.params.get("buffer"):
        return f"{c['buffer']} is not the buffer of this step"
    new = [b for b in _declared(ctx.child) if b.name in _new_buffers(ctx)]
    back = [s for _, s in _stores(ctx.child, c["buffer"]) if isinstance(s.value, Load) and s.value.buffer in {b.name for b in new}]
    if len(back) != 1 or back[0].reduce is not None:
        return "no plain store writes the accumulators back"
    count = _elements(next(b for b in new if isinstance(back[0].value, Load) and b.name == back[0].value.buffer), ctx.child)
    return None if c.number("elements") == count else f"{count} elements are written back"


def _named(c: Claim, ctx: CheckContext) -> str | None:
    if c["name"] not in _new_buffers(ctx):
        return f"{c['name']} is not new"
    made = [s for _, s in _stores(ctx.child, c["name"])]
    return None if len(made) == 1 and made[0].reduce is None and print_expr(made[0].value) == c["text"] else f"{c['name']} does not hold that"


def _beside_indices(expr: Expr) -> Iterator[Expr]:
    """The expression and what is below it; what indexes a read is not counted."""
    yield expr
    if isinstance(expr, Op):
        for part in expr.args:
            yield from _beside_indices(part)
    elif isinstance(expr, Cast):
        yield from _beside_indices(expr.arg)


def _occurs(c: Claim, ctx: CheckContext) -> str | None:
    place = c.place("at")
    if place != ctx.path:
        return "not the site"
    owner, n = place[:-1], place[-1]
    body = get(ctx.parent, owner).body if owner else ctx.parent.body  # type: ignore[union-attr]
    count = 0
    inputs: set[str] = set()
    for stmt in body[n:]:
        if not isinstance(stmt, Store):
            break
        found = [e for e in _beside_indices(stmt.value) if print_expr(e) == c["text"]]
        count += len(found)
        inputs |= {e.buffer for x in found for e in _below(x) if isinstance(e, Load)}
        if stmt.buffer in inputs:
            break
    return None if c.number("count") == count >= 2 else f"{count} times"


def _not_written_in(c: Claim, ctx: CheckContext) -> str | None:
    place, named = c.place("at"), list(c.names("buffers"))
    if ctx.path[: len(place)] != place or named != sorted(set(named)):
        return "not the nest of this step"
    made = [s for name in _new_buffers(ctx) for _, s in _stores(ctx.child, name)]
    inputs = sorted({e.buffer for s in made for e in _below(s.value) if isinstance(e, Load)})
    if inputs != named:
        return f"the expression reads {inputs}"
    return None if not set(named) & _under(ctx.parent, place)[1] else "one of them is written there"


def _same_value(c: Claim, ctx: CheckContext) -> str | None:
    if (c["buffer"], c["other"]) != (ctx.params.get("buffer"), ctx.params.get("other")) or c.place("second") != ctx.path:
        return "not the temporaries of this step"
    if c["other"] not in _under(ctx.parent, c.place("first"))[1] or c["buffer"] not in _under(ctx.parent, ctx.path)[1]:
        return "not computed there"
    for program, _ in ctx.tiny:
        made = run(program)
        a = {e[1]: h[-1] for e, h in made.of(c["buffer"]).items()}
        b = {e[1]: h[-1] for e, h in made.of(c["other"]).items()}
        if a != b:
            return "their values differ"
    return None if ctx.tiny else "no tiny sizes to try it at"


def _reads_renamed(c: Claim, ctx: CheckContext) -> str | None:
    gone = _reads(ctx.parent)[c["buffer"]] - _reads(ctx.child)[c["buffer"]]
    more = _reads(ctx.child)[c["other"]] - _reads(ctx.parent)[c["other"]]
    return None if c.number("count") == gone == more > 0 else f"{gone} reads go, {more} come"


COPIES: dict[str, Rederivation] = {
    "dimensions": _dimensions,
    "accesses_rewritten": _accesses_rewritten,
    "region_copied": _region_copied,
    "not_written_under": _not_written_under,
    "accumulates_in": _accumulates_in,
    "written_back": _written_back,
    "named": _named,
    "occurs": _occurs,
    "not_written_in": _not_written_in,
    "same_value": _same_value,
    "reads_renamed": _reads_renamed,
}
