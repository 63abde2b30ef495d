"""Broken LEIR texts: random bytes, random tokens, and mutations of valid programs."""

from __future__ import annotations

import random
import re
from collections import Counter
from dataclasses import dataclass, field

from leir_gen import random_program

from steptp.errors import LeirError
from steptp.ir import Body, Buffer, Loop, Program, Scope, Store, parse, print_expr, print_program, print_stmt
from steptp.ir.lexer import RESERVED
from steptp.ir.ops import OPS, REDUCERS

__all__ = ["fuzz", "FuzzReport", "fuzz_text", "spelled_out"]

_TOKENS = [
    *sorted(RESERVED), *OPS, *(r.token for r in REDUCERS.values()), *"=()[],:#", "..", "\n", "\n ", "\n  ", "\t", "\r", "\0", "é", "\U0001f600",
    "0", "1", "-1", "7", "1e5", "1.5", "99999999999999999999", "1e999", "0x1", "N", "M", "A", "Y", "i", "j", "k", "N=4", "A[i]", "Y[i]", "for i:N ",
]  # fmt: skip


@dataclass
class FuzzReport:
    """``tracebacks`` holds texts that raised anything but a :class:`LeirError` with code, line and caret."""

    texts: int = 0
    parsed: int = 0
    errors_by_code: Counter[str] = field(default_factory=Counter)
    tracebacks: list[tuple[str, str]] = field(default_factory=list)


def spelled_out(program: Program) -> str:
    """A text of the program that leaves nothing out: a ``size`` line, the dtype of every array, the extent of every loop."""

    def declarations(group: tuple[Buffer, ...]) -> str:
        return " ".join(
            f"{b.name} {b.dtype}[{','.join(map(print_expr, b.shape))}]"
            + (f" {b.scope}" if b.scope is not Scope.GLOBAL else "")
            + (f" {print_expr(b.range[0])}..{print_expr(b.range[1])}" if b.range else "")
            for b in group
        )

    def block(body: Body, level: int) -> list[str]:
        out: list[str] = []
        for stmt in body:
            if isinstance(stmt, Store):
                out.append(" " * level + print_stmt(stmt))
                continue
            out.append(" " * level + (f"{stmt.kind} {stmt.var}:{print_expr(stmt.extent)}" if isinstance(stmt, Loop) else f"if {print_expr(stmt.cond)}:"))
            if isinstance(stmt, Loop) and stmt.tmps:
                out.append(" " * (level + 1) + f"tmp {declarations(stmt.tmps)}")
            out.extend(block(stmt.body, level + 1))
        return out

    sizes = " ".join(f"{s.name}={s.value if s.expr is None else print_expr(s.expr)}" for s in program.sizes)
    lines = [f"size {sizes}"] if sizes else []
    lines += [f"where {', '.join(map(print_expr, program.constraints))}"] if program.constraints else []
    lines += [f"{word} {declarations(group)}" for word, group in (("in", program.inputs), ("out", program.outputs), ("tmp", program.tmps)) if group]
    return "\n".join([*lines, *block(program.body, 0), ""])


def _bytes(rng: random.Random) -> str:
    length = rng.choice((0, 1, 3, 10, 40, 200))
    if rng.random() < 0.5:
        return rng.randbytes(length).decode("latin-1")
    return "".join(chr(rng.choice((rng.randrange(32, 127), rng.randrange(0x110000), 10, 32))) for _ in range(length))


def _tokens(rng: random.Random) -> str:
    return rng.choice(("", " ")).join(rng.choice(_TOKENS) for _ in range(rng.randint(1, 40)))


def _swap(text: str, rng: random.Random) -> str:
    """One word becomes another word of the same text."""
    words = list(re.finditer(r"[\w.]+" if rng.random() < 0.8 else r"[\w.]+|.", text))
    if not words:
        return text
    first, second = rng.choice(words), rng.choice(words)
    return text[: first.start()] + second.group() + text[first.end() :]


def _mutate(text: str, rng: random.Random) -> str:
    for _ in range(rng.choice((1, 1, 1, 1, 2, 4))):
        kind = rng.choice((0, 1, 2, 2, 3, 4, 5, 6, 7, 8, 9, 9, 9))
        a = rng.randrange(len(text) + 1)
        b = min(len(text), a + rng.choice((1, 1, 3, 12)))
        lines = text.split("\n")
        if kind == 0:
            text = text[:a] + text[b:]
        elif kind == 1:
            text = text[:a] + rng.choice(_TOKENS) + text[a:]
        elif kind == 2:
            text = text[:a] + rng.choice(_TOKENS) + text[b:]
        elif kind == 3:
            text = text[:a] + text[a:b] * rng.choice((2, 3, 300)) + text[b:]
        elif kind == 4:
            rng.shuffle(lines)
            text = "\n".join(lines)
        elif kind == 5:
            text = "\n".join(" " * rng.randrange(4) + line.lstrip() if rng.random() < 0.3 else line for line in lines)
        elif kind == 6:
            text = text[:a]
        elif kind == 9:
            text = _swap(text, rng)
        elif kind == 7:
            word = rng.choice(_TOKENS)
            text = text.replace(rng.choice(("N", "i", "+", "[", "f32", ":", " ", ",", "=")), word, rng.choice((1, -1)))
        else:
            text = text[:a] + rng.choice(("(", "-", "not ", "exp(", "[", "A[", "for i:N ", " ")) * rng.choice((5, 60, 500)) + text[a:]
    return text


def fuzz_text(rng: random.Random, sources: list[str]) -> str:
    """One text: a tenth random characters, 15 % random tokens, a quarter a valid program with one word exchanged, the rest mutated further."""
    kind = rng.random()
    if kind < 0.25:
        return _bytes(rng) if kind < 0.1 else _tokens(rng)
    return _swap(rng.choice(sources), rng) if kind < 0.5 else _mutate(rng.choice(sources), rng)


def fuzz(count: int, seed: int) -> FuzzReport:
    """Parse ``count`` broken texts. A text that happens to be valid must print and read back."""
    rng = random.Random(seed)
    sources = [spelled_out(program) if n % 2 else print_program(program) for n, program in enumerate(map(random_program, range(60)))]
    report = FuzzReport()
    for _ in range(count):
        text = fuzz_text(rng, sources)
        report.texts += 1
        try:
            program = parse(text, "fuzz.leir")
            if any(parse(form(program)) != program for form in (print_program, spelled_out)):
                report.tracebacks.append((text, "does not read back"))
            report.parsed += 1
        except LeirError as error:
            place = error.place
            if not error.code or place is None or place.line < 1 or (text.strip() and "^" not in place.render()) or error.code not in error.render():
                report.tracebacks.append((text, f"error without code, line or caret: {error.code} {place and (place.line, place.column)}"))
            report.errors_by_code[error.code] += 1
        except Exception as error:  # noqa: BLE001 - the test is that nothing else is raised
            report.tracebacks.append((text, repr(error)[:300]))
    return report
