"""A workload: a program with its inputs, its reference and where it came from."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from steptp.errors import FrontendError
from steptp.ir import DType, Program, Size, eval_index, rebind, shape_of
from steptp.ir.seeds import derive_seed
from steptp.ir.walk import free_sizes, map_expr

if TYPE_CHECKING:
    import torch

    from steptp.frontend.capture import Leaf

__all__ = ["Workload", "InputsMaker", "from_module", "from_program", "sizes_for"]

InputsMaker = Callable[[int], Sequence[object]]
"""Seed → positional example inputs of forward(); seed 0 is the one the module is captured with."""


@dataclass(slots=True)
class Workload:
    """A named program. ``kind`` is ``module``, ``einsum``, ``zoo`` or ``leir``; ``module`` is ``None`` for ``leir``.

    ``params`` are the values of inputs that are parameters, buffers or constants of the module, by input name; 1- or 0-filled ones are
    randomised, since a gamma of 1 or a beta of 0 hides a dropped factor. ``mutated`` maps an extra output (``bn_running_mean_out``)
    to the input whose new value it is. ``source`` is the text the workload was defined by, when known.
    """

    name: str
    program: Program
    kind: str
    module: torch.nn.Module | None = None
    params: dict[str, np.ndarray] = field(default_factory=dict)
    mutated: dict[str, str] = field(default_factory=dict)
    source: str = ""
    dynamic: bool = False
    _leaves: list[Leaf] = field(default_factory=list, repr=False)
    _make: InputsMaker | None = field(default=None, repr=False)

    def example_inputs(self, seed: int = 0) -> dict[str, np.ndarray]:
        """Input name → array, parameters included, at the program's sizes (bf16 as float32 arrays of rounded values).

        Seed 0 gives the inputs the module was captured with. Programs without a module get standard normal floats, integers
        within their declared ranges (0..8 without one) and random bools.
        """
        if self._make is None:
            return _random_inputs(self.program, self.name, seed)
        from steptp.frontend.tensors import flat_tensors, to_numpy

        feed = iter(flat_tensors(self._make(seed)))
        out: dict[str, np.ndarray] = {}
        for leaf in self._leaves:
            out[leaf.name] = to_numpy(next(feed)) if leaf.kind == "input" else self.params[leaf.name]
        return out

    def reference(self, inputs: Mapping[str, np.ndarray], dtype: str | None = None) -> dict[str, np.ndarray]:
        """Outputs by name, computed by the PyTorch module in its own dtypes, or with all floats in f64 (``dtype="f64"``).

        Raises :class:`FrontendError` ``frontend-no-module`` for a workload that has none.
        """
        if self.module is None:
            raise FrontendError("frontend-no-module", f"{self.name} has no PyTorch module to compare with", hint="use steptp.interp.evaluate as the reference")
        from steptp.frontend.tensors import run_module

        return run_module(self.module, self._leaves, inputs, [o.name for o in self.program.outputs], self.mutated, self._structure(), dtype)

    def arguments(self, tensors: Mapping[str, torch.Tensor]) -> tuple[object, ...]:
        """The arguments of the module's forward(), with these tensors (by input name) in the places of the example ones."""
        from torch.utils import _pytree as pytree

        flat, spec = pytree.tree_flatten(tuple(self._structure()))
        names = iter([leaf.name for leaf in self._leaves if leaf.kind == "input"])
        fresh = [value if getattr(value, "shape", None) is None else tensors.get(next(names), value) for value in flat]
        return tuple(pytree.tree_unflatten(fresh, spec))

    @property
    def state(self) -> dict[str, str]:
        """Inputs that are parameters or buffers of the module, with their qualified names there."""
        return {leaf.name: leaf.path for leaf in self._leaves if leaf.kind in ("param", "buffer")}

    def at(self, **sizes: int) -> Workload:
        """The same program at other sizes; inputs are then random and there is no module to compare with."""
        return replace(self, program=rebind(self.program, sizes), module=None, params={}, _leaves=[], _make=None, kind="leir")

    def _structure(self) -> Sequence[object]:
        assert self._make is not None
        return self._make(0)


