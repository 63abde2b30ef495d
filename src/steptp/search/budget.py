"""What a search may spend: samples, measurements, tokens, seconds. Asked before anything is spent, so no limit is ever exceeded."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from steptp.errors import UsageError, internal

__all__ = ["Budget", "Limits", "Spent"]


@dataclass(frozen=True, slots=True)
class Limits:
    """``None`` is no limit. ``samples``: answers drawn from the policy, failed ones too; ``measurements``: timings; ``tokens``: of the policy's
    prompts and answers; ``seconds``: wall time of the search."""

    samples: int | None = 64
    measurements: int | None = None
    tokens: int | None = None
    seconds: float | None = None

    def __post_init__(self) -> None:
        if self.samples is None and self.measurements is None and self.tokens is None and self.seconds is None:
            raise UsageError("usage-budget", "a search needs a limit", hint="give samples, measurements, tokens or seconds")
        if any(v is not None and v < 0 for v in (self.samples, self.measurements, self.tokens, self.seconds)):
            raise UsageError("usage-budget", "a limit cannot be negative")


class Spent(Exception):
    """Something that the search needs next is used up: ``what`` of the limits."""

    def __init__(self, what: str) -> None:
        super().__init__(what)
        self.what = what


class Budget:
    """Limits and what has been used of them. ``elapsed`` seconds were spent before this process (a resumed search)."""

    def __init__(self, limits: Limits, *, clock: Callable[[], float] = time.monotonic, elapsed: float = 0.0) -> None:
        self.limits = limits
        self.samples = self.measurements = self.tokens = 0
        self._clock, self._began, self._before = clock, clock(), elapsed

    @property
    def elapsed(self) -> float:
        """Seconds used so far, those before a resume included."""
        return self._before + self._clock() - self._began

    @property
    def seconds_left(self) -> float | None:
        """Seconds left, not below 0; ``None`` without a limit."""
        return None if self.limits.seconds is None else max(0.0, self.limits.seconds - self.elapsed)

    @property
    def tokens_left(self) -> int | None:
        """Tokens left; ``None`` without a limit."""
        return None if self.limits.tokens is None else self.limits.tokens - self.tokens

    def check_time(self) -> None:
        """Raise :class:`Spent` when no time is left."""
        if self.seconds_left == 0.0:
            raise Spent("seconds")

    def grant(self, wanted: int, tokens_at_most: Callable[[int], int]) -> int:
        """How many of ``wanted`` samples may be drawn now, at least 1; ``tokens_at_most`` bounds what so many cost. Raises :class:`Spent`."""
        self.check_time()
        if self.measurement_room(1) == 0:
            raise Spent("measurements")
        count = wanted if self.limits.samples is None else min(wanted, self.limits.samples - self.samples)
        if count < 1:
            raise Spent("samples")
        if (left := self.tokens_left) is not None:
            while count and tokens_at_most(count) > left:
                count -= 1
            if not count:
                raise Spent("tokens")
        return count

    def measurement_room(self, wanted: int) -> int:
        """How many of ``wanted`` measurements are left."""
        return wanted if self.limits.measurements is None else min(wanted, self.limits.measurements - self.measurements)

    def spend(self, *, samples: int = 0, measurements: int = 0, tokens: int = 0) -> None:
        """Note what was used. What was granted cannot overrun; a policy that uses more tokens than it announced is a bug."""
        self.samples += samples
        self.measurements += measurements
        self.tokens += tokens
        for name in ("samples", "measurements", "tokens"):
            if (limit := getattr(self.limits, name)) is not None and getattr(self, name) > limit:
                raise internal(f"a search used {getattr(self, name)} of {limit} {name}")

    def to_json(self) -> dict[str, float]:
        """What has been used."""
        return {"samples": self.samples, "measurements": self.measurements, "tokens": self.tokens, "seconds": round(self.elapsed, 3)}
