"""Splits by root: whole families are held out for ``test_new_family``, single shapes for the other held-out splits."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from steptp.dataset.roots import Root
from steptp.ir.seeds import digest

__all__ = ["assign_splits"]


def assign_splits(roots: Sequence[Root], seed: int) -> dict[str, str]:
    """Root hash → split.

    About one family in eight is new to training. In every other family with two or more roots one root goes, in turn, to
    ``validation`` or ``test_seen_family``; the rest, and every family of a single root, is ``train``. The choice is by hash: unless
    none fell to it by hash, adding workloads moves no family between seen and new.
    """
    families: dict[str, list[Root]] = defaultdict(list)
    for root in roots:
        families[root.family].append(root)
    ranked = sorted(families, key=lambda f: digest("family", seed, f))
    new = {f for f in ranked if int(digest("family", seed, f), 16) % 8 == 0}
    if not new and len(ranked) >= 4:
        new = {ranked[0]}  # a build of at least four families always holds one out
    out: dict[str, str] = {}
    turn = 0
    for family in ranked:
        members = sorted(families[family], key=lambda r: digest("root", seed, r.hash))
        for root in members:
            out[root.hash] = "test_new_family" if family in new else "train"
        if family not in new and len(members) >= 2:
            out[members[0].hash] = ("validation", "test_seen_family")[turn % 2]
            turn += 1
    return out