def from_program(program: Program, name: str, source: str = "") -> Workload:
    """A workload of a LEIR program alone."""
    return Workload(name, program, "leir", source=source)


def from_module(
    module: torch.nn.Module, make_inputs: InputsMaker, name: str, *, kind: str = "module", source: str = "", sizes: str = "auto", randomise: bool = True
) -> Workload:
    """Capture a module. The module keeps its train or eval mode; its parameters are copied, never changed.

    ``sizes`` as in :func:`steptp.frontend.capture.capture`. Raises :class:`FrontendError`.
    """
    from steptp.frontend.tensors import randomised, to_numpy
    from steptp.frontend.translate import translate_module

    module = copy.deepcopy(module)
    if randomise:
        randomised(module, name)
    done, dynamic = translate_module(module, tuple(make_inputs(0)), name, sizes=sizes)
    params = {leaf.name: to_numpy(leaf.tensor) for leaf in done.leaves if leaf.kind != "input"}
    mutated = {out: leaf.name for out, leaf in done.mutated.items()}
    return Workload(name, done.program, kind, module, params, mutated, source, dynamic, done.leaves, make_inputs)


def sizes_for(program: Program, shapes: Mapping[str, Sequence[int]]) -> dict[str, int]:
    """Values of the free sizes that give inputs these shapes (input name → extents), for :func:`steptp.ir.rebind`.

    Raises :class:`FrontendError` ``frontend-shape`` when there are none.
    """
    values: dict[str, int] = {}
    derived = {s.name: s.expr for s in program.sizes if s.expr is not None}
    pairs = [(extent, size) for b in program.inputs if b.name in shapes for extent, size in zip(b.shape, shapes[b.name], strict=True)]
    for extent, size in pairs:
        if isinstance(extent, Size) and extent.name not in derived and values.setdefault(extent.name, size) != size:
            raise FrontendError("frontend-shape", f"size {extent.name} would be {values[extent.name]} and {size}")
    for extent, size in pairs:
        whole = map_expr(extent, lambda e: derived.get(e.name, e) if isinstance(e, Size) else e)
        unknown = sorted(free_sizes(whole) - set(values))
        if len(unknown) == 1:  # e.g. C=4*M: extents grow with their sizes, so M is at most C
            known = next((n for n in range(size + 1) if eval_index(whole, {**values, unknown[0]: n}) == size), None)
            if known is not None:
                values[unknown[0]] = known
        if free_sizes(whole) <= set(values) and eval_index(whole, values) != size:
            raise FrontendError("frontend-shape", f"no sizes of the program give an extent of {size}")
    return values


def _random_inputs(program: Program, name: str, seed: int) -> dict[str, np.ndarray]:
    out: dict[str, np.ndarray] = {}
    for buffer in program.inputs:
        rng = np.random.default_rng(derive_seed("inputs", name, seed, buffer.name))
        shape = shape_of(buffer.shape, program)
        if buffer.dtype is DType.BOOL:
            out[buffer.name] = rng.random(shape) < 0.5
        elif buffer.dtype.is_int:
            low, high = shape_of(buffer.range, program) if buffer.range else (0, 8)
            out[buffer.name] = rng.integers(low, max(high, low + 1), shape).astype({DType.I8: np.int8, DType.I32: np.int32}.get(buffer.dtype, np.int64))
        else:
            out[buffer.name] = _rounded(rng.standard_normal(shape), buffer.dtype)
    return out


def _rounded(values: np.ndarray, dtype: DType) -> np.ndarray:
    if dtype is DType.BF16:
        bits = values.astype(np.float32).view(np.uint32)
        return ((bits + 0x7FFF + ((bits >> 16) & 1)) & np.uint32(0xFFFF0000)).view(np.float32)
    return values.astype({DType.F16: np.float16, DType.F64: np.float64}.get(dtype, np.float32))
