"""Edits by numbered lines: what they mean, that they give the child, that a changed line keeps its number."""

from __future__ import annotations

import random

import pytest
from leir_gen import random_program

from steptp.errors import UsageError
from steptp.ir import print_program
from steptp.ir.edits import EditLine, apply_edit, edit_between, edit_line, edited_places


@pytest.mark.parametrize(
    ("line", "read"),
    [
        ("4| for i", EditLine(4, "|", "for i")),
        ("  4|  Y[i]=0", EditLine(4, "|", " Y[i]=0")),
        ("4|for i", EditLine(4, "|", "for i")),
        ("4|", EditLine(4, "|", "")),
        ("0+ size N=4", EditLine(0, "+", "size N=4")),
        ("12-  ", EditLine(12, "-", "")),
        ("4+4 is eight", None),
        ("4- the loop", None),
        ("for i", None),
        ("1234567| for i", None),
        ("", None),
    ],
)
def test_lines_of_an_edit(line: str, read: EditLine | None) -> None:
    assert edit_line(line) == read
    if read is not None:
        assert edit_line(str(read)) == read


def test_places_are_named_once() -> None:
    assert edited_places(["0+ size T0=4", "3| par i", "3+ x", "3+ y", "4-", "no line"]) == "0+, 3, 3+, 4-"


def test_numbers_are_of_the_text_before() -> None:
    text = "a\nb\nc\n"
    assert apply_edit(text, ["0+ x", "1-", "2| B", "2+  y", "2+ z"]) == "x\nB\n y\nz\nc\n"
    assert apply_edit(text, ["2+ z", "2| B", "2-", "2| C"]) == "a\nB\nC\nz\nc\n"  # several stand for a line, whatever else takes it out
    assert apply_edit(text, ["3+ d"]) == "a\nb\nc\nd\n"
    assert apply_edit(text, ["3+", "1|"]) == "\nb\nc\n\n"
    assert apply_edit(text, ["3-", "1-", "2-"]) == ""
    assert apply_edit(text, []) == text


@pytest.mark.parametrize("line", ["4| d", "4+ d", "0| d", "0-", "9-", "b", ""])
def test_a_line_that_says_nothing_of_the_text_is_refused(line: str) -> None:
    with pytest.raises(UsageError) as caught:
        apply_edit("a\nb\nc\n", ["1-", line])
    assert caught.value.code == "usage-edit"


@pytest.mark.parametrize(
    ("parent", "child", "expected"),
    [
        ("a\nb\nc\n", "a\nB\nc\n", ["2| B"]),
        ("a\nb\nc\n", "a\nc\n", ["2-"]),
        ("a\nc\n", "a\nb\nc\n", ["1+ b"]),
        ("a\nc\n", "x\na\nc\n", ["0+ x"]),
        ("a\na\n", "a\na\na\n", ["2+ a"]),
        ("a\nb\n", "a\nb\n", []),
        # a line that comes in beside one that changes: the like ones are matched, whichever comes first
        ("in x[N=8]\nfor i Y[i]=x[i]\n", "size T0=4\nin x[N=8]\nwhere N%T0==0\nfor i0:N//T0 i1:T0 Y[i0*T0+i1]=x[i0*T0+i1]\n",
         ["0+ size T0=4", "1+ where N%T0==0", "2| for i0:N//T0 i1:T0 Y[i0*T0+i1]=x[i0*T0+i1]"]),
        ("in x[N=8]\nfor i j s[i]+=x[i,j]*2\n", "tmp t[N,K]\nin x[N=9]\nfor i j s[i]+=t[i,j]\nfor i j t[i,j]=x[i,j]*2\n",
         ["0+ tmp t[N,K]", "1| in x[N=9]", "2| for i j s[i]+=t[i,j]", "2+ for i j t[i,j]=x[i,j]*2"]),
        ("a\nfor i j Y[i,j]=x[i,j]\nfor i j Z[i,j]=y[i,j]+1\nb\n", "a\nfor i j k Z[i,j]=y[i,j]+2\nb\n", ["2-", "3| for i j k Z[i,j]=y[i,j]+2"]),
    ],
)  # fmt: skip
def test_only_what_changes_is_said(parent: str, child: str, expected: list[str]) -> None:
    assert edit_between(parent, child) == expected
    assert apply_edit(parent, expected) == child


def test_the_edit_between_two_programs_gives_the_second() -> None:
    rng = random.Random(4)
    texts = [print_program(random_program(seed)) for seed in range(60)]
    for text in texts:
        lines = text.splitlines()
        for _ in range(rng.randint(1, 4)):
            at = rng.randrange(len(lines) + 1)
            lines[at : at + rng.randint(0, 2)] = rng.choices(rng.choice(texts).splitlines(), k=rng.randint(0, 3))
        child = "".join(f"{line}\n" for line in lines)
        for one, other in ((text, child), (child, text), (text, rng.choice(texts))):
            edit = edit_between(one, other)
            assert apply_edit(one, edit) == other
            numbers = [line.number for line in map(edit_line, edit) if line is not None]
            assert numbers == sorted(numbers)
            assert len(numbers) == len(edit)
            assert len(edit) <= max(len(one.splitlines()), len(other.splitlines()))


def test_large_changes_are_matched_in_order() -> None:
    parent, child = "".join(f"a{n}\n" for n in range(30)), "".join(f"b{n}\n" for n in range(31))
    edit = edit_between(parent, child)
    assert edit[0] == "1| b0"
    assert edit[-1] == "30+ b30"
    assert apply_edit(parent, edit) == child
