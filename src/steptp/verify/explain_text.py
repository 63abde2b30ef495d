"""Terms, values and places as text for people."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from flint import arb, fmpq

from steptp.errors import Place
from steptp.interp.trace import Instance, Term
from steptp.ir.nodes import Expr, Load, Path, Program, Store
from steptp.ir.printer import print_expr
from steptp.ir.sourcemap import SourceMap
from steptp.ir.walk import get, loads
from steptp.verify.explanation import Spot
from steptp.verify.parting import Parting, core

__all__ = ["access_of", "decimal", "distinct", "range_of", "shown", "spot_of", "term_spot", "unfolded"]

_DIGITS, _MORE = 8, (12, 17, 30, 60, 120, 300, 1000, 5000)
_WIDTH, _AROUND, _LINES, _DEPTH = 90, 6, 40, 24
_SIGNS = {"+": " + ", "*": " * "}


def decimal(value: Any, digits: int = _DIGITS) -> str:
    """A value with about ``digits`` digits, without trailing zeros."""
    if isinstance(value, fmpq):
        if value.denominator == 1 and len(str(value)) <= digits + 2:
            return str(value)
        value = arb(value)
    if not isinstance(value, arb):
        return f"{value:.{digits}g}" if isinstance(value, float) else str(value).lower()
    text = str(value.str(digits, radius=False))
    mantissa, mark, exponent = text.partition("e")
    return (mantissa.rstrip("0").rstrip(".") if "." in mantissa else mantissa) + mark + exponent


def distinct(a: Any, b: Any) -> tuple[str, str]:
    """Both values with as many digits as it takes to see that they differ."""
    for digits in (_DIGITS, *_MORE):
        first, second = decimal(a, digits), decimal(b, digits)
        if first != second:
            break
    return first, second


# places


def _narrowed(program: Program, path: Path, expr: Expr | None) -> Place:
    """The place of a statement, or of ``expr`` in it where its text stands there once."""
    place = SourceMap.of(program).place(path)
    if expr is None or not place.line:
        return place
    text = place.source.split("\n")[place.line - 1]
    start = place.column - 1
    inside = text[start : start + place.length]
    wanted = print_expr(expr, expr.dtype)
    if inside.count(wanted) != 1:
        return place
    return Place(place.source, place.line, place.column + inside.index(wanted), len(wanted), place.filename)


def access_of(program: Program, path: Path, buffer: str) -> Load | None:
    """The only access to ``buffer`` in the statement at ``path``, if there is one."""
    stmt = get(program, path)
    if not isinstance(stmt, Store):
        return None
    found = [load for e in (stmt.value, *stmt.indices) for load in loads(e) if load.buffer == buffer]
    if stmt.buffer == buffer:
        found.append(Load(stmt.buffer, stmt.indices, stmt.value.dtype))
    return found[0] if len(set(found)) == 1 else None


def spot_of(who: str, program: Program, path: Path, expr: Expr | None, at: Sequence[tuple[str, int]], expression: str = "", value: str = "") -> Spot:
    """The spot of a statement or a subterm."""
    place = _narrowed(program, path, expr)
    return Spot(who, place.line, place.column, place.length, place.filename, place.render(), tuple(at), expression, value)


def term_spot(who: str, program: Program, term: Term, value: str) -> Spot | None:
    """Where a subterm stands."""
    run = term.instance or term.start
    if run is None:  # the output element itself
        inner = core(term)
        run = inner.instance or inner.start
    return None if run is None else spot_of(who, program, run.path, term.expr, run.at, shown(term), value)


# terms


def shown(term: Term) -> str:
    """A term in one line, its loop variables replaced by their values."""
    if not term.folded:
        return _cut(term.text)
    parts = [a.text for a in term.args[:5]]
    if not parts:
        return "no terms"
    count = len(term.args)
    if count == 1:
        return _cut(parts[0])
    if count > 4:
        parts = [*parts[:2], "…", term.args[-1].text]
    text = _SIGNS[term.head].join(parts) if term.head in _SIGNS else f"{term.head}({', '.join(parts)})"
    return _cut(text) + (f" ({count} terms)" if count > 4 else "")


def _cut(text: str) -> str:
    return text if len(text) <= _WIDTH else text[: _WIDTH - 1] + "…"


def unfolded(top: Term, parting: Parting, own: int, lines: SourceMap) -> tuple[str, ...]:
    """A term opened down to where it parts, a line a subterm, each with its value; ``own`` is 0 for the parent's side and 1 for the child's.

    Subterms on the way are opened and marked, others stay closed, inputs are left out; of long accumulations only the terms near a difference are shown.
    """
    path = [pair[own] for pair in parting.trail]
    marked = {id(t) for one in path for t in _layers(one)} | {id(t) for t in (*parting.missing, *parting.extra)}
    marked |= {id(t) for t in _layers((parting.parent, parting.child)[own])}
    out: list[str] = []
    for depth, line in _opened(top, 0, marked, lines):
        if len(out) == _LINES:
            out.append("…")
            break
        out.append("  " * depth + line)
    return tuple(out)


def _layers(term: Term) -> Iterator[Term]:
    """The term and what :func:`core` strips from it, and accumulations of one term."""
    while True:
        yield term
        if not (term.head in ("read", "cast") or (term.folded and len(term.args) == 1)):
            return
        term = term.args[0]


def _opened(term: Term, depth: int, marked: set[int], lines: SourceMap) -> Iterator[tuple[int, str]]:
    mark = "≠ " if id(term) in marked else "  "
    inner = term
    names = [_cut(term.text)]
    while inner.head == "read":
        inner = inner.args[0]
        names.append(shown(inner))
        if inner.folded and len(inner.args) == 1:
            inner = inner.args[0]
    where = ""
    if len(names) > 1 and (run := inner.instance or inner.start) is not None:
        where = f"   (line {lines.place(run.path).line}{': ' + run.shown() if run.at else ''})"
    yield depth, f"{mark}{' := '.join(n for n in names if n)} = {decimal(inner.value)}{where}"
    if id(term) not in marked or depth > _DEPTH:
        return
    for item in _near(inner, marked) if inner.folded else inner.args:
        if isinstance(item, str):
            yield depth + 1, f"  {item}"
        elif item.head not in ("const", "index", "input") or id(item) in marked:
            yield from _opened(item, depth + 1, marked, lines)


def _near(fold: Term, marked: set[int]) -> Iterator[Term | str]:
    """The first and last terms of an accumulation, and those around marked ones."""
    count = len(fold.args)
    if count == 1 and not fold.args[0].args:
        return
    chosen = {0, count - 1}
    hits = [n for n, t in enumerate(fold.args) if id(t) in marked][: _AROUND // 2]
    for n in hits:
        chosen |= {n - 1, n, n + 1}
    if count <= _AROUND:
        chosen = set(range(count))
    before = -1
    for n in sorted(c for c in chosen if 0 <= c < count):
        if n > before + 1:
            yield f"… {n - before - 1} more"
        yield fold.args[n]
        before = n


def range_of(runs: Sequence[Instance]) -> str:
    """The values that loop variables take over the runs of an accumulation: ``k=0..3``."""
    if not runs:
        return "none"
    out = []
    for position, (name, first) in enumerate(runs[0].at):
        values = sorted({r.at[position][1] for r in runs if len(r.at) > position})
        if len(values) > 1:
            whole = values == list(range(values[0], values[-1] + 1))
            out.append(f"{name}={values[0]}..{values[-1]}" + ("" if whole else f" ({len(values)} values)"))
        else:
            out.append(f"{name}={first}")
    return " ".join(out)
