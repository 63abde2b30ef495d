"""Grammars of answers, for decoding that cannot leave the format: Lark grammars as llguidance reads them.

The part about LEIR takes the canonical text of every program (``docs/leir.md``). Being context-free it says nothing of names, ranks, dtypes, extents that
cannot be inferred, or how deeply an expression may nest. Words and operators come from the tables of :mod:`steptp.ir`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from functools import cache

from steptp.dataset.questions import candidate_line
from steptp.ir.lexer import MAX_NAME, RESERVED
from steptp.ir.ops import OPS, REDUCERS, OpForm, OpRule
from steptp.ir.types import DType, LoopKind, Scope
from steptp.policy.prompting import Question

__all__ = ["grammar", "program_grammar"]

_LEVELS = 16  # of indentation
_TEXT = r"[^\x00-\x09\x0b-\x1f\x7f{]"  # of a reason: no brace, for JSON is read before anything else
_COMPARE = [name for name, row in OPS.items() if row.rule is OpRule.COMPARE and name not in ("<", "<=")]
_INTEGER = (OpRule.NUMERIC, OpRule.INTEGER, OpRule.SELECT)  # what may make up an index


def grammar(question: Question) -> str:
    """The grammar of the answers to a question: the form of the dataset's answers, and no answer that :func:`steptp.policy.answers.read_answer` cannot read.
    With reasons, free text (or none) comes first."""
    if question.format == "action":
        steps = _any(sorted(candidate_line(site, name) for name, site in (question.listed or question.sites).items()))
        return f"start: reason STEP\n{_reason('Step: ')}\nSTEP: {steps}\n" if question.reasons else f"start: STEP\nSTEP: {steps}\n"
    if question.format == "rewrite":
        return f"start: reason program\n{_reason('Next program:', chr(10))}\n{_leir()}" if question.reasons else program_grammar()
    opening = f"start: reason change\n{_reason('Edit:', chr(10))}" if question.reasons else "start: change"
    return "\n".join([opening, *_change(question.lines), _leir()])


def program_grammar() -> str:
    """The grammar of canonical program texts, without the end of the last line."""
    return f"start: program\n{_leir()}"


def _reason(mark: str, end: str = "") -> str:
    """Text up to the first line that begins with ``mark``."""
    return f"reason[lazy]: /({_TEXT}*\\n)?{mark}/" + (f" {json.dumps(end)}" if end else "")


def _change(lines: int) -> Iterator[str]:
    """Rules of the lines of an edit, whose numbers the program has."""
    yield 'change: line ("\\n" line)*'
    yield "line: PLACE piece | OUT"
    yield 'PLACE: NTH "| " | ("0" | NTH) "+ "'
    yield 'OUT: NTH "-"'
    yield f"NTH: {_any(str(n) for n in range(1, lines + 1))}"
    yield 'piece: / +/? (sizes | where | ("in " | "out ") top_declarations | "tmp " (declarations | top_declarations) | (head " ")* (store | loops | guard))'


@cache
def _leir() -> str:
    """The rules of :func:`_rules`, with ``block_N`` for each level: a line's end carries the indentation of the line after it."""
    rules = list(_rules())
    for level in range(_LEVELS + 1):
        rules.append(f"block{level}: line{level} (NL{level} line{level})*")
        rules.append(f"NL{level}: {json.dumps(chr(10) + ' ' * level)}")
        inner = ""
        if level < _LEVELS:
            below = f"NL{level + 1}"
            inner = f' | loops {below} ("tmp " declarations {below})? block{level + 1} | guard {below} block{level + 1}'
        rules.append(f'line{level}: (head " ")* (store{inner})')
    return "\n".join([*rules, ""])


