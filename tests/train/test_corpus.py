"""Nothing of a held-out split is trained on."""

from __future__ import annotations

import copy
from itertools import chain, pairwise
from typing import Any

import pytest

from steptp.dataset.store import Dataset
from steptp.errors import DatasetError
from steptp.train.config import SftConfig
from steptp.train.corpus import read_corpus, read_texts, recited
from steptp.train.run import _in_order


def _config(**keys: Any) -> SftConfig:
    base: dict[str, Any] = {"data": ("x",), "model": "m", "mix": ({"task": "named", "form": "edit"},), "answers": {"epochs": 1}}
    return SftConfig.model_validate(base | keys)


def _changed(data: Dataset) -> Dataset:
    return Dataset(data.folder / "other", copy.deepcopy(data.steps), copy.deepcopy(data.programs), data.info)


def _of(data: Dataset, split: str) -> list[dict[str, Any]]:
    return [s for s in data.steps if s["split"] == split and s["verdict"] == "ok"]


def test_only_the_train_split_is_read(data: Dataset) -> None:
    found = read_corpus(_config(), [data])
    ((source, samples),) = found.train
    assert source.name == "named/edit"
    assert {s.id for s in samples} == {s["id"] for s in _of(data, "train")}
    assert {s.split for s in found.validation} == {"validation"}
    texts = set(chain.from_iterable(read_texts([data])))
    held = [s for s in data.steps if s["split"] != "train"]
    assert texts
    assert not texts & {data.programs[h]["text"] for s in held for h in (s["parent"], s["child"]) if h}
    assert {data.programs[s["child"]]["text"] for s in _of(data, "train")} <= texts


@pytest.mark.parametrize("split", ["test_seen_family", "validation"])
def test_a_planted_root_is_refused(data: Dataset, split: str) -> None:
    planted = _changed(data)
    row = next(s for s in planted.steps if s["split"] == split)
    row["split"] = "train"
    for read in (lambda: read_corpus(_config(), [planted]), lambda: read_texts([planted])):
        with pytest.raises(DatasetError, match=row["root"]) as caught:
            read()
        assert caught.value.code == "train-leak"


def test_what_another_folder_holds_out_is_left_out(data: Dataset) -> None:
    """A root, by its own name, and a family, under roots of other names."""
    row = _of(data, "train")[0]
    ((_, before),) = read_corpus(_config(), [data]).train
    for kind, split in (("root", "validation"), ("family", "test_new_family")):
        planted = _changed(data)
        planted.steps[:] = [s for s in planted.steps if s[kind] == row[kind] and s["split"] == "train"]
        for other in planted.steps:
            other.update(split=split, **({} if kind == "root" else {"root": other["root"][::-1]}))
        both = [data, planted]
        found = read_corpus(_config(), both)
        ((_, after),) = found.train
        gone = [s for s in before if s.root == row["root"] or (kind == "family" and s.family == row["family"])]
        assert {s.id for s in before} - {s.id for s in after} == {s.id for s in gone} != set()
        assert found.left_out["root or family that another folder holds out"] == len(gone)
        texts = {text for group in read_texts(both) for text in group}
        assert texts
        assert not texts & {s.program for s in gone}


def test_a_program_that_a_held_out_split_also_has_is_left_out(data: Dataset) -> None:
    planted = _changed(data)
    theirs = next(s for s in planted.steps if s["split"] == "test_seen_family")
    ours = next(s for s in planted.steps if s["split"] == "train" and s["verdict"] == "ok")
    theirs["child"] = ours["child"]
    found = read_corpus(_config(), [planted])
    assert ours["id"] not in {s.id for _, samples in found.train for s in samples}
    assert found.left_out["program also in a held-out split"] >= 1
    assert planted.programs[ours["child"]]["text"] not in set(chain.from_iterable(read_texts([planted])))


def test_folders_are_joined_and_samples_drawn_by_the_seed(data: Dataset) -> None:
    twice = read_corpus(_config(), [data, _changed(data)])
    ((_, once),) = read_corpus(_config(), [data]).train
    assert [s.id for s in twice.train[0][1]] == [s.id for s in once]
    assert twice.left_out["in an earlier folder"] == len(once)
    few = {"mix": ({"task": "named", "form": "edit", "samples": 3},)}
    drawn = [[s.id for s in read_corpus(_config(seed=seed, **few), [data]).train[0][1]] for seed in (0, 0, 1, 2)]
    assert drawn[0] == drawn[1]
    assert len({tuple(d) for d in drawn}) > 1
    assert all(len(d) == 3 for d in drawn)


def test_a_mix_without_samples_is_refused(data: Dataset) -> None:
    with pytest.raises(DatasetError, match="train-empty"):
        read_corpus(_config(mix=({"task": "action", "form": "action"},)), [data])


def test_programs_of_one_root_stand_together(data: Dataset) -> None:
    groups = read_texts([data])
    by_text = {row["text"]: row["root"] for row in data.programs.values()}
    assert [len({by_text[text] for text in group}) for group in groups] == [1] * len(groups)
    ordered, other = (list(_in_order(groups, seed)) for seed in (0, 1))
    assert sorted(ordered) == sorted(other) == sorted(chain.from_iterable(groups))
    assert ordered != other
    roots = [by_text[text] for text in ordered]
    assert len([1 for a, b in pairwise(roots) if a != b]) == len(groups) - 1


def test_candidates_come_in_several_orders(measured: Dataset) -> None:
    mix = {"task": "action", "form": "action"}
    ((_, once),) = read_corpus(_config(mix=(mix,)), [measured]).train
    ((_, often),) = read_corpus(_config(mix=(mix | {"orders": 3},)), [measured, measured]).train
    assert len(often) == 3 * len(once) > 0
    for sample in once:
        others = [s for s in often if s.id == sample.id]
        assert len({s.prompt for s in others}) == 3
        assert {tuple(sorted(s.sites.values())) for s in others} == {tuple(sorted(sample.sites.values()))}
        assert {s.sites[s.best] for s in others} == {sample.sites[sample.best]}
    with pytest.raises(ValueError, match="orders is for action"):
        _config(mix=({"task": "named", "form": "edit", "orders": 2},))


def test_lines_of_a_program_stand_again_behind_it(data: Dataset) -> None:
    for text in {row["text"] for row in data.programs.values()}:
        lines = text.splitlines()
        shown, *ranges = recited(text, 3, 0).split("\n\n")
        assert shown.splitlines() == [f"{n}| {line}" for n, line in enumerate(lines, 1)]
        assert len(ranges) == 3
        for part in ranges:
            assert f"\n{part}\n" in f"\n{shown}\n"
            assert 1 <= len(part.split("\n")) <= 4
        assert recited(text, 0, 0) == text
        assert recited(text, 3, 0) == recited(text, 3, 0) != recited(text, 3, 1)
