"""The comparison of one output of a child with what its root should give; the rules are those of :mod:`steptp.verify.tier4`."""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt
from typing import Any

import numpy as np
import numpy.typing as npt

from steptp.ir.nodes import Buffer
from steptp.ir.types import DType
from steptp.lower.shadow import SUBNORMAL
from steptp.verify.compiled import GuardedRun, kinds
from steptp.verify.tier4_inputs import BENIGN, EXTREME, NONFINITE
from steptp.verify.tier4_oracle import Reference, unit
from steptp.verify.verdict import VerdictKind

__all__ = ["ROOT_FACTOR", "SCALE_FACTOR", "Found", "compare"]

Array = npt.NDArray[Any]

ROOT_FACTOR = 4.0
"""C: how much worse than the compiled root a child may be."""
SCALE_FACTOR = 8.0
"""K: how many running error estimates are always allowed."""
_MOST_TYPICAL = 64.0
"""q counts no further: a root that is astray by more at one element in a hundred has left the range in which the estimate means anything."""
_NORMAL = {DType.BF16: 2.0**-126, DType.F32: 2.0**-126, DType.F64: 2.0**-1022}
_LARGEST = {DType.F16: 65504.0, DType.BF16: 3.3895313892515355e38, DType.F32: 3.4028234663852886e38, DType.F64: 1.7976931348623157e308}


@dataclass(slots=True)
class Found:
    """The comparison of one output: the worst wrong element, if any. ``condition``: the error estimate in units of the element's own rounding error;
    ``open``: elements at which the root determines no value."""

    kind: VerdictKind | None = None
    message: str = ""
    ratio: float = 0.0
    index: tuple[int, ...] = ()
    actual: Any = None
    tolerance: float = 0.0
    condition: float | None = None
    open: int = 0


def compare(buffer: Buffer, run: GuardedRun, known: Reference, regime: str, equal: bool = False) -> Found:
    """Judge one output of ``run``. ``equal``: the programs are known to be equal over the reals."""
    from steptp.lower.build import from_storage

    got = from_storage(run.outputs[buffer.name], buffer.dtype)
    want, root = known.oracle[buffer.name], known.root[buffer.name]
    found = Found()
    if not buffer.dtype.is_float:
        wrong = (got != want) & (got != root)
        _fail(found, wrong, got, VerdictKind.NOT_EQUAL if regime in BENIGN else VerdictKind.NUMERICALLY_UNSAFE, f"{buffer.name} differs")
        return found
    value = got.astype(np.float64)
    with np.errstate(all="ignore"):
        bound, scale = _bound(buffer, known, regime)
        away = np.abs(value - want)
        finite, sane = np.isfinite(want), np.isfinite(root)
        wrong = np.where(
            finite,
            _wrong_number(buffer, value, want, root, away, bound, scale, known.terms, regime),
            _wrong_kind(buffer, value, want, root, known, regime, equal),
        )
        judged = finite & sane & (away > 0) & np.isfinite(bound) & (wrong | (away <= bound))
        found.open = int(np.count_nonzero(np.isnan(want) | (finite & (~sane | np.isinf(bound)))))
        if judged.any():
            found.ratio = float(np.nanmax(np.where(judged, away / np.maximum(bound, np.finfo(np.float64).tiny), 0.0)))
        if known.exact:
            _fail(found, finite & (value != want), got, VerdictKind.NOT_EQUAL, f"{buffer.name} differs on integers that + - * compute exactly")
        if found.kind is None and regime in BENIGN and not equal:
            gross = wrong & finite & ~(away <= scale / np.sqrt(unit(buffer.dtype)))
            _fail(found, gross, got, VerdictKind.NOT_EQUAL, f"{buffer.name} is wrong on {regime} inputs", away)
        if found.kind is None:
            _fail(found, wrong, got, VerdictKind.NUMERICALLY_UNSAFE, f"{buffer.name} is less accurate than the root allows on {regime} inputs", away)
        if found.kind is not None:
            found.tolerance = float(bound[found.index])
            found.condition = float(scale[found.index] / (unit(buffer.dtype) * np.abs(want[found.index])))
    return found


