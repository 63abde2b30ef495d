"""Dependence directions without isl: interval tests on linear indices, in masks.

For every pair of accesses to one buffer of which one writes, and every level of their common loops, a dependence has a *mask* per loop:
which of the signs (sink minus source) ``-``, ``0``, ``+`` are possible there. Masks over-approximate: an empty answer is a proof
that no dependence exists at that level, for all inputs. Whether a possible one really exists is for :mod:`steptp.rewrite.legality`, which
looks for a witness and asks isl only when none is found.

The test is Banerjee's inequality with direction vectors (Allen and Kennedy, *Optimizing Compilers for Modern Architectures*,
section 3.3), at real sizes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from steptp.analysis.affine import Linear
from steptp.analysis.model import Access, Model, Statement, common_loops
from steptp.ir.nodes import Const, Expr, Op, Path, Size, Var
from steptp.ir.sizes import eval_index
from steptp.ir.walk import free_vars, loads

__all__ = ["NEG", "ZERO", "POS", "ANY", "Dep", "Directions", "pure_reduction"]

NEG, ZERO, POS = 1, 2, 4
ANY = NEG | ZERO | POS


@dataclass(frozen=True, slots=True)
class Dep:
    """A possible dependence: source runs before sink. ``masks`` has one entry per common loop, outermost first.

    ``level`` is the loop that carries it (masks before it are ``ZERO``, its own is ``POS``); it equals ``len(masks)`` when the
    source precedes the sink within one iteration of all common loops. ``reduction`` marks an accumulation meeting itself.
    """

    source: Access
    sink: Access
    level: int
    masks: tuple[int, ...]
    reduction: bool
    loops: tuple[Path | None, ...]
    """Paths (in the program) of the common loops; ``None`` for a loop of a reset's own nest."""

    @property
    def buffer(self) -> str:
        return self.source.buffer


def pure_reduction(st: Statement) -> bool:
    """An accumulation whose value does not read its own target."""
    return st.is_accumulation and all(e.buffer != st.store.buffer for e in (*loads(st.store.value), *(x for i in st.store.indices for x in loads(i))))


class _Pair:
    """Two accesses of one buffer: is a vector of masks possible for (instance of b) minus (instance of a)?"""

    def __init__(self, a: Access, b: Access, common: int) -> None:
        self.common = common
        sa, sb = a.statement, b.statement
        # loops that run once now may run more often at other sizes: masks keep both signs for them
        self.high_a = {v: max(high, 1) for v, (_, high) in sa.intervals.items()}
        self.high_b = {v: max(high, 1) for v, (_, high) in sb.intervals.items()}
        self.names = tuple(loop.var for loop in sa.loops[:common])
        self.equations: list[tuple[tuple[tuple[int, int, int], ...], int, int]] = []  # ((loop, a, b)…), low, high of the rest
        self.forced: set[int] = set()  # loops whose variable must be equal
        known = set(self.names)
        quotients: dict[tuple[str, int], set[str]] = {}
        for fa, fb, ea, eb in zip(a.forms, b.forms, a.indices, b.indices, strict=True):
            if fa is not None and fb is not None:
                self._equation(fa, fb)
            elif ea == eb and (part := _digit(ea, sa)) is not None and part[0] in known:
                quotients.setdefault(part[:2], set()).add(part[2])
        self.forced.update(self.names.index(var) for (var, _), kinds in quotients.items() if len(kinds) == 2)

    def _equation(self, fa: Linear, fb: Linear) -> None:
        ca, cb = dict(fa[0]), dict(fb[0])
        low = high = fa[1] - fb[1]
        terms = []
        for k, name in enumerate(self.names):
            p, q = ca.pop(name, 0), cb.pop(name, 0)
            if p or q:
                terms.append((k, p, q))
        for rest, bounds, sign in ((ca, self.high_a, 1), (cb, self.high_b, -1)):
            for name, c in rest.items():
                ends = (0, sign * c * bounds[name])
                low, high = low + min(ends), high + max(ends)
        self.equations.append((tuple(terms), low, high))

    def possible(self, masks: tuple[int, ...]) -> bool:
        """Whether every index equation has a solution in the ranges under these masks (each equation for itself)."""
        for k, mask in enumerate(masks):
            if k in self.forced and not mask & ZERO:
                return False
            if mask != ANY and not mask & ZERO and self.high_a[self.names[k]] < 1:
                return False
        for terms, low, high in self.equations:
            for k, p, q in terms:
                bounds = self._term(k, p, q, masks[k])
                if bounds is None:
                    return False
                low, high = low + bounds[0], high + bounds[1]
            if low > 0 or high < 0:
                return False
        return True

    def _term(self, k: int, p: int, q: int, mask: int) -> tuple[int, int] | None:
        """Range of ``p*x - q*y`` for ``x, y`` in the loop's range with ``y - x`` in the mask: the extremes lie at corners."""
        top = self.high_a[self.names[k]]
        if k in self.forced:
            mask &= ZERO
        values: list[int] = []
        if mask == ANY:
            corners = [(0, 0), (0, top), (top, 0), (top, top)]
        else:
            corners = [(0, 0), (top, top)] if mask & ZERO else []
            if top >= 1:
                if mask & POS:
                    corners += [(0, 1), (0, top), (top - 1, top)]
                if mask & NEG:
                    corners += [(1, 0), (top, 0), (top, top - 1)]
        values = [p * x - q * y for x, y in corners]
        return (min(values), max(values)) if values else None

    def refine(self, prefix: tuple[int, ...]) -> tuple[int, ...] | None:
        """The masks of all common loops after a decided prefix, or ``None`` when no dependence has this prefix."""
        masks = list(prefix) + [ANY] * (self.common - len(prefix))
        if not self.possible(tuple(masks)):
            return None
        for k in range(len(prefix), self.common):
            masks[k] = sum(bit for bit in (NEG, ZERO, POS) if self.possible((*masks[:k], bit, *masks[k + 1 :])))
            if not masks[k]:
                return None
        return tuple(masks)


