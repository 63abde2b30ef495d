"""What comes of proposals, Ctrl-C, and resuming."""

from __future__ import annotations

from pathlib import Path

import pytest
from search_toy import LETTERS, Slow, Toy, asked, program_of, searched, words

from steptp.errors import UsageError
from steptp.policy.scripted import Scripted
from steptp.search.algorithms import algorithm, names
from steptp.search.budget import Limits
from steptp.search.checkpoint import Checkpoint, Store
from steptp.search.moves import Failed
from steptp.search.policy import State
from steptp.search.session import Found, Progress, Search, run_search

EVERY = {"*": list(LETTERS)}


def _time(word: str) -> float:
    return 0.8 ** word.count("a") * 0.9 ** word.count("c") * 1.1 ** word.count("b")


def test_every_outcome_has_a_kind() -> None:
    script = {"": ["a", "b", "=", "-", Failed("answer-unreadable", "no JSON"), "c", "d"]}
    toy = Toy({}, same={"d": "b", "c": "a"}, bad={"a": "timeout"})
    found, _ = searched(algorithm("bfs", k=7), script, toy)
    attempts = found.tree.start.attempts
    assert [a.kind for a in attempts] == ["timeout", "ok", "no_op", "refused", "answer-unreadable", "timeout", "known"]
    assert toy.judged == ["a", "b"]  # one program is judged once
    assert [a.node for a in attempts] == [None, 1, None, None, None, None, 1]


def test_a_program_that_was_rejected_at_a_state_is_not_judged_there_again() -> None:
    toy = Toy({}, same={"b": "a"}, bad={"a": "not_equal"})
    found, _ = searched(algorithm("greedy", k=1), {"": ["a", "b"]}, toy)
    assert [a.kind for a in found.tree.start.attempts] == ["not_equal", "not_equal"]
    assert toy.judged == ["a"]


def test_a_policy_that_fails_costs_a_sample_and_no_more() -> None:
    class Broken(Scripted):
        def propose(self, state: State, k: int) -> list[Failed]:
            raise UsageError("policy-down", "the server is gone")

    found = run_search(algorithm("greedy", patience=3), Search(program_of(""), Broken({}), Toy({}), limits=Limits(samples=9)))
    assert [a.kind for a in found.tree.start.attempts] == ["policy-down"] * 3


@pytest.mark.parametrize("name", names())
def test_ctrl_c_gives_the_best_so_far(name: str) -> None:
    def stop(n: int) -> None:
        if n == 9:
            raise KeyboardInterrupt

    found, _ = searched(algorithm(name), EVERY, Toy(_time, stop=stop), samples=40)
    assert found.stopped == "interrupted"
    assert found.best.speedup == max(n.speedup or 0.0 for n in found.tree.nodes)


@pytest.mark.parametrize("name", names())
@pytest.mark.parametrize("at", [0, 5, 11])
def test_a_resumed_search_is_the_undisturbed_one(tmp_path: Path, name: str, at: int) -> None:
    def stop(n: int) -> None:
        if n == at:
            raise KeyboardInterrupt

    whole, _ = searched(algorithm(name), EVERY, toy := Toy(_time, bad={"b": "not_equal"}), samples=24)
    with Checkpoint(tmp_path / "journal", {"seed": 0}, resume=False) as store:
        first, _ = searched(algorithm(name), EVERY, half := Toy(_time, bad=toy.bad, stop=stop), samples=24, store=store)
    assert first.stopped == "interrupted"
    with Checkpoint(tmp_path / "journal", {"seed": 0}, resume=True) as store:
        again, policy = searched(algorithm(name), EVERY, rest := Toy(_time, bad=toy.bad), samples=24, store=store)
    assert again.tree.to_json() == whole.tree.to_json()
    assert again.spent == whole.spent
    assert sorted([*half.judged, *rest.judged]) == sorted(toy.judged)  # nothing twice
    with Checkpoint(tmp_path / "journal", {"seed": 0}, resume=True) as store:
        over, policy = searched(algorithm(name), EVERY, idle := Toy(_time), samples=24, store=store)
    assert (over.tree.to_json(), idle.judged, policy.seen) == (whole.tree.to_json(), [], [])


