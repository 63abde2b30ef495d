"""Answers of language models on disk, so that a search that is run again asks nothing twice."""

from __future__ import annotations

import json
import sqlite3
import threading
from pathlib import Path
from typing import Any

from steptp.errors import UsageError

__all__ = ["AnswerCache"]


class AnswerCache:
    """Key → plain JSON data in one SQLite file, or in memory. Threads and processes may share it. Raises :class:`UsageError` ``usage-cache``."""

    def __init__(self, path: Path | None = None) -> None:
        self._lock = threading.Lock()
        try:
            if path is not None:
                path.parent.mkdir(parents=True, exist_ok=True)
            self._rows = sqlite3.connect(":memory:" if path is None else path, check_same_thread=False, isolation_level=None, timeout=30.0)
            self._rows.execute("CREATE TABLE IF NOT EXISTS answers (key TEXT PRIMARY KEY, data TEXT NOT NULL)")
        except (OSError, sqlite3.Error) as err:
            raise UsageError("usage-cache", f"cannot keep answers in {path}: {err}", hint="choose another file, or remove this one") from None

    def get(self, key: str) -> Any:
        """The data of ``key``, else ``None``."""
        with self._lock:
            row = self._rows.execute("SELECT data FROM answers WHERE key = ?", (key,)).fetchone()
        return None if row is None else json.loads(row[0])

    def put(self, key: str, data: Any) -> None:
        """Keep ``data``; what a key has already stays."""
        with self._lock:
            self._rows.execute("INSERT OR IGNORE INTO answers VALUES (?, ?)", (key, json.dumps(data)))

    def close(self) -> None:
        self._rows.close()
