"""Parallel loops under several thread counts: the same machine code must give the same bits whatever number of threads shares its iterations.

Tier 1 proves that there is no race. This is the check of what was compiled: one thread runs the iterations in their order, two and as many as the build asks for
share them (TVM's pool has at most one thread a processor). A race may still hide from a few runs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from steptp.ir.nodes import Loop
from steptp.ir.types import LoopKind
from steptp.ir.walk import visit
from steptp.verify.compiled import GuardedRun, bits_of, guarded_run

if TYPE_CHECKING:
    from steptp.lower.build import Built

__all__ = ["race"]


def race(built: Built, inputs: Mapping[str, npt.NDArray[Any]], known: GuardedRun) -> str:
    """The first thread count at which the outputs differ from ``known``, and the output, as text; empty without parallel loops or differences."""
    if built.threads < 2 or not any(isinstance(m.stmt, Loop) and m.stmt.kind is LoopKind.PARALLEL for m in visit(built.program)):
        return ""
    try:
        for threads in dict.fromkeys((1, 2, built.threads)):
            run = guarded_run(replace(built, threads=threads), inputs)
            for name, array in run.outputs.items():
                if not np.array_equal(bits_of(array), bits_of(known.outputs[name])):
                    return f"{name} under {threads} thread{'s' * (threads > 1)}"
    finally:
        built.configure()
    return ""
