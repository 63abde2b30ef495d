"""Quasi-affine expressions as isl objects, at real sizes.

A :class:`Frame` fixes the loop variables of one statement (outermost first) and the size values. It turns index
expressions into piecewise quasi-affine functions and conditions into sets over these variables. Look-ups and products of
variables are outside of this fragment; the answer for them is ``None`` (function) or an inexact superset (condition).

isl objects are neither thread-safe nor picklable; they live in caches only.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache

import islpy as isl

from steptp.ir.nodes import Const, Expr, Op, Size, Var
from steptp.ir.types import DType

__all__ = ["CTX", "DIM", "Frame", "Linear", "linear", "box", "space_of", "sample", "point_of", "map_between"]

CTX = isl.DEFAULT_CONTEXT
DIM = isl.dim_type

Linear = tuple[tuple[tuple[str, int], ...], int]
"""A linear form: sorted ``(variable, coefficient)`` pairs without zeros, and the constant."""


def linear(expr: Expr, sizes: Mapping[str, int]) -> Linear | None:
    """The expression as a linear form over loop variables at these sizes, or ``None``."""
    found = _linear(expr, sizes)
    return None if found is None else (tuple(sorted((v, c) for v, c in found[0].items() if c)), found[1])


def _linear(expr: Expr, sizes: Mapping[str, int]) -> tuple[dict[str, int], int] | None:
    if isinstance(expr, Var):
        return {expr.name: 1}, 0
    if isinstance(expr, Const):
        return {}, int(expr.value)
    if isinstance(expr, Size):
        return {}, sizes[expr.name]
    if not isinstance(expr, Op) or expr.type is not DType.I64:
        return None
    args = []
    for arg in expr.args:
        one = _linear(arg, sizes)
        if one is None:
            return None
        args.append(one)
    name = expr.name
    if name == "neg":
        return {v: -c for v, c in args[0][0].items()}, -args[0][1]
    if len(args) != 2:
        return None
    (a, ka), (b, kb) = args
    if name in ("+", "-"):
        sign = 1 if name == "+" else -1
        out = dict(a)
        for v, c in b.items():
            out[v] = out.get(v, 0) + sign * c
        return out, ka + sign * kb
    plain_a, plain_b = not any(a.values()), not any(b.values())
    if name == "*" and (plain_a or plain_b):
        terms, scale, base = (a, kb, ka) if plain_b else (b, ka, kb)
        return {v: c * scale for v, c in terms.items()}, base * scale
    if plain_a and plain_b:
        if name in ("//", "%") and kb != 0:
            return {}, ka // kb if name == "//" else ka % kb
        if name in ("max", "min"):
            return {}, max(ka, kb) if name == "max" else min(ka, kb)
    if name == "//" and plain_b and kb > 0 and all(c % kb == 0 for c in a.values()):
        return {v: c // kb for v, c in a.items()}, ka // kb
    return None


def space_of(dims: int) -> isl.Space:
    """The unnamed set space of ``dims`` dimensions."""
    return isl.Space.set_alloc(CTX, 0, dims)


@lru_cache(maxsize=4096)
def box(extents: tuple[int, ...]) -> isl.Set:
    """The set ``0 <= d_k < extents[k]``."""
    out = isl.BasicSet.universe(space_of(len(extents)))
    for k, extent in enumerate(extents):
        out = out.lower_bound_val(DIM.set, k, 0).upper_bound_val(DIM.set, k, extent - 1)
    return isl.Set.from_basic_set(out)


@lru_cache(maxsize=64)
def _zero(dims: int) -> isl.Aff:
    return isl.Aff.zero_on_domain(isl.LocalSpace.from_space(space_of(dims)))


class Frame:
    """Loop variables (outermost first) and sizes; see the module's text."""

    def __init__(self, names: Sequence[str], sizes: Mapping[str, int]) -> None:
        self.names = tuple(names)
        self.sizes = sizes
        self.space = space_of(len(self.names))
        self._index = {n: k for k, n in enumerate(self.names)}
        self._affs: dict[Expr, isl.PwAff | None] = {}

    def linear_aff(self, form: Linear) -> isl.Aff | None:
        """The linear form as an isl function; ``None`` when it uses a variable outside of the frame."""
        aff = _zero(len(self.names))
        for name, coefficient in form[0]:
            k = self._index.get(name)
            if k is None:
                return None
            aff = aff.set_coefficient_val(DIM.in_, k, coefficient)
        return aff.set_constant_val(form[1]) if form[1] else aff

    def constant(self, value: int) -> isl.PwAff:
        """A constant function."""
        return isl.PwAff.from_aff(_zero(len(self.names)).set_constant_val(value))

    def var_aff(self, position: int) -> isl.PwAff:
        """The variable at ``position`` as a function."""
        return isl.PwAff.from_aff(isl.Aff.var_on_domain(isl.LocalSpace.from_space(self.space), DIM.set, position))

    def aff(self, expr: Expr) -> isl.PwAff | None:
        """The expression as a piecewise quasi-affine function of the frame's variables, or ``None``."""
        if expr in self._affs:
            return self._affs[expr]
        form = linear(expr, self.sizes)
        if form is not None:
            plain = self.linear_aff(form)
            out = None if plain is None else isl.PwAff.from_aff(plain)
        else:
            out = self._piecewise(expr)
        self._affs[expr] = out
        return out

    def _piecewise(self, expr: Expr) -> isl.PwAff | None:
        if not isinstance(expr, Op) or not expr.type.is_int:
            return None
        name = expr.name
        if name == "select":
            where, exact = self.cond(expr.args[0])
            yes, no = self.aff(expr.args[1]), self.aff(expr.args[2])
            if not exact or yes is None or no is None:
                return None
            return yes.intersect_domain(where).union_add(no.intersect_domain(where.complement()))
        args = [a for a in map(self.aff, expr.args) if a is not None]
        if len(args) != len(expr.args):
            return None
        if name == "neg":
            return args[0].neg()
        if name == "abs":
            return args[0].max(args[0].neg())
        a, b = args
        if name == "+":
            return a.add(b)
        if name == "-":
            return a.sub(b)
        if name in ("max", "min"):
            return a.max(b) if name == "max" else a.min(b)
        form = linear(expr.args[1], self.sizes)
        by = form[1] if form is not None and not form[0] else None
        if name == "*":
            other = linear(expr.args[0], self.sizes)
            if by is None and other is not None and not other[0]:
                by, a = other[1], b
            return None if by is None else a.scale_val(by)
        if name in ("//", "%") and by:
            quotient = a.scale_val(-1 if by < 0 else 1).scale_down_val(abs(by)).floor()
            return quotient if name == "//" else a.sub(quotient.scale_val(by))
        return None

    def cond(self, expr: Expr, holds: bool = True) -> tuple[isl.Set, bool]:
        """Where the condition is true (false for ``holds=False``), and whether the set is exact or only contains it."""
        everything = isl.Set.universe(self.space)
        if isinstance(expr, Const):
            return (everything if bool(expr.value) == holds else isl.Set.empty(self.space)), True
        if not isinstance(expr, Op):
            return everything, False
        name = expr.name
        if name == "not":
            return self.cond(expr.args[0], not holds)
        if name in ("and", "or"):
            (a, ea), (b, eb) = self.cond(expr.args[0], holds), self.cond(expr.args[1], holds)
            return (a.intersect(b) if (name == "and") == holds else a.union(b)), ea and eb
        if name == "select":
            (c, ec), (n, en) = self.cond(expr.args[0], True), self.cond(expr.args[0], False)
            (a, ea), (b, eb) = self.cond(expr.args[1], holds), self.cond(expr.args[2], holds)
            return c.intersect(a).union(n.intersect(b)), ec and en and ea and eb
        if name not in _COMPARE or not expr.args[0].dtype.is_int:
            return everything, False
        a, b = self.aff(expr.args[0]), self.aff(expr.args[1])
        if a is None or b is None:
            return everything, False
        relation = name if holds else _OPPOSITE[name]
        return getattr(a, _COMPARE[relation])(b), True


