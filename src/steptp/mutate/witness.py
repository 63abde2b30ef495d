"""Why a mutant counts as really different from its parent: evidence that does not come from the verifier.

A witness is one of: *construction* (the mutant has another interface, whatever it computes); *memory* (the evaluator that defines LEIR finds an
undefined read, an index out of bounds or an overflow where the parent has a value); *value* (both programs evaluated in f64 differ, beyond what rounding and the
conditioning of the parent can explain); *race* (emulated threads conflict); *precision* (in the program's own dtypes the mutant loses its digits, and the parent does not);
*solver* (inputs that z3 finds, on which the programs then differ in f64). A mutant without a witness is unknown and counts for nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from steptp.errors import LeirError
from steptp.interp.errors import EvalError
from steptp.interp.machine import Machine
from steptp.interp.numpy_eval import FloatAlgebra, prepare_inputs
from steptp.ir.nodes import Loop, Op, Path, Program
from steptp.ir.sizes import shape_of
from steptp.ir.types import DType, LoopKind
from steptp.ir.walk import get as get_stmt
from steptp.ir.walk import map_loops, replace_at, stmt_exprs, subexprs, visit
from steptp.mutate.inputs import EXACT, Inputs, draw, draws
from steptp.mutate.registry import Mutant, get

__all__ = ["DRAWS", "Witness", "Witnesses", "run", "compiled"]

Array = npt.NDArray[Any]
Floats = npt.NDArray[np.float64]
Outputs = dict[str, Array]

DRAWS = 24
"""Inputs on which a mutant without a witness has been tried."""
_TOLERANCE = 1e-6  # of the output's scale
_STEP, _SLACK = 1e-13, 1e4  # a relative change of the inputs, and how many times its effect rounding may have
_DIGITS = {DType.F16: 11, DType.BF16: 8, DType.F32: 24, DType.F64: 53}
_LOST, _MORE = 1000.0, 64.0  # units in the last place, and times the parent's own error
_INEXACT = frozenset({"/", "exp", "expm1", "log", "log1p", "sqrt", "rsqrt", "tanh", "sigmoid", "erf", "sin", "cos", "pow"})


@dataclass(frozen=True, slots=True)
class Witness:
    """The kind of evidence, a sentence, and for values the draw of inputs and the element."""

    kind: str
    text: str
    regime: str = ""
    seed: int = 0
    output: str = ""
    index: tuple[int, ...] = ()
    expected: str = ""
    actual: str = ""


@dataclass(frozen=True, slots=True)
class _Known:
    """A parent on one draw: outputs in f64, how far a tiny change of the inputs moves each element, outputs in its own dtypes."""

    inputs: Inputs
    outputs: Outputs
    moved: Outputs
    own: Outputs


def compiled(program: Program, wide: bool) -> Machine:
    """The program as closures in f64 (``wide``) or its own dtypes."""
    return Machine(program, FloatAlgebra(wide))


def run(machine: Machine, inputs: Inputs, wide: bool) -> Outputs:
    """Outputs as arrays, floats as float64; raises :class:`EvalError`."""
    program = machine.program
    arrays = prepare_inputs(program, inputs, wide)
    with np.errstate(all="ignore"):
        found = machine.run({name: a.astype(np.float64).ravel().tolist() if a.dtype.kind == "f" else a.ravel().tolist() for name, a in arrays.items()})
    kinds: dict[bool, type] = {True: np.float64, False: np.int64}
    return {b.name: np.array(found[b.name], dtype=kinds[b.dtype.is_float]).reshape(shape_of(b.shape, program)) for b in program.outputs}


class Witnesses:
    """Evidence about mutants of one parent. What the parent computes is kept for all of them."""

    def __init__(self, parent: Program, seed: int = 0, count: int = DRAWS) -> None:
        self.parent, self.seed, self.count = parent, seed, count
        self._wide, self._own = compiled(parent, True), compiled(parent, False)
        self._known: dict[tuple[str, int], _Known | None] = {}
        self._exact = not any(isinstance(e, Op) and e.name in _INEXACT for m in visit(parent) for x in stmt_exprs(m.stmt) for e in subexprs(x))

    def of(self, mutant: Mutant) -> Witness | None:
        """The first witness found, cheapest kind first."""
        if reason := get(mutant.operator).construction:
            return Witness("construction", reason)
        program = mutant.program
        if any(isinstance(m.stmt, Loop) and m.stmt.kind.is_concurrent for m in visit(program)) and (found := self._race(program)) is not None:
            return found
        try:
            wide, own = compiled(program, True), compiled(program, False)
        except LeirError as err:
            return Witness("construction", f"no value is defined: {err.message}")
        return self._value(wide) or self._precision(own) or self._solved(program, wide)

    def known(self, regime: str, seed: int) -> _Known | None:
        """The parent on one draw; nothing where it has no value there."""
        key = (regime, seed)
        if key not in self._known:
            self._known[key] = self._draw(draw(self.parent, regime, seed), self._exact and regime in EXACT)
        return self._known[key]

    def _draw(self, inputs: Inputs, exact: bool) -> _Known | None:
        try:
            outputs = run(self._wide, inputs, True)
            moved = {n: np.zeros(o.shape) for n, o in outputs.items()} if exact else self._moved(inputs, outputs)
            return _Known(inputs, outputs, moved, run(self._own, inputs, False))
        except EvalError:
            return None

    def _moved(self, inputs: Inputs, outputs: Outputs) -> Outputs:
        """How far outputs move when every float input moves by a relative 1e-13, some up and some down."""
        rng = np.random.default_rng(self.seed)
        total: dict[str, Floats] = {n: np.zeros(o.shape) for n, o in outputs.items()}
        for _ in range(2):
            near = {n: a * (1 + _STEP * rng.choice(np.array([-1.0, 1.0]), a.shape)) if a.dtype.kind == "f" else a for n, a in inputs.items()}
            for name, other in run(self._wide, near, True).items():
                with np.errstate(all="ignore"):
                    total[name] = np.maximum(total[name], np.nan_to_num(np.abs(other.astype(np.float64) - outputs[name]), nan=np.inf, posinf=np.inf))
        return {**total}

    # kinds of evidence

    def _value(self, wide: Machine) -> Witness | None:
        for regime, seed in draws(self.seed, self.count):
            if (known := self.known(regime, seed)) is not None and (found := self._differs(wide, known, regime, seed)) is not None:
                return found
        return None

    def _differs(self, wide: Machine, known: _Known, regime: str, seed: int) -> Witness | None:
        try:
            outputs = run(wide, known.inputs, True)
        except EvalError as err:
            return Witness("memory", f"{err.code}: {err.message}", regime, seed)
        for buffer in self.parent.outputs:
            name = buffer.name
            a, b, moved = known.outputs[name], outputs[name], known.moved[name].astype(np.float64)
            if a.size == 0:
                continue
            with np.errstate(all="ignore"):
                if buffer.dtype.is_float:
                    both = np.isfinite(a) & np.isfinite(b)
                    scale = float(np.max(np.abs(a), where=np.isfinite(a), initial=0.0))
                    away = np.where(both, np.abs(a.astype(np.float64) - b), 0.0)
                    wrong = away > np.maximum(_TOLERANCE * scale, _SLACK * moved)
                    wrong |= np.isfinite(a) & np.isnan(b) & np.isfinite(moved) & (scale < 1e30)
                else:
                    wrong = (a != b) & (moved == 0)
            if wrong.any():
                index = tuple(int(i) for i in np.unravel_index(int(np.argmax(wrong)), wrong.shape))
                return Witness("value", "f64 evaluation differs", regime, seed, name, index, repr(a[index].item()), repr(b[index].item()))
        return None

    def _precision(self, own: Machine) -> Witness | None:
        for regime, seed in draws(self.seed, self.count):
            known = self.known(regime, seed)
            if known is None:
                continue
            try:
                outputs = run(own, known.inputs, False)
            except EvalError as err:
                return Witness("memory", f"{err.code}: {err.message}", regime, seed)
            for buffer in self.parent.outputs:
                if buffer.dtype.is_float and known.outputs[buffer.name].size:
                    if (index := _imprecise(known, outputs, buffer.name, buffer.dtype)) is not None:
                        expected, actual = known.own[buffer.name][index].item(), outputs[buffer.name][index].item()
                        return Witness("precision", "digits lost in its own dtypes", regime, seed, buffer.name, index, repr(expected), repr(actual))
        return None

    def _race(self, program: Program) -> Witness | None:
        """Threads of the mutant that conflict. CPU threads and vector lanes are emulated as blocks, which nothing orders."""
        from steptp.interp.emulate import emulate

        for variant in _as_kernels(program):
            known = self.known("whole", self.seed)
            if known is None:
                return None
            try:
                emulate(variant, known.inputs, seed=self.seed)
            except EvalError as err:
                if err.code in ("eval-race", "eval-divergent", "eval-undefined"):
                    return Witness("race", f"{err.code}: {err.message}", "whole", self.seed)
            except LeirError:
                continue
        return None

    def _solved(self, program: Program, wide: Machine) -> Witness | None:
        from steptp.mutate.solver import branch_inputs

        for inputs in branch_inputs(self.parent, program, self.seed):
            known = self._draw(inputs, self._exact)
            if known is not None and (found := self._differs(wide, known, "solver", self.seed)) is not None:
                return replace(found, kind="solver", text="differs in f64 on inputs that z3 found")
        return None


def _imprecise(known: _Known, outputs: Outputs, name: str, dtype: DType) -> tuple[int, ...] | None:
    """An element that the mutant has lost in its own dtypes and the parent has not."""
    true = known.outputs[name].astype(np.float64)
    parent, mutant = known.own[name].astype(np.float64), outputs[name].astype(np.float64)
    unit = 2.0 ** -_DIGITS[dtype]
    with np.errstate(all="ignore"):
        fine = np.isfinite(true) & np.isfinite(parent) & np.isfinite(known.moved[name])
        if not fine.any():
            return None
        scale = float(np.max(np.abs(true), where=fine, initial=0.0))
        own = float(np.max(np.abs(parent - true), where=fine, initial=0.0))
        allowed = _MORE * own + _LOST * unit * (scale + known.moved[name].astype(np.float64) / _STEP)
        wrong = fine & ~(np.abs(mutant - true) <= allowed)
    if not wrong.any():
        return None
    return tuple(int(i) for i in np.unravel_index(int(np.argmax(wrong)), wrong.shape))


def _as_kernels(program: Program) -> list[Program]:
    """The program itself where it has bound loops only, and one variant for each CPU-parallel or vector loop, with that loop as the one bound loop."""
    kinds = [(m.path, m.stmt.kind) for m in visit(program) if isinstance(m.stmt, Loop) and m.stmt.kind.is_concurrent]
    made = []
    if any(k.is_bound for _, k in kinds):
        made.append(_with_kinds(program, lambda k: LoopKind.SERIAL if k in (LoopKind.PARALLEL, LoopKind.VECTOR) else k))
    serial = _with_kinds(program, lambda _: LoopKind.SERIAL)
    return made + [_bound(serial, path) for path, kind in kinds if not kind.is_bound]


def _with_kinds(program: Program, kind_of: Callable[[LoopKind], LoopKind]) -> Program:
    return program.with_(body=map_loops(program.body, lambda loop: replace(loop, kind=kind_of(loop.kind))))


def _bound(program: Program, path: Path) -> Program:
    loop = get_stmt(program, path)
    assert isinstance(loop, Loop)
    return replace_at(program, path, replace(loop, kind=LoopKind.BLOCK_X))
