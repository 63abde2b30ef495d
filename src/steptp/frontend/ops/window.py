"""Sliding windows: positions of a window's elements in a padded array, and reads that are 0 (or another value) outside it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce

from steptp.frontend.builder import Builder
from steptp.frontend.registry import Call
from steptp.frontend.value import Value
from steptp.ir import Const, Expr, const, ix, op, select

__all__ = ["Window", "window_of", "is_zero", "all_of"]


def is_zero(extent: Expr) -> bool:
    return isinstance(extent, Const) and extent.value == 0


def all_of(conditions: Sequence[Expr]) -> Expr | None:
    """The conjunction; ``None`` for none."""
    return reduce(lambda a, b: op("and", a, b), conditions) if conditions else None


@dataclass(frozen=True, slots=True)
class Window:
    """``kernel``, ``stride``, ``padding`` and ``dilation`` of each spatial dim (the last dims of the array).

    ``over`` says that windows may reach past the padded end (``ceil_mode``), so that the upper bound needs a guard even without padding.
    """

    kernel: tuple[Expr, ...]
    stride: tuple[Expr, ...]
    padding: tuple[Expr, ...]
    dilation: tuple[Expr, ...]
    over: bool = False

    @property
    def rank(self) -> int:
        return len(self.kernel)

    def start(self, d: int, position: Expr) -> Expr:
        """First position of the window of output ``position`` in dim ``d``; may be negative in the padding."""
        return position * self.stride[d] - self.padding[d]

    def at(self, d: int, position: Expr, offset: Expr) -> Expr:
        """Array position of element ``offset`` of the window."""
        return position * self.stride[d] + offset * self.dilation[d] - self.padding[d]

    def inside(self, d: int, where: Expr, extent: Expr) -> list[Expr]:
        """Conditions for ``where`` to lie in the array, as far as they are not certain."""
        padded = not is_zero(self.padding[d])
        return [*([ix(0) <= where] if padded else []), *([where < extent] if padded or self.over else [])]

    def read(self, b: Builder, x: Value, lead: Sequence[Expr], out: Sequence[Expr], offsets: Sequence[Expr], outside: float) -> Expr:
        """``x[lead, window element]``, or ``outside`` where the element is padding."""
        where = [b.simplify(self.at(d, out[d], offsets[d])) for d in range(self.rank)]
        spatial = x.shape[-self.rank :]
        cond = all_of([c for d in range(self.rank) for c in self.inside(d, where[d], spatial[d])])
        element = x.at((*lead, *where))
        return element if cond is None else select(cond, element, const(outside, element.dtype))


def window_of(c: Call, rank: int, *, kernel: tuple[Expr, ...], padding: str | None = "padding", dilation: str | None = "dilation") -> Window:
    """The window that a call's arguments describe; one number stands for all dims, an empty stride for the kernel."""

    def spread(name: str | None, default: tuple[Expr, ...]) -> tuple[Expr, ...]:
        given = c.extents(name) if name is not None else ()
        return (given * rank if len(given) == 1 else given) or default

    wide = kernel * rank if len(kernel) == 1 else kernel
    ones = (ix(1),) * rank
    zeros = (ix(0),) * rank
    return Window(wide, spread("stride", wide), spread(padding, zeros), spread(dilation, ones), c.flag("ceil_mode"))
