"""The f64 oracle at real sizes: programs evaluated with array operations instead of one iteration at a time.

Perfect nests become whole-array operations with a reduction; other loops become axes where their iterations are independent; the
rest runs serially, or in the closure evaluator when it would take too many steps. Sums are added in another order than
:func:`steptp.interp.evaluate` does (pairwise), so results agree to f64 rounding, not bit for bit. Undefined reads and integer overflow are
not looked for: the programs have passed tier 1.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from steptp.interp.cost import count_instances, index_bounds
from steptp.interp.fast_expr import Grid, GridEvaluator, Mask, Storage, Value, both
from steptp.interp.fast_plan import Nest, Planner
from steptp.interp.machine import Machine, check_ranges
from steptp.interp.numpy_eval import FloatAlgebra, prepare_inputs
from steptp.interp.rounding import numpy_dtype
from steptp.ir.nodes import Body, Buffer, If, Loop, Program, Stmt, Store, identity_of
from steptp.ir.resets import materialize
from steptp.ir.sizes import shape_of
from steptp.ir.types import DType
from steptp.ir.walk import free_vars, loads, stmt_exprs, visit

__all__ = ["fast_evaluate"]

CHUNK = 1 << 21  # grid elements evaluated at once: temporaries of 16 MiB
_STEP_COST, _INSTANCE_COST = 25.0, 1.5  # µs of one array statement and of one closure instance, to choose between them
_FEW_STEPS = 100
_UFUNC: dict[str, np.ufunc] = {"+": np.add, "*": np.multiply, "max": np.maximum, "min": np.minimum, "or": np.logical_or, "and": np.logical_and}


def fast_evaluate(program: Program, inputs: Mapping[str, np.ndarray], *, chunk: int = CHUNK) -> dict[str, np.ndarray]:
    """Outputs of ``program`` with all float arithmetic in f64, as ``evaluate(..., dtype_override="f64")`` gives them up to the order of sums.

    Float outputs are float64, integer outputs have their dtype. ``chunk`` bounds the elements of a temporary array. Raises :class:`EvalError`
    ``eval-input``, ``eval-range`` or ``eval-bounds``.
    """
    arrays = prepare_inputs(program, inputs, wide=True)
    for buffer in program.inputs:
        if buffer.dtype.is_int and arrays[buffer.name].size:
            check_ranges(program.with_(inputs=(buffer,)), {buffer.name: [int(arrays[buffer.name].min()), int(arrays[buffer.name].max())]})
    with np.errstate(all="ignore"):
        return _Runner(program, chunk).run(arrays)


def _carrier(dtype: DType) -> np.dtype[np.generic]:
    return np.dtype(np.float64) if dtype.is_float else np.dtype(np.bool_) if dtype is DType.BOOL else np.dtype(np.int64)


def _fit(value: Value, ndim: int) -> np.ndarray:
    """``value`` without leading axes of length one beyond ``ndim`` dimensions."""
    array = np.asarray(value)
    return array.reshape(array.shape[array.ndim - ndim :]) if array.ndim > ndim else array


class _Runner:
    def __init__(self, program: Program, chunk: int) -> None:
        self.original = program
        self.program = materialize(program).program
        self.chunk = chunk
        self.planner = Planner(self.program)
        self.grids = GridEvaluator(self.planner)
        self.machine: Machine | None = None

    def run(self, inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        for buffer in self.program.inputs:
            self.grids.storage[buffer.name] = Storage(buffer.name, buffer.dtype, inputs[buffer.name].astype(_carrier(buffer.dtype)))
        for buffer in (*self.program.outputs, *self.program.tmps):
            self._allocate(buffer, Grid())
        for position, stmt in enumerate(self.program.body):
            instances = count_instances(self.program.with_(body=(stmt,)), self.planner.sizes)
            steps = self._steps(stmt)
            if steps > _FEW_STEPS and instances * _INSTANCE_COST < steps * _STEP_COST:
                self._closures(position, stmt)
            else:
                self._statement(stmt, Grid(), None)
        out: dict[str, np.ndarray] = {}
        for buffer in self.program.outputs:
            data = self.grids.storage[buffer.name].data
            out[buffer.name] = data if buffer.dtype.is_float else data.astype(numpy_dtype(buffer.dtype))
        return out

    def _allocate(self, buffer: Buffer, grid: Grid) -> None:
        shape = grid.shape + shape_of(buffer.shape, self.program)
        data = np.full(shape, np.nan) if buffer.dtype.is_float else np.zeros(shape, _carrier(buffer.dtype))
        self.grids.storage[buffer.name] = Storage(buffer.name, buffer.dtype, data, len(grid.spans))

    def _steps(self, stmt: Stmt) -> float:
        """Array statements that one execution of ``stmt`` takes."""
        if isinstance(stmt, Store) or self.planner.nest(stmt) is not None:
            return 1
        inner = sum(self._steps(s) for s in stmt.body)
        if isinstance(stmt, If) or self.planner.independent(stmt):
            return inner
        return inner * (self.planner.ranges[stmt.var][1] + 1)

    def _closures(self, position: int, stmt: Stmt) -> None:
        """Run one top-level statement in the closure evaluator."""
        if self.machine is None:
            self.machine = Machine(self.original, FloatAlgebra(wide=True))
        own = {b.name for v in visit((stmt,)) if isinstance(v.stmt, Loop) for b in v.stmt.tmps}
        touched = {v.stmt.buffer for v in visit((stmt,)) if isinstance(v.stmt, Store)} - own
        reads = {r.buffer for v in visit((stmt,)) for e in stmt_exprs(v.stmt) for r in loads(e)} - own
        for name in sorted(touched | reads):
            self.machine.arrays[name].data[:] = self.grids.storage[name].data.ravel().tolist()
        self.machine.step(position)
        for name in sorted(touched):
            data = self.grids.storage[name].data
            data[...] = np.array(self.machine.arrays[name].data, dtype=data.dtype).reshape(data.shape)

    # statements on a grid

    def _body(self, body: Body, grid: Grid, mask: Mask) -> None:
        for stmt in body:
            self._statement(stmt, grid, mask)

    def _statement(self, stmt: Stmt, grid: Grid, mask: Mask) -> None:
        if isinstance(stmt, Store):
            self._store(stmt, frozenset(), grid, mask)
        elif (nest := self.planner.nest(stmt)) is not None:
            self._chain(nest, 0, grid, mask)
        elif isinstance(stmt, If):
            cond = self.grids.value(stmt.cond, grid, mask)
            if isinstance(cond, np.ndarray):
                if (live := both(mask, cond)) is not None and live.any():
                    self._body(stmt.body, grid, live)
            elif cond:
                self._body(stmt.body, grid, mask)
        else:
            self._loop(stmt, grid, mask)

    def _extent(self, loop: Loop, grid: Grid, mask: Mask) -> tuple[int, Value]:
        """The largest extent over the grid, and the extent itself."""
        extent = self.grids.value(loop.extent, grid, mask)
        if isinstance(extent, np.ndarray):
            return int(extent.max(initial=0)), extent
        return int(extent), extent

    def _loop(self, loop: Loop, grid: Grid, mask: Mask) -> None:
        most, extent = self._extent(loop, grid, mask)
        ragged = isinstance(extent, np.ndarray)
        if self.planner.independent(loop):
            below = max(self._inner_volume(loop), 1) * grid.volume
            width = max(self.chunk // below, 1)
            for low in range(0, most, width):
                inner = grid.with_axis(loop.var, low, min(low + width, most))
                self._enter(loop, inner, both(mask, np.less(inner.values[loop.var], extent)) if ragged else mask)
            return
        for value in range(most):
            inner = grid.with_value(loop.var, value)
            self._enter(loop, inner, both(mask, np.less(value, extent)) if ragged else mask)

    def _enter(self, loop: Loop, grid: Grid, mask: Mask) -> None:
        for buffer in loop.tmps:
            self._allocate(buffer, grid)
        self._body(loop.body, grid, mask)

    def _inner_volume(self, loop: Loop) -> int:
        """Iterations of the largest nest below one iteration of ``loop``."""
        largest = 1
        for met in visit(loop.body):
            if isinstance(met.stmt, Store):
                volume = 1
                for owner in met.loops:
                    volume *= self.planner.ranges[owner.var][1] + 1
                largest = max(largest, volume)
        return largest

    def _chain(self, nest: Nest, depth: int, grid: Grid, mask: Mask) -> None:
        """Open the loops and guards of a nest as axes, outermost first, in pieces that keep the grid below the chunk size."""
        if depth == len(nest.chain):
            self._store(nest.store, nest.reduced, grid, mask)
            return
        owner = nest.chain[depth]
        if isinstance(owner, If):
            cond = self.grids.value(owner.cond, grid, mask)
            if isinstance(cond, np.ndarray):
                self._chain(nest, depth + 1, grid, both(mask, cond))
            elif cond:
                self._chain(nest, depth + 1, grid, mask)
            return
        most, extent = self._extent(owner, grid, mask)
        below = grid.volume
        for inner in nest.chain[depth + 1 :]:
            if isinstance(inner, Loop):
                below *= max(self._most(inner, grid), 1)
        width = max(self.chunk // max(below, 1), 1)
        for low in range(0, most, width):
            wider = grid.with_axis(owner.var, low, min(low + width, most))
            live = both(mask, np.less(wider.values[owner.var], extent)) if isinstance(extent, np.ndarray) else mask
            self._chain(nest, depth + 1, wider, live)

    def _most(self, loop: Loop, grid: Grid) -> int:
        env = {n: (v, v) for n, v in self.planner.sizes.items()} | {v: self.planner.ranges[v] for v in free_vars(loop.extent)}
        return index_bounds(loop.extent, env)[1]

    def _store(self, stmt: Store, reduced: frozenset[str], grid: Grid, mask: Mask) -> None:
        value = self.grids.value(stmt.value, grid, mask)
        if stmt.reduce is not None:
            value, mask = self._reduced(stmt, value, reduced, grid, mask)
        view = self.grids.view(stmt.buffer, stmt.indices, grid)
        data = self.grids.storage[stmt.buffer].data
        combine = _UFUNC[stmt.reduce] if stmt.reduce is not None else None
        if view is not None:
            fresh = value if combine is None else combine(view, _fit(value, view.ndim))
            if mask is None:
                view[...] = _fit(fresh, view.ndim)
            else:
                np.copyto(view, _fit(fresh, view.ndim), where=_fit(mask, view.ndim))
            return
        place = self.grids.place(stmt.buffer, stmt.indices, grid, mask)
        if mask is None:
            data[place] = value if combine is None else combine(data[place], value)
            return
        shape = np.broadcast_shapes(mask.shape, np.shape(value), *(np.shape(p) for p in place))
        live = np.broadcast_to(mask, shape)
        chosen = tuple(np.broadcast_to(p, shape)[live] for p in place)
        picked = np.broadcast_to(value, shape)[live]
        data[chosen] = picked if combine is None else combine(data[chosen], picked)

    def _reduced(self, stmt: Store, value: Value, reduced: frozenset[str], grid: Grid, mask: Mask) -> tuple[Value, Mask]:
        """The value and mask with the reduced axes folded to length one."""
        assert stmt.reduce is not None
        run: Callable[..., np.ndarray] = _UFUNC[stmt.reduce].reduce
        axes = tuple(sorted(-1 - grid.axis_of[v] for v in reduced))
        if not axes:
            return value, mask
        lengths = {-1 - grid.axis_of[v]: grid.spans[grid.axis_of[v]][1] - grid.spans[grid.axis_of[v]][0] for v in reduced}
        full = list(np.broadcast_shapes(np.shape(value), *(() if mask is None else (mask.shape,))))
        full = [1] * (-axes[0] - len(full)) + full
        for axis, length in lengths.items():
            full[axis] = length
        wide = np.broadcast_to(np.asarray(value), tuple(full))
        if mask is not None:
            dtype = self.grids.storage[stmt.buffer].dtype
            wide = np.where(mask, wide, identity_of(stmt.reduce, dtype).value)
            mask = np.logical_or.reduce(np.broadcast_to(mask, tuple(full)), axis=axes, keepdims=True)
        return run(wide, axis=axes, keepdims=True), mask
