"""Traces: two written forms, replay in a fresh process, clear errors."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from rewrite_support import program

from steptp.errors import UsageError
from steptp.ir import print_program, program_hash
from steptp.rewrite import engine
from steptp.rewrite.trace import Step, Trace, replay

STEPS = ("loop_split@0.0.0:factor=4,tail=exact", "loop_reorder@0.0.0:to=1", "loop_parallelization@0", "loop_unrolling@0.0.0.0")


def _trace() -> tuple[Trace, str]:
    current = program("matmul")
    trace = Trace.start(current)
    for site in STEPS:
        current = engine.applied_or_raise(current, site).program
        trace = trace.then(site, current)
    return trace, print_program(current)


def test_both_forms_read_back() -> None:
    trace, _ = _trace()
    assert Trace.from_json(trace.to_json()) == trace
    assert Trace.from_text(trace.to_text()) == trace
    bare = Trace(trace.root_hash, trace.steps)
    assert Trace.from_text(bare.to_text()) == bare
    assert Trace.from_json(bare.to_json()) == bare


def test_replay_rebuilds_every_program() -> None:
    trace, last = _trace()
    done = replay(trace)
    assert print_program(done.last) == last
    assert [program_hash(p) for p in done.programs] == [trace.root_hash, *(s.child for s in trace.steps)]
    assert done.programs == replay(Trace(trace.root_hash, trace.steps), program("matmul")).programs


def test_replay_in_a_fresh_process(tmp_path: Path) -> None:
    trace, last = _trace()
    file = tmp_path / "trace.json"
    file.write_text(trace.to_json())
    code = (
        "import sys; from steptp.rewrite.trace import Trace, replay; from steptp.ir import print_program;"
        "print(print_program(replay(Trace.from_json(open(sys.argv[1]).read())).last), end='')"
    )
    for seed in ("0", "1"):  # the order of sets must not matter
        run = subprocess.run(
            [sys.executable, "-c", code, str(file)], capture_output=True, text=True, check=True, env={"PYTHONPATH": ":".join(sys.path), "PYTHONHASHSEED": seed}
        )
        assert run.stdout == last


def test_another_root_is_refused() -> None:
    trace, _ = _trace()
    with pytest.raises(UsageError) as err:
        replay(trace, program("softmax"))
    assert err.value.code == "usage-trace-root"


def test_a_missing_root_is_named() -> None:
    trace, _ = _trace()
    with pytest.raises(UsageError, match="does not hold its text"):
        replay(Trace(trace.root_hash, trace.steps))


def test_a_wrong_hash_names_the_step() -> None:
    trace, _ = _trace()
    steps = (trace.steps[0], Step(trace.steps[1].site, "0" * 16), *trace.steps[2:])
    with pytest.raises(UsageError, match="step 2") as err:
        replay(Trace(trace.root_hash, steps, trace.root))
    assert err.value.code == "usage-trace-hash"


def test_a_step_that_does_not_apply_gives_the_reason() -> None:
    trace, _ = _trace()
    with pytest.raises(UsageError, match=r"step 1 .*carries a dependence") as err:
        replay(Trace(trace.root_hash, (Step("loop_parallelization@0.0.0", ""),), trace.root))
    assert err.value.code == "usage-trace-step"


@pytest.mark.parametrize("text", ["", "{}", "[1]", '{"version":1}', '{"version":1,"root_hash":"a","steps":[1]}', '{"version":9}', "{"])
def test_malformed_json(text: str) -> None:
    with pytest.raises(UsageError, match="not a trace"):
        Trace.from_json(text)


@pytest.mark.parametrize(
    "text", ["", "# steptp trace 1", "# steptp trace 2\nroot a", "# steptp trace 1\nroot a\nstep b", "# steptp trace 1\nroot a\nhop b -> c"]
)
def test_malformed_text(text: str) -> None:
    with pytest.raises(UsageError, match="not a trace"):
        Trace.from_text(text)
