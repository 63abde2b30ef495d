"""What a GPU program does outside of its kernels: its arrays, and the launches of one run in order.

The host's part that TVM splits off holds constant loops, guards that read no memory, and calls of kernels. It is walked once,
when the program is built, so a run is a list of launches and no host code is compiled. Names, order and C types of a kernel's
parameters are read from the CUDA source and compared with the calls.
"""

from __future__ import annotations

import ctypes
import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from steptp.ir.kernels import MAX_THREADS, bytes_of, placement
from steptp.ir.nodes import Buffer, Program
from steptp.ir.resets import materialize
from steptp.ir.types import LoopKind, Scope
from steptp.ir.walk import all_tmps
from steptp.lower.cuda import host_and_source
from steptp.lower.options import BuildError

__all__ = ["C_TYPES", "DeviceCode", "Launch", "device_code", "marshal", "signatures"]

MAX_LAUNCHES = 1 << 17
C_TYPES: Mapping[str, type[Any]] = {"int": ctypes.c_int32, "int64_t": ctypes.c_int64, "bool": ctypes.c_bool, "signed char": ctypes.c_int8}
"""C types that a kernel takes by value; every other parameter is a pointer to device memory."""
_KERNEL = re.compile(r'extern "C" __global__ void (?:__launch_bounds__\((\d+)\) )?(\w+)\(([^)]*)\) \{')
_AXES = ("x", "y", "z")


@dataclass(frozen=True, slots=True)
class Launch:
    """One launch. ``args``: the name of an array, or a number by value, for every parameter."""

    kernel: str
    args: tuple[str | int, ...]
    grid: tuple[int, int, int]
    block: tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class DeviceCode:
    """A program as CUDA source and launches. ``arrays``: what must lie in device memory, by name: inputs, outputs, then temporaries;
    ``sizes``: their bytes; ``params``: kernel → C type and name of each parameter."""

    program: Program
    source: str
    arrays: Mapping[str, Buffer]
    sizes: Mapping[str, int]
    params: Mapping[str, tuple[tuple[str, str], ...]]
    launches: tuple[Launch, ...]


def signatures(source: str) -> dict[str, tuple[tuple[str, str], ...]]:
    """Kernel → (C type, name) of each parameter, as CUDA source defines it. A pointer's type ends in ``*``."""
    out: dict[str, tuple[tuple[str, str], ...]] = {}
    for match in _KERNEL.finditer(source):
        pairs = []
        for text in filter(None, (p.strip() for p in match[3].split(","))):
            kind, _, name = text.replace("__restrict__", "").rpartition(" ")
            pairs.append((kind.replace("const ", "").strip(), name))
        out[match[2]] = tuple(pairs)
    return out


def device_code(program: Program, arch: str = "sm_90") -> DeviceCode:
    """Source and launches of a program with bound loops; needs neither nvcc nor a GPU.

    Raises :class:`BuildError`: ``build-unbound`` when no loop is bound, ``build-failed`` when the program cannot be lowered, or when it launches
    more than 131,072 kernels.
    """
    host, source = host_and_source(program, arch)
    ready = materialize(program).program
    places = placement(ready)
    held = (*ready.inputs, *ready.outputs, *(b for _, b in all_tmps(ready) if places[b.name] is Scope.GLOBAL))
    arrays = {b.name: b for b in held}
    params = signatures(source)
    walk = _Host(arrays)
    walk.run(host.body)
    for launch in walk.launches:
        _checked(launch, params)
    return DeviceCode(program, source, arrays, {name: bytes_of(b, ready.size_env) for name, b in arrays.items()}, params, tuple(walk.launches))


def _checked(launch: Launch, params: Mapping[str, tuple[tuple[str, str], ...]]) -> None:
    """The call fits the kernel's own signature; raises ``build-failed``."""
    wanted = params.get(launch.kernel)
    fits = wanted is not None and len(wanted) == len(launch.args)
    for (kind, name), given in zip(wanted or (), launch.args, strict=False):
        fits &= name.startswith(f"{given}_ptr") and kind.endswith("*") if isinstance(given, str) else kind in C_TYPES
    if not fits:
        raise BuildError("build-failed", f"the host calls {launch.kernel}{launch.args}, which the source declares as {wanted}")
    threads = launch.block[0] * launch.block[1] * launch.block[2]
    if threads > MAX_THREADS or min(*launch.grid, *launch.block) < 1:
        raise BuildError("build-failed", f"{launch.kernel} would be launched with grid {launch.grid} and block {launch.block}")


def marshal(code: DeviceCode, launch: Launch, pointers: Mapping[str, int]) -> tuple[Any, tuple[Any, ...]]:
    """``kernelParams`` of a launch: an array of addresses, one of each argument's value, and the values that it points to."""
    values: list[Any] = []
    for (kind, _), given in zip(code.params[launch.kernel], launch.args, strict=True):
        values.append(ctypes.c_uint64(pointers[given]) if isinstance(given, str) else C_TYPES[kind](given))
    table = (ctypes.c_void_p * len(values))(*(ctypes.addressof(v) for v in values))
    return table, tuple(values)


