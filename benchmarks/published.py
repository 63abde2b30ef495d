"""Of the steps in the published notation, how many hold, by strategy.

    python benchmarks/published.py DIR [--table FILE.md] [--out FILE.jsonl] [--strategy S] [--arrays] [--compiled] [--seed 0]

``DIR`` holds ``programs.jsonl``: one workload a line with ``workload``, ``program`` and ``steps`` (``strategy``, ``program``). Every program is
converted, and every step is judged against its workload's program by tiers 0 to 3 (``--compiled``: also tier 4 where it holds). ``--arrays`` looks for
differences by whole-array evaluation where exact evaluation cannot reach; that takes minutes and gigabytes. ``--out`` gets one line a step. ``--table`` writes the
table in Markdown. The last line is one JSON object.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from steptp.errors import LeirError
from steptp.ir.published import OPEN_POINTS, REFUSALS, read, read_pair
from steptp.verify.published import judge_pair

PROVEN, EQUAL, RACE, UNSAFE, DIFFERENT, OPEN, REFUSED = "proven", "equal", "race", "unsafe", "not equal", "undecided", "refused"
CLASSES = {
    PROVEN: "holds for all inputs: the same operations in a legal order (tier 2)",
    EQUAL: "holds over the reals at random points, without a tolerance (tier 3)",
    RACE: "holds in serial order, but a loop that may run concurrently carries a dependence that the reference does not have",
    UNSAFE: "reads an element that nothing wrote, although its outputs do not depend on it",
    DIFFERENT: "another function; the NumPy evaluator confirms the counterexample at the program's own sizes",
    OPEN: "not decided",
    REFUSED: "the text has no unique meaning",
}


def workloads(folder: Path) -> Iterator[dict[str, Any]]:
    """The lines of ``programs.jsonl``."""
    with (folder / "programs.jsonl").open(encoding="utf-8") as lines:
        for line in lines:
            yield json.loads(line)


def judge(reference: str, candidate: str, *, seed: int, arrays: bool, compiled: bool) -> dict[str, Any]:
    """The class of one step, with the verdict's kind, tier, message and open points."""
    began = time.process_time()
    try:
        pair = read_pair(reference, candidate)
    except LeirError as err:
        return {"class": REFUSED, "code": err.code, "message": err.message, "open": [], "seconds": time.process_time() - began}
    found = judge_pair(pair, seed=seed, arrays=arrays)
    verdict = found.verdict
    if compiled and verdict.ok:
        from steptp.dataset.pairs import then_compiled

        verdict = then_compiled(verdict, pair.reference.serial, pair.candidate.serial, seed=seed)
    kind, holds = str(verdict.kind), str(found.function) == "ok"
    if kind == "ok":
        group = PROVEN if any(r.tier == 2 and r.kind.value == "ok" for r in verdict.reports) else EQUAL
    else:
        group = {"not_equal": DIFFERENT, "illegal": RACE if holds else OPEN, "unsafe_memory": UNSAFE}.get(kind, OPEN)
    row: dict[str, Any] = {"class": group, "kind": kind, "tier": verdict.tier, "message": verdict.message, "holds": holds}
    row |= {"scope": "scope-across" in pair.candidate.codes and "scope-across" not in pair.reference.codes}
    row |= {"open": list(pair.candidate.codes), "shared_races": len(found.shared_races), "seconds": round(time.process_time() - began, 3)}
    if (c := verdict.counterexample) is not None and kind == "not_equal":
        row["witness"] = {"output": c.output, "index": list(c.index), "reference": c.expected, "candidate": c.actual, "inputs": c.regime, "seed": c.seed}
    return row


def shown(row: dict[str, Any]) -> str:
    """A witness in one line."""
    w = row["witness"]
    place = f"[{','.join(map(str, w['index']))}]" if w["index"] else ""
    return f"`{w['output']}{place}` is {w['reference']} in the reference, {w['candidate']} in the candidate (inputs '{w['inputs']}', seed {w['seed']})"


