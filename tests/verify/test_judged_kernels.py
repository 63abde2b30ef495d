"""``steptp.verify``: every kind of reference and candidate it takes, tier by tier, and the errors of a bad reference."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
import tvm

import steptp
from steptp.errors import StepTPError
from steptp.ir import parse
from steptp.lower import build, export_library, lower_to_tir
from steptp.verify.kernel_judge import Subject
from steptp.verify.verdict import Verdict, VerdictKind

LINEAR = parse("in x f32[B=8,K=24] w[K,N=16]\nout Y[B,N]\nfor i j k Y[i,j]+=x[i,k]*w[k,j]\n")
BACKWARDS = "in x f32[B=8,K=24] w[K,N=16]\nout Y[B,N]\nfor i j k:K Y[i,j]+=x[i,K-1-k]*w[K-1-k,j]\n"
SHORT = "in x f32[B=8,K=24] w[K,N=16]\nout Y[B,N]\nfor i j:N k:K-1 Y[i,j]+=x[i,k]*w[k,j]\n"
REFERENCE_FILE = """
import torch

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.lin = torch.nn.Linear(16, 8)

    def forward(self, x):
        return torch.relu(self.lin(x))

def get_inputs():
    return [torch.randn(6, 16)]
"""
CANDIDATE_FILE = """
import torch
import numpy as np

