"""Everything of a GPU run up to the driver's launch: calls, arguments, launch shapes, machine code, the driver's prototypes.

No GPU has run these programs. Launches are carried out by the host's C++ compiler on CPU threads, from the very argument arrays that the
driver would be given.
"""

from __future__ import annotations

import ctypes
import shutil
import struct
import subprocess
from pathlib import Path

import numpy as np
import pytest
from cuda_on_cpu import _SHIM, compiler
from gpu_texts import tiled

from steptp.interp import evaluate
from steptp.ir import parse
from steptp.ir.sizes import shape_of
from steptp.lower import BuildError
from steptp.lower.build import NUMPY
from steptp.lower.driver import PROTOTYPES, device, no_device
from steptp.lower.gpu import cubin_of, nvcc
from steptp.lower.launches import C_TYPES, DeviceCode, Launch, _checked, device_code, marshal

HOST = """size T=3 N=5
in X f32[N] f i32[1] 0..3
out Y f32[T+1,N]
tmp t f32[N]
bx i:N t[i] = X[i]*2
bx i:N Y[0,i] = t[i]
for s:T bx i:N Y[s+1,i] = Y[s,(i+1)%N]+f32(s)
for s:T for q:s+1 if (s+q)%2==0: tx i:N if i>q: Y[s+1,i] = Y[s+1,i]*f32(q+2)
if f[0]>0: bx i:N Y[0,i] = 1
"""
TILED = tiled("N=8 K=6 L=4 T=2")
PROGRAMS = {"host": HOST, "tiled": TILED}
needs_nvcc = pytest.mark.skipif(nvcc() is None, reason="no nvcc")
needs_compiler = pytest.mark.skipif(compiler() is None, reason="no C++ compiler")


def test_loops_and_guards_of_the_host_become_launches() -> None:
    code = device_code(parse(HOST))
    assert list(code.arrays) == ["X", "f", "Y", "t"]
    assert code.sizes == {"X": 20, "f": 4, "Y": 80, "t": 20}
    by_kernel: dict[str, list[tuple[str | int, ...]]] = {}
    for launch in code.launches:
        by_kernel.setdefault(launch.kernel, []).append(launch.args)
    assert [len(v) for v in by_kernel.values()] == [1, 1, 3, 4, 1]  # (s,q) = (0,0), (1,1), (2,0), (2,2)
    names = [name for _, name in code.params["main_kernel_3"]]
    assert {tuple(dict(zip(names, args, strict=True))[n] for n in "sq") for args in by_kernel["main_kernel_3"]} == {(0, 0), (1, 1), (2, 0), (2, 2)}
    shapes = {launch.kernel: (launch.grid, launch.block) for launch in code.launches}
    assert shapes["main_kernel_2"] == ((5, 1, 1), (1, 1, 1))
    assert shapes["main_kernel_3"] == ((1, 1, 1), (5, 1, 1))


def test_grid_and_block_follow_the_axes() -> None:
    (launch,) = device_code(parse(TILED)).launches
    assert (launch.args, launch.grid, launch.block) == (("A", "B", "C"), (2, 4, 1), (2, 2, 1))


def test_arguments_are_passed_by_address_of_their_values() -> None:
    code = device_code(parse(HOST))
    launch = next(one for one in code.launches if one.kernel == "main_kernel_2")
    table, _kept = marshal(code, launch, {"Y": 0x7F0000001000, "X": 1, "f": 2, "t": 3})
    assert [kind for kind, _ in code.params["main_kernel_2"]] == ["float*", "int"]
    assert ctypes.c_uint64.from_address(table[0]).value == 0x7F0000001000
    assert ctypes.c_int32.from_address(table[1]).value == launch.args[1]


