"""Built programs as subjects: placement, outputs that are looked at, whole measurements in a worker. No figure is asserted."""

from __future__ import annotations

import functools
from dataclasses import replace

import numpy as np
import pytest

from steptp.ir import parse
from steptp.lower.build import Built, build
from steptp.measure.pool import Pool
from steptp.measure.probes import PROBES, probe, probe_inputs
from steptp.measure.subjects import BuiltSubject, TimingError, measure_pair, placed, time_programs, uses_threads
from steptp.measure.timing import PairedTiming, TimingOptions

QUICK = TimingOptions(sample_ns=1000, rounds=3, max_rounds=3, pairs=2, budget_s=0.05)


@pytest.mark.parametrize("line", [0, 1, 63])
def test_arrays_lie_where_they_are_put(line: int) -> None:
    for dtype, poison in ((np.float32, np.nan), (np.int32, -1), (np.bool_, True), (np.uint16, 0xFFFF)):
        array = placed((3, 5), dtype, line)
        assert array.ctypes.data % 4096 == 64 * line
        assert array.flags.c_contiguous
        assert np.array_equal(array, np.full((3, 5), poison, dtype), equal_nan=dtype is np.float32)


@pytest.mark.parametrize("name", sorted(PROBES))
def test_probes_run_and_compute(name: str) -> None:
    program = probe(name)
    built = build(program)
    inputs = probe_inputs(program, 1)
    subject = BuiltSubject(built, inputs)
    subject(3)()
    subject(4)()
    subject.check()
    expected = built.run(inputs)
    assert subject._first is not None
    for buffer, value in zip(program.outputs, subject._first, strict=True):
        assert np.array_equal(value, expected[buffer.name])
        assert np.isfinite(value).all()


def test_rows_scale_the_outer_loop() -> None:
    assert probe("axpy", 1.5).size_env["N"] == 1.5 * probe("axpy").size_env["N"]


class Fickle:
    """Stands for compiled code that computes only when it wants to."""

    def __init__(self, built: Built, skip_from: int) -> None:
        self.built, self.skip_from, self.calls = built, skip_from, 0

    def __call__(self, *arguments: object) -> None:
        self.calls += 1
        if self.calls < self.skip_from:
            self.built.entry(*arguments)


def test_skipped_work_is_noticed() -> None:
    built = build(probe("axpy"))
    inputs = probe_inputs(built.program, 0)
    honest = measure_pair(built, built, inputs, QUICK)
    lazy = replace(built, entry=Fickle(built, 6))
    with pytest.raises(TimingError) as caught:
        measure_pair(built, lazy, inputs, replace(QUICK, seed=honest.seed))
    assert caught.value.code == "measure-outputs"


def test_a_pair_of_programs() -> None:
    fast = parse(PROBES["matmul"])
    slow = parse(PROBES["matmul"].replace("for i:N k:K j:L", "for i:N j:L k:K"))
    timing = time_programs(fast, slow, probe_inputs(fast, 0), 7, options=QUICK)
    assert timing.seed == 7
    assert (timing.threads, timing.clock) == (1, "thread")
    assert timing.ci_low <= timing.ratio <= timing.ci_high
    assert min(*timing.parent_ns, *timing.child_ns) > 0


def test_threads_and_exclusive_are_recorded() -> None:
    text = PROBES["axpy"].replace("for i:N j:M", "par i:N for j:M")
    assert uses_threads(parse(text))
    assert not uses_threads(parse(PROBES["axpy"]))
    program = parse(text)
    alone = time_programs(program, program, probe_inputs(program, 0), 0, options=QUICK)
    assert not alone.exclusive  # no pool to be alone in
    with Pool(1) as pool:
        job = functools.partial(time_programs, program, program, probe_inputs(program, 0), options=QUICK)
        result = pool.submit(run_partial, job).result()
    assert isinstance(result.value, PairedTiming), result
    assert result.value.exclusive == (result.value.threads > 1) == (result.value.clock == "wall")


def run_partial(job: functools.partial[PairedTiming]) -> PairedTiming:
    return job(seed=0)
