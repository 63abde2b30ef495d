"""Bound loops run as a GPU runs them, on the CPU: blocks and threads in shuffled order, barriers where lowering puts them, every conflict found.

:func:`steptp.interp.evaluate` runs a program in serial order, which is its meaning. Here every iteration of a bound loop is a block or a thread of its
own, shared and local memory are separate, and what a thread touches between two barriers is recorded. Two threads that touch an element which one of
them writes, without a barrier between, are a race, whatever values come out; so are two blocks of one kernel.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import product

import numpy as np

from steptp.interp.errors import EvalError
from steptp.interp.expressions import Array, Code, Env, ExprCompiler
from steptp.interp.expressions import Scope as Slots
from steptp.interp.machine import check_ranges, combiner
from steptp.interp.numpy_eval import FloatAlgebra, prepare_inputs
from steptp.interp.rounding import numpy_dtype
from steptp.interp.scalars import Scalar
from steptp.ir.kernels import Kernel, Lanes, kernels, placement
from steptp.ir.nodes import Body, If, Load, Loop, Path, Program, Store
from steptp.ir.resets import materialize
from steptp.ir.sizes import shape_of
from steptp.ir.types import LoopKind, Scope
from steptp.ir.walk import buffers

__all__ = ["emulate"]

Place = tuple[str, int]
_SERIAL = Lanes({}, frozenset())


@dataclass(slots=True)
class _Log:
    """Who touched which element: workers are threads between two barriers, or blocks of a kernel."""

    what: str
    writer: dict[Place, int] = field(default_factory=dict)
    readers: dict[Place, set[int]] = field(default_factory=dict)

    def read(self, place: Place, who: int) -> None:
        if self.writer.get(place, who) != who:
            raise self._race(place, "reads what another one writes")
        self.readers.setdefault(place, set()).add(who)

    def write(self, place: Place, who: int) -> None:
        if self.writer.setdefault(place, who) != who:
            raise self._race(place, "writes what another one writes")
        if self.readers.get(place, {who}) != {who}:
            raise self._race(place, "writes what another one reads")

    def _race(self, place: Place, does: str) -> EvalError:
        return EvalError("eval-race", f"{place[0]}: element {place[1]} (flat): a {self.what} {does}, and nothing orders the two")

    def clear(self) -> None:
        self.writer.clear()
        self.readers.clear()


@dataclass(slots=True)
class _Block:
    number: int
    shared: dict[str, list[Scalar | None]]
    log: _Log


@dataclass(slots=True)
class _Thread:
    """``at``: its coordinate on every launched axis."""

    number: int
    block: _Block | None
    at: Mapping[LoopKind, int]
    local: dict[str, list[Scalar | None]] = field(default_factory=dict)


class _Emulator:
    def __init__(self, program: Program, rng: random.Random) -> None:
        self.program, self.rng = program, rng
        self.sizes = program.size_env
        self.places = {**{b.name: Scope.GLOBAL for b in buffers(program)}, **placement(program)}
        self.private = frozenset(n for n, s in self.places.items() if s is Scope.LOCAL)
        self.roots = {k.path: k for k in kernels(program)}
        self.arrays = {b.name: Array.blank(b.name, b.dtype, shape_of(b.shape, program)) for b in buffers(program)}
        self.algebra = FloatAlgebra()
        self.compiler = ExprCompiler(self.algebra, self.sizes, self._read)
        self.codes: dict[object, Code] = {}
        self.waits: dict[tuple[Path, bool], tuple[bool, ...]] = {}
        self.grid = _Log("block")
        self.thread = _Thread(0, None, {})

    # memory

    def _data(self, name: str) -> list[Scalar | None]:
        scope = self.places[name]
        if scope is Scope.LOCAL:
            return self.thread.local.setdefault(name, [None] * len(self.arrays[name].data))
        if scope is Scope.SHARED and self.thread.block is not None:
            return self.thread.block.shared.setdefault(name, [None] * len(self.arrays[name].data))
        return self.arrays[name].data

    def _touch(self, name: str, offset: int, write: bool) -> None:
        block = self.thread.block
        if block is None or name in self.private:
            return
        place = (name, offset)
        (block.log.write if write else block.log.read)(place, self.thread.number)
        if self.places[name] is Scope.GLOBAL:
            (self.grid.write if write else self.grid.read)(place, block.number)

    def _read(self, load: Load, slots: Slots) -> Code:
        array = self.arrays[load.buffer]
        offset = self.compiler.offset(array, load.indices, slots)

        def read(env: Env) -> Scalar:
            place = offset(env)
            self._touch(array.name, place, False)
            value = self._data(array.name)[place]
            if value is None:
                raise EvalError("eval-undefined", f"{array.name}: element {place} (flat) is read before it is written")
            return value

        return read

    def _store(self, store: Store, path: Path, slots: Slots, env: Env) -> None:
        array = self.arrays[store.buffer]
        if path not in self.codes:
            self.codes[path] = self.compiler.compile(store.value, slots)
            self.codes[path, "at"] = self.compiler.offset(array, store.indices, slots)
        value = self.codes[path](env)
        place = self.codes[path, "at"](env)
        data = self._data(array.name)
        if store.reduce is not None:
            self._touch(array.name, place, False)
            if (old := data[place]) is None:
                raise EvalError("eval-undefined", f"{array.name}: element {place} (flat) is accumulated into before it is written")
            value = combiner(self.algebra, store.reduce, array.dtype)(old, value)
        self._touch(array.name, place, True)
        data[place] = value

    # control

    def host(self, body: Body, prefix: Path, slots: Slots, env: Env) -> None:
        """Statements outside of kernels, in order; what holds no bound loop runs as one thread."""
        for n, stmt in enumerate(body):
            here = (*prefix, n)
            if (kernel := self.roots.get(here)) is not None:
                self._launch(kernel, slots, env)
            elif isinstance(stmt, Store):
                self._store(stmt, here, slots, env)
            elif isinstance(stmt, If):
                if self._code(here, stmt, slots)(env):
                    self.host(stmt.body, here, slots, env)
            else:
                inner = slots.enter(stmt.var, (0, 1 << 62))
                for value in range(self._code(here, stmt, slots)(env)):
                    self._fresh(stmt)
                    self.host(stmt.body, here, inner, [*env[: len(slots.slots)], value])

    def _code(self, path: Path, stmt: If | Loop, slots: Slots) -> Code:
        if path not in self.codes:
            self.codes[path] = self.compiler.compile(stmt.cond if isinstance(stmt, If) else stmt.extent, slots)
        return self.codes[path]

    def _fresh(self, loop: Loop) -> None:
        for b in loop.tmps:
            if self.places[b.name] is not Scope.SHARED:  # a block's memory is not wiped between iterations
                data = self._data(b.name)
                data[:] = [None] * len(data)

    def _launch(self, kernel: Kernel, slots: Slots, env: Env) -> None:
        self.grid.clear()
        blocks = [k for k in kernel.extents if k.is_block]
        threads = [k for k in kernel.extents if k.is_thread]
        places = list(product(*(range(kernel.extents[k]) for k in blocks)))
        for number in self.rng.sample(range(len(places)), len(places)):
            block = _Block(number, {}, _Log("thread"))
            lanes = list(product(*(range(kernel.extents[k]) for k in threads)))
            team = [_Thread(n, block, {**dict(zip(blocks, places[number], strict=True)), **dict(zip(threads, at, strict=True))}) for n, at in enumerate(lanes)]
            self._run(team, kernel, slots, env)
        self.thread = _Thread(0, None, {})

    def _run(self, team: list[_Thread], kernel: Kernel, slots: Slots, env: Env) -> None:
        lanes = Lanes.of(kernel, self.private)
        running = {t.number: self._statement(kernel.loop, kernel.path, lanes, slots, list(env), t) for t in team}
        while running:
            met: dict[object, list[int]] = {}
            for number in self.rng.sample(sorted(running), len(running)):
                self.thread = team[number]
                met.setdefault(next(running[number], None), []).append(number)
            if len(met) > 1:
                shown = " and ".join(f"{len(group)} threads at {place or 'the end'}" for place, group in met.items())
                raise EvalError("eval-divergent", f"threads of one block wait for one another at different places: {shown}")
            if None in met:
                return
            assert team[0].block is not None
            team[0].block.log.clear()

    def _body(self, body: Body, prefix: Path, lanes: Lanes, slots: Slots, env: Env, thread: _Thread) -> Iterator[Path]:
        key = (prefix, True)
        if key not in self.waits:
            self.waits[key] = lanes.before(body)
        for n, (stmt, wait) in enumerate(zip(body, self.waits[key], strict=True)):
            here = (*prefix, n)
            if wait:
                yield here
            if isinstance(stmt, Store):
                if all(thread.at[kind] == 0 for kind in lanes.idle(stmt)):
                    self._store(stmt, here, slots, env)
            else:
                yield from self._statement(stmt, here, lanes, slots, env, thread)

    def _statement(self, stmt: Loop | If, here: Path, lanes: Lanes, slots: Slots, env: Env, thread: _Thread) -> Iterator[Path]:
        inside = lanes.enter(stmt, self.sizes)
        if isinstance(stmt, If):
            if self._code(here, stmt, slots)(env):
                yield from self._body(stmt.body, here, inside, slots, env, thread)
            return
        trips = self._code(here, stmt, slots)(env)
        inner = slots.enter(stmt.var, (0, 1 << 62))
        mine = [*env[: len(slots.slots)], 0]
        bound = stmt.kind.is_bound
        for value in (thread.at[stmt.kind],) if bound else range(trips):
            if value >= trips:
                return
            mine[-1] = value
            self._fresh(stmt)
            yield from self._body(stmt.body, here, inside, inner, mine, thread)
            if not bound:
                key = (here, False)
                if key not in self.waits:
                    self.waits[key] = (lanes.behind(stmt),)
                if self.waits[key][0]:
                    yield (*here, -1)


def emulate(program: Program, inputs: Mapping[str, np.ndarray], *, seed: int = 0) -> dict[str, np.ndarray]:
    """Outputs of a program whose bound loops run as kernels, in an order drawn from ``seed``.

    Raises :class:`EvalError` as :func:`steptp.interp.evaluate` does, and ``eval-race`` and ``eval-divergent``.
    """
    arrays = prepare_inputs(program, inputs)
    machine = _Emulator(materialize(program).program, random.Random(seed))
    flat = {name: [float(x) for x in a.ravel().tolist()] if a.dtype.kind == "f" else a.ravel().tolist() for name, a in arrays.items()}
    check_ranges(program, flat)
    for name, values in flat.items():
        machine.arrays[name].data[:] = values
    with np.errstate(all="ignore"):
        machine.host(machine.program.body, (), Slots(), [])
    out: dict[str, np.ndarray] = {}
    for buffer in program.outputs:
        data = machine.arrays[buffer.name].data
        if None in data:
            raise EvalError("eval-undefined", f"output {buffer.name}: element {data.index(None)} (flat) is never written")
        out[buffer.name] = np.array(data, dtype=numpy_dtype(buffer.dtype)).reshape(shape_of(buffer.shape, program))
    return out
