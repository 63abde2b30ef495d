"""Sentences about nests that move, are cut, joined, skewed or padded, as the checker reads them (see :mod:`steptp.reason.patterns`)."""

from __future__ import annotations

__all__ = ["NEST_SENTENCES"]

NEST_SENTENCES: dict[str, tuple[str, ...]] = {
    "nest_moved": (
        "The nest at <source:place>, which writes <buffer:name>, moves under loop <loop:name> at <at:place>.",
        "Loop <loop:name> at <at:place> takes in the nest at <source:place>, which writes <buffer:name>.",
    ),
    "reads_under": (
        "All <count:n> reads of <buffer:name> stand under loop <loop:name> at <at:place>.",
        "<buffer:name> is read <count:n> times, always under loop <loop:name> at <at:place>.",
    ),
    "region_computed": (
        "An iteration of <loop:name> then computes <elements:n> elements of <buffer:name>, guards not counted.",
        "Guards not counted, <elements:n> elements of <buffer:name> are computed in an iteration of <loop:name>.",
    ),
    "inputs_kept": (
        "No store behind <first:place>, up to and in <last:place>, writes <buffers:names>.",
        "<buffers:names>: not written behind <first:place>, up to and in <last:place>.",
    ),
    "bounds_guard": ("The guard `<cond:code>` keeps it inside <buffer:name>.", "Outside of <buffer:name> the guard `<cond:code>` skips it."),
    "runs": (
        "Guards not counted, the store that computes <buffer:name> runs <after:n> times, <before:n> times before.",
        "The store that computes <buffer:name> ran <before:n> times and runs <after:n> times now, guards not counted.",
    ),
    "same_operations": (
        "Every element of <buffers:names> comes from the same operations in the same order.",
        "The operations behind each element of <buffers:names>, and their order, stay.",
    ),
    "final_in_iteration": (
        "In one run of its nest, one iteration of loop <loop:name> at <at:place> does all writes to an element of <buffer:name>.",
        "Each time its nest runs, an element of <buffer:name> is written in one iteration of loop <loop:name> at <at:place>, and nowhere else.",
    ),
    "pointwise": (
        "Each element of <buffer:name> is stored once, from the accumulation <accumulator:name>.",
        "<buffer:name> is a pointwise function of the accumulation <accumulator:name>.",
    ),
    "peeled": (
        "The <part:word> <count:n> iterations of <loop:name> get a nest of their own; the header states [<constraint:free>].",
        "Peeled off <loop:name>: its <part:word> <count:n> iterations, under [<constraint:free>] in the header.",
    ),
    "tile_peeled": (
        "Loop <loop:name> at <at:place> keeps <full:n> full tiles; the last <rest:n> iterations get a nest behind it.",
        "Behind the <full:n> full tiles of loop <loop:name> at <at:place> a nest of its own runs the last <rest:n> iterations.",
    ),
    "guard_dropped": (
        "The guard `<cond:code>` holds in every full tile of <loop:name> and goes.",
        "No full tile of <loop:name> needs the guard `<cond:code>`, which goes.",
    ),
    "reset_written": (
        "In the second nest a plain assignment resets <buffer:name>.",
        "The reset of <buffer:name> is written out as an assignment in the second nest.",
    ),
    "renamed_copy": (
        "The second nest has a temporary of its own, <name:name> of <elements:n> elements, in place of <old:name>.",
        "In place of <old:name> the second nest uses the new temporary <name:name> of <elements:n> elements.",
    ),
    "initialised_first": (
        "An iteration of loop <loop:name> at <at:place> initialises every element of <buffer:name> before it uses it.",
        "No value of <buffer:name> from before is used in an iteration of loop <loop:name> at <at:place>.",
    ),
    "held_in": (
        "All <count:n> accesses to <buffer:name> under loop <loop:name> at <at:place> go to <into:name>.",
        "Under loop <loop:name> at <at:place>, <into:name> stands for <buffer:name> in its <count:n> accesses.",
    ),
    "axis_cut": (
        "Loop <loop:name> at <at:place> is cut: <first:n> iterations in the first nest, <second:n> in the second.",
        "The first nest runs <first:n> iterations of loop <loop:name> at <at:place>, the second one the other <second:n>.",
    ),
    "tensor_cut": (
        "<lower:name> and <upper:name> hold the two parts of <buffer:name>.",
        "<buffer:name> falls into the tensors <lower:name> and <upper:name>.",
    ),
    "partial_results": (
        "<lower:name> and <upper:name> are partial results (<reduce:op>), from which <buffer:name> is combined.",
        "<buffer:name> combines (<reduce:op>) the partial results <lower:name> and <upper:name>.",
    ),
    "axis_joined": (
        "One loop of <extent:n> iterations takes the place of the loops at <first:place> and <second:place>.",
        "The loops at <first:place> and <second:place> become one of <extent:n> iterations.",
    ),
    "tensors_joined": (
        "<into:name> holds <lower:name> and behind it <upper:name> along dimension <dim:n>.",
        "Along dimension <dim:n>, <into:name> is <lower:name> followed by <upper:name>.",
    ),
    "same_computation": (
        "The nests at <first:place> and <second:place> differ in operands only: <operands:names>.",
        "But for the operands <operands:names>, the nests at <first:place> and <second:place> compute the same.",
    ),
    "guard_padded": (
        "The guard `<cond:code>` goes: all <iterations:n> iterations of the tiles of <loop:name> stay inside the padded tensors.",
        "In the padded tensors all <iterations:n> iterations of the tiles of <loop:name> have room, so the guard `<cond:code>` goes.",
    ),
    "padded": (
        "Dimension <dim:n> of <buffer:name> has <after:n> elements in <into:name>, padded from <before:n>.",
        "<into:name> pads dimension <dim:n> of <buffer:name> from <before:n> to <after:n> elements.",
    ),
    "skewed": (
        "<loop:name> starts <factor:n> later in each iteration of <around:name>; the guard `<cond:code>` keeps its <extent:n> iterations.",
        "Skewed by <factor:n> for each iteration of <around:name>, <loop:name> runs its <extent:n> iterations under the guard `<cond:code>`.",
    ),
    "wavefront": (
        "Every dependence goes forward along <along:name>; where that loop stands still, iterations of <around:name> are independent.",
        "Iterations of <around:name> that share a value of <along:name> are independent, since every dependence goes forward along the latter.",
    ),
    "zero_terms": (
        "Past the end of <loop:name>, the terms of <buffer:name> are products of padded zeros.",
        "<buffer:name> gets products of padded zeros as terms past the end of <loop:name>.",
    ),
}
