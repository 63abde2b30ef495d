"""Sentence templates by fact kind: at least two wordings each. Slots are the fact's values."""

from __future__ import annotations

from steptp.reason.linear_wording import LINEAR_WORDING
from steptp.reason.nest_wording import NEST_WORDING

__all__ = ["WORDING"]

WORDING: dict[str, tuple[str, ...]] = {
    # what dominates
    "work": (
        "One run does {operations} floating-point operations on {data} bytes of data, {intensity} operations a byte.",
        "Per run: {operations} floating-point operations over {data} bytes of data, that is {intensity} per byte.",
    ),
    "no_arithmetic": (
        "One run does no floating-point arithmetic; it stores {stores} elements.",
        "There is no floating-point arithmetic; a run stores {stores} elements.",
    ),
    "dominant": (
        "Line {line}, `{text}`, does {percent}% of the {unit}.",
        "{percent}% of the {unit} are in line {line}: `{text}`.",
    ),
    "cache_fit": (
        "The data fits in the {level} cache of {bytes} bytes.",
        "All data fits in {level} ({bytes} bytes).",
    ),
    "cache_exceeded": (
        "The data exceeds the largest cache, {level} of {bytes} bytes.",
        "No cache holds the data; the largest, {level}, has {bytes} bytes.",
    ),
    "inner_access": (
        "There, an iteration of the innermost loop {loop} moves `{access}` by {elements} elements.",
        "Its innermost loop {loop} moves `{access}` by {elements} elements an iteration.",
    ),
    # candidates and choice
    "candidates": (
        "{total} sites were drawn before choosing: {counts}.",
        "Before choosing, {total} sites were drawn: {counts}.",
    ),
    "choice_balanced_random": (
        "The walk drew {site} from them at random, with weights that balance the strategies.",
        "{site} was drawn from them at random; weights balance the strategies.",
    ),
    "choice_uniform_within_strategy": (
        "{site} was drawn evenly within its strategy, to compare siblings.",
        "To compare siblings, {site} was drawn evenly within its strategy.",
    ),
    # effects
    "statements_change": (
        "Stores in the text: {before} before, {after} after.",
        "The text has {before} stores before and {after} after.",
    ),
    "operations_change": (
        "Floating-point operations: {before} before, {after} after.",
        "Floating-point operations go from {before} to {after}.",
    ),
    "accessed_change": (
        "Bytes accessed: {before} before, {after} after.",
        "Loads and stores move {before} bytes before and {after} bytes after.",
    ),
    "temporaries_change": (
        "Temporaries: {before} bytes before, {after} bytes after.",
        "Temporaries take {before} bytes before and {after} bytes after.",
    ),
    "expectation": (
        "Expected: {outcome}, by the rule of {because}.",
        "By the rule of {because} the run should be {outcome}.",
    ),
    # the rewrite
    "line_becomes": ("Line {line} becomes `{text}`.", "Write line {line} as `{text}`."),
    "line_goes": ("Line {line} goes.", "Delete line {line}."),
    "line_comes": ("After line {line} comes `{text}`.", "Insert after line {line}: `{text}`."),
    # loops
    "loop_extent": (
        "Loop {loop} at {at} runs {extent} iterations, its extent is `{text}`.",
        "The extent of loop {loop} at {at} is `{text}`, that is {extent} iterations.",
    ),
    "perfect_nest": (
        "The loops {loops} are perfectly nested from {at}.",
        "From {at}, {loops} form a perfect nest.",
    ),
    "tile_size": ("The new size {name} is {value}.", "Size {name} = {value} is declared."),
    "divides": (
        "{factor} divides {extent}; the header states [{constraint}].",
        "{extent} is a multiple of {factor}; the header states [{constraint}].",
    ),
    "tail_guard": (
        "{factor} need not divide {extent}: the guard `{cond}` skips {idle} idle iterations.",
        "The guard `{cond}` skips {idle} idle iterations, so {factor} need not divide {extent}.",
    ),
    "tail_peeled": (
        "{factor} leaves {iterations} of {extent} iterations, which a loop of their own runs.",
        "Of {extent} iterations, {iterations} remain after tiles of {factor}; a loop of their own runs them.",
    ),
    "index_map": ("{loop} becomes `{becomes}`.", "Where the parent has {loop}, the child has `{becomes}`."),
    "loop_moved": (
        "Loop {loop} at {at} moves from position {source} to {target}; the nest then reads {order}.",
        "The nest then reads {order}: loop {loop} at {at} goes from position {source} to {target}.",
    ),
    "loop_kind": ("Loop {loop} at {at} turns from {old} to {new}.", "The kind of loop {loop} at {at} changes from {old} to {new}."),
    "loops_collapsed": (
        "Loops of {outer} and {inner} iterations become one of {extent}.",
        "One loop of {extent} iterations replaces loops of {outer} and {inner}.",
    ),
    # dependences
    "carries_no_dependence": (
        "No iteration of loop {loop} at {at} touches what another one writes.",
        "Loop {loop} at {at} carries no dependence.",
    ),
    "no_order_reversed": (
        "No two conflicting accesses to {buffers} change their order.",
        "Conflicting accesses to {buffers} keep their order.",
    ),
    "order_kept": (
        "Every element of {buffer} accumulates ({reduce}) in the same order as before.",
        "The order of accumulation ({reduce}) into each element of {buffer} is kept.",
    ),
    "order_changed": (
        "Elements of {buffer} accumulate ({reduce}) the same terms in another order.",
        "The order of accumulation ({reduce}) into {buffer} changes, the terms do not.",
    ),
    "order_free": (
        "The order does not matter for {buffer}: {reduce} on {dtype} gives the same bits in any order.",
        "{reduce} on {dtype} gives the same bits in any order, so the order for {buffer} does not matter.",
    ),
    "independent": (
        "The statements at {first} and {second} touch no common element that one of them writes; buffers at stake: {shared}.",
        "Of {shared}, the statements at {first} and {second} touch no common element that one of them writes.",
    ),
    "same_header": (
        "The nests at {first} and {second} run over the same loops {loops}.",
        "Loops {loops} are the same in the nests at {first} and {second}.",
    ),
    "cut": (
        "The body of loop {loop} at {at} is cut: {front} statements in front, {back} behind.",
        "After {front} statements the body of loop {loop} at {at} is cut; {back} follow.",
    ),
    "expanded": ("The temporary {name} gets {loop} as its outermost dimension.", "Loop {loop} becomes the outermost dimension of the temporary {name}."),
    # values
    "never_read": ("Nothing reads {buffer}, which is no output.", "{buffer} is no output, and nothing reads it."),
    "stores_removed": ("Stores into {buffer} that go: {count}.", "All {count} stores into {buffer} go."),
    "written_once": ("One plain assignment, at {at}, writes {buffer}.", "{buffer} is written by the assignment at {at} and by nothing else."),
    "reads_replaced": ("Reads of {buffer} replaced by its expression: {count}.", "The expression of {buffer} replaces {count} reads of it."),
    "unchanged_between": (
        "Nothing after {first} and up to {second} writes {buffers}.",
        "{buffers}: no write after {first} and up to {second}.",
    ),
    "named": ("The new temporary {name} holds `{text}`.", "`{text}` is stored into the new temporary {name}."),
    "occurs": ("From {at} on, `{text}` occurs {count} times.", "`{text}` occurs {count} times in the store at {at} and those right behind it."),
    "not_written_in": ("The nest at {at} writes none of {buffers}.", "None of {buffers} is written in the nest at {at}."),
    "same_value": (
        "The nests at {first} and {second} compute equal values into {other} and {buffer}.",
        "{buffer}, computed at {second}, equals {other}, computed at {first}.",
    ),
    "reads_renamed": ("Reads of {buffer} that become reads of {other}: {count}.", "{count} reads of {buffer} now read {other}."),
    "running_maximum": (
        "Over {loop}, {buffer} is the maximum of `{text}` and {sum} the sum of its exponentials, the maximum subtracted.",
        "{sum} sums the exponentials of `{text}` minus its maximum {buffer} over {loop}.",
    ),
    "rescaled": (
        "When the maximum moves to {peak}, {sum} is scaled by the exponential of the difference, and dropped while the maximum is still -inf.",
        "{sum} is scaled by the exponential of the old maximum minus {peak}; while the old maximum is -inf, it is dropped.",
    ),
    # algebra
    "expression_becomes": (
        "In the store at {at}, `{old}` becomes `{new}`, equal over the reals.",
        "`{new}` replaces `{old}` in the store at {at}; over the reals they are equal.",
    ),
    "literal_at_size": (
        "The header states [{constraint}], for which `{old}` in the store at {at} is exactly `{new}`.",
        "In the store at {at}, `{new}` replaces `{old}`: exactly that for [{constraint}], which the header states.",
    ),
    "proven": (
        "`{text}` is {condition} for all finite inputs, proven from its {because}.",
        "Proven from its {because}: `{text}` is {condition} for all finite inputs.",
    ),
    "common_factor": ("{count} terms have the factor `{factor}`.", "The factor `{factor}` occurs in {count} terms."),
    "unchanged_in": (
        "`{text}` stays the same in loop {loop} at {at}.",
        "Loop {loop} at {at} does not change `{text}`.",
    ),
    "prefix_maximum": (
        "{buffer} holds the maxima of the first 0, 1, ... values of `{text}` over {loop}; the last of them is {of}.",
        "Over {loop}, {buffer} keeps the maximum of every prefix of `{text}`, and {of} is the last one.",
    ),
    "sum_of_exponentials": (
        "Over {loop}, {sum} sums the exponentials of `{text}` minus {buffer}, its maximum.",
        "{buffer} holds the maximum of `{text}` over {loop}, and {sum} sums the exponentials of the differences.",
    ),
    "prefix_sum": (
        "{buffer} holds the sums over the first 0, 1, ... iterations of {loop}, each beneath its own maximum in {peak}; the last of them is {of}.",
        "Over {loop}, {buffer} keeps the sum of every prefix beneath the maximum that {peak} has for it, and {of} is the last one.",
    ),
    "weighted_by_softmax": (
        "{buffer} sums `{text}` over {loop} with the softmax weights {weights}, whose maximum is {other} and whose sum is {sum}.",
        "Over {loop}, {buffer} sums `{text}` times {weights}: exponentials beneath the maximum {other}, divided by their sum {sum}.",
    ),
    "divided_once": (
        "The division by {sum} comes once for each of the {count} elements of {buffer}, after the summation.",
        "All {count} elements of {buffer} are divided by {sum} once, at the end, instead of every weight.",
    ),
    "row_not_empty": (
        "The header states [{constraint}], so loop {loop} runs at least once.",
        "Loop {loop} must run at least once: the header states [{constraint}].",
    ),
    "passes_over": ("Nests that read {buffer}: {before} before, {after} after.", "{buffer} is read by {before} nests before and {after} after."),
    "interior": (
        "From {low} up to {high} (not included), the condition on {loop} holds in every term.",
        "The condition on {loop} holds in every term from iteration {low} up to {high}, not included.",
    ),
    "boundary_corrected": (
        "The other {count} elements of {buffer} are computed with the condition.",
        "With the condition, the {count} elements of {buffer} outside of the interior are computed.",
    ),
    # cost
    "parallel_iterations": (
        "{iterations} iterations of loop {loop} at {at} can run at once.",
        "Loop {loop} at {at} offers {iterations} iterations that can run at once.",
    ),
    "stride": (
        "Moving loop {loop} at {at} by one moves `{access}` by {elements} elements.",
        "`{access}` moves by {elements} elements for each iteration of loop {loop} at {at}.",
    ),
    "guard_in_vector": (
        "The guard `{cond}` depends on loop {loop} at {at}, so it is evaluated lane by lane.",
        "Lane by lane, the guard `{cond}` is evaluated, since it depends on loop {loop} at {at}.",
    ),
    "body_copies": ("Unrolling loop {loop} at {at} writes its body {copies} times.", "The body of loop {loop} at {at} is written {copies} times."),
    # memory
    "buffer_added": ("The temporary {name} of {elements} {dtype} elements is new.", "A new temporary {name} holds {elements} elements of {dtype}."),
    "buffer_removed": ("The temporary {name} of {elements} {dtype} elements goes.", "{name} and its {elements} elements of {dtype} are no longer declared."),
    "dimensions": ("The dimensions of {buffer} turn from {old} to {new}.", "{buffer} is stored as {new} instead of {old}."),
    "accesses_rewritten": ("Accesses to {buffer} that are rewritten: {count}.", "All {count} accesses to {buffer} are rewritten."),
    "region_copied": (
        "Each iteration of loop {loop} at {at} first copies what it reads of {buffer} into {into}.",
        "{into} holds the part of {buffer} that an iteration of loop {loop} at {at} reads.",
    ),
    "not_written_under": ("Nothing under loop {loop} at {at} writes {buffer}.", "{buffer} is not written under loop {loop} at {at}."),
    "accumulates_in": (
        "Under loop {loop} at {at}, {into} accumulates in place of {buffer}.",
        "{into} takes the place of {buffer} as accumulator under loop {loop} at {at}.",
    ),
    "written_back": ("Behind it {elements} elements of {buffer} are stored once.", "One store each writes {elements} elements of {buffer} back."),
    "dimension_split": (
        "Tiles of {factor} divide the {extent} elements of dimension {dim} of {buffer}; the header states [{constraint}].",
        "Dimension {dim} of {buffer}, of {extent} elements, is cut into tiles of {factor}; the header states [{constraint}].",
    ),
    "tile_contiguous": (
        "A tile along dimension {dim} of {buffer} then fills {elements} neighbouring elements.",
        "{elements} neighbouring elements then hold a tile along dimension {dim} of {buffer}.",
    ),
    "dimensions_fused": (
        "Dimension {dim} of {buffer} and the next one, {rows} times {columns}, become one of {extent}.",
        "One dimension of {extent} elements takes the place of dimension {dim} of {buffer} and the next one, {rows} times {columns}.",
    ),
    "pure_index": (
        "`{text}` in the store at {at} reads no memory and depends on the loops {loops} alone.",
        "The index `{text}` of the store at {at} follows from the loops {loops}, without reading memory.",
    ),
    "index_inside": (
        "Whatever the iteration, index {dim} of {buffer} stays inside its {extent} elements.",
        "Index {dim} of {buffer} never leaves its {extent} elements.",
    ),
    "table_reused": (
        "A run reads the {elements} elements of the table {name} {reads} times.",
        "The table {name} of {elements} elements is read {reads} times in a run.",
    ),
    "storage_scope": ("{buffer} moves from {old} to {new} storage.", "The storage of {buffer} is {new} instead of {old}."),
    "scope_bytes": (
        "{buffer} takes {bytes} of the {limit} bytes that may be {scope}.",
        "Of at most {limit} bytes of {scope} storage, {buffer} takes {bytes}.",
    ),
    "one_holder": (
        "No value of {buffer} passes from one {holder} to another.",
        "Whichever {holder} writes a value of {buffer} is the one that reads it.",
    ),
    # GPU
    "axis_fits": (
        "Loop {loop} at {at} runs {extent} iterations; {axis} takes up to {limit}.",
        "The axis {axis} takes up to {limit}, and loop {loop} at {at} runs {extent} iterations.",
    ),
    "launch": (
        "The kernel at {at} launches {blocks} blocks of {threads} threads; a block may have 1024.",
        "With at most 1024 threads in a block, the kernel at {at} launches {blocks} blocks of {threads} threads.",
    ),
    "limit_stated": (
        "The header states [{constraint}], so the axis fits at other sizes too.",
        "So that the axis fits at other sizes too, the header states [{constraint}].",
    ),
    "blocks_independent": (
        "No block of the kernel at {at} touches what another one writes.",
        "Blocks of the kernel at {at} need not wait for one another.",
    ),
    "partial_accumulators": (
        "Each element of {buffer} gets {copies} partial accumulators of {terms} terms.",
        "{copies} partial accumulators of {terms} terms serve each element of {buffer}.",
    ),
    **NEST_WORDING,
    **LINEAR_WORDING,
}
