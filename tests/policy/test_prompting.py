"""Prompts: golden texts, and the words of a first step are those of the dataset's samples."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from policy_states import state_of

from steptp.dataset.questions import Task, describe_host, prompt_file, task_prompt
from steptp.policy import prompting
from steptp.policy.prompting import FORMS, Form, prompt_versions, question
from steptp.rewrite import engine
from steptp.rewrite.base import Site
from steptp.search.moves import Action, Edit, Rewrite
from steptp.search.policy import FailedTry, State, Taken

GOLDENS = Path(__file__).parent / "goldens"
MATMUL = "in A f32[N=24,K=16] B[K,L=20]\nout C[N,L]\nfor i j k C[i,j]+=A[i,k]*B[k,j]\n"
SITES = [Site.of("loop_split", (0,), factor=4, tail="exact"), Site.of("loop_parallelization", (0,)), Site.of("loop_reorder", (0, 0), to=2)]


def _later() -> State:
    state = state_of(MATMUL)
    taken = (
        Taken(Action("loop_reorder@0.0:to=2"), 1.834, 1.834),
        Taken(Edit(("0+ size T0=4", "3| for i j k C[i,j]+=A[i,k]*B[k,j]")), 0.5, 0.917),
        Taken(Rewrite("x"), None, None),
    )
    failed = (
        FailedTry(Action("loop_split@0:factor=4,tail=exact"), "refused", "the loop\nhas a carry"),
        FailedTry(None, "answer-unreadable", "no program " + "x" * 300),
    )
    return replace(state, parent="in A f32[N=24]\n", history=taken, failed=failed, tried=frozenset({"loop_split@0:factor=4,tail=exact"}))


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("reasons", [False, True])
@pytest.mark.parametrize("when", ["first", "later"])
def test_prompts_are_the_golden_ones(form: Form, reasons: bool, when: str, update_goldens: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prompting, "list_sites", lambda *args: SITES)
    asked = question(state_of(MATMUL) if when == "first" else _later(), form, reasons=reasons)
    assert asked is not None
    path = GOLDENS / f"{form}{'_why' if reasons else ''}_{when}.txt"
    if update_goldens:
        path.parent.mkdir(exist_ok=True)
        path.write_text(asked.prompt + "\n")
    assert asked.prompt + "\n" == path.read_text()


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("reasons", [False, True])
def test_a_first_step_is_asked_in_the_words_of_the_samples(form: Form, reasons: bool) -> None:
    state = state_of(MATMUL)
    asked = question(state, form, reasons=reasons)
    assert asked is not None
    task: Task = "action" if form == "action" else "free"
    assert asked.prompt == task_prompt(task, form, reasons, state.text, host=describe_host(state.host), candidates=asked.sites)
    assert asked.messages == [{"role": "system", "content": prompt_file("system")}, {"role": "user", "content": asked.prompt}]


def test_candidates_are_sampled_by_the_seed_and_never_tried_before() -> None:
    state = state_of(MATMUL)
    asked, again, other = (question(s, "action", reasons=False) for s in (state, state_of(MATMUL), state_of(MATMUL, seed=1)))
    assert asked is not None
    assert other is not None
    assert asked == again
    assert dict(asked.sites) != dict(other.sites)
    assert 8 <= len(asked.sites) <= 24
    assert list(asked.sites.values()) != sorted(asked.sites.values())
    assert set(asked.sites.values()) <= {s.id for s in engine.sites(state.program, limit=None)}
    tried = frozenset(list(asked.sites.values())[:5])
    fresh = question(replace(state, tried=tried), "action", reasons=False)
    assert fresh is not None
    assert not tried & set(fresh.sites.values())


def test_no_question_is_left_when_every_site_was_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prompting, "list_sites", lambda *args: SITES)
    state = replace(state_of(MATMUL), tried=frozenset(s.id for s in SITES))
    assert question(state, "action", reasons=False) is None
    assert question(state, "edit", reasons=False) is not None


def test_every_prompt_file_has_a_version() -> None:
    files = {p.stem for room in ("dataset", "policy") for p in (Path(prompting.__file__).parents[1] / room / "prompts").glob("*.txt")}
    assert set(prompt_versions()) == files
