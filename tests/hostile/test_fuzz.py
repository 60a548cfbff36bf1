"""The inputs that fuzzing found to break other readers: each ends in data or our error, soon and in little memory."""

from __future__ import annotations

from pathlib import Path

import hostile


def _read(name: tuple[str, bool]) -> tuple[bytes, bool]:
    return Path(name[0]).read_bytes(), name[1]


def test_every_input_gives_data_or_our_error(arrow_testing: Path) -> None:
    paths = sorted(path for path in (arrow_testing / "fuzz").rglob("*") if path.is_file())
    assert len(paths) >= 32
    names = [(str(path), is_file) for path in paths for is_file in (True, False)]
    counts, findings = hostile.run(_read, names)
    assert not findings
    assert sum(counts.values()) == len(names)
    assert counts["refused"] > counts.get("valid", 0) > 0
