"""Tiny re-bindings of a step: sizes so small that both programs can be evaluated exactly, yet every tile shape occurs.

Both programs share sizes by name; a child may add factors of its own. Three goals are tried: at least two full tiles, two tiles
and a tail, and a tail only, with distinct primes for sizes that nothing ties together. The search is depth first over
preferred values with constraints checked as soon as their sizes are known, and its work is bounded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from steptp.errors import LeirError
from steptp.interp.cost import access_check, instance_counter, size_code
from steptp.ir.nodes import Const, Expr, Loop, Op, Program, Size, Var
from steptp.ir.sizes import free_size_names
from steptp.ir.walk import buffers, free_sizes, free_vars, stmt_exprs, subexprs, visit
from steptp.verify.cache import Lru, program_key

__all__ = ["Binding", "Bindings", "tiny_bindings", "apply_binding", "factor_pairs"]

GOALS = ("full", "tail", "short")
_PRIMES = ((3, 5, 7, 2, 11, 13), (3, 2, 5, 4), (2, 3), (2, 1))  # plain sizes, in rounds from roomy to cramped
_FACTORS = ((3, 2, 5, 4), (2, 3, 4), (2,), (2, 1))
_SQUARES = ((4, 9), (4, 1), (4, 1), (1, 4))
_LEAST = "least"  # the goal of last resort: every size as small as the constraints allow, in growing order
_REACH = 40  # values tried when a derived size is aimed at
_MAX_NODES = 600
_LEAF_NODES = 30  # most rejected assignments are too large, and a more cramped round mends that sooner than their neighbours


@dataclass(frozen=True, slots=True)
class Binding:
    """Values of free sizes, what they cover (``full``, ``tail``, ``short``), and instances of both programs together."""

    sizes: tuple[tuple[str, int], ...]
    covers: tuple[str, ...]
    instances: int

    @property
    def values(self) -> dict[str, int]:
        return dict(self.sizes)


@dataclass(frozen=True, slots=True)
class Bindings:
    """Distinct bindings, smallest first, and a note on what could not be covered."""

    found: tuple[Binding, ...]
    note: str


def apply_binding(program: Program, values: Mapping[str, int]) -> Program:
    """``program`` re-bound to those of ``values`` that it has as free sizes; raises as :func:`steptp.ir.rebind`."""
    from steptp.ir.sizes import rebind

    own = set(free_size_names(program))
    return rebind(program, {k: v for k, v in values.items() if k in own})


def factor_pairs(program: Program) -> set[tuple[str, str | int]]:
    """(size, factor) pairs where the program divides: ``N//T``, ``N%T``, ``i//T`` with ``i`` below ``N``. A factor is a size or a number."""
    pairs: set[tuple[str, str | int]] = set()
    extents: dict[str, frozenset[str]] = {}
    for met in visit(program):
        if isinstance(met.stmt, Loop):
            extents[met.stmt.var] = extents.get(met.stmt.var, frozenset()) | free_sizes(met.stmt.extent)
    for expr in _all_exprs(program):
        for part in subexprs(expr):
            if isinstance(part, Op) and part.name in ("//", "%") and part.type.is_int:
                top, bottom = part.args
                names = free_sizes(top).union(*(extents.get(v, frozenset()) for v in free_vars(top)))
                factors: set[str | int] = set(free_sizes(bottom)) or ({int(bottom.value)} if isinstance(bottom, Const) else set())
                pairs |= {(n, f) for n in names for f in factors if n != f}
    return pairs


def _all_exprs(program: Program) -> Iterator[Expr]:
    yield from program.constraints
    yield from (s.expr for s in program.sizes if s.expr is not None)
    for buffer in buffers(program):
        yield from buffer.shape
    for met in visit(program):
        yield from stmt_exprs(met.stmt)


def _square_sizes(program: Program) -> set[str]:
    """Sizes under a square root: perfect squares keep it rational, so that ties stay decidable."""
    return {
        name
        for expr in _all_exprs(program)
        for part in subexprs(expr)
        if isinstance(part, Op) and part.name in ("sqrt", "rsqrt") and not any(isinstance(e, Var) for e in subexprs(part))
        for name in free_sizes(part)
    }


