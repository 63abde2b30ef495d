"""Tokens of the published notation."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import NoReturn

from steptp.errors import LeirError
from steptp.ir.lexer import MAX_NAME, MAX_TEXT
from steptp.ir.published.tree import Span, Text

__all__ = ["Token", "tokenize"]

_MAX_NUMBER = 60
_TOKEN = re.compile(
    r"\s*(?:(?P<name>[A-Za-z][A-Za-z0-9]*(?:_[A-Za-z0-9]+)*)|(?P<num>[0-9]+(?:\.[0-9]*)?(?:[eE][+-]?[0-9]+)?)(?![A-Za-z_0-9.])"
    r"|(?P<sign>\*\*|//|<=|>=|==|!=|[-+*/%<>=&^_{}()\[\],;])|(?P<end>\Z)|(?P<bad>.))",
    re.S,
)
_HINTS = {"|": "conditions are joined by '&'", ".": "numbers look like 0.5", "!": "comparisons are < <= > >= == !="}


@dataclass(frozen=True, slots=True)
class Token:
    """``kind`` is ``name``, ``num``, ``end`` or the sign itself."""

    kind: str
    text: str
    span: Span


def tokenize(text: Text) -> list[Token]:
    """All tokens and a last one of kind ``end``; raises :class:`LeirError` ``syntax-size``, ``-char``, ``-number`` or ``-name``."""
    source = text.source
    if len(source) > MAX_TEXT:
        short = Text((), source[:200], text.filename)
        raise short.error("syntax-size", f"the text has {len(source)} characters, more than the limit of {MAX_TEXT}", (0, 1))
    out: list[Token] = []
    position = 0
    while True:
        found = _TOKEN.match(source, position)
        assert found is not None
        assert found.lastgroup is not None
        kind, word = found.lastgroup, found.group(found.lastgroup)
        span = (found.start(kind), len(word))
        position = found.end()
        if kind == "bad":
            _bad(text, word, span)
        if kind == "name" and len(word) > MAX_NAME:
            raise text.error("syntax-name", f"a name of {len(word)} characters; the limit is {MAX_NAME}", span)
        if kind == "num" and len(word) > _MAX_NUMBER:
            raise text.error("syntax-number", f"a number of {len(word)} characters; the limit is {_MAX_NUMBER}", span)
        out.append(Token(word if kind == "sign" else kind, word, span))
        if kind == "end":
            return out


def _bad(text: Text, char: str, span: Span) -> NoReturn:
    if char.isascii() and char.isdigit():
        raise text.error("syntax-number", "not a number", span, "numbers look like 7, 0.5 or 1e-5, and names do not start with a digit")
    shown = char if char.isprintable() else f"U+{ord(char):04X}"
    error: LeirError = text.error("syntax-char", f"{shown!r} has no meaning here", span, _HINTS.get(char, ""))
    raise error
