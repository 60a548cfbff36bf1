"""The facts of a machine that figures depend on."""

from __future__ import annotations

import datetime
import importlib.metadata
import os
import platform
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

PEERS = (
    "numpy", "pyarrow", "polars", "duckdb", "pandas", "nanoarrow", "torch", "scipy", "safetensors", "lmdb", "diskcache",
    "redis", "ray", "posix_ipc", "lz4", "zstandard", "flatbuffers", "pyspark",
)  # fmt: skip


def facts() -> dict[str, Any]:
    """Describe this machine for the report, and its load before anything was measured."""
    return {
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "processor": _processor(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "virtual": "hypervisor" in _text("/proc/cpuinfo"),
        "memory": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "shared_memory": shutil.disk_usage("/dev/shm").total if os.path.isdir("/dev/shm") else None,
        "kernel": f"{platform.system()} {platform.release()}",
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "load": round(os.getloadavg()[0], 2),
        "versions": {name: version for name in PEERS if (version := _version(name))} | _programs(),
    }


def _processor() -> str:
    found = re.search(r"^model name\s*: (.*)$", _text("/proc/cpuinfo"), re.MULTILINE)
    return found[1] if found else platform.processor() or platform.machine()


def _text(path: str) -> str:
    try:
        return Path(path).read_text()
    except OSError:
        return ""


def _version(name: str) -> str:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return ""


def _programs() -> dict[str, str]:
    if shutil.which("redis-server") is None:
        return {}
    said = subprocess.run(["redis-server", "--version"], capture_output=True, text=True).stdout
    found = re.search(r"v=(\S+)", said)
    return {"redis-server": found[1]} if found else {}
