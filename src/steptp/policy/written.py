"""What comes back from a language model, served or local."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

__all__ = ["Lost", "Written"]


@dataclass(frozen=True, slots=True)
class Written:
    """What a model wrote. ``truncated``: its limit of tokens cut it off; ``tokens``: what it cost (from a server this answer's share of what it counted,
    ``None`` where it did not count; from a local model the tokens written, end of turn included)."""

    text: str
    truncated: bool
    tokens: int | None

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON data; ``Written(**data)`` reads it back."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Lost:
    """No answer. ``code``: ``policy-timeout``, ``policy-rate``, ``policy-server``, ``policy-connection``, ``policy-key``, ``policy-refused`` or
    ``policy-context``."""

    code: str
    message: str
