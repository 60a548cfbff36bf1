"""The data source ``shmarrow`` in streams of Spark's: files as they appear, and a directory for each batch."""

from __future__ import annotations

import os
import signal
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import spark_kills
import spark_lab
from processes import ended, forked
from spark_source import rows_of, source, struct_of, write
from waiting import wait_until

import shmarrow as sa

pa = pytest.importorskip("pyarrow")
dataset = pytest.importorskip("pyarrow.dataset")
pytest.importorskip("pyspark")


@pytest.fixture
def streams() -> None:
    pytest.importorskip("pyspark", minversion="4.1")


def start(spark: Any, here: Path, mode: str = "append", change: Any = lambda df: df, **options: str) -> Any:
    """A query that reads the files of ``here/in`` as they appear, and writes ``here/out``."""
    df = change(spark.readStream.format("shmarrow").options(**options).load(str(here / "in")))
    places = {"path": str(here / "out"), "checkpointLocation": str(here / "state")}
    return df.writeStream.format("shmarrow").outputMode(mode).options(**places)


def step(query: Any) -> None:
    """Let a query take what there is, and end."""
    try:
        assert query.trigger(availableNow=True).start().awaitTermination(500)
    except Exception as error:
        if "Python worker failed to connect back" not in str(error):
            raise
        step(query)  # Spark gives its Python process 10 s to start, which is not enough on a busy machine


def add(here: Path, *names: str) -> None:
    """New files, with ten numbers each, that begin with their names."""
    (here / "in").mkdir(exist_ok=True)
    for name in names:
        write(here / "in" / name, {"id": np.arange(int(name) * 10, int(name) * 10 + 10)}, batches=2)


def batches_in(here: Path) -> dict[int, list[int]]:
    """The numbers of each batch, by what its directory says."""
    found: dict[int, list[int]] = {}
    for row in rows_of(source(here / "out")):
        found.setdefault(row["batch"], []).append(row["id"])
    return {number: sorted(ids) for number, ids in sorted(found.items())}


def test_streams_take_new_files_and_write_a_directory_for_each_batch(streams: None, spark: Any, tmp_path: Path) -> None:
    add(tmp_path, "0", "2")
    step(start(spark, tmp_path))
    add(tmp_path, "1", "3")
    (tmp_path / "in" / "0").unlink()
    (tmp_path / "in" / "_temporary").mkdir()
    write(tmp_path / "in" / "2", {"id": [999]})  # a name that was read: not read again
    step(start(spark, tmp_path))
    step(start(spark, tmp_path))
    expected = {0: [*range(10), *range(20, 30)], 1: [*range(10, 20), *range(30, 40)]}
    assert batches_in(tmp_path) == expected
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["batch=0", "batch=1"]
    assert dataset.dataset(tmp_path / "out", format="arrow").schema.names == ["id"]
    assert rows_of(source(tmp_path / "out", filters='[["batch", ">", 0]]'))[0]["batch"] == 1


def test_streams_that_replace_what_they_wrote(streams: None, spark: Any, tmp_path: Path) -> None:
    for name in ("0", "1"):
        add(tmp_path, name)
        step(start(spark, tmp_path, "complete", lambda df: df.groupBy().sum("id").toDF("total")))
    assert rows_of(source(tmp_path / "out")) == [{"total": sum(range(20)), "batch": 1}]


def test_a_stream_begins_again_in_the_directory_of_another(streams: None, spark: Any, tmp_path: Path) -> None:
    add(tmp_path, "0")
    step(start(spark, tmp_path))
    (tmp_path / "state").rename(tmp_path / "lost")
    add(tmp_path, "1")
    with pytest.raises(Exception, match=r"batch=0.* is not of this query.*checkpoint was removed"):
        step(start(spark, tmp_path))
    assert batches_in(tmp_path) == {0: list(range(10))}
    (tmp_path / "out" / "batch=0").rename(tmp_path / "out" / "batch=1")  # as if the first one had had no rows
    (tmp_path / "state").rename(tmp_path / "lost, too")
    with pytest.raises(Exception, match=r"out' has 'batch=1', which is not of this query"):
        step(start(spark, tmp_path))
    assert batches_in(tmp_path) == {1: list(range(10))}
    with pytest.raises(Exception, match="cannot write the column 'Batch' of a stream"):
        step(start(spark, tmp_path, change=lambda df: df.withColumnRenamed("id", "Batch")))


