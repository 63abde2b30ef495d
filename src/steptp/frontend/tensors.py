"""Between PyTorch tensors and NumPy arrays; running a module as the reference."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence

import numpy as np
import torch
from torch.utils import _pytree as pytree

from steptp.frontend.capture import Leaf
from steptp.ir.seeds import derive_seed

__all__ = ["to_numpy", "to_tensor", "flat_tensors", "randomised", "run_module", "seeded"]


def to_numpy(tensor: torch.Tensor) -> np.ndarray:
    """A copy as an array; bf16 becomes float32."""
    tensor = tensor.detach().cpu()
    return np.array((tensor.float() if tensor.dtype is torch.bfloat16 else tensor).contiguous().numpy(), copy=True)


def to_tensor(array: np.ndarray, dtype: torch.dtype) -> torch.Tensor:
    """A fresh tensor of ``dtype``."""
    return torch.from_numpy(np.array(array, copy=True, order="C")).to(dtype)


def flat_tensors(args: Sequence[object]) -> list[torch.Tensor]:
    """The tensors among example inputs, in order."""
    return [leaf for leaf in pytree.tree_leaves(tuple(args)) if isinstance(leaf, torch.Tensor)]


def randomised(module: torch.nn.Module, name: str) -> None:
    """Replace float parameters and buffers that are filled with one number by random ones around it, in place.

    Variances stay positive. Seeds come from ``name`` and the tensor's qualified name.
    """
    with torch.no_grad():
        for path, tensor in [*module.named_parameters(), *module.named_buffers()]:
            if not tensor.is_floating_point() or tensor.numel() == 0 or not bool((tensor == tensor.flatten()[0]).all()):
                continue
            rng = np.random.default_rng(derive_seed("params", name, path))
            fill = float(tensor.flatten()[0])
            noise = rng.uniform(0.5, 1.5, tensor.shape) * fill if fill == 1.0 and "var" in path else fill + 0.3 * rng.standard_normal(tensor.shape)
            tensor.copy_(torch.from_numpy(np.asarray(noise)))


def seeded(seed: int, *parts: object) -> None:
    """Seed PyTorch's global generator (call it inside ``torch.random.fork_rng``)."""
    torch.manual_seed(derive_seed("torch", seed, *parts))


def run_module(
    module: torch.nn.Module, leaves: Sequence[Leaf], inputs: Mapping[str, np.ndarray], outputs: Sequence[str], mutated: Mapping[str, str],
    structure: Sequence[object], dtype: str | None,
) -> dict[str, np.ndarray]:  # fmt: skip
    """Run ``module`` on arrays by input name; ``structure`` are example arguments that show how inputs nest."""

    def kind_of(leaf: Leaf) -> torch.dtype:
        return torch.float64 if dtype == "f64" and leaf.tensor.is_floating_point() else leaf.tensor.dtype

    tensors = {leaf.name: to_tensor(inputs[leaf.name], kind_of(leaf)) for leaf in leaves}
    flat, spec = pytree.tree_flatten(tuple(structure))
    feed = iter(tensors[leaf.name] for leaf in leaves if leaf.kind == "input")
    args = pytree.tree_unflatten([next(feed) if isinstance(v, torch.Tensor) else v for v in flat], spec)
    own = {leaf.path: tensors[leaf.name] for leaf in leaves if leaf.kind in ("param", "buffer")}
    if dtype == "f64":
        module = _double(module)
    own = {**{k: v.clone() for k, v in module.named_buffers()}, **own}
    with torch.no_grad():
        result = torch.func.functional_call(module, own, args)
    found = iter(t for t in pytree.tree_leaves(result) if isinstance(t, torch.Tensor))
    return {name: to_numpy(tensors[mutated[name]] if name in mutated else next(found)) for name in outputs}


def _double(module: torch.nn.Module) -> torch.nn.Module:
    """A copy with every float parameter, buffer and plain tensor attribute in f64."""
    module = copy.deepcopy(module).double()
    for part in module.modules():
        for key, value in vars(part).items():
            if isinstance(value, torch.Tensor) and value.is_floating_point():
                object.__setattr__(part, key, value.double())
    return module
