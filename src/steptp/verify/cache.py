"""Bounded caches of results about programs."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Generic, TypeVar

from steptp.ir.nodes import Program

__all__ = ["ByteLru", "Lru", "ProgramKey", "program_key"]

T = TypeVar("T")


class Lru(Generic[T]):
    """Least recently used entries go first."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._items: OrderedDict[Hashable, T] = OrderedDict()

    def get(self, key: Hashable, make: Callable[[], T]) -> T:
        """The entry of ``key``, made if it is not there."""
        if key in self._items:
            self._items.move_to_end(key)
            return self._items[key]
        value = self._items[key] = make()
        if len(self._items) > self._size:
            self._items.popitem(last=False)
        return value

    def clear(self) -> None:
        """Forget everything."""
        self._items.clear()


class ByteLru(Generic[T]):
    """Least recently used entries go first once all together hold more than ``limit`` bytes; ``size`` gives the bytes of one."""

    def __init__(self, limit: int, size: Callable[[T], int]) -> None:
        self._limit, self._size = limit, size
        self._items: OrderedDict[Hashable, tuple[T, int]] = OrderedDict()
        self._held = 0

    def get(self, key: Hashable, make: Callable[[], T]) -> T:
        """The entry of ``key``, made if it is not there."""
        if key in self._items:
            self._items.move_to_end(key)
            return self._items[key][0]
        value = make()
        self._items[key] = value, self._size(value)
        self._held += self._items[key][1]
        while len(self._items) > 1 and self._held > self._limit:
            self._held -= self._items.popitem(last=False)[1][1]
        return value

    def clear(self) -> None:
        """Forget everything."""
        self._items.clear()
        self._held = 0


@dataclass(frozen=True, slots=True)
class ProgramKey:
    """A program as a dictionary key; its hash is computed once."""

    program: Program
    number: int

    def __hash__(self) -> int:
        return self.number


def program_key(program: Program) -> ProgramKey:
    """The key of ``program``, kept with it."""
    cached = program._cache.get("program-key")
    if not isinstance(cached, ProgramKey):
        cached = program._cache["program-key"] = ProgramKey(program.with_(), hash(program))
    return cached
