"""Building GPU programs and running what was built: nvcc makes a cubin, the driver loads and launches it."""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from steptp.ir.nodes import Program
from steptp.ir.sizes import shape_of
from steptp.lower.build import NUMPY, POISON, from_storage, stored_input
from steptp.lower.driver import Device, DeviceMemory, device
from steptp.lower.launches import DeviceCode, device_code, marshal
from steptp.lower.options import BuildError

__all__ = ["DeviceBuilt", "DeviceRun", "build_for_device", "cubin_of", "nvcc"]

Array = npt.NDArray[Any]
_NVCC_S = 300.0


def nvcc() -> str | None:
    """The CUDA compiler: of ``CUDA_HOME`` or ``CUDA_PATH``, else on the ``PATH``, else of ``/usr/local/cuda``."""
    homes = [os.environ[name] for name in ("CUDA_HOME", "CUDA_PATH") if os.environ.get(name)]
    candidates = [*(f"{home}/bin/nvcc" for home in homes), shutil.which("nvcc"), "/usr/local/cuda/bin/nvcc"]
    return next((c for c in candidates if c and os.access(c, os.X_OK)), None)


@functools.lru_cache(maxsize=128)
def cubin_of(source: str, arch: str, fma: bool = True) -> bytes:
    """Machine code of CUDA source for one architecture (``sm_90``). Without ``fma`` every product is rounded on its own.

    Raises :class:`BuildError`: ``build-no-nvcc``, or ``build-failed`` with nvcc's message.
    """
    if (tool := nvcc()) is None:
        raise BuildError("build-no-nvcc", "there is no nvcc", hint="install the CUDA toolkit, or put nvcc on the PATH")
    with tempfile.TemporaryDirectory(prefix="steptp-") as folder:
        Path(folder, "kernel.cu").write_text(source)
        command = [tool, "-cubin", f"-arch={arch}", f"-fmad={str(fma).lower()}", "-o", "kernel.cubin", "kernel.cu"]
        try:
            done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=_NVCC_S, check=False)
        except subprocess.TimeoutExpired:
            raise BuildError("build-failed", f"nvcc did not finish in {_NVCC_S:g} s") from None
        if done.returncode:
            lines = [line for line in (done.stderr or done.stdout).splitlines() if "error" in line.lower()] or [f"status {done.returncode}"]
            raise BuildError("build-failed", f"nvcc: {' '.join(lines[:3])[:500]}")
        return Path(folder, "kernel.cubin").read_bytes()


@dataclass(slots=True)
class DeviceRun:
    """Arrays in device memory and the launches on them. ``starts``: where each array's data begin in its memory."""

    built: DeviceBuilt
    memory: Mapping[str, DeviceMemory]
    starts: Mapping[str, int]
    calls: list[Callable[[], None]] = field(default_factory=list)

    def __post_init__(self) -> None:
        addresses = {name: one.address + self.starts[name] for name, one in self.memory.items()}
        for launch in self.built.code.launches:
            params, kept = marshal(self.built.code, launch, addresses)
            call = functools.partial(self.built.device.launch, self.built.functions[launch.kernel], launch.grid, launch.block, params)
            call.__dict__["kept"] = kept  # the values that the parameters point to
            self.calls.append(call)

    def __call__(self) -> None:
        """Queue one run; nothing is checked and nothing waited for."""
        for call in self.calls:
            call()

    def write(self, name: str, value: Array) -> None:
        """Copy an array in storage dtype to the device."""
        self.memory[name].write(np.ascontiguousarray(value), self.starts[name])

    def read(self, name: str) -> Array:
        """An array as it lies on the device, in storage dtype."""
        buffer = self.built.code.arrays[name]
        out: Array = np.empty(shape_of(buffer.shape, self.built.code.program), NUMPY[buffer.dtype])
        self.memory[name].read(out, self.starts[name])
        return out


@dataclass(frozen=True, slots=True)
class DeviceBuilt:
    """A program loaded into this process's GPU."""

    program: Program
    code: DeviceCode
    device: Device
    functions: Mapping[str, Any]
    fma: bool

    def prepare(self, *, zone: int = 0, lead: Mapping[str, int] | None = None, poison: int = POISON) -> DeviceRun:
        """Fresh arrays full of ``poison`` bytes. ``zone``: bytes before and after each array's data; ``lead``: more before some. Both multiples of 16.

        Raises :class:`BuildError` ``device-memory``.
        """
        memory: dict[str, DeviceMemory] = {}
        starts: dict[str, int] = {}
        for name, buffer in self.code.arrays.items():
            starts[name] = zone + (lead or {}).get(name, 0)
            memory[name] = DeviceMemory(self.device, starts[name] + self.code.sizes[name] + zone)
            memory[name].fill(poison)
            if NUMPY[buffer.dtype] is np.bool_:
                value = np.full(self.code.sizes[name], poison & 1, np.uint8)
                memory[name].write(value, starts[name])
        return DeviceRun(self, memory, starts)

    def run(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """Outputs by name for inputs by name (bf16 as float32 arrays).

        Raises :class:`BuildError` ``call-input``, ``call-shape``, ``call-range``, ``device-memory``, ``device-failed``.
        """
        run = self.prepare()
        for buffer in self.program.inputs:
            run.write(buffer.name, stored_input(self.program, buffer, inputs))
        run()
        self.device.wait()
        return {b.name: from_storage(run.read(b.name), b.dtype) for b in self.program.outputs}


@functools.lru_cache(maxsize=64)
def build_for_device(program: Program, fma: bool = True) -> DeviceBuilt:
    """Compile a program with bound loops for this process's GPU and load it; the last 64 are kept.

    Raises :class:`BuildError`: ``device-missing``, ``build-unbound``, ``build-no-nvcc``, ``build-failed``, ``device-failed``.
    """
    own = device()
    code = device_code(program, own.arch)
    return DeviceBuilt(program, code, own, own.load(cubin_of(code.source, own.arch, fma), list(code.params)), fma)
