"""``steptp audit``: is this dataset what it says it is?"""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from steptp.analysis.host import HostInfo
from steptp.dataset.probes import NUISANCE_MARGIN, run_probes
from steptp.dataset.schema import step_id
from steptp.dataset.store import Dataset
from steptp.errors import StepTPError
from steptp.ir import Program, parse, program_hash, shape_hash
from steptp.ir.seeds import derive_seed, digest

__all__ = ["AuditCheck", "AuditReport", "audit_dataset"]

MAX_SHARE = 0.20
MIN_REJECTED = 0.99
REASONS = 500


@dataclass(frozen=True)
class AuditCheck:
    """One line of the report."""

    name: str
    ok: bool
    detail: str


@dataclass
class AuditReport:
    """Every check, the probes' figures, and the corruption test where it ran."""

    checks: list[AuditCheck] = field(default_factory=list)
    probes: dict[str, dict[str, float]] = field(default_factory=dict)
    corruption: dict[str, Any] = field(default_factory=dict)

    @property
    def ok(self) -> bool:
        return all(c.ok for c in self.checks)

    def as_dict(self) -> dict[str, Any]:
        return {"ok": self.ok, **asdict(self)}


def audit_dataset(folder: Path, *, corrupt: int = 0, seed: int = 0) -> AuditReport:
    """Run every check; raises :class:`DatasetError` when the folder is no dataset."""
    data = Dataset.open(folder)
    report = AuditReport()
    programs = _programs(data, report)
    report.checks += [*_identity(data), *_leakage(data, programs), *_balance(data)]
    texts = {h: row["text"] for h, row in data.programs.items()}
    report.probes = run_probes(data.steps, texts, seed)
    report.checks += _probe_checks(report.probes)
    host = HostInfo.from_dict(data.info["host_info"])
    report.checks.append(_reasons(data, programs, host, seed))
    if corrupt:
        report.checks.append(_corruption(data, programs, host, corrupt, seed, report))
    return report


def _programs(data: Dataset, report: AuditReport) -> dict[str, Program]:
    found: dict[str, Program] = {}
    wrong: list[str] = []
    for name, row in data.programs.items():
        try:
            program = parse(row["text"])
            if program_hash(program) != name or shape_hash(program) != row["shape_hash"]:
                wrong.append(name)
            found[name] = program
        except StepTPError as err:
            wrong.append(f"{name} ({err.code})")
    report.checks.append(
        AuditCheck(
            "program hashes", not wrong, f"{len(data.programs)} programs parse and hash to their keys" if not wrong else f"wrong: {', '.join(wrong[:5])}"
        )
    )
    return found


def _identity(data: Dataset) -> Iterator[AuditCheck]:
    ids = Counter(s["id"] for s in data.steps)
    doubled = [i for i, n in ids.items() if n > 1]
    yield AuditCheck("no duplicate steps", not doubled, f"{len(ids)} distinct ids" if not doubled else f"{len(doubled)} ids occur twice")
    wrong = [s["id"] for s in data.steps if step_id(s["parent"], s["strategy"], s["site"], s["child"]) != s["id"]]
    yield AuditCheck("step identity", not wrong, "every id follows from parent, strategy, site and child" if not wrong else f"{len(wrong)} ids do not")
    noop = [s["id"] for s in data.steps if s["parent"] == s["child"]]
    yield AuditCheck("no no-ops", not noop, "no child is alpha-equal to its parent" if not noop else f"{len(noop)} no-ops")
    hashed = [s["id"] for s in data.steps if digest(s["reason"]) != s["reason_hash"]]
    yield AuditCheck("reasons unchanged", not hashed, "every reason has the hash that was taken before measuring" if not hashed else f"{len(hashed)} differ")


def _leakage(data: Dataset, programs: dict[str, Program]) -> Iterator[AuditCheck]:
    splits_of: dict[str, set[str]] = defaultdict(set)
    for step in data.steps:
        splits_of[step["root"]].add(step["split"])
    torn = [r for r, s in splits_of.items() if len(s) > 1]
    yield AuditCheck("each root in one split", not torn, f"{len(splits_of)} roots" if not torn else f"{len(torn)} roots are in several splits")
    new = {s["family"] for s in data.steps if s["split"] == "test_new_family"}
    both = new & {s["family"] for s in data.steps if s["split"] != "test_new_family"}
    yield AuditCheck("new families are new", not both, f"{len(new)} families only in test_new_family" if not both else f"{len(both)} families leak")

    def shapes(split: str) -> set[str]:
        return {data.programs[h]["shape_hash"] for s in data.steps if s["split"] == split for h in (s["parent"], s["child"]) if h}

    leaked = shapes("test_new_family") & (shapes("train") | shapes("validation"))
    yield AuditCheck("no shared shape hash with test_new_family", not leaked, "none" if not leaked else f"{len(leaked)} shape hashes leak")
    pairs = {split: {(s["parent"], s["child"]) for s in data.steps if s["split"] == split and s["child"]} for split in ("train", "test_seen_family")}
    common = pairs["train"] & pairs["test_seen_family"]
    yield AuditCheck("no exact pair of test_seen_family in train", not common, _nearest(data) if not common else f"{len(common)} pairs leak")


