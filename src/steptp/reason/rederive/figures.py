"""Figures, counted again: by walking the tree once with a running multiplier instead of per-store products."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from steptp.ir.nodes import Body, Buffer, Cast, Expr, If, Load, Loop, Op, Program, Store
from steptp.ir.printer import print_expr, print_stmt
from steptp.ir.sizes import eval_index
from steptp.reason.patterns import Claim
from steptp.reason.rederive.context import CheckContext, Rederivation

__all__ = ["FIGURES", "unsaid"]

_FLOAT_OPS = frozenset(
    [
        "+",
        "-",
        "*",
        "/",
        "neg",
        "max",
        "min",
        "abs",
        "exp",
        "expm1",
        "log",
        "log1p",
        "sqrt",
        "rsqrt",
        "tanh",
        "sigmoid",
        "erf",
        "sin",
        "cos",
        "floor",
        "ceil",
        "round",
        "pow",
    ]
)


@dataclass
class _Tally:
    """Per store, in text order: runs, operations of one run, bytes of one run, and the loops around."""

    stores: list[Store] = field(default_factory=list)
    runs: list[int] = field(default_factory=list)
    ops: list[int] = field(default_factory=list)
    bytes: list[int] = field(default_factory=list)
    around: list[list[Loop]] = field(default_factory=list)
    temporaries: int = 0
    data: int = 0

    @property
    def operations(self) -> int:
        return sum(r * o for r, o in zip(self.runs, self.ops, strict=True))

    @property
    def accessed(self) -> int:
        return sum(r * b for r, b in zip(self.runs, self.bytes, strict=True))

    @property
    def leader(self) -> int:
        weights = [r * o for r, o in zip(self.runs, self.ops, strict=True)]
        if not any(weights):
            weights = self.runs
        return weights.index(max(weights))


def _tally(program: Program) -> _Tally:
    out = _Tally()
    env = dict(program.size_env)
    slots: dict[int, int] = {}

    def nbytes(b: Buffer) -> int:
        size = b.dtype.itemsize
        for s in b.shape:
            size *= eval_index(s, env)
        return size

    def enter(body: Body, times: int, loops: list[Loop], key: int) -> None:
        for position, stmt in enumerate(body):
            here = hash((key, position))
            if isinstance(stmt, Store):
                if here not in slots:
                    slots[here] = len(out.stores)
                    out.stores.append(stmt)
                    out.runs.append(0)
                    out.ops.append(_ops(stmt))
                    out.bytes.append(_bytes(stmt))
                    out.around.append(list(loops))
                out.runs[slots[here]] += times
            elif isinstance(stmt, If):
                enter(stmt.body, times, loops, here)
            else:
                count = max(eval_index(stmt.extent, env), 0)
                if _varies(stmt):
                    for n in range(count):
                        env[stmt.var] = n
                        enter(stmt.body, times, [*loops, stmt], here)
                    env.pop(stmt.var, None)
                    if not count:
                        enter_none(stmt, here, [*loops, stmt])
                else:
                    enter(stmt.body, times * count, [*loops, stmt], here)

    def enter_none(loop: Loop, here: int, loops: list[Loop]) -> None:
        env[loop.var] = 0
        enter(loop.body, 0, loops, here)
        env.pop(loop.var, None)

    enter(program.body, 1, [], 0)
    shown = {b.name for b in (*program.inputs, *program.outputs)}
    for b in _declared(program):
        out.data += nbytes(b)
        if b.name not in shown:
            out.temporaries += nbytes(b)
    return out


def _declared(program: Program) -> Iterator[Buffer]:
    yield from (*program.inputs, *program.outputs, *program.tmps)
    pending = list(program.body)
    while pending:
        stmt = pending.pop()
        if isinstance(stmt, Loop):
            yield from stmt.tmps
        if not isinstance(stmt, Store):
            pending += stmt.body


def _varies(loop: Loop) -> bool:
    """Whether an extent below depends on this loop."""
    pending = list(loop.body)
    while pending:
        stmt = pending.pop()
        if isinstance(stmt, Loop) and f"'{loop.var}'" in repr(stmt.extent):
            return True
        if not isinstance(stmt, Store):
            pending += stmt.body
    return False


def _below(expr: Expr) -> list[Expr]:
    found, pending = [], [expr]
    while pending:
        e = pending.pop()
        found.append(e)
        pending += e.args if isinstance(e, Op) else e.indices if isinstance(e, Load) else (e.arg,) if isinstance(e, Cast) else ()
    return found


def _ops(store: Store) -> int:
    nodes = _below(store.value) + [e for i in store.indices for e in _below(i)]
    total = sum(1 for e in nodes if isinstance(e, Op) and e.name in _FLOAT_OPS and e.dtype.is_float)
    return total + (1 if store.reduce and store.value.dtype.is_float else 0)


def _bytes(store: Store) -> int:
    nodes = _below(store.value) + [e for i in store.indices for e in _below(i)]
    return sum(e.dtype.itemsize for e in nodes if isinstance(e, Load)) + store.value.dtype.itemsize * (2 if store.reduce else 1)


def _ratio(top: int, bottom: int) -> str:
    whole, rest = divmod(top * 100, bottom)
    whole += rest * 2 >= bottom
    return f"{whole // 100}.{whole % 100:02d}"


def _moves(access: Load, loop: Loop, program: Program) -> int | None:
    env: dict[str, int] = dict(program.size_env)
    names = {e.name for i in access.indices for e in _below(i) if type(e).__name__ == "Var"}  # type: ignore[attr-defined]
    shape = next(b.shape for b in _declared(program) if b.name == access.buffer)
    if any(isinstance(e, Load) for i in access.indices for e in _below(i)):
        return None
    places = []
    for turn in (0, 1):
        values = env | dict.fromkeys(names, 0) | ({loop.var: turn} if loop.var in names else {})
        flat, weight = 0, 1
        for index, extent in reversed(list(zip(access.indices, shape, strict=True))):
            flat += eval_index(index, values) * weight
            weight *= eval_index(extent, env)
        places.append(flat)
    return places[1] - places[0]


def _distinct(store: Store) -> dict[str, Load]:
    found = {print_expr(t): t for t in [Load(store.buffer, store.indices, store.value.dtype)]}
    for e in _below(store.value):
        if isinstance(e, Load):
            found.setdefault(print_expr(e), e)
    return found


def _work(c: Claim, ctx: CheckContext) -> str | None:
    t = _tally(ctx.parent)
    want = (t.operations, t.data, _ratio(t.operations, t.data))
    return None if (c.number("operations"), c.number("data"), c["intensity"]) == want else f"it is {want[0]} operations, {want[1]} bytes, {want[2]} a byte"


def _no_arithmetic(c: Claim, ctx: CheckContext) -> str | None:
    t = _tally(ctx.parent)
    return None if not t.operations and c.number("stores") == sum(t.runs) else f"{t.operations} operations, {sum(t.runs)} stores"


def _dominant(c: Claim, ctx: CheckContext) -> str | None:
    t = _tally(ctx.parent)
    n = t.leader
    text = print_stmt(t.stores[n])
    holding = [k for k, line in enumerate(ctx.lines[0], 1) if line.endswith(text) and (line.strip() == text or line[: -len(text)].endswith(" "))]
    weights = [r * o for r, o in zip(t.runs, t.ops, strict=True)] if t.operations else t.runs
    percent = int(100 * weights[n] / sum(weights) + 0.5) if sum(weights) else 0
    exact = (200 * weights[n] + sum(weights)) // (2 * sum(weights)) if sum(weights) else 0
    unit = "operations" if t.operations else "stores"
    if c["text"] != text or c["unit"] != unit or c.number("percent") not in (exact, percent) or c.number("percent") != exact:
        return f"it is `{text}` with {exact}% of the {unit}"
    same = [k for k, s in enumerate(t.stores) if print_stmt(s) == text]
    return None if holding and c.number("line") == holding[same.index(n)] else f"`{text}` is not the leading statement of line {c['line']}"


def _levels(host: Mapping[str, object]) -> list[tuple[str, int]]:
    out = []
    for n in (1, 2, 3):
        size = host.get(f"l{n}_bytes")
        if isinstance(size, int) and size:
            out.append((f"L{n}", size))
    return out


def _cache_fit(c: Claim, ctx: CheckContext) -> str | None:
    data = _tally(ctx.parent).data
    for name, size in _levels(ctx.host):
        if data <= size:
            return None if (c["level"], c.number("bytes")) == (name, size) else f"the smallest cache that holds {data} bytes is {name} of {size}"
    return f"no cache holds {data} bytes"


def _cache_exceeded(c: Claim, ctx: CheckContext) -> str | None:
    levels, data = _levels(ctx.host), _tally(ctx.parent).data
    ok = levels and (c["level"], c.number("bytes")) == levels[-1] and all(data > s for _, s in levels)
    return None if ok else f"{data} bytes against {levels}"


def _inner_access(c: Claim, ctx: CheckContext) -> str | None:
    t = _tally(ctx.parent)
    loops = t.around[t.leader]
    access = _distinct(t.stores[t.leader]).get(c["access"])
    if not loops or access is None or loops[-1].var != c["loop"]:
        return f"the leading statement has no access `{c['access']}` under an innermost loop {c['loop']}"
    moved = _moves(access, loops[-1], ctx.parent)
    return None if moved == c.number("elements") else f"it moves by {moved}"


def _change(c: Claim, ctx: CheckContext) -> str | None:
    a, b = _tally(ctx.parent), _tally(ctx.child)
    want = {
        "statements_change": (len(a.stores), len(b.stores)),
        "operations_change": (a.operations, b.operations),
        "accessed_change": (a.accessed, b.accessed),
        "temporaries_change": (a.temporaries, b.temporaries),
    }[c.kind]
    return None if (c.number("before"), c.number("after")) == want else f"{want[0]} before and {want[1]} after"


def _traits(program: Program, cores: int) -> tuple[int, int, int, int, int]:
    """(used cores, lanes, strided accesses, bytes accessed, operations); smaller is better for the last three."""
    t = _tally(program)
    env = program.size_env
    loops = t.around[t.leader]
    parallel = [lp for lp in loops if lp.kind.value == "par"]
    used = max(eval_index(parallel[0].extent, env), 1) if parallel and not _names(parallel[0].extent) else 1
    lanes, strided = 1, 0
    if loops:
        inner = loops[-1]
        if inner.kind.value == "vec" and not _names(inner.extent):
            lanes = max(eval_index(inner.extent, env), 1)
        moves = [_moves(a, inner, program) for a in _distinct(t.stores[t.leader]).values()]
        strided = sum(1 for m in moves if m is not None and m not in (-1, 0, 1))
    return min(used, cores), lanes, strided, t.accessed, t.operations


def _names(expr: Expr) -> set[str]:
    return {e.name for e in _below(expr) if type(e).__name__ == "Var"}  # type: ignore[attr-defined]


def _expectation(c: Claim, ctx: CheckContext) -> str | None:
    cores = ctx.host.get("cores")
    a, b = (_traits(p, cores if isinstance(cores, int) else 1) for p in (ctx.parent, ctx.child))
    want = ("same", "nothing")
    for n, because in enumerate(("cores", "lanes", "strides", "traffic", "operations")):
        if a[n] != b[n]:
            better = b[n] > a[n] if n < 2 else b[n] < a[n]
            want = ("faster" if better else "slower", because)
            break
    return None if (c["outcome"], c["because"]) == want else f"the rule says {want[0]} by {want[1]}"


def _candidates(c: Claim, ctx: CheckContext) -> str | None:
    counts = Counter(site.split("@")[0] for site in ctx.candidates)
    text = ", ".join(f"{counts[name]} {name}" for name in sorted(counts))
    return None if c.number("total") == len(ctx.candidates) and c["counts"] == text else f"{len(ctx.candidates)}: {text}"


def _choice(c: Claim, ctx: CheckContext) -> str | None:
    if c["site"] != ctx.site:
        return f"the step is {ctx.site}"
    return None if ctx.site in ctx.candidates or c.kind == "choice_uniform_within_strategy" else "the site is not among the candidates"


FIGURES: dict[str, Rederivation] = {
    "work": _work,
    "no_arithmetic": _no_arithmetic,
    "dominant": _dominant,
    "cache_fit": _cache_fit,
    "cache_exceeded": _cache_exceeded,
    "inner_access": _inner_access,
    "statements_change": _change,
    "operations_change": _change,
    "accessed_change": _change,
    "temporaries_change": _change,
    "expectation": _expectation,
    "candidates": _candidates,
    "choice_balanced_random": _choice,
    "choice_uniform_within_strategy": _choice,
}


def unsaid(section: str, claims: Sequence[Claim], ctx: CheckContext) -> list[str]:
    """Kinds that a section owes and does not state: leaving out what changed is as misleading as inventing it."""
    said = Counter(c.kind for c in claims)
    if section == "Dominant":
        t = _tally(ctx.parent)
        loops = t.around[t.leader]
        moves = [_moves(a, loops[-1], ctx.parent) for a in _distinct(t.stores[t.leader]).values()] if loops else []
        owed = ["work" if t.operations else "no_arithmetic", "dominant"]
        if levels := _levels(ctx.host):
            owed.append("cache_fit" if any(t.data <= size for _, size in levels) else "cache_exceeded")
        return [k for k in owed if not said[k]] + (["inner_access"] if said["inner_access"] != sum(m is not None for m in moves) else [])
    if section == "Effect":
        a, b = _tally(ctx.parent), _tally(ctx.child)
        pairs = {
            "statements_change": (len(a.stores), len(b.stores)),
            "operations_change": (a.operations, b.operations),
            "accessed_change": (a.accessed, b.accessed),
            "temporaries_change": (a.temporaries, b.temporaries),
        }
        return [k for k, (x, y) in pairs.items() if (x != y) != bool(said[k])] + ([] if said["expectation"] else ["expectation"])
    if section == "Legal":
        known = {s.name for s in ctx.parent.sizes}
        named = {c["name"] for c in claims if c.kind == "tile_size"}
        owed = [f"size {s.name}" for s in ctx.child.sizes if s.name not in known | named]
        old = {print_expr(x) for x in ctx.parent.constraints}
        stated = {c["constraint"] for c in claims if "constraint" in c.values}
        return owed + [f"constraint {text}" for x in ctx.child.constraints if (text := print_expr(x)) not in old | stated]
    return []
