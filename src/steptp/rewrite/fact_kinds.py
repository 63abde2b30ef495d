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
        _row("prefix_maximum", "`buffer` holds the maxima of the first 0, 1, … values of `text` over `loop`; the last one is the value of `of`", "child", buffer="str", of="str", loop="str", text="str"),
        _row("sum_of_exponentials", "`sum` sums exp(x-`buffer`) over `loop`, where `buffer` holds the maximum of x = `text`", "parent", sum="str", buffer="str", loop="str", text="str"),
        _row("prefix_sum", "`buffer` holds the sums over the first 0, 1, … iterations of `loop`, each beneath its own maximum in `peak`; the last one is the value of `of`", "child", buffer="str", of="str", peak="str", loop="str"),
        _row("weighted_by_softmax", "`buffer` sums over `loop` the products of `text` and `weights`, which are exp(x-`other`)/`sum`", "parent", buffer="str", weights="str", sum="str", other="str", loop="str", text="str"),
        _row("divided_once", "all `count` elements of `buffer` are divided by `sum` once, after the summation", "child", buffer="str", sum="str", count="int"),
        _row("row_not_empty", "the child's header states `constraint`, so that `loop` runs at least once", "child", loop="str", constraint="str"),
        _row("passes_over", "`before` nests beside the site read `buffer` in the parent, `after` in the child", "child", buffer="str", before="int", after="int"),
        _row("interior", "from iteration `low` up to, not including, `high` of `loop` the condition on it holds in every term", "parent", loop="str", low="int", high="int"),
        _row("boundary_corrected", "the `count` elements of `buffer` outside of the interior are computed with the condition", "child", buffer="str", count="int"),
        # algebra
        _row("expression_becomes", "in the store at `at` the expression `old` becomes `new`, which is equal over the reals", "rule", at="str", old="str", new="str"),
        _row("literal_at_size", "the expression `old` of the store at `at` is exactly `new`, which takes its place; the child's header states `constraint`", "child", at="str", old="str", new="str", constraint="str"),
        _row("proven", "`text` meets the `condition` (and is finite) for all finite inputs; `because`: the form of it that the proof starts from, or a condition that holds there", "rule", text="str", condition="str", because="str"),
        _row("common_factor", "`count` terms have the factor `factor`", "rule", factor="str", count="int"),
        _row("unchanged_in", "`text`, which the child computes, stays the same in the innermost loop", "child", text="str", loop="str", at="str"),
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
        _row("dimension_split", "dimension `dim` of `buffer`, of `extent` elements, becomes tiles of `factor`, which divides it; the child's header states `constraint` (empty where it follows anyway)", "child", buffer="str", dim="int", extent="int", factor="int", constraint="str"),
        _row("tile_contiguous", "a tile along dimension `dim` of `buffer` fills `elements` neighbouring elements", "child", buffer="str", dim="int", elements="int"),
        _row("dimensions_fused", "dimensions `dim` and `dim`+1 of `buffer`, of `rows` and `columns` elements, become one of `extent`", "child", buffer="str", dim="int", rows="int", columns="int", extent="int"),
        _row("pure_index", "the index expression `text` in the store at `at` reads no memory and depends on no other loops than `loops`", "parent", text="str", at="str", loops="strs"),
        _row("index_inside", "index `dim` of `buffer`, looked up, stays below `extent` and above -1 in every iteration", "parent", buffer="str", dim="int", extent="int"),
        _row("table_reused", "a run reads the `elements` elements of the table `name` `reads` times", "child", name="str", elements="int", reads="int"),
        _row("storage_scope", "the temporary `buffer` moves from `old` to `new` storage", "child", buffer="str", old="str", new="str"),
        _row("scope_bytes", "`buffer` takes `bytes` bytes; at most `limit` are put into `scope` storage", "child", buffer="str", bytes="int", limit="int", scope="str"),
        _row("one_holder", "no value of `buffer` passes from one `holder` (thread or block) to another", "dependence", buffer="str", holder="str"),
        # GPU
        _row("axis_fits", "the loop runs `extent` iterations; the axis `axis` takes at most `limit`", "rule", loop="str", at="str", axis="str", extent="int", limit="int"),
        _row("launch", "the kernel, whose outermost loop is at `at`, launches `blocks` blocks of `threads` threads; a block has at most 1024", "child", at="str", blocks="int", threads="int"),
        _row("limit_stated", "the child's header states `constraint`, so that the limit of the axis holds at other sizes too", "child", constraint="str"),
        _row("blocks_independent", "no block of the kernel at `at` touches what another one writes", "dependence", at="str"),
        _row("partial_accumulators", "`copies` partial accumulators per element of `buffer`, each of `terms` terms", "child", buffer="str", copies="int", terms="int"),
        # sums of products
        _row("contracted_first", "the child first sums the product `text` over `loops` into the new temporary `name`; no other operand depends on these loops", "child", name="str", text="str", loops="strs"),
        _row("operand_finite", "the operand `text` of the parent's store at `at` is finite for all finite inputs", "rule", text="str", at="str"),
        _row("distributive", "every element of `buffer` keeps its value over the reals, by the associative and distributive laws", "rule", buffer="str"),
        _row("contraction_cost", "float multiplications, and additions to a sum, in the stores of `buffer` and of temporaries that only one of the programs has", "child", buffer="str", before="int", after="int"),
        _row("summed_apart", "the child sums the two terms of `buffer` into `lower` and `upper`, and combines these", "child", buffer="str", lower="str", upper="str"),
        _row("summed_together", "`buffer` alone uses the sums `lower` and `upper`; the child sums their terms into it directly", "child", buffer="str", lower="str", upper="str"),
        _row("scale_folded", "the new temporary `name` holds `text`, a factor of the sum `buffer` times the scale that the sum no longer gets afterwards", "child", name="str", text="str", buffer="str"),
        _row("scales_whole", "`text` multiplies or divides everything that the parent's store at `at` makes of the sum `buffer`: where it is no finite number (or divides and is 0), neither is the result", "parent", text="str", buffer="str", at="str"),
        _row("invariant_over", "the expression `text` of the store depends on none of the `loops`, the innermost ones around it; nothing inside of the first, at `at`, writes what it reads", "parent", text="str", loops="strs", at="str"),
        _row("evaluated", "the value that `name` holds is computed `after` times in place of `before`, guards not counted", "child", name="str", before="int", after="int"),
        _row("unfolded", "`name` has a column of `rows` elements for each of the `columns` iterations of `loops`", "child", name="str", rows="int", columns="int", loops="strs"),
        _row("flattened", "one loop `loop` of `extent` iterations takes the place of the summed `loops`, in their order", "child", loops="strs", loop="str", extent="int"),
        # nests that move
        _row("nest_moved", "the nest at `source`, which writes `buffer`, moves under the loop at `at`", "child", buffer="str", source="str", loop="str", at="str"),
        _row("reads_under", "all `count` reads of `buffer` stand under the loop", "parent", buffer="str", count="int", loop="str", at="str"),
        _row("region_computed", "an iteration of `loop` computes `elements` elements of `buffer`, guards not counted", "child", buffer="str", elements="int", loop="str"),
        _row("inputs_kept", "no store behind the statement at `first`, up to and in the one at `last`, writes `buffers`", "parent", buffers="strs", first="str", last="str"),
        _row("bounds_guard", "the new guard `cond` keeps the iterations that write `buffer` inside of it", "child", cond="str", buffer="str"),
        _row("runs", "the store that computes `buffer` runs `after` times in place of `before`, guards not counted", "child", buffer="str", before="int", after="int"),
        _row("same_operations", "every element of `buffers` comes from the same operations in the same order", "dependence", buffers="strs"),
        _row("final_in_iteration", "each element of `buffer` is written in one iteration of the loop only (loops around included), and nowhere else", "dependence", buffer="str", loop="str", at="str"),
        _row("pointwise", "the nest of the site stores each element of `buffer` once; it reads the accumulation `accumulator`", "parent", buffer="str", accumulator="str"),
        _row("peeled", "the `part` `count` iterations of `loop` run in a nest of their own; the child's header states `constraint` (empty where it follows anyway)", "child", loop="str", part="str", count="int", constraint="str"),
        _row("tile_peeled", "the loop at `at` runs `full` full tiles, and a nest behind it the last `rest` iterations", "child", loop="str", at="str", full="int", rest="int"),
        _row("guard_dropped", "the guard `cond` goes: it holds in every full tile of `loop`", "child", cond="str", loop="str"),
        _row("reset_written", "in the second nest a plain store of the operator's identity stands for the reset of `buffer`", "child", buffer="str"),
        _row("renamed_copy", "the second nest uses the new temporary `name` of `elements` elements in place of `old`", "child", name="str", old="str", elements="int"),
        _row("initialised_first", "what an iteration of the loop uses of `buffer` it first initialises itself", "dependence", buffer="str", loop="str", at="str"),
        _row("held_in", "all `count` accesses to `buffer` under the loop go to `into`; only the write-back touches `buffer` there", "child", buffer="str", into="str", count="int", loop="str", at="str"),
        _row("axis_cut", "the loop at `at` is cut: the first nest runs `first` of its iterations, the second one `second`", "child", loop="str", at="str", first="int", second="int"),
        _row("tensor_cut", "`lower` and `upper` hold the two parts of `buffer`, which no longer exists", "child", buffer="str", lower="str", upper="str"),
        _row("partial_results", "`lower` and `upper` accumulate one part of the terms of `buffer` each, which combines them", "child", buffer="str", lower="str", upper="str", reduce="str"),
        _row("axis_joined", "one loop of `extent` iterations runs over what the loops at `first` and `second` ran over", "child", first="str", second="str", extent="int"),
        _row("tensors_joined", "`into` holds `lower` and then `upper` along dimension `dim`", "child", into="str", lower="str", upper="str", dim="int"),
        _row("same_computation", "the nests at `first` and `second` compute the same of other operands: `operands`, in pairs", "parent", first="str", second="str", operands="strs"),
        _row("guard_padded", "the guard `cond` goes: all `iterations` iterations of the tiles of `loop` stay inside the padded tensors", "child", cond="str", loop="str", iterations="int"),
        _row("padded", "dimension `dim` of `buffer`, of `before` elements, has `after` in `into`", "child", buffer="str", into="str", dim="int", before="int", after="int"),
        _row("skewed", "`loop` starts `factor` iterations later in each iteration of `around`; the guard `cond` keeps its `extent` iterations", "child", loop="str", around="str", factor="int", cond="str", extent="int"),
        _row("wavefront", "every dependence between iterations of the pair goes forward along `along`, so iterations of `around` with equal `along` are independent", "dependence", along="str", around="str"),
        _row("zero_terms", "past the end of `loop`, `buffer` sums products of nothing but padded zeros", "child", buffer="str", loop="str"),
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
