"""The table of all zoo entries, and building workloads from them."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache

import torch

from steptp.errors import UsageError
from steptp.frontend.tensors import to_numpy
from steptp.frontend.translate import translate_module
from steptp.frontend.workload import Workload
from steptp.frontend.zoo import activations, attention, blocks, conv, losses, matmul, norms, pool, reductions, scans
from steptp.frontend.zoo.entry import Case, Spec, randomize, seed_of
from steptp.ir import DType, Program
from steptp.ir.index import ix

__all__ = ["names", "spec", "families", "get"]

_FAMILIES = {
    "matmul": matmul, "activation": activations, "norm": norms, "reduction": reductions, "conv": conv,
    "pool": pool, "scan": scans, "loss": losses, "attention": attention, "block": blocks,
}  # fmt: skip
_CACHE: dict[tuple[str, str, str], Workload] = {}


@cache
def _table() -> dict[str, Spec]:
    found = {s.name: replace(s, family=family) for family, module in _FAMILIES.items() for s in module.SPECS}
    assert len(found) == sum(len(m.SPECS) for m in _FAMILIES.values()), "two zoo entries share a name"
    return found


def names(preset: str | None = None, family: str | None = None) -> tuple[str, ...]:
    """Names of all entries, in the order of the tables; only those with ``preset`` and of ``family`` if given."""
    return tuple(s.name for s in _table().values() if preset in (None, *s.presets) and family in (None, s.family))


def families() -> dict[str, tuple[str, ...]]:
    """Family → names of its entries (``matmul``, ``conv``, ``loss``, …)."""
    return {family: names(family=family) for family in _FAMILIES}


def spec(name: str) -> Spec:
    """The definition of an entry. Raises :class:`UsageError` ``usage-workload``."""
    if name not in _table():
        near = difflib.get_close_matches(name, _table(), 3)
        hint = f"did you mean {', '.join(near)}?" if near else f"families: {', '.join(_FAMILIES)}"
        raise UsageError("usage-workload", f"the zoo has no workload {name!r}", hint=hint)
    return _table()[name]


def get(name: str, preset: str = "mini", *, sizes: str = "auto") -> Workload:
    """The workload ``name`` (or ``name@preset``) at a preset: ``tiny``, ``mini``, ``level1`` or ``published``.

    ``sizes`` as in :func:`steptp.frontend.capture.capture`. Parameters and inputs are seeded; inputs are drawn only when asked for. A
    workload is built once in a process. Raises :class:`UsageError` ``usage-workload``, ``usage-preset``.
    """
    name, at, given = name.partition("@")
    preset = given if at else preset
    key = (name, preset, sizes)
    if key not in _CACHE:
        _CACHE[key] = _build(spec(name), preset, sizes)
    return _CACHE[key]


def _build(s: Spec, preset: str, sizes: str) -> Workload:
    made, dtype = s.case(preset), s.preset(preset).dtype
    module = randomize(made.module, seed_of("params", s.name, preset))
    blank = [torch.empty(a.shape, dtype=a.torch_dtype(dtype)) for a in made.args]  # the capture reads no values
    done, dynamic = translate_module(module, blank, s.name, sizes=sizes)
    params = {leaf.name: to_numpy(leaf.tensor) for leaf in done.leaves if leaf.kind != "input"}
    mutated = {out: leaf.name for out, leaf in done.mutated.items()}
    program = _ranged(done.program, [leaf.name for leaf in done.leaves if leaf.kind == "input"], made)
    return Workload(s.name, program, "zoo", module, params, mutated, f"zoo:{s.name}@{preset}", dynamic, done.leaves, _maker(s.name, made, dtype))


def _ranged(program: Program, names: Sequence[str], made: Case) -> Program:
    """Declare the range of integer inputs that have none from their use: without one, no sum of them is safe from overflow."""
    drawn = {name: (ix(arg.low), ix(arg.high)) for name, arg in zip(names, made.args, strict=True) if arg.kind == "ints"}
    return program.with_(inputs=tuple(replace(b, range=drawn[b.name]) if b.name in drawn and b.range is None else b for b in program.inputs))


def _maker(name: str, made: Case, dtype: DType) -> Callable[[int], Sequence[torch.Tensor]]:
    def make(seed: int) -> Sequence[torch.Tensor]:
        generator = torch.Generator().manual_seed(seed_of("inputs", name, str(seed)))
        return [a.draw(generator, dtype) for a in made.args]

    return make
