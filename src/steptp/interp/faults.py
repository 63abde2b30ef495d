"""Which run of which statement leaves LEIR without a value."""

from __future__ import annotations

from collections.abc import Mapping

from steptp.interp.errors import EvalError
from steptp.interp.expressions import Env, Scope
from steptp.interp.machine import Action, Machine, check_ranges
from steptp.interp.scalars import Algebra, Scalar
from steptp.interp.trace import Instance
from steptp.ir.nodes import Loop, Path, Program, Stmt
from steptp.ir.resets import Materialized, materialize
from steptp.ir.walk import visit

__all__ = ["locate_fault"]


def locate_fault(program: Program, algebra: Algebra, inputs: Mapping[str, list[Scalar]]) -> tuple[EvalError, Instance | None] | None:
    """The error that evaluation ends with and the run that causes it (none for an output left unwritten); nothing where it ends well."""
    machine = _Locating(program, algebra)
    check_ranges(program, inputs)
    try:
        machine.run(inputs)
    except EvalError as err:
        return err, machine.fault
    return None


class _Locating(Machine):
    """Remembers the innermost statement that raised."""

    def __init__(self, program: Program, algebra: Algebra) -> None:
        self._source = materialize(program)
        self._order = visit(self._source.program)  # statements are compiled in this order
        self.fault: Instance | None = None
        super().__init__(program, algebra)

    def _statement(self, stmt: Stmt, scope: Scope) -> Action:
        met = next(self._order)
        path, is_reset = _origin(self._source, met.path)
        names = [s.var for s in met.parents if isinstance(s, Loop)]
        run = super()._statement(stmt, scope)

        def located(env: Env) -> None:
            try:
                run(env)
            except EvalError:
                if self.fault is None:
                    self.fault = Instance(path, tuple(zip(names, env[: len(names)], strict=True)), is_reset)
                raise

        return located


def _origin(source: Materialized, path: Path) -> tuple[Path, bool]:
    """The statement's path in the program, from that of the first store in it; for all of a reset, the accumulation that it is for."""
    under = next(o for p, o in source.origin.items() if p[: len(path)] == path)
    return (under.path if under.is_reset else under.path[: len(path)]), under.is_reset
