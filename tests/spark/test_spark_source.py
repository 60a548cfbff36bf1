"""The data source ``shmarrow``: Arrow files, streams and objects of stores, read by Spark, and directories it writes.

What a job would show no more of is in ``test_source.py``.
"""

from __future__ import annotations

import datetime as dt
import os
import pickle
import re
import signal
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cases.definition import Case
from cases.table import CASES
from parts import plain
from spark_lab import INTERPRETED, settings
from spark_source import Job, left, numbers, rows_of, source, struct_of, write

import shmarrow as sa

pa = pytest.importorskip("pyarrow")
dataset = pytest.importorskip("pyarrow.dataset")
pytest.importorskip("pyspark")


def read(spark: Any, path: Any = None, **options: str) -> Any:
    made = spark.read.format("shmarrow").options(**options)
    return made.load() if path is None else made.load(path)


# --- types ------------------------------------------------------------------------------------------------------

NOT_SENT = re.compile(
    r".*union|decimal256|interval-(day|month-day)|dictionary-dictionary|struct-duplicate|.*-(all-null|empty)$"
)
"""Other cases of these types, those that no file holds or Spark reads, and those of nulls only or of nothing."""
IN_SPARK = {
    "bool": "boolean", "int8": "tinyint", "uint8": "smallint", "uint16": "int", "uint32": "bigint",
    "uint64": "decimal(20,0)", "float16": "float", "float64": "double", "decimal32": "decimal(9,2)",
    "decimal128-negative-scale": "decimal(8,0)", "date64": "date", "time32-s": "time(6)",
    "timestamp-ns": "timestamp_ntz", "timestamp-s-zone": "timestamp", "interval-month": "int",
    "large-string": "string", "binary-view": "binary", "fixed-size-binary": "binary",
    "struct": "struct<x:int,y:double>", "map": "map<string,int>", "fixed-size-list": "array<float>",
    "dictionary-struct": "struct<x:int,y:double>", "ree-list": "array<tinyint>", "list-view-struct":
    "array<struct<x:int,y:double>>",
}  # fmt: skip
"""Types of Spark's for some cases."""


def test_every_type_goes_through_spark_with_equal_values(spark: Any, tmp_path: Path) -> None:
    """One file or stream for each length of the cases; Spark reads all columns of all files, with nulls for missing."""
    pytest.importorskip("pyarrow", minversion="26")
    pytest.importorskip("pyspark", minversion="4.3")
    lengths: dict[int, list[Case]] = {}
    names = {case.name for case in CASES}
    for case in CASES:
        if not (NOT_SENT.match(case.name) or f"{case.name}-nulls" in names):
            lengths.setdefault(len(case.array()), []).append(case)
    for i, length in enumerate(sorted(lengths)):
        cases = lengths[length]
        batch = sa.record_batch([case.array() for case in cases], [case.name for case in cases])
        codec = [None, "lz4", "zstd"][i % 3]
        write(tmp_path / f"{length:03}", batch, stream=i % 2 == 1, codec=codec)
    df = read(spark, str(tmp_path), mergeSchema="true")
    types = {field.name: field.dataType.simpleString() for field in df.schema}
    assert {name: types.get(f"{name}-nulls", types.get(name)) for name in IN_SPARK} == IN_SPARK
    with settings(spark, INTERPRETED):
        found = df.toArrow()
    assert found.num_rows == sum(lengths)
    failures, start = [], 0
    for length in sorted(lengths):
        for case in lengths[length]:
            column = found.column(case.name)
            mine = column.slice(start, length)
            assert column.null_count - mine.null_count == found.num_rows - length, case
            values, wanted = plain(sa.chunked_array(mine).to_pylist()), plain(case.values)
            if values != wanted:
                failures.append(f"{case.name}: {case.type} as {types[case.name]}: {values} is not {wanted}")
        start += length
    assert not failures, "\n".join(failures)


# --- what is read -----------------------------------------------------------------------------------------------


def test_columns_are_chosen_and_ordered_and_others_are_not_looked_at(spark: Any, tmp_path: Path) -> None:
    batch = sa.record_batch({"a.b": [1, 2], "bad": ["xx", "yy"], "c,d": [True, None], "`": [1.5, 2.5]})
    path = Path(write(tmp_path / "f.arrow", batch))
    path.write_bytes(path.read_bytes().replace(b"xxyy", b"\xff\xfe\xff\xfe"))
    for ddl, place, expected in [
        ("```` double, `a.b` int", path.as_uri(), [(1.5, 1), (2.5, 2)]),
        ("`c,d` boolean, `a.b` bigint", [str(path), str(path)], [(True, 1), (None, 2)] * 2),
    ]:
        df = spark.read.format("shmarrow").schema(ddl).load(place)
        assert [tuple(row) for row in df.collect()] == expected
    with pytest.raises(sa.InvalidData, match=r"f.arrow.*'bad'.*UTF-8"):
        rows_of(source(path))


