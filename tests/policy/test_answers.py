"""Answers as models write them: what is a move, what is a typed failure."""

from __future__ import annotations

import json

import pytest

from steptp.ir import parse
from steptp.policy.answers import answer_schema, read_answer
from steptp.policy.prompting import Form, Question
from steptp.search.moves import Action, Edit, Failed, Proposal, Rewrite

SITES = {"QX": "loop_split@0:factor=4,tail=exact", "OR": "loop_parallelization@0", "ZB": "loop_reorder@0.0:to=2"}
PROGRAM = "in X f32[N=4]\nout Y[N]\nfor i\n Y[i]=X[i]*2\n"
LINES = PROGRAM.strip("\n")


def _asked(form: Form) -> Question:
    return Question(form, True, "?", sites=SITES if form == "action" else {}, program=PROGRAM)


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("QX", "QX"),
        (" **qx**.\n", "QX"),
        ("Step: ZB", "ZB"),
        ("OR would help, but QX is a better fit.\r\n\r\nStep: QX\r\n", "QX"),
        ("The best step is to split.\nThe answer is `ZB`.", "ZB"),
        ("First I thought Step: QX.\nAnswer: **ZB**", "ZB"),
        ("I would take ZB, since k is then outermost.", "ZB"),
        ("Threads win here.\nOR", "OR"),
        ('{"id": "QX"}', "QX"),
        ('```json\n{"reason": "unit stride", "id": "QX"}\n```', "QX"),
        ('Here it is: {"reason": "unit stride", "id": "QX"} Good luck!', "QX"),
        ('{"reason": "the “inner” loop", "id": "QX"}', "QX"),
        ("{“id”: “QX”}", "QX"),
        ('{"id": "QX", "reason": "the loop is', "QX"),
        ('{"id": "QX"', "QX"),
        ("loop_reorder@0.0:to=2", "ZB"),
        ("I choose loop_parallelization@0.", "OR"),
        ("\ufeff“QX”", "QX"),
        ("loop_reorder@0.0:to=2 [ZB]", "ZB"),
        ("[ZB]", "ZB"),
        ("loop_reorder [ZB]", "ZB"),
        ("Not OR, but\n\nStep: loop_reorder@0.0:to=2 [ZB]\n", "ZB"),
        ("I choose `loop_reorder@0.0:to=2 [ZB]`.", "ZB"),
        ('{"id": "loop_reorder@0.0:to=2 [ZB]"}', "ZB"),
    ],
)
def test_actions(text: str, named: str) -> None:
    answer = read_answer(_asked("action"), text, tokens=7)
    assert isinstance(answer, Proposal), answer
    assert answer.move == Action(SITES[named])
    assert answer.tokens == 7


@pytest.mark.parametrize(
    ("text", "truncated", "code"),
    [
        ("", False, "answer-empty"),
        (" \n", True, "answer-empty"),
        ("AA", False, "answer-unknown-id"),
        ("Step: AA", False, "answer-unknown-id"),
        ('{"id": "AA"}', False, "answer-unknown-id"),
        ("QX or ZB, I think.", False, "answer-ambiguous"),
        ("loop_reorder@0.0:to=2 [QX]", False, "answer-ambiguous"),
        ("Step: **loop_reorder@0.0:to=2** [QX]", False, "answer-ambiguous"),
        ("loop_reorder@0.0:to=2 [AA]", False, "answer-unknown-id"),
        ("loop_reorder@0.0:to=2 [Z", True, "answer-truncated"),
        ("I cannot help with that.", False, "answer-unreadable"),
        ('{"reason": "fast"}', False, "answer-unreadable"),
        ('{"reason": "the loop', True, "answer-truncated"),
        ("QX splits the loop, which", True, "answer-truncated"),
        ("The loop is", True, "answer-truncated"),
    ],
)
def test_actions_that_cannot_be_read(text: str, truncated: bool, code: str) -> None:
    answer = read_answer(_asked("action"), text, truncated=truncated, tokens=3)
    assert isinstance(answer, Failed), answer
    assert (answer.code, answer.tokens) == (code, 3)
    assert len(answer.message.split()) >= 3


def test_the_reason_is_what_stands_before_the_step() -> None:
    for step in ("QX", "loop_split@0:factor=4,tail=exact [QX]", "**loop_split@0:factor=4,tail=exact** [QX]", "[QX]"):
        answer = read_answer(_asked("action"), f"Unit stride.\nStep: {step}")
        assert isinstance(answer, Proposal)
        assert answer.reason == "Unit stride."
    answer = read_answer(_asked("action"), '{"reason": "Unit stride.", "id": "QX"}')
    assert isinstance(answer, Proposal)
    assert answer.reason == "Unit stride."


