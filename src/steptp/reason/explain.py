"""An explanation: facts in sections, rendered to text with seeded wording."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from steptp.analysis.host import HostInfo
from steptp.errors import internal
from steptp.ir.facts import Fact
from steptp.ir.nodes import Program
from steptp.reason import produce
from steptp.reason.wording import WORDING
from steptp.rewrite.base import Applied, Site

__all__ = ["Explanation", "SECTIONS", "explain", "render"]

SECTIONS = ("Dominant", "Candidates", "Choice", "Legal", "Effect", "Rewrite")


@dataclass(frozen=True, slots=True)
class Explanation:
    """``text`` is what a model reads; ``sections`` hold the facts it was rendered from, in order."""

    text: str
    sections: tuple[tuple[str, tuple[Fact, ...]], ...]

    @property
    def facts(self) -> tuple[Fact, ...]:
        return tuple(f for _, group in self.sections for f in group)


def explain(parent: Program, applied: Applied, site: Site, *, candidates: Sequence[Site] = (), rule: str = "", host: HostInfo, seed: int = 0) -> Explanation:
    """Explain a step before anything about it is measured.

    *Dominant* depends on the parent only; *Choice* states the rule that really chose (left out for an unknown ``rule``); *Legal* has the
    strategy's facts; *Effect* integer figures before and after and the expectation; *Rewrite* an edit script of the text.
    """
    child = applied.program
    content: dict[str, list[Fact]] = {
        "Dominant": list(produce.dominance(parent, host)),
        "Candidates": list(produce.consideration(candidates)),
        "Choice": list(produce.choice(site, rule)),
        "Legal": list(dict.fromkeys(applied.facts)),
        "Effect": [*produce.effects(parent, child), produce.expectation(parent, child, host)],
        "Rewrite": list(produce.edits(parent, child)),
    }
    sections = tuple((name, tuple(content[name])) for name in SECTIONS if content[name])
    return Explanation(render(sections, seed), sections)


def render(sections: Iterable[tuple[str, Sequence[Fact]]], seed: int) -> str:
    """One sentence a line under its section's name; ``seed`` picks the wording."""
    rng = random.Random(seed)
    lines: list[str] = []
    for name, facts in sections:
        lines.append(f"{name}:")
        for fact in facts:
            if fact.kind not in WORDING:
                raise internal(f"no wording for facts of kind {fact.kind}")
            values = {k: (", ".join(v) or "none") if isinstance(v, tuple) else v for k, v in fact.values}
            lines.append("- " + rng.choice(WORDING[fact.kind]).format(**values))
    return "\n".join(lines) + "\n"
