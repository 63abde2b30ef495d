"""An append-only journal of finished work that survives ``kill -9``.

One JSON object a line, each with a checksum. A line that was cut short by a crash is dropped when the journal is opened again;
everything before it is kept. Only the process that holds the folder's lock writes.
"""

from __future__ import annotations

import fcntl
import json
import os
import zlib
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import IO, Any

from steptp.errors import UsageError

__all__ = ["Journal", "FolderLock"]


class Journal:
    """A file of ``{"key", "data"}`` entries. The last entry of a key wins; keys keep the order of their first entry."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        self._offsets: dict[str, int] = {}
        good = self._scan()
        self._file: IO[bytes] = open(path, "r+b" if path.exists() else "w+b")  # noqa: SIM115 - open until close()
        self._file.truncate(good)
        self._file.seek(good)

    def _scan(self) -> int:
        """Index the entries; returns the length of the intact part in bytes."""
        if not self.path.exists():
            return 0
        good = 0
        with open(self.path, "rb") as file:
            for line in file:
                key = _key_of(line)
                if key is None:
                    break
                self._offsets[key] = good
                good += len(line)
        return good

    def __contains__(self, key: str) -> bool:
        return key in self._offsets

    def __len__(self) -> int:
        return len(self._offsets)

    def keys(self) -> tuple[str, ...]:
        """Keys in order of first appearance."""
        return tuple(self._offsets)

    def append(self, key: str, data: Any) -> None:
        """Write one entry and force it to disk before returning."""
        body = json.dumps({"key": key, "data": data}, separators=(",", ":"), sort_keys=True).encode()
        offset = self._file.tell()
        self._file.write(b"%08x %s\n" % (zlib.crc32(body), body))
        self._file.flush()
        os.fsync(self._file.fileno())
        self._offsets[key] = offset

    def get(self, key: str) -> Any:
        """The data of ``key``; raises ``KeyError``."""
        with open(self.path, "rb") as file:
            file.seek(self._offsets[key])
            return json.loads(file.readline()[9:])["data"]

    def items(self) -> Iterator[tuple[str, Any]]:
        """Every key with its data, in order of first appearance, one at a time (memory stays flat)."""
        with open(self.path, "rb") as file:
            for key, offset in list(self._offsets.items()):
                file.seek(offset)
                yield key, json.loads(file.readline()[9:])["data"]

    def close(self) -> None:
        self._file.close()

    def __enter__(self) -> Journal:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


def _key_of(line: bytes) -> str | None:
    """The key of an intact line, else ``None``."""
    if not line.endswith(b"\n") or line[8:9] != b" ":
        return None
    try:
        if int(line[:8], 16) != zlib.crc32(line[9:-1]):
            return None
        entry = json.loads(line[9:])
    except ValueError:
        return None
    key = entry.get("key") if isinstance(entry, dict) else None
    return key if isinstance(key, str) else None


class FolderLock:
    """An exclusive lock on a folder of results; the system releases it when the process dies, however it dies."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._file = open(folder / "lock", "w")  # noqa: SIM115 - held for the life of the lock
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self._file.close()
            raise UsageError("usage-locked", f"another run is writing {folder.parent}", hint="wait for it, or stop it first") from None

    def release(self) -> None:
        self._file.close()

    def __enter__(self) -> FolderLock:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None) -> None:
        self.release()