def test_a_resumed_search_may_get_more_samples(tmp_path: Path) -> None:
    for samples, resume in ((10, False), (24, True)):
        with Checkpoint(tmp_path / "journal", {}, resume=resume) as store:
            found, _ = searched(algorithm("chain"), EVERY, Toy(_time), samples=samples, store=store)
    whole, _ = searched(algorithm("chain"), EVERY, Toy(_time), samples=24)
    assert found.tree.to_json() == whole.tree.to_json()


@pytest.mark.parametrize(
    ("small", "large"),
    [
        ({"samples": 8}, {"samples": 24}),  # whole questions: one that a limit has shortened stays short
        ({"samples": None, "measurements": 5}, {"samples": None, "measurements": 15}),
        ({"samples": None, "tokens": 85}, {"samples": None, "tokens": 245}),
        ({"samples": None, "seconds": 6.0}, {"samples": None, "seconds": 20.0}),  # a verdict takes 1
    ],
)
def test_every_budget_ends_a_search_and_may_be_raised(tmp_path: Path, small: dict[str, float | None], large: dict[str, float | None]) -> None:
    what = next(name for name, value in small.items() if value is not None)

    def run(limits: dict[str, float | None], store: Store) -> tuple[Found, list[str], int]:
        slow, policy = Slow(1.0), Scripted(EVERY, tokens=10)
        search = Search(program_of(""), policy, slow, limits=Limits(**limits), store=store, clock=lambda: slow.now)  # type: ignore[arg-type]
        return run_search(algorithm("bfs", k=4), search), slow.judged, len(policy.seen)

    for limits, resume in ((small, False), (small, True), (large, True)):
        with Checkpoint(tmp_path / "journal", {}, resume=resume) as store:
            found, judged, asked_now = run(limits, store)
        assert found.stopped == what
        assert found.spent[what] <= (limits[what] or 0)
        if limits is small and resume:
            assert (judged, asked_now) == ([], 0)  # nothing is left of it
    whole, all_judged, _ = run(large, Store())
    assert found.tree.to_json() == whole.tree.to_json()
    assert len(judged) < len(all_judged)
    assert {k: v for k, v in found.spent.items() if k != "seconds"} == {k: v for k, v in whole.spent.items() if k != "seconds"}


def test_a_folder_holds_one_search(tmp_path: Path) -> None:
    with Checkpoint(tmp_path / "journal", {"seed": 0}, resume=False), pytest.raises(UsageError, match="another run"):
        Checkpoint(tmp_path / "journal", {"seed": 0}, resume=True)
    with pytest.raises(UsageError, match="--resume"):
        Checkpoint(tmp_path / "journal", {"seed": 0}, resume=False)
    with pytest.raises(UsageError, match=r"begun otherwise \(seed\)"):
        Checkpoint(tmp_path / "journal", {"seed": 1}, resume=True)


def test_progress_is_told_after_every_batch() -> None:
    seen: list[Progress] = []
    policy = Scripted(EVERY)
    search = Search(program_of(""), policy, Toy(_time), limits=Limits(samples=6), watch=seen.append)
    run_search(algorithm("bfs", k=3), search)
    assert [(len(p.attempts), p.nodes, p.spent["samples"]) for p in seen] == [(3, 4, 3), (3, 7, 6)]
    assert asked(policy) == ["", "a"]


def test_unknown_names_and_settings() -> None:
    with pytest.raises(UsageError, match="no search called"):
        algorithm("beem")
    with pytest.raises(UsageError, match="no such settings: fan"):
        algorithm("beam", fan=3)
    assert words([searched(algorithm("beam"), {}, Toy({}))[0].best]) == [""]


def test_every_algorithm_has_one_test_file() -> None:
    folder = Path(__file__).parent / "algorithms"
    assert {p.stem.removeprefix("test_") for p in folder.glob("test_*.py")} == set(names())


def test_an_algorithm_is_named_with_its_settings() -> None:
    assert algorithm("beam:width=1,k=2") == algorithm("beam", width=1, k=2)
    assert algorithm("chain:with_parent=false") == algorithm("chain", with_parent=False)
    for wrong in ("beam:width", "beam:width=a", "beam:height=2", "beem"):
        with pytest.raises(UsageError) as caught:
            algorithm(wrong)
        assert caught.value.code == "usage-search"
