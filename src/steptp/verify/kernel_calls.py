"""Calling somebody else's kernel under guard, in the forked child.

Inputs lie between guard zones in fresh memory, or in the memory of the last call with new contents. Functions that return tensors find the
memory that they may be given next full of poison; functions that write into buffers get them poisoned and between guard zones. Results are copied
as soon as the call returns and looked at again a little later: what still changes was not finished.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from time import sleep
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt

from steptp.errors import StepTPError
from steptp.ir.nodes import Buffer, Program
from steptp.ir.sizes import shape_of
from steptp.ir.types import DType
from steptp.lower.build import NUMPY, to_storage
from steptp.verify.compiled import POISON, GuardedRun, fenced, intact
from steptp.verify.forked import Ended, Forked, Frames, out_of_memory
from steptp.verify.verdict import VerdictKind

if TYPE_CHECKING:
    import torch

__all__ = ["Caller", "Kernel", "Slot", "calls_numpy", "calls_torch", "calls_tvm", "server", "slots"]

Array = npt.NDArray[Any]
Caller: TypeAlias = Callable[[Mapping[str, Array], Mapping[str, Array]], Any]
"""(inputs, poisoned outputs), in storage dtypes, → what the kernel returns, or ``None`` when it wrote into the outputs."""
_PAUSE = 0.02  # seconds between the two looks at a result
_MESSAGE = 2000  # characters of what a candidate has to say
_HEADER = 1 << 16  # bytes


@dataclass(frozen=True, slots=True)
class Slot:
    """One tensor of an interface."""

    name: str
    dtype: DType
    shape: tuple[int, ...]

    @property
    def nbytes(self) -> int:
        return int(np.prod(self.shape, dtype=np.int64)) * np.dtype(NUMPY[self.dtype]).itemsize

    def array(self, data: bytes) -> Array:
        """The array in storage dtype that these bytes are."""
        return np.frombuffer(data, NUMPY[self.dtype]).reshape(self.shape)


def slots(program: Program, buffers: Sequence[Buffer]) -> tuple[Slot, ...]:
    """The slots of a program's buffers at its present sizes."""
    return tuple(Slot(b.name, b.dtype, shape_of(b.shape, program)) for b in buffers)


class Kernel:
    """The parent's end: a candidate that answers from its own process."""

    def __init__(self, process: Forked, inputs: Sequence[Slot], outputs: Sequence[Slot]) -> None:
        self._process, self._inputs, self._outputs = process, inputs, outputs

    def run(self, inputs: Mapping[str, Array], *, again: bool = False) -> GuardedRun:
        """One call; ``again``: in the memory of the last one. Raises :class:`Ended` when there is nothing to compare."""
        given = [np.ascontiguousarray(to_storage(np.asarray(inputs[s.name]), s.dtype)).tobytes() for s in self._inputs]
        most = _HEADER + sum(s.nbytes + 1 for s in self._outputs)
        answer = self._process.ask([json.dumps({"again": again}).encode(), *given], most)
        try:
            header, *results = answer
            said = json.loads(header)
            kind, message, damage = VerdictKind(said["kind"]), _printable(str(said["message"])), _printable(str(said["damage"]))
        except (ValueError, LookupError, TypeError, RecursionError):
            raise Ended(VerdictKind.MALFORMED, "the candidate has written into the pipe that its results come by") from None
        if kind is not VerdictKind.OK:
            raise Ended(kind, message)
        if [len(data) for data in results] != [s.nbytes for s in self._outputs]:
            raise Ended(VerdictKind.MALFORMED, "the outputs are not those of the interface")
        return GuardedRun({s.name: s.array(data) for s, data in zip(self._outputs, results, strict=True)}, damage)


def server(opened: Callable[[], Caller], inputs: Sequence[Slot], outputs: Sequence[Slot]) -> Callable[[Frames], Frames]:
    """Answers requests of a :class:`Kernel`; ``opened`` runs first, in the child."""
    call: list[Caller] = []
    memory: dict[str, tuple[Array, Array]] = {}

    def answer(frames: Frames) -> Frames:
        try:
            if not call:
                call.append(opened())
            if not json.loads(frames[0])["again"]:
                memory.clear()
            given = {s.name: s.array(data) for s, data in zip(inputs, frames[1:], strict=True)}
            results, damage = _guarded(call[0], given, memory, outputs)
        except Ended as err:
            return [_header(err.kind, err.message)]
        except BaseException as err:  # noqa: BLE001 - the crash boundary: whatever a candidate raises is a verdict
            text = _said(err)
            return [_header(VerdictKind.OOM if isinstance(err, MemoryError) or out_of_memory(text) else VerdictKind.CRASHED, text)]
        return [_header(VerdictKind.OK, "", damage), *results]

    return answer


