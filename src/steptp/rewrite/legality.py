"""Exact answers about dependences, asked in the terms of strategies.

Masks (:mod:`steptp.rewrite.directions`) prove most absences. A dependence that they leave possible is looked for in a few small
instances, then with isl, and its witness is named in refusals.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from typing import TYPE_CHECKING

from steptp.analysis.affine import DIM, sample
from steptp.analysis.model import Access, Statement
from steptp.errors import LeirError
from steptp.ir.nodes import Path
from steptp.ir.printer import print_expr
from steptp.ir.sizes import eval_index
from steptp.rewrite.directions import ANY, NEG, POS, ZERO, Dep, Directions

if TYPE_CHECKING:
    from steptp.rewrite.context import Context

__all__ = ["Legality", "Witness", "Relation"]

Relation = tuple[int, str]
"""``(k, "=")``, ``(k, "<")`` or ``(k, ">")``: source against sink in common loop ``k``."""

_SIGNS = {"=": ZERO, "<": POS, ">": NEG}
_KINDS = {(True, False): "reads", (False, True): "overwrites", (True, True): "writes"}


@dataclass(frozen=True, slots=True)
class Witness:
    """One pair of instances that touch one element: loop values of source and sink."""

    dep: Dep
    source: tuple[int, ...]
    sink: tuple[int, ...]

    @property
    def text(self) -> str:
        """``C[0,0] of (i=0,k=1) updates what (i=0,k=0) wrote`` as a clause for a sentence."""
        a, b = self.dep.source.statement, self.dep.sink.statement
        env = {**a.model.sizes, **dict(zip(a.vars, self.source, strict=True))}
        try:
            element = f"{self.dep.buffer}[{','.join(str(eval_index(i, env)) for i in self.dep.source.indices)}]"
        except LeirError:
            element = f"{self.dep.buffer}[{','.join(print_expr(i) for i in self.dep.source.indices)}]"
        done = "accumulates into" if self.dep.reduction else _KINDS[(self.dep.source.is_write, self.dep.sink.is_write)]
        verb = "wrote" if self.dep.source.is_write else "read"
        return f"iteration {_point(b, self.sink)} {done} {element}, which iteration {_point(a, self.source)} {verb}"


def _point(st: Statement, values: tuple[int, ...]) -> str:
    return "(" + ",".join(f"{v}={x}" for v, x in zip(st.vars, values, strict=True)) + ")"


class Legality:
    """Built by :attr:`Context.legality`; answers are kept."""

    def __init__(self, ctx: Context) -> None:
        self.ctx = ctx
        self._carriers: dict[tuple[Path, bool], Witness | None] = {}
        self._found: dict[tuple[int, tuple[Relation, ...]], Witness | None] = {}

    @cached_property
    def deps(self) -> tuple[Dep, ...]:
        """Every possible dependence of the program (resets included)."""
        return Directions(self.ctx.model).all

    @cached_property
    def _carried(self) -> dict[Path, list[Dep]]:
        out: dict[Path, list[Dep]] = {}
        for dep in self.deps:
            if dep.level < len(dep.masks):
                loop = dep.loops[dep.level]
                if loop is not None:
                    out.setdefault(loop, []).append(dep)
        return out

    @cached_property
    def _through(self) -> dict[Path, list[Dep]]:
        out: dict[Path, list[Dep]] = {}
        for dep in self.deps:
            for loop in dep.loops:
                if loop is not None:
                    out.setdefault(loop, []).append(dep)
        return out

    def carried_deps(self, loop: Path) -> Sequence[Dep]:
        """The possible dependences that the loop at ``loop`` carries."""
        return self._carried.get(loop, ())

    @cached_property
    def straight(self) -> tuple[Dep, ...]:
        """The possible dependences that no loop carries."""
        return tuple(dep for dep in self.deps if dep.level == len(dep.masks))

    @cached_property
    def _straight(self) -> dict[Path, list[Dep]]:
        out: dict[Path, list[Dep]] = {}
        for dep in self.straight:
            if not dep.source.statement.is_reset and not dep.sink.statement.is_reset:
                out.setdefault(dep.sink.statement.origin, []).append(dep)
        return out

    def straight_into(self, store: Path) -> Sequence[Dep]:
        """The possible dependences of the store at ``store`` on other stores (not resets) that no loop carries."""
        return self._straight.get(store, ())

    def through(self, loop: Path) -> Sequence[Dep]:
        """The possible dependences between instances that the loop at ``loop`` encloses."""
        return self._through.get(loop, ())

    def carried(self, loop: Path, *, reductions: bool = True) -> Witness | None:
        """A dependence that the loop at ``loop`` carries, or ``None``: then its iterations may run in any order or at once.

        ``reductions=False`` ignores accumulations that meet themselves.
        """
        key = loop, reductions
        if key not in self._carriers:
            candidates = (self.exists(dep, ()) for dep in self._carried.get(loop, ()) if reductions or not dep.reduction)
            self._carriers[key] = next((found for found in candidates if found is not None), None)
        return self._carriers[key]

    def exists(self, dep: Dep, also: Sequence[Relation]) -> Witness | None:
        """Whether the dependence really occurs, at its level and under further relations between the common loops."""
        key = (id(dep), tuple(also))
        if key not in self._found:
            relations = [(k, "=") for k in range(dep.level)]
            if dep.level < len(dep.masks):
                relations.append((dep.level, "<"))
            relations += list(also)
            self._found[key] = self._search(dep, relations)
        return self._found[key]

    def _search(self, dep: Dep, relations: Sequence[Relation]) -> Witness | None:
        wanted = list(dep.masks)
        for k, sign in relations:
            wanted[k] &= _SIGNS[sign]
            if not wanted[k]:
                return None
        return _small(dep, wanted) or self._exact(dep, relations)

    def _exact(self, dep: Dep, relations: Sequence[Relation]) -> Witness | None:
        pairs = dep.source.map.apply_range(dep.sink.map.reverse())
        for k, sign in relations:
            if sign == "=":
                pairs = pairs.equate(DIM.in_, k, DIM.out, k)
            elif sign == "<":
                pairs = pairs.order_lt(DIM.in_, k, DIM.out, k)
            else:
                pairs = pairs.order_gt(DIM.in_, k, DIM.out, k)
        found = sample(pairs)
        return None if found is None else Witness(dep, *found)

    def reversed_by(self, dep: Dep, order: Sequence[int]) -> Witness | None:
        """A pair of the dependence that runs in the wrong order when the common loops are nested as ``order`` (outermost first)."""
        for n, k in enumerate(order):
            if dep.masks[k] & NEG:
                relations = [(order[m], "=") for m in range(n)] + [(k, ">")]
                if (found := self.exists(dep, relations)) is not None:
                    return found
            if not dep.masks[k] & ZERO:
                return None
        return None

    def hidden_by(self, dep: Dep, order: Sequence[int]) -> str | None:
        """A loop that runs once at the present sizes and so hides that ``order`` reverses the dependence at others."""
        for k in order:
            if dep.masks[k] & NEG:
                for n in (dep.level, k):
                    loop = self.ctx.loop(dep.loops[n] or ())
                    if loop is not None and self.ctx.value(loop.extent) == 1:
                        return loop.var
            if not dep.masks[k] & ZERO:
                return None
        return None

    def carried_at(self, dep: Dep, order: Sequence[int], position: int) -> Witness | None:
        """A pair of the dependence that loop ``order[position]`` carries under the new order."""
        if any(not dep.masks[k] & ZERO for k in order[:position]):
            return None
        k = order[position]
        for bit, sign in ((POS, "<"), (NEG, ">")):
            if dep.masks[k] & bit:
                found = self.exists(dep, [*((order[m], "=") for m in range(position)), (k, sign)])
                if found is not None:
                    return found
        return None


def _small(dep: Dep, masks: Sequence[int]) -> Witness | None:
    """A witness with loop values 0 and 1, if there is one."""
    a, b = dep.source, dep.sink
    sa, sb = a.statement, b.statement
    common = len(masks)
    free = (len(sa.loops) - common) + (len(sb.loops) - common)
    if any(x is None for x in (*a.forms, *b.forms)) or common + free > 8 or a.conditions or b.conditions:
        return None
    options: list[tuple[tuple[int, int], ...]] = []
    for mask in masks:
        pairs = (((0, 0),) if mask & ZERO else ()) + (((0, 1),) if mask & POS else ()) + (((1, 0),) if mask & NEG else ())
        options.append(pairs[:2] if mask == ANY else pairs)
    for chosen in product(*options):
        for extra in product((0, 1), repeat=free):
            x = (*(p[0] for p in chosen), *extra[: len(sa.loops) - common])
            y = (*(p[1] for p in chosen), *extra[len(sa.loops) - common :])
            if _same_element(a, b, x, y) and _runs(sa, x) and _runs(sb, y):
                return Witness(dep, x, y)
    return None


def _same_element(a: Access, b: Access, x: tuple[int, ...], y: tuple[int, ...]) -> bool:
    ea, eb = dict(zip(a.statement.vars, x, strict=True)), dict(zip(b.statement.vars, y, strict=True))
    for fa, fb in zip(a.forms, b.forms, strict=True):
        assert fa is not None
        assert fb is not None
        if fa[1] + sum(c * ea[v] for v, c in fa[0]) != fb[1] + sum(c * eb[v] for v, c in fb[0]):
            return False
    return True


def _runs(st: Statement, point: tuple[int, ...]) -> bool:
    """Whether the instance executes (data-dependent guards count as not known: no)."""
    env = dict(st.model.sizes)
    try:
        for loop, value in zip(st.loops, point, strict=True):
            if not value < eval_index(loop.extent, env):
                return False
            env[loop.var] = value
        return all(eval_index(g, env) for g in st.guards)
    except LeirError:
        return False
