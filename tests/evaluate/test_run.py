"""Whole evaluations with scripted answers: figures by hand, resumption, what is shown of a state."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from dataset_build import Quiet

from steptp.dataset.samples import BLIND
from steptp.dataset.store import Dataset
from steptp.errors import UsageError
from steptp.evaluate.answerers import Answerer, RuleAnswerer, Wanted
from steptp.evaluate.run import Options, evaluate
from steptp.evaluate.states import Asked, Selection, select

NAMED = Selection("named", "edit", "test_seen_family", states=6)
ACTION = Selection("action", "action", "train", states=4, per_root=2)
QUICK = Options(samples=2, measure=False, jobs=1)


class Scripted(Answerer):
    """Answers by a function of question and number; remembers what it was asked."""

    name = "scripted"

    def __init__(self, say: Callable[[Asked, int], str], dies_after: int | None = None) -> None:
        self.say, self.left = say, dies_after
        self.asked: list[tuple[str, int]] = []

    @property
    def settings(self) -> dict[str, Any]:
        return {}

    def answer(self, wanted: Sequence[Wanted], done: Callable[[int, dict[str, Any]], None]) -> None:
        for place, (asked, number) in enumerate(wanted):
            if self.left is not None and len(self.asked) >= self.left:
                raise KeyboardInterrupt
            self.asked.append((asked.sample.id, number))
            done(place, {"text": self.say(asked, number), "truncated": False, "tokens": 10})


def _spoilt(asked: Asked, number: int) -> str:
    """Greedy answers are the recorded ones; the first drawn one cannot be read, the second leaves the program as it is."""
    line = asked.sample.program.splitlines()[0]
    return {0: asked.sample.completion, 1: "I do not know.", 2: f"1| {line}"}[number]


def test_figures_by_hand(data: Dataset, out: Path) -> None:
    made = evaluate(data, Scripted(_spoilt), NAMED, QUICK, out, progress=Quiet())
    greedy, drawn = made["greedy"], made["drawn"]
    assert {name: greedy[name]["mean"] for name in greedy} == dict.fromkeys(("read", "differs", "legal", "equal", "same"), 1.0)
    assert {name: drawn[name]["mean"] for name in drawn} == {"read": 0.5, "differs": 0.0, "legal": 0.0, "equal": 0.0, "same": 0.0}
    assert made["pass_at_k"]["2"]["mean"] == 0.0
    assert made["outcomes"] == {"ok": made["states"], "answer-unreadable": made["states"], "no_op": made["states"]}
    assert made["tokens_per_answer"] == 10
    assert json.loads((out / "result.json").read_text()) == json.loads(json.dumps(made))
    lines = [json.loads(line) for line in (out / "answers.jsonl").read_text().splitlines()]
    assert len(lines) == made["answers"] == 3 * made["states"]
    assert all(line["raw"]["text"] for line in lines)


def test_a_wrong_program_is_found_out(data: Dataset, out: Path) -> None:
    def wrong(asked: Asked, number: int) -> str:
        lines = asked.sample.program.splitlines()
        last = next(n for n in range(len(lines), 0, -1) if "=" in lines[n - 1])
        return f"{last}| {lines[last - 1]}+1" if number == 0 else "1| ]["

    made = evaluate(data, Scripted(wrong), replace(NAMED, states=2), replace(QUICK, samples=1), out, progress=Quiet())
    assert made["greedy"]["equal"]["mean"] == 0.0
    assert made["greedy"]["differs"]["mean"] == 1.0
    assert made["outcomes"]["malformed"] == 2
    assert made["drawn"]["read"]["mean"] == 0.0


def test_interrupted_it_goes_on_and_asks_nothing_twice(data: Dataset, out: Path, tmp_path: Path) -> None:
    whole = evaluate(data, Scripted(_spoilt), NAMED, QUICK, tmp_path / "whole", progress=Quiet())
    first = Scripted(_spoilt, dies_after=5)
    with pytest.raises(KeyboardInterrupt):
        evaluate(data, first, NAMED, QUICK, out, progress=Quiet())
    with pytest.raises(UsageError, match="--resume"):
        evaluate(data, Scripted(_spoilt), NAMED, QUICK, out, progress=Quiet())
    with pytest.raises(UsageError, match="selection"):
        evaluate(data, Scripted(_spoilt), replace(NAMED, states=5), QUICK, out, resume=True, progress=Quiet())
    second = Scripted(_spoilt)
    resumed = evaluate(data, second, NAMED, QUICK, out, resume=True, progress=Quiet())
    assert resumed == whole
    assert not set(first.asked) & set(second.asked)
    assert len(first.asked) + len(second.asked) == whole["answers"]


def test_states_are_the_same_for_everyone_and_few_of_a_root(data: Dataset) -> None:
    some = select(data, replace(NAMED, per_root=2, split="train"))
    ids = [a.sample.id for a in some]
    assert ids == [a.sample.id for a in select(data, replace(NAMED, per_root=2, split="train", blind=True))]
    roots = [a.sample.root for a in some]
    assert max(map(roots.count, roots)) <= 2
    assert ids != [a.sample.id for a in select(data, replace(NAMED, per_root=2, split="train", seed=1))]
    with pytest.raises(UsageError, match="test_seen_family"):
        select(data, replace(NAMED, split="nothing"))


def test_blinded_and_with_examples(data: Dataset) -> None:
    blind = select(data, replace(NAMED, blind=True))[0]
    assert BLIND in blind.messages[-1]["content"]
    shown = select(data, replace(NAMED, shots=2))
    for asked in shown:
        assert len(asked.messages) == 2 + 2 * len(asked.examples)
        assert all(e.split == "train" and e.root != asked.sample.root for e in asked.examples)


def test_regret_of_scripted_actions(measured: Dataset, out: Path) -> None:
    def choose(asked: Asked, number: int) -> str:
        by_gain = sorted(asked.sample.ratios, key=lambda name: -asked.sample.ratios[name])
        return {0: by_gain[0], 1: by_gain[1], 2: "none of them"}[number]

    made = evaluate(measured, Scripted(choose), ACTION, QUICK, out, progress=Quiet())
    assert made["greedy"]["regret"]["mean"] == 0.0
    assert made["greedy"]["best"]["mean"] == 1.0
    assert made["drawn"]["regret"]["mean"] == pytest.approx((0.5 + 1.0) / 2)
    assert made["drawn"]["read"]["mean"] == 0.5


def test_shuffled_candidates_change_ids_and_not_states(measured: Dataset) -> None:
    plain, other = (select(measured, replace(ACTION, shuffle=n)) for n in (0, 7))
    assert [a.sample.id for a in plain] == [a.sample.id for a in other]
    assert [dict(a.sample.sites) for a in plain] != [dict(a.sample.sites) for a in other]
    assert [set(a.sample.sites.values()) for a in plain] == [set(a.sample.sites.values()) for a in other]


def test_rules_without_weights(measured: Dataset, out: Path, tmp_path: Path) -> None:
    copy = evaluate(measured, RuleAnswerer("copy", measured), NAMED, QUICK, tmp_path / "copy", progress=Quiet())
    assert copy["outcomes"] == {"no_op": copy["states"]}
    stay = evaluate(measured, RuleAnswerer("copy", measured), ACTION, QUICK, tmp_path / "stay", progress=Quiet())
    assert stay["greedy"]["regret"]["mean"] == 1.0
    prior = evaluate(measured, RuleAnswerer("prior", measured), ACTION, QUICK, tmp_path / "prior", progress=Quiet())
    assert "drawn" not in prior
    one, same = (evaluate(measured, RuleAnswerer("random", measured), ACTION, QUICK, tmp_path / n, progress=Quiet()) for n in "ab")
    assert one == same
    with pytest.raises(UsageError, match="heuristic"):
        RuleAnswerer("nobody", measured)


def test_actions_of_rules_are_carried_out_and_checked(data: Dataset, out: Path) -> None:
    free = Selection("free", "edit", "test_seen_family", states=3)
    made = evaluate(data, RuleAnswerer("random", data), free, replace(QUICK, samples=1), out, progress=Quiet())
    assert made["greedy"]["equal"]["mean"] == 1.0
    assert made["greedy"]["faster"]["mean"] == 0.0  # nothing was timed


def test_a_tiny_model_from_end_to_end(data: Dataset, tmp_path: Path) -> None:
    from tiny_model import tiny_model

    from steptp.evaluate.answerers import LocalAnswerer
    from steptp.report.evaluation_page import evaluation_page, read_results

    folder = tiny_model(tmp_path / "model", context=1024)
    runs = []
    for free in (False, True):
        answerer = LocalAnswerer(str(folder), constrained=not free, max_tokens=24)
        out = tmp_path / ("free" if free else "bound")
        made = evaluate(data, answerer, replace(NAMED, states=2), replace(QUICK, samples=1), out, progress=Quiet())
        assert made["answers"] == 4
        runs.append(out)
    page = evaluation_page(read_results(runs))
    assert page.count("<h2 id=") == 2
    assert "<script" not in page
    with pytest.raises(UsageError, match="no finished evaluation"):
        read_results([tmp_path])


def test_a_served_model_is_asked_once_for_all_drawn_answers(data: Dataset, out: Path) -> None:
    from chat_server import Reply, chat_server

    from steptp.evaluate.answerers import ServedAnswerer

    def reply(request: dict[str, Any], number: int) -> Reply:
        return Reply(["I do not know."] * request.get("n", 1))

    with chat_server(reply) as server:
        answerer = ServedAnswerer("m", base_url=server.url, structured=False)
        made = evaluate(data, answerer, replace(NAMED, states=2), replace(QUICK, samples=3), out, progress=Quiet())
    assert made["outcomes"] == {"answer-unreadable": 8}
    assert sorted((request["temperature"], request.get("n", 1)) for request in server.seen) == [(0.0, 1), (0.0, 1), (0.8, 3), (0.8, 3)]
