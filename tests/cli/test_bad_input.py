"""What goes in may be wrong in many ways; each gets a message with a code, a place where there is one, and what to do."""

from __future__ import annotations

import fcntl
import random
from pathlib import Path

import pytest
from cli_run import MATMUL, Ran, steptp

MODULES = """import torch
from torch import nn


class Transform(nn.Module):
    def forward(self, x):
        y = x * 2
        return torch.fft.fft(y).real


class Singular(nn.Module):
    def forward(self, x):
        return torch.linalg.svd(x)[1]


class Empty(nn.Module):
    pass


class Branch(nn.Module):
    def forward(self, x):
        if x.sum() > 0:
            return x * 2
        return x


class Loop(nn.Module):
    def forward(self, x):
        while x.max() > 1:
            x = x / 2
        return x


class Whole(nn.Module):
    def forward(self, x):
        return x.to(torch.int64) * 3


class Half(nn.Module):
    def forward(self, x):
        return torch.softmax(x.half(), -1)


class Wide(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(n))

    def forward(self, x):
        return x * self.weight


class Mismatch(nn.Module):
    def forward(self, x):
        return x @ torch.ones(3, 3)


class Plain:
    pass


def get_inputs():
    return [torch.randn(4, 8)]
"""


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "model.py"
    path.write_text(MODULES)
    return path


def _line(text: str) -> int:
    return next(n for n, line in enumerate(MODULES.splitlines(), 1) if text in line)


def _is_error(ran: Ran, code: str) -> None:
    assert ran.code == 2, (ran.out, ran.err)
    assert ran.out == ""
    assert ran.err.startswith(f"error[{code}]"), ran.err


@pytest.mark.parametrize(
    ("name", "code", "text", "says", "hint"),
    [
        ("Transform", "frontend-dtype", "torch.fft.fft(y)", "fft", "split it"),
        ("Singular", "frontend-op", "torch.linalg.svd", "svd", "other operators"),
        ("Branch", "frontend-control-flow", "if x.sum()", "depends on the values of a tensor", "torch.where"),
        ("Loop", "frontend-control-flow", "while x.max()", "depends on the values of a tensor", "torch.where"),
        ("Mismatch", "frontend-export", "torch.ones(3, 3)", "running Mismatch", "example inputs"),
    ],
)
def test_the_place_in_the_users_source_is_shown(model: Path, name: str, code: str, text: str, says: str, hint: str) -> None:
    ran = steptp("sites", f"{model}:{name}")
    _is_error(ran, code)
    first, shown, caret, last, *_ = ran.err.splitlines()
    assert f"{model}:{_line(text)}:" in first
    assert says in first
    assert text in shown
    assert set(caret.strip()) == {"^"}
    assert last.startswith("hint: ")
    assert hint in last


@pytest.mark.parametrize(
    ("name", "code", "says", "hint"),
    [
        ("Empty", "frontend-export", "forward", "forward()"),
        ("Wide", "frontend-constructor", "missing 1 required positional argument", "get_init_inputs"),
        ("Plain", "frontend-class", "not a torch.nn.Module", "subclass"),
        ("Brunch", "frontend-class", "model.py has no class Brunch", "did you mean Branch?"),
    ],
)
def test_a_class_that_cannot_be_used(model: Path, name: str, code: str, says: str, hint: str) -> None:
    ran = steptp("lower", f"{model}:{name}")
    _is_error(ran, code)
    assert says in ran.err
    assert hint in ran.err.split("hint: ")[1]


@pytest.mark.parametrize(("name", "dtype"), [("Whole", "i64"), ("Half", "f16")])
def test_integers_and_halves_are_translated(model: Path, name: str, dtype: str) -> None:
    ran = steptp("lower", f"{model}:{name}", "--emit", "leir")
    assert ran.code == 0, ran.err
    assert dtype in ran.out


@pytest.mark.parametrize(
    ("spec", "code", "says"),
    [
        ("nothing", "frontend-spec", "cannot tell what workload"),
        ("{dir}/model.py", "frontend-spec", "does not say which class"),
        ("{dir}/modell.py:Half", "frontend-file", "did you mean {dir}/model.py?"),
        ("{dir}/folder.py:Half", "frontend-file", "is a folder"),
        ("{dir}/noise.py:Half", "frontend-file", "is not a text file"),
        ("{dir}/broken.py:Half", "frontend-file", "SyntaxError"),
        ("{dir}/empty.py:Half", "frontend-class", "classes there: none"),
        ("{dir}/alone.py:Alone", "frontend-inputs", "get_inputs()"),
        ("no.such.package:Half", "frontend-file", "No module named"),
        ("einsum:ij,jk->ik", "frontend-einsum", "no sizes"),
        ("einsum:ij,jk->ik@2x3,4x5", "frontend-einsum", "j is 3 in one operand and 4 in another"),
        ("zoo:matmull", "usage-workload", "did you mean matmul"),
        ("zoo:matmul@huge", "usage-preset", "mini"),
        ("{dir}/folder.leir", "usage-file", "is a folder"),
        ("{dir}/noise.leir", "usage-file", "is not a text file"),
        ("{dir}/mn.leir", "usage-file", "did you mean {dir}/mm.leir?"),
        ("{dir}/none/x.leir", "usage-file", "there is no folder"),
        ("{dir}/cut.leir", "syntax-expected", "found the end of the line"),
        ("{dir}/empty.leir", "check-write", "no output"),
    ],
)
def test_programs_that_are_not_there_or_not_programs(tmp_path: Path, model: Path, spec: str, code: str, says: str) -> None:
    (tmp_path / "mm.leir").write_text(MATMUL)
    (tmp_path / "cut.leir").write_text(MATMUL[: MATMUL.index("for i") + 4])
    for name in ("empty.leir", "empty.py"):
        (tmp_path / name).touch()
    for name in ("noise.leir", "noise.py"):
        (tmp_path / name).write_bytes(b"\xff\xfe" + random.Random(0).randbytes(300))
    for name in ("folder.leir", "folder.py"):
        (tmp_path / name).mkdir()
    (tmp_path / "broken.py").write_text("import torch\ndef f(:\n")
    (tmp_path / "alone.py").write_text("from torch import nn\nclass Alone(nn.Module):\n    def forward(self, x):\n        return x\n")
    ran = steptp("sites", spec.replace("{dir}", str(tmp_path)))
    _is_error(ran, code)
    assert says.replace("{dir}", str(tmp_path)) in ran.err