_BINARY: Mapping[str, Callable[[int, int], int]] = {
    "Add": operator.add, "Sub": operator.sub, "Mul": operator.mul, "FloorDiv": operator.floordiv, "FloorMod": operator.mod,
    "Min": min, "Max": max, "EQ": operator.eq, "NE": operator.ne, "LT": operator.lt, "LE": operator.le, "GT": operator.gt, "GE": operator.ge,
}  # fmt: skip
_CALLS: Mapping[str, Callable[[int, int], int]] = {
    "tirx.bitwise_and": operator.and_, "tirx.bitwise_or": operator.or_, "tirx.bitwise_xor": operator.xor,
    "tirx.shift_left": operator.lshift, "tirx.shift_right": operator.rshift,
}  # fmt: skip


@dataclass(slots=True)
class _Host:
    """Runs the host's part on integers and collects its launches."""

    arrays: Mapping[str, Buffer]
    env: dict[Any, int] = field(default_factory=dict)
    memory: dict[tuple[str, tuple[int, ...]], int] = field(default_factory=dict)
    launches: list[Launch] = field(default_factory=list)

    def run(self, stmt: Any) -> None:
        kind = type(stmt).__name__
        if kind == "SeqStmt":
            for one in stmt.seq:
                self.run(one)
        elif kind == "For":
            low, count = self.value(stmt.min), self.value(stmt.extent)
            for at in range(low, low + count):
                self.env[stmt.loop_var] = at
                self.run(stmt.body)
        elif kind == "IfThenElse":
            chosen = stmt.then_case if self.value(stmt.condition) else stmt.else_case
            if chosen is not None:
                self.run(chosen)
        elif kind == "Evaluate":
            self.call(stmt.value)
        elif kind == "BufferStore":  # scratch of a guard's expression
            self.memory[stmt.buffer.name, tuple(self.value(i) for i in stmt.indices)] = self.value(stmt.value)
        elif kind not in ("DeclBuffer", "AllocBuffer"):
            raise BuildError("build-failed", f"the host's part has a {kind} statement, which is not known here")

    def call(self, call: Any) -> None:
        if type(call).__name__ == "IntImm":
            return
        if call.op.name != "tirx.call_ffi_kernel":
            raise BuildError("build-failed", f"the host's part calls {call.op.name}, which is not known here")
        if len(self.launches) >= MAX_LAUNCHES:
            raise BuildError("build-failed", f"one run launches more than {MAX_LAUNCHES} kernels", hint="bind an outer loop, so that fewer kernels do more")
        axes = [str(a) for a in call.attrs.launch_params]
        given = list(call.args[1:])
        split = len(given) - len(axes)
        extents = {LoopKind(a[0] + a[-1]): self.value(e) for a, e in zip(axes, given[split:], strict=True)}
        grid, block = (tuple(extents.get(LoopKind(side + d), 1) for d in _AXES) for side in "bt")
        self.launches.append(Launch(str(call.args[0].value), tuple(self._argument(a) for a in given[:split]), grid, block))  # type: ignore[arg-type]

    def _argument(self, expr: Any) -> str | int:
        if type(expr).__name__ != "Call" or len(expr.args) != 1:
            return self.value(expr)
        name = str(expr.args[0].name)
        if name not in self.arrays:
            raise BuildError("build-failed", f"a kernel takes {name}, which is no array of the program")
        return name

    def value(self, expr: Any) -> int:
        """An integer expression of loops around it. Conditions are 0 or 1."""
        kind = type(expr).__name__
        if kind == "IntImm":
            return int(expr.value)
        if kind == "Var":
            return self.env[expr]
        if kind in _BINARY:
            return int(_BINARY[kind](self.value(expr.a), self.value(expr.b)))
        if kind == "And":
            return int(bool(self.value(expr.a)) and bool(self.value(expr.b)))
        if kind == "Or":
            return int(bool(self.value(expr.a)) or bool(self.value(expr.b)))
        if kind == "Not":
            return int(not self.value(expr.a))
        if kind == "Select":
            return self.value(expr.true_value if self.value(expr.condition) else expr.false_value)
        if kind == "Cast" and str(expr.ty.dtype) in ("int32", "int64", "bool"):
            return self.value(expr.value)
        if kind in ("TensorLoad", "BufferLoad"):
            return self.memory[expr.buffer.name, tuple(self.value(i) for i in expr.indices)]
        if kind == "Call" and expr.op.name in _CALLS:
            return int(_CALLS[expr.op.name](*(self.value(a) for a in expr.args)))
        raise BuildError("build-failed", f"the host would have to evaluate {expr}, a {kind}")
