"""Tokens of LEIR text, with indentation turned into ``indent`` and ``dedent`` tokens."""

from __future__ import annotations

import re
from typing import NoReturn

from steptp.errors import LeirError, Place
from steptp.ir.ops import OPS, OpForm
from steptp.ir.types import DType, LoopKind, Scope

__all__ = ["Tokens", "tokenize", "RESERVED", "is_name", "MAX_TEXT", "MAX_NAME"]

MAX_TEXT = 500_000
"""Longest text, in characters."""
MAX_NAME = 120
"""Longest name, in characters."""
_MAX_NUMBER = 60
_MAX_LEVELS = 80

KEYWORDS = frozenset({"size", "where", "in", "out", "tmp", "if", "carry", "and", "or", "not", "true", "false", "inf", "nan"})
RESERVED = KEYWORDS | {k.value for k in LoopKind} | {d.value for d in DType} | {s.value for s in Scope} | {n for n, r in OPS.items() if r.form is OpForm.CALL}
"""Words that cannot be names."""

_WORD_KINDS = KEYWORDS | {k.value for k in LoopKind}
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
_TOKEN = re.compile(
    r"[ \t\r]*(?:(?P<assign>(?:max|min|or|and)=(?!=))|(?P<name>[A-Za-z_][A-Za-z0-9_]*)"
    r"|(?P<num>[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?)(?![A-Za-z_0-9])|(?P<sign>//|[=!<>+*]=|\.\.|[-+*/%<>=()\[\],:])|(?P<end>#.*|\Z)|(?P<bad>.))"
)


def is_name(text: str) -> bool:
    """Whether ``text`` may name a size, buffer or loop variable: ASCII letters, digits and ``_``, not reserved."""
    return bool(_NAME.match(text)) and len(text) <= MAX_NAME and text not in RESERVED


class Tokens:
    """Token kinds, texts and character offsets, as parallel lists.

    A kind is ``name``, ``num``, ``newline``, ``indent``, ``dedent``, ``eof`` or, for keywords, loop kinds and signs, the text itself.
    """

    __slots__ = ("filename", "kinds", "offsets", "source", "texts")

    def __init__(self, source: str, filename: str) -> None:
        self.source = source
        self.filename = filename
        self.kinds: list[str] = []
        self.texts: list[str] = []
        self.offsets: list[int] = []

    def place(self, start: int, end: int | None = None) -> Place:
        """The place of tokens ``start`` to ``end`` - 1 (one token by default)."""
        first = min(start, len(self.offsets) - 1)
        last = max(first, (first if end is None else end - 1))
        while last > first and self.kinds[last] in ("newline", "indent", "dedent", "eof"):
            last -= 1
        return self.at(self.offsets[first], self.offsets[last] + len(self.texts[last]) - self.offsets[first])

    def at(self, offset: int, length: int = 1) -> Place:
        """The place at a character offset."""
        line = self.source.count("\n", 0, offset) + 1
        return Place(self.source, line, offset - (self.source.rfind("\n", 0, offset) + 1) + 1, max(length, 1), self.filename)


def _fail(code: str, message: str, tokens: Tokens, offset: int, length: int = 1, hint: str = "") -> NoReturn:
    raise LeirError(code, message, place=tokens.at(offset, length), hint=hint)


def tokenize(text: str, filename: str = "<leir>") -> Tokens:
    """Split a text into tokens.

    Raises :class:`LeirError` ``syntax-size``, ``syntax-char``, ``syntax-number``, ``syntax-indent`` or ``syntax-name``.
    """
    if len(text) > MAX_TEXT:
        place = Place(text[:200], 1, 1, 1, filename)
        raise LeirError("syntax-size", f"the text has {len(text)} characters, more than the limit of {MAX_TEXT}", place=place)
    tokens = Tokens(text, filename)
    kinds, texts, offsets = tokens.kinds, tokens.texts, tokens.offsets
    levels = [0]
    start = 0
    match = _TOKEN.match
    for line in text.split("\n"):
        indent = len(line) - len(line.lstrip(" "))
        opened = len(kinds)
        position = indent
        while True:
            found = match(line, position)
            assert found is not None
            kind = found.lastgroup
            if kind == "end":
                break
            position = found.end()
            assert kind is not None
            word = found.group(kind)
            at = start + position - len(word)
            if len(kinds) == opened:
                _indentation(tokens, levels, line, indent, start)
            if kind == "name":
                if word in _WORD_KINDS:
                    kind = word
                elif len(word) > MAX_NAME:
                    _fail("syntax-name", f"a name of {len(word)} characters; the limit is {MAX_NAME}", tokens, at, len(word))
            elif kind == "sign" or kind == "assign":
                kind = word
            elif kind == "num":
                if len(word) > _MAX_NUMBER:
                    _fail("syntax-number", f"a number of {len(word)} characters; the limit is {_MAX_NUMBER}", tokens, at, len(word))
            else:
                _bad(tokens, word, at)
            kinds.append(kind)
            texts.append(word)
            offsets.append(at)
        if len(kinds) > opened:
            kinds.append("newline")
            texts.append("")
            offsets.append(start + len(line))
        start += len(line) + 1
    for _ in levels[1:]:
        kinds.append("dedent")
        texts.append("")
        offsets.append(len(text))
    kinds.append("eof")
    texts.append("")
    offsets.append(len(text))
    return tokens


def _bad(tokens: Tokens, char: str, at: int) -> NoReturn:
    if char.isascii() and char.isdigit():
        _fail("syntax-number", "not a number", tokens, at, hint="numbers look like 7, 0.5 or 1e-5, and names do not start with a digit")
    hints = {"&": "write 'and'", "|": "write 'or'", "!": "write 'not'", ";": "one statement a line", ".": "numbers look like 0.5"}
    shown = char if char.isprintable() else f"U+{ord(char):04X}"
    _fail("syntax-char", f"{shown!r} has no meaning here", tokens, at, hint=hints.get(char, ""))


def _indentation(tokens: Tokens, levels: list[int], line: str, indent: int, start: int) -> None:
    """Emit what a change of indentation means. Blank lines and comment lines never come here."""
    if line[indent : indent + 1] == "\t":
        _fail("syntax-indent", "a tab in the indentation", tokens, start + indent, hint="indent with blanks, one a level")
    if indent == levels[-1]:
        return
    if indent > levels[-1]:
        if len(levels) > _MAX_LEVELS:
            _fail("syntax-depth", f"more than {_MAX_LEVELS} levels of indentation", tokens, start + indent)
        levels.append(indent)
        word = "indent"
    else:
        if indent not in levels:
            near = max(n for n in levels if n < indent)
            _fail("syntax-indent", "this indentation matches no open block", tokens, start + indent, hint=f"the nearest block is indented by {near}")
        word = "dedent"
    while True:
        if word == "dedent":
            levels.pop()
        tokens.kinds.append(word)
        tokens.texts.append("")
        tokens.offsets.append(start + indent)
        if levels[-1] == indent:
            return
