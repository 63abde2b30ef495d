"""Tier 5: a step that claims ``bitwise`` gives the parent's bits.

Both programs are built without FMA contraction: TVM's default fuses ``a*b+c`` wherever the two meet, so inlining a product would
change its result. Outputs are compared bit for bit, all NaN counting as one. Release builds are judged by tier 4.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

import numpy as np
import numpy.typing as npt

from steptp.ir.nodes import Program
from steptp.ir.types import DType
from steptp.verify.compiled import GuardedRun, bits_of, guarded_run, print_value
from steptp.verify.tier4_inputs import make_inputs, work
from steptp.verify.verdict import Counterexample, TierReport, VerdictKind

__all__ = ["TIER5_REGIMES", "tier5"]

Array = npt.NDArray[Any]
TIER5_REGIMES = ("normal", "mixed", "special", "denormal")
_SMALL = 2e6  # stores: below, compiling costs more than running unoptimised code
_PARENTS: OrderedDict[tuple[Program, str, int], dict[str, Array]] = OrderedDict()
_PARENTS_LIMIT = 16


def tier5(parent: Program, child: Program, *, seed: int = 0) -> TierReport:
    """Compare all outputs at real sizes in the regimes of :data:`TIER5_REGIMES`; the first differing bit is ``not_equal``.

    Raises :class:`steptp.lower.BuildError` ``build-failed``.
    """
    from steptp.lower import BuildOptions, build
    from steptp.lower.build import from_storage

    load = work(parent)
    options = BuildOptions(fma=False, opt_level=0 if load < _SMALL else 3)
    regimes = TIER5_REGIMES if load < 5e8 else TIER5_REGIMES[:2]
    evidence: dict[str, object] = {"build": "no-fma", "opt_level": options.opt_level, "regimes": list(regimes), "seed": seed}
    built = build(child, options)
    for regime in regimes:
        inputs = make_inputs(parent, regime, seed)
        want = _parent_outputs(parent, options, inputs, regime, seed)
        run: GuardedRun = guarded_run(built, inputs)
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
    return TierReport(5, VerdictKind.OK, f"same bits in {len(regimes)} regimes, both built without FMA", evidence)


def _parent_outputs(parent: Program, options: Any, inputs: dict[str, Array], regime: str, seed: int) -> dict[str, Array]:
    """The parent's outputs; its children come one after another, so the last few are kept."""
    from steptp.lower import build

    key = (parent, regime, seed)
    if (known := _PARENTS.get(key)) is not None:
        _PARENTS.move_to_end(key)
        return known
    outputs = guarded_run(build(parent, options), inputs).outputs
    _PARENTS[key] = outputs
    if len(_PARENTS) > _PARENTS_LIMIT:
        _PARENTS.popitem(last=False)
    return outputs
