"""The checker: reads an explanation's *text* and re-derives every sentence from the two programs.

It shares no code with the producers: its own patterns, its own counts, its own runs at tiny sizes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from steptp.ir.nodes import Program
from steptp.reason.patterns import Claim, read_sentence
from steptp.reason.rederive.algebra import ALGEBRA
from steptp.reason.rederive.axes import AXES
from steptp.reason.rederive.context import CheckContext, Rederivation
from steptp.reason.rederive.copies import COPIES
from steptp.reason.rederive.cuts import CUTS
from steptp.reason.rederive.figures import FIGURES, unsaid
from steptp.reason.rederive.linear import LINEAR
from steptp.reason.rederive.moves import MOVES
from steptp.reason.rederive.online import ONLINE
from steptp.reason.rederive.order import ORDER
from steptp.reason.rederive.owed import unsaid_of_strategy
from steptp.reason.rederive.storage import STORAGE
from steptp.reason.rederive.structure import STRUCTURE
from steptp.reason.rederive.values import VALUES

__all__ = ["check_text", "REDERIVE", "ORDERED_SECTIONS"]

ORDERED_SECTIONS = ("Dominant", "Candidates", "Choice", "Legal", "Effect", "Rewrite")
_REQUIRED = {"Dominant", "Legal", "Effect", "Rewrite"}
_EDITS = ("line_becomes", "line_goes", "line_comes")
REDERIVE: dict[str, Rederivation] = {**FIGURES, **STRUCTURE, **ORDER, **VALUES, **COPIES, **ONLINE, **ALGEBRA, **STORAGE, **AXES, **MOVES, **CUTS, **LINEAR}
_HOME = {
    "Dominant": {"work", "no_arithmetic", "dominant", "cache_fit", "cache_exceeded", "inner_access"},
    "Candidates": {"candidates"},
    "Choice": {"choice_balanced_random", "choice_uniform_within_strategy"},
    "Effect": {"statements_change", "operations_change", "accessed_change", "temporaries_change", "expectation"},
    "Rewrite": set(_EDITS),
}
_CLAIMED = set().union(*_HOME.values())


def check_text(text: str, parent: Program, child: Program, site: str, *, candidates: Sequence[str] = (), host: Mapping[str, Any]) -> tuple[str, ...]:
    """Every problem of an explanation, as sentences; empty when all of it holds.

    ``site`` is the step's site id, ``candidates`` the listed site ids, ``host`` a ``HostInfo`` dict.
    """
    problems: list[str] = []
    sections = _sections(text, problems)
    ctx = _context(parent, child, site, candidates, host)
    for name, sentences in sections.items():
        claims: list[Claim] = []
        for sentence in sentences:
            claim = read_sentence(sentence)
            if claim is None:
                problems.append(f"{name}: not a known statement: {sentence!r}")
                continue
            if name != "Rewrite" and any(c.kind == claim.kind and c.values == claim.values for c in claims):  # equal lines may be added; replaying tells
                problems.append(f"{name}: said twice: {sentence!r}")
            claims.append(claim)
            home = claim.kind in _HOME.get(name, ()) if name != "Legal" else claim.kind not in _CLAIMED
            if not home:
                problems.append(f"{name}: {claim.kind} does not belong here")
        ctx.said = claims
        if name == "Rewrite":
            problems += _replay(claims, ctx)
        else:
            for claim in claims:
                check: Callable[[Claim, CheckContext], str | None] | None = REDERIVE.get(claim.kind)
                wrong = f"no way to re-derive {claim.kind}" if check is None else ctx.guarded(check, claim)
                if wrong is not None:
                    problems.append(f"{name}: {claim.sentence!r}: {wrong}")
            problems += [f"{name}: nothing is said of {kind}" for kind in unsaid(name, claims, ctx)]
            problems += [f"{name}: {problem}" for problem in unsaid_of_strategy(claims, ctx)] if name == "Legal" else []
    return tuple(problems)


def _sections(text: str, problems: list[str]) -> dict[str, list[str]]:
    sections: dict[str, list[str]] = {}
    current: list[str] | None = None
    for line in text.splitlines():
        if line.endswith(":") and line[:-1] in ORDERED_SECTIONS:
            if line[:-1] in sections:
                problems.append(f"section {line[:-1]} twice")
            current = sections.setdefault(line[:-1], [])
        elif line.startswith("- ") and current is not None:
            current.append(line[2:])
        elif line.strip():
            problems.append(f"stray line: {line!r}")
    order = [ORDERED_SECTIONS.index(name) for name in sections]
    if order != sorted(order):
        problems.append("sections out of order")
    problems += [f"section {name} is missing or empty" for name in sorted(_REQUIRED | sections.keys()) if not sections.get(name)]
    return sections


def _context(parent: Program, child: Program, site: str, candidates: Sequence[str], host: Mapping[str, Any]) -> CheckContext:
    strategy, _, rest = site.partition("@")
    place, _, tail = rest.partition(":")
    params = dict(item.split("=", 1) for item in tail.split(",") if "=" in item)
    path = tuple(int(p) for p in place.split(".")) if place else ()
    return CheckContext(parent, child, site, strategy, path, params, list(candidates), host)


def _replay(claims: Sequence[Claim], ctx: CheckContext) -> list[str]:
    """Apply the edits to the parent's text; the result must be the child's text."""
    old, new = ctx.lines
    out: list[list[str]] = [[], *([line] for line in old)]  # out[n]: line n of the parent and what comes after it
    last = 0
    for claim in claims:
        if claim.kind not in _EDITS:
            continue
        line = claim.number("line")
        if not (0 if claim.kind == "line_comes" else 1) <= line <= len(old):
            return [f"Rewrite: there is no line {line}"]
        if line < last:
            return ["Rewrite: lines out of order"]
        last = line
        if claim.kind == "line_comes":
            out[line].append(claim["text"])
        elif not out[line] or out[line] != [old[line - 1]]:
            return [f"Rewrite: line {line} is edited twice"]
        else:
            if claim.kind == "line_becomes" and claim["text"] == old[line - 1]:
                return [f"Rewrite: line {line} does not change"]
            out[line] = [claim["text"]] if claim.kind == "line_becomes" else []
    result = [text for group in out for text in group]
    return [] if result == new else ["Rewrite: the edits do not give the child's text"]
