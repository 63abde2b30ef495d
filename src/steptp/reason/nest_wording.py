"""Sentence templates for facts about nests that move, are cut, joined, skewed or padded (see :mod:`steptp.reason.wording`)."""

from __future__ import annotations

__all__ = ["NEST_WORDING"]

NEST_WORDING: dict[str, tuple[str, ...]] = {
    "nest_moved": (
        "The nest at {source}, which writes {buffer}, moves under loop {loop} at {at}.",
        "Loop {loop} at {at} takes in the nest at {source}, which writes {buffer}.",
    ),
    "reads_under": (
        "All {count} reads of {buffer} stand under loop {loop} at {at}.",
        "{buffer} is read {count} times, always under loop {loop} at {at}.",
    ),
    "region_computed": (
        "An iteration of {loop} then computes {elements} elements of {buffer}, guards not counted.",
        "Guards not counted, {elements} elements of {buffer} are computed in an iteration of {loop}.",
    ),
    "inputs_kept": (
        "No store behind {first}, up to and in {last}, writes {buffers}.",
        "{buffers}: not written behind {first}, up to and in {last}.",
    ),
    "bounds_guard": ("The guard `{cond}` keeps it inside {buffer}.", "Outside of {buffer} the guard `{cond}` skips it."),
    "runs": (
        "Guards not counted, the store that computes {buffer} runs {after} times, {before} times before.",
        "The store that computes {buffer} ran {before} times and runs {after} times now, guards not counted.",
    ),
    "same_operations": (
        "Every element of {buffers} comes from the same operations in the same order.",
        "The operations behind each element of {buffers}, and their order, stay.",
    ),
    "final_in_iteration": (
        "In one run of its nest, one iteration of loop {loop} at {at} does all writes to an element of {buffer}.",
        "Each time its nest runs, an element of {buffer} is written in one iteration of loop {loop} at {at}, and nowhere else.",
    ),
    "pointwise": (
        "Each element of {buffer} is stored once, from the accumulation {accumulator}.",
        "{buffer} is a pointwise function of the accumulation {accumulator}.",
    ),
    "peeled": (
        "The {part} {count} iterations of {loop} get a nest of their own; the header states [{constraint}].",
        "Peeled off {loop}: its {part} {count} iterations, under [{constraint}] in the header.",
    ),
    "tile_peeled": (
        "Loop {loop} at {at} keeps {full} full tiles; the last {rest} iterations get a nest behind it.",
        "Behind the {full} full tiles of loop {loop} at {at} a nest of its own runs the last {rest} iterations.",
    ),
    "guard_dropped": (
        "The guard `{cond}` holds in every full tile of {loop} and goes.",
        "No full tile of {loop} needs the guard `{cond}`, which goes.",
    ),
    "reset_written": (
        "In the second nest a plain assignment resets {buffer}.",
        "The reset of {buffer} is written out as an assignment in the second nest.",
    ),
    "renamed_copy": (
        "The second nest has a temporary of its own, {name} of {elements} elements, in place of {old}.",
        "In place of {old} the second nest uses the new temporary {name} of {elements} elements.",
    ),
    "initialised_first": (
        "An iteration of loop {loop} at {at} initialises every element of {buffer} before it uses it.",
        "No value of {buffer} from before is used in an iteration of loop {loop} at {at}.",
    ),
    "held_in": (
        "All {count} accesses to {buffer} under loop {loop} at {at} go to {into}.",
        "Under loop {loop} at {at}, {into} stands for {buffer} in its {count} accesses.",
    ),
    "axis_cut": (
        "Loop {loop} at {at} is cut: {first} iterations in the first nest, {second} in the second.",
        "The first nest runs {first} iterations of loop {loop} at {at}, the second one the other {second}.",
    ),
    "tensor_cut": (
        "{lower} and {upper} hold the two parts of {buffer}.",
        "{buffer} falls into the tensors {lower} and {upper}.",
    ),
    "partial_results": (
        "{lower} and {upper} are partial results ({reduce}), from which {buffer} is combined.",
        "{buffer} combines ({reduce}) the partial results {lower} and {upper}.",
    ),
    "axis_joined": (
        "One loop of {extent} iterations takes the place of the loops at {first} and {second}.",
        "The loops at {first} and {second} become one of {extent} iterations.",
    ),
    "tensors_joined": (
        "{into} holds {lower} and behind it {upper} along dimension {dim}.",
        "Along dimension {dim}, {into} is {lower} followed by {upper}.",
    ),
    "same_computation": (
        "The nests at {first} and {second} differ in operands only: {operands}.",
        "But for the operands {operands}, the nests at {first} and {second} compute the same.",
    ),
    "guard_padded": (
        "The guard `{cond}` goes: all {iterations} iterations of the tiles of {loop} stay inside the padded tensors.",
        "In the padded tensors all {iterations} iterations of the tiles of {loop} have room, so the guard `{cond}` goes.",
    ),
    "padded": (
        "Dimension {dim} of {buffer} has {after} elements in {into}, padded from {before}.",
        "{into} pads dimension {dim} of {buffer} from {before} to {after} elements.",
    ),
    "skewed": (
        "{loop} starts {factor} later in each iteration of {around}; the guard `{cond}` keeps its {extent} iterations.",
        "Skewed by {factor} for each iteration of {around}, {loop} runs its {extent} iterations under the guard `{cond}`.",
    ),
    "wavefront": (
        "Every dependence goes forward along {along}; where that loop stands still, iterations of {around} are independent.",
        "Iterations of {around} that share a value of {along} are independent, since every dependence goes forward along the latter.",
    ),
    "zero_terms": (
        "Past the end of {loop}, the terms of {buffer} are products of padded zeros.",
        "{buffer} gets products of padded zeros as terms past the end of {loop}.",
    ),
}
