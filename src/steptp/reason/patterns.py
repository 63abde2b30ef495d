"""Reading sentences back: what the checker accepts, written down independently of the templates.

A sentence is matched against every pattern; the first that matches wholly gives the claim and its values.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from steptp.reason.linear_patterns import LINEAR_SENTENCES
from steptp.reason.nest_patterns import NEST_SENTENCES

__all__ = ["Claim", "read_sentence"]

_INT = r"-?\d+"
_NAME = r"[A-Za-z_]\w*"
_NAMES = rf"{_NAME}(?:, {_NAME})*"
_PLACE = r"\d+(?:\.\d+)*"
_CODE = r"[^`]*"
_SITE = r"[a-z_][a-z0-9_]*@[\d.]*(?::[^\s]+?)?"
_OP = r"\+|\*|max|min|or|and"
_TYPES = {
    "n": _INT,
    "name": _NAME,
    "names": _NAMES,
    "place": _PLACE,
    "code": _CODE,
    "site": _SITE,
    "op": _OP,
    "dec": r"\d+\.\d\d",
    "free": r".*?",
    "word": r"[a-z]+",
    "dims": r"\d+(?:x\d+)*",
}

# kind: sentences, where <slot:type> stands for a value
_SENTENCES: dict[str, tuple[str, ...]] = {
    "work": (
        "One run does <operations:n> floating-point operations on <data:n> bytes of data, <intensity:dec> operations a byte.",
        "Per run: <operations:n> floating-point operations over <data:n> bytes of data, that is <intensity:dec> per byte.",
    ),
    "no_arithmetic": ("One run does no floating-point arithmetic; it stores <stores:n> elements.", "There is no floating-point arithmetic; a run stores <stores:n> elements."),
    "dominant": ("Line <line:n>, `<text:code>`, does <percent:n>% of the <unit:word>.", "<percent:n>% of the <unit:word> are in line <line:n>: `<text:code>`."),
    "cache_fit": ("The data fits in the <level:name> cache of <bytes:n> bytes.", "All data fits in <level:name> (<bytes:n> bytes)."),
    "cache_exceeded": ("The data exceeds the largest cache, <level:name> of <bytes:n> bytes.", "No cache holds the data; the largest, <level:name>, has <bytes:n> bytes."),
    "inner_access": (
        "There, an iteration of the innermost loop <loop:name> moves `<access:code>` by <elements:n> elements.",
        "Its innermost loop <loop:name> moves `<access:code>` by <elements:n> elements an iteration.",
    ),
    "candidates": ("<total:n> sites were drawn before choosing: <counts:free>.", "Before choosing, <total:n> sites were drawn: <counts:free>."),
    "choice_balanced_random": (
        "The walk drew <site:site> from them at random, with weights that balance the strategies.",
        "<site:site> was drawn from them at random; weights balance the strategies.",
    ),
    "choice_uniform_within_strategy": (
        "<site:site> was drawn evenly within its strategy, to compare siblings.",
        "To compare siblings, <site:site> was drawn evenly within its strategy.",
    ),
    "statements_change": ("Stores in the text: <before:n> before, <after:n> after.", "The text has <before:n> stores before and <after:n> after."),
    "operations_change": ("Floating-point operations: <before:n> before, <after:n> after.", "Floating-point operations go from <before:n> to <after:n>."),
    "accessed_change": ("Bytes accessed: <before:n> before, <after:n> after.", "Loads and stores move <before:n> bytes before and <after:n> bytes after."),
    "temporaries_change": ("Temporaries: <before:n> bytes before, <after:n> bytes after.", "Temporaries take <before:n> bytes before and <after:n> bytes after."),
    "expectation": ("Expected: <outcome:word>, by the rule of <because:word>.", "By the rule of <because:word> the run should be <outcome:word>."),
    "line_becomes": ("Line <line:n> becomes `<text:code>`.", "Write line <line:n> as `<text:code>`."),
    "line_goes": ("Line <line:n> goes.", "Delete line <line:n>."),
    "line_comes": ("After line <line:n> comes `<text:code>`.", "Insert after line <line:n>: `<text:code>`."),
    "loop_extent": (
        "Loop <loop:name> at <at:place> runs <extent:n> iterations, its extent is `<text:code>`.",
        "The extent of loop <loop:name> at <at:place> is `<text:code>`, that is <extent:n> iterations.",
    ),
    "perfect_nest": ("The loops <loops:names> are perfectly nested from <at:place>.", "From <at:place>, <loops:names> form a perfect nest."),
    "tile_size": ("The new size <name:name> is <value:n>.", "Size <name:name> = <value:n> is declared."),
    "divides": ("<factor:n> divides <extent:n>; the header states [<constraint:free>].", "<extent:n> is a multiple of <factor:n>; the header states [<constraint:free>]."),
    "tail_guard": (
        "<factor:n> need not divide <extent:n>: the guard `<cond:code>` skips <idle:n> idle iterations.",
        "The guard `<cond:code>` skips <idle:n> idle iterations, so <factor:n> need not divide <extent:n>.",
    ),
    "tail_peeled": (
        "<factor:n> leaves <iterations:n> of <extent:n> iterations, which a loop of their own runs.",
        "Of <extent:n> iterations, <iterations:n> remain after tiles of <factor:n>; a loop of their own runs them.",
    ),
    "index_map": ("<loop:name> becomes `<becomes:code>`.", "Where the parent has <loop:name>, the child has `<becomes:code>`."),
    "loop_moved": (
        "Loop <loop:name> at <at:place> moves from position <source:n> to <target:n>; the nest then reads <order:names>.",
        "The nest then reads <order:names>: loop <loop:name> at <at:place> goes from position <source:n> to <target:n>.",
    ),
    "loop_kind": ("Loop <loop:name> at <at:place> turns from <old:word> to <new:word>.", "The kind of loop <loop:name> at <at:place> changes from <old:word> to <new:word>."),
    "loops_collapsed": ("Loops of <outer:n> and <inner:n> iterations become one of <extent:n>.", "One loop of <extent:n> iterations replaces loops of <outer:n> and <inner:n>."),
    "carries_no_dependence": ("No iteration of loop <loop:name> at <at:place> touches what another one writes.", "Loop <loop:name> at <at:place> carries no dependence."),
    "no_order_reversed": ("No two conflicting accesses to <buffers:names> change their order.", "Conflicting accesses to <buffers:names> keep their order."),
    "order_kept": ("Every element of <buffer:name> accumulates (<reduce:op>) in the same order as before.", "The order of accumulation (<reduce:op>) into each element of <buffer:name> is kept."),
    "order_changed": ("Elements of <buffer:name> accumulate (<reduce:op>) the same terms in another order.", "The order of accumulation (<reduce:op>) into <buffer:name> changes, the terms do not."),
    "order_free": (
        "The order does not matter for <buffer:name>: <reduce:op> on <dtype:name> gives the same bits in any order.",
        "<reduce:op> on <dtype:name> gives the same bits in any order, so the order for <buffer:name> does not matter.",
    ),
    "independent": (
        "The statements at <first:place> and <second:place> touch no common element that one of them writes; buffers at stake: <shared:names>.",
        "Of <shared:names>, the statements at <first:place> and <second:place> touch no common element that one of them writes.",
    ),
    "parallel_iterations": ("<iterations:n> iterations of loop <loop:name> at <at:place> can run at once.", "Loop <loop:name> at <at:place> offers <iterations:n> iterations that can run at once."),
    "stride": ("Moving loop <loop:name> at <at:place> by one moves `<access:code>` by <elements:n> elements.", "`<access:code>` moves by <elements:n> elements for each iteration of loop <loop:name> at <at:place>."),
    "guard_in_vector": (
        "The guard `<cond:code>` depends on loop <loop:name> at <at:place>, so it is evaluated lane by lane.",
        "Lane by lane, the guard `<cond:code>` is evaluated, since it depends on loop <loop:name> at <at:place>.",
    ),
    "body_copies": ("Unrolling loop <loop:name> at <at:place> writes its body <copies:n> times.", "The body of loop <loop:name> at <at:place> is written <copies:n> times."),
    "buffer_added": ("The temporary <name:name> of <elements:n> <dtype:name> elements is new.", "A new temporary <name:name> holds <elements:n> elements of <dtype:name>."),
    "same_header": (
        "The nests at <first:place> and <second:place> run over the same loops <loops:names>.",
        "Loops <loops:names> are the same in the nests at <first:place> and <second:place>.",
    ),
    "cut": (
        "The body of loop <loop:name> at <at:place> is cut: <front:n> statements in front, <back:n> behind.",
        "After <front:n> statements the body of loop <loop:name> at <at:place> is cut; <back:n> follow.",
    ),
    "expanded": ("The temporary <name:name> gets <loop:name> as its outermost dimension.", "Loop <loop:name> becomes the outermost dimension of the temporary <name:name>."),
    "never_read": ("Nothing reads <buffer:name>, which is no output.", "<buffer:name> is no output, and nothing reads it."),
    "stores_removed": ("Stores into <buffer:name> that go: <count:n>.", "All <count:n> stores into <buffer:name> go."),
    "written_once": ("One plain assignment, at <at:place>, writes <buffer:name>.", "<buffer:name> is written by the assignment at <at:place> and by nothing else."),
    "reads_replaced": ("Reads of <buffer:name> replaced by its expression: <count:n>.", "The expression of <buffer:name> replaces <count:n> reads of it."),
    "unchanged_between": ("Nothing after <first:place> and up to <second:place> writes <buffers:names>.", "<buffers:names>: no write after <first:place> and up to <second:place>."),
    "buffer_removed": ("The temporary <name:name> of <elements:n> <dtype:name> elements goes.", "<name:name> and its <elements:n> elements of <dtype:name> are no longer declared."),
    "named": (
        "The new temporary <name:name> holds `<text:code>`.",
        "`<text:code>` is stored into the new temporary <name:name>.",
    ),
    "occurs": (
        "From <at:place> on, `<text:code>` occurs <count:n> times.",
        "`<text:code>` occurs <count:n> times in the store at <at:place> and those right behind it.",
    ),
    "not_written_in": (
        "The nest at <at:place> writes none of <buffers:names>.",
        "None of <buffers:names> is written in the nest at <at:place>.",
    ),
    "same_value": (
        "The nests at <first:place> and <second:place> compute equal values into <other:name> and <buffer:name>.",
        "<buffer:name>, computed at <second:place>, equals <other:name>, computed at <first:place>.",
    ),
    "reads_renamed": (
        "Reads of <buffer:name> that become reads of <other:name>: <count:n>.",
        "<count:n> reads of <buffer:name> now read <other:name>.",
    ),
    "running_maximum": (
        "Over <loop:name>, <buffer:name> is the maximum of `<text:code>` and <sum:name> the sum of its exponentials, the maximum subtracted.",
        "<sum:name> sums the exponentials of `<text:code>` minus its maximum <buffer:name> over <loop:name>.",
    ),
    "rescaled": (
        "When the maximum moves to <peak:name>, <sum:name> is scaled by the exponential of the difference, and dropped while the maximum is still -inf.",
        "<sum:name> is scaled by the exponential of the old maximum minus <peak:name>; while the old maximum is -inf, it is dropped.",
    ),
    "expression_becomes": (
        "In the store at <at:place>, `<old:code>` becomes `<new:code>`, equal over the reals.",
        "`<new:code>` replaces `<old:code>` in the store at <at:place>; over the reals they are equal.",
    ),
    "literal_at_size": (
        "The header states [<constraint:free>], for which `<old:code>` in the store at <at:place> is exactly `<new:code>`.",
        "In the store at <at:place>, `<new:code>` replaces `<old:code>`: exactly that for [<constraint:free>], which the header states.",
    ),
    "proven": (
        "`<text:code>` is <condition:word> for all finite inputs, proven from its <because:word>.",
        "Proven from its <because:word>: `<text:code>` is <condition:word> for all finite inputs.",
    ),
    "common_factor": ("<count:n> terms have the factor `<factor:code>`.", "The factor `<factor:code>` occurs in <count:n> terms."),
    "unchanged_in": (
        "`<text:code>` stays the same in loop <loop:name> at <at:place>.",
        "Loop <loop:name> at <at:place> does not change `<text:code>`.",
    ),
    "prefix_maximum": (
        "<buffer:name> holds the maxima of the first 0, 1, ... values of `<text:code>` over <loop:name>; the last of them is <of:name>.",
        "Over <loop:name>, <buffer:name> keeps the maximum of every prefix of `<text:code>`, and <of:name> is the last one.",
    ),
    "sum_of_exponentials": (
        "Over <loop:name>, <sum:name> sums the exponentials of `<text:code>` minus <buffer:name>, its maximum.",
        "<buffer:name> holds the maximum of `<text:code>` over <loop:name>, and <sum:name> sums the exponentials of the differences.",
    ),
    "prefix_sum": (
        "<buffer:name> holds the sums over the first 0, 1, ... iterations of <loop:name>, each beneath its own maximum in <peak:name>; the last of them is <of:name>.",
        "Over <loop:name>, <buffer:name> keeps the sum of every prefix beneath the maximum that <peak:name> has for it, and <of:name> is the last one.",
    ),
    "weighted_by_softmax": (
        "<buffer:name> sums `<text:code>` over <loop:name> with the softmax weights <weights:name>, whose maximum is <other:name> and whose sum is <sum:name>.",
        "Over <loop:name>, <buffer:name> sums `<text:code>` times <weights:name>: exponentials beneath the maximum <other:name>, divided by their sum <sum:name>.",
    ),
    "divided_once": (
        "The division by <sum:name> comes once for each of the <count:n> elements of <buffer:name>, after the summation.",
        "All <count:n> elements of <buffer:name> are divided by <sum:name> once, at the end, instead of every weight.",
    ),
    "row_not_empty": (
        "The header states [<constraint:free>], so loop <loop:name> runs at least once.",
        "Loop <loop:name> must run at least once: the header states [<constraint:free>].",
    ),
    "passes_over": ("Nests that read <buffer:name>: <before:n> before, <after:n> after.", "<buffer:name> is read by <before:n> nests before and <after:n> after."),
    "interior": (
        "From <low:n> up to <high:n> (not included), the condition on <loop:name> holds in every term.",
        "The condition on <loop:name> holds in every term from iteration <low:n> up to <high:n>, not included.",
    ),
    "boundary_corrected": (
        "The other <count:n> elements of <buffer:name> are computed with the condition.",
        "With the condition, the <count:n> elements of <buffer:name> outside of the interior are computed.",
    ),
    "dimensions": (
        "The dimensions of <buffer:name> turn from <old:dims> to <new:dims>.",
        "<buffer:name> is stored as <new:dims> instead of <old:dims>.",
    ),
    "accesses_rewritten": (
        "Accesses to <buffer:name> that are rewritten: <count:n>.",
        "All <count:n> accesses to <buffer:name> are rewritten.",
    ),
    "region_copied": (
        "Each iteration of loop <loop:name> at <at:place> first copies what it reads of <buffer:name> into <into:name>.",
        "<into:name> holds the part of <buffer:name> that an iteration of loop <loop:name> at <at:place> reads.",
    ),
    "not_written_under": (
        "Nothing under loop <loop:name> at <at:place> writes <buffer:name>.",
        "<buffer:name> is not written under loop <loop:name> at <at:place>.",
    ),
    "accumulates_in": (
        "Under loop <loop:name> at <at:place>, <into:name> accumulates in place of <buffer:name>.",
        "<into:name> takes the place of <buffer:name> as accumulator under loop <loop:name> at <at:place>.",
    ),
    "written_back": (
        "Behind it <elements:n> elements of <buffer:name> are stored once.",
        "One store each writes <elements:n> elements of <buffer:name> back.",
    ),
    "dimension_split": (
        "Tiles of <factor:n> divide the <extent:n> elements of dimension <dim:n> of <buffer:name>; the header states [<constraint:free>].",
        "Dimension <dim:n> of <buffer:name>, of <extent:n> elements, is cut into tiles of <factor:n>; the header states [<constraint:free>].",
    ),
    "tile_contiguous": (
        "A tile along dimension <dim:n> of <buffer:name> then fills <elements:n> neighbouring elements.",
        "<elements:n> neighbouring elements then hold a tile along dimension <dim:n> of <buffer:name>.",
    ),
    "dimensions_fused": (
        "Dimension <dim:n> of <buffer:name> and the next one, <rows:n> times <columns:n>, become one of <extent:n>.",
        "One dimension of <extent:n> elements takes the place of dimension <dim:n> of <buffer:name> and the next one, <rows:n> times <columns:n>.",
    ),
    "pure_index": (
        "`<text:code>` in the store at <at:place> reads no memory and depends on the loops <loops:names> alone.",
        "The index `<text:code>` of the store at <at:place> follows from the loops <loops:names>, without reading memory.",
    ),
    "index_inside": (
        "Whatever the iteration, index <dim:n> of <buffer:name> stays inside its <extent:n> elements.",
        "Index <dim:n> of <buffer:name> never leaves its <extent:n> elements.",
    ),
    "table_reused": (
        "A run reads the <elements:n> elements of the table <name:name> <reads:n> times.",
        "The table <name:name> of <elements:n> elements is read <reads:n> times in a run.",
    ),
    "storage_scope": ("<buffer:name> moves from <old:word> to <new:word> storage.", "The storage of <buffer:name> is <new:word> instead of <old:word>."),
    "scope_bytes": (
        "<buffer:name> takes <bytes:n> of the <limit:n> bytes that may be <scope:word>.",
        "Of at most <limit:n> bytes of <scope:word> storage, <buffer:name> takes <bytes:n>.",
    ),
    "one_holder": (
        "No value of <buffer:name> passes from one <holder:word> to another.",
        "Whichever <holder:word> writes a value of <buffer:name> is the one that reads it.",
    ),
    "axis_fits": (
        "Loop <loop:name> at <at:place> runs <extent:n> iterations; <axis:word> takes up to <limit:n>.",
        "The axis <axis:word> takes up to <limit:n>, and loop <loop:name> at <at:place> runs <extent:n> iterations.",
    ),
    "launch": (
        "The kernel at <at:place> launches <blocks:n> blocks of <threads:n> threads; a block may have 1024.",
        "With at most 1024 threads in a block, the kernel at <at:place> launches <blocks:n> blocks of <threads:n> threads.",
    ),
    "limit_stated": (
        "The header states [<constraint:free>], so the axis fits at other sizes too.",
        "So that the axis fits at other sizes too, the header states [<constraint:free>].",
    ),
    "blocks_independent": (
        "No block of the kernel at <at:place> touches what another one writes.",
        "Blocks of the kernel at <at:place> need not wait for one another.",
    ),
    "partial_accumulators": (
        "Each element of <buffer:name> gets <copies:n> partial accumulators of <terms:n> terms.",
        "<copies:n> partial accumulators of <terms:n> terms serve each element of <buffer:name>.",
    ),
    **NEST_SENTENCES,
    **LINEAR_SENTENCES,
}  # fmt: skip


@dataclass(frozen=True)
class Claim:
    """What one sentence says. Values are text as written; :meth:`number` reads an integer."""

    kind: str
    values: dict[str, str]
    sentence: str

    def __getitem__(self, name: str) -> str:
        return self.values[name]

    def number(self, name: str) -> int:
        return int(self.values[name])

    def names(self, name: str) -> tuple[str, ...]:
        return tuple(self.values[name].split(", "))

    def place(self, name: str) -> tuple[int, ...]:
        return tuple(int(p) for p in self.values[name].split("."))


def _compile(sentence: str) -> re.Pattern[str]:
    parts = re.split(r"<(\w+):(\w+)>", sentence)
    out = re.escape(parts[0])
    for slot, kind, tail in zip(parts[1::3], parts[2::3], parts[3::3], strict=True):
        out += f"(?P<{slot}>{_TYPES[kind]})" + re.escape(tail)
    return re.compile(out)


_PATTERNS = [(kind, _compile(s)) for kind, sentences in _SENTENCES.items() for s in sentences]


def read_sentence(sentence: str) -> Claim | None:
    """The claim of one sentence, or ``None`` when no pattern matches it wholly."""
    for kind, pattern in _PATTERNS:
        found = pattern.fullmatch(sentence)
        if found:
            return Claim(kind, found.groupdict(), sentence)
    return None


def known_kinds() -> frozenset[str]:
    """Kinds that can be read."""
    return frozenset(_SENTENCES)
