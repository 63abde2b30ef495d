"""Seeds derived from stable text, so that the same names give the same numbers in every process."""

from __future__ import annotations

import hashlib

__all__ = ["derive_seed", "digest"]


def digest(*parts: object, length: int = 16) -> str:
    """Hex digest of the parts' text, ``length`` characters."""
    return hashlib.sha256("\x1f".join(map(str, parts)).encode()).hexdigest()[:length]


def derive_seed(*parts: object) -> int:
    """A 63-bit seed that depends on every part."""
    return int(digest(*parts), 16) >> 1
