"""A program with bound loops as GPU kernels: what is launched, where temporaries live, who runs a store, where threads wait.

Each outermost bound loop is one kernel; it launches every axis at its largest extent, and shorter loops leave the other threads idle. What stands in
no bound loop runs as a kernel of one thread. Lowering, the emulator and the validity table all ask here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from math import prod

from steptp.ir.index import poly_of
from steptp.ir.nodes import Body, Buffer, Expr, If, Load, Loop, Path, Program, Stmt, Store, Var
from steptp.ir.sizes import eval_index
from steptp.ir.types import LoopKind, Scope
from steptp.ir.walk import free_vars, loads, stmt_exprs, subexprs, visit

__all__ = [
    "AXIS_LIMITS", "MAX_THREADS", "SHARED_BYTES", "LOCAL_BYTES",
    "Kernel", "kernels", "placement", "bytes_of", "binds_inside", "reads_memory", "Lanes", "may_diverge", "divergent_barrier",
]  # fmt: skip

AXIS_LIMITS: Mapping[LoopKind, int] = {
    LoopKind.BLOCK_X: 2**31 - 1, LoopKind.BLOCK_Y: 65535, LoopKind.BLOCK_Z: 65535,
    LoopKind.THREAD_X: 1024, LoopKind.THREAD_Y: 1024, LoopKind.THREAD_Z: 64,
}  # fmt: skip
"""Most iterations of each axis (CUDA C++ Programming Guide, technical specifications per compute capability, 7.x to 9.x)."""
MAX_THREADS = 1024
"""Most threads in a block."""
SHARED_BYTES = 48 * 1024
"""Most bytes of statically allocated shared memory in a block."""
LOCAL_BYTES = 512 * 1024
"""Most bytes of local memory of a thread."""


@dataclass(frozen=True, slots=True)
class Kernel:
    """An outermost bound loop and the largest extent of every axis under it."""

    path: Path
    loop: Loop
    extents: Mapping[LoopKind, int]

    @property
    def threads(self) -> int:
        return prod(n for kind, n in self.extents.items() if kind.is_thread)

    @property
    def blocks(self) -> int:
        return prod(n for kind, n in self.extents.items() if kind.is_block)


def kernels(program: Program) -> tuple[Kernel, ...]:
    """The kernels of the bound loops, in serial order."""
    cached = program._cache.get("kernels")
    if not isinstance(cached, tuple):
        cached = program._cache["kernels"] = tuple(_kernels(program.body, (), program.size_env))
    return cached


def _kernels(body: Body, prefix: Path, sizes: Mapping[str, int]) -> Iterator[Kernel]:
    for n, stmt in enumerate(body):
        if isinstance(stmt, Loop) and stmt.kind.is_bound:
            extents: dict[LoopKind, int] = {}
            for met in visit((stmt,)):
                if isinstance(met.stmt, Loop) and met.stmt.kind.is_bound:
                    extents[met.stmt.kind] = max(extents.get(met.stmt.kind, 1), eval_index(met.stmt.extent, sizes))
            yield Kernel((*prefix, n), stmt, extents)
        elif not isinstance(stmt, Store):
            yield from _kernels(stmt.body, (*prefix, n), sizes)


def binds_inside(stmt: Stmt) -> bool:
    """Whether a bound loop stands below the statement."""
    return not isinstance(stmt, Store) and any(isinstance(m.stmt, Loop) and m.stmt.kind.is_bound for m in visit(stmt.body))


def reads_memory(stmt: Stmt) -> bool:
    """Whether the statement's own condition or extent reads memory."""
    return any(isinstance(e, Load) for x in stmt_exprs(stmt) for e in subexprs(x))


def bytes_of(buffer: Buffer, sizes: Mapping[str, int]) -> int:
    """Size of an array in bytes."""
    return prod(max(eval_index(s, sizes), 0) for s in buffer.shape) * buffer.dtype.itemsize