def _header(kind: VerdictKind, message: str, damage: str = "") -> bytes:
    return json.dumps({"kind": kind.value, "message": message[:_MESSAGE], "damage": damage}).encode()


def _said(err: BaseException) -> str:
    """What was raised, as text, also where the exception cannot print itself."""
    name = type(err).__name__[:_MESSAGE]
    try:
        return f"{name}: {str(err)[:_MESSAGE]}"
    except BaseException:  # noqa: BLE001 - code of the candidate
        return name


def _printable(text: str) -> str:
    """The text cut to a bearable length, without halves of surrogate pairs, which no stream takes."""
    return text[:_MESSAGE].encode(errors="replace").decode()


def _guarded(call: Caller, given: Mapping[str, Array], memory: dict[str, tuple[Array, Array]], outputs: Sequence[Slot]) -> tuple[Frames, str]:
    for name, value in given.items():
        if name not in memory:
            memory[name] = fenced(value.shape, value.dtype.type, POISON)
        memory[name][1][...] = value
    results = {s.name: fenced(s.shape, NUMPY[s.dtype], POISON) for s in outputs}
    for s in outputs:
        if s.dtype is DType.BOOL:
            results[s.name][1].fill(True)
    _poison(outputs)
    returned = call({name: array for name, (_, array) in memory.items()}, {name: array for name, (_, array) in results.items()})
    if returned is None:
        first = [array.tobytes() for _, array in results.values()]
        sleep(_PAUSE)
        second = [array.tobytes() for _, array in results.values()]
    else:
        try:
            values = _flat(returned)
        except RecursionError:
            raise Ended(VerdictKind.MALFORMED, f"returned a {type(returned).__name__} that contains itself") from None
        if len(values) != len(outputs):
            raise Ended(VerdictKind.MALFORMED, f"returned {len(values)} tensors where there are {len(outputs)} outputs")
        first = [_stored(v, s) for v, s in zip(values, outputs, strict=True)]
        sleep(_PAUSE)
        second = [_stored(v, s) for v, s in zip(values, outputs, strict=True)]
    if unsettled := [s.name for s, a, b in zip(outputs, first, second, strict=True) if a != b]:
        raise Ended(VerdictKind.NOT_EQUAL, f"{', '.join(unsettled)} still changes after the call has returned")
    both = {**memory, **results}
    broken = [name for name, (raw, array) in both.items() if not intact(raw, array, POISON)]
    changed = [name for name, value in given.items() if memory[name][1].tobytes() != value.tobytes()]
    return first, f"wrote outside {', '.join(broken)}" if broken else f"changed input {', '.join(changed)}" if changed else ""


def _poison(outputs: Sequence[Slot]) -> None:
    """Leave poison in the memory that the next allocations of the outputs' sizes are likely to get."""
    held = [np.full(s.nbytes + pad, POISON, np.uint8) for s in outputs for pad in (0, 64)]
    held.clear()


def _flat(value: Any) -> list[Any]:
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, (list, tuple)):
        return [leaf for part in value for leaf in _flat(part)]
    return [] if value is None else [value]


