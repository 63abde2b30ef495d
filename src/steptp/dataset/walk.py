"""One seeded walk through the space of programs: sample candidates, choose, apply, verify (tiers 0 to 3), explain.

A walk depends on nothing but its task, so it gives the same records in any process and order.
Nothing compiled runs here: tiers 4 and 5 and the measurement follow in isolated workers.
"""

from __future__ import annotations

import json
import random
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from time import process_time
from typing import Any

from steptp.analysis.host import HostInfo
from steptp.dataset.robust import holds_up
from steptp.dataset.schema import step_id
from steptp.ir import Program, parse, print_program, program_hash, shape_hash
from steptp.ir.diff import diff_lines
from steptp.ir.seeds import derive_seed, digest
from steptp.reason import explain
from steptp.rewrite import engine
from steptp.rewrite.base import Applied, Exactness, NotApplicable, Site
from steptp.verify.ladder import verify_step
from steptp.verify.verdict import Verdict, VerdictKind, report_json

__all__ = ["WalkTask", "run_walk", "spread"]

MAX_CANDIDATES = 24


@dataclass(frozen=True)
class WalkTask:
    """Everything a walk depends on. ``weights`` are the quotas at planning time of the strategies that take part; ``host`` is a ``HostInfo`` dict."""

    key: str
    root_text: str
    seed: int
    depth: int
    siblings: int
    sibling_share: float
    refusal_share: float
    max_lines: int
    weights: Mapping[str, float]
    host: Mapping[str, Any]


@dataclass
class _Walk:
    task: WalkTask
    root: Program
    host: HostInfo
    steps: list[dict[str, Any]] = field(default_factory=list)
    programs: dict[str, dict[str, str]] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=lambda: defaultdict(float))


def run_walk(task: WalkTask) -> dict[str, Any]:
    """Take the walk; returns JSON-like ``{"steps": […], "programs": {hash: {"text", "shape"}}, "seconds": {stage: s}}``."""
    rng = random.Random(task.seed)
    program = parse(task.root_text)
    walk = _Walk(task, program, HostInfo.from_dict(dict(task.host)))
    here = _remember(walk, program)
    visited = {here}
    for depth in range(task.depth):
        began = process_time()
        listed = list_sites(program, task.weights, rng, MAX_CANDIDATES)
        walk.seconds["sites"] += process_time() - began
        candidates = spread(listed, rng, MAX_CANDIDATES)
        if rng.random() < task.refusal_share:
            _record_refusal(walk, program, listed, depth, rng)
        moved = None
        for site in _by_weight(candidates, task.weights, rng):
            moved = _try(walk, program, site, candidates, depth, "walk", "balanced-random", visited)
            if moved is not None:
                break
        if task.siblings and rng.random() < task.sibling_share:
            taken = {s["site"] for s in walk.steps if s["depth"] == depth and s["role"] == "walk"}
            others = [s for s in candidates if s.id not in taken][: max(task.siblings - 1, 0)]
            for site in others:
                _try(walk, program, site, candidates, depth, "sibling", "uniform-within-strategy", set())
        if moved is None or len(print_program(moved).splitlines()) > task.max_lines:
            break
        program = moved
        visited.add(program_hash(program))
    return {"steps": walk.steps, "programs": walk.programs, "seconds": dict(walk.seconds)}


def list_sites(program: Program, strategies: Iterable[str], rng: random.Random, enough: int) -> list[Site]:
    """Sites strategy by strategy in random order, until ``enough`` strategies have some: :func:`spread` takes one of each before it takes a second."""
    names = sorted(strategies)
    rng.shuffle(names)
    found: dict[str, tuple[Site, ...]] = {}
    for name in names:
        if sites := engine.sites(program, [name]).sites:
            found[name] = sites
        if len(found) == enough:
            break
    return [site for _, sites in sorted(found.items()) for site in sites]


def spread(sites: Sequence[Site], rng: random.Random, most: int) -> list[Site]:
    """Up to ``most`` sites, uniform within strategy and fair between strategies, in shuffled order."""
    by_strategy: dict[str, list[Site]] = defaultdict(list)
    for site in sites:
        by_strategy[site.strategy].append(site)
    queues = [rng.sample(group, len(group)) for _, group in sorted(by_strategy.items())]
    rng.shuffle(queues)
    picked: list[Site] = []
    while queues and len(picked) < most:
        queues = [q for q in queues if q]
        for queue in queues[: most - len(picked)]:
            picked.append(queue.pop())
    rng.shuffle(picked)
    return picked


