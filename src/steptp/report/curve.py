"""The best-so-far curve of a search as coordinates of an SVG: samples across, speed-up on a logarithmic scale up."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["Curve", "Tick", "curve_of"]

WIDTH, HEIGHT = 720, 260
LEFT, RIGHT, TOP, BOTTOM = 56, 16, 14, 36
_SPEEDS = (1, 1.05, 1.1, 1.25, 1.5, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 256, 512, 1024)


@dataclass(frozen=True, slots=True)
class Tick:
    """A mark on an axis: where, and what it says."""

    at: float
    text: str


@dataclass(frozen=True, slots=True)
class Curve:
    """``path``: the SVG path of the steps; ``points``: where the best program changed; ``final``: the height of the re-measured speed-up."""

    path: str
    points: tuple[tuple[float, float, str], ...]
    x_ticks: tuple[Tick, ...]
    y_ticks: tuple[Tick, ...]
    final: float
    width: int = WIDTH
    height: int = HEIGHT
    left: int = LEFT
    right: int = WIDTH - RIGHT
    top: int = TOP
    bottom: int = HEIGHT - BOTTOM


def curve_of(points: Sequence[tuple[int, float, float]], samples: int, final: float) -> Curve:
    """``points``: (samples, seconds, speed-up) whenever the best changed, from the start on; ``samples`` drawn in all; ``final`` re-measured."""
    most = max(samples, points[-1][0], 1)
    low, high = math.log(min(1.0, final)), math.log(max(1.1, final, max(p[2] for p in points)) * 1.05)

    def x(sample: float) -> float:
        return round(LEFT + (WIDTH - LEFT - RIGHT) * sample / most, 1)

    def y(speed: float) -> float:
        return round(HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * (math.log(speed) - low) / (high - low), 1)

    path = f"M{x(points[0][0])} {y(points[0][2])}" + "".join(f"H{x(s)}V{y(speed)}" for s, _, speed in points[1:]) + f"H{x(most)}"
    marks = tuple((x(s), y(speed), f"{speed:.2f}x after {s} samples, {seconds:.1f} s") for s, seconds, speed in points)
    speeds = [s for s in _SPEEDS if low - 1e-9 <= math.log(s) <= high]
    speeds = speeds[:: -(-len(speeds) // 6)]
    across = sorted({round(most * n / 4) for n in range(5)})
    return Curve(path, marks, tuple(Tick(x(s), str(s)) for s in across), tuple(Tick(y(s), f"{s:g}x") for s in speeds), y(final))
