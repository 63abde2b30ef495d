"""How a plain program becomes a tuned one, as goals: each says which step brings a program closer to it, and the first goal that is not reached decides.

The order is that of Halide's and Ansor's sketches (Mullapudi et al. 2016; Zheng et al. 2020): what is computed at all, what is computed where, register tiles, lanes, threads.
Everything follows from loops, strides and sizes of the program at hand and from the host; nothing is remembered from one step to the next.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache

from steptp.analysis.host import HostInfo
from steptp.ir import parse, print_program, program_hash
from steptp.ir.nodes import Program
from steptp.policy.tuning import graph, lanes, tiles
from steptp.policy.tuning.view import View, after
from steptp.rewrite.base import Site

__all__ = ["CHOICES", "Way", "next_step", "way"]

CHOICES = 3
"""Register tiles that are tried, best first."""
_LONGEST = 96  # steps

Goal = Callable[[View], Iterator[tuple[Site, str]]]
GOALS: tuple[Goal, ...] = (
    graph.tidied, graph.inlined, graph.named, graph.tiled_consumers, graph.pulled, graph.fused, tiles.steps, lanes.along_rows, lanes.partial_results,
    lanes.vectors, lanes.shared_out,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Step:
    """The step that a goal asks for, why, and what it leads to."""

    site: Site
    why: str
    program: Program


@dataclass(frozen=True, slots=True)
class Way:
    """The steps from a program to where no goal asks for more."""

    steps: tuple[Step, ...]
    end: Program


def next_step(program: Program, host: HostInfo, threads: int, choice: int = 0) -> Step | None:
    """What the first goal asks for that is not reached; ``None`` at the end."""
    view = View(program, host, threads, choice)
    for goal in GOALS:
        for site, why in goal(view):
            if (made := after(program, site)) is not None:
                return Step(site, why, made)
    return None


@lru_cache(maxsize=4096)
def _kept(text: str, host: HostInfo, threads: int, choice: int) -> Step | None:
    return next_step(parse(text), host, threads, choice)


def way(program: Program, host: HostInfo, threads: int, choice: int = 0) -> Way:
    """All steps to the end. What is found for a program is kept, so that the next state of a search costs little."""
    out: list[Step] = []
    here, seen = program, {program_hash(program)}
    while len(out) < _LONGEST:
        step = _kept(print_program(here), host, threads, choice)
        if step is None or program_hash(step.program) in seen:
            break
        out.append(step)
        here = step.program
        seen.add(program_hash(here))
    return Way(tuple(out), here)