def _by_weight(candidates: Sequence[Site], weights: Mapping[str, float], rng: random.Random) -> Iterator[Site]:
    """Candidates in random order, strategies drawn by weight, sites uniform within a strategy."""
    left = list(candidates)
    while left:
        counts: dict[str, int] = defaultdict(int)
        for site in left:
            counts[site.strategy] += 1
        shares = [max(weights.get(s.strategy, 1.0), 1e-6) / counts[s.strategy] for s in left]
        yield left.pop(rng.choices(range(len(left)), shares)[0])


def _remember(walk: _Walk, program: Program) -> str:
    name = program_hash(program)
    if name not in walk.programs:
        walk.programs[name] = {"text": print_program(program), "shape": shape_hash(program)}
    return name


def _try(walk: _Walk, parent: Program, site: Site, candidates: Sequence[Site], depth: int, role: str, rule: str, visited: set[str]) -> Program | None:
    """Apply, verify and record one step; returns the child when the step is verified and new."""
    began = process_time()
    outcome = engine.apply(parent, site)
    walk.seconds["apply"] += process_time() - began
    if isinstance(outcome, NotApplicable) or program_hash(outcome.program) in visited:
        return None
    known = walk.programs.get(program_hash(outcome.program))
    if known is not None and known["text"] != print_program(outcome.program):
        return None  # the same program under other names: one hash has one text
    seed = derive_seed(walk.task.seed, depth, site.id)
    verdict = verify_step(parent, outcome.program, applied=outcome, root=walk.root, seed=seed, build_tiers=False)
    for report in verdict.reports:
        walk.seconds[f"tier{report.tier}"] += report.seconds
    began = process_time()
    walk.steps.append(_draft(walk, parent, outcome, site, candidates, depth, role, rule, seed, verdict))
    walk.seconds["explain"] += process_time() - began
    if outcome.exactness is Exactness.ALGEBRAIC and verdict.ok and not holds_up(parent, outcome.program):
        return None  # recorded, and judged by tier 4
    return outcome.program if verdict.ok else None


def _draft(
    walk: _Walk, parent: Program, applied: Applied, site: Site, candidates: Sequence[Site],
    depth: int, role: str, rule: str, seed: int, verdict: Verdict,
) -> dict[str, Any]:  # fmt: skip
    before, after = _remember(walk, parent), _remember(walk, applied.program)
    why = explain(parent, applied, site, candidates=tuple(candidates), rule=rule, host=walk.host, seed=seed)
    return {
        "id": step_id(before, site.strategy, site.id, after),
        "parent": before,
        "child": after,
        "depth": depth,
        "role": role,
        "strategy": site.strategy,
        "site": site.id,
        "params": json.dumps(dict(site.params)),
        "exactness": str(applied.exactness),
        "verdict": str(verdict.kind),
        "tier": verdict.tier,
        "evidence": [report_json(r) for r in verdict.reports],
        "inverse": [s.id for s in applied.inverse],
        "changed_lines": sum(1 for line in diff_lines(parent, applied.program) if line.kind.value == "-"),
        "rule": rule,
        "candidates": [s.id for s in candidates],
        "reason": why.text,
        "reason_hash": digest(why.text),
        "facts": [{"kind": f.kind, "evidence": f.evidence, "values": dict(f.values)} for f in why.facts],
        "seed": seed,
    }


def _record_refusal(walk: _Walk, program: Program, sites: Sequence[Site], depth: int, rng: random.Random) -> None:
    """Propose a real site's move at a place where it is not listed, and keep the engine's reason."""
    listed = {s.id for s in sites}
    places = sorted({s.path for s in sites})
    for site in rng.sample(list(sites), min(len(sites), 12)):
        proposal = Site(site.strategy, rng.choice(places), site.params)
        if proposal.id in listed:
            continue
        outcome = engine.apply(program, proposal)
        if not isinstance(outcome, NotApplicable) or outcome.code in ("malformed", "internal", "no-op"):
            continue
        parent = _remember(walk, program)
        walk.steps.append(
            {
                "id": step_id(parent, proposal.strategy, proposal.id, ""), "parent": parent, "child": "", "depth": depth, "role": "refusal",
                "strategy": proposal.strategy, "site": proposal.id, "params": json.dumps(dict(proposal.params)), "exactness": "",
                "verdict": str(VerdictKind.ILLEGAL), "tier": 0, "evidence": [{"tier": 0, "kind": "illegal", "message": outcome.message, "evidence": {"code": outcome.code}}],
                "inverse": [], "changed_lines": 0, "rule": "moved-site", "candidates": [], "reason": outcome.message,
                "reason_hash": digest(outcome.message), "facts": [], "seed": walk.task.seed,
            }
        )  # fmt: skip
        return
