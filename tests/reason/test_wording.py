"""Every kind of fact can be written, in at least two ways, and read back by the checker's own patterns."""

from __future__ import annotations

import string

import pytest

from steptp.reason.checker import _EDITS, REDERIVE
from steptp.reason.patterns import known_kinds, read_sentence
from steptp.reason.wording import WORDING
from steptp.rewrite.fact_kinds import FACT_KINDS

SAMPLES = {
    "operations": "12", "data": "640", "intensity": "0.02", "stores": "7", "line": "3", "text": "C[i] = A[i]", "percent": "97", "unit": "operations",
    "level": "L2", "bytes": "2048", "loop": "i", "access": "A[i,k]", "elements": "32", "total": "3", "counts": "2 loop_split, 1 loop_reorder",
    "site": "loop_split@0.1:factor=16,tail=guard", "before": "4", "after": "5", "outcome": "faster", "because": "lanes", "at": "0.1", "extent": "64",
    "loops": "i, j", "name": "T0", "value": "16", "factor": "16", "constraint": "N%T0==0", "cond": "i<N", "idle": "2", "iterations": "4",
    "becomes": "i0*T0+i1", "source": "2", "target": "1", "order": "i, k, j", "old": "for", "new": "par", "outer": "4", "inner": "8", "buffers": "C, m",
    "buffer": "C", "reduce": "max", "dtype": "f32", "first": "0", "second": "1", "copies": "4", "terms": "16",
    "front": "1", "back": "2", "count": "3", "other": "b", "sum": "s", "peak": "p", "into": "Cl", "shared": "C, m",
    "of": "m", "weights": "y", "low": "1", "high": "7",
    "condition": "positive",
    "dim": "1", "rows": "6", "columns": "5", "reads": "96", "limit": "1024", "scope": "local", "holder": "thread", "axis": "tx", "blocks": "8", "threads": "32",
    "last": "2", "part": "last", "full": "3", "rest": "2", "accumulator": "d", "operands": "W, V", "lower": "a", "upper": "b", "along": "s", "around": "i",
}  # fmt: skip


DIMENSIONS = {"old": "6x5", "new": "5x6"}


def _fill(template: str, kind: str) -> tuple[str, dict[str, str]]:
    slots = [name for _, name, _, _ in string.Formatter().parse(template) if name]
    values = {}
    for name in slots:
        assert name in SAMPLES, f"give {name} a sample value here"
        values[name] = (DIMENSIONS if kind == "dimensions" else {}).get(name, SAMPLES[name])
    return template.format(**values), values


@pytest.mark.parametrize("kind", sorted(WORDING))
def test_every_wording_is_read_back(kind: str) -> None:
    assert len(WORDING[kind]) >= 2
    for template in WORDING[kind]:
        sentence, values = _fill(template, kind)
        claim = read_sentence(sentence)
        assert claim is not None, sentence
        assert (claim.kind, claim.values) == (kind, values)


def test_every_fact_kind_of_the_strategies_has_wording_pattern_and_rederivation() -> None:
    for kind, row in FACT_KINDS.items():
        assert kind in WORDING, f"no wording for {kind}"
        assert kind in known_kinds(), f"the checker cannot read {kind}"
        assert kind in REDERIVE, f"the checker cannot re-derive {kind}"
        slots = {name for _, name, _, _ in string.Formatter().parse(WORDING[kind][0]) if name}
        assert slots == {name for name, _ in row.values}, kind
    assert set(WORDING) == set(known_kinds())
    assert set(WORDING) == set(REDERIVE) | set(_EDITS)


def test_nonsense_is_not_read() -> None:
    assert read_sentence("The loop is fast.") is None
    assert read_sentence("Line three goes.") is None
    assert read_sentence("Line 3 goes. And more.") is None
