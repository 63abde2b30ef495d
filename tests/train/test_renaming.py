"""Other names: programs stay equal up to names, question and answer agree, derived names follow, clashes are seen."""

from __future__ import annotations

import random
from collections import Counter
from itertools import chain
from typing import Any

import pytest

from steptp.dataset.questions import Form, task_prompt
from steptp.dataset.samples import Sample, samples_of
from steptp.dataset.store import Dataset
from steptp.ir import parse, print_program
from steptp.ir.canonical import canonical
from steptp.ir.edits import apply_edit
from steptp.train.config import SftConfig
from steptp.train.corpus import read_corpus, read_texts
from steptp.train.renaming import Pools, other_names, pools_of, renamed, renamed_group, with_names

TEXT = """\
size T0=8
in x f32[N=64,K=128] weight[K]
out Y[N]
tmp xl t[N,K]
where N%T0==0, K>=2
for i c1 xl[i,c1]=x[i,c1]*1e-5
for i0:N//T0 i1:T0 j t[i0*T0+i1,j]=max(xl[i0*T0+i1,j],0)*weight[j]
for i j Y[i]+=t[i,j]
"""
POOLS = Pools(("a", "b", "input", "w", "z"), ("B", "C", "D"), ("p", "q", "r", "u"))


def _up_to_names(text: str) -> str:
    """The canonical text with the interface's tensors numbered."""
    program = canonical(parse(text))
    numbers = {b.name: f"io{n}" for n, b in enumerate((*program.inputs, *program.outputs))}
    return with_names(print_program(program), numbers)


def test_names_are_found_by_what_they_name() -> None:
    assert pools_of([TEXT]) == Pools(("Y", "t", "weight", "x", "xl"), ("K", "N"), ("i", "j"))
    assert pools_of(["in a_very_long_name f32[N=4] b i64[N] 0..K\nout Y[N]\nfor i Y[i]=a_very_long_name[b[i]]\n"]) == Pools(("Y", "b"), ("K", "N"), ("i",))


@pytest.mark.parametrize("seed", range(20))
def test_derived_names_follow_and_the_engine_s_own_stay(seed: int) -> None:
    by = other_names(TEXT, POOLS, random.Random(seed))
    assert set(by) == {"N", "K", "x", "weight", "Y", "xl", "t", "loop i", "loop j"}
    assert by["xl"] == f"{by['x']}l"
    assert len(set(by.values())) == len(by)
    (text,) = renamed_group([TEXT], POOLS, 1, seed)
    assert _up_to_names(text) == _up_to_names(TEXT)
    assert f"for {by['loop i']}0:{by['N']}//T0" not in TEXT
    assert {"T0", "c1", "1e-5"} <= {*text.replace("[", " ").replace("]", " ").replace("*", " ").replace(",", " ").replace("=", " ").split()}


def test_programs_of_a_root_keep_their_names_in_common() -> None:
    other = TEXT.replace("xl", "xt")
    first, second = renamed_group([TEXT, other], POOLS, 1, 0)
    assert first.splitlines()[1:3] == second.splitlines()[1:3]
    assert first != TEXT
    assert _up_to_names(second) == _up_to_names(other)
    assert renamed_group([TEXT], Pools((), (), ()), 1, 0) == [TEXT]  # nothing to choose from


@pytest.mark.parametrize("form", ["edit", "rewrite"])
def test_question_and_answer_agree(data: Dataset, form: Form) -> None:
    samples = list(samples_of(data, "named", form, reasons=False, split="train"))
    pools = pools_of(data.programs[root]["text"] for root in sorted({s.root for s in samples}))
    met: Counter[str] = Counter()
    for sample in samples:
        other = renamed(sample, pools, 1, 0)
        assert other is not None
        assert _up_to_names(other.program) == _up_to_names(sample.program)
        assert _up_to_names(other.child) == _up_to_names(sample.child)
        assert _after(other) == other.child
        met["as before" if form == "rewrite" or _places(other) == _places(sample) else "matched otherwise"] += 1
        for name in _values(sample):
            met["kept" if name in _values(other) else "exchanged"] += 1
        assert other.prompt == task_prompt("named", form, False, other.program, strategy=other.strategy, site=other.site)
        assert renamed(sample, pools, 1, 0) == other
    assert met["exchanged"] > 0  # buffers in sites
    assert met["matched otherwise"] < 0.02 * met["as before"]  # likeness of lines depends on names
    assert sum(s.prompt != o.prompt for s in samples if (o := renamed(s, pools, 2, 0)) is not None) > 0.9 * len(samples)


def _places(sample: Sample) -> list[str]:
    """Numbers and signs of the lines of an edit."""
    return [line.partition(" ")[0] for line in sample.completion.splitlines()]


def _values(sample: Sample) -> list[str]:
    return [part.partition("=")[2] for part in sample.site.partition(":")[2].split(",")]


def _after(sample: Sample) -> str:
    """The program that the answer makes of the question's."""
    if sample.form == "rewrite":
        return sample.completion + "\n"
    return apply_edit(sample.program, sample.completion.split("\n"))


def test_samples_of_one_state_share_their_names(data: Dataset) -> None:
    samples = list(samples_of(data, "named", "edit", reasons=False, split="train"))
    pools = pools_of(data.programs[root]["text"] for root in {s.root for s in samples})
    by_state: dict[str, set[str]] = {}
    for sample in samples:
        if (other := renamed(sample, pools, 1, 0)) is not None:
            by_state.setdefault(other.state, set()).add(other.program)
    assert all(len(programs) == 1 for programs in by_state.values())


def test_two_names_that_would_become_one_are_no_renaming(data: Dataset) -> None:
    """A tensor can only be called like a loop that keeps its name."""
    pools = Pools(("i",), (), ())
    sample = next(s for s in samples_of(data, "named", "edit", reasons=False, split="train") if "for i " in s.program)
    assert renamed(sample, pools, 1, 0) is None
    assert renamed_group([TEXT], pools, 1, 0) == [TEXT]


def _config(**keys: Any) -> SftConfig:
    return SftConfig.model_validate({"data": ("x",), "model": "m", "answers": {"epochs": 1}} | keys)


def test_a_run_reads_each_sample_under_several_names(data: Dataset) -> None:
    named = {"task": "named", "form": "edit"}
    ((_, plain),) = read_corpus(_config(mix=(named,)), [data]).train
    found = read_corpus(_config(mix=(named | {"names": 3},)), [data])
    ((_, often),) = found.train
    assert often[: len(plain)] == plain
    assert len(often) + found.left_out["names clash"] == 3 * len(plain)
    assert len({s.id for s in often}) == len(often)
    once, thrice = read_texts([data]), read_texts([data], names=3)
    assert thrice[: len(once)] == once
    assert len(thrice) == 3 * len(once)
    assert len({*chain.from_iterable(thrice)}) > 2.5 * len({*chain.from_iterable(once)})
    for bad in ({"reasons": True}, {"task": "action", "form": "action"}):
        with pytest.raises(ValueError, match="names is for named and free samples without reasons"):
            _config(mix=(named | {"names": 2} | bad,))
