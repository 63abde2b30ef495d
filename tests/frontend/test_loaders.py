from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from torch_agreement import shape_text, sizes_of

from steptp.errors import FrontendError, LeirError, StepTPError
from steptp.frontend import load_workload
from steptp.frontend.einsum import parse_einsum
from steptp.interp import evaluate
from steptp.ir import parse, print_program

MODEL = """
import torch
from torch import nn

class Model(nn.Module):
    def __init__(self, width, bias=True):
        super().__init__()
        self.linear = nn.Linear(width, 2 * width, bias)

    def forward(self, x):
        return torch.relu(self.linear(x))

class Own(nn.Module):
    example_inputs = (torch.ones(2, 3),)

    def forward(self, x):
        return x.exp()

class Drop(Own):
    def forward(self, x):
        return nn.functional.dropout(x, 0.5, self.training)

class Noise(Own):
    def forward(self, x):
        return x + torch.randn_like(x)

class Branch(Own):
    def forward(self, x):
        if x.sum() > 0:
            return x
        return -x

class Item(Own):
    def forward(self, x):
        return x * x.max().item()

class Masked(Own):
    def forward(self, x):
        return x[x > 0]

class Changes(Own):
    def forward(self, x):
        x.add_(1)
        return x * 2

class Sorts(Own):
    def forward(self, x):
        y = x + 1
        return torch.sort(y)[0]

class Wrong(Own):
    def forward(self, x):
        return x @ torch.ones(99, 3)

class Nothing(Own):
    def forward(self, x):
        return None

class Number(Own):
    def forward(self, x):
        return x, 3

class Complex(Own):
    def forward(self, x):
        return torch.view_as_real(torch.complex(x, x))

class Bytes(Own):
    def forward(self, x):
        return (x.to(torch.uint8) + 1).float()

class Fails(Own):
    def __init__(self):
        raise ValueError("no such option")

class BadInputs(nn.Module):
    def example_inputs():
        raise KeyError("x")

class Power(Own):
    def forward(self, x):
        return x.long() ** x.long()
"""


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "model.py"
    path.write_text(MODEL)
    return path


def _error(spec: str) -> StepTPError:
    with pytest.raises(StepTPError) as caught:
        load_workload(spec)
    return caught.value


def test_a_class_with_the_benchmark_convention_loads(tmp_path: Path) -> None:
    path = tmp_path / "problem.py"
    path.write_text(MODEL + "\ndef get_inputs():\n    return [torch.rand(4, 3)]\n\ndef get_init_inputs():\n    return [3]\n")
    work = load_workload(f"{path}:Model")
    assert sizes_of(work.program) == "N=4 K=3 M=6"
    assert [shape_text(work.program, b.name) for b in work.program.inputs] == ["N,K", "M,K", "M"]
    assert load_workload(f"{path}:Model") is work
    inputs = work.example_inputs()
    assert np.allclose(evaluate(work.program, inputs)["Y"], work.reference(inputs)["Y"], atol=1e-6)
    assert work.source.startswith("\nimport torch")
    assert work.kind == "module"
    path.write_text(path.read_text().replace("2 * width", "5 * width"))
    assert load_workload(f"{path}:Model").program != work.program


def test_a_class_with_its_own_inputs_loads(model: Path) -> None:
    assert "exp(x[i,j])" in print_program(load_workload(f"{model}:Own").program)


@pytest.mark.parametrize(
    ("name", "code", "line", "words"),
    [
        ("Drop", "frontend-random", "nn.functional.dropout", "eval()"),
        ("Noise", "frontend-random", "torch.randn_like(x)", "input of forward"),
        ("Branch", "frontend-control-flow", "if x.sum() > 0:", "torch.where"),
        ("Item", "frontend-control-flow", ".item()", "torch.where"),
        ("Masked", "frontend-control-flow", "x[x > 0]", "masks"),
        ("Changes", "frontend-mutation", "x.add_(1)", "clone"),
        ("Sorts", "frontend-op", "torch.sort(y)", "docs/adding-an-op.md"),
        ("Wrong", "frontend-export", "torch.ones(99, 3)", "example inputs"),
        ("Nothing", "frontend-no-output", "", "return a tensor"),
        ("Number", "frontend-no-output", "", "tensors only"),
        ("Complex", "frontend-dtype", "torch.complex(x, x)", "imaginary"),
        ("Bytes", "frontend-dtype", "torch.uint8", "f16, bf16"),
        ("Fails", "frontend-constructor", "no such option", "get_init_inputs"),
        ("BadInputs", "frontend-inputs", 'KeyError("x")', ""),
        ("Power", "frontend-op-form", "x.long() ** x.long()", "float dtype"),
        ("Model", "frontend-inputs", "", "get_inputs"),
        ("Modle", "frontend-class", "", "did you mean Model?"),
    ],
)
def test_errors_say_where_and_what_to_do(model: Path, name: str, code: str, line: str, words: str) -> None:
    error = _error(f"{model}:{name}")
    assert error.code == code
    shown = error.render()
    assert line in shown
    assert words in shown


