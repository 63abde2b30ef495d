"""The policy over HTTP against llama.cpp's own server with a tiny random model: schema, several samples a request, whole searches."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from margin_file import keep_margin
from policy_states import state_of
from typer.testing import CliRunner

from steptp.cli import app
from steptp.ir import print_program
from steptp.policy.openai_compatible import OpenAICompatible
from steptp.rewrite import engine
from steptp.rewrite.base import Applied, Site
from steptp.rewrite.trace import Trace, replay
from steptp.search.moves import Action, Edit, Failed, Proposal

pytest.importorskip("xllamacpp", reason="the server is llama.cpp, from the package xllamacpp")
pytest.importorskip("gguf", reason="the model is written by the package gguf")

MATMUL = "in A f32[N=24,K=16] B[K,L=20]\nout C[N,L]\nfor i j k C[i,j]+=A[i,k]*B[k,j]\n"


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    from llama_server import CONTEXT, gguf_model, llama_server
    from tiny_model import tiny_model

    folder = tmp_path_factory.mktemp("model")
    with llama_server(gguf_model(tiny_model(folder, context=CONTEXT), folder / "tiny.gguf")) as address:
        yield address


@pytest.mark.parametrize("seed", [0, 1])
def test_constrained_actions_are_sites_of_the_program(url: str, seed: int) -> None:
    state = state_of(MATMUL, seed=seed)
    made = OpenAICompatible("tiny", url, max_tokens=200)
    bound = made.tokens_at_most(state, 4)
    answers = made.propose(state, 4)
    assert len(answers) == 4
    assert len({str(a) for a in answers}) > 1  # four draws of one question, not one
    for answer in answers:
        assert isinstance(answer, Proposal), answer
        assert isinstance(answer.move, Action)
        assert isinstance(engine.apply(state.program, Site.parse(answer.move.site)), Applied)
    assert 0 < sum(a.tokens for a in answers) <= bound


def test_reasons_come_before_the_choice(url: str) -> None:
    made = OpenAICompatible("tiny", url, reasons=True, max_tokens=1000, tries=1)
    answers = [a for seed in range(4) for a in made.propose(state_of(MATMUL, seed=seed), 8)]
    assert len(answers) == 32
    chosen = [a for a in answers if isinstance(a, Proposal)]
    assert any(a.reason for a in chosen)
    assert {a.code for a in answers if isinstance(a, Failed)} <= {"answer-truncated", "policy-server"}  # llama.cpp: 500 for bytes that are no text


def test_structured_edits_are_numbered_lines(url: str) -> None:
    made = OpenAICompatible("tiny", url, form="edit", max_tokens=300, tries=1)
    answers = [a for seed in range(4) for a in made.propose(state_of(MATMUL, seed=seed), 8)]
    assert len(answers) == 32
    read = [a for a in answers if isinstance(a, Proposal)]
    assert all(isinstance(a.move, Edit) for a in read)
    kinds = {a.code for a in answers if isinstance(a, Failed)}
    assert read or "answer-lines" in kinds
    assert kinds <= {"answer-truncated", "answer-lines", "policy-server"}  # a line may be long, a number may be none of the program's


@pytest.mark.parametrize("form", ["action", "edit", "rewrite"])
def test_what_a_random_model_writes_freely_is_a_typed_failure(url: str, form: str) -> None:
    answers = OpenAICompatible("tiny", url, form=form, structured=False, max_tokens=24).propose(state_of(MATMUL), 3)  # type: ignore[arg-type]
    assert len(answers) == 3
    for answer in answers:
        assert isinstance(answer, Failed), answer
        assert answer.code.startswith("answer-"), answer
        assert answer.tokens > 0


def test_a_prompt_beyond_the_context_is_refused_with_the_reason(url: str) -> None:
    names = " ".join(f"A{'xq' * 50}{n}[N]" for n in range(150))
    long = f"in A f32[N=24] {names}\nout C[N]\nfor i C[i]=A[i]\n"
    (answer,) = OpenAICompatible("tiny", url, form="rewrite", structured=False, tries=2).propose(state_of(long), 1)
    assert isinstance(answer, Failed)
    assert answer.code == "policy-refused"
    assert "context" in answer.message


def test_a_whole_search(url: str, tmp_path: Path) -> None:
    keep_margin(tmp_path / "out")
    work = [
        *["optimize", "einsum:ij,jk->ik@48x64,64x48", "--search", "bfs", "--threads", "1", "--samples", "6", "--tokens", "200000", "--json"],
        *["--policy", "openai", "--model", "tiny", "--base-url", url, "--out", str(tmp_path / "out")],
    ]
    done = CliRunner().invoke(app, work, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    result = json.loads((tmp_path / "out" / "result.json").read_text())
    assert result["stopped"] == "samples"
    assert result["spent"]["samples"] == 6
    assert 0 < result["spent"]["tokens"] <= 200_000
    attempts = [a for n in result["tree"] for a in n["attempts"]]
    assert len(attempts) == 6
    assert any(a["kind"] == "ok" for a in attempts)
    assert not [a for a in attempts if a["kind"].startswith(("policy-", "answer-"))]
    trace = Trace.from_json((tmp_path / "out" / "trace.json").read_text())
    assert print_program(replay(trace).last) == (tmp_path / "out" / "program.leir").read_text()
    again = CliRunner().invoke(app, [*work, "--resume"], catch_exceptions=False)
    assert again.exit_code == 0, again.output
    assert json.loads((tmp_path / "out" / "result.json").read_text())["tree"] == result["tree"]
