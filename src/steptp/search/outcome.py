"""A whole search of one program: the host's noise, the search, the closing check, and the result as plain data."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from steptp.ir import Program, parse, print_program, program_hash
from steptp.measure.margin import host_margin
from steptp.rewrite.trace import Trace
from steptp.search.budget import Limits
from steptp.search.checkpoint import Checkpoint, Store
from steptp.search.evaluator import Judge
from steptp.search.finish import Answer, chain_json, close, trace_of, write_artefacts
from steptp.search.policy import Policy
from steptp.search.session import Algorithm, Found, Progress, Search, run_search

__all__ = ["Outcome", "find_faster", "result_json"]


@dataclass(frozen=True, slots=True)
class Outcome:
    """``result`` is what ``result.json`` holds; ``trace`` is ``None`` when a step was an edit or a rewrite."""

    answer: Answer
    trace: Trace | None
    result: dict[str, Any]


def find_faster(
    program: Program, policy: Policy, algorithm: Algorithm, limits: Limits, *, workload: str = "", threads: int = 1, jobs: int = 1, seed: int = 0,
    folder: Path | None = None, resume: bool = False, say: Callable[[str], None] = lambda text: None, watch: Callable[[Progress], None] | None = None,
    pages: Mapping[str, Callable[[dict[str, Any]], str]] | None = None,
) -> Outcome:  # fmt: skip
    """Search for a faster program, check the best one against ``program``, and write everything to ``folder`` (``None``: nothing is written).

    ``pages``: further files by name, made from the result. Raises :class:`UsageError` as :class:`Checkpoint` does.
    """
    start = parse(print_program(program))
    identity = {
        "start": program_hash(start), "policy": [policy.name, policy.settings], "search": [algorithm.name, algorithm.settings], "seed": seed,
        "threads": threads,
    }  # fmt: skip
    with ExitStack() as stack:
        journal = None if folder is None else folder / "journal"
        store = Store() if journal is None else stack.enter_context(Checkpoint(journal, identity, resume=resume))
        judge = stack.enter_context(Judge(print_program(start), threads=threads, jobs=jobs, seed=seed))
        say("measuring this host's own noise")
        judge.margin(host_margin(judge.pool, cache=None if journal is None else journal / "margin.json").margin)
        session = Search(start, policy, judge, limits=limits, seed=seed, threads=threads, store=store, watch=watch)
        found = run_search(algorithm, session)
        if found.stopped == "interrupted":
            judge.close()  # what still runs there is of no use
        say(f"search ended ({found.stopped}); checking the best program against the start")
        answer = close(found, judge)
        result = result_json(workload, session, found, answer, identity)
        trace = trace_of(start, answer.node)
        if folder is not None:
            result["files"] = write_artefacts(folder, parse(answer.node.text), trace, result, say, pages or {})
    return Outcome(answer, trace, result)


def result_json(workload: str, session: Search, found: Found, answer: Answer, identity: dict[str, Any]) -> dict[str, Any]:
    """Figures, every step of the answer with verdict, evidence and reasons, and the whole tree with its attempts."""
    return {
        "workload": workload,
        "speedup": answer.speedup,
        "start": found.tree.start.hash,
        "answer": answer.node.hash,
        "final": answer.judged,
        "turned_down": [list(t) for t in answer.turned_down],
        "stopped": found.stopped,
        "spent": found.spent,
        "limits": asdict(session.budget.limits),
        "curve": [list(p) for p in found.curve],
        "identity": identity,
        "host": session.host.to_dict(),
        "programs": {"start": found.tree.start.text, "answer": answer.node.text},
        "steps": chain_json(answer.node, session.host, session.policy.name),
        "tree": found.tree.to_json(),
    }