def _stored(value: Any, slot: Slot) -> bytes:
    """The bytes of a returned tensor; raises :class:`Ended` ``malformed`` for what is not just a dense tensor of the slot's shape and dtype."""
    if type(value) is np.ndarray or (isinstance(value, np.generic) and slot.shape == ()):
        array = np.asarray(value)
        want = np.dtype(np.float32 if slot.dtype is DType.BF16 else NUMPY[slot.dtype])
        _expect(slot, "shape", slot.shape, array.shape)
        _expect(slot, "dtype", want, array.dtype)
        _spread(slot, array.shape, array.strides, array.itemsize)
        return to_storage(array, slot.dtype).tobytes()
    import torch

    if type(value) is not torch.Tensor:
        raise Ended(VerdictKind.MALFORMED, f"{slot.name} is a {type(value).__module__}.{type(value).__qualname__}, not a plain tensor")
    tensor = value.detach()
    if tensor.layout is not torch.strided or tensor.device.type != "cpu" or tensor.is_conj() or tensor.is_neg():
        raise Ended(VerdictKind.MALFORMED, f"{slot.name} is not a dense tensor in this machine's memory ({tensor.layout}, {tensor.device})")
    _expect(slot, "shape", slot.shape, tuple(tensor.shape))
    _expect(slot, "dtype", _torch_dtype(slot.dtype), tensor.dtype)
    _spread(slot, tuple(tensor.shape), tensor.stride(), 1)
    whole = tensor.contiguous()
    return (whole.view(torch.int16) if slot.dtype is DType.BF16 else whole).numpy().tobytes()


def _expect(slot: Slot, what: str, want: object, got: object) -> None:
    if want != got:
        raise Ended(VerdictKind.MALFORMED, f"{slot.name} has {what} {got}, expected {want}")


def _spread(slot: Slot, shape: Sequence[int], strides: Sequence[int], unit: int) -> None:
    """Every element has memory of its own."""
    reach = unit
    for step, extent in sorted((abs(s), n) for s, n in zip(strides, shape, strict=True) if n > 1):
        if step < reach:
            raise Ended(VerdictKind.MALFORMED, f"elements of {slot.name} share memory (shape {tuple(shape)}, strides {tuple(strides)})")
        reach = step * (extent - 1) + reach


def _torch_dtype(dtype: DType) -> torch.dtype:
    import torch

    return {
        DType.F16: torch.float16, DType.BF16: torch.bfloat16, DType.F32: torch.float32, DType.F64: torch.float64,
        DType.I8: torch.int8, DType.I32: torch.int32, DType.I64: torch.int64, DType.BOOL: torch.bool,
    }[dtype]  # fmt: skip


def calls_torch(function: Callable[[dict[str, torch.Tensor]], Any], inputs: Sequence[Slot]) -> Caller:
    """A kernel on tensors by input name."""

    def call(given: Mapping[str, Array], _: Mapping[str, Array]) -> Any:
        import torch

        tensors = {}
        for s in inputs:
            array = given[s.name]
            tensors[s.name] = torch.from_numpy(array.view(np.int16)).view(torch.bfloat16) if s.dtype is DType.BF16 else torch.from_numpy(array)
        with torch.no_grad():
            return _something(function(tensors))

    return call


def calls_numpy(function: Callable[..., Any], inputs: Sequence[Slot]) -> Caller:
    """A kernel on arrays in the order of the interface (bf16 as float32)."""

    def call(given: Mapping[str, Array], _: Mapping[str, Array]) -> Any:
        from steptp.lower.build import from_storage

        return _something(function(*(from_storage(given[s.name], s.dtype) for s in inputs)))

    return call


def _something(value: Any) -> Any:
    return () if value is None else value


def calls_tvm(candidate: Any) -> Caller:
    """A TVM PrimFunc, IRModule or compiled module that takes inputs and then outputs; raises :class:`Ended` ``build_failed``."""
    import tvm

    function = candidate
    if isinstance(candidate, (tvm.tirx.PrimFunc, tvm.IRModule)):
        try:
            module = tvm.IRModule({"main": candidate.with_attr("global_symbol", "main")}) if isinstance(candidate, tvm.tirx.PrimFunc) else candidate
            function = tvm.compile(module, target="llvm")
        except (RuntimeError, ValueError, TypeError, StepTPError, tvm.error.TVMError) as err:
            raise Ended(VerdictKind.BUILD_FAILED, f"{type(err).__name__}: {str(err)[-1000:]}") from None
    if isinstance(candidate, tvm.IRModule):
        function = function[str(next(iter(candidate.functions)).name_hint)]
    elif not callable(function) or isinstance(function, (tvm.runtime.Module, tvm.runtime.Executable)):
        function = function["main"]

    def call(given: Mapping[str, Array], outputs: Mapping[str, Array]) -> None:
        function(*(tvm.runtime.from_dlpack(a) for a in (*given.values(), *outputs.values())))

    return call
