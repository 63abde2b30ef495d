"""The table of fact kinds that strategies may use.

One row says what a fact claims and which values it holds, with their types. Every value can be worked out again from the parent, the
child and the site, by code that shares nothing with the strategies. Texts are written elsewhere.

Loops are named by their variable, and by ``at``: the path of the loop in the parent (``child_at``: in the child). Expressions are canonical text.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from steptp.ir.facts import Fact, FactValue

__all__ = ["FactKind", "FACT_KINDS", "fact", "fact_problems"]

ValueType = Literal["int", "float", "str", "bool", "strs"]


@dataclass(frozen=True, slots=True)
class FactKind:
    """One kind: its meaning, the names and types of its values, and the evidence it may state."""

    name: str
    meaning: str
    values: tuple[tuple[str, ValueType], ...]
    evidence: tuple[str, ...]


def _row(name: str, meaning: str, evidence: str, /, **values: ValueType) -> FactKind:
    return FactKind(name, meaning, tuple(sorted(values.items())), tuple(evidence.split()))


FACT_KINDS: dict[str, FactKind] = {
    row.name: row
    for row in (
        # loops
        _row("loop_extent", "the loop runs `extent` iterations at the present sizes; `text` is its extent", "parent", loop="str", at="str", extent="int", text="str"),
        _row("perfect_nest", "these loops are perfectly nested from `at` downwards, nothing between them", "parent", at="str", loops="strs"),
        _row("tile_size", "the child's header has the size `name` with this value", "child", name="str", value="int"),
        _row("divides", "`factor` divides `extent` without rest; the child's header states `constraint` (empty where it follows anyway)", "parent", extent="int", factor="int", constraint="str"),
        _row("tail_guard", "`factor` does not have to divide `extent`: the guard `cond` skips the `idle` iterations past the end", "child", cond="str", extent="int", factor="int", idle="int"),
        _row("tail_peeled", "the last `iterations` iterations run in a loop of their own behind the main one", "child", extent="int", factor="int", iterations="int"),
        _row("index_map", "in the child the parent's loop variable `loop` is `becomes`", "child", loop="str", becomes="str"),
        _row("loop_moved", "the loop moves from position `source` to position `target` of its nest, which now reads `order`", "parent", loop="str", at="str", source="int", target="int", order="strs"),
        _row("loop_kind", "the loop's kind changes from `old` to `new`", "child", loop="str", at="str", old="str", new="str"),
        _row("loops_collapsed", "two loops of `outer` and `inner` iterations become one of `extent`", "child", outer="int", inner="int", extent="int"),
        # dependences
        _row("carries_no_dependence", "no iteration of the loop touches what another one writes", "dependence", loop="str", at="str"),
        _row("no_order_reversed", "`buffers` have dependences, other than an accumulation meeting itself, that the moving loops carry; the new order reverses none", "dependence", buffers="strs"),
        _row("order_kept", "every element of `buffer` accumulates its terms in the parent's order", "dependence", buffer="str", reduce="str"),
        _row("order_changed", "elements of `buffer` accumulate the same terms in another order", "dependence", buffer="str", reduce="str"),
        _row("order_free", "`reduce` on `dtype` gives the same bits in any order", "rule", buffer="str", reduce="str", dtype="str"),
        _row("same_header", "the nests at `first` and `second` run over the same outer loops `loops`", "parent", first="str", second="str", loops="strs"),
        _row("cut", "the body of the loop is cut after `front` statements; `back` follow", "parent", loop="str", at="str", front="int", back="int"),
        _row("expanded", "the temporary `name` gets `loop` as a new outermost dimension", "child", name="str", loop="str"),
        # values
        _row("never_read", "no statement reads `buffer`, which is no output", "parent", buffer="str"),
        _row("stores_removed", "all `count` stores into `buffer` go", "child", buffer="str", count="int"),
        _row("written_once", "`buffer` is written by one plain assignment only, at `at`", "parent", buffer="str", at="str"),
        _row("reads_replaced", "`count` reads of `buffer` become the expression stored in it", "child", buffer="str", count="int"),
        _row("unchanged_between", "no statement after `first` and up to `second` writes `buffers`", "parent", buffers="strs", first="str", second="str"),
        _row("independent", "within one iteration of the loops around, the statements at `first` and `second` touch no common element that one writes; `shared`: the buffers that both touch and one writes", "dependence", first="str", second="str", shared="strs"),
        _row("named", "the child stores the expression `text` into the new temporary `name`", "child", name="str", text="str"),
        _row("occurs", "the expression `text` occurs `count` times in the store at `at` and those right behind it", "parent", text="str", count="int", at="str"),
        _row("not_written_in", "the nest at `at` writes none of `buffers`", "parent", buffers="strs", at="str"),
        _row("same_value", "the nests at `first` and `second` compute equal values into `other` and `buffer`", "parent", buffer="str", other="str", first="str", second="str"),
        _row("reads_renamed", "`count` reads of `buffer` become reads of `other`", "child", buffer="str", other="str", count="int"),
        _row("running_maximum", "`buffer` is the maximum and `sum` the sum of exp(x-maximum) of x = `text` over `loop`", "parent", buffer="str", sum="str", loop="str", text="str"),
        _row("rescaled", "`sum` is multiplied by exp(old maximum - `peak`), and dropped while the old maximum is still -inf", "child", sum="str", peak="str"),
        # cost
        _row("parallel_iterations", "`iterations` iterations can run at once", "parent", loop="str", at="str", iterations="int"),
        _row("stride", "moving the loop by one moves the access `access` by `elements` elements", "parent", loop="str", at="str", access="str", elements="int"),
        _row("guard_in_vector", "the guard `cond` depends on the vector loop, so it is evaluated lane by lane", "parent", loop="str", at="str", cond="str"),
        _row("body_copies", "unrolling writes the body `copies` times, unrolled loops around included", "parent", loop="str", at="str", copies="int"),
        # memory
        _row("buffer_added", "the child declares the temporary `name` of `elements` elements", "child", name="str", dtype="str", elements="int"),
        _row("buffer_removed", "the child no longer declares the temporary `name` of `elements` elements", "child", name="str", dtype="str", elements="int"),
        _row("dimensions", "`buffer`, of shape `old` in the parent (or the input it copies), has shape `new`", "child", buffer="str", old="str", new="str"),
        _row("accesses_rewritten", "all `count` accesses to `buffer` are rewritten", "child", buffer="str", count="int"),
        _row("region_copied", "each iteration of the loop copies what it reads of `buffer` into `into`", "child", buffer="str", into="str", loop="str", at="str"),
        _row("not_written_under", "nothing under the loop writes `buffer`", "parent", buffer="str", loop="str", at="str"),
        _row("accumulates_in", "under the loop `into` accumulates in place of `buffer`", "child", buffer="str", into="str", loop="str", at="str"),
        _row("written_back", "`elements` elements of `buffer` are stored once, after the accumulation", "child", buffer="str", elements="int"),
        _row("partial_accumulators", "`copies` partial accumulators per element of `buffer`, each of `terms` terms", "child", buffer="str", copies="int", terms="int"),
    )
}  # fmt: skip


def fact(kind: str, evidence: str, /, **values: FactValue) -> Fact:
    """A fact of the table; raises ``ValueError`` when it does not fit its row."""
    made = Fact(kind, tuple(sorted(values.items())), evidence)
    if problem := next(fact_problems(made), None):
        raise ValueError(problem)
    return made


_TYPES: dict[str, type] = {"int": int, "float": float, "str": str, "bool": bool, "strs": tuple}


def fact_problems(one: Fact) -> Iterator[str]:
    """What does not fit the table, as sentences."""
    row = FACT_KINDS.get(one.kind)
    if row is None:
        yield f"no fact kind {one.kind!r}"
        return
    if one.evidence not in row.evidence:
        yield f"{one.kind}: evidence {one.evidence!r} is not one of {row.evidence}"
    if tuple(n for n, _ in one.values) != tuple(n for n, _ in row.values):
        yield f"{one.kind}: has {[n for n, _ in one.values]}, wants {[n for n, _ in row.values]}"
        return
    for (name, value), (_, want) in zip(one.values, row.values, strict=True):
        if type(value) is not _TYPES[want]:
            yield f"{one.kind}.{name}: {value!r} is not {want}"
