"""What a build works on: workload specs from names and presets, trajectories of a wave, strategy quotas."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from steptp.analysis.host import HostInfo
from steptp.dataset.config import BuildConfig
from steptp.dataset.filters import Kept
from steptp.dataset.filters.strategy_cap import cap_of
from steptp.dataset.roots import Root
from steptp.dataset.walk import WalkTask
from steptp.errors import UsageError
from steptp.ir.seeds import derive_seed
from steptp.rewrite import registry

__all__ = ["DEMO", "resolve_workloads", "plan_wave", "quotas"]

# The demo's zoo workloads, small enough that a naive kernel takes microseconds to a millisecond.
DEMO = (
    "matmul", "batch_matmul", "matvec", "gemm_bias_relu", "softmax", "log_softmax", "layer_norm", "rms_norm", "attention_single", "conv2d",
    "max_pool2d", "gelu", "swiglu", "argmax_middle", "mse_loss", "mlp", "sum_middle", "cumsum", "avg_pool1d", "residual_layer_norm",
)  # fmt: skip


def resolve_workloads(workloads: Sequence[str], preset: str | None) -> tuple[str, ...]:
    """Explicit workload specs: those given, then the preset's zoo workloads; each once.

    Raises :class:`UsageError` ``usage-workload`` when there are none, ``usage-preset`` for an unknown preset.
    """
    from steptp.frontend import zoo

    specs = list(workloads)
    if preset == "demo":
        specs += [f"zoo:{name}@mini" for name in DEMO]
    elif preset is not None:
        names = zoo.names(preset)
        if not names:
            raise UsageError("usage-preset", f"no zoo workload has a preset {preset!r}", hint="presets: demo, tiny, mini, level1")
        specs += [f"zoo:{name}@{preset}" for name in names]
    if not specs:
        raise UsageError("usage-workload", "nothing to build from", hint="name a workload, e.g. my_model.py:Model, or give --preset demo")
    return tuple(dict.fromkeys(specs))


def quotas(kept: Kept, target: str = "cpu") -> dict[str, float]:
    """Weight of each strategy of the target in the next wave: how much room is left under its cap, never quite nothing."""
    cap = cap_of(kept.target, kept.cap_share)
    return {name: max((cap - kept.by_strategy[name]) / cap, 0.02) ** 2 for name in registry.names_for(target)}


STEPS_PER_WALK = 20  # admitted steps that one walk brings, before there is a figure of this build


def plan_wave(config: BuildConfig, roots: Sequence[Root], first: int, missing: int, kept: Kept, host: HostInfo) -> list[WalkTask]:
    """The next trajectories, numbered from ``first``: roots in turn, seeds from the build's seed, quotas from what was kept so far.

    At most ``config.wave``, fewer when only ``missing`` steps are wanted.
    """
    weights: Mapping[str, float] = quotas(kept, config.target)
    described: Mapping[str, Any] = host.to_dict()
    tasks = []
    each = kept.total / first if first else STEPS_PER_WALK
    count = min(config.wave, max(round(missing / max(each, 1.0)), 2))
    for turn in range(first, first + count):
        root = roots[turn % len(roots)]
        tasks.append(
            WalkTask(
                key=f"{turn:06d}-{root.hash}",
                root_text=root.text,
                seed=derive_seed(config.seed, root.hash, turn),
                depth=config.depth,
                siblings=config.siblings,
                sibling_share=config.sibling_share,
                refusal_share=config.refusal_share,
                max_lines=config.max_lines,
                weights=weights,
                host=described,
            )
        )
    return tasks