class _Model:
    """What the search asks of one program at other sizes, compiled once."""

    def __init__(self, program: Program, must_fit: bool) -> None:
        # where a parent's access leaves its array there is nothing to compare; a child's is a finding, so it is not avoided
        fit = access_check(program)
        self.fit = fit if must_fit and fit(program.size_env) else None
        self.names = free_size_names(program)
        self.derived = [(s.name, size_code(s.expr)) for s in program.sizes if s.expr is not None]
        self.count = instance_counter(program)
        self.shapes = [(b.name, [size_code(d) for d in b.shape]) for b in (*program.inputs, *program.outputs)]

    def at(self, values: Mapping[str, int], most: int) -> tuple[int, list[tuple[str, list[int]]]]:
        """Instances and interface shapes; raises :class:`LeirError` where a size expression has no value or an access leaves its array
        (unless the work is over ``most``)."""
        env = {name: values[name] for name in self.names}
        for name, code in self.derived:
            env[name] = code(env)
        count = self.count(env)
        if self.fit is not None and count <= most and not self.fit(env):
            raise LeirError("check-index", "an access would reach outside its array")
        return count, [(name, [d(env) for d in dims]) for name, dims in self.shapes]


class _Search:
    def __init__(self, programs: tuple[Program, ...], limit: int) -> None:
        self.programs, self.limit = programs, limit
        self.models = [_Model(p, number == 0) for number, p in enumerate(programs)]
        self.real: dict[str, int] = {}
        self.derived: dict[str, Expr] = {}
        for program in programs:
            for decl in program.sizes:
                if decl.expr is None:
                    self.real.setdefault(decl.name, decl.value)
                else:
                    self.derived.setdefault(decl.name, decl.expr)
        found = set().union(*(factor_pairs(p) for p in programs))
        closure = {n: self._roots(n) for n in self.derived}
        self.pairs: set[tuple[str, str | int]] = {(n, f) for n, f in found if f in self.real or isinstance(f, int)}
        self.carriers = {n: self._carrier(n) for n, _ in self.pairs if n in self.derived}
        self.codes = {n: (free_sizes(e), size_code(e)) for n, e in self.derived.items()}
        self.factors = {f for _, f in self.pairs if isinstance(f, str)}
        self.squares = set().union(*(_square_sizes(p) for p in programs))
        self.numbers = self._pinned()
        self.order = sorted(self.real, key=self._rank)
        self.nodes = 0
        self.large = False  # whether work alone rejected what was tried last
        self.exactly = False  # whether an assignment must have the tile shape of its goal
        position = {name: n for n, name in enumerate(self.order)}
        last = {name: max((position[r] for r in roots), default=0) for name, roots in closure.items()}
        self.derived_below = [[(n, size_code(e)) for n, e in self.derived.items() if last[n] <= depth] for depth in range(len(self.order))]
        self.decided_at: list[list[Callable[[Mapping[str, int]], int]]] = [[] for _ in self.order]
        for cond in dict.fromkeys(c for p in programs for c in p.constraints):
            known = [last.get(n, position.get(n, 0)) for n in free_sizes(cond)]
            if self.order:
                self.decided_at[max(known, default=0)].append(size_code(cond))

    def _roots(self, name: str) -> set[str]:
        found: set[str] = set()
        for inner in free_sizes(self.derived[name]):
            found |= self._roots(inner) if inner in self.derived else {inner}
        return found

    def _carrier(self, name: str) -> str:
        """The free size that a derived size follows: the first one in its expression (``H`` in ``OH=H-K+1``)."""
        first = next((e.name for e in subexprs(self.derived[name]) if isinstance(e, Size)), "")
        return self._carrier(first) if first in self.derived else first

    def _pinned(self) -> dict[str, list[int]]:
        """Numbers in constraints on each size, as candidates of last resort, and the present value."""
        extra: dict[str, list[int]] = {name: [] for name in self.real}
        for program in self.programs:
            for cond in program.constraints:
                values = sorted({int(e.value) for e in subexprs(cond) if isinstance(e, Const) and not e.type.is_float})
                for name in free_sizes(cond) & set(self.real):
                    extra[name] += [w for v in values for w in (v, v + 1, v - 1, 2 * v) if w > 0]
        return {name: [*dict.fromkeys([*values, self.real[name]])] for name, values in extra.items()}

    def _rank(self, name: str) -> tuple[int, int]:
        """Factors before what they divide (inner factors first), then order of declaration."""
        depth, seen = 0, {name}
        level = {f for n, f in self.pairs if n == name and isinstance(f, str)}
        while level - seen:
            depth += 1
            seen |= level
            level = {f for n, f in self.pairs if n in level and isinstance(f, str)}
        if name in self.carriers.values():
            depth += 50  # set last, so that the derived size can be aimed at
        return depth if name not in self.factors else depth - 100, list(self.real).index(name)

    def candidates(self, name: str, goal: str, round_: int, taken: Mapping[str, int]) -> list[int]:
        if goal == _LEAST:
            return sorted({*(v * v if name in self.squares else v for v in range(1, 5)), *self.numbers[name]})
        first = self._aimed(name, goal, taken)
        for derived, carrier in self.carriers.items():
            if carrier == name:
                first += self._inverted(derived, name, self._aimed(derived, goal, taken), taken)
        if first:
            pass
        elif name in self.squares:
            first = list(_SQUARES[round_])
        else:
            first = list((_FACTORS if name in self.factors else _PRIMES)[round_])
            first.sort(key=lambda v: v in taken.values())  # distinct sizes get distinct values while they last
        return [*dict.fromkeys([*first, *self.numbers[name]])]

    def _aimed(self, name: str, goal: str, taken: Mapping[str, int]) -> list[int]:
        """Values that give a tiled size the tile shape of the goal."""
        steps = [f if isinstance(f, int) else taken[f] for n, f in self.pairs if n == name and (isinstance(f, int) or f in taken)]
        tile = max((s for s in steps if s > 0), default=0)
        if not tile:
            return []
        if goal == "full":
            return [2 * tile, 3 * tile, 4 * tile, tile]
        if goal == "tail":
            return [2 * tile + 1, 2 * tile + tile - 1, 3 * tile + 1, 2 * tile, tile]
        return [max(tile - 1, 1), 1, tile, 2 * tile]

    def _inverted(self, derived: str, carrier: str, wanted: list[int], taken: Mapping[str, int]) -> list[int]:
        """Values of ``carrier`` that give the derived size the wanted values, in their order."""
        by_value: dict[int, int] = {}
        for value in range(1, _REACH):
            try:
                by_value.setdefault(self._with_derived({**taken, carrier: value}).get(derived, 0), value)
            except LeirError:
                continue
        return [by_value[w] for w in wanted if w in by_value]

    def _with_derived(self, values: Mapping[str, int]) -> dict[str, int]:
        """``values`` with the derived sizes that they determine."""
        env = dict(values)
        for name, (needs, code) in self.codes.items():
            if needs <= env.keys():
                env[name] = code(env)
        return env

    def solve(self, goal: str, round_: int) -> dict[str, int] | None:
        """The first assignment that satisfies everything within the limit on instances."""
        self.nodes = 0
        if goal != _LEAST:
            return self._descend(0, {}, goal, round_)
        least = self._shrunk() or self._descend(0, {}, goal, round_)
        return least and self._grown(least)

    def _shrunk(self) -> dict[str, int] | None:
        """The present sizes, each set to the smallest value that the others allow and that does not mean more work."""
        values = dict(self.real)
        work = self.instances(values)
        for name in self.order if work is not None else ():
            for value in self.candidates(name, _LEAST, 0, values):
                smaller = {**values, name: value}
                total = self.instances(smaller) if value < values[name] and self._holds(smaller) else None
                if total is not None and work is not None and total <= work:
                    values, work = smaller, total
                    break
        return values if self._fits(values) else None

    def _grown(self, values: dict[str, int]) -> dict[str, int]:
        """``values`` with sizes set larger where that fits, what is divided first: a loop that runs once tells little."""
        for name in reversed(self.order):
            for value in (2,) if name in self.factors else (4, 2):
                larger = {**values, name: value}
                if value > values[name] and self._holds(larger) and self._fits(larger):
                    values = larger
                    break
        return values

    def _holds(self, values: Mapping[str, int]) -> bool:
        return all(self._consistent(depth, values) for depth in range(len(self.order)))

    def _descend(self, depth: int, taken: dict[str, int], goal: str, round_: int) -> dict[str, int] | None:
        if depth == len(self.order):
            if self._fits(taken) and (not self.exactly or goal in self.covers(taken)):
                return dict(taken)
            self.nodes += _LEAF_NODES
            return None
        name = self.order[depth]
        too_large: list[int] = []
        only = True
        for value in self.candidates(name, goal, round_, taken):
            if too_large and goal != _LEAST and value > min(too_large):
                continue  # more of a size rarely means less work
            self.nodes += 1
            if self.nodes > _MAX_NODES:
                break
            taken[name] = value
            if self._consistent(depth, taken):
                if (found := self._descend(depth + 1, taken, goal, round_)) is not None:
                    return found
                only = only and self.large
                too_large += [value] if self.large else []
            del taken[name]
        self.large = only and bool(too_large)
        return None

    def _consistent(self, depth: int, taken: Mapping[str, int]) -> bool:
        """Whether what the size at ``depth`` decides holds: constraints, and derived sizes of at least 1."""
        env = dict(taken)
        try:
            for name, code in self.derived_below[depth]:
                env[name] = code(env)
                if env[name] < 1:
                    return False
            return all(holds(env) for holds in self.decided_at[depth])
        except LeirError:
            return False

    def _fits(self, values: Mapping[str, int]) -> bool:
        """Whether the programs run within the limit; notes where only their work is in the way."""
        total = self.instances(values)
        self.large = total is not None and total > self.limit
        return total is not None and not self.large

    def instances(self, values: Mapping[str, int]) -> int | None:
        """Instances of all programs; ``None`` where one has no value or their interfaces do not agree at these sizes."""
        total, shapes = 0, []
        try:
            for model in self.models:
                count, shape = model.at(values, self.limit)
                total += count
                shapes.append(shape)
        except LeirError:
            return None
        return None if any(s != shapes[0] for s in shapes[1:]) else total

    def covers(self, values: Mapping[str, int]) -> tuple[str, ...]:
        """Which tile shapes occur for some (size, factor) pair."""
        found: set[str] = set()
        env = self._with_derived(values)
        for name, factor in self.pairs:
            tile = factor if isinstance(factor, int) else env.get(factor, 0)
            if tile > 0:
                whole, rest = divmod(env[name], tile)
                found.add("short" if whole == 0 else "tail" if rest and whole >= 2 else "full" if whole >= 2 else "single")
        return tuple(g for g in (*GOALS, "single") if g in found)


