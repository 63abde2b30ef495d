"""The zoo: workload definitions of our own, from matrix products to transformer blocks.

``zoo.get("softmax")`` builds one; the command line spells it ``zoo:softmax`` or ``zoo:softmax@tiny``. Presets: ``tiny`` (every
dim at most 8, for tests), ``mini`` (naive kernel of about 50 µs to 1 ms on one core), ``level1`` (at most 64 MB of arrays) and ``published``
(the sizes and dtype of the published LEIR program named by ``spec.published``).

torch is imported at the first call, not with this package.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from steptp.frontend.skeleton import skeleton, skeleton_hash

if TYPE_CHECKING:
    from steptp.frontend.workload import Workload
    from steptp.frontend.zoo.entry import Spec

__all__ = ["names", "get", "spec", "families", "skeleton", "skeleton_hash"]


def names(preset: str | None = None, family: str | None = None) -> tuple[str, ...]:
    """Names of all entries, or of those with ``preset`` and of ``family``."""
    from steptp.frontend.zoo import index

    return index.names(preset, family)


def get(name: str, preset: str = "mini", *, sizes: str = "auto") -> Workload:
    """The workload ``name`` (or ``name@preset``); built once in a process.

    Raises :class:`steptp.errors.UsageError` ``usage-workload`` or ``usage-preset``.
    """
    from steptp.frontend.zoo import index

    return index.get(name, preset, sizes=sizes)


def spec(name: str) -> Spec:
    """The definition of an entry: its presets and the name of the published program it corresponds to."""
    from steptp.frontend.zoo import index

    return index.spec(name)


def families() -> dict[str, tuple[str, ...]]:
    """Family → names of its entries."""
    from steptp.frontend.zoo import index

    return index.families()
