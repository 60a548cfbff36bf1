"""Hostile arrays and files through every door to other libraries, in a process of their own: none of them crashes."""

from __future__ import annotations

from pathlib import Path

import hostile
import pytest

for name in ("pyarrow", "polars", "duckdb", "pandas", "nanoarrow"):
    pytest.importorskip(name)
doors = pytest.importorskip("doors")


def _read(name: tuple[str, bool]) -> tuple[bytes, bool]:
    return Path(name[0]).read_bytes(), name[1]


def test_hostile_arrays() -> None:
    counts, findings = hostile.run(doors.array_of, doors.ARRAYS, use=doors.through_doors)
    assert not findings
    assert sum(counts.values()) == len(doors.ARRAYS)


def test_hostile_files(arrow_testing: Path) -> None:
    paths = sorted(path for path in (arrow_testing / "fuzz").rglob("*") if path.is_file())
    names = [(str(path), is_file) for path in paths for is_file in (True, False)]
    counts, findings = hostile.run(_read, names, use=doors.through_doors)
    assert not findings
    assert sum(counts.values()) == len(names)
