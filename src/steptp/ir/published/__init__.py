"""Programs in the published LEIR notation (``docs/published-notation.md``): read, checked for open points, converted."""

from __future__ import annotations

from steptp.ir.nodes import Program
from steptp.ir.published.convert import Interface, Reading, convert, interface_of
from steptp.ir.published.notes import OPEN_POINTS, REFUSALS, Note
from steptp.ir.published.pair import Pair, read_pair
from steptp.ir.published.reader import read_tree

__all__ = ["parse", "read", "read_pair", "Pair", "Reading", "Interface", "Note", "OPEN_POINTS", "REFUSALS", "convert", "interface_of", "read_tree"]


def read(text: str, filename: str = "<published>") -> Reading:
    """Read one program in the published notation, with notes on what the text leaves open.

    Raises :class:`LeirError` with a place and a hint: ``syntax-*`` where it is no such text, ``published-*`` where it has no unique meaning,
    ``check-*`` where LEIR has no such program.
    """
    return convert(read_tree(text, filename))


def parse(text: str, filename: str = "<published>") -> Program:
    """:func:`read` without the notes."""
    return read(text, filename).program
