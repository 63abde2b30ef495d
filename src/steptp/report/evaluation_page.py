"""Evaluations side by side: a table, what became of the answers, families, and some answers as they were written."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from steptp.errors import UsageError
from steptp.evaluate.judging import STAGES
from steptp.report.pages import render

__all__ = ["COLUMNS", "cells", "evaluation_page", "read_results"]

_STEPS = (*STAGES, "same")
COLUMNS = {
    "named": ("states", "read", "differs", "legal", "equal", "as the engine", "equal, drawn", "pass@4", "pass@8"),
    "free": ("states", "read", "differs", "legal", "equal", "faster", "equal, drawn", "pass@4", "pass@8"),
    "action": ("states", "read", "best", "regret", "regret, drawn", "not measured", "pass@4", "pass@8"),
}
"""Task → the columns of its table, in the order of :func:`cells`."""


def read_results(folders: Sequence[Path]) -> list[tuple[str, dict[str, Any]]]:
    """The results with the names of their folders. Raises :class:`UsageError` ``usage-evaluation``."""
    found = []
    for folder in folders:
        try:
            result = json.loads((folder / "result.json").read_text(encoding="utf-8"))
        except FileNotFoundError:
            raise UsageError("usage-evaluation", f"{folder} holds no finished evaluation", hint="steptp evaluate … --out DIR; --resume finishes one") from None
        except (OSError, ValueError) as err:
            raise UsageError("usage-evaluation", f"{folder / 'result.json'} cannot be read: {err}") from None
        if not isinstance(result, dict) or "greedy" not in result or "selection" not in result:
            raise UsageError("usage-evaluation", f"{folder} was not written by steptp evaluate")
        found.append((folder.name, result))
    return found


def cells(result: dict[str, Any]) -> list[str]:
    """The row of a run under :data:`COLUMNS`: greedy answers, then drawn ones; rates in percent with their 95 % interval over roots."""
    greedy, drawn = result["greedy"], result.get("drawn", {})
    passes = [_rate(result.get("pass_at_k", {}).get(k)) for k in ("4", "8")]
    states = str(result["states"])
    if result["selection"]["task"] == "action":
        return [states, _rate(greedy["read"]), _rate(greedy["best"]), _value(greedy["regret"]), _value(drawn.get("regret")), str(greedy["unmeasured"]), *passes]
    last = "faster" if result["selection"]["task"] == "free" else "same"
    return [states, *(_rate(greedy.get(name)) for name in (*STAGES, last)), _rate(drawn.get("equal")), *passes]


def _rate(estimate: dict[str, Any] | None) -> str:
    if estimate is None or not estimate["count"]:
        return ""
    return f"{100 * estimate['mean']:.0f} % ({100 * estimate['low']:.0f}–{100 * estimate['high']:.0f})"


def _value(estimate: dict[str, Any] | None) -> str:
    if estimate is None or not estimate["count"]:
        return ""
    return f"{estimate['mean']:.2f} ({estimate['low']:.2f}–{estimate['high']:.2f})"


def evaluation_page(results: Sequence[tuple[str, dict[str, Any]]]) -> str:
    """One HTML file without scripts."""
    tasks = list(dict.fromkeys(result["selection"]["task"] for _, result in results))
    runs = [(name, result, dict(_facts(result))) for name, result in results]
    tables = [(task, COLUMNS[task], [(name, r["selection"]["split"], cells(r)) for name, r in results if r["selection"]["task"] == task]) for task in tasks]
    funnels = [(name, [(step, r["greedy"][step]["mean"]) for step in _STEPS if step in r["greedy"]]) for name, r in results]
    return render("evaluation.html.j2", tables=tables, runs=runs, funnels=[(n, bars) for n, bars in funnels if len(bars) > 1], rate=_rate, value=_value)


def _facts(result: dict[str, Any]) -> list[tuple[str, str]]:
    """Policy, settings and selection as text."""
    chosen = {k: v for k, v in result["selection"].items() if v not in (None, False, 0)}
    return [
        ("Policy", result["policy"]),
        ("Settings", ", ".join(f"{k} {v}" for k, v in result["settings"].items())),
        ("States", f"{result['states']} of {result['roots']} roots, {result['families']} families; {', '.join(f'{k} {v}' for k, v in chosen.items())}"),
        ("Answers", f"{result['answers']}: {', '.join(f'{count} {what}' for what, count in result['outcomes'].items())}"),
        ("Dataset", f"{result['dataset']['folder']}, {result['dataset']['steps']} steps"),
        ("Host", str(result["host"]["name"])),
    ]