@pytest.mark.parametrize("args", [("X",), ("X", "Y"), ("X", 3), (3, "t")])
def test_a_call_that_does_not_fit_the_source_is_refused(args: tuple[str | int, ...]) -> None:
    params = {"k": (("float*", "X_ptr"), ("float*", "t_ptr"))}
    _checked(Launch("k", ("X", "t"), (1, 1, 1), (1, 1, 1)), params)
    with pytest.raises(BuildError, match="declares"):
        _checked(Launch("k", args, (1, 1, 1), (1, 1, 1)), params)


def test_a_block_of_too_many_threads_is_refused() -> None:
    with pytest.raises(BuildError, match="grid"):
        _checked(Launch("k", (), (1, 1, 1), (1024, 2, 1)), {"k": ()})


def test_unbound_and_endless_programs_are_refused() -> None:
    with pytest.raises(BuildError, match="no loop") as raised:
        device_code(parse("size N=4\nin X f32[N]\nout Y f32[N]\nfor i:N Y[i] = X[i]\n"))
    assert raised.value.code == "build-unbound"
    with pytest.raises(BuildError, match="launches more than"):
        device_code(parse("size N=4 M=200000\nin X f32[N]\nout Y f32[N]\nfor s:M tx i:N Y[i] = X[i]+f32(s)\n"))


def _carried_out(code: DeviceCode, inputs: dict[str, np.ndarray], folder: Path) -> dict[str, np.ndarray]:
    """Outputs after every launch, by kernels that take the marshalled argument arrays."""
    entries = []
    for kernel, params in code.params.items():
        values = ", ".join(f"*({kind}*)p[{n}]" for n, (kind, _) in enumerate(params))
        entries.append(
            f'extern "C" void run_{kernel}(int* g, int* b, void** p) {{ launch({{g[0],g[1],g[2]}}, {{b[0],b[1],b[2]}}, [=] {{ {kernel}({values}); }}); }}'
        )
    (folder / "cuda.h").write_text("")
    (folder / "main.cpp").write_text(_SHIM + code.source.replace("__shared__ alignas(64)", "alignas(64) static") + "\n".join(entries))
    command = [str(compiler()), "-std=c++20", "-O0", "-w", "-ffp-contract=off", "-pthread", "-shared", "-fPIC", "-I", str(folder)]
    subprocess.run([*command, "-o", str(folder / "kernels.so"), str(folder / "main.cpp")], check=True)
    library = ctypes.CDLL(str(folder / "kernels.so"))
    arrays = {n: np.full(shape_of(b.shape, code.program), -7, NUMPY[b.dtype]) for n, b in code.arrays.items()}
    for name, value in inputs.items():
        arrays[name][...] = value
    for launch in code.launches:
        table, _kept = marshal(code, launch, {n: a.ctypes.data for n, a in arrays.items()})
        getattr(library, f"run_{launch.kernel}")((ctypes.c_int * 3)(*launch.grid), (ctypes.c_int * 3)(*launch.block), table)
    return {b.name: arrays[b.name] for b in code.program.outputs}


@needs_compiler
@pytest.mark.parametrize("name", PROGRAMS)
def test_the_launches_compute_what_leir_says(name: str, tmp_path: Path) -> None:
    program = parse(PROGRAMS[name])
    rng = np.random.default_rng(3)
    inputs = {b.name: rng.integers(0, 3, shape_of(b.shape, program)).astype(NUMPY[b.dtype]) for b in program.inputs}
    if "f" in inputs:
        inputs["f"][:] = 2
    got, want = _carried_out(device_code(program), inputs, tmp_path), evaluate(program, inputs)
    for b in program.outputs:
        np.testing.assert_array_equal(got[b.name], want[b.name])