@pytest.mark.parametrize(
    ("text", "edit"),
    [
        ("4|  Y[i]=X[i]+X[i]", Edit(("4|  Y[i]=X[i]+X[i]",))),
        ("Because.\n\nEdit:\n```leir\n3| par i\n4|  Y[i]=X[i]*2\n```\nThat is all.", Edit(("3| par i", "4|  Y[i]=X[i]*2"))),
        ("**Edit:**\r\n\r\n 4|  Y[i]=X[i]+X[i]\r\n", Edit(("4|  Y[i]=X[i]+X[i]",))),
        ("2+ tmp T[N]", Edit(("2+ tmp T[N]",))),
        ("0+ size T0=4\n\n3|par i\n4-", Edit(("0+ size T0=4", "3| par i", "4-"))),
        ("4- ", Edit(("4-",))),
        ("Line 3 is\n3| for i\nand so it may be\n3| par i", Edit(("3| par i",))),
        ("Edit:\n1| no\n\nI mean:\n\nEdit:\n3| par i\n\nIt was\n3| for i", Edit(("3| par i",))),
        ("```\n1| no\n```\nor rather\n```\n3| par i\n```\n```\nnothing\n```", Edit(("3| par i",))),
        ("3| par i\n\nThis runs the loop on all threads: 2+2 of them.", Edit(("3| par i",))),
        ('{"reason": "r", "lines": ["3| par i"]}', Edit(("3| par i",))),
        ('{"lines": "3| par i\\n4|  Y[i]=X[i]*2"}', Edit(("3| par i", "4|  Y[i]=X[i]*2"))),
        ('{"lines": ["3| par i"]', Edit(("3| par i",))),
    ],
)
def test_edits(text: str, edit: Edit) -> None:
    answer = read_answer(_asked("edit"), text)
    assert isinstance(answer, Proposal), answer
    assert answer.move == edit


@pytest.mark.parametrize(
    ("text", "truncated", "code"),
    [
        ("par i", False, "answer-unreadable"),
        ("Edit:\npar i", False, "answer-unreadable"),
        ("9| par i", False, "answer-lines"),
        ("3| par i\n5-", False, "answer-lines"),
        ("0| par i", False, "answer-lines"),
        ('{"lines": ["7+ par i"]}', False, "answer-lines"),
        ('{"lines": ["3| par i", "par i"]}', False, "answer-unreadable"),
        ('{"lines": []}', False, "answer-unreadable"),
        ('{"reason": "r"}', False, "answer-unreadable"),
        ('{"lines": ["3| par i", "4| fo', True, "answer-truncated"),
        ('{"lines": ["3| par i",', False, "answer-truncated"),
        ("3| par i", True, "answer-truncated"),
    ],
)
def test_edits_that_cannot_be_read(text: str, truncated: bool, code: str) -> None:
    answer = read_answer(_asked("edit"), text, truncated=truncated)
    assert isinstance(answer, Failed), answer
    assert answer.code == code


def test_the_reason_is_what_stands_before_the_edit() -> None:
    for text in ("Line 3\n3| for i\nmay be parallel.\n\nEdit:\n3| par i", "Line 3\n3| for i\nmay be parallel.\n\n3| par i"):
        answer = read_answer(_asked("edit"), text)
        assert isinstance(answer, Proposal)
        assert answer == Proposal(Edit(("3| par i",)), "Line 3\n3| for i\nmay be parallel.")


@pytest.mark.parametrize(
    "text",
    [
        PROGRAM,
        f"Strategy: s\nSite: s@0\nIt is legal.\n\nNext program:\n{PROGRAM}",
        f"First:\n\nNext program:\nin Z f32[2]\n\nNo, better:\n\nNext program:\n{PROGRAM}",
        f"**Next program:**\n```\n{PROGRAM}```\nDone.",
        f"```leir\nin Z f32[2]\n```\nor rather\n```leir\n{PROGRAM}```",
        f"in short: the loop\nin X is parallel.\n\n{PROGRAM}",
        f"Sure! Here is it:\n\n{PROGRAM}\n\nThis keeps what the program computes.",
        "Next program:\r\n" + PROGRAM.replace("\n", "\r\n"),
        "Next program:\n" + "".join(f"{n}| {line}\n" for n, line in enumerate(PROGRAM.splitlines(), 1)),
        json.dumps({"reason": "It is legal.", "program": PROGRAM}),
        "```json\n" + json.dumps({"program": f"```\n{PROGRAM}```"}) + "\n```",
        json.dumps({"program": PROGRAM})[:-1],
    ],
)
def test_rewrites(text: str) -> None:
    answer = read_answer(_asked("rewrite"), text)
    assert isinstance(answer, Proposal), answer
    assert answer.move == Rewrite(PROGRAM)
    assert isinstance(answer.move, Rewrite)
    parse(answer.move.text)


def test_the_reason_of_a_rewrite_is_without_its_headings() -> None:
    answer = read_answer(_asked("rewrite"), f"Strategy: s\nSite: s@0\nIt is legal.\n\nNext program:\n{PROGRAM}")
    assert isinstance(answer, Proposal)
    assert answer.reason == "It is legal."


@pytest.mark.parametrize(
    ("text", "truncated", "code"),
    [
        ("I would rather not.", False, "answer-unreadable"),
        ("Next program:\n", False, "answer-unreadable"),
        (f"Next program:\n{PROGRAM}", True, "answer-truncated"),
        (json.dumps({"program": PROGRAM})[:-20], True, "answer-truncated"),
        ('{"reason": "no program"}', False, "answer-unreadable"),
        ('{"program": 4}', False, "answer-unreadable"),
    ],
)
def test_rewrites_that_cannot_be_read(text: str, truncated: bool, code: str) -> None:
    answer = read_answer(_asked("rewrite"), text, truncated=truncated)
    assert isinstance(answer, Failed), answer
    assert answer.code == code


def test_a_closed_fence_is_whole_even_if_the_chatter_behind_it_was_cut_off() -> None:
    answer = read_answer(_asked("rewrite"), f"Next program:\n```\n{PROGRAM}```\nThis is becau", truncated=True)
    assert isinstance(answer, Proposal)


def test_schemas_name_what_is_read() -> None:
    assert answer_schema(_asked("action"))["properties"]["id"]["enum"] == ["OR", "QX", "ZB"]
    assert list(answer_schema(_asked("edit"))["properties"]) == ["reason", "lines"]
    assert answer_schema(Question("rewrite", False, "?"))["required"] == ["program"]
