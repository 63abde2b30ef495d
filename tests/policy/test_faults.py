"""Where an answer leaves what a program may be: right answers are never faulted while they are written, and wrong ones where they go wrong."""

from __future__ import annotations

import random

import pytest

from steptp.dataset.walk import list_sites
from steptp.frontend import zoo
from steptp.ir import parse, print_program
from steptp.ir.edits import edit_between
from steptp.policy.faults import Fault, faults_of
from steptp.policy.prompting import Form, Question
from steptp.rewrite import engine, registry

PROGRAM = "in A f32[N=8,M=6]\nout Y f32[N]\nfor i Y[i]=0\nfor i j\n Y[i]+=A[i,j]*2\n"


def _found(form: Form, text: str, whole: bool = True, *, reasons: bool = False, program: str = PROGRAM) -> tuple[str, str] | None:
    """The faulty stretch of an answer and what is said of it."""
    faults = faults_of(Question(form, reasons, "", program=program))
    assert faults is not None
    fault = faults(text, whole)
    return None if fault is None else (text[fault.start : fault.end], fault.message)


@pytest.mark.parametrize(
    ("text", "stretch"),
    [
        ("4| for i k\n", "Y"),  # nothing says how long k is: the statement below has to change
        ("5|  Y[i]+=A[i,k]*2\n", "k"),
        ("5|  Y[i]+=A[i]*2\n", "A[i]"),
        ("5|  Y[i]+=A[i,j]*2\n", " Y[i]+=A[i,j]*2"),  # as it was
        ("5|  Z[i]=0\n", "Z"),
        ("5| Z[0]=0\n", "5"),
        ("4| for j i\n5| Y[i]=0\n", "4| for j i\n5| Y[i]=0"),
        ("4| for i i\n", "i"),
        ("9| for i Y[i]=0\n", "9"),
        ("4-\n3-\n", "\n3"),
        ("3-\n3| for i Y[i]=1\n", "\n3"),
        ("for i Y[i]=0\n", "for i Y[i]=0"),
        ("3| for i Y[i]=A[i,0] and\n", ""),
    ],
)
def test_a_wrong_line_is_found_where_it_is_wrong(text: str, stretch: str) -> None:
    found = _found("edit", text, False)
    if stretch == "Y":
        assert found is None  # a line to come may say it
        return
    assert found is not None
    assert stretch in found[0]
    assert len(found[0]) <= len(stretch) + 2
    assert _found("edit", text.rstrip("\n"), False) is None or text.count("\n") > 1  # a line that is not finished is not looked at


def test_what_is_missing_is_found_at_the_end() -> None:
    assert _found("edit", "4| for i k:6") == ("", _found("edit", "4| for i k:6\n")[1])  # type: ignore[index]
    assert _found("edit", "4| for i k:6\n", False) is None
    assert _found("edit", "4| for i k:6\n5|  Y[i]+=A[i,k]*2") is None
    assert _found("edit", "") == ("", "nothing is changed")
    assert _found("edit", "", False) is None
    renamed = "4| for i l\n5|  Y[i]+=A[i,l]*2"
    found = _found("edit", renamed)
    assert found == (renamed, "the program is as it was")  # but for a name
    assert _found("edit", "3-\n4-\n5-") == ("3-\n4-\n5-", _found("edit", "3-\n4-\n5-")[1])  # type: ignore[index]
    assert _found("edit", "3-\n5|  Y[i]=0", program="in A f32[N=8]\nout Y f32[N] Z f32[N]\nfor i Z[i]=A[i]\nfor i\n Y[i]=1\n")[0].startswith("3-")  # type: ignore[index]
    before = _found("edit", "1| in B f32[N=8,M=6]\n5-\n4-\n", False)
    assert before is not None
    assert before[0] == "\n4"


def test_a_line_left_as_it_was_is_missed_before_the_next_change() -> None:
    program = "in A f32[N=8]\nout Y f32[N] Z f32[N]\nfor i\n Y[i]=A[i]\n Z[i]=A[i]+1\n"
    text = "3| for k\n5|  Z[k]=A[k]+1\n"
    assert _found("edit", text, False, program=program) == ("5", _found("edit", text, program=program)[1])  # type: ignore[index]
    assert _found("edit", "3| for k\n4+  Z[k]=A[k]\n", False, program=program)[0] == "+"  # type: ignore[index]
    assert _found("edit", "3| for k\n4|  Y[k]=A[k]\n5|  Z[k]=A[k]+1\n", program=program) == (
        "3| for k\n4|  Y[k]=A[k]\n5|  Z[k]=A[k]+1\n",
        "the program is as it was",
    )


def test_reasons_are_not_looked_at() -> None:
    assert _found("edit", "9| in a reason\n\nEdit:\n", False, reasons=True) is None
    assert _found("edit", "a reason\n\nEdit:\n9-\n", False, reasons=True) == ("9", "the program has lines 1 to 5")
    assert _found("edit", "only a reason", reasons=True) == ("", "the answer has no program")
    assert _found("rewrite", "It.\n\nNext program:\nin A f32[N=8] B f32[M]\n", False, reasons=True)[0].startswith("M")  # type: ignore[index]


def test_actions_have_no_faults() -> None:
    assert faults_of(Question("action", False, "", sites={"AB": "a@1"})) is None


def test_no_right_answer_has_a_fault_however_far_it_is_written() -> None:
    rng, seen = random.Random(7), 0
    for name in zoo.names("mini")[::7]:
        program = zoo.get(name).program
        for _ in range(3):
            sites = list_sites(program, registry.names_for("cpu"), rng, 12)
            if not sites:
                break
            parent, child = program, engine.applied_or_raise(program, rng.choice(sites)).program
            texts = print_program(parent), print_program(child)
            if texts[0] == texts[1]:
                continue
            for form, answer in (("edit", "\n".join(edit_between(*texts))), ("rewrite", texts[1])):
                faults = faults_of(Question(form, False, "", program=texts[0]))  # type: ignore[arg-type]
                assert faults is not None
                for end in range(len(answer)):
                    if answer[end] == "\n":
                        fault = faults(answer[: end + 1], False)
                        assert fault is None, f"{fault} of\n{answer}\non\n{texts[0]}"
                whole = faults(answer.rstrip("\n"), True)
                assert whole is None, f"{whole} of\n{answer}\non\n{texts[0]}"
                seen += 1
            program = child
    assert seen > 40


def test_an_answer_without_a_fault_is_another_program() -> None:
    """Lines of edits drawn at random: what has no fault can be carried out."""
    from steptp.ir.edits import apply_edit

    rng, right = random.Random(2), 0
    lines = PROGRAM.splitlines()
    texts = [*lines, " Y[i]+=A[i,j]*3", " Y[i]+=A[i,j]", "for i:N", "for j i", "par i", "for i j Y[i]+=A[i,j]*2"]
    faults = faults_of(Question("edit", False, "", program=PROGRAM))
    assert faults is not None
    for _ in range(3000):
        made = [
            f"{n}-" if op == "-" else f"{n}{op} {rng.choice(texts)}" for n in sorted(rng.sample(range(1, 6), rng.randint(1, 3))) for op in [rng.choice("|+-")]
        ]
        fault: Fault | None = faults("\n".join(made), True)
        if fault is None:
            right += 1
            assert parse(apply_edit(PROGRAM, made)) is not None
        else:
            assert 0 <= fault.start <= fault.end <= len("\n".join(made)) + 1
    assert right > 30
