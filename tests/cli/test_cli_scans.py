"""Commands on many files: a directory, a pattern, objects of a store."""

from __future__ import annotations

from pathlib import Path

import forms
import pytest
from test_cli_rows import Run, run

import shmarrow as sa

__all__ = ["run"]


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    for day in (1, 2):
        (tmp_path / f"day={day}").mkdir()
        for part in (0, 1):
            table = sa.table({"x": [10 * day + part, None], "s": ["a", "b"]})
            (tmp_path / f"day={day}" / f"{part}.arrow").write_bytes(forms.file_of(table))
    return tmp_path


def test_rows_schema_and_count(directory: Path, run: Run) -> None:
    assert run("count", directory) == "8\n"
    assert run.json("count", f"{directory}/day=2/*") == {"target": f"{directory}/day=2/*", "rows": 4, "sources": 2}
    assert run.rows("head", directory, "-n", 3, "--columns", "day,x") == [
        {"day": 1, "x": 10}, {"day": 1, "x": None}, {"day": 1, "x": 11}
    ]  # fmt: skip
    assert len(run.rows("cat", f"{directory}/day=*/1.arrow")) == 4
    assert [field["name"] for field in run.json("schema", directory)["fields"]] == ["x", "s", "day"]
    found = run.json("inspect", directory)
    assert (found["kind"], found["rows"], len(found["sources"])) == ("scan", 8, 4)
    assert "8 in 4 sources" in run("inspect", directory)
    assert "no file matches" in run("count", f"{directory}/*.none", status=3)


def test_several_targets(directory: Path, run: Run) -> None:
    """As a shell makes them of a pattern."""
    first, last = directory / "day=1" / "0.arrow", directory / "day=2"
    assert run("count", first, last) == "6\n"
    assert [row["x"] for row in run.rows("head", first, last, "--columns", "x")] == [10, None, 20, None, 21, None]
    assert [field["name"] for field in run.json("schema", last, first)["fields"]] == ["x", "s"]
    assert run.json("inspect", first, last)["rows"] == 6
    assert run.json("diff", directory, directory)["rows"] == [8, 8]
    assert "`count`, `schema` and `inspect` read them" in run("validate", directory, status=1)


def test_objects_of_a_store(shm_name: str, run: Run) -> None:
    with sa.Store(shm_name) as store:
        store.put("train-1", sa.table({"x": [1]}))
        store.put("train-2", sa.table({"x": [2]}))
        store.put("test", sa.table({"x": [3]}))
        assert run.rows("head", f"{shm_name}/train-*") == [{"x": 1}, {"x": 2}]
        assert run("count", shm_name) == "3\n"
        store.destroy()


def test_convert_many_into_one(directory: Path, tmp_path: Path, run: Run) -> None:
    out = tmp_path / "out" / "all.arrow"
    out.parent.mkdir()
    run("convert", f"{directory}/day=*", out, "--columns", "x,day", "--statistics")
    with sa.ipc.open_file(out) as reader:
        assert reader.num_rows == 8
        assert reader.read_all().to_pydict()["day"] == [1, 1, 1, 1, 2, 2, 2, 2]
        assert reader.statistics is not None
        assert reader.statistics["day"][2] == {"nulls": 0, "least": 2, "greatest": 2}
    assert sa.convert(sa.scan(f"{directory}/day=2/*"), out, overwrite=True).rows == 4
    with pytest.raises(sa.InvalidArgument, match="statistics are those of Arrow files"):
        sa.convert(out, out.with_suffix(".csv"), statistics=True)
