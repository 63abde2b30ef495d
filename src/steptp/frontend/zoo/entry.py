"""What a zoo entry is: a name, a function of sizes that builds a module with its inputs, and sizes by preset."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from steptp.errors import UsageError
from steptp.ir.types import DType

__all__ = [
    "Arg", "Case", "Spec", "fn", "net", "case", "param", "normal", "positive", "probs", "unit", "ints", "mask", "causal", "signs",
    "w", "published", "Preset", "PRESETS", "TORCH_DTYPES", "randomize", "seed_of",
]  # fmt: skip

PRESETS = ("tiny", "mini", "level1", "published", "published_f32")
TORCH_DTYPES: dict[DType, torch.dtype] = {
    DType.F16: torch.float16, DType.BF16: torch.bfloat16, DType.F32: torch.float32, DType.F64: torch.float64,
    DType.I8: torch.int8, DType.I32: torch.int32, DType.I64: torch.int64, DType.BOOL: torch.bool,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Arg:
    """One input tensor. ``dtype`` ``None`` is the workload's float dtype; ``kind`` says how values are drawn.

    Kinds: ``normal`` (standard normal), ``positive`` (uniform in [0.1, 1]), ``unit`` (uniform in [-1, 1]), ``probs``
    (rows of the last dimension sum to 1), ``signs`` (-1 or 1), ``ints`` (uniform in ``low .. high - 1``), ``mask`` (bool),
    ``causal`` (bool, true above the diagonal of the last two dimensions).
    """

    shape: tuple[int, ...]
    kind: str = "normal"
    dtype: DType | None = None
    low: int = 0
    high: int = 0

    def torch_dtype(self, floating: DType) -> torch.dtype:
        return TORCH_DTYPES[self.dtype or floating]

    def draw(self, generator: torch.Generator, floating: DType) -> Tensor:
        """A tensor of this shape; the same generator state gives the same values."""
        dtype = self.torch_dtype(floating)
        if self.kind == "ints":
            return torch.randint(self.low, self.high, self.shape, generator=generator).to(dtype)
        if self.kind == "mask":
            return torch.rand(self.shape, generator=generator) < 0.3
        if self.kind == "causal":
            return torch.ones(self.shape, dtype=torch.bool).triu(1)
        if self.kind == "normal":
            return torch.randn(self.shape, generator=generator).to(dtype)
        uniform = torch.rand(self.shape, generator=generator)
        if self.kind == "positive":
            return (0.1 + 0.9 * uniform).to(dtype)
        if self.kind == "unit":
            return (2 * uniform - 1).to(dtype)
        if self.kind == "signs":
            return torch.where(uniform < 0.5, -1.0, 1.0).to(dtype)
        if self.kind == "probs":
            return (0.1 + uniform).div((0.1 + uniform).sum(-1, keepdim=True)).to(dtype)
        raise AssertionError(self.kind)


def normal(*shape: int) -> Arg:
    return Arg(shape)


def positive(*shape: int) -> Arg:
    return Arg(shape, "positive")


def unit(*shape: int) -> Arg:
    return Arg(shape, "unit")


def probs(*shape: int) -> Arg:
    return Arg(shape, "probs")


def signs(*shape: int) -> Arg:
    return Arg(shape, "signs")


def mask(*shape: int) -> Arg:
    return Arg(shape, "mask", DType.BOOL)


def causal(*shape: int) -> Arg:
    return Arg(shape, "causal", DType.BOOL)


def ints(*shape: int, high: int, low: int = 0, dtype: DType = DType.I64) -> Arg:
    """Integers in ``low .. high - 1``."""
    return Arg(shape, "ints", dtype, low, high)


@dataclass(frozen=True, slots=True)
class Case:
    """A module and the tensors it takes."""

    module: nn.Module
    args: tuple[Arg, ...]


def fn(body: Callable[..., Tensor | tuple[Tensor, ...]]) -> nn.Module:
    """A parameter-free module with ``body`` as its ``forward``; the body's argument names become the input names."""
    return type("Function", (nn.Module,), {"forward": staticmethod(body)})()  # type: ignore[no-any-return]


