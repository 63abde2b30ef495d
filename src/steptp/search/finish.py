"""The closing check of a search: the best program against the start, verified on every tier and timed afresh; and what the user takes away."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from steptp.analysis.host import HostInfo
from steptp.ir import parse
from steptp.ir.nodes import Loop, Program
from steptp.ir.walk import visit
from steptp.reason import explain
from steptp.rewrite import engine
from steptp.rewrite.base import Applied, Exactness, Site
from steptp.rewrite.trace import Trace
from steptp.search.evaluator import Judge, judged_json
from steptp.search.moves import Action, move_json
from steptp.search.session import Found
from steptp.search.tree import Node
from steptp.verify.isolation import StepTask, check_and_measure, settle

__all__ = ["Answer", "chain_json", "close", "trace_of", "write_artefacts"]


@dataclass(frozen=True, slots=True)
class Answer:
    """The program that a search stands for. ``judged``: the start against it, every tier and a fresh timing; ``None`` when it is the start itself.
    ``turned_down``: programs that were better in the search and did not hold when checked again, with the reason."""

    node: Node
    judged: dict[str, Any] | None
    turned_down: tuple[tuple[int, str], ...] = ()

    @property
    def speedup(self) -> float:
        """Over the start, from the fresh timing."""
        timing = None if self.judged is None else self.judged["timing"]
        return 1.0 if timing is None else float(timing["ratio"])


def close(found: Found, judge: Judge) -> Answer:
    """Check the best programs of the search, best first, as one rewrite of the start (tiers 0, 1, 3, 4) and time them against it anew: the first that
    verifies and is not slower is the answer, the start if there is none among the best three. The chain's own steps have passed every tier."""
    turned_down: list[tuple[int, str]] = []
    for node in sorted((n for n in found.tree.nodes if (n.speedup or 0.0) > 1.0), key=lambda n: n.rank)[:3]:
        task: StepTask[Any] = StepTask(
            parent=found.tree.start.text, child=node.text, root=found.tree.start.text, exactness=Exactness.ALGEBRAIC.value, seed=judge.seed + 1,
            input_seed=judge.seed + 1, tiers=(0, 1, 3, 4), timer=judge.timer(),
        )  # fmt: skip
        result = settle(task, judge.pool.submit(check_and_measure, task).result())
        if result is None:
            turned_down.append((node.number, "the closing check was cancelled"))
            continue
        judged = judged_json(result)
        if judged["kind"] != "ok":
            turned_down.append((node.number, f"{judged['kind']}: {judged['message']}"))
        elif judged["timing"] is None or judged["timing"]["label"] == "slower":
            turned_down.append((node.number, "not faster than the start when timed again"))
        else:
            return Answer(node, judged, tuple(turned_down))
    return Answer(found.tree.start, None, tuple(turned_down))


def way_to(node: Node) -> list[Node]:
    """The nodes from the start to ``node``, without the start."""
    return list(node.path())[::-1][1:]


def trace_of(start: Program, node: Node) -> Trace | None:
    """The replayable trace; ``None`` when a step is an edit or a rewrite, which no trace can hold."""
    trace = Trace.start(start)
    for step in way_to(node):
        if not isinstance(step.move, Action):
            return None
        trace = trace.then(step.move.site, parse(step.text))
    return trace


def chain_json(node: Node, host: HostInfo, rule: str) -> list[dict[str, Any]]:
    """Every step with its move, figures, verdict and, for a strategy's step, the reasons as checked sentences and their facts."""
    out: list[dict[str, Any]] = []
    for step in way_to(node):
        assert step.move is not None
        assert step.parent is not None
        row = {
            "number": step.number, "hash": step.hash, "move": move_json(step.move), "exactness": step.exactness, "ratio": step.ratio,
            "speedup": step.speedup, "said": step.reason, "judged": step.judged, "program": step.text,
        }  # fmt: skip
        if isinstance(step.move, Action):
            parent = parse(step.parent.text)
            applied = engine.apply(parent, step.move.site)
            if isinstance(applied, Applied):
                why = explain(parent, applied, Site.parse(step.move.site), rule=rule, host=host)
                row["reason"] = why.text
                row["facts"] = [{"kind": f.kind, "evidence": f.evidence, "values": dict(f.values)} for f in why.facts]
        out.append(row)
    return out


def write_artefacts(
    out: Path, program: Program, trace: Trace | None, result: dict[str, Any], say: Callable[[str], None],
    pages: Mapping[str, Callable[[dict[str, Any]], str]],
) -> list[str]:  # fmt: skip
    """Write ``program.leir``, TVMScript, a shared library with its C header, CUDA source of a bound program, the trace, ``result.json`` and ``pages``
    made from the result; returns the names of the files. A bound program has no CPU library; one that cannot be exported here is said and left out."""
    from steptp.ir import print_program
    from steptp.lower import BuildError, cuda_source, export_library, tvmscript
    from steptp.lower.artifacts import c_header

    out.mkdir(parents=True, exist_ok=True)
    bound = any(isinstance(v.stmt, Loop) and v.stmt.kind.is_bound for v in visit(program))
    texts: dict[str, str] = {"program.leir": print_program(program), "program.tvm.py": tvmscript(program, cuda=bound)}
    if bound:
        texts["program.cu"] = cuda_source(program)
    else:
        try:
            export_library(program, out / "program.so")
            texts["program.h"] = c_header(program)
        except BuildError as err:
            say(f"no shared library: {err.message} ({err.hint})")
    if trace is not None:
        texts["trace.json"] = trace.to_json() + "\n"
    files = sorted([*texts, "result.json", *pages, *(["program.so"] if "program.h" in texts else [])])
    whole = {**result, "files": files}
    texts["result.json"] = json.dumps(whole, indent=1, ensure_ascii=False) + "\n"
    texts |= {name: page(whole) for name, page in pages.items()}
    for name, text in texts.items():
        (out / name).write_text(text, encoding="utf-8")
    return files
