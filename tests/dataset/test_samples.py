"""Samples: every answer reads back to the program or the site that was recorded; nothing but the question says which it is."""

from __future__ import annotations

import dataclasses
import random
from collections import Counter

import pytest
from dataset_build import build_small, small_config

from steptp.dataset.questions import FORMS, TASKS, Form, Task, forms_of, list_candidates, with_opaque_ids
from steptp.dataset.samples import BLIND, Sample, action_sample, examples_for, samples_of, short_reason
from steptp.dataset.store import Dataset
from steptp.errors import UsageError
from steptp.ir.edits import apply_edit
from steptp.policy.answers import read_answer
from steptp.policy.prompting import sample_question
from steptp.search.moves import Action, Edit, Proposal, Rewrite

ASKED = [(task, form, reasons) for task in TASKS for form in forms_of(task) for reasons in (False, True)]
REASON = "Dominant:\n- Per run: 4 operations.\nLegal:\n- Loop i at 0 carries no dependence.\n- It runs 8 times.\nEffect:\n- By the rule of cores the run should be faster.\nRewrite:\n- Line 4 goes."


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    folder = tmp_path_factory.mktemp("samples")
    found = build_small(small_config(folder / "in", steps=48, siblings=10), folder / "out")
    rng = random.Random(3)
    for parent in Counter(s["parent"] for s in found.steps):  # as if they had been timed: real timings are not for tests
        group = [s for s in found.steps if s["parent"] == parent and s["verdict"] == "ok"]
        for step in group:
            step.update(measured=True, ratio=round(rng.uniform(0.5, 2.0), 3), label="same", best_sibling=False)
        if group:
            max(group, key=lambda s: s["ratio"])["best_sibling"] = True
    return found


@pytest.mark.parametrize(("task", "form", "reasons"), ASKED)
def test_answers_read_back_to_what_was_recorded(data: Dataset, task: Task, form: Form, reasons: bool) -> None:
    found = list(samples_of(data, task, form, reasons=reasons, reason_words=30 if reasons else None))
    assert found
    for sample in found:
        answer = read_answer(sample_question(sample), sample.completion)
        assert isinstance(answer, Proposal), sample.completion
        move = answer.move
        if isinstance(move, Action):
            assert move.site == sample.site
        else:
            text = apply_edit(sample.program, move.lines) if isinstance(move, Edit) else move.text
            assert isinstance(move, Rewrite if form == "rewrite" else Edit)
            assert text.strip() == sample.child.strip()
        assert bool(answer.reason) == (reasons and "- " in sample.completion)


def test_samples_do_not_depend_on_the_order_of_rows(data: Dataset) -> None:
    mixed = Dataset(data.folder, random.Random(1).sample(data.steps, len(data.steps)), data.programs, data.info)
    for task, form, reasons in ASKED:
        assert list(samples_of(data, task, form, reasons=reasons)) == list(samples_of(mixed, task, form, reasons=reasons))


def test_a_form_that_a_task_has_not_is_refused(data: Dataset) -> None:
    with pytest.raises(UsageError) as caught:
        list(samples_of(data, "action", "edit", reasons=False))
    assert caught.value.code == "usage-form"
    assert set(FORMS) == {form for task in TASKS for form in forms_of(task)}


def test_blinded_questions_show_no_program_and_no_places(data: Dataset) -> None:
    for task, form, reasons in ASKED:
        for sample, plain in zip(samples_of(data, task, form, reasons=reasons, blind=True), samples_of(data, task, form, reasons=reasons), strict=True):
            assert BLIND in sample.prompt
            assert not any(line in sample.prompt for line in sample.program.splitlines()), sample.prompt
            told = {"prompt": "", "completion": "", "listed": {}}
            assert dataclasses.replace(sample, **told) == dataclasses.replace(plain, **told)
            if task == "action":
                assert "@" not in sample.prompt + sample.completion.rpartition("Step: ")[2]
            else:
                assert sample.completion == plain.completion


