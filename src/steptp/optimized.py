"""``steptp.optimize(module, example_inputs)``: a faster, verified program in the module's place."""

from __future__ import annotations

import copy
import inspect
import os
import threading
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.utils import _pytree as pytree

from steptp.errors import UsageError
from steptp.frontend import Workload, from_module
from steptp.frontend.dtypes import DTYPES
from steptp.ir import Buffer, parse
from steptp.ir.sizes import shape_of
from steptp.lower.build import ALIGNMENT, NUMPY, aligned, aligned_input, build, range_left
from steptp.lower.options import BuildOptions
from steptp.policy import policy as policy_of
from steptp.policy import usual_search
from steptp.report.search_page import PAGE, search_page
from steptp.search.algorithms import algorithm as algorithm_of
from steptp.search.budget import Limits
from steptp.search.outcome import Outcome, find_faster
from steptp.search.policy import Policy
from steptp.search.session import Algorithm

__all__ = ["Optimized", "optimize"]

_TORCH = {ours: theirs for theirs, ours in DTYPES.items()}


def optimize(
    module: torch.nn.Module, example_inputs: torch.Tensor | Sequence[object], *, policy: str | Policy = "heuristic", search: str | Algorithm | None = None,
    samples: int = 64, seconds: float | None = None, threads: int | None = None, seed: int = 0, out: str | Path | None = None,
) -> Optimized:  # fmt: skip
    """Search for a faster program of ``module`` at the shapes of ``example_inputs`` (the arguments of forward()) and return it as a function of the same
    arguments. The module itself is not changed; its weights are bound as they are now.

    ``out``: folder for everything that ``steptp optimize`` writes, and for continuing after an interruption: the same call goes on where the journal
    ends. Raises :class:`FrontendError` for a module that cannot be captured, :class:`UsageError` for settings that do not exist.
    """
    given = (example_inputs,) if isinstance(example_inputs, torch.Tensor) else tuple(example_inputs)
    search = search or usual_search(policy if isinstance(policy, str) else policy.name)
    chosen = algorithm_of(search) if isinstance(search, str) else search
    proposer = policy_of(policy) if isinstance(policy, str) else policy
    workers = threads or len(os.sched_getaffinity(0))
    workload = from_module(module, lambda _: given, type(module).__name__, randomise=False)
    found = find_faster(
        workload.program, proposer, chosen, Limits(samples=samples, seconds=seconds), workload=workload.name, threads=workers, seed=seed,
        folder=None if out is None else Path(out), resume=True, pages={PAGE: search_page},
    )  # fmt: skip
    return Optimized(workload, given, found, workers)


