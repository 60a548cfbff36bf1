"""Hostile arrays and files through every door to other libraries, in a process of their own: none of them crashes."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import hostile
import pytest

for name in ("pyarrow", "polars", "duckdb", "pandas", "nanoarrow"):
    if find_spec(name) is None:  # imported in the other process only
        pytest.skip(f"needs {name}", allow_module_level=True)
doors = pytest.importorskip("doors")


def _read(name: Any) -> tuple[bytes, bool]:
    return Path(name[1]).read_bytes(), name[2]


def _input(name: Any) -> tuple[Any, bool]:
    return _read(name) if len(name) == 3 else doors.array_of(name)


def test_hostile_arrays_and_files(arrow_testing: Path) -> None:
    paths = sorted(path for path in (arrow_testing / "fuzz").rglob("*") if path.is_file())
    assert len(paths) >= 32
    names = doors.ARRAYS + [("fuzz", str(path), is_file) for path in paths for is_file in (True, False)]
    counts, findings = hostile.run(_input, names, use=doors.through_doors)
    assert not findings
    assert sum(counts.values()) == len(names)
    assert min(counts["taken"], counts["refused"]) > 50