def placement(program: Program) -> Mapping[str, Scope]:
    """Where each temporary lives on a GPU.

    What is declared outside of kernels outlives them, so it is global. Inside a kernel a temporary without a scope belongs to whoever enters the loop
    that declares it: to the thread inside thread loops (and where a block is one thread), else to the block.
    """
    cached = program._cache.get("placement")
    if isinstance(cached, dict):
        return cached
    out = {b.name: Scope.GLOBAL for b in program.tmps}

    def walk(body: Body, kernel: Kernel | None, thread: bool, prefix: Path) -> None:
        for n, stmt in enumerate(body):
            if isinstance(stmt, Store):
                continue
            here = (*prefix, n)
            inside, mine = kernel or roots.get(here), thread
            if isinstance(stmt, Loop):
                mine = thread or stmt.kind.is_thread
                for b in stmt.tmps:
                    own = Scope.LOCAL if mine or (inside is not None and inside.threads == 1) else Scope.SHARED
                    out[b.name] = Scope.GLOBAL if inside is None else own if b.scope is Scope.GLOBAL else b.scope
            walk(stmt.body, inside, mine, here)

    roots = {k.path: k for k in kernels(program)}
    walk(program.body, None, False, ())
    program._cache["placement"] = out
    return out


_Owner = tuple[tuple[LoopKind, int, int, frozenset[tuple[tuple[Expr, ...], int]]], ...]
"""Per launched thread axis: the dimension that holds its coordinate, the factor, and what is added to it."""


@dataclass(slots=True)
class _Touched:
    """Buffers, other than thread-private ones, that statements read and write, and how their elements say which thread touches them."""

    reads: set[str] = field(default_factory=set)
    writes: set[str] = field(default_factory=set)
    owners: dict[str, set[_Owner | None]] = field(default_factory=dict)

    def clashes(self, later: _Touched) -> bool:
        """Whether different threads may touch an element that one side writes."""
        both = self.writes & (later.reads | later.writes) | (self.reads & later.writes)
        return any(None in (mine := self.owners[b] | later.owners[b]) or len(mine) > 1 for b in both)

    def add(self, other: _Touched) -> None:
        self.reads |= other.reads
        self.writes |= other.writes
        for name, owners in other.owners.items():
            self.owners.setdefault(name, set()).update(owners)


@dataclass(frozen=True, slots=True)
class Lanes:
    """The threads that run a place inside a kernel of the materialised program.

    ``launched``: extents of the kernel's axes. ``inside``: axes of the loops around the place. ``private``: temporaries of which every
    thread has its own. ``divergent``: whether some threads of a block may not come here.
    """

    launched: Mapping[LoopKind, int]
    private: frozenset[str]
    inside: frozenset[LoopKind] = frozenset()
    vars: frozenset[str] = frozenset()
    divergent: bool = False

    @staticmethod
    def of(kernel: Kernel, private: frozenset[str]) -> Lanes:
        return Lanes(kernel.extents, private)

    def enter(self, stmt: Loop | If, sizes: Mapping[str, int]) -> Lanes:
        """The threads inside a loop or guard."""
        if isinstance(stmt, If):
            return replace(self, divergent=self.divergent or reads_memory(stmt) or bool(free_vars(stmt.cond) & self.vars))
        if not stmt.kind.is_bound:
            return replace(self, divergent=self.divergent or bool(free_vars(stmt.extent) & self.vars))
        thread = stmt.kind.is_thread
        short = thread and eval_index(stmt.extent, sizes) < self.launched[stmt.kind]
        mine = self.vars | {stmt.var} if thread else self.vars
        return replace(self, inside=self.inside | {stmt.kind}, vars=mine, divergent=self.divergent or short)

    def before(self, body: Body) -> tuple[bool, ...]:
        """For every statement of a body: must all threads of the block have finished what stands before it?

        Only where different threads may touch a buffer that one side writes; inside one thread loop a conflict between its iterations would be a race.
        """
        out = []
        many, lone = _Touched(), _Touched()  # what several threads touch, and what one and the same
        for stmt in body:
            touched, single = self._touched(stmt), self._single(stmt)
            wait = many.clashes(touched) or (lone.clashes(touched) and not single)
            if wait:
                many, lone = _Touched(), _Touched()
            (lone if single else many).add(touched)
            out.append(wait)
        return tuple(out)

    def behind(self, loop: Loop) -> bool:
        """Whether threads must wait for one another between the iterations of a serial loop."""
        touched = self._touched(loop)
        return touched.clashes(touched) and not self._single(loop)

    def idle(self, store: Store) -> tuple[LoopKind, ...]:
        """Launched axes that the store stands in no loop of: only the block and the thread at 0 there run it.

        What every thread has for itself, every thread of the block computes.
        """
        own = store.buffer in self.private
        return tuple(kind for kind, n in self.launched.items() if n > 1 and kind not in self.inside and not (own and kind.is_thread))

    def _touched(self, stmt: Stmt) -> _Touched:
        found = _Touched()
        for met in visit((stmt,)):
            accesses = [(e.buffer, e.indices) for expr in stmt_exprs(met.stmt) for e in subexprs(expr) if isinstance(e, Load)]
            found.reads.update(name for name, _ in accesses)
            if isinstance(met.stmt, Store):
                accesses.append((met.stmt.buffer, met.stmt.indices))
                found.writes.add(met.stmt.buffer)
                found.reads |= {met.stmt.buffer} if met.stmt.reduce is not None else set()
            for name, indices in accesses:
                if name not in self.private:
                    found.owners.setdefault(name, set()).add(self._owner(indices, met.loops))
        found.reads -= self.private
        found.writes -= self.private
        return found

    def _owner(self, indices: tuple[Expr, ...], loops: tuple[Loop, ...]) -> _Owner | None:
        """How an element fixes the thread, given the loops between here and the access; ``None`` when it does not.

        Axes of loops around are left out: a conflict between their iterations would be a race.
        """
        inner = {loop.var for loop in loops}
        out = []
        for axis in (k for k, n in self.launched.items() if k.is_thread and n > 1 and k not in self.inside):
            own = next((loop.var for loop in loops if loop.kind is axis), None)
            for dim, index in enumerate(indices):
                rest = dict(poly_of(index)) if own is not None else {}
                factor = rest.pop((Var(own),), 0) if own is not None else 0
                if factor and not any(free_vars(atom) & inner or any(loads(atom)) for mono in rest for atom in mono):
                    out.append((axis, dim, factor, frozenset(rest.items())))
                    break
            else:
                return None
        return tuple(out)

    def _single(self, stmt: Stmt) -> bool:
        """Whether, for every element, one and the same thread runs the whole statement."""
        if not any(kind.is_thread and extent > 1 for kind, extent in self.launched.items()):
            return True
        inner = [m.stmt for m in visit((stmt,))]
        if any(isinstance(s, Loop) and s.kind.is_thread for s in inner):
            return False
        waiting = any(kind.is_thread and n > 1 and kind not in self.inside for kind, n in self.launched.items())
        if not waiting:
            return True
        shared_cond = any(isinstance(s, If) and self._touched(If(s.cond, ())).reads for s in inner)
        return not shared_cond and not any(isinstance(s, Store) and s.buffer in self.private for s in inner)  # those every thread evaluates


