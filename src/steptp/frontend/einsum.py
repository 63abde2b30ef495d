"""Workloads from an einsum equation."""

from __future__ import annotations

import re

from steptp.errors import FrontendError
from steptp.frontend.workload import Workload, from_module

__all__ = ["einsum_workload", "parse_einsum"]

_HINT = "einsum:ij,jk->ik@i=64,j=32,k=16 (extent of each letter) or einsum:ij,jk->ik@64x32,32x16 (shape of each operand)"


def parse_einsum(text: str) -> tuple[str, list[tuple[int, ...]]]:
    """``equation@sizes`` → equation and operand shapes. Raises :class:`FrontendError` ``frontend-einsum``."""
    equation, sign, sizes = text.replace(" ", "").partition("@")
    if not re.fullmatch(r"[a-zA-Z]*(,[a-zA-Z]*)*(->[a-zA-Z]*)?", equation) or not equation:
        raise FrontendError("frontend-einsum", f"not an einsum equation: {equation!r}", hint=_HINT)
    letters = equation.partition("->")[0].split(",")
    if not sign or not sizes:
        raise FrontendError("frontend-einsum", "the equation has no sizes", hint=_HINT)
    parts = sizes.split(",")
    if "=" not in sizes:
        shapes = _shapes(parts, letters)
    else:
        extents = _extents(parts)
        if missing := sorted({n for names in letters for n in names} - set(extents)):
            raise FrontendError("frontend-einsum", f"no extent for {', '.join(missing)}", hint=_HINT)
        if unknown := sorted(set(extents) - {n for names in letters for n in names}):
            raise FrontendError("frontend-einsum", f"{', '.join(unknown)} does not occur in the equation", hint=_HINT)
        shapes = [tuple(extents[n] for n in names) for names in letters]
    right = equation.partition("->")[2]
    if unknown := sorted(set(right) - {n for names in letters for n in names}):
        raise FrontendError("frontend-einsum", f"the result has {', '.join(unknown)}, which no operand has")
    if repeated := sorted({n for n in right if right.count(n) > 1}):
        raise FrontendError("frontend-einsum", f"the result has {', '.join(repeated)} twice")
    return equation, shapes


def _extents(parts: list[str]) -> dict[str, int]:
    out: dict[str, int] = {}
    for part in parts:
        found = re.fullmatch(r"([a-zA-Z])=([0-9]{1,9})", part)
        if found is None:
            raise FrontendError("frontend-einsum", f"not a size: {part!r}", hint=_HINT)
        out[found[1]] = int(found[2])
    return out


def _shapes(parts: list[str], letters: list[str]) -> list[tuple[int, ...]]:
    if len(parts) != len(letters):
        raise FrontendError("frontend-einsum", f"{len(letters)} operand(s), but {len(parts)} shape(s)", hint=_HINT)
    out: list[tuple[int, ...]] = []
    seen: dict[str, int] = {}
    for part, names in zip(parts, letters, strict=True):
        if not re.fullmatch(r"[0-9]{1,9}(x[0-9]{1,9})*", part) and not (part == "" and names == ""):
            raise FrontendError("frontend-einsum", f"not a shape: {part!r}", hint=_HINT)
        shape = tuple(map(int, part.split("x"))) if part else ()
        if len(shape) != len(names):
            raise FrontendError("frontend-einsum", f"operand {names} has {len(names)} dim(s), its shape {part} has {len(shape)}", hint=_HINT)
        for name, extent in zip(names, shape, strict=True):
            if seen.setdefault(name, extent) != extent:
                raise FrontendError("frontend-einsum", f"{name} is {seen[name]} in one operand and {extent} in another")
        out.append(shape)
    return out


def einsum_workload(text: str) -> Workload:
    """The workload of ``equation@sizes``: operands ``A``, ``B``, … in f32."""
    import torch

    from steptp.frontend.tensors import seeded

    equation, shapes = parse_einsum(text)

    class Einsum(torch.nn.Module):
        """One equation over its operands."""

        def forward(self, *x: torch.Tensor) -> torch.Tensor:
            return torch.einsum(equation, *x)

    def make(seed: int) -> tuple[object, ...]:
        with torch.random.fork_rng(devices=[]):
            seeded(seed, "einsum", text)
            return tuple(torch.randn(shape) for shape in shapes)

    return from_module(Einsum(), make, f"einsum:{text}", kind="einsum", source=f"torch.einsum({equation!r})")