class ModelNew(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.lin = torch.nn.Linear(16, 8)

    def forward(self, x):
        return torch.addmm(self.lin.bias, x, self.lin.weight.T).clamp(min=0)

class Other(torch.nn.Module):
    def forward(self, x):
        return x

def kernel(x, weight, bias):
    return torch.clamp(x @ weight.T + bias, min=0)

def arrays(x: np.ndarray, weight: np.ndarray, bias: np.ndarray):
    return np.maximum(x @ weight.T + bias, 0)

def forgets_the_bias(x, weight, bias):
    return torch.clamp(x @ weight.T, min=0)
"""


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lin = torch.nn.Linear(16, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.lin(x))


def verify(reference: Any, candidate: Any, **how: Any) -> Verdict:
    verdict: Verdict = steptp.verify(reference, candidate, **how)  # type: ignore[operator]
    return verdict


@pytest.fixture
def files(tmp_path: Path) -> Path:
    (tmp_path / "reference.py").write_text(REFERENCE_FILE)
    (tmp_path / "candidate.py").write_text(CANDIDATE_FILE)
    return tmp_path


def test_the_package_is_called_and_its_modules_stay_importable() -> None:
    code = "import steptp, sys; v = steptp.verify; assert 'torch' not in sys.modules; import steptp.verify.ladder; print(callable(v), v.ladder.ALL_TIERS)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["True", "(0,", "1,", "2,", "3,", "4,", "5)"]


def test_a_function_uses_a_module_objects_own_weights() -> None:
    net, x = Net(), torch.randn(6, 16)
    weight, bias = net.lin.weight.detach(), net.lin.bias.detach()
    verdict = verify(net, lambda x: (x @ weight.T + bias).clamp(min=0), inputs=x)
    assert verdict.ok, verdict.message
    assert [r.tier for r in verdict.reports] == [3, 4]
    assert "given" in verdict.reports[1].evidence["regimes"]  # type: ignore[operator]
    assert verdict.reports[1].evidence["fixed"] == ["lin_bias", "lin_weight"]
    assert int(str(verdict.reports[0].evidence["elements"])) > 10
    assert verify(net, lambda x: (x @ weight.T).clamp(min=0), inputs=x).kind is VerdictKind.NOT_EQUAL


def test_a_module_of_the_same_state_is_run_with_drawn_weights() -> None:
    verdict = verify(Net(), Net(), inputs=torch.randn(6, 16), bitwise=True)
    assert verdict.ok, verdict.message
    assert verdict.tier == 5
    assert verdict.reports[1].evidence["fixed"] == []


def test_equal_bits_are_asked_of_the_module_itself() -> None:
    net = Net()
    weight, bias = net.lin.weight.detach().double(), net.lin.bias.detach().double()
    verdict = verify(net, lambda x: (x.double() @ weight.T + bias).clamp(min=0).float(), inputs=torch.randn(6, 16), bitwise=True)
    assert verdict.kind is VerdictKind.NOT_EQUAL
    assert verdict.tier == 5
    assert verdict.counterexample is not None


@pytest.mark.parametrize(("name", "kind"), [("kernel", "ok"), ("arrays", "ok"), ("ModelNew", "ok"), ("forgets_the_bias", "not_equal"), ("Other", "malformed")])
def test_candidates_in_files(files: Path, name: str, kind: str) -> None:
    verdict = verify(f"{files}/reference.py:Model", f"{files}/candidate.py:{name}")
    assert str(verdict.kind) == kind, verdict.message


def test_a_candidate_file_that_cannot_be_read_is_malformed(files: Path) -> None:
    (files / "broken.py").write_text("def kernel(x:\n")
    for spec in ("broken.py:kernel", "candidate.py:nothing"):
        assert verify(f"{files}/reference.py:Model", f"{files}/{spec}").kind is VerdictKind.MALFORMED


def test_leir_candidates_climb_the_ladder(tmp_path: Path) -> None:
    (tmp_path / "back.leir").write_text(BACKWARDS)
    verdict = verify(LINEAR, tmp_path / "back.leir")
    assert verdict.ok, verdict.message
    assert [r.tier for r in verdict.reports] == [0, 1, 3, 4]
    assert verify(LINEAR, parse(SHORT)).tier == 3
    (tmp_path / "bad.leir").write_text("in x f32[\n")
    assert verify(LINEAR, f"{tmp_path}/bad.leir").kind is VerdictKind.MALFORMED


def test_numpy_functions_at_other_sizes() -> None:
    def kernel(x: npt.NDArray[np.float32], w: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
        assert x.shape == (3, 5)
        return x @ w

    given = {"x": np.ones((3, 5), np.float32), "w": np.ones((5, 4), np.float32)}
    verdict = verify(LINEAR, kernel, inputs=given)
    assert verdict.ok, verdict.message
    assert verify(LINEAR, lambda x, w: np.matmul(x, w), inputs=given, arrays="numpy").ok


def test_tvm_candidates_write_into_guarded_buffers(tmp_path: Path) -> None:
    from tvm.script import tirx as T

    @T.prim_func
    def matmul(a: T.handle, b: T.handle, c: T.handle) -> None:
        A = T.match_buffer(a, (8, 24), "float32")
        B = T.match_buffer(b, (24, 16), "float32")
        C = T.match_buffer(c, (8, 16), "float32")
        for i, j in T.grid(8, 16):
            C[i, j] = T.float32(0)
            for k in range(24):
                C[i, j] = C[i, j] + A[i, k] * B[k, j]

    verdict = verify(LINEAR, matmul)
    assert verdict.ok, verdict.message
    short = verify(LINEAR, lower_to_tir(parse(SHORT)))
    assert short.kind is VerdictKind.NOT_EQUAL, short.message
    library = tvm.runtime.load_module(str(export_library(LINEAR, tmp_path / "linear.so")))
    assert verify(LINEAR, library, bitwise=True).tier == 5
    past = parse("in x f32[8,24] w[24,16]\nout Y[8,16]\nfor i:8 j:16 k:24 Y[i,j]+=x[i,k]*w[k,j]\nfor i:1 Y[8,0]=3\n")
    assert verify(LINEAR, lower_to_tir(past)).kind is VerdictKind.UNSAFE_MEMORY


def test_threads_of_torch_and_tvm_work_in_the_child() -> None:
    torch.set_num_threads(2)
    big = parse("in x f32[64,4096]\nout Y[64,4096]\nfor i j Y[i,j]=x[i,j]*2+1\n")
    torch.ones(1 << 20).mul(2.0).sum()  # the parent's pools exist before the fork
    verdict = verify(big, lambda x: torch.add(x * 2, 1), timeout=30.0)
    assert verdict.ok, verdict.message
    program = parse("in x f32[64,4096]\nout Y[64,4096]\npar i for j Y[i,j]=x[i,j]*2+1\n")
    build(program).run({"x": np.ones((64, 4096), np.float32)})  # TVM's pool too
    assert verify(big, program, timeout=30.0).ok


def test_integer_and_bool_outputs_and_several_of_them() -> None:
    program = parse("in x f32[9,7] n i32[9,7] 0..5\nout Y bool[9,7] Z i32[9,7]\nfor i j Y[i,j]=x[i,j]>0\nfor i j Z[i,j]=n[i,j]*3\n")
    assert verify(program, lambda x, n: (x > 0, n * 3)).ok
    assert verify(program, lambda x, n: {"Y": x >= 0, "Z": n * 3}).kind is VerdictKind.NOT_EQUAL
    assert verify(program, lambda x, n: (x > 0, (n * 3).long())).kind is VerdictKind.MALFORMED


def test_half_width_types_keep_their_bits() -> None:
    program = parse("in x bf16[9,7]\nout Y[9,7]\nfor i j Y[i,j]=x[i,j]+x[i,j]\n")
    assert verify(program, lambda x: x + x).ok
    assert verify(program, lambda x: (x.float() * 2.02).bfloat16()).kind is not VerdictKind.OK


def test_an_oracle_that_exact_values_contradict_accepts_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    before = Subject.known

    def astray(self: Subject, inputs: Any, regime: str, seed: int) -> Any:
        known = before(self, inputs, regime, seed)
        known.oracle["Y"][0, 0] += 10 * max(known.error["Y"][0, 0], 2.0**-24 * abs(known.oracle["Y"][0, 0]))
        return known

    assert verify(LINEAR, torch.matmul).ok
    monkeypatch.setattr(Subject, "known", astray)
    verdict = verify(LINEAR, torch.matmul)
    assert (verdict.kind, verdict.tier) == (VerdictKind.UNKNOWN, 3)
    assert "Y[0, 0]" in verdict.message


@pytest.mark.parametrize(
    ("reference", "how", "code"),
    [
        (Net(), {}, "verify-inputs"),
        (Net, {}, "verify-reference"),
        (7, {}, "verify-reference"),
        (LINEAR, {"inputs": [np.ones((3, 5), np.float32)]}, "verify-inputs"),
        (LINEAR, {"inputs": [np.ones((3, 5), np.float32), np.ones((6, 5), np.float32)]}, "verify-inputs"),
        (LINEAR, {"arrays": "jax"}, "verify-arrays"),
        ("nothing.py:Model", {}, "frontend-file"),
        (torch.nn.BatchNorm1d(4), {"inputs": torch.randn(8, 4)}, "verify-state"),
    ],
)
def test_a_bad_reference_is_an_error(reference: Any, how: dict[str, Any], code: str) -> None:
    with pytest.raises(StepTPError) as err:
        verify(reference, lambda *a: a[0], **how)
    assert err.value.code == code
    assert err.value.hint or code != "verify-reference"


def test_what_cannot_be_called_is_malformed() -> None:
    assert verify(LINEAR, None).kind is VerdictKind.MALFORMED