class Optimized:
    """A compiled program that is called like the module it stands for. Tensors are on the CPU; results carry no gradients.

    Inputs are read where they lie when they are contiguous and start on a 64-byte boundary, as PyTorch's own tensors do; others are copied,
    and a warning says so once. Buffers that the module changes are changed in this object's own copy. Calls from several threads take turns.
    """

    def __init__(self, workload: Workload, example: tuple[object, ...], found: Outcome, threads: int) -> None:
        assert workload.module is not None
        self.program = parse(found.answer.node.text)
        self.trace = found.trace
        self.result = found.result
        self._name = workload.name
        self._signature = inspect.signature(workload.module.forward)
        self._example, self._arguments = pytree.tree_flatten(example)
        self._flat = all(isinstance(value, torch.Tensor) for value in example)
        self._built = build(self.program, BuildOptions(threads=threads))
        self._bound = {b.name: aligned_input(self.program, b, workload.params) for b in self.program.inputs if b.name in workload.params}
        self._call, places = self._built.partly_prepared({**self._bound, **self._built.temporaries()})
        slots = {b.name: _Slot(b, shape_of(b.shape, self.program), _TORCH[b.dtype], places[b.name]) for b in self._built.interface if b.name in places}
        self._inputs = [slots[b.name] for b in self.program.inputs if b.name in slots]
        self._outputs = [slots[b.name] for b in self.program.outputs]
        self._changed = workload.mutated
        with torch.no_grad():
            returned = copy.deepcopy(workload.module)(*example)
        self._returned, self._structure = pytree.tree_flatten(returned)
        self._lock = threading.Lock()
        self._noted: set[str] = set()

    @property
    def speedup(self) -> float:
        """Of the program over the module's own program before the search, compiled the same way; timed afresh after the search."""
        return float(self.result["speedup"])

    def report(self, path: str | Path) -> Path:
        """Write the search's HTML page."""
        target = Path(path)
        target.write_text(search_page(self.result), encoding="utf-8")
        return target

    def __repr__(self) -> str:
        return f"<{self._name}, {self.speedup:.2f}x, {len(self.result['steps'])} steps>"

    def __call__(self, *args: object, **kwargs: object) -> Any:
        """What the module returns for these arguments. Raises :class:`UsageError` ``usage-call`` when they are not like the example's."""
        tensors = self._tensors(args, kwargs)
        copies = [None if slot.takes(tensor) else self._read(slot, tensor) for slot, tensor in zip(self._inputs, tensors, strict=True)]
        outputs = [slot.fresh() for slot in self._outputs]
        with self._lock:
            for slot, tensor, copied in zip(self._inputs, tensors, copies, strict=True):
                slot.put(tensor.data_ptr() if copied is None else copied.ctypes.data)
            for slot, output in zip(self._outputs, outputs, strict=True):
                slot.put(output.data_ptr())
            self._built.configure()
            self._built.call(self._call)
            for slot, output in zip(self._outputs, outputs, strict=True):
                if slot.buffer.name in self._changed:
                    self._bound[self._changed[slot.buffer.name]][...] = _array(output)
        fresh = iter(output for slot, output in zip(self._outputs, outputs, strict=True) if slot.buffer.name not in self._changed)
        return pytree.tree_unflatten([next(fresh) if isinstance(v, torch.Tensor) else v for v in self._returned], self._structure)

    def _tensors(self, args: tuple[object, ...], kwargs: Mapping[str, object]) -> list[torch.Tensor]:
        """The tensors among the arguments, in order."""
        if self._flat and not kwargs and len(args) == len(self._example) and all(isinstance(value, torch.Tensor) for value in args):
            return list(args)  # type: ignore[arg-type]
        try:
            flat, structure = pytree.tree_flatten(self._signature.bind(*args, **kwargs).args)
        except TypeError as err:
            raise self._wrong(f"{err}") from None
        if structure != self._arguments:
            raise self._wrong("the arguments nest otherwise")
        tensors: list[torch.Tensor] = []
        for value, example in zip(flat, self._example, strict=True):
            if isinstance(example, torch.Tensor):
                if not isinstance(value, torch.Tensor):
                    raise self._wrong(f"a {type(value).__name__} stands where a tensor is expected")
                tensors.append(value)
            elif value is not example and value != example:
                raise self._wrong(f"{value!r} stands where the program was made for {example!r}")
        return tensors

    def _read(self, slot: _Slot, tensor: torch.Tensor) -> Any:
        """The tensor's own memory as an array in storage dtype, or a copy where that cannot be used."""
        buffer = slot.buffer
        if tuple(tensor.shape) != slot.shape or tensor.dtype is not slot.dtype:
            raise self._wrong(f"{buffer.name} is {str(tensor.dtype).removeprefix('torch.')}{list(tensor.shape)}")
        if tensor.device.type != "cpu" or tensor.layout is not torch.strided:
            raise self._wrong(f"{buffer.name} is a {tensor.layout} tensor on {tensor.device}")
        if tensor.requires_grad and torch.is_grad_enabled():
            raise self._wrong(f"{buffer.name} requires a gradient", hint="detach it, or call under torch.no_grad(): there is no backward pass")
        array = _array(tensor.detach().resolve_neg())
        if array.size and (not array.flags.c_contiguous or array.ctypes.data % ALIGNMENT):
            self._note(buffer.name)
            own = aligned(slot.shape, NUMPY[buffer.dtype], poison=None)
            own[...] = array
            array = own
        if allowed := range_left(self.program, buffer, array):
            raise self._wrong(f"{buffer.name} has values outside {allowed}")
        return array

    def _note(self, name: str) -> None:
        if name not in self._noted:
            self._noted.add(name)
            text = f"{self._name}: {name} is copied at every call: it is not contiguous, or does not start on a {ALIGNMENT}-byte boundary"
            warnings.warn(text, stacklevel=4)

    def _wrong(self, what: str, hint: str = "") -> UsageError:
        expected = ", ".join(f"{slot.buffer.name} {slot.buffer.dtype}{list(slot.shape)}" for slot in self._inputs)
        return UsageError("usage-call", f"{self._name} was optimised for {expected}; {what}", hint=hint or "optimise the module anew for other arguments")


@dataclass(frozen=True, slots=True)
class _Slot:
    """An input or output of the compiled program: what belongs there, and where its address is written before a call."""

    buffer: Buffer
    shape: tuple[int, ...]
    dtype: torch.dtype
    places: list[Any]

    def takes(self, tensor: torch.Tensor) -> bool:
        """Whether the tensor's memory can be read as it is, without a closer look."""
        return (
            type(tensor) is torch.Tensor and tensor.shape == self.shape and tensor.dtype is self.dtype and tensor.layout is torch.strided and tensor.is_cpu
            and tensor.is_contiguous() and not (tensor.requires_grad or tensor.is_neg()) and self.buffer.range is None and tensor.data_ptr() % ALIGNMENT == 0
        )  # fmt: skip

    def put(self, address: int) -> None:
        for place in self.places:
            place[0] = address

    def fresh(self) -> torch.Tensor:
        """A tensor for the output, on a 64-byte boundary as compiled code wants it."""
        made = torch.empty(self.shape, dtype=self.dtype)
        if made.data_ptr() % ALIGNMENT:  # PyTorch's own allocator never does that
            whole = torch.from_numpy(aligned((made.numel(),), NUMPY[self.buffer.dtype], poison=None))
            made = whole.view(self.dtype).reshape(self.shape)
        return made


def _array(tensor: torch.Tensor) -> Any:
    """A tensor's memory as an array in storage dtype."""
    return tensor.view(torch.int16).numpy().view(np.uint16) if tensor.dtype is torch.bfloat16 else tensor.numpy()
