"""The data source ``shmarrow`` in streams of Spark's: files as they appear, and a directory for each batch."""

from __future__ import annotations

import importlib.util
import os
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import spark_lab
from spark_source import Batch, add, batches_in, rows_of, source, write
from waiting import wait_until

import shmarrow as sa
from shmarrow import spark as sas

pa = pytest.importorskip("pyarrow")
dataset = pytest.importorskip("pyarrow.dataset")
pytest.importorskip("pyspark")


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


def test_streams_take_new_files_and_write_a_directory_for_each_batch(spark: Any, tmp_path: Path) -> None:
    add(tmp_path, "0", "2")
    step(start(spark, tmp_path))
    add(tmp_path, "1")
    (tmp_path / "in" / "0").unlink()
    (tmp_path / "in" / "_temporary").mkdir()
    write(tmp_path / "in" / "2", {"id": [999]})  # a name that was read: not read again
    (tmp_path / "in" / "broken").touch()
    one = {"maxFilesPerTrigger": "1"} if importlib.util.find_spec("pyspark.sql.streaming.datasource") else {}
    with pytest.raises(Exception, match=r"InvalidData: .*an empty file.*ignoreCorruptFiles"):
        step(start(spark, tmp_path))
    step(start(spark, tmp_path, ignoreCorruptFiles="true"))
    add(tmp_path, "3", "4")
    step(start(spark, tmp_path, **one))
    last = {2: [*range(30, 40)], 3: [*range(40, 50)]} if one else {2: [*range(30, 50)]}
    expected = {0: [*range(10), *range(20, 30)], 1: [*range(10, 20)], **last}
    assert batches_in(tmp_path) == expected
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [f"batch={number}" for number in expected]
    assert dataset.dataset(tmp_path / "out", format="arrow").schema.names == ["id"]
    for number in list(expected)[1:]:
        (tmp_path / "out" / f"batch={number}").rename(tmp_path / str(number))
    (tmp_path / "in" / "broken").unlink()
    (tmp_path / "state").rename(tmp_path / "lost")  # so the query begins again
    with pytest.raises(Exception, match=r"batch=0.* is not of this query.*checkpoint was removed"):
        step(start(spark, tmp_path))
    assert batches_in(tmp_path) == {0: expected[0]}


def test_streams_that_replace_what_they_wrote(spark: Any, tmp_path: Path) -> None:
    Batch(tmp_path / "out", 5).commit()
    add(tmp_path, "0")
    step(start(spark, tmp_path, "complete", lambda df: df.groupBy().sum("id").toDF("total")))
    assert rows_of(source(tmp_path / "out")) == [{"total": sum(range(10)), "batch": 0}]
    Batch(tmp_path / "out", 1, overwrite=True).commit()
    assert batches_in(tmp_path) == {1: list(range(10, 20))}


def test_an_index_in_a_stream(spark: Any, home: str, tmp_path: Path) -> None:
    names = sa.table({"id": np.arange(0, 20, 2), "name": [f"name {i}" for i in range(10)]})
    with sas.share_table(names, spark, home) as frame:
        index = frame.index("id")

        def named(batches: Any) -> Any:
            for batch in batches:
                found = index.take(batch["id"], columns=["name"])["name"].combine_chunks()
                yield pa.record_batch({"id": batch["id"], "name": pa.array(found)})

        add(tmp_path, "0", "1")
        step(start(spark, tmp_path, change=lambda df: df.mapInArrow(named, "id long, name string")))
    found = {row["id"]: row["name"] for row in rows_of(source(tmp_path / "out"))}
    assert found == {i: None if i % 2 else f"name {i // 2}" for i in range(20)}


def write_stream(spark: Any, here: str) -> None:
    """Write each file as a batch, until this process is killed.

    Spark ends a query if one of its Python processes takes more than 10 s to start, as on a busy machine.
    """
    from pyspark.errors import StreamingQueryException
    from spark_driver import say

    say("started")
    while True:
        try:
            start(spark, Path(here)).trigger(processingTime="20 milliseconds").start().awaitTermination()
        except StreamingQueryException as error:
            print(error, file=sys.stderr, flush=True)


def test_a_stream_whose_driver_is_killed(spark: Any, tmp_path: Path) -> None:
    """Files come, and drivers are killed at another moment each, the last one's work is continued here: each row once.

    ``SHMARROW_KILLS`` sets how often, by default once.
    """
    number, out = 0, tmp_path / "out"
    add(tmp_path, "0")
    for i in range(int(os.environ.get("SHMARROW_KILLS", "1"))):
        with spark_lab.driver(tmp_path / "driver") as driver:
            driver.begin(write_stream, str(tmp_path))
            driver.hear()
            for turn in range(3):
                before = len(list(out.glob("batch=*")))
                number += 4
                add(tmp_path, *map(str, range(number - 3, number + 1)))
                if turn < 2:  # the one that is killed may have written all that was there before
                    wait_until(partial(has_batches, out, before + 1), "a batch", 250)
            time.sleep(i % 7 * 0.04)
            driver.kill()
    step(start(spark, tmp_path))
    found = batches_in(tmp_path)
    assert sorted(n for ids in found.values() for n in ids) == list(range(number * 10 + 10))
    assert list(found) == list(range(len(found)))


def has_batches(where: Path, count: int) -> bool:
    return len(list(where.glob("batch=*"))) >= count