def test_every_prefix_of_a_program_is_an_error_with_a_place(tmp_path: Path) -> None:
    path = tmp_path / "cut.leir"
    for end in range(20, MATMUL.index("for i:N for j:L Y"), 7):
        path.write_text(MATMUL[:end])
        ran = steptp("sites", path)
        assert ran.code == 2, MATMUL[:end]
        assert ran.err.startswith("error[")
        assert f"{path}:" in ran.err.splitlines()[0]
        assert "^" in ran.err


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("apply", "{mm}", "loop_splitt", "0:factor=2"), "did you mean loop_split"),
        (("apply", "{mm}", "loop_split", "0:factor"), "not a site id"),
        (("apply", "{mm}", "loop_split", "loop_fusion@0"), "not a site id"),
        (("sites", "{mm}", "-s", "fusion"), "no strategy called 'fusion'"),
        (("lower", "{mm}", "--emit", "ptx"), "'ptx' is not one of"),
        (("sites", "{mm}", "--limit", "-3"), "'--limit': Input should be greater than or equal to 0"),
        (("build", "--steps", "0"), "'--steps'"),
        (("frobnicate",), "frobnicate"),
    ],
)
def test_wrong_arguments(tmp_path: Path, arguments: tuple[str, ...], says: str) -> None:
    (tmp_path / "mm.leir").write_text(MATMUL)
    ran = steptp(*(a.replace("{mm}", str(tmp_path / "mm.leir")) for a in arguments))
    assert ran.code == 2
    assert says in ran.err


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("bad")
    (folder / "mm.leir").write_text(MATMUL)
    ran = steptp("build", folder / "mm.leir", "--out", folder / "data", "--steps", 4, "--no-measure", "--variants", 0, "--jobs", 1, "--json")
    assert ran.code == 0, ran.err
    return folder / "data"


def _copy(source: Path, target: Path) -> Path:
    for path in source.rglob("*"):
        place = target / path.relative_to(source)
        if path.is_dir():
            place.mkdir(parents=True, exist_ok=True)
        else:
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(path.read_bytes())
    return target


@pytest.mark.parametrize("verb", ["show", "verify", "audit"])
@pytest.mark.parametrize("damage", ["missing", "file", "empty", "no-steps", "cut-table", "noise-table", "bad-info"])
def test_folders_that_are_no_datasets(tmp_path: Path, built: Path, verb: str, damage: str) -> None:
    folder = tmp_path / "data"
    if damage == "file":
        folder.write_text("hello")
    elif damage == "empty":
        folder.mkdir()
    elif damage != "missing":
        _copy(built, folder)
        tables = sorted((folder / "steps").rglob("*.parquet"))
        assert tables
        if damage == "no-steps":
            for table in tables:
                table.unlink()
        elif damage == "cut-table":
            tables[0].write_bytes(tables[0].read_bytes()[:100])
        elif damage == "noise-table":
            tables[0].write_bytes(random.Random(1).randbytes(500))
        else:
            (folder / "build.json").write_text("{")
    ran = steptp(verb, folder)
    assert ran.code == 2, (ran.out, ran.err)
    assert ran.err.startswith("error[dataset-"), ran.err
    assert str(folder) in ran.err


def test_a_folder_that_another_build_works_in(tmp_path: Path, built: Path) -> None:
    folder = _copy(built, tmp_path / "data")
    lock = next(iter(folder.rglob("*lock*")), folder / "journal" / "lock")
    with lock.open("a") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        ran = steptp("build", built.parent / "mm.leir", "--out", folder, "--steps", 5, "--no-measure", "--variants", 0, "--jobs", 1)
    assert ran.code == 2, ran.out
    assert ran.err.splitlines()[-1].startswith(("error[dataset-", "hint: "))
    assert "error[dataset-" in ran.err


def test_a_folder_of_another_build_is_not_overwritten(tmp_path: Path, built: Path) -> None:
    folder = _copy(built, tmp_path / "data")
    ran = steptp("build", built.parent / "mm.leir", "--out", folder, "--steps", 9, "--seed", 5, "--no-measure", "--jobs", 1)
    assert ran.code == 2, ran.out
    assert "error[dataset-" in ran.err
    assert "--overwrite" in ran.err


def test_a_build_of_bad_workloads_says_which(tmp_path: Path, model: Path) -> None:
    ran = steptp("build", f"{model}:Singular", "--out", tmp_path / "out", "--steps", 4, "--no-measure", "--jobs", 1)
    assert ran.code == 2
    assert "error[" in ran.err
    assert "svd" in ran.err
