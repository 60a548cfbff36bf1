"""Files that functions read in Spark's workers: the same rows as other readers have, or an error that names a file."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import spark_lab
from spark_source import write

import shmarrow as sa
from shmarrow import spark as sas

pa = pytest.importorskip("pyarrow")
parquet = pytest.importorskip("pyarrow.parquet")
pytest.importorskip("pyspark")

DAYS = (1, 2, 3)


def rows(day: int) -> Any:
    ids = np.arange(1000) + 1000 * day
    return pa.table({"id": ids, "text": [f"row {number}" if number % 5 else None for number in ids], "half": ids / 2})


@pytest.fixture(params=["arrow", "parquet"])
def directory(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A thousand rows for each day, in ten batches or row groups; and a file that does not count."""
    for day in DAYS:
        folder = tmp_path / "data" / f"day={day}"
        folder.mkdir(parents=True)
        if request.param == "arrow":
            write(folder / "part.arrow", rows(day), batches=10)
        else:
            parquet.write_table(rows(day), folder / "part.parquet", row_group_size=100)
    (tmp_path / "data" / "_SUCCESS").touch()
    return tmp_path / "data"


def file_in(directory: Path) -> Path:
    return next((directory / "day=2").iterdir())


def summed(table: sa.Table) -> dict[str, Any]:
    return {"rows": [table.num_rows], "total": [int(table["id"].to_numpy().sum())]}


def test_the_rows_of_files(spark: Any, directory: Path, home: str) -> None:
    found = sas.files(directory)
    assert (found.schema.names, found.num_rows) == (["id", "text", "half", "day"], 3000)
    totals = found.map(summed, "rows long, total long").collect()
    assert len(totals) == found.num_partitions
    assert [sum(row[i] for row in totals) for i in (0, 1)] == [3000, sum(range(1000, 4000))]
    every = found.to_df()
    assert every.schema.simpleString() == "struct<id:bigint,text:string,half:double,day:bigint>"
    read = [tuple(row) for row in every.collect()]
    assert read == [(*row.values(), day) for day in DAYS for row in rows(day).to_pylist()]
    assert found.to_df(["day", "id"]).first() == (1, 1000)
    assert found.to_df([]).count() == 3000
    with found.share(home, name="files") as frame:
        assert frame.read_all()["id"].to_pylist() == list(range(1000, 4000))
        assert sas.attached("files", home).num_rows == 3000


def test_columns_filters_and_a_schema(spark: Any, directory: Path) -> None:
    few = sas.files(directory, columns=["half", "id"], filters=[("id", ">=", 2990), ("day", "in", [2, 3])])
    assert few.schema.names == ["half", "id"]
    assert few.num_rows == few.to_df().count() == 1010
    assert sum(row.total for row in few.map(summed, "rows long, total long").collect()) == sum(range(2990, 4000))
    either = sas.files(directory, columns=["id"], filters=[[("id", "=", 1003)], [("text", "=", "row 3999")]])
    assert [row.id for row in either.to_df().collect()] == [1003, 3999]
    none = sas.files(directory, filters=[("day", ">", 7)])
    assert (none.num_rows, none.to_df().count()) == (0, 0)
    wider = sas.files(directory, schema=sa.schema({"id": sa.int64(), "more": sa.string(), "day": sa.int64()}))
    assert wider.to_df().first() == (1000, None, 1)


def test_what_is_repeated_gives_the_same_rows(spark: Any, directory: Path) -> None:
    """A task that fails once, another session, and a file that was added after the plan."""

    def fails_once(table: sa.Table) -> dict[str, Any]:
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        if context.attemptNumber() == 0:
            raise ValueError("once")
        return summed(table)

    found = sas.files(directory)
    (directory / "day=4").mkdir()
    if file_in(directory).suffix == ".arrow":
        write(directory / "day=4" / "part.arrow", rows(4))
    else:
        parquet.write_table(rows(4), directory / "day=4" / "part.parquet")
    assert sum(row.rows for row in found.map(fails_once, "rows long, total long").collect()) == 3000
    assert found.map(summed, "rows long, total long", spark.newSession()).agg({"rows": "sum"}).first()[0] == 3000
    assert found.num_rows == 3000
    assert sas.files(directory).num_rows == 4000


def read_in_two_sessions(spark: Any, directory: str) -> list[int]:
    """Sum the rows of files in a session, and in the next one, when the first has stopped."""
    from local_session import local_session
    from spark_driver import use

    found = sas.files(directory)
    totals = [row.total for row in found.map(summed, "rows long, total long").collect()]
    spark.stop()
    use(local_session(2, spark_lab.SETTINGS))
    return [sum(totals), *(row.total for row in found.map(summed, "rows long, total long").collect())]


def test_a_session_that_stops_between_jobs(spark: Any, tmp_path: Path) -> None:
    write(tmp_path / "part.arrow", rows(1))
    with spark_lab.driver(tmp_path / "driver") as driver:
        assert driver.run(read_in_two_sessions, str(tmp_path / "part.arrow")) == [sum(range(1000, 2000))] * 2


def test_a_file_that_changes_after_the_plan(spark: Any, directory: Path) -> None:
    found = sas.files(directory)
    counted = found.map(summed, "rows long, total long")
    path = file_in(directory)
    os.utime(path, ns=(0, 0))
    with pytest.raises(Exception, match=rf"StorageError: {path} was changed"):
        counted.collect()
    path.unlink()
    with pytest.raises(Exception, match=rf"ObjectNotFound: .*{path}"):
        counted.collect()


def test_what_is_refused(spark: Any, tmp_path: Path) -> None:
    write(tmp_path / "a.arrow", rows(1))
    (tmp_path / "b.parquet").write_bytes(b"PAR1 and no more")
    for source, error, message in [
        (sa.table({"x": [1]}), sa.InvalidType, r"found a table; share_table\(data\) takes it"),
        (tmp_path / "none", sa.ObjectNotFound, "none"),
        (tmp_path, sa.InvalidData, "a.arrow is among Parquet files"),
        (tmp_path / "b.parquet", sa.InvalidData, r"b\.parquet"),
        (spark, sa.InvalidType, r"is optional: call files\(source\)"),
    ]:
        with pytest.raises(error, match=message):
            sas.files(source)
    with pytest.raises(sa.FieldNotFound, match="none"):
        sas.files(tmp_path / "a.arrow", columns=["none"])
    with pytest.raises(sa.InvalidType, match="expected a function"):
        sas.files(tmp_path / "a.arrow").map(3, "n long")  # type: ignore[arg-type]


def test_look_ups_in_files_and_in_a_stream_of_batches(connect: Any, directory: Path, home: str) -> None:
    """Over Spark Connect: the left side of a look-up are files, and nothing passes through the JVM but sums."""
    names = sa.table({"day": [1, 3], "name": ["one", "three"]})
    with sas.share_table(names, connect, home) as frame:
        index = frame.index("day")

        def named(table: sa.Table) -> Iterator[dict[str, Any]]:
            for batch in table.batches:
                found = index.take(batch["day"], columns=["name"])["name"].to_pylist()
                yield {"name": sorted(set(map(str, found)))}

        rows = sas.files(directory, spark=connect).map(named, "name string").distinct().collect()
        assert sorted(row.name for row in rows) == ["None", "one", "three"]
