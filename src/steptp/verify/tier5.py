"""Tier 5: a step that claims ``bitwise`` gives the parent's bits.

The claim speaks of builds without FMA contraction: TVM's default fuses ``a*b+c`` wherever the two meet, so inlining a product changes
its result. Where tier 2 has already proved that both programs perform the same operations in the same order, equal bits of the two
release builds (which tier 4 has made and run) show that lowering keeps it; only if those differ, or without that proof, are both
programs built once more without FMA. Outputs are compared bit for bit, all NaN counting as one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt

from steptp.ir.nodes import Program
from steptp.ir.types import DType
from steptp.verify.compiled import GuardedRun, bits_of, kept_run, print_value
from steptp.verify.tier4_inputs import inputs_key, make_inputs, work
from steptp.verify.verdict import Counterexample, TierReport, VerdictKind

if TYPE_CHECKING:
    from steptp.lower.build import Built

__all__ = ["TIER5_REGIMES", "RegimeRunner", "same_bits", "tier5"]

Array = npt.NDArray[Any]
RegimeRunner: TypeAlias = Callable[[Mapping[str, Array], str], GuardedRun]
"""(inputs, their regime) → outputs of one of the two programs."""
TIER5_REGIMES = ("normal", "mixed", "special", "denormal")
_SMALL = 2e6  # stores: below, compiling costs more than running unoptimised code


def tier5(parent: Program, child: Program, *, seed: int = 0, proven: bool = False, regimes: Sequence[str] | None = None) -> TierReport:
    """Compare all outputs in the regimes (default: those of :data:`TIER5_REGIMES` that the parent's size allows); the first differing bit is ``not_equal``.

    ``proven``: tier 2 has accepted the step as bitwise, so equal release builds suffice. Raises :class:`steptp.lower.BuildError` ``build-failed``.
    """
    from steptp.lower import BuildOptions

    load = work(parent)
    chosen = tuple(regimes) if regimes is not None else TIER5_REGIMES if load < 5e8 else TIER5_REGIMES[:2]
    if proven:
        report = _compare(parent, child, BuildOptions(), chosen, seed, "release")
        if report.kind is VerdictKind.OK:
            return report
    return _compare(parent, child, BuildOptions(fma=False, opt_level=0 if load < _SMALL else 3), chosen, seed, "no-fma")


def _compare(parent: Program, child: Program, options: Any, regimes: tuple[str, ...], seed: int, name: str) -> TierReport:
    from steptp.lower import build

    evidence: dict[str, object] = {"build": name, "opt_level": options.opt_level}
    before, after = build(parent, options), build(child, options)

    def run(built: Built, inputs: Mapping[str, Array], regime: str) -> GuardedRun:
        return kept_run(built, inputs, inputs_key(parent, regime, seed))

    return same_bits(parent, partial(run, before), partial(run, after), regimes, seed, evidence)


def same_bits(parent: Program, before: RegimeRunner, after: RegimeRunner, regimes: Sequence[str], seed: int, evidence: Mapping[str, object]) -> TierReport:
    """Compare the outputs of two ways to run, wherever that is, on the same inputs; ``evidence`` names the ``build``."""
    from steptp.lower.build import from_storage

    evidence = {**evidence, "regimes": list(regimes), "seed": seed}
    for regime in regimes:
        inputs = make_inputs(parent, regime, seed)
        want = before(inputs, regime).outputs
        run = after(inputs, regime)
        if run.damage:
            return TierReport(5, VerdictKind.UNSAFE_MEMORY, f"the compiled program {run.damage}", evidence)
        for buffer in parent.outputs:
            bf16 = buffer.dtype is DType.BF16
            differs = bits_of(run.outputs[buffer.name], bf16=bf16) != bits_of(want[buffer.name], bf16=bf16)
            if differs.any():
                shape = run.outputs[buffer.name].shape
                index = tuple(int(i) for i in np.unravel_index(int(np.argmax(differs)), shape)) if shape else ()
                expected, actual = (from_storage(a[buffer.name], buffer.dtype)[index] for a in (want, run.outputs))
                sizes = tuple(sorted(parent.size_env.items()))
                note = f"{int(np.count_nonzero(differs))} of {differs.size} elements differ"
                example = Counterexample(buffer.name, index, print_value(expected), print_value(actual), sizes, regime, seed, note)
                return TierReport(5, VerdictKind.NOT_EQUAL, f"{buffer.name} does not have the parent's bits on {regime} inputs", evidence, example)
    return TierReport(5, VerdictKind.OK, f"same bits in {len(regimes)} regimes, both {evidence['build']} builds", evidence)
