"""Sentences about sums of products, hoisted values, folded factors and unfolded windows, as the checker reads them (see :mod:`steptp.reason.patterns`)."""

from __future__ import annotations

__all__ = ["LINEAR_SENTENCES"]

LINEAR_SENTENCES: dict[str, tuple[str, ...]] = {
    "contracted_first": (
        "<name:name> first sums `<text:code>` over <loops:names>; no other operand depends on these loops.",
        "Over <loops:names>, on which no other operand depends, <name:name> sums `<text:code>` first.",
    ),
    "operand_finite": (
        "The operand `<text:code>` of the store at <at:place> is finite for all finite inputs.",
        "For finite inputs the operand `<text:code>` of the store at <at:place> is always finite.",
    ),
    "distributive": (
        "By the laws of real sums and products every element of <buffer:name> keeps its value.",
        "Over the reals <buffer:name> stays the same, by the associative and distributive laws.",
    ),
    "contraction_cost": (
        "The multiplications and additions behind <buffer:name>: <before:n> before, <after:n> after.",
        "Summing into <buffer:name> takes <after:n> multiplications and additions in place of <before:n>.",
    ),
    "unfolded": (
        "<name:name> holds <columns:n> windows, one for each iteration of <loops:names>, as columns of <rows:n> elements.",
        "Each iteration of <loops:names> has its window as a column of <name:name>: <columns:n> columns of <rows:n> elements.",
    ),
    "flattened": (
        "One loop <loop:name> of <extent:n> iterations replaces the summed loops <loops:names>, in their order.",
        "The summed loops <loops:names> become one loop <loop:name> of <extent:n> iterations, in the same order.",
    ),
    "invariant_over": (
        "`<text:code>` depends on none of the loops <loops:names>, and nothing from <at:place> inwards writes what it reads.",
        "Nothing that `<text:code>` reads is written from <at:place> inwards, and it does not depend on <loops:names>.",
    ),
    "evaluated": (
        "What <name:name> holds is computed <after:n> times in place of <before:n>, guards not counted.",
        "Guards not counted, the value in <name:name> was computed <before:n> times and now is <after:n> times.",
    ),
    "scale_folded": (
        "<name:name> holds `<text:code>`; with it in the product, <buffer:name> needs no scale afterwards.",
        "The scale moves into the product: <buffer:name> sums with <name:name>, which is `<text:code>`.",
    ),
    "scales_whole": (
        "At <at:place> `<text:code>` scales all of <buffer:name>: where it gives no finite number, the result is none either, before and after.",
        "The result at <at:place> has `<text:code>` as a scale of <buffer:name>, so it is a finite number only where that gives one, before and after.",
    ),
    "summed_apart": (
        "<lower:name> sums the first term and <upper:name> the second; <buffer:name> combines the two sums.",
        "<buffer:name> becomes a combination of two sums: <lower:name> of the first term, <upper:name> of the second.",
    ),
    "summed_together": (
        "Only <buffer:name> uses the sums <lower:name> and <upper:name>, and it now sums their terms itself.",
        "<buffer:name> sums directly what went into <lower:name> and <upper:name>, which nothing else uses.",
    ),
}
