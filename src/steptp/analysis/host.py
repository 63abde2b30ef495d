"""The machine as far as reasoning and candidate choice need it: cores, caches, vector width."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from steptp.errors import UsageError

__all__ = ["HostInfo"]

_VECTOR_FLAGS = (("avx512f", 512), ("avx2", 256), ("avx", 256), ("sse2", 128), ("asimd", 128), ("neon", 128))


@dataclass(frozen=True, slots=True)
class HostInfo:
    """``cores`` are those this process may use; cache sizes in bytes (L1 data and L2 of one core, L3 of one package; 0: unknown)."""

    name: str
    cores: int
    l1_bytes: int
    l2_bytes: int
    l3_bytes: int
    line_bytes: int
    vector_bits: int

    @staticmethod
    def detect(root: str = "/") -> HostInfo:
        """Read ``/proc/cpuinfo`` and ``/sys/devices/system/cpu``; ``root`` points elsewhere in tests. Unknown values get usual ones."""
        base = Path(root)
        info = _cpuinfo(base / "proc/cpuinfo")
        flags = set((info.get("flags") or info.get("Features") or "").split())
        bits = next((width for flag, width in _VECTOR_FLAGS if flag in flags), 128)
        caches, line = _caches(base / "sys/devices/system/cpu/cpu0/cache")
        name = info.get("model name") or info.get("Model") or info.get("CPU part") or "unknown CPU"
        return HostInfo(name, _cores(), caches.get(1, 32768), caches.get(2, 262144), caches.get(3, 0), line, bits)

    def to_dict(self) -> dict[str, int | str]:
        """Plain JSON data."""
        return asdict(self)

    @staticmethod
    def from_dict(data: Mapping[str, object]) -> HostInfo:
        """Read :meth:`to_dict` back; raises :class:`UsageError` ``usage-host`` for missing or ill-typed fields."""
        numbers = [data.get(k) for k in ("cores", "l1_bytes", "l2_bytes", "l3_bytes", "line_bytes", "vector_bits")]
        name = data.get("name")
        whole = [n for n in numbers if isinstance(n, int) and not isinstance(n, bool) and n >= 0]
        if not isinstance(name, str) or len(whole) != len(numbers):
            raise UsageError("usage-host", "a host description needs name, cores, l1_bytes, l2_bytes, l3_bytes, line_bytes and vector_bits")
        return HostInfo(name, *whole)

    def lanes(self, itemsize: int) -> int:
        """Elements of ``itemsize`` bytes in one vector register."""
        return max(self.vector_bits // (8 * itemsize), 1)


def _cpuinfo(path: Path) -> dict[str, str]:
    """The first processor's fields."""
    out: dict[str, str] = {}
    try:
        text = path.read_text(errors="replace")
    except OSError:
        return out
    for line in text.splitlines():
        key, colon, value = line.partition(":")
        if colon:
            out.setdefault(key.strip(), value.strip())
    return out


def _cores() -> int:
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # not on every system
        return os.cpu_count() or 1


def _caches(folder: Path) -> tuple[dict[int, int], int]:
    """Level → bytes of data or unified caches, and the line size."""
    sizes: dict[int, int] = {}
    line = 64
    try:
        entries = sorted(folder.glob("index*"))
    except OSError:
        entries = []
    for entry in entries:
        level, kind, size = (_field(entry / name) for name in ("level", "type", "size"))
        if kind not in ("Data", "Unified") or not level.isdigit():
            continue
        sizes[int(level)] = _bytes(size)
        width = _field(entry / "coherency_line_size")
        line = int(width) if width.isdigit() else line
    return {k: v for k, v in sizes.items() if v}, line


def _field(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""


def _bytes(text: str) -> int:
    scale = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}.get(text[-1:].upper(), 1)
    digits = text.rstrip("KMGkmg")
    return int(digits) * scale if digits.isdigit() else 0