def test_what_a_stream_reads(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    with pytest.raises(sa.InvalidType, match=r"there are no files in .* give one with \.schema\(\.\.\.\)"):
        source(tmp_path / "in").schema()
    reader = source(tmp_path / "in", filters='[["id", "<", 5]]').streamReader(struct_of("id long"))
    assert reader.latestOffset() == reader.initialOffset() == {}
    add(tmp_path, "0", "1")
    end = reader.latestOffset()
    assert list(end) == [str(tmp_path / "in" / name) for name in ("0", "1")]
    add(tmp_path, "2")  # while the batch is planned: of the next one
    splits = reader.partitions({}, end)
    assert [n for split in splits for batch in reader.read(split) for n in batch["id"].to_pylist()] == list(range(5))
    assert reader.partitions(end, end) == []
    (tmp_path / "in" / "1").unlink()
    with pytest.raises(sa.ObjectNotFound, match="1 is gone: it was there when the batch of the stream was planned"):
        reader.partitions({}, end)


def batch(where: Path, number: int, query: str = "q") -> tuple[Any, list[Any]]:
    """A writer of a batch of ten numbers, and what its tasks have told it, as Spark has them before the commit."""
    from shmarrow.spark.source.stream_writer import StreamWriter, WrittenInStream
    from shmarrow.spark.source.writer import make_directory

    made = StreamWriter({"path": str(where)}, struct_of("id long"), False)
    folder = made.files.temporary(f"batch={number}")
    make_directory(folder)
    parts = np.array_split(np.arange(number * 10, number * 10 + 10), 2)
    paths = [made.files.write_rows(folder, iter([pa.record_batch({"id": part})])) for part in parts]
    return made, [WrittenInStream(i, path, query) for i, path in enumerate(paths)]


def test_a_commit_of_a_stream_that_is_killed_fifty_times(streams: None, tmp_path: Path) -> None:
    """Each commit is killed before another line, and its batch is repeated, as Spark does after a restart."""
    killed = number = point = 0
    while killed < 50:

        def commit() -> None:
            made, messages = batch(tmp_path / "out", number)  # noqa: B023
            spark_kills.kill_at(tmp_path / "notes", point)  # noqa: B023
            made.commit(messages, number)  # noqa: B023

        status = ended(forked(commit))
        assert status in (0, -signal.SIGKILL)
        there = any((tmp_path / "out").glob("batch=*"))
        found = [n for ids in batches_in(tmp_path).values() for n in ids] if there else []
        if status == 0:
            number, point = number + 1, 0
            assert found == list(range(number * 10))
        else:
            killed, point = killed + 1, point + 2
            assert found in ([*range(number * 10)], [*range(number * 10 + 10)])
    for _ in range(2):
        made, messages = batch(tmp_path / "out", number)
        made.commit(messages, number)
    assert batches_in(tmp_path) == {i: list(range(i * 10, i * 10 + 10)) for i in range(number + 1)}
    assert all(path.name.startswith("batch=") for path in (tmp_path / "out").iterdir())


def write_stream(spark: Any, here: str) -> None:
    """Write each file as a batch, until this process is killed.

    Spark ends a query if one of its Python processes takes more than 10 s to start, as on a busy machine.
    """
    from pyspark.errors import StreamingQueryException
    from spark_driver import say

    query = start(spark, Path(here)).trigger(processingTime="20 milliseconds").start()
    say("started")
    while True:
        try:
            query.awaitTermination()
        except StreamingQueryException as error:
            print(error, file=sys.stderr, flush=True)
        query = start(spark, Path(here)).trigger(processingTime="20 milliseconds").start()


def test_a_stream_whose_driver_is_killed(streams: None, by_value: None, java: None, tmp_path: Path) -> None:
    """Files come all the time, and drivers are killed at other moments each: each row is there once.

    ``SHMARROW_KILLS`` sets how often, by default once; ``make cluster`` does so five times, on three hosts.
    """
    kills, number, out = int(os.environ.get("SHMARROW_KILLS", "1")), 0, tmp_path / "out"
    add(tmp_path, "0")
    for i in range(kills + 1):
        with spark_lab.driver(tmp_path / "driver") as driver:
            driver.begin(write_stream, str(tmp_path))
            driver.hear()
            wanted = len(list(out.glob("batch=*"))) + 1
            for _ in range(8):
                number += 1
                add(tmp_path, str(number))
                time.sleep(0.05)
            wait_until(partial(has_batches, out, wanted), "a batch")
            if i == kills:
                wait_until(partial(has_rows, out, number * 10 + 10), "all rows")
            time.sleep(i % 7 * 0.04)
            driver.kill()
    found = batches_in(tmp_path)
    assert sorted(n for ids in found.values() for n in ids) == list(range(number * 10 + 10))
    assert list(found) == list(range(len(found)))


def has_batches(where: Path, count: int) -> bool:
    return len(list(where.glob("batch=*"))) >= count


def has_rows(where: Path, count: int) -> bool:
    return len(rows_of(source(where))) >= count