def _digit(expr: Expr, st: Statement) -> tuple[str, int, str] | None:
    """``(f, M, "//" or "%")`` for the index ``f//M`` or ``f%M`` of one loop variable and a divisor without variables."""
    if isinstance(expr, Op) and expr.name in ("//", "%") and isinstance(expr.args[0], Var) and not free_vars(expr.args[1]):
        if isinstance(expr.args[1], (Const, Size, Op)) and not any(loads(expr.args[1])):
            return expr.args[0].name, eval_index(expr.args[1], st.model.sizes), expr.name
    return None


def _flip(masks: tuple[int, ...]) -> tuple[int, ...]:
    return tuple((m & ZERO) | (POS if m & NEG else 0) | (NEG if m & POS else 0) for m in masks)


def _between(a: Access, b: Access, model: Model) -> Iterator[Dep]:
    """Dependences between two accesses, in both directions; ``a``'s statement stands before ``b``'s or is the same."""
    sa, sb = a.statement, b.statement
    common = common_loops(sa, sb)
    pair = _Pair(a, b, common)
    private = min(model.private_depth(sa, a.buffer), common)
    loops = tuple(loop.origin for loop in sa.loops[:common])
    reduction = sa is sb and pure_reduction(sa) and a.indices == b.indices
    for level in range(private, common):
        for bit in (POS, NEG):
            masks = pair.refine((ZERO,) * level + (bit,))
            if masks is None:
                continue
            yield Dep(a, b, level, masks, reduction, loops) if bit == POS else Dep(b, a, level, _flip(masks), reduction, loops)
            if sa is sb and a.indices == b.indices:
                break  # an access meets itself: the opposite sign is the same pair read backwards
    if sa is not sb and pair.refine((ZERO,) * common) is not None:
        yield Dep(a, b, common, (ZERO,) * common, reduction, loops)


class Directions:
    """All possible dependences of a program, found once per buffer and kept."""

    def __init__(self, model: Model) -> None:
        self.model = model

    @cached_property
    def accesses(self) -> dict[str, list[Access]]:
        """Buffer → accesses in order of their statements, for buffers that are written."""
        found: dict[str, list[Access]] = {}
        written = {s.store.buffer for s in self.model.statements}
        for st in self.model.statements:
            seen: set[tuple[str, tuple[Expr, ...], bool]] = set()
            for access in (st.write, *st.reads):
                key = (access.buffer, access.indices, access.is_write)
                own = not access.is_write and st.is_accumulation and access.load is None  # covered by the write of the same element
                if access.buffer in written and not own and key not in seen:
                    seen.add(key)
                    found.setdefault(access.buffer, []).append(access)
        return found

    @cached_property
    def all(self) -> tuple[Dep, ...]:
        """Every possible dependence."""
        out: list[Dep] = []
        for found in self.accesses.values():
            for n, a in enumerate(found):
                for b in found[n:]:
                    if (a.is_write or b.is_write) and not (a.statement is b.statement and a.statement.is_reset):
                        out.extend(_between(a, b, self.model))
        return tuple(out)
