"""Paired timing of two programs: interleaved samples, fresh buffers each round, an interval, a label.

A *subject* makes a zero-argument call with buffers of its own at a seeded placement. Every round makes both subjects anew,
warms up, and takes samples in ABBA or BAAB order, so that drift cancels within a pair and placement averages
over rounds. One round gives one number, the median of its pairs' log ratios; the interval is Student's over rounds, trimmed
(buffer placement is the largest source of error between rounds). Sampling stops when the label is settled, the interval is narrow, or
the budget is spent. Times are nanoseconds of one call; ``ratio`` is parent / child, so above 1 the child is faster.
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Protocol, TypeAlias

from steptp.ir.seeds import derive_seed
from steptp.measure.stats import median, trimmed_interval

__all__ = ["Clock", "Call", "Subject", "TimingOptions", "PairedTiming", "time_pair", "label_of"]

Clock: TypeAlias = Callable[[], int]
Call: TypeAlias = Callable[[], object]


_LONG_NS = 2_000_000


class Subject(Protocol):
    """Makes a call with fresh buffers; ``placement`` seeds where they lie. The call keeps its buffers alive."""

    def __call__(self, placement: int) -> Call: ...


@dataclass(frozen=True, slots=True)
class TimingOptions:
    """How to time.

    ``sample_ns``: a sample repeats the call until about this long. ``rounds``, ``max_rounds``: fewest and most rounds, of at most ``pairs``
    pairs each (fewer when the fewest rounds would take more than a quarter of the budget).
    ``budget_s``: seconds after which no further round starts (once the fewest are done; ``few`` rounds when even those would
    take four times the budget). ``confidence`` of the interval. ``margin``: relative difference that two builds of one program can show
    (:func:`steptp.measure.margin.host_margin`). ``precision``: stop when the interval's half width is below this. ``cache``:
    ``warm`` as the previous call left it, ``cold`` after writing ``flush_bytes``.
    """

    sample_ns: int = 50_000
    rounds: int = 8
    max_rounds: int = 40
    pairs: int = 4
    few: int = 5
    budget_s: float = 0.25
    confidence: float = 0.99
    margin: float = 0.05
    precision: float = 0.004
    cache: str = "warm"
    flush_bytes: int = 64 << 20
    seed: int = 0


@dataclass(frozen=True, slots=True)
class PairedTiming:
    """What was measured. ``parent_ns`` and ``child_ns`` are the raw samples, nanoseconds a call, in the order taken, paired by position;
    ``round_pairs`` says how many pairs each round had. ``clock``: ``thread`` (CPU time of one thread) or ``wall``; ``seconds`` is by the same
    clock. ``exclusive``: no other worker ran meanwhile."""

    parent_ns: tuple[float, ...]
    child_ns: tuple[float, ...]
    round_pairs: tuple[int, ...]
    ratio: float
    ci_low: float
    ci_high: float
    label: str
    rounds: int
    repeats: tuple[int, int]
    cache: str
    host_margin: float
    confidence: float
    seed: int
    stopped: str
    seconds: float
    threads: int = 1
    exclusive: bool = False
    clock: str = "given"

    @property
    def parent_us(self) -> float:
        """Median microseconds of one parent call."""
        return median(self.parent_ns) / 1e3

    @property
    def child_us(self) -> float:
        """Median microseconds of one child call."""
        return median(self.child_ns) / 1e3

    def to_json(self) -> dict[str, object]:
        """Plain JSON values; samples rounded to 0.1 ns."""
        out: dict[str, object] = asdict(self)
        for key in ("parent_ns", "child_ns"):
            out[key] = [round(v, 1) for v in getattr(self, key)]
        return out


def label_of(ci_low: float, ci_high: float, margin: float) -> str:
    """``faster`` when even the lower bound exceeds 1 + margin, ``slower`` when the upper bound is below 1 / (1 + margin), else ``same``."""
    if ci_low > 1 + margin:
        return "faster"
    return "slower" if ci_high < 1 / (1 + margin) else "same"


class _Flusher:
    """Writes more bytes than the caches hold, so that the next call starts from memory."""

    def __init__(self, size: int) -> None:
        self.data = bytearray(size)
        self.turn = 0

    def __call__(self) -> None:
        self.turn = (self.turn + 1) % 256
        self.data[::64] = bytes([self.turn]) * len(range(0, len(self.data), 64))


def _sample(call: Call, repeats: int, clock: Clock, flush: _Flusher | None) -> float:
    if flush is not None:  # one cold call a sample
        flush()
        repeats = 1
    turns = range(repeats)
    start = clock()
    for _ in turns:
        call()
    return (clock() - start) / repeats


def _calibrate(call: Call, options: TimingOptions, clock: Clock) -> tuple[int, float]:
    """Repeats of a call that make one sample, and its estimated nanoseconds (the least of a few; one try when it is long)."""
    best, spent, tries = math.inf, 0.0, 0
    while tries < 3 or (spent < options.sample_ns and tries < 50):
        start = clock()
        call()
        took = max(clock() - start, 1)
        best, spent, tries = min(best, took), spent + took, tries + 1
        if took > _LONG_NS:
            break
    return max(1, math.ceil(options.sample_ns / best)), best


def _make(parent: Subject, child: Subject, rng: random.Random) -> tuple[Call, Call]:
    """Make both calls in random order: the allocator favours one of first and second."""
    seeds = rng.getrandbits(32), rng.getrandbits(32)
    if rng.random() < 0.5:
        first = parent(seeds[0])
        return first, child(seeds[1])
    second = child(seeds[1])
    return parent(seeds[0]), second


def time_pair(parent: Subject, child: Subject, options: TimingOptions, clock: Clock = time.perf_counter_ns) -> PairedTiming:
    """Time two subjects against each other; ``clock`` gives nanoseconds. Raises whatever a subject's call raises."""
    rng = random.Random(derive_seed("timing", options.seed))
    flush = _Flusher(options.flush_bytes) if options.cache == "cold" else None
    began = clock()
    parents: list[float] = []
    children: list[float] = []
    sizes: list[int] = []
    logs: list[float] = []
    repeats, pairs, pair_ns = (1, 1), 0, 0.0
    stopped = "rounds"
    for number in range(options.max_rounds):
        calls = _make(parent, child, rng)
        if number == 0:
            counts = [_calibrate(c, options, clock) for c in calls]
            repeats = counts[0][0], counts[1][0]
            pair_ns = sum(n * t for n, t in counts)
            pairs = max(1, min(options.pairs, int(options.budget_s * 1e9 / (4 * options.rounds) / pair_ns)))
        elif pair_ns < 2 * _LONG_NS:  # placing the buffers has touched them: long calls need no warm-up
            for call in calls if rng.random() < 0.5 else calls[::-1]:
                call()
        first = rng.random() < 0.5
        differences: list[float] = []
        for turn in range(pairs):
            order = (0, 1) if (turn % 2 == 0) == first else (1, 0)
            taken = {side: _sample(calls[side], repeats[side], clock, flush) for side in order}
            parents.append(taken[0])
            children.append(taken[1])
            differences.append(math.log(max(taken[0], 1e-3) / max(taken[1], 1e-3)))
        sizes.append(pairs)
        logs.append(median(differences))
        del calls
        done = _settled(logs, options, (clock() - began) / 1e9)
        if done:
            stopped = done
            break
    mean, low, high = trimmed_interval(logs, options.confidence)
    ratio, ci_low, ci_high = math.exp(mean), math.exp(low), math.exp(min(high, 700.0))
    label = label_of(ci_low, ci_high, options.margin)
    return PairedTiming(
        tuple(parents), tuple(children), tuple(sizes), ratio, ci_low, ci_high, label, len(logs), repeats,
        options.cache, options.margin, options.confidence, options.seed, stopped, (clock() - began) / 1e9,
    )  # fmt: skip


def _settled(logs: list[float], options: TimingOptions, spent: float) -> str:
    """Why to stop now, or an empty string."""
    if len(logs) < options.rounds:
        over = len(logs) >= options.few and spent * options.rounds / len(logs) > 4 * options.budget_s and spent > options.budget_s
        return "budget" if over else ""
    mean, low, high = trimmed_interval(logs, options.confidence)
    half, edge = 0.5 * (high - low), math.log1p(options.margin)
    if half <= options.precision:
        return "precision"
    if (low > edge or high < -edge) and half < 0.25 * abs(mean):
        return "label"
    if -edge < low and high < edge:
        return "label"
    return "budget" if spent >= options.budget_s else ""
