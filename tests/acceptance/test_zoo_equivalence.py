"""Every workload of the zoo means the same to PyTorch, the NumPy evaluator and compiled code, and lowers the same way every time."""

from __future__ import annotations

import json
import random
import subprocess
import sys

import numpy as np
import pytest
from torch_agreement import assert_close

from steptp.frontend import zoo
from steptp.interp import evaluate
from steptp.ir import Buffer, parse, print_program
from steptp.lower import BuildOptions, build, structural_hash
from steptp.verify.compiled import bits_of, guarded_run
from steptp.verify.tier4 import ROOT_FACTOR, SCALE_FACTOR
from steptp.verify.tier4_oracle import Reference, reference

NAMES = zoo.names("tiny")
SAMPLE = sorted(random.Random(1).sample(NAMES, 25))

_HASHES = """
import json, sys
from steptp.ir import parse
from steptp.lower import structural_hash
print(json.dumps({name: structural_hash(parse(text)) for name, text in json.load(sys.stdin).items()}))
"""


def _agrees(name: str, regimes: tuple[str, ...]) -> None:
    """PyTorch against the evaluator, machine code (no FMA) too, the evaluator against the f64 oracle within the error bound of tier 4."""
    work = zoo.get(name, "tiny")
    program = work.program
    assert parse(print_program(program)) == program
    inputs = work.example_inputs(1)
    want, evaluated = work.reference(inputs), evaluate(program, inputs)
    plain = build(program, BuildOptions(fma=False, opt_level=1)).run(inputs)
    assert set(want) == set(evaluated) == set(plain)
    for buffer in program.outputs:
        assert_close(evaluated[buffer.name], want[buffer.name], buffer.dtype, 2)
        assert_close(plain[buffer.name], want[buffer.name], buffer.dtype, 2)
    run = guarded_run(build(program), inputs)
    assert run.damage == ""
    for regime in regimes:
        known = reference(program, regime, 1)
        ours = evaluate(program, known.inputs)
        for buffer in program.outputs:
            _within_tier4_bound(buffer, ours[buffer.name], known, regime)


def _within_tier4_bound(buffer: Buffer, ours: np.ndarray, known: Reference, regime: str) -> None:
    """The evaluator is as close to the f64 oracle as tier 4 wants a compiled program to be; equal where arithmetic is exact."""
    root, oracle = known.root[buffer.name], known.oracle[buffer.name]
    if not buffer.dtype.is_float:
        assert np.array_equal(ours, root), regime
        return
    value = ours.astype(np.float64)
    if known.exact:
        assert np.array_equal(value, oracle), regime
        return
    with np.errstate(all="ignore"):
        bound = SCALE_FACTOR * known.error[buffer.name] + ROOT_FACTOR * np.abs(root - oracle)
        judged = np.isfinite(oracle) & np.isfinite(root) & np.isfinite(bound)
        assert np.all(~judged | (np.abs(value - oracle) <= bound)), regime


def _hashes_elsewhere(names: list[str]) -> dict[str, str]:
    texts = {name: print_program(zoo.get(name, "tiny").program) for name in names}
    done = subprocess.run([sys.executable, "-c", _HASHES], input=json.dumps(texts), capture_output=True, text=True, check=True)
    found: dict[str, str] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize("name", SAMPLE)
def test_a_sample_means_the_same_to_everyone(name: str) -> None:
    _agrees(name, ("normal",))


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_every_workload_means_the_same_to_everyone(name: str) -> None:
    _agrees(name, ("normal", "ties", "large", "tiny"))


def test_a_sample_lowers_the_same_way_in_another_process() -> None:
    assert _hashes_elsewhere(SAMPLE[:5]) == {name: structural_hash(zoo.get(name, "tiny").program) for name in SAMPLE[:5]}


@pytest.mark.slow
def test_every_workload_lowers_the_same_way_in_another_process() -> None:
    names = list(NAMES)
    ours = {name: structural_hash(zoo.get(name, "tiny").program) for name in names}
    assert _hashes_elsewhere(names) == ours
    assert len(set(ours.values())) > len(names) // 2


def test_the_structural_hash_tells_programs_apart() -> None:
    hashes = {structural_hash(zoo.get(name, "tiny").program) for name in ("matmul", "softmax", "relu", "conv2d")}
    assert len(hashes) == 4


def test_evaluator_and_machine_code_have_the_same_bits_where_no_function_is_called() -> None:
    for name in ("matmul", "int_matmul", "max_pool2d"):
        work = zoo.get(name, "tiny")
        inputs = work.example_inputs(2)
        ours = evaluate(work.program, inputs)
        theirs = build(work.program, BuildOptions(fma=False, opt_level=1)).run(inputs)
        for buffer in work.program.outputs:
            assert np.array_equal(bits_of(ours[buffer.name]), bits_of(theirs[buffer.name])), name
