"""Short, unique names for sizes, arrays and loop variables."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from steptp.ir import RESERVED

__all__ = ["identifier", "fresh", "fresh_tmp", "size_name", "derived_name", "loop_names"]

_BY_RANK: dict[int, tuple[str, ...]] = {1: ("N",), 2: ("N", "K"), 3: ("B", "T", "C"), 4: ("B", "C", "H", "W"), 5: ("B", "C", "D", "H", "W")}
_POOL = "NMKLPQRSTUVEFGJDXZA"
_LOOPS = "ijklpqruvwxyzabcdefgh"
_TMPS = "defgonzyxwab"  # not the letters of the first loops


def identifier(text: str) -> str:
    """``text`` as a name: dots and other signs become underscores."""
    name = re.sub(r"\W+", "_", text).strip("_") or "x"
    return f"x{name}" if name[0].isdigit() else name


def fresh(stem: str, taken: set[str]) -> str:
    """``stem`` if it is free and no reserved word, else ``stem0``, ``stem1``, …; the name is added to ``taken``."""
    name, number = stem, 0
    while name in taken or name in RESERVED:
        name, number = f"{stem}{number}", number + 1
    taken.add(name)
    return name


def fresh_tmp(stem: str, taken: set[str], stems: Iterable[str]) -> str:
    """``stem`` if it is free, else a free letter (one token) that is none of ``stems``, else ``stem0``, …; the name is added to ``taken``."""
    letters = [name for name in _TMPS if name not in taken and name not in stems]
    return fresh(stem if stem not in taken or not letters else letters[0], taken)


def size_name(rank: int, dim: int, taken: set[str], *, parameter: bool = False) -> str:
    """A capital for dim ``dim`` of an array of ``rank`` dims: ``B C H W`` for images, then the next free letter."""
    usual = ("P", "C", "R", "S") if parameter and rank == 4 else _BY_RANK.get(rank, ()) if not parameter else ()
    choices = ([usual[dim]] if dim < len(usual) else []) + list(_POOL)
    for name in choices:
        if name not in taken:
            taken.add(name)
            return name
    return fresh("N", taken)


def derived_name(rank: int, dim: int, taken: set[str]) -> str:
    """A name for the extent of a computed dim: ``OH`` and ``OW`` for the positions of windows, else the next free letter."""
    usual = {(3, 2): "OL", (4, 2): "OH", (4, 3): "OW", (5, 2): "OD", (5, 3): "OH", (5, 4): "OW"}.get((rank, dim))
    return fresh(usual, taken) if usual is not None and usual not in taken else size_name(0, 0, taken)


def loop_names(taken: Iterable[str], count: int) -> Sequence[str]:
    """``count`` loop variable names that are not taken, in order of nesting depth."""
    used = set(taken)
    names = [letter for letter in _LOOPS if letter not in used][:count]
    while len(names) < count:
        names.append(fresh("i", used | set(names)))
    return names
