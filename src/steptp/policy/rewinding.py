"""Answers that go back to where they went wrong, and on from there in another way.

What one token cannot be is remembered by the tokens before it, so an answer that comes to the same place again takes yet another way. The distribution is not quite the
model's own among right answers (for that, see Park et al., "Grammar-Aligned Decoding", 2024): a way that ends in a fault has lent its weight to its neighbours.
Going back is to the token of the faulty stretch that the model was least sure of.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import product

from steptp.policy.faults import Faults

__all__ = ["Rewinding"]

_TRIES = (4, 16, 64)
"""Tokens that may turn out wrong at one place before an earlier one is doubted; when all have, the next number."""


@dataclass(slots=True)
class Rewinding:
    """What one sample has learned. ``left``: how often it may still go back; ``text``: of tokens."""

    faults: Faults
    left: int
    text: Callable[[Sequence[int]], str]
    sure: list[float] = field(default_factory=list)
    _wrong: dict[tuple[int, ...], set[int]] = field(default_factory=lambda: defaultdict(set))

    def barred(self, tokens: Sequence[int]) -> set[int]:
        """What may not follow these tokens."""
        return self._wrong.get(tuple(tokens), set())

    def back_to(self, tokens: list[int], ended: bool) -> int | None:
        """How many of the tokens can stay, ``None`` if all; ``ended``: the last one is no text but the end of the answer.

        ``sure`` holds the probability of each token among those that could stand there.
        """
        if not self.left:
            return None
        said = tokens[:-1] if ended else tokens
        text = self.text(said)
        fault = self.faults(text, ended)
        if fault is None:
            return None
        self.left -= 1
        ends = [len(self.text(tokens[: n + 1])) for n in range(len(said))] + [len(text) + 1] * ended
        first, last = bisect_right(ends, fault.start), bisect_right(ends, max(fault.end - 1, fault.start))
        line = bisect_right(ends, text.rfind("\n", 0, fault.start) + 1)
        for tries, (begin, end) in product(_TRIES, ((first, last), (line, first), (0, line))):
            doubted = [n for n in range(begin, min(end + 1, len(tokens))) if len(self.barred(tokens[:n])) < tries]
            if doubted:
                n = min(doubted, key=lambda n: self.sure[n])
                self._wrong[tuple(tokens[:n])].add(tokens[n])
                del self.sure[n:]
                return n
        self.left = 0
        return None
