"""Grammars of answers agree with the parser and with the reader of answers, in both directions."""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Iterator
from functools import cache
from itertools import product
from typing import Any

import numpy as np
import pytest
from leir_fuzz import fuzz_text
from leir_gen import random_program

from steptp.errors import LeirError
from steptp.frontend import zoo
from steptp.ir import parse, print_program
from steptp.ir.lexer import RESERVED
from steptp.ir.parser import parse_unchecked
from steptp.policy.answers import read_answer
from steptp.policy.grammars import grammar, program_grammar
from steptp.policy.prompting import Question
from steptp.search.moves import Action, Edit, Proposal, Rewrite

llguidance = pytest.importorskip("llguidance")
PROGRAM = "in A f32[N=64,K=128] B[K,L=32]\nout Y[N,L]\ntmp C[N,L]\nfor i j k C[i,j]+=A[i,k]*B[k,j]\nfor i j Y[i,j]=max(C[i,j],0)\n"
BEYOND = {"syntax-extent", "syntax-depth"}
"""What no context-free grammar can say: extents that cannot be inferred, and how deeply expressions nest."""
SITES = {"QX": "loop_split@3.0", "AB": "loop_fusion@4", "OR": "loop_reorder@3.0:to=1"}


class Words:
    """A tokenizer of bytes and of the words that programs are made of."""

    def __init__(self, extra: tuple[str, ...] = ()) -> None:
        self.tokens = [bytes([b]) for b in range(256)] + [w.encode() for w in (*sorted(RESERVED), *extra)] + [b"<end>"]
        self.bos_token_id, self.eos_token_id = None, len(self.tokens) - 1
        self.special_token_ids = [self.eos_token_id]

    def __call__(self, text: bytes) -> list[int]:
        return list(text)


@cache
def _tokenizer(extra: tuple[str, ...] = ()) -> Any:
    return llguidance.LLTokenizer(llguidance.TokenizerWrapper(Words(extra)), slices=[])


@cache
def _compiled(text: str, extra: tuple[str, ...] = ()) -> Any:
    made = llguidance.LLMatcher(_tokenizer(extra), llguidance.LLMatcher.grammar_from_lark(text))
    assert not made.is_error(), made.get_error()
    return made


def _accepts(text: str, answer: str) -> bool:
    matcher, data = _compiled(text).deep_copy(), list(answer.encode(errors="replace"))
    return matcher.try_consume_tokens(data) == len(data) and matcher.is_accepting()


def _walk(text: str, start: str, extra: tuple[str, ...], rng: random.Random, stop: float = 0.3, most: int = 120) -> str | None:
    """A random text of a grammar, begun with ``start``; ``None`` where it did not come to an end."""
    words, matcher = Words(extra), _compiled(text, extra).deep_copy()
    written = list(start.encode())
    assert matcher.try_consume_tokens(written) == len(written), start
    for _ in range(most):
        if matcher.is_accepting() and rng.random() < stop:
            return b"".join(words.tokens[t] for t in written).decode(errors="replace")
        allowed = np.flatnonzero(np.frombuffer(matcher.compute_logit_bias(), np.uint8)[: words.eos_token_id]).tolist()
        if not allowed:
            break
        token = rng.choice([t for t in allowed if t > 255] or allowed if rng.random() < 0.5 else allowed)
        matcher.consume_token(token)
        written.append(token)
    return None


@cache
def _text(name: str) -> str:
    return print_program(zoo.get(name, "tiny").program)


@cache
def _sources() -> list[str]:
    """Texts of a sample of the zoo and of random programs."""
    return [*map(_text, random.Random(2).sample(zoo.names(), 6)), *(print_program(random_program(seed)) for seed in range(60))]


def _syntax(text: str) -> str:
    """The code of what the parser first finds wrong with the syntax, or nothing."""
    try:
        parse_unchecked(text)
    except LeirError as err:
        return err.code if err.code.startswith("syntax-") else ""
    return ""


@pytest.mark.slow
@pytest.mark.parametrize("name", zoo.names())
def test_every_program_of_the_zoo_is_in_the_grammar(name: str) -> None:
    assert _accepts(program_grammar(), _text(name).strip())


def test_every_canonical_text_is_in_the_grammar() -> None:
    texts = [*_sources(), *(print_program(random_program(seed)) for seed in range(60, 300))]
    assert [text for text in texts if not _accepts(program_grammar(), text.strip())] == []


def test_broken_texts_are_in_the_grammar_only_where_their_syntax_is_right() -> None:
    rng, sources = random.Random(7), _sources()
    seen: Counter[str] = Counter()
    for _ in range(6000):
        text = fuzz_text(rng, sources).rstrip("\n")
        try:
            canonical = print_program(parse(text)) == text + "\n"
        except LeirError:
            canonical = False
        taken = _accepts(program_grammar(), text)
        assert taken or not canonical, text
        if taken:
            code = _syntax(text)
            assert not code or code in BEYOND, f"{code}: {text}"
        seen["taken" if taken else "refused"] += 1
    assert min(seen["taken"], seen["refused"]) > 100, seen