_KEPT: Lru[Bindings] = Lru(256)


def tiny_bindings(*programs: Program, preferred: int = 1200, limit: int = 20_000) -> Bindings:
    """Small bindings for all ``programs`` at once (a parent and its child).

    A binding of at most ``preferred`` statement instances is taken if there is one, else one of at most ``limit``. Empty when no
    binding satisfies all constraints within the limit (then only demand-driven evaluation at real sizes is left).
    """
    return _KEPT.get((*map(program_key, programs), preferred, limit), lambda: _tiny(programs, preferred, limit))


def _tiny(programs: tuple[Program, ...], preferred: int, limit: int) -> Bindings:
    found: dict[tuple[tuple[str, int], ...], Binding] = {}
    missing: list[str] = []
    search = _Search(programs, limit)

    def add(goal: str, exactly: bool) -> bool:
        for search.limit in (preferred, limit) if goal != _LEAST else (limit,):
            search.exactly = exactly
            rounds = range(len(_PRIMES)) if goal != _LEAST else (0,)
            values = next((v for r in rounds if (v := search.solve(goal, r)) is not None), None)
            if values is not None:
                key = tuple((n, values[n]) for n in search.real)
                found.setdefault(key, Binding(key, search.covers(values), search.instances(values) or 0))
                return True
        return False

    if search.pairs:
        missing = [goal for goal in GOALS if not add(goal, True)]
    if not found and not add("full", False):
        add(_LEAST, False)
    ordered = tuple(sorted(found.values(), key=lambda b: (b.instances, b.sizes)))
    if not ordered:
        return Bindings((), f"no sizes satisfy the constraints with at most {limit} statement instances")
    note = f"not covered: {', '.join(missing)}" if missing else "all tile shapes covered" if search.pairs else "no tiles"
    return Bindings(ordered, note)
