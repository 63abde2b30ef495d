"""Building programs and calling what was built."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from steptp.ir.nodes import Buffer, Program
from steptp.ir.sizes import eval_index, shape_of
from steptp.ir.types import DType
from steptp.lower.options import BuildError, BuildOptions

__all__ = ["NUMPY", "Arguments", "Built", "aligned", "build", "clear_cache", "from_storage", "stored_input", "to_storage"]

Array = npt.NDArray[Any]
ALIGNMENT = 64  # bytes; generated code relies on it
POISON = 0xFF  # floats become NaN, integers -1

NUMPY: dict[DType, type] = {
    DType.F16: np.float16, DType.BF16: np.uint16, DType.F32: np.float32, DType.F64: np.float64,
    DType.I8: np.int8, DType.I32: np.int32, DType.I64: np.int64, DType.BOOL: np.bool_,
}  # fmt: skip
"""Storage dtype of each element type; bf16 is stored as its upper 16 bits."""


def aligned(shape: tuple[int, ...], dtype: type, poison: int | None = POISON) -> Array:
    """A fresh array on a 64-byte boundary, filled with ``poison`` bytes (bool arrays with their lowest bit; ``None``: not filled)."""
    size = int(np.prod(shape, dtype=np.int64)) * np.dtype(dtype).itemsize
    raw = np.empty(size + ALIGNMENT, np.uint8)
    start = -raw.ctypes.data % ALIGNMENT
    view = raw[start : start + size]
    if poison is not None:
        view.fill(poison & 1 if dtype is np.bool_ else poison)
    return view.view(dtype).reshape(shape)


def to_storage(value: Array, dtype: DType) -> Array:
    """An array as it is stored: bf16 from float32 (rounded to nearest even) to its upper 16 bits; others unchanged."""
    if dtype is not DType.BF16:
        return np.asarray(value, NUMPY[dtype])
    if value.dtype == np.uint16:
        return value
    single = np.asarray(value, np.float32)
    bits = single.view(np.uint32)
    rounded = ((bits + (0x7FFF + ((bits >> 16) & 1))) >> 16).astype(np.uint16)
    return np.where(np.isnan(single), np.uint16(0x7FC0), rounded)


def from_storage(value: Array, dtype: DType) -> Array:
    """The inverse of :func:`to_storage`: bf16 as float32."""
    return (value.astype(np.uint32) << 16).view(np.float32) if dtype is DType.BF16 else value


@dataclass(frozen=True, slots=True)
class Arguments:
    """One set of buffers for :meth:`Built.call`: a table of calls, and everything that it points to."""

    table: npt.NDArray[np.int64]
    kept: tuple[Any, ...]

    @property
    def pointer(self) -> int:
        return int(self.table.ctypes.data)

    @property
    def rows(self) -> int:
        return len(self.table)


@dataclass(frozen=True, slots=True)
class Built:
    """A compiled program: the code of its nests in order, each with the buffers it takes.

    ``entry`` runs a table of calls (``pointer``, ``rows`` of :class:`Arguments`) and returns 0, or the first status that is not.
    """

    program: Program
    options: BuildOptions
    code: tuple[tuple[Any, tuple[Buffer, ...]], ...]
    entry: Callable[[int, int], int]
    threads: int

    @property
    def interface(self) -> tuple[Buffer, ...]:
        return (*self.program.inputs, *self.program.outputs)

    def temporaries(self, poison: int = POISON) -> dict[str, Array]:
        """Fresh arrays, full of ``poison`` bytes, for the program's temporaries by name."""
        own = {b.name for b in self.interface}
        buffers = {b.name: b for _, params in self.code for b in params if b.name not in own}
        return {name: aligned(shape_of(b.shape, self.program), NUMPY[b.dtype], poison) for name, b in buffers.items()}

    def prepare(self, arrays: Sequence[Array], poison: int = POISON, temporaries: Mapping[str, Array] | None = None) -> Arguments:
        """Arguments for :meth:`call` from arrays in storage dtype, inputs then outputs; ``temporaries`` are fresh ones unless given.

        Raises :class:`BuildError` ``call-shape``, ``call-dtype`` or ``call-layout`` (not contiguous, not on a 64-byte boundary).
        """
        from steptp.lower.link import table

        if len(arrays) != len(self.interface):
            raise BuildError("call-shape", f"expected {len(self.interface)} arrays, got {len(arrays)}")
        for buffer, array in zip(self.interface, arrays, strict=True):
            shape = shape_of(buffer.shape, self.program)
            if array.shape != shape:
                raise BuildError("call-shape", f"{buffer.name} has shape {array.shape}, expected {shape}")
            if array.dtype != NUMPY[buffer.dtype]:
                raise BuildError("call-dtype", f"{buffer.name} has dtype {array.dtype}, expected {np.dtype(NUMPY[buffer.dtype])}")
            if array.size and (not array.flags.c_contiguous or array.ctypes.data % ALIGNMENT):
                raise BuildError("call-layout", f"{buffer.name} must be contiguous and start on a {ALIGNMENT}-byte boundary")
        named = {b.name: a for b, a in zip(self.interface, arrays, strict=True)}
        named |= self.temporaries(poison) if temporaries is None else temporaries
        pointers = {name: int(array.ctypes.data) for name, array in named.items()}
        rows, packed = table([(code.address, [pointers[b.name] for b in params]) for code, params in self.code])
        return Arguments(rows, (packed, tuple(named.values()), self.code))

    def partly_prepared(self, known: Mapping[str, Array]) -> tuple[Arguments, dict[str, list[Array]]]:
        """Arguments for many calls that have the arrays of some buffers in common, and, for every other buffer, where its address is to be written before
        each :meth:`call`. Nothing is checked, and what is written there is the caller's to keep."""
        from steptp.lower.link import table

        pointers = {name: int(array.ctypes.data) for name, array in known.items()}
        rows, packed = table([(code.address, [pointers.get(b.name, 0) for b in params]) for code, params in self.code])
        places: dict[str, list[Array]] = {b.name: [] for b in self.interface if b.name not in known}
        for (_, params), row in zip(self.code, packed, strict=True):
            for position, buffer in enumerate(params):
                if buffer.name not in known:
                    places[buffer.name].append(row[position, 1:])
        return Arguments(rows, (packed, tuple(known.values()), self.code)), places

    def call(self, arguments: Arguments) -> None:
        """One run on prepared arguments; nothing is checked. Raises :class:`BuildError` ``call-failed`` when TVM's runtime reports an error."""
        status = self.entry(arguments.pointer, arguments.rows)
        if status != 0:
            raise BuildError("call-failed", f"the compiled program ended with status {status}", hint="most likely memory for its temporaries ran out")

    def configure(self) -> None:
        """Size the thread pool for this build; call it before a series of :meth:`call`."""
        from steptp.lower.compile import limit_threads

        limit_threads(self.threads)

    def run(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """Outputs by name for inputs by name (bf16 as float32 arrays). Inputs are copied, outputs are fresh.

        Raises :class:`BuildError` ``call-input`` (missing input), ``call-shape``, ``call-range`` (an integer outside its declared range).
        """
        arrays = [aligned_input(self.program, b, inputs) for b in self.program.inputs]
        outputs = [aligned(shape_of(b.shape, self.program), NUMPY[b.dtype]) for b in self.program.outputs]
        arguments = self.prepare([*arrays, *outputs])
        self.configure()
        self.call(arguments)
        return {b.name: from_storage(a, b.dtype) for b, a in zip(self.program.outputs, outputs, strict=True)}


def stored_input(program: Program, buffer: Buffer, inputs: Mapping[str, Array]) -> Array:
    """The input ``buffer`` among inputs by name, in storage dtype.

    Raises :class:`BuildError` ``call-input`` (missing), ``call-shape``, ``call-range`` (an integer outside its declared range).
    """
    if buffer.name not in inputs:
        raise BuildError("call-input", f"input {buffer.name} is missing")
    shape = shape_of(buffer.shape, program)
    given = to_storage(np.asarray(inputs[buffer.name]), buffer.dtype)
    if given.shape != shape:
        raise BuildError("call-shape", f"{buffer.name} has shape {given.shape}, expected {shape}")
    if allowed := range_left(program, buffer, given):
        raise BuildError("call-range", f"{buffer.name} has values outside its range {allowed}")
    return given


def aligned_input(program: Program, buffer: Buffer, inputs: Mapping[str, Array]) -> Array:
    """A copy of :func:`stored_input` that compiled code may be given."""
    given = stored_input(program, buffer, inputs)
    array = aligned(given.shape, NUMPY[buffer.dtype], poison=None)
    array[...] = given
    return array


def range_left(program: Program, buffer: Buffer, values: Array) -> str:
    """The declared range of a buffer's integers as text, if some of ``values`` lie outside; else the empty string."""
    if buffer.range is None or not values.size:
        return ""
    low, high = (eval_index(e, program.size_env) for e in buffer.range)
    return f"{low}..{high}" if int(values.min()) < low or int(values.max()) >= high else ""


_CACHE: OrderedDict[tuple[Program, BuildOptions], Built] = OrderedDict()
_CACHE_LIMIT = 64


def clear_cache() -> None:
    """Forget all builds of this process."""
    from steptp.lower.nests import clear_nests

    _CACHE.clear()
    clear_nests()


def build(program: Program, options: BuildOptions | None = None) -> Built:
    """Compile a program for this machine's CPU; the last 64 builds of a process, and the last 1,024 nests, are kept.

    Raises :class:`BuildError` ``build-failed``.
    """
    from steptp.lower.compile import threads_of
    from steptp.lower.link import runner
    from steptp.lower.nests import compiled

    options = options or BuildOptions()
    key = (program, options)
    if (known := _CACHE.get(key)) is not None:
        _CACHE.move_to_end(key)
        return known
    built = Built(program, options, tuple(compiled(program, options)), runner(), threads_of(options))
    _CACHE[key] = built
    if len(_CACHE) > _CACHE_LIMIT:
        _CACHE.popitem(last=False)
    return built
