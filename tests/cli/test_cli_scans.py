"""Commands on many files: a directory, a pattern, objects of a store."""

from __future__ import annotations

from pathlib import Path

import forms
import pytest
from test_cli_rows import Run, run

import shmarrow as sa
from shmarrow.cli import main

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
    assert run.json("count", f"{directory}/day=2/*") == {
        "target": f"{directory}/day=2/*", "rows": 4, "sources": 2, "problems": []
    }  # fmt: skip
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
    assert run.json("validate", first, last)["valid"]


def test_one_bad_file_among_many(directory: Path, run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    """Each is named with what is wrong with it, the others are read, and the exit status tells."""
    bad, text = directory / "day=1" / "bad.arrow", directory / "note.arrow"
    bad.write_bytes((directory / "day=1" / "0.arrow").read_bytes()[:-40])
    text.write_text("hello")
    for command, total in (("count", "8\n"), ("inspect", "8 in 6 sources"), ("schema", "x\tint64\tnullable\n")):
        assert main([command, str(directory)]) == 1
        out, err = capsys.readouterr()
        assert total in out
        assert [line.split(": ")[1] for line in err.splitlines()] == [str(bad), str(text)]
        found = run.json(command, directory, status=1)
        assert [each["source"] for each in found["problems"]] == [str(bad), str(text)]
        capsys.readouterr()
    found = run.json("validate", directory, "--full", status=1)
    assert {each["target"]: each["valid"] for each in found["sources"]} == {
        str(path): path not in (bad, text) for path in directory.rglob("*.arrow")
    }
    lines = run("validate", directory, status=1).splitlines()
    assert lines[-1] == "6 sources: 4 valid, 2 not"
    assert f"{text}: expected Arrow data, found text" in lines[-2]


def test_schemas_that_differ_are_told(directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sa.write({"x": ["a"], "s": ["b"]}, directory / "day=2" / "2.arrow")
    assert main(["schema", str(directory)]) == 0
    assert "column 'x' is string, expected int64" in capsys.readouterr().err


def test_directories_are_written(directory: Path, run: Run, tmp_path: Path) -> None:
    out = tmp_path / "_out"
    assert run("convert", directory, out, "--partition-by", "s,day", "--max-rows-per-file", 1).startswith(
        f"{out}: 8 rows"
    )
    assert {path.parent.relative_to(out).as_posix() for path in out.rglob("*.arrow")} == {
        f"s={s}/day={day}" for s in "ab" for day in (1, 2)
    }
    assert len(list(out.rglob("*.arrow"))) == 8
    assert run("convert", directory, out, "--partition-by", "s,day", "--mode", "append")
    assert run("count", out) == "16\n"
    assert "not empty" in run("convert", directory, out, "--partition-by", "s,day", status=4)


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