def _ends(seed: int, count: int) -> Iterator[str]:
    """Beginnings of programs, continued by the grammar with the program's own names."""
    rng, texts = random.Random(seed), [t.strip() for t in _sources()]
    for _ in range(count):
        text = rng.choice(texts)
        extra = tuple(sorted(set(re.findall(r"[A-Za-z_]\w*", text)) - RESERVED))
        if (made := _walk(program_grammar(), text[: rng.randrange(len(text))], extra, rng)) is not None:
            yield made


def test_what_the_grammar_writes_is_read_by_the_parser() -> None:
    found: Counter[str] = Counter()
    for text in _ends(1, 800):
        code = _syntax(text)
        assert not code or code in BEYOND, f"{code}: {text}"
        answer = read_answer(Question("rewrite", False, ""), text)
        assert answer == Proposal(Rewrite(text + "\n")), text
        found[code] += 1
    assert found[""] > 100, found


@pytest.mark.parametrize(("form", "reasons"), [*product(("action", "edit", "rewrite"), (False, True))])
def test_what_ends_is_always_read(form: Any, reasons: bool) -> None:
    asked = Question(form, reasons, "", sites=SITES if form == "action" else {}, program=PROGRAM)
    extra = (
        "Step: ",
        "\nStep: loop_split@3.0 [QX]",
        " [AB]",
        "Edit:\n",
        "\nEdit:\n3-",
        "\nEdit:\n4+ ",
        "0+ for i Y[i]=0",
        "Next program:\n",
        "\nNext program:\n",
        PROGRAM.strip(),
        "for i Y[i]=0",
        "answer is AB",
        '"',
        "```",
    )
    rng, kinds = random.Random(3), Counter[str]()
    for _ in range(400):
        text = _walk(grammar(asked), "", extra, rng)
        if text is None:
            continue
        answer = read_answer(asked, text)
        assert isinstance(answer, Proposal), (answer, text)
        assert isinstance(answer.move, {"action": Action, "edit": Edit, "rewrite": Rewrite}[form])
        kinds["with a reason" if answer.reason else "bare"] += 1
    assert sum(kinds.values()) > 50, kinds
    assert bool(kinds["with a reason"]) == reasons


def test_an_action_is_one_of_the_listed_lines() -> None:
    asked = Question("action", False, "", sites=SITES)
    lines = [f"{site} [{name}]" for name, site in SITES.items()]
    said = [*lines, "QX", "[QX]", "loop_split@3.0", "loop_split@3.0 [AB]", f"Step: {lines[0]}", f"{lines[0]}.", ""]
    assert [a for a in said if _accepts(grammar(asked), a)] == lines
    asked, line = Question("action", True, "", sites=SITES), lines[1]
    assert _accepts(grammar(asked), f"Step: {line}")
    assert _accepts(grammar(asked), f"It is AB, for\nmemory's sake.\n\nStep: {line}")
    assert not _accepts(grammar(asked), f"It is AB. Step: {line}")
    assert not _accepts(grammar(asked), f"Step: {line}\nStep: {lines[0]}")
    assert not _accepts(grammar(asked), f'Because {{"id": "AB"}}\n\nStep: {line}')
    blinded = Question("action", False, "", sites=SITES, listed={name: site.partition("@")[0] for name, site in SITES.items()})
    assert [a for a in (*lines, "loop_split [QX]") if _accepts(grammar(blinded), a)] == ["loop_split [QX]"]


@pytest.mark.parametrize("lines", [1, 9, 12, 100])
def test_an_edit_changes_lines_that_the_program_has(lines: int) -> None:
    text = grammar(Question("edit", False, "", program="\n" * lines))
    for number in sorted({0, 1, lines // 2, lines, lines + 1, 10 * lines}):
        there = 1 <= number <= lines
        assert _accepts(text, f"{number}| for i Y[i]=0") == _accepts(text, f"{number}-") == there, number
        assert _accepts(text, f"{number}+ for i Y[i]=0") == (there or number == 0), number
        assert _accepts(text, f"1-\n{number}|  tmp a f32[N] b[4] local\n0+ size N=4") == there, number
    for bad in ("1| for i Y[i]=0 and", "1+", "1|", "1- for i Y[i]=0", "for i Y[i]=0", "Edit:\n1-", ""):
        assert not _accepts(text, bad), bad
    assert _accepts(grammar(Question("edit", True, "", program="\n" * lines)), "Line\n1| for i\nis:\n\nEdit:\n1-")


def test_fragments_are_what_programs_are_made_of() -> None:
    """Any lines of a canonical text may take the place of lines or come in."""
    text = grammar(Question("edit", False, "", program="\n" * 4))
    rng = random.Random(5)
    for program in _sources():
        lines = program.splitlines()
        first = rng.randrange(len(lines))
        some = lines[first : rng.randrange(first, len(lines)) + 1]
        assert _accepts(text, "\n".join(f"{rng.randint(1, 4)}{rng.choice('|+')} {line}" for line in some)), program
