"""Facts that every explanation states, whatever the strategy: what dominates, how the step was chosen, what it should change."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher

from steptp.analysis.host import HostInfo
from steptp.ir.facts import Fact
from steptp.ir.nodes import Program
from steptp.ir.printer import print_expr, print_program, print_stmt, program_lines
from steptp.reason.counts import Figures, accesses, figures, innermost, stride_of
from steptp.rewrite.base import Site

__all__ = ["dominance", "consideration", "choice", "effects", "expectation", "edits"]


def dominance(parent: Program, host: HostInfo) -> Iterator[Fact]:
    """What the parent spends its run on."""
    f = figures(parent)
    if f.operations:
        yield Fact.of("work", operations=f.operations, data=f.data, intensity=_hundredths(f.operations, f.data))
    else:
        yield Fact.of("no_arithmetic", stores=f.instances)
    line = program_lines(parent)[1][f.dominant.path]
    unit = "operations" if f.operations else "stores"
    yield Fact.of("dominant", line=line, text=print_stmt(f.dominant.store), percent=f.percent, unit=unit)
    levels = [(n, b) for n, b in (("L1", host.l1_bytes), ("L2", host.l2_bytes), ("L3", host.l3_bytes)) if b]
    fit = next(((n, b) for n, b in levels if f.data <= b), None)
    if fit is not None:
        yield Fact.of("cache_fit", "host", level=fit[0], bytes=fit[1])
    elif levels:
        yield Fact.of("cache_exceeded", "host", level=levels[-1][0], bytes=levels[-1][1])
    inner = innermost(f.dominant)
    if inner is not None:
        for access in accesses(f.dominant.store):
            moved = stride_of(access, inner, parent)
            if moved is not None:
                yield Fact.of("inner_access", loop=inner.var, access=print_expr(access), elements=moved)


def _hundredths(top: int, bottom: int) -> str:
    """``top / bottom`` with two decimals, rounded half up."""
    scaled = (200 * top + bottom) // (2 * bottom) if bottom else 0
    return f"{scaled // 100}.{scaled % 100:02d}"


def consideration(candidates: Sequence[Site]) -> Iterator[Fact]:
    """Which candidates were drawn before choosing."""
    counts = Counter(s.strategy for s in candidates)
    if counts:
        yield Fact.of("candidates", "rule", total=len(candidates), counts=tuple(f"{n} {name}" for name, n in sorted(counts.items())))


def choice(site: Site, rule: str) -> Iterator[Fact]:
    """The rule that really chose."""
    if rule in ("balanced-random", "uniform-within-strategy"):
        yield Fact.of(f"choice_{rule.replace('-', '_')}", "rule", site=site.id)


def effects(parent: Program, child: Program) -> Iterator[Fact]:
    """Integer figures that the step changes."""
    before, after = figures(parent), figures(child)
    for kind, a, b in (
        ("statements_change", len(before.counts), len(after.counts)),
        ("operations_change", before.operations, after.operations),
        ("accessed_change", before.accessed, after.accessed),
        ("temporaries_change", before.temporaries, after.temporaries),
    ):
        if a != b:
            yield Fact.of(kind, "child", before=a, after=b)


def expectation(parent: Program, child: Program, host: HostInfo) -> Fact:
    """What the step should do to the run time, by the first rule of ``docs/reasoning.md`` that applies."""
    before, after = figures(parent), figures(child)
    outcome, because = _expect(before, after, host.cores)
    return Fact.of("expectation", "rule", outcome=outcome, because=because)


def _expect(a: Figures, b: Figures, cores: int) -> tuple[str, str]:
    more, less = min(b.parallel, cores), min(a.parallel, cores)
    if more != less:
        return ("faster" if more > less else "slower"), "cores"
    if a.lanes != b.lanes:
        return ("faster" if b.lanes > a.lanes else "slower"), "lanes"
    if a.strided != b.strided:
        return ("faster" if b.strided < a.strided else "slower"), "strides"
    if a.accessed != b.accessed:
        return ("faster" if b.accessed < a.accessed else "slower"), "traffic"
    if a.operations != b.operations:
        return ("faster" if b.operations < a.operations else "slower"), "operations"
    return "same", "nothing"


def edits(parent: Program, child: Program) -> Iterator[Fact]:
    """The rewrite, line by line: applying these edits in order to the parent's text gives the child's text."""
    old, new = print_program(parent).splitlines(), print_program(child).splitlines()
    for tag, a0, a1, b0, b1 in SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        if tag == "equal":
            continue
        shared = min(a1 - a0, b1 - b0)
        for n in range(shared):
            yield Fact.of("line_becomes", "child", line=a0 + n + 1, text=new[b0 + n])
        for n in range(a0 + shared, a1):
            yield Fact.of("line_goes", "child", line=n + 1)
        for n in range(b0 + shared, b1):
            yield Fact.of("line_comes", "child", line=a0 + shared, text=new[n])
