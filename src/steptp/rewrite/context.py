"""Cached views of one program that strategies share: loops, perfect nests, names, dependences."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Hashable, Iterator
from functools import cached_property
from typing import TYPE_CHECKING, TypeVar

from steptp.errors import LeirError
from steptp.ir.lexer import RESERVED
from steptp.ir.nodes import Buffer, Expr, If, Load, Loop, Path, Program, Stmt, Store
from steptp.ir.resets import reset_plan
from steptp.ir.sizes import eval_index
from steptp.ir.walk import Visit, all_tmps, fresh_name, loads, stmt_exprs, visit
from steptp.rewrite.base import NotApplicable
from steptp.rewrite.exprs import Place, exprs_of

if TYPE_CHECKING:
    from steptp.analysis import Dependence
    from steptp.analysis.model import Model
    from steptp.rewrite.legality import Legality

__all__ = ["Context", "path_text", "no_loop"]

T = TypeVar("T")
_ABSENT = object()


def path_text(path: Path) -> str:
    """``(0, 1)`` → ``"0.1"``, as in site ids."""
    return ".".join(map(str, path))


def no_loop(path: Path) -> NotApplicable:
    """The refusal of a loop strategy at something that is not a loop."""
    return NotApplicable("not-a-loop", f"there is no loop at {path_text(path)}" if path else "the site names the whole program, not a loop")


def _part(paths: list[Path], path: Path) -> slice:
    """Where those at or below ``path`` stand in a list in serial order."""
    if not path:
        return slice(None)
    return slice(bisect_left(paths, path), bisect_left(paths, (*path[:-1], path[-1] + 1)))


class Context:
    """What strategies ask about ``program``. Everything is computed on demand and kept; :meth:`of` keeps the context itself too."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.env: dict[str, int] = program.size_env
        self.visits: tuple[Visit, ...] = tuple(visit(program))
        self._around: dict[Path, tuple[tuple[Path, Loop], ...]] = {}
        self._touched: dict[Path, tuple[frozenset[str], frozenset[str]]] = {}
        self._stores_under: dict[Path, tuple[tuple[Path, Store], ...]] = {}
        self._loops_under: dict[Path, tuple[tuple[Path, Loop], ...]] = {}
        self._kept: dict[tuple[str, Hashable], object] = {}

    def kept(self, what: str, key: Hashable, make: Callable[[], T]) -> T:
        """``make()``, once for a program, ``what`` and ``key``."""
        found = self._kept.get((what, key), _ABSENT)
        if found is _ABSENT:
            found = self._kept[what, key] = make()
        return found  # type: ignore[return-value]

    @staticmethod
    def of(program: Program) -> Context:
        """The context of a program, cached on it."""
        cached = program._cache.get("rewrite_context")
        if not isinstance(cached, Context):
            cached = program._cache["rewrite_context"] = Context(program)
        return cached

    # places

    @cached_property
    def by_path(self) -> dict[Path, Visit]:
        """Path → statement with what encloses it."""
        return {v.path: v for v in self.visits}

    @cached_property
    def loops(self) -> tuple[tuple[Path, Loop], ...]:
        """Every loop with its path, in serial order."""
        return tuple((v.path, v.stmt) for v in self.visits if isinstance(v.stmt, Loop))

    @cached_property
    def stores(self) -> tuple[tuple[Path, Store], ...]:
        """Every store with its path, in serial order."""
        return tuple((v.path, v.stmt) for v in self.visits if isinstance(v.stmt, Store))

    def stmt(self, path: Path) -> Stmt | None:
        """The statement at ``path``, or ``None``."""
        met = self.by_path.get(path)
        return met.stmt if met else None

    def loop(self, path: Path) -> Loop | None:
        """The loop at ``path``, or ``None`` when something else (or nothing) is there."""
        found = self.stmt(path)
        return found if isinstance(found, Loop) else None

    def enclosing_loops(self, path: Path) -> tuple[tuple[Path, Loop], ...]:
        """The loops around ``path`` (not at it) with their paths, outermost first."""
        found = self._around.get(path)
        if found is None:
            found = self._around[path] = tuple((path[:n], loop) for n in range(1, len(path)) if (loop := self.loop(path[:n])) is not None)
        return found

    def extents_around(self, path: Path) -> dict[str, Expr]:
        """Loop variable → extent for the loops around ``path``, as :func:`steptp.ir.simplify_index` takes them."""
        return {loop.var: loop.extent for _, loop in self.enclosing_loops(path)}

    def stores_under(self, path: Path) -> tuple[tuple[Path, Store], ...]:
        """The stores at or below ``path``."""
        found = self._stores_under.get(path)
        if found is None:
            found = self._stores_under[path] = self.stores[_part(self._store_paths, path)]
        return found

    def loops_under(self, path: Path) -> tuple[tuple[Path, Loop], ...]:
        """The loops at or below ``path``."""
        found = self._loops_under.get(path)
        if found is None:
            found = self._loops_under[path] = self.loops[_part(self._loop_paths, path)]
        return found

    @cached_property
    def _store_paths(self) -> list[Path]:
        return [p for p, _ in self.stores]

    @cached_property
    def _loop_paths(self) -> list[Path]:
        return [p for p, _ in self.loops]

    def visits_under(self, path: Path) -> tuple[Visit, ...]:
        """The statements at or below ``path``."""
        return self.visits[_part(self._visit_paths, path)]

    @cached_property
    def _visit_paths(self) -> list[Path]:
        return [v.path for v in self.visits]

    @cached_property
    def tmps(self) -> tuple[tuple[Path, Buffer], ...]:
        """Every temporary with the path of the loop that declares it (``()`` for the program)."""
        return tuple(all_tmps(self.program))

    @cached_property
    def tmp_names(self) -> frozenset[str]:
        return frozenset(b.name for _, b in self.tmps)

    @cached_property
    def reads(self) -> tuple[tuple[Load, ...], ...]:
        """For every statement of :attr:`visits`, the reads in its own expressions in order."""
        return tuple(tuple(e for x in stmt_exprs(v.stmt) for e in loads(x)) for v in self.visits)

    @cached_property
    def values(self) -> tuple[tuple[Path, Store, Place, Expr], ...]:
        """Every expression in the value of a store, with its place; top first, in serial order of the stores."""
        return tuple((path, store, place, e) for path, store in self.stores for place, e in exprs_of(store) if place[0] == len(store.indices))

    def reads_under(self, path: Path) -> Iterator[tuple[Visit, Load]]:
        """The reads of the statements below (not at) ``path``, in serial order."""
        place = _part(self._visit_paths, path)
        for met, found in zip(self.visits[place], self.reads[place], strict=True):
            if len(met.path) > len(path):
                for e in found:
                    yield met, e

    def touched(self, path: Path) -> tuple[frozenset[str], frozenset[str]]:
        """Names of the buffers that the statement at ``path`` (``()``: the program) reads and writes; an accumulation does both."""
        found = self._touched.get(path)
        if found is None:
            reads: set[str] = set()
            writes: set[str] = set()
            place = _part(self._visit_paths, path)
            for met, seen in zip(self.visits[place], self.reads[place], strict=True):
                reads.update(e.buffer for e in seen)
                if isinstance(met.stmt, Store):
                    writes.add(met.stmt.buffer)
                    if met.stmt.reduce is not None:
                        reads.add(met.stmt.buffer)
            found = self._touched[path] = frozenset(reads), frozenset(writes)
        return found

    # extents and nests

    def value(self, expr: Expr) -> int | None:
        """The present value of an expression over sizes; ``None`` when it depends on loop variables or memory."""
        try:
            return eval_index(expr, self.env)
        except LeirError:
            return None

    def chain(self, path: Path) -> tuple[Path, ...]:
        """The maximal perfect nest through the loop at ``path``, outermost first.

        Neighbours in it have nothing between them: the outer one's body is just the inner one, and it declares no temporaries.
        """
        found = self._chains.get(path)
        return found if found is not None else ()

    @cached_property
    def _chains(self) -> dict[Path, tuple[Path, ...]]:
        out: dict[Path, tuple[Path, ...]] = {}
        for path, loop in self.loops:
            if path in out:
                continue
            members, here = [path], loop
            while len(here.body) == 1 and not here.tmps and isinstance(here.body[0], Loop):
                here = here.body[0]
                members.append((*members[-1], 0))
            for member in members:
                out[member] = tuple(members)
        return out

    @cached_property
    def chains(self) -> tuple[tuple[Path, ...], ...]:
        """Every maximal perfect nest, in serial order of its outermost loop."""
        return tuple(dict.fromkeys(self._chains.values()))

    # resets

    def reset_loop(self, store: Path) -> Path | None:
        """The loop before which the accumulation at ``store`` resets; ``None`` for other stores."""
        return self._resets.get(store)

    @cached_property
    def _resets(self) -> dict[Path, Path]:
        return {p: reset_plan(self.program, p).before for p, s in self.stores if s.reduce is not None and not s.carry}

    # names

    @cached_property
    def global_names(self) -> frozenset[str]:
        """Names of sizes and buffers, and the words of the language."""
        interface = (*self.program.inputs, *self.program.outputs)
        return frozenset({s.name for s in self.program.sizes} | {b.name for b in interface}) | self.tmp_names | RESERVED

    def taken(self, path: Path) -> set[str]:
        """Names that a new loop variable at ``path`` must avoid (those of siblings are free)."""
        near = {loop.var for _, loop in self.enclosing_loops(path)} | {loop.var for _, loop in self.loops_under(path)}
        return near | self.global_names

    def fresh_vars(self, path: Path, *stems: str) -> tuple[str, ...]:
        """New loop variables for a loop at ``path``, one per stem (``i0`` stays ``i0`` when free)."""
        taken, out = self.taken(path), []
        for stem in stems:
            out.append(fresh_name(stem, taken))
            taken.add(out[-1])
        return tuple(out)

    def fresh_global(self, *stems: str) -> tuple[str, ...]:
        """New size or buffer names, one per stem; they avoid every name in the program."""
        taken = set(self.global_names) | {loop.var for _, loop in self.loops}
        out = []
        for stem in stems:
            out.append(fresh_name(stem, taken))
            taken.add(out[-1])
        return tuple(out)

    # dependences

    @cached_property
    def model(self) -> Model:
        """The polyhedral model (:class:`steptp.analysis.model.Model`)."""
        from steptp.analysis.model import Model

        return Model.of(self.program)

    @cached_property
    def legality(self) -> Legality:
        """Questions about dependences: what a loop carries, what a new order of loops reverses."""
        from steptp.rewrite.legality import Legality

        return Legality(self)

    @cached_property
    def dependences(self) -> tuple[Dependence, ...]:
        """Every dependence as an exact relation (:func:`steptp.analysis.dependences`); dearer than :attr:`legality`."""
        from steptp.analysis import dependences

        return dependences(self.program)

    def owner_names(self, path: Path) -> tuple[str, ...]:
        """Variables of the loops around ``path``, outermost first."""
        return tuple(loop.var for _, loop in self.enclosing_loops(path))

    def guards_around(self, path: Path) -> tuple[Expr, ...]:
        """Conditions of the guards around ``path``, outermost first."""
        return tuple(s.cond for n in range(1, len(path)) if isinstance(s := self.stmt(path[:n]), If))
