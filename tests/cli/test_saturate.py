"""steptp saturate."""

from __future__ import annotations

from pathlib import Path

from cli_run import MATMUL, steptp

from steptp.ir import parse
from steptp.rewrite.trace import Trace, replay

ROWS = "in x f32[N=4,M=6] s[N]\nout Y[N,M]\nfor i j Y[i,j]=x[i,j]/s[i]\n"


def _file(folder: Path, text: str) -> Path:
    path = folder / "rows.leir"
    path.write_text(text)
    return path


def test_steps_are_named_and_the_program_is_printed(tmp_path: Path) -> None:
    ran = steptp("saturate", _file(tmp_path, ROWS))
    assert ran.code == 0
    assert "t[]=1/s[i]" in ran.out
    assert parse(ran.out)
    assert "#   apart@0.0.0:at=2,by=reciprocal" in ran.err or "#   apart@0.0:at=2,by=reciprocal" in ran.err
    assert "# 2 steps: 96 weighted operations before, 40 after" in ran.err


def test_the_trace_replays(tmp_path: Path) -> None:
    ran = steptp("saturate", _file(tmp_path, ROWS), "--trace")
    assert ran.code == 0
    assert len(replay(Trace.from_text(ran.out)).programs) == 3
    found = steptp("saturate", _file(tmp_path, ROWS), "--json").json
    assert found["trace"] == ran.out
    assert (found["before"], found["after"], len(found["stores"])) == (96, 40, 1)


def test_nothing_better_is_said(tmp_path: Path) -> None:
    ran = steptp("saturate", _file(tmp_path, MATMUL))
    assert ran.code == 0
    assert "nothing better" in ran.err
    assert steptp("saturate", _file(tmp_path, MATMUL), "--json").json["stores"] == []


def test_steps_that_go_astray_are_left_out(tmp_path: Path) -> None:
    """1/s overflows for some s, so the quotient's steps are numerically unsafe; that of the power of two keeps the bits."""
    text = "in x f32[N=4,M=6] s[N]\nout Y Z[N,M]\nfor i j Y[i,j]=x[i,j]/s[i]\nfor i j Z[i,j]=x[i,j]/8\n"
    assert len(steptp("saturate", _file(tmp_path, text), "--json").json["stores"]) == 2
    ran = steptp("saturate", _file(tmp_path, text), "--verify", "--json")
    assert ran.code == 0
    assert [store["new"] for store in ran.json["stores"]] == ["x[i,j]*0.125"]
