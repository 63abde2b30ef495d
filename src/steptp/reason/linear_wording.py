"""Sentence templates for facts about sums of products, hoisted values, folded factors and unfolded windows (see :mod:`steptp.reason.wording`)."""

from __future__ import annotations

__all__ = ["LINEAR_WORDING"]

LINEAR_WORDING: dict[str, tuple[str, ...]] = {
    "contracted_first": (
        "{name} first sums `{text}` over {loops}; no other operand depends on these loops.",
        "Over {loops}, on which no other operand depends, {name} sums `{text}` first.",
    ),
    "operand_finite": (
        "The operand `{text}` of the store at {at} is finite for all finite inputs.",
        "For finite inputs the operand `{text}` of the store at {at} is always finite.",
    ),
    "distributive": (
        "By the laws of real sums and products every element of {buffer} keeps its value.",
        "Over the reals {buffer} stays the same, by the associative and distributive laws.",
    ),
    "contraction_cost": (
        "The multiplications and additions behind {buffer}: {before} before, {after} after.",
        "Summing into {buffer} takes {after} multiplications and additions in place of {before}.",
    ),
    "unfolded": (
        "{name} holds {columns} windows, one for each iteration of {loops}, as columns of {rows} elements.",
        "Each iteration of {loops} has its window as a column of {name}: {columns} columns of {rows} elements.",
    ),
    "flattened": (
        "One loop {loop} of {extent} iterations replaces the summed loops {loops}, in their order.",
        "The summed loops {loops} become one loop {loop} of {extent} iterations, in the same order.",
    ),
    "invariant_over": (
        "`{text}` depends on none of the loops {loops}, and nothing from {at} inwards writes what it reads.",
        "Nothing that `{text}` reads is written from {at} inwards, and it does not depend on {loops}.",
    ),
    "evaluated": (
        "What {name} holds is computed {after} times in place of {before}, guards not counted.",
        "Guards not counted, the value in {name} was computed {before} times and now is {after} times.",
    ),
    "scale_folded": (
        "{name} holds `{text}`; with it in the product, {buffer} needs no scale afterwards.",
        "The scale moves into the product: {buffer} sums with {name}, which is `{text}`.",
    ),
    "scales_whole": (
        "At {at} `{text}` scales all of {buffer}: where it gives no finite number, the result is none either, before and after.",
        "The result at {at} has `{text}` as a scale of {buffer}, so it is a finite number only where that gives one, before and after.",
    ),
    "summed_apart": (
        "{lower} sums the first term and {upper} the second; {buffer} combines the two sums.",
        "{buffer} becomes a combination of two sums: {lower} of the first term, {upper} of the second.",
    ),
    "summed_together": (
        "Only {buffer} uses the sums {lower} and {upper}, and it now sums their terms itself.",
        "{buffer} sums directly what went into {lower} and {upper}, which nothing else uses.",
    ),
}