def test_shuffling_changes_order_and_ids_and_nothing_else(data: Dataset) -> None:
    for plain, other in zip(*(samples_of(data, "action", "action", reasons=False, shuffle=s) for s in (0, 5)), strict=True):
        assert sorted(plain.sites.values()) == sorted(other.sites.values())
        assert list(plain.sites.items()) != list(other.sites.items())
        assert plain.sites[plain.best] == other.sites[other.best] == plain.site
        assert {plain.sites[i]: r for i, r in plain.ratios.items()} == {other.sites[i]: r for i, r in other.ratios.items()}


@pytest.mark.parametrize("count", [1, 24, 113, 114, 676])
def test_ids_are_distinct_and_stand_behind_their_sites(count: int) -> None:
    sites = [f"loop_split@{n}:factor=4,tail=exact" for n in range(count)]
    found = with_opaque_ids(sites, 7)
    assert list(found.values()) == sites
    assert len(found) == count
    assert all(len(name) == 2 and name.isupper() for name in found)
    assert found == with_opaque_ids(sites, 7)
    assert count == 1 or list(found) != list(with_opaque_ids(sites, 8))
    assert list_candidates(found).splitlines() == [f"{site} [{name}]" for name, site in found.items()]


def _state(n: int) -> Sample:
    rows = [
        {"id": f"{n}/{k}", "parent": f"state {n}", "site": f"loop_split@{k}", "strategy": "loop_split", "measured": True, "verdict": "ok", "ratio": 1.0 + k / 10,
         "best_sibling": k == 7, "candidates": [f"loop_tiling@{k}" for k in range(20)], "split": "train", "root": "r", "workload": "w", "family": "f", "reason": ""}
        for k in range(8)
    ]  # fmt: skip
    made = action_sample("in x f32[4]\n", rows, "a host")
    assert made is not None
    return made


def test_neither_place_nor_id_says_which_step_is_best() -> None:
    """The best of 24 listed sites over 2,400 states: each place 100 times, give or take; first letters of its id as those of all ids."""
    states = [_state(n) for n in range(2400)]
    places = Counter(list(s.sites).index(s.best) for s in states)
    assert sum((places[p] - 100) ** 2 / 100 for p in range(24)) < 49.7  # chi-squared, 23 degrees of freedom, 0.1 %
    letters, whole = Counter(s.best[0] for s in states), Counter(name[0] for name in with_opaque_ids([str(n) for n in range(113)], 0))
    assert sum((letters[c] - 2400 * n / 113) ** 2 / (2400 * n / 113) for c, n in whole.items()) < 29.6  # 10 degrees


def test_short_reasons_are_whole_sentences_the_grounds_first() -> None:
    assert short_reason(REASON, 5) == ""
    assert short_reason(REASON, 7) == "- Loop i at 0 carries no dependence."
    assert short_reason(REASON, 12) == "- Loop i at 0 carries no dependence.\n- It runs 8 times."
    assert short_reason(REASON, 1000) == (
        "- Loop i at 0 carries no dependence.\n- It runs 8 times.\n- By the rule of cores the run should be faster.\n- Per run: 4 operations."
    )


def test_examples_share_neither_root_nor_family_with_the_question(data: Dataset) -> None:
    pool = list(samples_of(data, "named", "edit", reasons=False))
    asked = pool[0]
    found = examples_for(asked, pool, 3, seed=1)
    assert len(found) == 3
    assert all(e.root != asked.root and e.family != asked.family for e in found)
    assert found == examples_for(asked, pool, 3, seed=1)
    assert found != examples_for(asked, pool, 3, seed=2)
    assert examples_for(asked, [s for s in pool if s.family == asked.family], 3, seed=1) == []
    turns = asked.messages(found)
    assert [t["role"] for t in turns] == ["system", *["user", "assistant"] * 4]
    assert turns[-1]["content"] == asked.completion
    assert asked.asked(found) == turns[:-1]
