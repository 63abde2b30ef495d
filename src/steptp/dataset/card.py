"""The dataset card: README.md with a YAML header that ``datasets.load_dataset`` reads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from steptp.dataset.finalize import atomic_write
from steptp.dataset.probes import Probe
from steptp.dataset.schema import SPLITS
from steptp.dataset.views import VIEWS

__all__ = ["write_card"]


def write_card(out: Path, info: Mapping[str, Any], summary: Mapping[str, Any], probes: Mapping[str, Probe], views: Mapping[str, Mapping[str, int]]) -> None:
    """Write ``README.md`` of the dataset folder."""
    atomic_write(out / "README.md", "\n".join([*_header(out), *_body(info, summary, probes, views)]) + "\n")
    for view in VIEWS:
        atomic_write(
            out / "views" / view / "README.md", "\n".join(_view_header(out / "views" / view)) + f"\nThe view *{view}* of the dataset two folders up.\n"
        )


def _header(out: Path) -> list[str]:
    lines = ["---", "license: apache-2.0", "tags:", "- code", "- tensor-programs", "- compilers", "configs:"]
    lines += ["- config_name: steps", "  default: true", "  data_files:"]
    for split in SPLITS:
        if (out / "steps" / f"{split}.parquet").is_file():
            lines += [f"  - split: {split}", f"    path: steps/{split}.parquet"]
    lines += ["- config_name: programs", "  data_files:", "  - split: all", "    path: programs/all.parquet"]
    return [*lines, "---"]


def _view_header(folder: Path) -> list[str]:
    """Splits named like the files; without it ``load_dataset`` would guess them from words in the names."""
    lines = ["---", "configs:", "- config_name: default", "  data_files:"]
    for split in SPLITS:
        if (folder / f"{split}.jsonl").is_file():
            lines += [f"  - split: {split}", f"    path: {split}.jsonl"]
    return [*lines, "---"]


def _table(head: Sequence[str], rows: Sequence[Sequence[object]]) -> list[str]:
    out = ["| " + " | ".join(head) + " |", "|" + " --- |" * len(head)]
    return [*out, *("| " + " | ".join(str(c) for c in row) + " |" for row in rows)]


def _body(info: Mapping[str, Any], summary: Mapping[str, Any], probes: Mapping[str, Probe], views: Mapping[str, Mapping[str, int]]) -> list[str]:
    totals = summary["totals"]
    config = info["config"]
    lines = [
        "# Verified single steps of tensor-program optimisation",
        "",
        f"{totals['verified']} verified steps ({totals['measured']} measured) over {summary['workloads']} workloads, {summary['roots']} roots and "
        f"{summary['families']} families, {totals['programs']} programs. Built by Step-TP {info['versions'].get('steptp', '')} with seed {config['seed']}.",
        "",
        "Each step is one strategy at one site of one LEIR program: both programs, the verdict with its evidence by tier, a paired measurement where there is one, and a "
        "chain of thought that was rendered from facts before anything was measured.",
        "",
        "## Splits",
        "",
        *_table(("split", "steps"), list(summary["splits"].items())),
        "",
        "Rows are split by root program; `test_new_family` holds whole families that training never sees. A family is a set of naive programs with equal skeleton.",
        "",
        "## Strategies",
        "",
        *_table(
            ("strategy", "verified", "share", "measured", "faster", "same", "slower", "median ratio"),
            [
                (
                    r["strategy"],
                    r["verdicts"].get("ok", 0),
                    f"{r['share']:.1%}",
                    r["measured"],
                    *(r["labels"].get(k, 0) for k in ("faster", "same", "slower")),
                    "" if r["median_ratio"] is None else f"{r['median_ratio']:.3f}",
                )
                for r in summary["strategies"]
            ],
        ),
        "",
        "## Verdicts",
        "",
        *_table(("verdict", "steps"), [(v, totals["verdicts"][v]) for v in summary["verdicts"]]),
        "",
        "## Views",
        "",
        *_table(("view", "lines by split"), [(v, ", ".join(f"{s} {n}" for s, n in c.items()) or "none") for v, c in views.items()]),
        "",
        "## Left out, and why",
        "",
        *_table(("reason", "steps"), sorted(info["dropped"].items())),
        "",
        "## Shortcut probes",
        "",
        "Share of held-out walk steps whose choice a probe guesses, beside an even choice among the listed candidates. A nuisance probe must not beat it by more than 3 points.",
        "",
        *_table(("probe", "score", "even choice", "steps"), [(n, f"{p['score']:.3f}", f"{p['uniform']:.3f}", int(p["n"])) for n, p in probes.items()]),
        "",
        "## How it was measured",
        "",
        f"Host A/A margin {info['margin']:.4f}: a step is `faster` or `slower` only if its interval leaves that band."
        if info.get("margin")
        else "Nothing was measured.",
        "",
        *_table(("host", ""), [(k, v) for k, v in info["host"].items() if not isinstance(v, (dict, list))]),
        "",
        *_table(("package", "version"), sorted(info["versions"].items())),
    ]
    return lines