def _rules() -> Iterator[str]:
    yield f"NAME: /[A-Za-z_][A-Za-z0-9_]{{0,{MAX_NAME - 1}}}/ & ~WORD"
    yield f"WORD: {_any(sorted(RESERVED))}"
    yield f"DTYPE: {_any(d.value for d in DType)}"
    yield "INT: /[0-9]{1,19}/"
    yield r"NUMBER: /[0-9]{1,20}(\.[0-9]{1,20})?([eE][+-]?[0-9]{1,3})?/"
    # header
    yield 'program: (sizes NL0)? interface NL0 ("tmp " top_declarations NL0)? (where NL0)? block0'
    yield 'interface: "in " first_declaration more NL0 "out " top_declarations | "out " first_declaration more'
    yield 'sizes: "size " size (" " size)*'
    yield 'size: NAME "=" extent'
    yield 'where: "where " value (", " value)*'
    yield "top_declarations: top_declaration more"
    yield 'more: (" " top_declaration)*'
    yield 'declarations: declaration (" " declaration)*'
    scope = f'(" " ({_any(s.value for s in Scope if s is not Scope.GLOBAL)}))? (" " extent ".." extent)?'
    yield f'first_declaration: NAME (" " NAME)* " " DTYPE top_shape {scope}'
    yield f'top_declaration: NAME (" " NAME)* (" " DTYPE)? top_shape {scope}'
    yield f'declaration: NAME (" " NAME)* (" " DTYPE)? "[" (extent ("," extent)*)? "]" {scope}'
    yield 'top_shape: "[" ((size | extent) ("," (size | extent))*)? "]"'
    # statements
    yield "head: loops | guard"
    yield f'loops: ({_any(k.value for k in LoopKind)}) (" " NAME (":" index)?)+'
    yield 'guard: "if " value ":"'
    tokens = [(" " if row.token[0].isalpha() else "") + row.token for row in REDUCERS.values()]
    yield f'store: target ("=" | {_any(tokens)}) value | "carry " target ({_any(tokens)}) value'
    yield 'target: NAME "[" (index ("," index)*)? "]"'
    # expressions: of values; of indices; and of sizes, which read no memory
    yield 'value: both (" or " both)*'
    yield 'both: test (" and " test)*'
    yield 'test: "not " test | sum (("<" | "<=") sum)* | sum (' + _any(_COMPARE) + ") sum"
    yield from _arithmetic("", ("*", "/", "//", "%"), 'NUMBER | "inf" | "nan" | "true" | "false" | NAME | target | call', "value")
    yield f'call: DTYPE "(" value ")" | {_calls("value", tuple(OpRule))}'
    yield from _arithmetic("i", ("*", "//", "%"), f'INT | NAME | target | "i64" "(" value ")" | {_calls("index", _INTEGER)}', "index")
    yield "index: isum"
    yield from _arithmetic("e", ("*", "//", "%"), f'INT | NAME | "i64" "(" extent ")" | {_calls("extent", _INTEGER)}', "extent")
    yield "extent: esum"


def _arithmetic(kind: str, products: Iterable[str], atoms: str, inner: str) -> Iterator[str]:
    yield f'{kind}sum: {kind}product (("+" | "-") {kind}product)*'
    yield f"{kind}product: {kind}unary (({_any(products)}) {kind}unary)*"
    yield f'{kind}unary: "-"* {kind}atom'
    yield f'{kind}atom: {atoms} | "(" {inner} ")"'


def _calls(inner: str, rules: Iterable[OpRule]) -> str:
    """Calls of the functions with these type rules; the condition of a selection is a value whatever is selected."""
    allowed = [row for row in OPS.values() if row.form is OpForm.CALL and row.rule in tuple(rules)]
    plain = {n: [row.name for row in allowed if row.arity == n and row.rule is not OpRule.SELECT] for n in sorted({row.arity for row in allowed})}
    comma = ' "," '
    made = [f'({_any(names)}) "(" {comma.join([inner] * n)} ")"' for n, names in plain.items() if names]
    made += [f'"{row.name}" "(" value "," {inner} "," {inner} ")"' for row in allowed if row.rule is OpRule.SELECT]
    return " | ".join(made)


def _any(words: Iterable[str]) -> str:
    return " | ".join(json.dumps(word) for word in words)