def test_missing_files_and_unclear_names(model: Path) -> None:
    error = _error(str(model.with_name("modle.py")) + ":Model")
    assert (error.code, "model.py" in error.hint) == ("frontend-file", True)
    assert _error("nowhere.at.all:Model").code == "frontend-file"
    assert _error("/no/such/folder/model.py:Model").code == "frontend-file"
    assert _error("model").code == "frontend-spec"
    assert _error("a.leir").code == "frontend-file"
    assert _error("torch.nn:Linear").code == "frontend-inputs"
    model.write_text("x = 1 / 0\n")
    error = _error(f"{model}:Model")
    assert error.code == "frontend-file"
    assert "x = 1 / 0" in error.render()


def test_leir_files_load(tmp_path: Path) -> None:
    path = tmp_path / "scale.leir"
    path.write_text("size N=4\nin x f32[N]\nout y f32[N]\nfor i:N y[i] = x[i]*2\n")
    work = load_workload(str(path))
    assert (work.name, work.kind) == ("scale", "leir")
    inputs = work.example_inputs()
    assert np.array_equal(evaluate(work.program, inputs)["y"], inputs["x"] * np.float32(2))
    path.write_text("size N=4\nin x f32[N]\nout y f32[N]\nfor i:N y[i] = z[i]\n")
    with pytest.raises(LeirError) as caught:
        load_workload(str(path))
    assert "scale.leir" in caught.value.render()


@pytest.mark.parametrize(
    ("text", "shapes"),
    [
        ("ij,jk->ik@i=4,j=5,k=6", [(4, 5), (5, 6)]),
        ("bij, bjk -> bik @ 2x3x4, 2x4x5", [(2, 3, 4), (2, 4, 5)]),
        ("i->@7", [(7,)]),
        ("ii@3x3", [(3, 3)]),
    ],
)
def test_einsum_sizes_are_read(text: str, shapes: list[tuple[int, ...]]) -> None:
    assert parse_einsum(text)[1] == shapes


@pytest.mark.parametrize(
    "text",
    [
        "ij,jk->ik",
        "ij@",
        "i1->i@3",
        "ij,jk->ik@i=4,j=5",
        "ij->i@i=4,j=5,q=1",
        "ij->ik@2x3",
        "ij,jk@2x3",
        "ij@2",
        "ij,jk@2x3,4x5",
        "ij@i=x,j=2",
        "ij->ii@2x3",
        "ij@-1x2",
    ],
)
def test_bad_einsum_texts_are_refused(text: str) -> None:
    assert _error(f"einsum:{text}").code == "frontend-einsum"


def test_an_einsum_loads() -> None:
    work = load_workload("einsum:ij,jk->ik@i=4,j=3,k=3")
    text = print_program(work.program)
    assert parse(text) == work.program
    assert "for i j k Y[i,j]+=x0[i,k]*x1[k,j]" in text
    assert sizes_of(work.program) == "N=4 K=3 M=3"
    inputs = work.example_inputs()
    assert np.allclose(evaluate(work.program, inputs)["Y"], work.reference(inputs)["Y"], atol=1e-6)


def test_frontend_errors_keep_their_place_across_processes(model: Path) -> None:
    import pickle

    error = _error(f"{model}:Sorts")
    assert isinstance(error, FrontendError)
    again = pickle.loads(pickle.dumps(error))
    assert again.render() == error.render()
