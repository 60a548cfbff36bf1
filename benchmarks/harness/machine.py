"""The facts of a machine that figures depend on."""

from __future__ import annotations

import datetime
import importlib.metadata
import os
import platform
import re
from contextlib import suppress
from pathlib import Path
from typing import Any

PEERS = (
    "numpy", "pyarrow", "polars", "duckdb", "pandas", "nanoarrow", "torch", "scipy", "safetensors", "lmdb", "diskcache",
    "ray", "posix_ipc", "lz4", "zstandard", "flatbuffers", "pyspark",
)  # fmt: skip


def facts() -> dict[str, Any]:
    """Describe this machine for the report, and its load before anything was measured."""
    processor = Path("/proc/cpuinfo").read_text() if os.path.exists("/proc/cpuinfo") else ""
    named = re.search(r"^model name\s*: (.*)$", processor, re.MULTILINE)
    versions = {}
    for name in PEERS:
        with suppress(importlib.metadata.PackageNotFoundError):
            versions[name] = importlib.metadata.version(name)
    return {
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "processor": named[1] if named else platform.processor() or platform.machine(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "virtual": "hypervisor" in processor,
        "memory": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "kernel": f"{platform.system()} {platform.release()}",
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "load": round(os.getloadavg()[0], 2),
        "versions": versions,
    }
