"""The default policy: rank the engine's sites by a roofline model of what they lead to, on this host.

What a step prepares counts as well as what it does: a split by the vector width of the unit-stride loop makes nothing faster, and the next step does. Such
steps get a fixed credit. Ties go to program order, so equal states get equal answers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from steptp.analysis.features import Features, LoopFeatures, features
from steptp.analysis.host import HostInfo
from steptp.errors import LeirError
from steptp.ir.nodes import Program
from steptp.policy.roofline import predicted_cycles
from steptp.rewrite import engine
from steptp.rewrite.base import NotApplicable, Site
from steptp.search.moves import Action, Answer, Proposal
from steptp.search.policy import State

__all__ = ["POLICY", "Heuristic"]

_FUSING = ("compute_inline", "epilogue_fusion", "loop_fusion", "operator_fusion", "online_softmax", "common_subexpression_elimination")
_LOCAL = ("cache_read_write", "cache_write", "compute_at", "loop_invariant_code_motion", "reverse_compute_at")
_LOOPS = ("loop_parallelization", "loop_reorder", "loop_split", "loop_tiling", "loop_unrolling", "loop_vectorization")
_CREDIT = {"loop_vectorization": 0.7, "loop_parallelization": 0.9, "loop_split": 0.95, "loop_unrolling": 0.9, "cache_read_write": 0.85, "cache_write": 0.85}
_LIMIT = 160  # sites listed
_LOOK = 72  # sites carried out for a look


class Heuristic:
    """Looks one step ahead with :func:`predicted_cycles`; at most two of a strategy among the first ``k``."""

    name = "heuristic"

    @property
    def settings(self) -> dict[str, Any]:
        return {}

    def propose(self, state: State, k: int) -> Sequence[Answer]:
        ranked = _ranked(state.program, state.host, state.threads, state.tried)
        now = predicted_cycles(state.program, state.host, state.threads)
        return [Proposal(Action(site.id), reason=_reason(cycles, now)) for cycles, site in _varied(ranked, k)]

    def tokens_at_most(self, state: State, k: int) -> int:
        return 0


def _reason(cycles: float, now: float) -> str:
    return f"the roofline model expects {now / max(cycles, 1.0):.2f} times the speed" if cycles < now else "it prepares later steps"


def _ranked(program: Program, host: HostInfo, threads: int, tried: frozenset[str]) -> list[tuple[float, Site]]:
    """(modelled cycles, site), most promising first."""
    now = features(program)
    scored: list[tuple[float, int, float, Site]] = []
    candidates = [s for s in _candidates(program, now, host) if s.id not in tried]
    for n, site in enumerate(candidates[:_LOOK]):
        outcome = engine.apply(program, site)
        if isinstance(outcome, NotApplicable):
            continue
        try:
            cycles = predicted_cycles(outcome.program, host, threads)
        except LeirError:
            continue
        scored.append((cycles * _credit(site, now), n, cycles, site))
    return [(cycles, site) for _, _, cycles, site in sorted(scored, key=lambda row: row[:2])]


def _candidates(program: Program, now: Features, host: HostInfo) -> Iterator[Site]:
    """Sites worth a look: fusions anywhere, then the loops of the nest that does most of the work, then local copies there."""
    yield from engine.sites(program, _FUSING, limit=_LIMIT // 4)
    loops = {ln.path: ln for ln in now.loops}
    for name in ("loop_vectorization", "loop_parallelization", "loop_reorder", "loop_unrolling", "loop_tiling", "loop_split"):
        taken = 0
        for site in engine.sites(program, [name], limit=_LIMIT):
            if site.path[:1] == now.dominating[:1] and taken < 16 and _sensible(site, loops.get(site.path), now, host):
                taken += 1
                yield site
    yield from (s for s in engine.sites(program, _LOCAL, limit=_LIMIT // 4) if s.path[:1] in (now.dominating[:1], ()))


def _sensible(site: Site, loop: LoopFeatures | None, now: Features, host: HostInfo) -> bool:
    params = dict(site.params)
    if loop is None:
        return True
    if site.strategy == "loop_split":
        lanes = host.lanes(4)
        return params.get("tail") == "exact" and params.get("factor") in (lanes, 2 * lanes, 4, 4 * lanes, 64)
    if site.strategy == "loop_tiling":
        return params.get("tail") == "exact"
    if site.strategy == "loop_parallelization":
        return not any(site.path[: len(ln.path)] == ln.path and ln.carried == "none" for ln in now.loops if len(ln.path) < len(site.path))
    if site.strategy == "loop_unrolling":
        return loop.extent <= 16
    return True


def _credit(site: Site, now: Features) -> float:
    """Below 1 for steps that pay off more than the model can see: vectors, threads, what prepares them, and accumulators out of memory."""
    if site.strategy == "loop_split":
        loop = next((ln for ln in now.loops if ln.path == site.path), None)
        return _CREDIT["loop_split"] if loop is not None and loop.carried == "none" and loop.kind == "serial" else 1.0
    return _CREDIT.get(site.strategy, 1.0)


def _varied(ranked: list[tuple[float, Site]], k: int) -> list[tuple[float, Site]]:
    """The first ``k``, at most two of a strategy while others are left."""
    first: list[tuple[float, Site]] = []
    later: list[tuple[float, Site]] = []
    for row in ranked:
        (first if sum(s.strategy == row[1].strategy for _, s in first) < 2 else later).append(row)
    return [*first, *later][:k]


POLICY = Heuristic
