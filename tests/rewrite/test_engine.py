"""The engine: listing, cutting, refusing, never a no-op, invalid results."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

import pytest
from rewrite_support import GOLDENS, PROGRAMS, program

from steptp.errors import LeirError, UsageError
from steptp.ir import Loop, Store, Var, program_hash
from steptp.ir.nodes import Program
from steptp.rewrite import engine, registry
from steptp.rewrite.base import Applied, Exactness, Family, NotApplicable, Outcome, Site, Strategy
from steptp.rewrite.context import Context
from steptp.rewrite.fact_kinds import FACT_KINDS, fact


class Broken(Strategy):
    """Renames a store's buffer to one that is not declared, or does nothing, or claims another class."""

    name, family, classes, summary = "broken", Family.LOOP, (Exactness.BITWISE,), "for tests"

    def __init__(self, how: str) -> None:
        self.how = how

    def sites(self, ctx: Context) -> Iterator[Site]:
        yield Site.of(self.name, (0,))

    def apply(self, ctx: Context, site: Site) -> Outcome:
        parent = ctx.program
        if self.how == "undeclared":
            first = parent.body[0]
            assert isinstance(first, Loop)
            return Applied(parent.with_(body=(replace(first, body=(Store("nowhere", (), Var(first.var)),)),)), Exactness.BITWISE, ())
        if self.how == "raises":
            raise LeirError("check-test", "a construction that the IR refuses")
        return Applied(parent, Exactness.REASSOCIATED if self.how == "class" else Exactness.BITWISE, ())


