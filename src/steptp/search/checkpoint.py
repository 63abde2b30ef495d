"""A search's journal: every answer of the policy and every verdict, so that a killed search continues with the same tree.

Algorithms are deterministic, so a resumed search simply runs again: what the journal holds is taken from it, and is neither asked nor measured anew.
"""

from __future__ import annotations

from pathlib import Path
from types import TracebackType
from typing import Any

from steptp.errors import UsageError
from steptp.measure.journal import FolderLock, Journal

__all__ = ["Checkpoint", "Store"]


class Store:
    """Finished work by key, kept in memory."""

    def __init__(self) -> None:
        self._held: dict[str, Any] = {}

    def get(self, key: str) -> Any:
        """What was put under ``key``, else ``None``."""
        return self._held.get(key)

    def put(self, key: str, data: Any) -> None:
        self._held[key] = data

    @property
    def elapsed(self) -> float:
        """Seconds that the search had used at the last entry."""
        return max((d["elapsed"] for d in self._held.values() if isinstance(d, dict) and "elapsed" in d), default=0.0)


class Checkpoint(Store):
    """The same in a folder. ``identity`` is what must not change between runs: start, policy, algorithm, seed.

    Raises :class:`UsageError`: ``usage-checkpoint`` when the folder holds another search, or one and ``resume`` is false; ``usage-locked`` when
    another process writes it.
    """

    def __init__(self, folder: Path, identity: dict[str, Any], *, resume: bool) -> None:
        super().__init__()
        self._lock = FolderLock(folder)
        self._journal = Journal(folder / "search.jsonl")
        self._held = dict(self._journal.items())
        known = self.get("identity")
        try:
            if known is None:
                self.put("identity", identity)
            elif not resume:
                raise UsageError("usage-checkpoint", f"{folder.parent} holds a search already", hint="give --resume to continue it, or another --out")
            elif known != identity:
                changed = ", ".join(sorted(k for k in {*known, *identity} if known.get(k) != identity.get(k)))
                raise UsageError("usage-checkpoint", f"the search in {folder.parent} was begun otherwise ({changed})", hint="choose another --out")
        except UsageError:
            self.close()
            raise

    def put(self, key: str, data: Any) -> None:
        self._journal.append(key, data)
        super().put(key, data)

    def close(self) -> None:
        """Release the folder."""
        self._journal.close()
        self._lock.release()

    def __enter__(self) -> Checkpoint:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None) -> None:
        self.close()