def table(rows: list[dict[str, Any]], programs: int, converted: int, command: str) -> str:
    """Everything that is committed, in Markdown."""
    by: dict[str, Counter[str]] = defaultdict(Counter)
    for row in rows:
        by[row["strategy"]][row["class"]] += 1
    total = Counter(row["class"] for row in rows)
    hold = total[PROVEN] + total[EQUAL]
    scoped = Counter(row["strategy"] for row in rows if row["class"] in (PROVEN, EQUAL) and row["scope"])
    racing = sum(bool(row.get("shared_races")) for row in rows)
    heads = ["strategy", "steps", "convert", "hold", "of these: scope open", *CLASSES]
    out = [
        "# Steps in the published notation",
        "",
        f"`{command}`: {len(rows)} steps of {len({r['workload'] for r in rows})} workloads. {converted} of {programs} programs convert",
        f"(the others have a reason with its place), and {hold} of {len(rows)} steps hold. What the notation leaves open, and how it is read, is in",
        "[published-notation.md](../published-notation.md).",
        "",
        *(f"- *{name}*: {text}." for name, text in CLASSES.items()),
        "- *scope open*: the step makes a tensor shared or local that carries values from one nest to another. As a function it holds; whether a",
        "  kernel could run so is not said by the notation.",
        "",
        f"In {racing} steps a bound loop carries a reduction that the reference carries too. That is counted as the reference's own, not the step's.",
        "",
        f"| {' | '.join(heads)} |",
        f"| {' | '.join('---' for _ in heads)} |",
    ]
    for strategy, c in [*sorted(by.items()), ("**all**", total)]:
        steps = sum(c.values())
        scope = scoped[strategy] if strategy in by else scoped.total()
        out.append(
            f"| {strategy} | {steps} | {steps - c[REFUSED]} | {c[PROVEN] + c[EQUAL]} | {scope or ''} | {' | '.join(str(c[name] or '') for name in CLASSES)} |"
        )
    for title, wanted in (("Not equal", (DIFFERENT,)), ("Refused", (REFUSED,)), ("Undecided", (OPEN,)), ("Races and unsafe reads", (RACE, UNSAFE))):
        listed = [r for r in rows if r["class"] in wanted]
        if listed:
            out += ["", f"## {title}", ""]
            out += [f"- {r['workload']}, step {r['step']}, {r['strategy']}: {shown(r) if 'witness' in r else said(r)}" for r in listed]
    used = Counter(code for r in rows for code in r["open"])
    out += ["", "## Open points", "", "| code | steps | reading |", "| --- | --- | --- |"]
    out += [f"| {code} | {count} | {OPEN_POINTS[code].replace('|', '/')} |" for code, count in used.most_common()]
    return "\n".join(out) + "\n"


def said(row: dict[str, Any]) -> str:
    text = row["message"] if len(row["message"]) < 220 else row["message"][:217] + "..."
    return f"{row['code']}: {text} ({REFUSALS[row['code']]})" if row.get("code") in REFUSALS else text


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, metavar="DIR")
    parser.add_argument("--table", type=Path)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--strategy")
    parser.add_argument("--arrays", action="store_true")
    parser.add_argument("--compiled", action="store_true")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    if not (args.folder / "programs.jsonl").is_file():
        parser.error(f"there is no programs.jsonl in {args.folder}")
    rows: list[dict[str, Any]] = []
    programs = converted = 0
    for work in workloads(args.folder):
        programs += 1
        try:
            read(work["program"])
            converted += 1
        except LeirError as err:
            print(f"{work['workload']}: {err.code}: {err.message}", file=sys.stderr)
        for number, step in enumerate(work["steps"]):
            if args.strategy in (None, step["strategy"]):
                row = judge(work["program"], step["program"], seed=args.seed, arrays=args.arrays, compiled=args.compiled)
                row = {"workload": work["workload"], "step": number, "strategy": step["strategy"], **row}
                programs += 1
                converted += row["class"] != REFUSED
                rows.append(row)
                if args.out:
                    args.out.parent.mkdir(parents=True, exist_ok=True)
                    with args.out.open("a", encoding="utf-8") as lines:
                        lines.write(json.dumps(row) + "\n")
        print(f"\r{len(rows)} steps", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    flags = "".join(f" --{name}" for name in ("arrays", "compiled") if getattr(args, name))
    text = table(rows, programs, converted, f"python benchmarks/published.py DIR{flags} --seed {args.seed}")
    print(text)
    if args.table:
        args.table.write_text(text, encoding="utf-8")
    counts = Counter(row["class"] for row in rows)
    seconds = sorted(row["seconds"] for row in rows)
    summary = {"programs": programs, "converted": converted, "steps": len(rows), "hold": counts[PROVEN] + counts[EQUAL]}
    summary |= {name.replace(" ", "_"): counts[name] for name in CLASSES}
    print(json.dumps({**summary, "median_ms": round(1e3 * seconds[len(seconds) // 2], 1) if seconds else 0}))


if __name__ == "__main__":
    main()