@pytest.fixture
def broken(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Broken:
    one = Broken(request.param)
    real = registry.all_strategies()
    monkeypatch.setattr(registry, "all_strategies", lambda: (one, *real))
    return one


def test_ids_are_unique_stable_and_readable_back() -> None:
    for name in PROGRAMS:
        first, second = engine.sites(program(name)), engine.sites(program(name))
        ids = [s.id for s in first]
        assert ids == [s.id for s in second]
        assert len(set(ids)) == len(ids) > 0
        assert all(" " not in i and Site.parse(i).id == i for i in ids)
        assert not first.cut


def test_sites_are_grouped_by_strategy_in_order() -> None:
    names = [s.strategy for s in engine.sites(program("softmax"))]
    assert names == sorted(names)


@pytest.mark.parametrize("limit", [1, 5, 20, 33])
def test_a_cut_list_is_fair_ordered_and_says_so(limit: int) -> None:
    subject = program("softmax")
    every = engine.sites(subject, limit=None)
    cut = engine.sites(subject, limit=limit)
    assert cut.cut
    assert len(cut) == limit < len(every)
    positions = [every.sites.index(s) for s in cut]
    assert positions == sorted(set(positions))
    have, all_of = Counter(s.strategy for s in cut), Counter(s.strategy for s in every)
    served = [have[name] for name in all_of]
    for name, count in all_of.items():
        assert have[name] == count or have[name] >= max(served) - 1


def test_one_strategy_more_than_its_lookahead() -> None:
    listed = engine.sites(program("guarded"), ["loop_split"], limit=3)
    assert len(listed) == 3
    assert listed.cut


def test_chosen_strategies_by_name_and_object() -> None:
    subject = program("matmul")
    by_name = engine.sites(subject, ["loop_split", "loop_fusion"])
    by_object = engine.sites(subject, [registry.get("loop_fusion"), registry.get("loop_split")])
    assert by_name == by_object
    assert {s.strategy for s in by_name} == {"loop_split", "loop_fusion"}


def test_unknown_strategies_get_a_suggestion() -> None:
    with pytest.raises(UsageError, match="loop_splitt") as err:
        registry.get("loop_splitt")
    assert "loop_split" in err.value.hint
    outcome = engine.apply(program("matmul"), "loop_splitt@0")
    assert isinstance(outcome, NotApplicable)
    assert "did you mean loop_split" in outcome.message


@pytest.mark.parametrize(
    ("site", "code"),
    [
        ("", "usage-site"), ("loop_split", "usage-site"), ("loop_split@x", "usage-site"), ("loop_split@0:", "bad-site"), ("loop_split@0:factor", "usage-site"),
        ("loop_split@9.9:factor=2", "no-such-place"), ("loop_split@-1:factor=2", "no-such-place"), ("loop_split@:factor=2", "not-a-loop"),
        ("loop_reorder@0:to=x", "bad-site"), ("loop_tiling@0:outer=x,inner=2", "factor"), ("loop_split@0:factor=-4", "factor"), ("loop_fusion@0.0.0.0", "not-a-loop"),
    ],
)  # fmt: skip
def test_malformed_sites_are_refused_with_a_reason(site: str, code: str) -> None:
    outcome = engine.apply(program("matmul"), site)
    assert isinstance(outcome, NotApplicable)
    assert outcome.code == code
    assert len(outcome.message) > 20


def test_every_strategy_refuses_hostile_sites_without_raising() -> None:
    subject = program("imperfect")
    paths = [v.path for v in Context(subject).visits] + [()]
    for one in registry.all_strategies():
        for path in paths:
            for params in ((), (("factor", 0),), (("to", -1),), (("at", "9.9"),), (("factor", "exp"), ("tail", "guard")), (("outer", 10**30), ("inner", 2))):
                outcome = engine.apply(subject, Site(one.name, path, params))
                assert isinstance(outcome, (Applied, NotApplicable))


@pytest.mark.parametrize("broken", ["undeclared", "raises", "class"], indirect=True)
def test_an_invalid_result_raises_in_tests(broken: Broken) -> None:
    with pytest.raises(AssertionError, match="broken@0"):
        engine.apply(program("matmul"), "broken@0")


@pytest.mark.parametrize("broken", ["undeclared", "raises", "class"], indirect=True)
def test_an_invalid_result_is_a_refusal_in_production(broken: Broken, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(engine.STRICT_VARIABLE)
    outcome = engine.apply(program("matmul"), "broken@0")
    assert isinstance(outcome, NotApplicable)
    assert outcome.code == "internal"
    assert "broken@0" in outcome.message


@pytest.mark.parametrize("broken", ["nothing"], indirect=True)
def test_a_step_that_changes_nothing_is_refused(broken: Broken) -> None:
    outcome = engine.apply(program("matmul"), "broken@0")
    assert isinstance(outcome, NotApplicable)
    assert outcome.code == "no-op"


def test_an_invalid_program_is_an_error() -> None:
    subject = program("matmul")
    wrong: Program = subject.with_(body=(Store("nowhere", (), Var("i")),))
    with pytest.raises(LeirError):
        engine.sites(wrong)
    with pytest.raises(LeirError):
        engine.apply(wrong, "loop_split@0:factor=2,tail=exact")


def test_no_listed_site_leads_back_to_the_same_program() -> None:
    for name in ("matmul", "integer"):
        subject = program(name)
        for site in engine.sites(subject):
            outcome = engine.apply(subject, site)
            assert isinstance(outcome, Applied)
            assert program_hash(outcome.program) != program_hash(subject)


def test_applied_or_raise_quotes_the_reason() -> None:
    with pytest.raises(UsageError, match="carries a dependence"):
        engine.applied_or_raise(program("matmul"), "loop_parallelization@0.0.0")


def test_the_fact_table_is_enforced() -> None:
    assert all(row.name == name and row.meaning for name, row in FACT_KINDS.items())
    with pytest.raises(ValueError, match="no fact kind"):
        fact("nonsense", "parent")
    with pytest.raises(ValueError, match="evidence"):
        fact("tile_size", "host", name="T0", value=4)
    with pytest.raises(ValueError, match="wants"):
        fact("tile_size", "child", name="T0")
    with pytest.raises(ValueError, match="is not int"):
        fact("tile_size", "child", name="T0", value="4")


def test_every_golden_folder_belongs_to_a_strategy_with_tests() -> None:
    folders = {f.name for f in GOLDENS.iterdir()} - {"derivations"}
    assert folders <= set(registry.names())
    assert all((GOLDENS.parent / "strategies" / f"test_{name}.py").exists() for name in folders)
