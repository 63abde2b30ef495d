"""The machine and the software that a measurement was made with, as plain JSON.

Caches and vector width come from :class:`steptp.analysis.host.HostInfo`; this adds what identifies the host and its state.
"""

from __future__ import annotations

import functools
import importlib.metadata
import os
import platform
import sys

import psutil

from steptp.analysis.host import HostInfo
from steptp.ir.seeds import digest

__all__ = ["host_block", "version_block", "host_key"]

_PACKAGES = {
    "steptp": "steptp",
    "numpy": "numpy",
    "torch": "torch",
    "tvm": "apache-tvm",
    "tvm_ffi": "apache-tvm-ffi",
    "islpy": "islpy",
    "flint": "python-flint",
}


def _cpuinfo() -> dict[str, str]:
    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as file:
            first = file.read().split("\n\n", 1)[0]
    except OSError:
        return {}
    return {key.strip(): value.strip() for key, _, value in (line.partition(":") for line in first.split("\n")) if key.strip()}


def _first_line(path: str) -> str | None:
    try:
        with open(path, encoding="ascii", errors="replace") as file:
            return file.readline().strip() or None
    except OSError:
        return None


@functools.lru_cache(maxsize=1)
def version_block() -> dict[str, str]:
    """Versions of Python and of the packages that decide what code runs; an absent package is left out."""
    found = {"python": platform.python_version()}
    for name, package in _PACKAGES.items():
        try:
            found[name] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            if name == "steptp":
                from steptp import __version__

                found[name] = __version__
    return found


@functools.lru_cache(maxsize=1)
def host_block() -> dict[str, object]:
    """CPU, caches, memory, kernel and frequency policy of this host. Memory in bytes; ``None`` where the system does not say."""
    info = _cpuinfo()
    flags = info.get("flags") or info.get("Features") or ""
    base = "/sys/devices/system/cpu"
    return {
        "cpu": info.get("model name") or platform.processor() or platform.machine(),
        "arch": platform.machine(),
        "flags_hash": digest(*sorted(flags.split())),
        "cores": len(os.sched_getaffinity(0)),
        "cores_online": os.cpu_count(),
        "smt": _first_line(f"{base}/smt/active") == "1",
        "governor": _first_line(f"{base}/cpu0/cpufreq/scaling_governor"),
        "boost": _first_line(f"{base}/cpufreq/boost"),
        "memory_bytes": int(psutil.virtual_memory().total),
        "kernel": f"{platform.system()} {platform.release()}",
        "hypervisor": "hypervisor" in flags.split(),
        "byte_order": sys.byteorder,
        "info": HostInfo.detect().to_dict(),
    }


def host_key() -> str:
    """A short name of this host and software: equal exactly when host and version blocks are equal."""
    return digest(sorted(host_block().items(), key=lambda kv: kv[0]), sorted(version_block().items()))
