"""One walk over a program that gathers what the validity checks look at."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from steptp.ir.affine import Range, interval
from steptp.ir.nodes import Buffer, Cast, Expr, If, Load, Loop, Op, Path, Program, Stmt, Store

__all__ = ["Problem", "Survey", "Met"]


@dataclass(frozen=True, slots=True)
class Problem:
    """One violation: a sentence, the statement it is about (or the name of a declaration), and a hint."""

    message: str
    path: Path = ()
    name: str = ""
    hint: str = ""


@dataclass(frozen=True, slots=True)
class Met:
    """A statement with its path and everything around it, outermost first; ``nodes`` are all its own expression nodes."""

    path: Path
    stmt: Stmt
    parents: tuple[Loop | If, ...]
    nodes: tuple[Expr, ...]

    @property
    def loops(self) -> Iterator[Loop]:
        return (p for p in self.parents if isinstance(p, Loop))


class Survey:
    """Statements in serial order, buffers with the path that declares them, and size values."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.env = program.size_env
        self.met: list[Met] = []
        self.table: dict[str, Buffer] = {}
        self.declared: dict[str, Path] = {}
        for group in (program.inputs, program.outputs, program.tmps):
            for buffer in group:
                self.table.setdefault(buffer.name, buffer)
                self.declared.setdefault(buffer.name, ())
        self._walk(program.body, (), ())

    def _walk(self, body: tuple[Stmt, ...], path: Path, parents: tuple[Loop | If, ...]) -> None:
        for position, stmt in enumerate(body):
            here = (*path, position)
            if isinstance(stmt, Store):
                self.met.append(Met(here, stmt, parents, _nodes(*stmt.indices, stmt.value)))
                continue
            self.met.append(Met(here, stmt, parents, _nodes(stmt.cond if isinstance(stmt, If) else stmt.extent)))
            if isinstance(stmt, Loop):
                for buffer in stmt.tmps:
                    self.table.setdefault(buffer.name, buffer)
                    self.declared.setdefault(buffer.name, here)
            self._walk(stmt.body, here, (*parents, stmt))

    @cached_property
    def stores(self) -> tuple[tuple[Met, Store], ...]:
        """The stores, in serial order."""
        return tuple((m, m.stmt) for m in self.met if isinstance(m.stmt, Store))

    @cached_property
    def tmps(self) -> tuple[Buffer, ...]:
        """Temporaries of the program and of loop bodies."""
        return (*self.program.tmps, *(b for m in self.met if isinstance(m.stmt, Loop) for b in m.stmt.tmps))

    def ranges(self, parents: tuple[Loop | If, ...]) -> dict[str, Range]:
        """Loop variable → least and greatest value; variables whose extent has no bound are left out."""
        out: dict[str, Range] = {}
        for loop in parents:
            if isinstance(loop, Loop) and (span := interval(loop.extent, self.env, out)) is not None:
                out[loop.var] = (0, max(span[1] - 1, 0))
        return out


def _nodes(*exprs: Expr) -> tuple[Expr, ...]:
    out: list[Expr] = []
    stack = list(exprs)
    while stack:
        node = stack.pop()
        out.append(node)
        if isinstance(node, Op):
            stack.extend(node.args)
        elif isinstance(node, Load):
            stack.extend(node.indices)
        elif isinstance(node, Cast):
            stack.append(node.arg)
    return tuple(out)
