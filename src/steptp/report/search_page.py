"""The page of a finished search, from ``result.json``: figures, curve, chain of steps, tree, program, how to load the files."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from steptp.errors import UsageError
from steptp.ir import Program, parse
from steptp.ir.diff import DiffLine, diff_lines
from steptp.ir.sizes import shape_of
from steptp.report.curve import curve_of
from steptp.report.pages import render
from steptp.search.moves import move_key, move_of

__all__ = ["PAGE", "search_page", "write_page"]

PAGE = "report.html"
_STOPPED = {
    "done": "the algorithm had nothing more to try",
    "samples": "all samples were drawn",
    "measurements": "all measurements were taken",
    "tokens": "all tokens were used",
    "seconds": "the time was over",
    "interrupted": "it was interrupted",
}
_FIELDS = ("workload", "speedup", "final", "stopped", "spent", "limits", "curve", "identity", "host", "programs", "steps", "tree")
_CONTEXT = 3  # unchanged lines around each change


@dataclass(frozen=True, slots=True)
class _Row:
    """A line of a difference in parts (text, whether it changed); ``gap``: lines are left out before it."""

    mark: str
    old: int | None
    new: int | None
    parts: tuple[tuple[str, bool], ...]
    gap: bool


def write_page(folder: Path) -> Path:
    """Write the page of the search in ``folder``. Raises :class:`UsageError` ``usage-report`` where there is no finished search."""
    source = folder / "result.json"
    try:
        result = json.loads(source.read_text(encoding="utf-8"))
    except FileNotFoundError:
        begun = (folder / "journal" / "search.jsonl").exists()
        what = "holds a search that has not finished" if begun else "holds no search"
        hint = "finish it with steptp optimize --resume" if begun else "give steptp optimize's --out"
        raise UsageError("usage-report", f"{folder} {what}", hint=hint) from None
    except ValueError as err:
        raise UsageError("usage-report", f"{source} is damaged: {err}") from None
    missing = [name for name in _FIELDS if name not in result] if isinstance(result, dict) else list(_FIELDS)
    if missing:
        raise UsageError("usage-report", f"{source} has no {', '.join(missing)}: another version of Step-TP wrote it", hint="run the search again")
    out = folder / PAGE
    out.write_text(search_page(result), encoding="utf-8")
    return out


def search_page(result: Mapping[str, Any]) -> str:
    """The HTML of a result (:func:`steptp.search.outcome.result_json`)."""
    program = parse(result["programs"]["answer"])
    limits = result["limits"]
    return render(
        "search.html.j2",
        result=result,
        timing=None if result["final"] is None else result["final"]["timing"],
        spent=[(name, used, limits.get(name)) for name, used in result["spent"].items()],
        stopped=_STOPPED.get(result["stopped"], result["stopped"]),
        curve=curve_of([tuple(p) for p in result["curve"]], int(result["spent"]["samples"]), float(result["speedup"])),
        steps=list(_steps(result)),
        tree=list(_tree(result)),
        loads=list(_loads(result.get("files", ()), program)),
        label=label,
        plain=_plain,
    )


def label(move: Mapping[str, Any] | None) -> tuple[str, str]:
    """A move as a line (``strategy@site``, ``edit 3, 4+``, ``rewrite``) and the lines that it brings."""
    if move is None:
        return "no move", ""
    head, _, body = move_key(move_of(dict(move))).partition("\n")
    return head, body


def _steps(result: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """The chain's steps, each with its difference and its tiers."""
    before = parse(result["programs"]["start"])
    for step in result["steps"]:
        after = parse(step["program"])
        tiers = [(r, _rows(r["evidence"])) for r in step["judged"]["evidence"]]
        yield {**step, "diff": list(_difference(before, after)), "tiers": tiers, "facts": step.get("facts", ()), "reason": step.get("reason", "")}
        before = after


def _difference(before: Program, after: Program) -> Iterator[_Row]:
    old = new = 0
    for line in diff_lines(before, after, context=_CONTEXT):
        gap = (line.old or 0) > old + 1 or (line.new or 0) > new + 1
        old, new = line.old or old, line.new or new
        yield _Row(line.kind.value, line.old, line.new, tuple(_parts(line)), gap)


def _parts(line: DiffLine) -> Iterator[tuple[str, bool]]:
    at = 0
    for start, end in line.marks:
        if start > at:
            yield line.text[at:start], False
        yield line.text[start:end], True
        at = end
    if at < len(line.text):
        yield line.text[at:], False


def _plain(value: Any) -> str:
    """A string as it is, anything else as JSON."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _rows(evidence: Mapping[str, Any]) -> list[tuple[str, str]]:
    return [(key, _plain(value)) for key, value in evidence.items()]


def _tree(result: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Nodes depth first, each with its depth, the attempt that found it, and the attempts at it that found nothing new."""
    nodes = {n["number"]: n for n in result["tree"]}
    children: dict[int | None, list[int]] = {}
    verdicts: dict[int, Mapping[str, Any]] = {}
    for node in result["tree"]:
        children.setdefault(node["parent"], []).append(node["number"])
        verdicts |= {a["node"]: a for a in node["attempts"] if a["kind"] == "ok"}
    chain = {s["number"] for s in result["steps"]} | {0}
    waiting = [(0, 0)]
    while waiting:
        number, depth = waiting.pop()
        node = nodes[number]
        barren = [a for a in node["attempts"] if a["kind"] != "ok"]
        yield {**node, "depth": depth, "verdict": verdicts.get(number), "barren": barren, "chosen": number in chain}
        waiting += [(child, depth + 1) for child in reversed(children.get(number, []))]


def _loads(files: Any, program: Program) -> Iterator[tuple[str, str]]:
    """(file, how to use it) for each artefact."""
    named = [(b.name, f"{b.dtype}{list(shape_of(b.shape, program))}") for b in (*program.inputs, *program.outputs)]
    names = ", ".join(name for name, _ in named)
    shapes = ", ".join(f"{name} {shape}" for name, shape in named)
    texts = {
        "program.leir": 'from pathlib import Path\nfrom steptp.ir import parse\nprogram = parse(Path("program.leir").read_text())',
        "program.so": f'import tvm\nrun = tvm.runtime.load_module("program.so")["main"]\nrun({names})  # inputs, then outputs: {shapes}',
        "program.h": '#include "program.h"\n' + f"int status = steptp_run({', '.join('&' + name for name, _ in named)});  /* DLTensor, 0 on success */",
        "program.tvm.py": 'from pathlib import Path\nfrom tvm.script import from_source\nfunction = from_source(Path("program.tvm.py").read_text())',
        "program.cu": "nvcc -arch=sm_90 -cubin program.cu",
        "trace.json": (
            "from pathlib import Path\nfrom steptp.rewrite.trace import Trace, replay\n"
            'program = replay(Trace.from_json(Path("trace.json").read_text())).last'
        ),
    }  # fmt: skip
    yield from ((name, text) for name, text in texts.items() if name in files)
