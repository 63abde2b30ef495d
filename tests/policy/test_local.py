"""The policy over a model in this process: answers that can be read, exact budgets, and a second run from the cache."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from policy_states import state_of
from search_toy import Toy, program_of
from tiny_model import tiny_model

from steptp.dataset.questions import candidate_line
from steptp.errors import UsageError
from steptp.policy import policy
from steptp.policy.local import Local
from steptp.search.algorithms import algorithm
from steptp.search.budget import Limits
from steptp.search.moves import Action, Edit, Failed, Proposal
from steptp.search.session import Search, run_search

pytest.importorskip("llguidance")
STATE = state_of("in A f32[N=24,K=16] B[K,L=20]\nout C[N,L]\nfor i j k C[i,j]+=A[i,k]*B[k,j]\n")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_model(tmp_path_factory.mktemp("model"), context=4096)


def _local(folder: Path, **settings: Any) -> Local:
    return Local(str(folder), **{"max_tokens": 24, **settings})


def test_constrained_actions_are_sites_and_each_costs_what_it_wrote(folder: Path) -> None:
    made = _local(folder, max_tokens=100)
    answers = list(made.propose(STATE, 6))
    assert all(isinstance(a, Proposal) and isinstance(a.move, Action) for a in answers)
    asked = made._question(STATE)
    assert asked is not None
    assert all(a.move.site in asked.sites.values() for a in answers if isinstance(a, Proposal) and isinstance(a.move, Action))
    prompt = made.model.prompt_tokens(asked.messages)
    longest = max(len(candidate_line(site, name)) for name, site in asked.sites.items())
    assert all(1 < a.tokens - (prompt if n == 0 else 0) <= longest + 1 for n, a in enumerate(answers))  # and the end
    assert made.tokens_at_most(STATE, 6) == prompt + 6 * 100
    assert answers == list(_local(folder, max_tokens=100).propose(STATE, 6))


def test_free_answers_may_fail_and_cost_the_same_way(folder: Path) -> None:
    made = _local(folder, constrained=False)
    answers = list(made.propose(STATE, 3))
    assert all(isinstance(a, Failed) and a.code.startswith("answer-") for a in answers)
    assert 0 < sum(a.tokens for a in answers) <= made.tokens_at_most(STATE, 3)
    assert _local(folder).settings != made.settings


@pytest.mark.parametrize("reasons", [False, True])
def test_edits_that_end_can_be_read(folder: Path, reasons: bool) -> None:
    answers = _local(folder, form="edit", reasons=reasons, max_tokens=200).propose(STATE, 12)
    assert {a.code for a in answers if isinstance(a, Failed)} <= {"answer-truncated"}
    assert all(isinstance(a.move, Edit) for a in answers if isinstance(a, Proposal))


def test_a_prompt_beyond_the_context_is_a_failed_try_of_its_own(tmp_path: Path) -> None:
    made = _local(tiny_model(tmp_path, context=64))
    answers = list(made.propose(STATE, 2))
    assert [(a.code, a.tokens) for a in answers if isinstance(a, Failed)] == [("policy-context", 0)] * 2


def test_answers_are_kept_and_charged_alike(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = list(_local(folder, cache=tmp_path / "answers.sqlite").propose(STATE, 3))
    again = _local(folder, cache=tmp_path / "answers.sqlite")
    wider = list(again.propose(STATE, 4))
    assert wider[:3] == first
    assert wider == list(_local(folder).propose(STATE, 4))
    monkeypatch.setattr(again.model, "generate", None)
    assert list(again.propose(STATE, 4)) == wider


def test_a_search_keeps_to_its_budget_of_tokens(folder: Path) -> None:
    toy = Toy(lambda word: 1.0)
    tokens = 6000
    found = run_search(
        algorithm("beam"), Search(program_of(""), _local(folder, form="rewrite"), toy, limits=Limits(samples=30, tokens=tokens), clock=lambda: 0.0)
    )
    assert 0 < found.spent["tokens"] <= tokens


def test_settings_that_make_no_sense_are_refused(folder: Path) -> None:
    with pytest.raises(UsageError, match="needs a model"):
        policy("local")
    with pytest.raises(UsageError, match="batch"):
        policy("local", model=str(folder), batch=0)
    with pytest.raises(UsageError, match="no answer format"):
        policy("local", model=str(folder), form="poem")
    assert policy("local", model=str(folder)).name == "local"
