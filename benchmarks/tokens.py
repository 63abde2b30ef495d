"""Tokens that LEIR costs: against TVMScript of the same programs, the published notation, and other concrete syntaxes.

Usage: python benchmarks/tokens.py [--published programs.jsonl] [--preset mini] [--limit N] [--no-tvm] [--rows]

Ratios are means over workloads of the zoo and over the encoders of ``bpe.py``. TVMScript is what the lowering prints for the same program (no
metadata). A published program is compared with the zoo's workload of that name, at the published sizes. Both are taken in f32: the published texts do
all arithmetic in f16, without the f32 accumulation and the casts that PyTorch's f16 semantics need.
The last line is one JSON object: {"ratio_tvmscript", "ratio_published", "programs", ...}.
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

FORMS: dict[str, Callable[[Program], str]] = {"canonical": print_program, "compact": lambda program: print_program(program, compact=True)}


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


def tvmscript(program: Program) -> str:
    """TVMScript of a program as its lowering prints it."""
    from steptp.lower import lower_to_tir

    return str(lower_to_tir(program).script(show_meta=False))


Ratios = dict[str, dict[str, list[float]]]  # form → encoder → ratio of each program


def _add(ratios: Ratios, program: Program, other: str, counts: dict[str, Encoder]) -> str:
    shown: list[str] = []
    for encoder, count in counts.items():
        base = count(other)
        for form, text in FORMS.items():
            ratio = count(text(program)) / base
            ratios.setdefault(form, {}).setdefault(encoder, []).append(ratio)
            shown.append(f"{encoder} {form} {ratio:.2f}")
    return "  ".join(shown)


def against_tvmscript(programs: dict[str, Program], counts: dict[str, Encoder]) -> Ratios:
    """Ratios of each program's text to its TVMScript."""
    ratios: Ratios = {}
    for name, program in programs.items():
        try:
            script = tvmscript(program)
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


def _mean(ratios: Ratios, form: str) -> float | None:
    values = [mean(r) for r in ratios.get(form, {}).values() if r]
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
    tvm = {} if options.no_tvm else against_tvmscript(programs, counts)
    for title, ratios in (("TVMScript", tvm), ("published", published)):
        for form, by_encoder in ratios.items():
            for encoder, values in by_encoder.items():
                shown = f"mean {mean(values):.3f}, median {median(values):.3f}, worst {max(values):.3f}, programs {len(values)}"
                print(f"{form} to {title}, {encoder}: {shown}")
    result = {
        "ratio_tvmscript": _mean(tvm, "canonical"),
        "ratio_published": _mean(published, "canonical"),
        "ratio_tvmscript_compact": _mean(tvm, "compact"),
        "ratio_published_compact": _mean(published, "compact"),
        "programs": len(programs),
        "published_programs": len(next(iter(published.get("canonical", {}).values()), [])),
        "encoders": sorted(counts),
        "syntaxes": syntaxes,
    }
    print(json.dumps(result))
    return 0


if __name__ == "__main__":
    sys.exit(main())
