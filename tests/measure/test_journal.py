from __future__ import annotations

from pathlib import Path

import pytest

from steptp.errors import UsageError
from steptp.measure.journal import FolderLock, Journal


def test_entries_come_back_in_order(tmp_path: Path) -> None:
    with Journal(tmp_path / "j.jsonl") as journal:
        journal.append("b", {"x": 1})
        journal.append("a", [2])
        journal.append("b", {"x": 3})
    with Journal(tmp_path / "j.jsonl") as journal:
        assert journal.keys() == ("b", "a")
        assert list(journal.items()) == [("b", {"x": 3}), ("a", [2])]
        assert "a" in journal
        assert "c" not in journal
        assert journal.get("a") == [2]


@pytest.mark.parametrize("cut", range(1, 30, 3))
def test_a_torn_last_line_is_dropped_and_the_rest_kept(tmp_path: Path, cut: int) -> None:
    path = tmp_path / "j.jsonl"
    with Journal(path) as journal:
        journal.append("a", 1)
        journal.append("b", {"long": "x" * 40})
    path.write_bytes(path.read_bytes()[:-cut])
    with Journal(path) as journal:
        assert journal.keys() == ("a",)
        journal.append("b", 2)
    with Journal(path) as journal:
        assert dict(journal.items()) == {"a": 1, "b": 2}


def test_a_flipped_byte_ends_the_intact_part(tmp_path: Path) -> None:
    path = tmp_path / "j.jsonl"
    with Journal(path) as journal:
        for n in range(5):
            journal.append(str(n), n)
    lines = path.read_bytes().splitlines(keepends=True)
    lines[2] = lines[2].replace(b'"data":2', b'"data":7')
    path.write_bytes(b"".join(lines))
    with Journal(path) as journal:
        assert journal.keys() == ("0", "1")


def test_one_build_at_a_time(tmp_path: Path) -> None:
    with FolderLock(tmp_path), pytest.raises(UsageError, match="another run"):
        FolderLock(tmp_path)
    with FolderLock(tmp_path):
        pass
