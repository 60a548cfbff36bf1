"""Files that a scan leaves out: others' files in directories, and what cannot be opened, if it is told to."""

from __future__ import annotations

import pickle
import warnings
from pathlib import Path
from typing import Any

import pytest

import shmarrow as sa


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    for i in range(3):
        sa.write(sa.table({"x": [i]}), tmp_path / f"{i}.arrow")
    return tmp_path


def xs(scan: Any) -> list[int]:
    return scan.to_table()["x"].to_pylist()


def test_files_of_others_in_directories(directory: Path) -> None:
    others = ["README.md", "a.txt", "meta.json"]
    for name in others:
        (directory / name).write_text("{}")
    (directory / "data.txt").write_bytes((directory / "0.arrow").read_bytes())
    scan = sa.scan(directory)
    assert xs(scan) == [0, 1, 2, 0], "what is Arrow's counts, whatever its name"
    assert scan.skipped == [str(directory / name) for name in others] == pickle.loads(pickle.dumps(scan)).skipped
    assert not any(name in scan.sources for name in scan.skipped)
    assert xs(sa.scan([directory, directory / "0.arrow"])) == [0, 1, 2, 0, 0]
    for asked in (directory / "meta.json", f"{directory}/*.json", [directory / "meta.json"]):
        with pytest.raises(sa.InvalidData, match=r"meta\.json"):
            sa.scan(asked)


@pytest.mark.parametrize("bad", ["0.arrow", "1.arrow", "2.arrow"])
def test_a_file_that_cannot_be_opened(bad: str, directory: Path) -> None:
    rest = [i for i in range(3) if f"{i}.arrow" != bad]
    (directory / bad).write_bytes((directory / bad).read_bytes()[:-30])
    with pytest.raises(sa.InvalidData, match=rf"{bad}.*on_error='skip'.* leaves it out"):
        sa.scan(directory).to_table()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        scan = sa.scan(directory, on_error="skip")
        assert xs(scan) == rest
    assert [bad in str(warning.message) for warning in caught] == [True]
    assert scan.skipped == [str(directory / bad)]
    assert scan.count_rows() == 2
    assert [x for split in scan.plan() for x in xs(split)] == rest
    seen: list[str] = []
    scan = sa.scan(directory, on_error=lambda name, error: seen.append(f"{name}: {type(error).__name__}"))
    assert (xs(scan), seen) == (rest, [f"{directory / bad}: InvalidData"])

    def refuse(name: str, error: sa.ShmarrowError) -> None:
        raise ValueError(name)

    with pytest.raises(ValueError, match=bad):
        sa.scan(directory, on_error=refuse).to_table()
    with pytest.raises(sa.InvalidArgument, match="on_error"):
        sa.scan(directory, on_error="ignore")


def test_nothing_is_left(tmp_path: Path) -> None:
    (tmp_path / "a.arrow").write_bytes(b"broken")
    with (
        pytest.warns(UserWarning, match="left out"),
        pytest.raises(sa.ObjectNotFound, match="all sources were left out"),
    ):
        sa.scan(tmp_path, on_error="skip")


def test_hints_lead_to_what_reads_least(directory: Path) -> None:
    scan = sa.scan(directory)
    for name, hint in {"lazy": "to_polars", "group_by": "to_polars", "tail": "to_polars", "sql": "to_dataset",
                       "to_duckdb": "to_dataset", "limit": "head", "files": "sources"}.items():  # fmt: skip
        with pytest.raises(AttributeError, match=hint):
            getattr(scan, name)
