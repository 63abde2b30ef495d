"""Running compiled programs under guard: zones around every buffer, poisoned outputs, inputs compared afterwards."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from steptp.ir.sizes import shape_of
from steptp.verify.cache import ByteLru, program_key

if TYPE_CHECKING:
    from steptp.lower.build import Built

__all__ = ["POISON", "GuardedRun", "bits_of", "clear_runs", "fenced", "guarded_run", "intact", "kept_run", "kinds", "print_value"]

Array = npt.NDArray[Any]
_ZONE = 4096  # bytes on either side
_ALIGN = 64
_OWN = 32  # buffers whose zones differ when they may
POISON = 0xFF
"""What guard zones and outputs hold before a run: NaN for every float dtype."""


@dataclass(frozen=True, slots=True)
class GuardedRun:
    """``outputs`` in storage dtype; ``damage`` names what the run must not have touched (empty when all is well)."""

    outputs: dict[str, Array]
    damage: str = ""

    @property
    def nbytes(self) -> int:
        """Bytes that the outputs hold, guard zones included."""
        return sum(a.nbytes + 2 * _ZONE + _ALIGN for a in self.outputs.values())


def fenced(shape: tuple[int, ...], dtype: type, fill: int) -> tuple[Array, Array]:
    """A whole allocation full of ``fill`` bytes, and the aligned array in its middle."""
    size = int(np.prod(shape, dtype=np.int64)) * np.dtype(dtype).itemsize
    raw = np.full(size + 2 * _ZONE + _ALIGN, fill, np.uint8)
    start = _ZONE + (-(raw.ctypes.data + _ZONE)) % _ALIGN
    return raw, raw[start : start + size].view(dtype).reshape(shape)


def _bytes(array: Array) -> Array:
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)


def intact(raw: Array, array: Array, fill: int) -> bool:
    start = array.ctypes.data - raw.ctypes.data if array.size else raw.size
    return bool((raw[:start] == fill).all() and (raw[start + array.nbytes :] == fill).all())


def guarded_run(built: Built, inputs: Mapping[str, Array], poison: int = POISON) -> GuardedRun:
    """One call on fresh guarded buffers. Guard zones and outputs hold ``poison`` bytes,
    so that reads outside a buffer or of unwritten outputs show up in the results. With another byte than :data:`POISON` every buffer has its own, so that
    copying from one zone to another shows too."""
    from steptp.lower.build import NUMPY, to_storage

    program = built.program
    given: dict[str, Array] = {}
    fences: list[tuple[str, Array, Array, int]] = []
    for position, buffer in enumerate(built.interface):
        fill = poison if poison == POISON else poison - position % _OWN
        raw, array = fenced(shape_of(buffer.shape, program), NUMPY[buffer.dtype], fill)
        if buffer.name in inputs:
            array[...] = given[buffer.name] = to_storage(np.asarray(inputs[buffer.name]), buffer.dtype)
        elif NUMPY[buffer.dtype] is np.bool_:
            array[...] = bool(poison & 1)
        fences.append((buffer.name, raw, array, fill))
    built.configure()
    built.call(built.prepare([array for _, _, array, _ in fences], poison))
    broken = [name for name, raw, array, fill in fences if not intact(raw, array, fill)]
    changed = [name for name, _, array, _ in fences if name in given and not np.array_equal(_bytes(array), _bytes(given[name]))]
    damage = f"wrote outside {', '.join(broken)}" if broken else f"changed input {', '.join(changed)}" if changed else ""
    return GuardedRun({name: array for name, _, array, _ in fences if name not in inputs}, damage)


_RUNS: ByteLru[GuardedRun] = ByteLru(128 * 2**20, lambda run: run.nbytes)


def kept_run(built: Built, inputs: Mapping[str, Array], key: Hashable) -> GuardedRun:
    """:func:`guarded_run` on the inputs of a :func:`steptp.verify.tier4_inputs.inputs_key`; what earlier checks of this process ran is kept (at most 128 MiB)."""
    return _RUNS.get((program_key(built.program), built.options, key), lambda: guarded_run(built, inputs))


def clear_runs() -> None:
    """Forget kept runs."""
    _RUNS.clear()


def bits_of(array: Array, *, bf16: bool = False) -> Array:
    """Bit patterns as unsigned integers, with one pattern for every NaN. ``bf16``: the array already holds bf16 patterns."""
    if bf16:
        return np.where((array & 0x7FFF) > 0x7F80, np.uint16(0x7FC0), array)
    if array.dtype.kind != "f":
        return array
    unsigned = {2: np.uint16, 4: np.uint32, 8: np.uint64}[array.dtype.itemsize]
    plain = np.ascontiguousarray(array)
    return np.where(np.isnan(plain), np.array(np.nan, plain.dtype).view(unsigned), plain.view(unsigned).reshape(plain.shape))


def kinds(array: Array) -> Array:
    """0 finite, 1 NaN, 2 inf, 3 -inf."""
    return np.where(np.isnan(array), 1, np.where(np.isinf(array), np.where(array > 0, 2, 3), 0))


def print_value(value: Any) -> str:
    """A value as text that reads back to the same float."""
    return repr(value.item()) if hasattr(value, "item") else repr(value)
