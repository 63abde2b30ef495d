"""Writing a finished build: records from the journal into tables, views and card."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from steptp.analysis.host import HostInfo
from steptp.dataset.card import write_card
from steptp.dataset.finalize import apply_timing, atomic_write, mark_best_siblings, write_tables
from steptp.dataset.ledger import Entry, Ledger
from steptp.dataset.probes import run_probes
from steptp.dataset.questions import describe_host, prompt_versions
from steptp.dataset.roots import Root
from steptp.dataset.schema import ProgramRecord, StepRecord
from steptp.dataset.store import Dataset
from steptp.dataset.views import write_views
from steptp.ir.seeds import digest

if TYPE_CHECKING:
    from steptp.dataset.build import Journals
    from steptp.dataset.config import BuildConfig

__all__ = ["write_dataset"]


Describe: TypeAlias = Callable[[Mapping[str, str]], Mapping[str, Any]]


def write_dataset(
    out: Path, config: BuildConfig, ledger: Ledger, roots: dict[str, Root], journals: Journals, describe: Describe, info: dict[str, Any], host: HostInfo
) -> None:
    """Write ``steps``, ``programs``, the views, the card and ``build.json`` (last, so that a folder with one is complete).

    ``describe`` gives the columns of programs that no compiled check has described: texts by hash → descriptions by hash.
    """
    entries = ledger.final()
    versions = digest(json.dumps(info["versions"], sort_keys=True))
    texts: dict[str, str] = {}
    first: dict[str, Entry] = {}
    described: dict[str, Any] = {}

    def records() -> Iterator[StepRecord]:
        last, walk = "", {}
        for entry in entries:
            if entry.walk != last:
                last, walk = entry.walk, journals.walks.get(entry.walk)
            texts.setdefault(entry.root, roots[entry.root].text)
            first.setdefault(entry.root, entry)
            for name in (entry.parent, entry.child):
                if name:
                    texts.setdefault(name, walk["programs"][name]["text"])
                    first.setdefault(name, entry)
            yield _record(entry, walk["steps"][entry.index], roots[entry.root], journals, described, info["host_key"], versions, entry.id in ledger.measured)

    def programs(names: frozenset[str]) -> Iterator[ProgramRecord]:
        for name in sorted(names):
            root = roots[first[name].root]
            yield ProgramRecord(hash=name, text=texts[name], workload=root.workload, root=root.hash, family=root.family, **described[name])

    steps = list(records())
    described.update(describe({name: text for name, text in texts.items() if name not in described}))
    again = {e.id: t for e in entries if e.id in ledger.measured and e.id in journals.again and (t := journals.again.get(e.id)["timing"]) is not None}
    mark_best_siblings(steps, again)
    write_tables(out, steps, programs)
    views = write_views(out, steps, texts, describe_host(host))
    full = {**info, "prompts": prompt_versions(), "views": views}
    atomic_write(out / "build.json", json.dumps(full, indent=2, sort_keys=True))
    data = Dataset.open(out)
    probes = run_probes(data.steps, texts, config.seed)
    write_card(out, full, data.summary(), probes, views)


def _record(
    entry: Entry, step: dict[str, Any], root: Root, journals: Journals, described: dict[str, Any], host: str, versions: str, measured: bool
) -> StepRecord:
    evidence = list(step["evidence"])
    verdict, tier = step["verdict"], step["tier"]
    if entry.id in journals.checks:
        check = journals.checks.get(entry.id)
        evidence += check["evidence"]
        verdict, tier = check["verdict"], check["tier"]
        described.update(check["programs"])
    example = next((e["counterexample"] for e in evidence if "counterexample" in e), None)
    plain = {
        k: step[k]
        for k in (
            "id",
            "parent",
            "child",
            "depth",
            "role",
            "strategy",
            "site",
            "params",
            "exactness",
            "inverse",
            "changed_lines",
            "rule",
            "candidates",
            "reason",
            "reason_hash",
            "seed",
        )
    }
    record = StepRecord(
        **plain,
        trajectory=entry.walk,
        root=entry.root,
        workload=root.workload,
        family=root.family,
        split=entry.split,
        verdict=verdict,
        tier=tier,
        evidence=json.dumps(evidence, sort_keys=True),
        counterexample=json.dumps(example, sort_keys=True) if example else "",
        facts=json.dumps(step["facts"], sort_keys=True),
        host=host,
        versions=versions,
    )
    if measured and (timing := journals.timings.get(entry.id)["timing"]) is not None:
        apply_timing(record, timing)
    return record
