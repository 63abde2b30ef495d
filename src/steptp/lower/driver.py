"""The CUDA driver's C interface through ctypes: as much of it as loading, launching and timing kernels takes.

``libcuda`` comes with the GPU's own driver, so nothing beyond nvcc needs installing: TVM's CUDA runtime would want
one release of ``libcudart``. All work goes to the default stream of the device's primary context, which PyTorch uses too, so that both are
ordered and timed by the same events. After a failed kernel the context of the process is lost: run what may fail in an isolated worker.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Mapping, Sequence
from ctypes import POINTER, c_char_p, c_float, c_int, c_size_t, c_ubyte, c_uint, c_uint64, c_void_p
from typing import Any

from steptp.lower.options import BuildError

__all__ = ["PROTOTYPES", "Device", "DeviceMemory", "EventClock", "device", "no_device"]

PROTOTYPES: Mapping[str, tuple[Any, ...]] = {
    "cuInit": (c_uint,),
    "cuDriverGetVersion": (POINTER(c_int),),
    "cuGetErrorName": (c_int, POINTER(c_char_p)),
    "cuGetErrorString": (c_int, POINTER(c_char_p)),
    "cuDeviceGetCount": (POINTER(c_int),),
    "cuDeviceGet": (POINTER(c_int), c_int),
    "cuDeviceGetName": (c_char_p, c_int, c_int),
    "cuDeviceGetAttribute": (POINTER(c_int), c_int, c_int),
    "cuDeviceTotalMem_v2": (POINTER(c_size_t), c_int),
    "cuDevicePrimaryCtxRetain": (POINTER(c_void_p), c_int),
    "cuCtxSetCurrent": (c_void_p,),
    "cuCtxSynchronize": (),
    "cuModuleLoadData": (POINTER(c_void_p), c_char_p),
    "cuModuleGetFunction": (POINTER(c_void_p), c_void_p, c_char_p),
    "cuMemAlloc_v2": (POINTER(c_uint64), c_size_t),
    "cuMemFree_v2": (c_uint64,),
    "cuMemcpyHtoD_v2": (c_uint64, c_void_p, c_size_t),
    "cuMemcpyDtoH_v2": (c_void_p, c_uint64, c_size_t),
    "cuMemsetD8_v2": (c_uint64, c_ubyte, c_size_t),
    "cuLaunchKernel": (c_void_p, *(c_uint,) * 7, c_void_p, POINTER(c_void_p), POINTER(c_void_p)),
    "cuEventCreate": (POINTER(c_void_p), c_uint),
    "cuEventRecord": (c_void_p, c_void_p),
    "cuEventSynchronize": (c_void_p,),
    "cuEventElapsedTime": (POINTER(c_float), c_void_p, c_void_p),
}
"""Exported symbol → parameter types; every one returns a ``CUresult``."""
_MAJOR, _MINOR = 75, 76  # CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_*
_OUT_OF_MEMORY = 2


class _Library:
    """The loaded driver. A call that fails raises :class:`BuildError` ``device-memory`` or ``device-failed``."""

    def __init__(self) -> None:
        lib = ctypes.CDLL("libcuda.so.1")
        self.functions: dict[str, Any] = {}
        for name, types in PROTOTYPES.items():
            function = getattr(lib, name)
            function.argtypes, function.restype = types, c_int
            self.functions[name] = function

    def __call__(self, name: str, *args: Any) -> None:
        if status := self.functions[name](*args):
            code = "device-memory" if status == _OUT_OF_MEMORY else "device-failed"
            raise BuildError(code, f"{name}: {self.said(status)}", hint="" if code == "device-memory" else "the process cannot use the device any more")

    def said(self, status: int) -> str:
        parts = []
        for name in ("cuGetErrorName", "cuGetErrorString"):
            text = c_char_p()
            self.functions[name](status, ctypes.byref(text))
            parts.append((text.value or b"").decode(errors="replace"))
        return ": ".join(p for p in parts if p) or f"status {status}"


class DeviceMemory:
    """Bytes on the device, freed with the object. ``address`` is a multiple of 256."""

    def __init__(self, own: Device, size: int) -> None:
        self._own, self.size = own, size
        found = c_uint64()
        own.call("cuMemAlloc_v2", ctypes.byref(found), max(size, 1))
        self.address = int(found.value)

    def __del__(self) -> None:
        if address := getattr(self, "address", 0):
            self._own.call.functions["cuMemFree_v2"](address)  # a lost context has nothing to free: the status does not matter

    def fill(self, byte: int) -> None:
        if self.size:
            self._own.call("cuMemsetD8_v2", self.address, byte, self.size)

    def write(self, data: Any, offset: int = 0) -> None:
        """Copy a contiguous array to ``offset``."""
        if data.nbytes:
            self._own.call("cuMemcpyHtoD_v2", self.address + offset, data.ctypes.data, data.nbytes)

    def read(self, data: Any, offset: int = 0) -> None:
        """Fill a contiguous array from ``offset``, once all launches before are done."""
        if data.nbytes:
            self._own.call("cuMemcpyDtoH_v2", data.ctypes.data, self.address + offset, data.nbytes)


class Device:
    """The first GPU that the driver shows to this process (``CUDA_VISIBLE_DEVICES`` chooses), its primary context current in this thread."""

    def __init__(self) -> None:
        self.call = _Library()
        self.call("cuInit", 0)
        count, number = c_int(), c_int()
        self.call("cuDeviceGetCount", ctypes.byref(count))
        if not count.value:
            raise BuildError("device-missing", "the CUDA driver shows no device")
        self.call("cuDeviceGet", ctypes.byref(number), 0)
        name = ctypes.create_string_buffer(256)
        self.call("cuDeviceGetName", name, 256, number)
        self.name = name.value.decode(errors="replace")
        self.capability = self._attribute(_MAJOR, number.value), self._attribute(_MINOR, number.value)
        size, version = c_size_t(), c_int()
        self.call("cuDeviceTotalMem_v2", ctypes.byref(size), number)
        self.call("cuDriverGetVersion", ctypes.byref(version))
        self.memory, self.driver = int(size.value), int(version.value)
        context = c_void_p()
        self.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), number)
        self.call("cuCtxSetCurrent", context)

    @property
    def arch(self) -> str:
        """nvcc's name of the device's architecture."""
        return f"sm_{self.capability[0]}{self.capability[1]}"

    def _attribute(self, which: int, number: int) -> int:
        value = c_int()
        self.call("cuDeviceGetAttribute", ctypes.byref(value), which, number)
        return int(value.value)

    def load(self, cubin: bytes, kernels: Sequence[str]) -> dict[str, c_void_p]:
        """Functions by name of a compiled module, which stays loaded."""
        module = c_void_p()
        self.call("cuModuleLoadData", ctypes.byref(module), cubin)
        out: dict[str, c_void_p] = {}
        for name in kernels:
            out[name] = c_void_p()
            self.call("cuModuleGetFunction", ctypes.byref(out[name]), module, name.encode())
        return out

    def launch(self, function: c_void_p, grid: tuple[int, int, int], block: tuple[int, int, int], params: Any) -> None:
        """Start a kernel; ``params`` is an array of argument addresses. Returns before the kernel ends."""
        self.call("cuLaunchKernel", function, *grid, *block, 0, None, params, None)

    def wait(self) -> None:
        """Until everything launched is done. Raises ``device-failed`` when a kernel failed."""
        self.call("cuCtxSynchronize")


class EventClock:
    """Nanoseconds of the device's own time, read by an event after all work queued before; its resolution is about half a microsecond."""

    def __init__(self, own: Device) -> None:
        self._own, self._total = own, 0.0
        self._events = [c_void_p(), c_void_p()]
        for event in self._events:
            own.call("cuEventCreate", ctypes.byref(event), 0)
        self._stamp(self._events[0])

    def _stamp(self, event: c_void_p) -> None:
        self._own.call("cuEventRecord", event, None)
        self._own.call("cuEventSynchronize", event)

    def __call__(self) -> int:
        before, now = self._events
        self._stamp(now)
        passed = c_float()
        self._own.call("cuEventElapsedTime", ctypes.byref(passed), before, now)
        self._events = [now, before]
        self._total += 1e6 * passed.value
        return int(self._total)


@functools.cache
def device() -> Device:
    """The GPU of this process; opened once, and never before a fork. Raises :class:`BuildError` ``device-missing``."""
    try:
        return Device()
    except OSError as err:
        raise BuildError("device-missing", f"no CUDA driver: {err}", hint="the driver's libcuda.so.1 must be on the library path") from None
    except AttributeError as err:
        raise BuildError("device-missing", f"the CUDA driver is too old: {err}") from None
    except BuildError as err:
        raise BuildError("device-missing", f"the CUDA driver finds no usable device ({err.message})", hint=err.hint) from None


def no_device() -> str:
    """Why this machine has no GPU to use, or an empty string. Opens the device: ask in a process that will not fork."""
    try:
        device()
    except BuildError as err:
        return err.message
    return ""
