"""``steptp verify reference.py:Model candidate.py:function``."""

from __future__ import annotations

from pathlib import Path

import pytest
from cli_run import steptp

REFERENCE = (
    "import torch\n\nclass Model(torch.nn.Module):\n    def forward(self, x):\n        return x * 2 + 1\n\ndef get_inputs():\n    return [torch.randn(6, 5)]\n"
)
CANDIDATE = "def right(x):\n    return 1 + x + x\n\n\ndef wrong(x):\n    return x * 2\n"


@pytest.fixture
def specs(tmp_path: Path) -> tuple[str, str]:
    (tmp_path / "reference.py").write_text(REFERENCE)
    (tmp_path / "candidate.py").write_text(CANDIDATE)
    return f"{tmp_path}/reference.py:Model", f"{tmp_path}/candidate.py"


def test_a_right_function_passes_and_a_wrong_one_does_not(specs: tuple[str, str]) -> None:
    reference, file = specs
    assert "ok at tier 4" in steptp("verify", reference, f"{file}:right").out
    ran = steptp("verify", reference, f"{file}:wrong", "--json")
    assert ran.code == 1
    assert ran.json["verdict"] == "not_equal"
    assert ran.json["reports"][0]["counterexample"]["regime"] == "normal"