_COMPARE = {"<": "lt_set", "<=": "le_set", ">": "gt_set", ">=": "ge_set", "==": "eq_set", "!=": "ne_set"}
_OPPOSITE = {"<": ">=", "<=": ">", ">": "<=", ">=": "<", "==": "!=", "!=": "=="}


def map_between(frame: Frame, functions: Sequence[isl.PwAff | None], bounds: Sequence[tuple[int, int] | None]) -> tuple[isl.Map, bool]:
    """The relation ``variables → (f_0, f_1, …)``; where a function is ``None`` the dimension takes every value in its bounds.

    Returns the map and whether it is exact.
    """
    exact = all(f is not None for f in functions)
    target = isl.Space.alloc(CTX, 0, len(frame.names), len(functions))
    if not functions:
        return isl.Map.universe(target), True
    zero = isl.PwAff.from_aff(_zero(len(frame.names)))
    parts = isl.PwAffList.alloc(CTX, len(functions))
    for f in functions:
        parts = parts.add(zero if f is None else f)
    relation = isl.MultiPwAff.from_pw_aff_list(target, parts).as_map()
    for k, f in enumerate(functions):
        if f is None:
            relation = relation.project_out(DIM.out, k, 1).insert_dims(DIM.out, k, 1)
            limit = bounds[k]
            if limit is not None:
                relation = relation.lower_bound_val(DIM.out, k, limit[0]).upper_bound_val(DIM.out, k, limit[1])
    return relation, exact


def point_of(point: isl.Point, dims: int) -> tuple[int, ...]:
    """Coordinates of a point of a set space."""
    return tuple(point.get_coordinate_val(DIM.set, k).to_python() for k in range(dims))


def sample(relation: isl.Map) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
    """The lexicographically smallest pair of a bounded map, or ``None`` when the map is empty."""
    ins, outs = relation.dim(DIM.in_), relation.dim(DIM.out)
    flat = relation.wrap().flatten()
    if flat.is_empty():
        return None
    coordinates = point_of(flat.lexmin().sample_point(), ins + outs)
    return coordinates[:ins], coordinates[ins:]
