"""The smallest sizes at which something about two programs still holds."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from steptp.errors import LeirError
from steptp.ir.nodes import Program
from steptp.ir.sizes import free_size_names
from steptp.verify.bindings import apply_binding

__all__ = ["smallest"]

_EVERY = 16  # values of a size that are all tried; above, powers of two and then ever smaller steps down


def smallest(parent: Program, child: Program, holds: Callable[[Program, Program], bool], most: int = 400) -> tuple[Program, Program]:
    """Both programs with each size as small as it goes, one after the other, until nothing more can shrink; ``holds`` is asked at most ``most`` times."""
    best, asked = (parent, child), 0
    shrunk = True
    while shrunk:
        shrunk = False
        values = best[0].size_env | best[1].size_env
        for name in dict.fromkeys((*free_size_names(parent), *free_size_names(child))):
            for value in _candidates(values[name]):
                if asked >= most:
                    return best
                try:
                    pair = apply_binding(best[0], {name: value}), apply_binding(best[1], {name: value})
                    asked += 1
                    if not holds(*pair):
                        continue
                except LeirError:
                    continue
                best, shrunk = pair, True
                break
    return best


def _candidates(value: int) -> Iterable[int]:
    """Values from 1 to below the present one."""
    yield from range(1, min(value, _EVERY))
    power = _EVERY
    while power < value:
        yield power
        power *= 2
    away = value // 4
    while away and value > _EVERY:
        yield value - away
        away //= 2