def _nearest(data: Dataset) -> str:
    """Distance (1 - Jaccard similarity of tokens) from seen-family states to the nearest training state."""
    tokens = {h: frozenset(row["text"].split()) for h, row in data.programs.items()}
    train = sorted({s["parent"] for s in data.steps if s["split"] == "train"})[:800]
    seen = sorted({s["parent"] for s in data.steps if s["split"] == "test_seen_family"})[:100]
    if not train or not seen:
        return "no seen-family states"
    nearest = sorted(min(1 - len(tokens[a] & tokens[b]) / max(len(tokens[a] | tokens[b]), 1) for b in train) for a in seen)
    return f"nearest training state: median distance {nearest[len(nearest) // 2]:.2f}, smallest {nearest[0]:.2f}"


def _balance(data: Dataset) -> Iterator[AuditCheck]:
    verified = [s for s in data.steps if s["verdict"] == "ok"]
    counts = Counter(s["strategy"] for s in verified)
    name, most = counts.most_common(1)[0] if counts else ("", 0)
    share = most / max(len(verified), 1)
    small = len(verified) < 50
    yield AuditCheck(
        "balance of strategies",
        small or share <= MAX_SHARE,
        f"{len(counts)} strategies, largest {name} {share:.1%}" + (" (too few steps to judge)" if small else ""),
    )
    own = [s for s in data.steps if s["role"] == "walk" and s["candidates"] and s["site"] not in s["candidates"]]
    yield AuditCheck("choices are among the candidates", not own, "all" if not own else f"{len(own)} are not")


def _probe_checks(probes: dict[str, dict[str, float]]) -> Iterator[AuditCheck]:
    for name, p in probes.items():
        detail = f"{p['score']:.3f} against {p['uniform']:.3f} for an even choice, {int(p['n'])} steps"
        if name.startswith("nuisance"):
            # two standard errors: on few steps a lucky probe is not a shortcut
            yield AuditCheck(name, p["score"] <= p["uniform"] + NUISANCE_MARGIN + 2 * p["error"], detail)
        else:
            yield AuditCheck(name, True, detail)


def _explained(data: Dataset, programs: dict[str, Program]) -> list[dict[str, Any]]:
    """Steps with an explanation, both of whose programs can be read (the others fail a check of their own)."""
    return [s for s in data.steps if s["reason"] and s["child"] in programs and s["parent"] in programs]


def _reasons(data: Dataset, programs: dict[str, Program], host: HostInfo, seed: int) -> AuditCheck:
    from steptp.reason.checker import check_text

    rows = _explained(data, programs)
    sample = random.Random(derive_seed(seed, "reasons")).sample(rows, min(REASONS, len(rows)))
    bad = []
    for step in sample:
        problems = check_text(
            step["reason"], programs[step["parent"]], programs[step["child"]], step["site"], candidates=step["candidates"], host=host.to_dict()
        )
        if problems:
            bad.append(f"{step['id']}: {problems[0]}")
    return AuditCheck(
        "reasons hold", not bad, f"{len(sample)} texts, every sentence re-derived" if not bad else f"{len(bad)} of {len(sample)} fail, e.g. {bad[0]}"
    )


def _corruption(data: Dataset, programs: dict[str, Program], host: HostInfo, count: int, seed: int, report: AuditReport) -> AuditCheck:
    from steptp.reason.checker import check_text
    from steptp.reason.corrupt import corrupt_text

    rows = _explained(data, programs)
    if not rows:
        return AuditCheck("corrupted reasons rejected", False, "no reasons to corrupt")
    rng = random.Random(derive_seed(seed, "corrupt"))
    tried: Counter[str] = Counter()
    missed: Counter[str] = Counter()
    examples: list[str] = []
    alike: dict[str, list[str]] = defaultdict(list)
    for row in rows:
        alike[row["strategy"]].append(row["reason"])
    while sum(tried.values()) < count:
        step, other = rng.choice(rows), rng.choice(rows)
        changed = corrupt_text(step["reason"], rng, other["reason"], rng.choice(alike[step["strategy"]]))
        if changed is None:
            continue
        kind, text = changed
        tried[kind] += 1
        if not check_text(text, programs[step["parent"]], programs[step["child"]], step["site"], candidates=step["candidates"], host=host.to_dict()):
            missed[kind] += 1
            examples.append(f"{step['id']} {kind}")
    total = sum(tried.values())
    share = 1 - sum(missed.values()) / total
    by_kind = {kind: round(1 - missed[kind] / n, 4) for kind, n in sorted(tried.items())}
    report.corruption = {"tried": dict(tried), "accepted": dict(missed), "rejected_share": share, "rejected_by_kind": by_kind, "examples": examples[:20]}
    return AuditCheck("corrupted reasons rejected", share >= MIN_REJECTED, f"{share:.2%} of {total} rejected; accepted by kind: {dict(missed) or 'none'}")