def test_directories_become_columns(spark: Any, tmp_path: Path) -> None:
    for i, name in enumerate(["day=2024-01-01/n=1", "day=2024-01-02/n=2", "day=__HIVE_DEFAULT_PARTITION__/n=3"]):
        (tmp_path / name).mkdir(parents=True)
        write(tmp_path / name / "f.arrow", {"x": [i, None]})
    df = read(spark, str(tmp_path))
    assert df.schema.simpleString() == "struct<x:bigint,day:date,n:bigint>"
    days = [dt.date(2024, 1, 1), dt.date(2024, 1, 2), None]
    assert [tuple(row) for row in df.collect()] == [(x, day, n + 1) for n, day in enumerate(days) for x in (n, None)]
    assert rows_of(source(tmp_path), struct_of("n string"))[0] == {"n": "1"}


def test_why_filters_of_queries_are_not_taken(spark: Any, tmp_path: Path) -> None:
    """Spark reads what one query left for all others over the same DataFrame; sources with pushFilters lose rows.

    If this fails, Spark has mended that, and a reader can have ``pushFilters`` from that version on.
    """
    from pyspark.sql.datasource import DataSource, DataSourceReader

    class Filtering(DataSourceReader):
        def pushFilters(self, filters: Any) -> Any:
            self.least = max(each.value for each in filters if type(each).__name__ == "GreaterThan")
            return [each for each in filters if type(each).__name__ != "GreaterThan"]

        def read(self, partition: Any) -> Any:
            return iter([(n,) for n in range(10) if n > self.least])

    class Numbers(DataSource):
        @classmethod
        def name(cls) -> str:
            return "numbers"

        def schema(self) -> str:
            return "n int"

        def reader(self, schema: Any) -> Any:
            return Filtering()

    path = write(tmp_path / "f", {"n": np.arange(10)})
    with settings(spark, {"spark.sql.python.filterPushdown.enabled": "true"}):
        df = read(spark, path)
        assert (df.where("n > 7").count(), df.count()) == (2, 10)
        spark.dataSource.register(Numbers)
        df = spark.read.format("numbers").load()
        assert (df.where("n > 7").count(), df.count()) == (2, 2)  # of 10


def test_errors_reach_the_driver(spark: Any, tmp_path: Path) -> None:
    path = Path(write(tmp_path / "a\nb", {"n": [1]}))
    df = read(spark, str(path))
    assert [tuple(row) for row in df.collect()] == [(1,)]
    planned = source(path).reader(source(path).schema())
    splits = planned.partitions()
    write(path, {"n": [1, 2]})
    with pytest.raises(sa.StorageError, match="was changed after the query was planned; run the query again"):
        list(planned.read(pickle.loads(pickle.dumps(splits[0]))))
    path.unlink()
    with pytest.raises(sa.ObjectNotFound, match="the query was planned while it was there"):
        list(planned.read(pickle.loads(pickle.dumps(splits[0]))))
    with pytest.raises(Exception, match=r"ObjectNotFound: .*a\\nb") as raised:
        read(spark, str(path)).collect()
    assert str(raised.value).count(", line ") < 4


# --- writing ----------------------------------------------------------------------------------------------------


def save(df: Any, where: Any, mode: str = "append", **options: str) -> None:
    df.write.format("shmarrow").mode(mode).options(**options).save(str(where))


def test_append_and_overwrite(spark: Any, tmp_path: Path) -> None:
    where = tmp_path / "new" / "rows"
    save(spark.range(0, 10, 1, 2), where)
    save(spark.range(10, 15, 1, 1), where, compression="zstd")
    assert numbers(where) == list(range(15)) == sorted(row["id"] for row in rows_of(source(where)))
    files = [re.sub("-[0-9a-f]{8}-[0-9a-f-]{27}", "", str(path.relative_to(where))) for path in where.glob("*/*")]
    assert sorted(files) == ["job/part-00000.arrow", "job/part-00000.arrow", "job/part-00001.arrow"]
    save(read(spark, str(where)).where("id < 3"), where, "overwrite")  # of what is replaced
    assert numbers(where) == [0, 1, 2]
    assert left(where) == {"_SUCCESS"}
    with pytest.raises(Exception, match=r"InvalidType: cannot append to .*Nothing was changed: cast or select"):
        save(spark.range(3).selectExpr("id AS other"), where)
    save(spark.range(0), where, "overwrite")
    assert numbers(where) == []
    for mode, said in (("error", 'use either the "Append" or "Overwrite"'), ("ignore", "use either")):
        with pytest.raises(Exception, match=said):
            save(spark.range(3), where, mode)
    assert left(where) == {"_SUCCESS"}