def _parameters_of(cubin: bytes, kernel: str) -> list[tuple[int, int]]:
    """(offset, size) of each parameter, by ordinal, as the ``.nv.info`` section of a kernel says."""
    assert cubin[:4] == b"\x7fELF"
    table, entry, count, names = (*struct.unpack_from("<Q", cubin, 40), *struct.unpack_from("<HHH", cubin, 58))
    heads = [struct.unpack_from("<IIQQQQ", cubin, table + n * entry) for n in range(count)]
    text = heads[names][4]
    found: dict[int, tuple[int, int]] = {}
    for name, _, _, _, at, size in heads:
        label = cubin[text + name : cubin.index(b"\0", text + name)].decode()
        if label != f".nv.info.{kernel}":
            continue
        end = at + size
        while at < end:
            form, attribute, value = struct.unpack_from("<BBH", cubin, at)
            at += 4
            if form != 4:  # the value is in the header itself
                continue
            if attribute == 0x17:  # EIATTR_KPARAM_INFO
                _, ordinal, offset, packed = struct.unpack_from("<IHHI", cubin, at)
                found[ordinal] = offset, packed >> 18
            at += value
    return [found[n] for n in sorted(found)]


@needs_nvcc
@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_machine_code_takes_the_marshalled_sizes(name: str, arch: str) -> None:
    code = device_code(parse(PROGRAMS[name]), arch)
    cubin = cubin_of(code.source, arch)
    for kernel, params in code.params.items():
        sizes = [8 if kind.endswith("*") else ctypes.sizeof(C_TYPES[kind]) for kind, _ in params]
        assert [size for _, size in _parameters_of(cubin, kernel)] == sizes, kernel


@needs_nvcc
def test_nvcc_errors_are_build_failures() -> None:
    with pytest.raises(BuildError, match="nvcc") as raised:
        cubin_of('extern "C" __global__ void k() { nothing(); }', "sm_90")
    assert raised.value.code == "build-failed"


@needs_nvcc
def test_contraction_can_be_turned_off() -> None:
    source = 'extern "C" __global__ void k(float* x) { x[0] = x[1] * x[2] + x[3]; }'
    assert cubin_of(source, "sm_90", True) != cubin_of(source, "sm_90", False)


@needs_nvcc
@needs_compiler
def test_prototypes_are_those_of_cuda_h(tmp_path: Path) -> None:
    """Symbol names, number of parameters, their sizes, and which are pointers or handles."""
    lines = ["#include <cuda.h>", "#include <cstring>", "#include <type_traits>", "#define S(x) #x", "#define SYMBOL(x) S(x)"]
    lines.append("template <class... A> constexpr bool sizes(CUresult (*)(A...), std::initializer_list<int> want) {")
    lines.append("  if (want.size() != sizeof...(A)) return false; int n = 0; bool same = true;")
    lines.append("  ((same = same && want.begin()[n++] == int(std::is_pointer<A>::value ? -8 : sizeof(A))), ...); return same; }")
    for symbol, types in PROTOTYPES.items():
        plain = symbol.removesuffix("_v2")
        sizes = ",".join(str(-8 if _is_pointer(t) else ctypes.sizeof(t)) for t in types)
        lines.append(f'static_assert(sizes(&{plain}, {{{sizes}}}), "{plain}");')
        if plain != "cuEventElapsedTime":  # the unversioned one is what drivers before CUDA 12.8 have
            lines.append(f'static_assert(std::char_traits<char>::compare(SYMBOL({plain}), "{symbol}", {len(symbol) + 1}) == 0, "{symbol}");')
    (tmp_path / "check.cpp").write_text("\n".join(["#include <string>", *lines, ""]))
    include = Path(str(nvcc())).resolve().parent.parent / "include"
    if not (include / "cuda.h").exists():
        include = Path("/usr/local/cuda/include")
    done = subprocess.run(
        [str(compiler()), "-std=c++20", "-fsyntax-only", "-I", str(include), str(tmp_path / "check.cpp")], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[:2000]


def _is_pointer(kind: type) -> bool:
    return kind in (ctypes.c_void_p, ctypes.c_char_p) or issubclass(kind, ctypes._Pointer)


@pytest.mark.skipif(shutil.which("nvidia-smi") is not None, reason="there may be a GPU")
def test_without_a_driver_the_device_is_missing() -> None:
    assert no_device()
    with pytest.raises(BuildError) as raised:
        device()
    assert raised.value.code == "device-missing"