def net(body: Callable[..., Tensor | tuple[Tensor, ...]], **parts: nn.Module | nn.Parameter) -> nn.Module:
    """A module that owns ``parts``; ``body`` is its ``forward`` and takes the module first."""
    module: nn.Module = type("Net", (nn.Module,), {"forward": body})()
    for name, part in parts.items():
        setattr(module, name, part)
    return module


def param(*shape: int) -> nn.Parameter:
    """A parameter whose values :func:`randomize` sets."""
    return nn.Parameter(torch.empty(shape))


def case(what: nn.Module | Callable[..., Tensor | tuple[Tensor, ...]], *args: Arg) -> Case:
    """A case of a module, or of a plain function."""
    return Case(what if isinstance(what, nn.Module) else fn(what), args)


@dataclass(frozen=True, slots=True)
class Preset:
    """Sizes (arguments of :attr:`Spec.make`) and the float dtype to use with them."""

    dims: tuple[int, ...]
    dtype: DType = DType.F32


@dataclass(frozen=True, slots=True)
class Spec:
    """One workload definition at several sizes.

    ``make`` takes the sizes of a preset and returns a :class:`Case`. ``family`` is the table it stands in, ``mode`` is
    ``train`` or ``eval``, ``published`` the name of the workload in the published LEIR notation that computes the same function.
    """

    name: str
    make: Callable[..., Case]
    presets: Mapping[str, Preset]
    family: str = ""
    published: str = ""
    mode: str = "eval"

    def preset(self, name: str) -> Preset:
        """One preset; raises :class:`UsageError` ``usage-preset``."""
        if name not in self.presets:
            raise UsageError("usage-preset", f"workload {self.name} has no preset {name!r}", hint=f"it has: {', '.join(self.presets)}")
        return self.presets[name]

    def case(self, preset: str) -> Case:
        """The module (values unset, on the meta device) and its inputs at a preset."""
        chosen = self.preset(preset)
        with torch.device("meta"):
            made = self.make(*chosen.dims)
        module = made.module.to(TORCH_DTYPES[chosen.dtype])
        return Case(module.train() if self.mode == "train" else module.eval(), made.args)


def published(name: str, *dims: int, dtype: DType = DType.F16) -> tuple[str, Preset]:
    """The ``published`` preset: the workload's published name, its sizes and its dtype (``published_f32`` has the same sizes in f32)."""
    return name, Preset(dims, dtype)


def w(
    name: str,
    make: Callable[..., Case],
    tiny: tuple[int, ...],
    mini: tuple[int, ...],
    level1: tuple[int, ...] = (),
    pub: tuple[str, Preset] | None = None,
    *,
    dtype: DType = DType.F32,
    mode: str = "eval",
) -> Spec:
    """A row of a zoo table."""
    presets = {"tiny": Preset(tiny, dtype), "mini": Preset(mini, dtype)}
    if level1:
        presets["level1"] = Preset(level1, dtype)
    if pub:
        presets |= {"published": pub[1], "published_f32": Preset(pub[1].dims)}
    return Spec(name, make, presets, published=pub[0] if pub else "", mode=mode)


def seed_of(*parts: str) -> int:
    """A seed from strings, stable across processes."""
    return int.from_bytes(hashlib.sha256("|".join(parts).encode()).digest()[:8], "big") >> 1


def randomize(module: nn.Module, seed: int) -> nn.Module:
    """Give every parameter and float buffer seeded values; none keeps a neutral default (1 or 0) that would hide a dropped term.

    Matrices and kernels are normal with variance 1/fan-in; other ``weight`` and ``var`` tensors are uniform in [0.5, 1.5]; the
    rest are normal with standard deviation 0.5. A module on the meta device is moved to the CPU first.
    """
    if any(t.is_meta for t in (*module.parameters(), *module.buffers())):
        module = module.to_empty(device="cpu")
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, tensor in (*module.named_parameters(), *module.named_buffers()):
            if not tensor.is_floating_point():
                tensor.zero_()
            elif tensor.dim() >= 2 and tensor[0].numel() > 1:
                tensor.copy_(torch.randn(tensor.shape, generator=generator) / tensor[0].numel() ** 0.5)
            elif "var" in name or name.rpartition(".")[2] in ("weight", "scale", "gamma"):
                tensor.copy_(0.5 + torch.rand(tensor.shape, generator=generator))
            else:
                tensor.copy_(0.5 * torch.randn(tensor.shape, generator=generator))
    return module
