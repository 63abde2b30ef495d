"""Paired timing with a simulated clock: no real time is measured here."""

from __future__ import annotations

import json
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from steptp.measure.timing import Call, Subject, TimingOptions, label_of, time_pair


class Machine:
    """A simulated host: calls advance the clock. Placement, drift, noise and interruptions are seeded."""

    def __init__(self, seed: int, *, placement: float = 0.0, noise: float = 0.0, drift: float = 0.0, spike: float = 0.0) -> None:
        self.now = 0.0
        self.rng = random.Random(seed)
        self.placement, self.noise, self.drift, self.spike = placement, noise, drift, spike
        self.made: list[int] = []
        self.calls = 0

    def clock(self) -> int:
        return int(self.now)

    def subject(self, ns: float) -> Subject:
        def make(placement: int) -> Call:
            self.made.append(placement)
            factor = 1 + self.placement * random.Random(placement).gauss(0, 1)

            def call() -> None:
                self.calls += 1
                slow = 1 + self.drift * self.now / 1e9
                took = ns * factor * slow * (1 + self.noise * abs(self.rng.gauss(0, 1)))
                if self.rng.random() < self.spike:
                    took += 3e6
                self.now += took

            return call

        return make


OPTIONS = TimingOptions(margin=0.05, seed=3)


@pytest.mark.parametrize(("parent", "child", "label"), [(200e3, 100e3, "faster"), (100e3, 200e3, "slower"), (100e3, 100e3, "same"), (100e3, 97e3, "same")])
def test_labels_on_a_noisy_host(parent: float, child: float, label: str) -> None:
    host = Machine(1, placement=0.01, noise=0.03, drift=0.5, spike=0.01)
    timing = time_pair(host.subject(parent), host.subject(child), OPTIONS, host.clock)
    assert timing.label == label
    assert timing.ci_low <= timing.ratio <= timing.ci_high
    assert timing.ratio == pytest.approx(parent / child, rel=0.05)
    assert timing.parent_us == pytest.approx(parent / 1e3, rel=0.2)


def test_drift_cancels() -> None:
    """A host that slows down by half within the measurement gives no difference between equal programs."""
    host = Machine(2, drift=40.0)
    timing = time_pair(host.subject(100e3), host.subject(100e3), OPTIONS, host.clock)
    assert max(timing.parent_ns) > 1.3 * min(timing.parent_ns)
    assert timing.ratio == pytest.approx(1.0, abs=0.01)
    assert timing.label == "same"


def test_interruptions_do_not_move_the_ratio() -> None:
    host = Machine(3, noise=0.01, spike=0.08)
    timing = time_pair(host.subject(80e3), host.subject(80e3), OPTIONS, host.clock)
    assert timing.label == "same"
    assert timing.ratio == pytest.approx(1.0, abs=0.05)


def test_an_allocator_that_favours_the_first_does_not_favour_the_parent() -> None:
    """Every second set of buffers is 4 % slower: which program gets it must be chance."""
    host = Machine(9, noise=0.005)
    made = 0

    def subject(placement: int) -> Call:
        nonlocal made
        made += 1
        return host.subject(100e3 * (1.04 if made % 2 == 0 else 1.0))(placement)

    ratios = [time_pair(subject, subject, TimingOptions(margin=0.05, seed=seed), host.clock).ratio for seed in range(60)]
    assert sum(r > 1 for r in ratios) in range(18, 43)
    assert sum(ratios) / 60 == pytest.approx(1.0, abs=0.008)


def test_equal_programs_are_called_the_same() -> None:
    wrong = 0
    for seed in range(300):
        host = Machine(seed, placement=0.015, noise=0.03, spike=0.005)
        wrong += time_pair(host.subject(90e3), host.subject(90e3), TimingOptions(margin=0.05, seed=seed), host.clock).label != "same"
    assert wrong <= 1


def test_a_planted_slowdown_is_found() -> None:
    found = 0
    for seed in range(100):
        host = Machine(seed, placement=0.015, noise=0.03, spike=0.005)
        found += time_pair(host.subject(90e3), host.subject(99e3), TimingOptions(margin=0.05, seed=seed), host.clock).label == "slower"
    assert found >= 60  # 10 % slower at a margin of 5 %


def test_every_round_places_buffers_anew() -> None:
    host = Machine(4, placement=0.02, noise=0.02)
    timing = time_pair(host.subject(100e3), host.subject(100e3), OPTIONS, host.clock)
    assert timing.rounds >= OPTIONS.rounds
    assert len(host.made) == len(set(host.made)) == 2 * timing.rounds
    assert sum(timing.round_pairs) == len(timing.parent_ns) == len(timing.child_ns)


def test_samples_are_long_enough_and_long_calls_stay_within_budget() -> None:
    short, long = Machine(5), Machine(5)
    quick = time_pair(short.subject(2e3), short.subject(2e3), OPTIONS, short.clock)
    assert quick.repeats == (25, 25)
    slow = time_pair(long.subject(60e6), long.subject(60e6), OPTIONS, long.clock)
    assert slow.repeats == (1, 1)
    assert slow.rounds == 5
    assert slow.stopped == "budget"
    assert slow.seconds < 1.0


def test_stops_early_when_nothing_is_left_to_learn() -> None:
    host = Machine(6)
    timing = time_pair(host.subject(100e3), host.subject(100e3), OPTIONS, host.clock)
    assert (timing.stopped, timing.rounds) == ("precision", OPTIONS.rounds)


def test_same_seed_same_schedule() -> None:
    first, second = Machine(7, placement=0.01, noise=0.02), Machine(7, placement=0.01, noise=0.02)
    one = time_pair(first.subject(50e3), first.subject(40e3), OPTIONS, first.clock)
    two = time_pair(second.subject(50e3), second.subject(40e3), OPTIONS, second.clock)
    assert one == two
    assert json.loads(json.dumps(one.to_json()))["label"] == one.label


def test_cold_samples_are_single_calls() -> None:
    host = Machine(8)
    timing = time_pair(host.subject(1e3), host.subject(1e3), TimingOptions(cache="cold", flush_bytes=1 << 12, pairs=3), host.clock)
    assert timing.cache == "cold"
    assert timing.parent_ns[0] == pytest.approx(1e3, rel=0.01)


@given(st.floats(0.1, 10), st.floats(0, 3), st.floats(0, 0.5))
@settings(deadline=None)
def test_label_needs_the_whole_interval_beyond_the_margin(low: float, width: float, margin: float) -> None:
    label = label_of(low, low + width, margin)
    assert (label == "faster") == (low > 1 + margin)
    assert (label == "slower") == (low + width < 1 / (1 + margin) and low <= 1 + margin)
    mirrored = label_of(1 / (low + width), 1 / low, margin)
    if abs(low - 1 - margin) > 1e-9 and abs((low + width) * (1 + margin) - 1) > 1e-9:
        assert mirrored == {"faster": "slower", "slower": "faster", "same": "same"}[label]
