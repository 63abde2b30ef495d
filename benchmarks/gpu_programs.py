"""GPU programs for ``benchmarks/gpu.py``, every one derived from a naive program by atomic steps.

``bound`` binds each nest so that one thread computes one element; ``tiled`` takes a matrix product to tiles in shared memory, one thread an element of a tile.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

from steptp.frontend import zoo
from steptp.ir import Loop, Path, Program, parse
from steptp.ir.sizes import eval_index
from steptp.ir.walk import get
from steptp.rewrite import engine
from steptp.rewrite.base import Applied, Exactness

__all__ = ["Case", "bound", "cases", "chosen", "tiled"]

_BLOCKS = ("bx", "by", "bz")
_SMALL, _LARGE = 64, 256  # threads of a block in the two bindings of one program
_PRODUCTS = {
    f"matmul{kind}_tiled": f"size N={{n}} K={{n}} L={{n}}\nin A f32[{a}] B[{b}]\nout C f32[N,L]\nfor i:N j:L k:K C[i,j] += A[{x}]*B[{y}]\n"
    for kind, a, b, x, y in (("", "N,K", "K,L", "i,k", "k,j"), ("_ta", "K,N", "K,L", "k,i", "k,j"), ("_tb", "N,K", "L,K", "i,k", "j,k"))
}


@dataclass(frozen=True)
class Case:
    """A naive program and two bound ones derived from it; ``exactness`` is what the steps between ``parent`` and ``child`` claim together."""

    name: str
    root: Program
    parent: Program
    child: Program
    steps: tuple[str, ...]
    exactness: Exactness
    workload: str = ""


@dataclass
class _Derivation:
    """A program under way, with the steps taken."""

    program: Program
    steps: list[str]
    bitwise: bool = True

    def take(self, site: str) -> bool:
        outcome = engine.apply(self.program, site)
        if not isinstance(outcome, Applied):
            return False
        self.program, self.bitwise = outcome.program, self.bitwise and outcome.exactness is Exactness.BITWISE
        self.steps.append(site)
        return True

    def must(self, site: str) -> None:
        if not self.take(site):
            raise SystemExit(f"{site} does not apply: {engine.apply(self.program, site)}")


def _id(path: Path) -> str:
    return ".".join(str(p) for p in path)


def bound(program: Program, threads: int) -> _Derivation:
    """One thread for each element: of a nest's leading loops the innermost that carries nothing becomes threads (and a block axis when it is longer than
    ``threads``), those around it blocks. What no loop of can be bound stays a kernel of one thread."""
    work = _Derivation(program, [])
    for top in range(len(program.body)):
        chain = [p for p in _chain(work.program, (top,)) if isinstance(engine.apply(work.program, f"loop_binding@{_id(p)}:axis=bx"), Applied)]
        if not chain:
            continue
        last, free = chain[-1], list(_BLOCKS)
        loop = get(work.program, last)
        assert isinstance(loop, Loop)
        extent = eval_index(loop.extent, work.program.size_env)
        if extent > threads:
            tail = "exact" if extent % threads == 0 else "guard"
            if work.take(f"loop_split@{_id(last)}:factor={threads},tail={tail}"):
                work.take(f"loop_binding@{_id(last)}:axis={free.pop(0)}")
                last = (*last, 0)
        if not work.take(f"loop_binding@{_id(last)}:axis=tx"):
            continue
        for path in reversed(chain[:-1]):
            if free and work.take(f"loop_binding@{_id(path)}:axis={free[0]}"):
                free.pop(0)
    return work


def _chain(program: Program, path: Path) -> list[Path]:
    """Paths of perfectly nested loops, outermost first."""
    out: list[Path] = []
    while isinstance(stmt := get(program, path), Loop):
        out.append(path)
        if len(stmt.body) != 1:
            break
        path = (*path, 0)
    return out


def tiled(program: Program, at: str = "0", tile: int = 16) -> _Derivation:
    """A matrix product ``for i j k`` at a path, in tiles: accumulators and both operands in shared memory."""
    work = _Derivation(program, [])
    work.must(f"loop_tiling@{at}:outer={tile},inner={tile},tail=exact")
    work.must(f"loop_split@{at}.0.0.0.0:factor=T0,tail=exact")
    work.must(f"loop_reorder@{at}.0.0.0.0:to=2")
    for mode in ("accumulate,buffer=C", "read,buffer=A", "read,buffer=B"):
        work.must(f"cache_read_write@{at}.0.0:mode={mode}")
    work.must(f"loop_binding@{at}:axis=by")
    work.must(f"loop_binding@{at}.0:axis=bx")
    for where, buffer in ((f"{at}.0", "Cl"), (f"{at}.0.0", "Al"), (f"{at}.0.0", "Bl")):
        work.must(f"set_storage_scope@{where}:buffer={buffer},scope=shared")
    for nest in ("0.0.0", "0.0.1", "0.0.2", "0.1"):
        work.must(f"loop_binding@{at}.{nest}.0:axis=tx")
        work.must(f"loop_binding@{at}.{nest}:axis=ty")
    return work


def cases(names: list[str], preset: str, size: int) -> list[Case]:
    """The named workloads in two bindings each (blocks of 64 and of 256 threads), or a tiled product against its naive binding."""
    out = []
    for name in names:
        if name in _PRODUCTS:
            root, source = parse(_PRODUCTS[name].format(n=size)), ""
            before, after = bound(root, _LARGE), tiled(root)
        else:
            root, source = zoo.get(name, preset).program, f"{name}@{preset}"
            before, after = bound(root, _SMALL), bound(root, _LARGE)
        same = Exactness.BITWISE if before.bitwise and after.bitwise else Exactness.ALGEBRAIC
        out.append(Case(name, root, before.program, after.program, tuple(after.steps), same, source))
    return out


def chosen(seed: int, count: int, preset: str) -> list[str]:
    """A seeded sample of workloads, then the tiled products."""
    names = sorted(zoo.names(preset))
    return [*random.Random(seed).sample(names, min(count, len(names))), *_PRODUCTS]
