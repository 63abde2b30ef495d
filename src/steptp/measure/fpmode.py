"""Is floating point in its default mode? A host library may switch denormals off for the whole process.

Shared libraries linked with fast-math set the flush-to-zero and denormals-are-zero bits of the thread that loads them.
The probe needs no access to the control register: it computes with subnormal numbers and looks at the results.
"""

from __future__ import annotations

import numpy as np

__all__ = ["denormals_work"]

_TINY32 = np.array([1e-40, 1.1754944e-38], dtype=np.float32)  # a subnormal, and the smallest normal f32
_HALF32 = np.array([1.0, 0.5], dtype=np.float32)
_TINY64 = np.array([5e-324, 2.2250738585072014e-308])
_HALF64 = np.array([1.0, 0.5])


def denormals_work() -> bool:
    """True when this thread neither flushes subnormal results to zero nor reads subnormal operands as zero (f32 and f64)."""
    single = _TINY32 * _HALF32
    double = _TINY64 * _HALF64
    python = 5e-324 + 5e-324
    return bool(single[0] == _TINY32[0] and single.all() and double.all() and python > 0.0 and single[0] > 0.0)