def may_diverge(program: Program) -> bool:
    """Whether some threads of a block may skip what others run (a quick test): shorter loops, guards and extents that depend on the thread or on memory."""
    for kernel in kernels(program):
        own = frozenset(m.stmt.var for m in visit((kernel.loop,)) if isinstance(m.stmt, Loop) and m.stmt.kind.is_thread)
        for met in visit((kernel.loop,)):
            stmt = met.stmt
            if isinstance(stmt, If) and (reads_memory(stmt) or free_vars(stmt.cond) & own):
                return True
            if isinstance(stmt, Loop) and stmt.kind.is_thread and eval_index(stmt.extent, program.size_env) < kernel.extents[stmt.kind]:
                return True
            if isinstance(stmt, Loop) and not stmt.kind.is_bound and free_vars(stmt.extent) & own:
                return True
    return False


def divergent_barrier(program: Program) -> Path | None:
    """Place in a *materialised* program before (or at the end of) which threads would have to wait for some that never come there."""
    private = frozenset(n for n, scope in placement(program).items() if scope is Scope.LOCAL)
    sizes = program.size_env

    def walk(body: Body, prefix: Path, lanes: Lanes) -> Path | None:
        for n, (stmt, wait) in enumerate(zip(body, lanes.before(body), strict=True)):
            here = (*prefix, n)
            if wait and lanes.divergent:
                return here
            if isinstance(stmt, Store):
                continue
            inner = lanes.enter(stmt, sizes)
            if isinstance(stmt, Loop) and not stmt.kind.is_bound and inner.divergent and lanes.behind(stmt):
                return here
            if (found := walk(stmt.body, here, inner)) is not None:
                return found
        return None

    for kernel in kernels(program):
        lanes = Lanes.of(kernel, private)
        if (found := walk(kernel.loop.body, kernel.path, lanes.enter(kernel.loop, sizes))) is not None:
            return found
    return None
