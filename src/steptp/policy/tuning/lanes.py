"""Goals within one nest: unit strides innermost, reductions with partial results in lanes, vectors, threads."""

from __future__ import annotations

from collections.abc import Iterator

from steptp.analysis.features import LoopFeatures
from steptp.policy.tuning.tiles import contractions, moved_to, split_to, tile_of
from steptp.policy.tuning.view import View, Work
from steptp.rewrite.base import Site

__all__ = ["along_rows", "partial_results", "shared_out", "vectors"]

_SHARE = 0.01  # part of the modelled time from which a store is worth a step
_FLIGHT = 4  # vector additions that a reduction keeps in flight
_WORTH = 40_000.0  # cycles of a nest that pay for starting threads


def _loose(view: View) -> Iterator[Work]:
    """Stores that matter and are no register tile, the heaviest first."""
    tiled = {w.path for w in contractions(view) if tile_of(view, w) is not None}
    for work in sorted(view.works, key=lambda w: -w.cycles):
        if work.own and work.path not in tiled and work.share >= _SHARE:
            yield work


def along_rows(view: View) -> Iterator[tuple[Site, str]]:
    """The loop with unit strides goes innermost."""
    for work in _loose(view):
        if all(ln.kind == "for" for ln in work.own) and len(work.own) > 1:
            best = max(work.own, key=lambda ln: (_even(work, ln), work.own.index(ln)))
            if _even(work, best) > _even(work, work.own[-1]) and best.extent >= view.host.lanes(work.itemsize):
                order = [ln.var for ln in work.own if ln is not best] + [best.var]
                yield from moved_to(view, work, order, "neighbouring elements are computed one after another")


def _even(work: Work, loop: LoopFeatures) -> int:
    """How well the accesses suit vectors along a loop: each one off the line costs more than several others gain, and a write gains most."""
    steps = [a.stride(loop.var) for a in work.row.accesses]
    return 2 * (steps[-1] == 1) + sum(s == 1 for s in steps[:-1]) - 4 * sum(s not in (0, 1) for s in steps)


def _lanes(view: View, work: Work, loop: LoopFeatures) -> int | None:
    """The widest multiple of a vector that divides the loop; ``None`` when none does."""
    lanes = view.host.lanes(work.itemsize)
    return next((n * lanes for n in (_FLIGHT, 2, 1) if loop.extent % (n * lanes) == 0), None)


def partial_results(view: View) -> Iterator[tuple[Site, str]]:
    """A reduction along contiguous elements keeps partial results in lanes."""
    for work in _loose(view):
        last = work.own[-1]
        if not work.reduces or last not in work.reductions or last.kind != "for" or any(r.stride(last.var) not in (0, 1) for r in work.reads):
            continue
        size = _lanes(view, work, last)
        if size is None or work.row.instances <= 0:
            continue
        if last.var in work.inner() and last.extent == size:
            yield Site.of("reduction_factorization", last.path), "partial results need not wait for each other"
        elif last.extent >= 2 * size:
            yield from split_to(view, last, size, "partial results, one a lane")


def vectors(view: View) -> Iterator[tuple[Site, str]]:
    """The innermost loop fills vectors."""
    for work in _loose(view):
        last = work.own[-1]
        if last.kind != "for" or last.carried != "none" or work.target.stride(last.var) != 1:
            continue
        size = _lanes(view, work, last)
        if size is None:
            continue
        if last.extent == size or (last.var in work.inner() and last.extent % view.host.lanes(work.itemsize) == 0):
            yield Site.of("loop_vectorization", last.path), "neighbouring elements in lanes"
        else:
            yield from split_to(view, last, size, "a few vectors at a time")


def shared_out(view: View) -> Iterator[tuple[Site, str]]:
    """The outermost loop of each nest that is worth it runs on all threads."""
    if view.threads < 2:
        return
    cycles: dict[int, float] = {}
    for w in view.works:
        cycles[w.top] = cycles.get(w.top, 0.0) + w.cycles
    for top in sorted(cycles, key=lambda t: -cycles[t]):
        loops = next((w.loops for w in view.works if w.top == top), ())
        if cycles[top] < _WORTH or any(ln.kind == "par" for w in view.works if w.top == top for ln in w.loops):
            continue
        for ln in loops:
            if ln.carried == "none" and ln.extent >= view.threads and ln.kind == "for":
                yield Site.of("loop_parallelization", ln.path), "iterations do not depend on each other"
                break
