"""Generated CUDA source, compiled by the host's C++ compiler and run on CPU threads under the thread sanitizer.

One ``std::thread`` for each thread of a block, a ``std::barrier`` for ``__syncthreads``, blocks in turn. What the source leaves unordered, the
sanitizer reports. Only for programs whose kernels stand one after the other (no host loops) and without half precision.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from steptp.interp.rounding import numpy_dtype
from steptp.ir import materialize
from steptp.ir.kernels import kernels
from steptp.ir.nodes import Program
from steptp.ir.sizes import shape_of
from steptp.ir.types import LoopKind
from steptp.ir.walk import buffers
from steptp.lower import cuda_source

__all__ = ["compiler", "run_on_cpu"]

_SHIM = """
#include <barrier>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <vector>
struct Coordinate { int x = 0, y = 0, z = 0; };
static thread_local Coordinate threadIdx, blockIdx;
static std::barrier<>* meeting;
#define __global__
#define __launch_bounds__(n)
#define __syncthreads() meeting->arrive_and_wait()
template <class Kernel> void launch(Coordinate grid, Coordinate block, Kernel kernel) {
  for (int bz = 0; bz < grid.z; ++bz) for (int by = 0; by < grid.y; ++by) for (int bx = 0; bx < grid.x; ++bx) {
    std::barrier<> here(block.x * block.y * block.z);
    meeting = &here;
    std::vector<std::thread> team;
    for (int z = 0; z < block.z; ++z) for (int y = 0; y < block.y; ++y) for (int x = 0; x < block.x; ++x)
      team.emplace_back([=] { threadIdx = {x, y, z}; blockIdx = {bx, by, bz}; kernel(); });
    for (auto& one : team) one.join();
  }
}
template <class T> T* load(const char* name, size_t count) {
  T* data = (T*)std::aligned_alloc(64, (count * sizeof(T) + 127) / 64 * 64);
  if (FILE* file = std::fopen(name, "rb")) { if (std::fread(data, sizeof(T), count, file) != count) std::abort(); std::fclose(file); }
  return data;
}
"""


def compiler() -> str | None:
    """The C++ compiler, if there is one."""
    return shutil.which("g++")


def run_on_cpu(program: Program, inputs: Mapping[str, np.ndarray], folder: Path) -> dict[str, np.ndarray]:
    """Outputs of the program's kernels; fails on a compiler error, a race, or another report of the sanitizer."""
    source = cuda_source(program)
    found = re.findall(r"\nextern \"C\" __global__ void (?:__launch_bounds__\(\d+\) )?(\w+)\(([^)]*)\) \{", source)
    ready = materialize(program).program
    table = {b.name: b for b in buffers(ready)}
    grids = {k.path[0]: k.extents for k in kernels(ready)}
    assert len(found) == len(ready.body), "only straight rows of kernels are run"
    used: dict[str, str] = {}
    calls = []
    for n, (name, params) in enumerate(found):
        pairs = [re.fullmatch(r"(.*)\* __restrict__ (\w+)_ptr", p.strip()) for p in params.split(",")]
        names = []
        for pair in pairs:
            assert pair is not None, params
            used[pair[2]] = pair[1]
            names.append(f"{pair[2]}_")
        extents = grids.get(n, {})
        grid, block = ([extents.get(LoopKind(f"{kind}{d}"), 1) for d in "xyz"] for kind in "bt")
        calls.append(f"  launch({{{grid[0]},{grid[1]},{grid[2]}}}, {{{block[0]},{block[1]},{block[2]}}}, [=] {{ {name}({', '.join(names)}); }});")
    sizes = {n: int(np.prod(shape_of(table[n].shape, ready), dtype=np.int64)) for n in used}
    lines = [f'  auto {n}_ = load<{t}>("{folder / n}.in", {sizes[n]});' for n, t in used.items()]
    outs = [b for b in ready.outputs if b.name in used]
    stores = [
        f'  {{ FILE* f = std::fopen("{folder / b.name}.out", "wb"); std::fwrite({b.name}_, sizeof(*{b.name}_), {sizes[b.name]}, f); std::fclose(f); }}'
        for b in outs
    ]
    (folder / "cuda.h").write_text("")
    (folder / "main.cpp").write_text(
        _SHIM + source.replace("__shared__ alignas(64)", "alignas(64) static") + "\nint main() {\n" + "\n".join([*lines, *calls, *stores]) + "\n}\n"
    )
    for b in ready.inputs:
        np.ascontiguousarray(inputs[b.name], numpy_dtype(b.dtype)).tofile(folder / f"{b.name}.in")
    build = [str(compiler()), "-std=c++20", "-O0", "-w", "-ffp-contract=off", "-fsanitize=thread", "-pthread", "-I", str(folder), "-o", str(folder / "run")]
    subprocess.run([*build, str(folder / "main.cpp")], check=True)
    done = subprocess.run([str(folder / "run")], capture_output=True, text=True, timeout=120, cwd=folder, check=False)
    assert done.returncode == 0, done.stderr[:3000]
    assert "WARNING" not in done.stderr, done.stderr[:3000]
    return {b.name: np.fromfile(folder / f"{b.name}.out", numpy_dtype(b.dtype)).reshape(shape_of(b.shape, ready)) for b in outs}