def _wrong_number(buffer: Buffer, value: Array, want: Array, root: Array, away: Array, bound: Array, scale: Array, terms: int, regime: str) -> Array:
    """Where the oracle is finite. A child may leave the finite numbers only where the root does, where the magnitudes that it adds up do, or at
    the ends of the range where the root has lost the value itself;
    where the root does and the inputs are not at the ends of the range, a finite value must be right. Results among the subnormal numbers may be lost on
    inputs that are not, except in f16, whose subnormal numbers are everyday values."""
    sane, lost = np.isfinite(root), ~np.isfinite(value)
    one, largest = unit(buffer.dtype), _LARGEST[buffer.dtype]
    near: Array = (away <= bound) | np.isinf(bound)
    if regime in EXTREME:
        own = np.abs(root - want)
        excused = lost & ((scale >= one * largest * max(2.0, sqrt(terms) / 2)) | (own > np.minimum(np.abs(want) / 2, _MOST_TYPICAL * scale)))
        return np.asarray(sane & ~near & ~excused)
    if buffer.dtype in _NORMAL:
        least = _NORMAL[buffer.dtype]
        near = near | ((np.abs(want) < least) & (away <= least))
    return np.asarray(~near & (sane | ~lost))


def _wrong_kind(buffer: Buffer, value: Array, want: Array, root: Array, known: Reference, regime: str, equal: bool) -> Array:
    """Where the oracle is not finite: the child must be as the oracle is, or as the compiled root is. On inputs that are themselves infinite or NaN, equality
    over the reals says nothing about inf - inf: there an infinite value may also be NaN, and a step that rests on such equality may give anything for NaN."""
    like_oracle, like_root = kinds(value) == kinds(want), kinds(value) == kinds(root)
    if regime in NONFINITE:
        like_oracle = like_oracle | np.isnan(value) | (np.isnan(want) if equal else False)
    if regime in EXTREME:  # out of range in another order, and the f64 oracle of an f64 program has no more range than the program
        if buffer.dtype is DType.F64:
            return np.zeros(value.shape, bool)
        like_root = like_root | (~np.isfinite(root) & ~np.isfinite(value))
    far = np.isnan(want) & np.isfinite(root) & ~(np.abs(value - root) <= sqrt(unit(buffer.dtype)) * np.abs(root))
    wrong = ~like_oracle & (~like_root | far)
    unknown = known.open.get(buffer.name)
    return np.asarray(wrong if unknown is None else wrong & ~(unknown & np.isfinite(value)))


def _bound(buffer: Buffer, known: Reference, regime: str) -> tuple[Array, Array]:
    """The allowed distance from the oracle for each element, and the error scale ``e``."""
    if (kept := known.memo.get(f"bound {buffer.name}")) is None:
        kept = known.memo[f"bound {buffer.name}"] = _bound_of(buffer, known, regime)
    return kept


def _bound_of(buffer: Buffer, known: Reference, regime: str) -> tuple[Array, Array]:
    want, root, error = known.oracle[buffer.name], known.root[buffer.name], known.error[buffer.name]
    least = unit(buffer.dtype) * np.abs(want) + SUBNORMAL[buffer.dtype]
    scale = np.where(np.isnan(error), least, np.maximum(error, least))
    own = np.where(np.isfinite(root) & np.isfinite(want), np.abs(root - want), 0.0)
    ratios = own[scale > 0] / scale[scale > 0]
    ratios = ratios[np.isfinite(ratios)]
    typical = min(float(np.quantile(ratios, 0.99)), _MOST_TYPICAL) if ratios.size else 0.0
    # equal terms are all rounded the same way, so their errors grow with n, not sqrt(n)
    factor = max(SCALE_FACTOR, sqrt(known.terms) / 2) if regime == "constant_rows" else SCALE_FACTOR
    return ROOT_FACTOR * own + (factor + ROOT_FACTOR * typical) * scale, scale


def _fail(found: Found, wrong: Array, got: Array, kind: VerdictKind, message: str, away: Array | None = None) -> None:
    """Record the worst wrong element (NaN first), if there is one."""
    if not wrong.any():
        return
    size = np.where(wrong, np.where(np.isnan(away), np.inf, away), -1.0) if away is not None else wrong
    place = np.unravel_index(int(np.argmax(size)), wrong.shape) if wrong.shape else ()
    found.kind, found.index = kind, tuple(int(i) for i in place)
    found.message = f"{message}: {int(np.count_nonzero(wrong))} of {wrong.size} elements"
    found.actual = got[found.index]