def test_pairs_of_jobs_at_once_lose_and_double_nothing(spark: Any, tmp_path: Path) -> None:
    """``SHMARROW_PAIRS`` sets how many, by default two. Both overwrites may be planned before one is committed."""
    modes = [("overwrite", "overwrite"), ("append", "overwrite"), ("append", "append")]

    def job(where: Path, first: int, mode: str) -> None:
        spark.createDataFrame([], "n int")  # activates the session in this thread
        save(spark.range(first, first + 1000, 1, 3), where, mode)

    for i in range(int(os.environ.get("SHMARROW_PAIRS", "2"))):
        where, pair = tmp_path / str(i), modes[i % 3]
        Job(where, range(10)).commit()
        with ThreadPoolExecutor(2) as pool:
            for ended in [pool.submit(job, where, 1000 * n, mode) for n, mode in enumerate(pair, 1)]:
                ended.result()
        old, first, second = list(range(10)), list(range(1000, 2000)), list(range(2000, 3000))
        allowed = {
            "overwrite": ([*first, *second], first, second),
            "append": ([*first, *second], second) if "overwrite" in pair else ([*old, *first, *second],),
        }[pair[0]]
        found = numbers(where)
        assert found in allowed
        assert found == sorted(row["id"] for row in rows_of(source(where)))
        assert left(where) == {"_SUCCESS"}


def test_what_others_have_written_is_added_to_and_replaced(spark: Any, tmp_path: Path) -> None:
    ids = pa.table({"s": pa.array(["a"], pa.large_string()), "id": pa.array([7], pa.int64())})
    with pa.ipc.new_file(tmp_path / "pyarrow.arrow", ids.schema) as writer:
        writer.write_table(ids)
    pytest.importorskip("polars").DataFrame({"id": [8], "s": ["b"]}).write_ipc(tmp_path / "polars.arrow")
    df = spark.range(3).selectExpr("id", "'x' AS s")
    save(df, tmp_path)
    assert sorted(row["id"] for row in rows_of(source(tmp_path))) == [0, 1, 2, 7, 8]
    (tmp_path / "more").mkdir()
    write(tmp_path / "more" / "f", {"id": [9], "s": ["c"]})
    (tmp_path / "link").symlink_to(tmp_path.parent)
    (tmp_path / ".kept").touch()
    save(df, tmp_path, "overwrite")
    assert sorted(row["id"] for row in rows_of(source(tmp_path))) == [0, 1, 2]
    assert left(tmp_path) == {"_SUCCESS", ".kept"}
    assert tmp_path.parent.is_dir()


def test_views_of_sql_are_read_and_added_to(spark: Any, tmp_path: Path) -> None:
    save(spark.range(3), tmp_path / "t")
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW points USING shmarrow OPTIONS (path '{tmp_path / 't'}')")
    spark.sql("INSERT INTO points SELECT id + 10 FROM range(2)")
    assert numbers(tmp_path / "t") == sorted(row[0] for row in spark.sql("SELECT * FROM points").collect())
    assert numbers(tmp_path / "t") == [0, 1, 2, 10, 11]
    spark.sql("DROP VIEW points")
    with pytest.raises(Exception, match="use CREATE TEMPORARY VIEW"):
        spark.sql(f"CREATE TABLE no_points USING shmarrow OPTIONS (path '{tmp_path / 't'}')")


def test_statistics_are_written(spark: Any, tmp_path: Path) -> None:
    df = spark.range(0, 100, 1, 1).selectExpr("id", "string(id) AS s")
    for said, expected in [("true", ["id", "s"]), ("id", ["id"]), ("false", [])]:
        save(df, tmp_path / said, statistics=said)
        (path,) = (tmp_path / said).glob("*/part-*")
        with sa.ipc.open_file(path) as reader:
            found = reader.statistics
        assert ([] if found is None else found.schema.names) == expected
    with pytest.raises(Exception, match="FieldNotFound: no field is named 'other'"):
        save(df, tmp_path / "none", statistics="id, other")
    assert not (tmp_path / "none").exists()


def test_variants_that_are_null(spark: Any, tmp_path: Path) -> None:
    save(spark.sql("""SELECT parse_json(x) AS v FROM VALUES ('{"a":1}'), (NULL) AS t(x)"""), tmp_path / "v")
    found = read(spark, str(tmp_path / "v")).selectExpr("to_json(v)").collect()
    assert sorted([row[0] for row in found], key=str) == [None, '{"a":1}']


def fails(batches: Any) -> Any:
    from pyspark import TaskContext

    context = TaskContext.get()
    assert context is not None
    yield from batches
    if context.partitionId() == 1:
        if context.attemptNumber() == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        raise ValueError("no such luck")


def test_a_job_that_fails(spark: Any, tmp_path: Path) -> None:
    Job(tmp_path, range(3)).commit()
    with pytest.raises(Exception, match="no such luck"):
        save(spark.range(0, 10, 1, 2).mapInArrow(fails, "id long"), tmp_path, "overwrite")
    assert (numbers(tmp_path), left(tmp_path)) == ([0, 1, 2], {"_SUCCESS"})
