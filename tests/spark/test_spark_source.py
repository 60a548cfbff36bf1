"""The data source ``shmarrow``: Arrow files, streams and objects of stores, read by Spark, and directories it writes.

What Spark calls in processes of its own, making the source, planning, reading and committing, is also called here
directly where a job would show no more.
"""

from __future__ import annotations

import datetime as dt
import json
import os
import re
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import spark_kills
import spark_types
from cases.definition import Case
from cases.table import CASES
from cases.table import case as by_name
from parts import plain
from processes import ended, forked
from spark_lab import INTERPRETED, settings
from spark_maps import file_of
from spark_source import rows_of, source, struct_of, write

import shmarrow as sa

pa = pytest.importorskip("pyarrow")
dataset = pytest.importorskip("pyarrow.dataset")
pytest.importorskip("pyspark")

from pyspark.sql.types import StructType  # noqa: E402


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


def test_types_that_this_pyspark_lacks(tmp_path: Path) -> None:
    from pyspark.sql import types

    path = write(tmp_path / "f.arrow", {"n": [1], "t": sa.array([0], sa.time64("us"))})
    if hasattr(types, "TimeType"):
        assert source(path).schema()["t"].dataType == types.TimeType(6)
    else:
        with pytest.raises(sa.Unsupported, match=r"column 't': pyspark 4\.0\.\d+ has no type for time\(6\)"):
            source(path).schema()
        assert rows_of(source(path, columns="n")) == [{"n": 1}]


def test_the_page_of_types_is_up_to_date() -> None:
    pytest.importorskip("pyarrow", minversion="26")
    pytest.importorskip("pyspark", minversion="4.3")
    assert spark_types.PAGE.read_text(encoding="utf-8") == spark_types.page(), "run make docs"


# --- what is read -----------------------------------------------------------------------------------------------

NUMBERS = {"id": [1, 2, 3, 4], "s": ["a", None, "c", "d"], "v": [0.5, 1.5, None, 2.5]}


def test_columns_are_chosen_and_ordered_and_others_are_not_looked_at(spark: Any, tmp_path: Path) -> None:
    batch = sa.record_batch({"a.b": [1, 2], "bad": ["xx", "yy"], "c,d": [True, None], "`": [1.5, 2.5]})
    path = Path(write(tmp_path / "f.arrow", batch))
    path.write_bytes(path.read_bytes().replace(b"xxyy", b"\xff\xfe\xff\xfe"))
    df = read(spark, path.as_uri(), columns="`, a.b")
    assert df.columns == ["`", "a.b"]
    assert [tuple(row) for row in df.collect()] == [(1.5, 1), (2.5, 2)]
    asked = spark.read.format("shmarrow").schema("`c,d` boolean, `a.b` bigint").load([str(path), str(path)])
    assert [tuple(row) for row in asked.collect()] == [(True, 1), (None, 2)] * 2
    with pytest.raises(Exception, match=r"InvalidData: .*f.arrow.*'bad'.*UTF-8"):
        read(spark, str(path)).collect()


def test_directories_globs_and_shared_memory(tmp_path: Path, shm_name: str) -> None:
    for name in ("2.arrow", "1.arrows", "_hidden", ".hidden", "3.txt", "in/4.arrow", "_temporary/job/5.arrow"):
        (tmp_path / name).parent.mkdir(exist_ok=True, parents=True)
        write(tmp_path / name, {"name": [name]}, stream=name.endswith("s"))

    def names(path: Any, **options: str) -> list[str]:
        return [row["name"] for row in rows_of(source(path, **options))]

    assert names(tmp_path) == ["1.arrows", "2.arrow", "3.txt", "in/4.arrow"]
    assert names(tmp_path / "**" / "*.arrow*") == ["1.arrows", "2.arrow", "in/4.arrow"]
    assert names(tmp_path / "[12].a*") == ["1.arrows", "2.arrow"]
    assert names(tmp_path / "_hidden") == ["_hidden"]
    write(f"shm:{shm_name.removeprefix('shm:')}", {"name": ["m"]})  # type: ignore[arg-type]
    assert names(shm_name) == ["m"]
    sa.segment.delete(shm_name)


def test_directories_become_columns(spark: Any, tmp_path: Path) -> None:
    for i, name in enumerate(["day=2024-01-01/n=1", "day=2024-01-02/n=2", "day=__HIVE_DEFAULT_PARTITION__/n=3"]):
        (tmp_path / name).mkdir(parents=True)
        write(tmp_path / name / "f.arrow", {"x": [i, None]})
    df = read(spark, str(tmp_path))
    assert df.schema.simpleString() == "struct<x:bigint,day:date,n:bigint>"
    days = [dt.date(2024, 1, 1), dt.date(2024, 1, 2), None]
    assert [tuple(row) for row in df.collect()] == [(x, day, n + 1) for n, day in enumerate(days) for x in (n, None)]
    assert rows_of(source(tmp_path), struct_of("n string"))[0] == {"n": "1"}
    assert rows_of(source(tmp_path, filters='[["day", ">", "2024-01-01"]]')) == [
        {"x": 1, "day": days[1], "n": 2}, {"x": None, "day": days[1], "n": 2},
    ]  # fmt: skip


def test_objects_of_stores(tmp_path: Path) -> None:
    path = tmp_path / "store"
    with sa.Store(path) as store:
        for name in ("day/1", "day/2", "other"):
            store.put(name, sa.table({"name": [name]}))
        for given, expected in [
            ("store/other", ["other"]), ("store/day", ["day/1", "day/2"]), ("store/*1", ["day/1"]),
            ("store", ["day/1", "day/2", "other"]),
        ]:  # fmt: skip
            assert [row["name"] for row in rows_of(source(tmp_path / given))] == expected
        with pytest.raises(sa.ObjectNotFound, match=r"no object in the store .* matches 'x'"):
            source(path / "x").schema()
        planned = source(path / "other").reader(source(path / "other").schema())
        (split,) = planned.partitions()
        store.put("other", sa.table({"name": ["new"]}), overwrite=True)
        with pytest.raises(sa.StorageError, match="was changed after the query was planned"):
            list(planned.read(split))
        store.put("array", np.arange(3))
        with pytest.raises(sa.InvalidData, match="array is a tensor, which has no rows"):
            source(path / "array").schema()


def test_schemas_of_several_files(tmp_path: Path) -> None:
    write(tmp_path / "1", {"a": [1], "b": ["x"]})
    write(tmp_path / "2", {"b": ["y"], "c": [2.5]})
    assert rows_of(source(tmp_path)) == [{"a": 1, "b": "x"}, {"a": None, "b": "y"}]
    assert rows_of(source(tmp_path, mergeSchema="true")) == [
        {"a": 1, "b": "x", "c": None},
        {"a": None, "b": "y", "c": 2.5},
    ]
    assert rows_of(source(tmp_path, columns="b")) == [{"b": "x"}, {"b": "y"}]
    write(tmp_path / "2", {"a": ["1"], "b": ["y"]})
    with pytest.raises(sa.InvalidType, match=r"2: column 'a': string has no exact cast to int64"):
        rows_of(source(tmp_path))
    with pytest.raises(sa.FieldNotFound, match=r"no field is named 'A'; .*'a'"):
        source(tmp_path / "1", columns="A").schema()


def test_splits_fall_along_batches(tmp_path: Path) -> None:
    path = write(tmp_path / "f.arrow", {"n": np.arange(1 << 20)}, batches=8)
    reader = source(path, maxPartitionBytes=str(2 << 20)).reader(source(path).schema())
    splits = reader.partitions()
    assert len(splits) in (4, 8)  # of one or two MiB
    parts = [[row for batch in reader.read(split) for row in batch["n"].to_pylist()] for split in splits]
    assert [row for part in parts for row in part] == list(range(1 << 20))
    empty = write(tmp_path / "empty.arrow", {"n": pa.array([], pa.int64())})
    assert rows_of(source(empty)) == []


def test_filters_skip_batches_and_leave_rows(tmp_path: Path) -> None:
    table = sa.table({"n": np.arange(1000), "x": [None if i % 7 == 0 else i / 4 for i in range(1000)]})
    with sa.ipc.new_file(tmp_path / "f", table.schema, statistics=True) as writer:
        for start in range(0, 1000, 100):
            writer.write_batch(table.slice(start, 100).to_batches()[0])
    reader = source(tmp_path / "f", filters='[["n", ">=", 250], ["n", "<", 310], ["x", "!=", 63]]').reader(
        source(tmp_path / "f").schema()
    )
    splits = reader.partitions()
    assert [piece.batches for split in splits for piece in split.value] == [[2, 3]]
    rows = [n for split in splits for batch in reader.read(split) for n in batch["n"].to_pylist()]
    assert rows == [n for n in range(250, 310) if n % 7 and n != 252]
    assert rows_of(source(tmp_path / "f", filters='[["n", ">", 5000]]')) == []
    either = source(tmp_path / "f", filters='[[["n", "<", 2]], [["n", "in", [7, 9]]]]')
    assert [row["n"] for row in rows_of(either)] == [0, 1, 7, 9]


def test_values_in_filters(tmp_path: Path) -> None:
    from decimal import Decimal

    rows = {
        "day": [dt.date(2024, 1, 1), dt.date(2024, 1, 2)],
        "t": [dt.datetime(2024, 1, hour, tzinfo=dt.UTC) for hour in (1, 2)],
        "local": [dt.datetime(2024, 1, 1), dt.datetime(2024, 1, 2)],
        "price": sa.array([Decimal("1.50"), Decimal("2.00")], sa.decimal128(10, 2)),
        "s": ["a", "b"],
        "ok": [True, False],
        "f": [float("nan"), 2.0],
    }
    path = write(tmp_path / "f", rows)
    for condition, expected in [
        (["day", "=", "2024-01-02"], 1), (["t", "<", "2024-01-01T01:00:00+02:00"], 0), (["price", "in", ["1.5", 3]], 1),
        (["t", ">=", "2024-01-01T00:00:00Z"], 2), (["local", "=", "2024-01-01"], 1), (["price", ">", "1.5"], 1),
        (["s", "not in", ["a"]], 1), (["ok", "=", True], 1), (["f", ">", 1], 1), (["f", "!=", 1], 2),
    ]:  # fmt: skip
        assert len(rows_of(source(path, filters=json.dumps([condition])))) == expected, condition
    for filters, kind, said in [
        ("n < 3", sa.InvalidArgument, "option 'filters' must be a list in JSON, found 'n < 3'"),
        ('[["day", "=", "tomorrow"]]', sa.InvalidArgument, "option 'filters': column 'day' is date32.*'tomorrow'"),
        ('[["s", "=", 3]]', sa.InvalidType, "option 'filters'.*'s'.*3"),
        ('[["t", "=", "2024-01-01"]]', sa.InvalidType, "'t'.*no time zone"),
        ('[["price", "=", "a"]]', sa.InvalidArgument, "column 'price' is decimal128"),
        ('[["s", "~", "a"]]', sa.InvalidArgument, "expected one of =, .*'~'"),
        ('[["other", "=", "a"]]', sa.FieldNotFound, "no field is named 'other'"),
        ('["s"]', sa.InvalidArgument, "expected filters like"),
    ]:
        with pytest.raises(kind, match=said):
            source(path, filters=filters).reader(source(path).schema())


def test_why_filters_of_queries_are_not_taken(spark: Any) -> None:
    """Spark reads what one query left for all others over the same DataFrame; sources with pushFilters lose rows.

    If this fails, Spark has mended that, and a reader can have ``pushFilters`` from that version on.
    """
    datasource = pytest.importorskip("pyspark.sql.datasource", exc_type=ImportError)
    if not hasattr(datasource, "EqualTo"):
        pytest.skip("pyspark before 4.1 has no filters")

    class Filtering(datasource.DataSourceReader):  # type: ignore[misc, name-defined]
        def pushFilters(self, filters: Any) -> Any:
            self.least = max(each.value for each in filters if type(each).__name__ == "GreaterThan")
            return [each for each in filters if type(each).__name__ != "GreaterThan"]

        def read(self, partition: Any) -> Any:
            return iter([(n,) for n in range(10) if n > self.least])

    class Numbers(datasource.DataSource):  # type: ignore[misc, name-defined]
        @classmethod
        def name(cls) -> str:
            return "numbers"

        def schema(self) -> str:
            return "n int"

        def reader(self, schema: Any) -> Any:
            return Filtering()

    spark.dataSource.register(Numbers)
    with settings(spark, {"spark.sql.python.filterPushdown.enabled": "true"}):
        df = spark.read.format("numbers").load()
        assert df.where("n > 7").count() == 2
        assert df.count() == 2  # of 10


def test_settings_of_spark_change_no_rows(spark: Any, tmp_path: Path) -> None:
    path = write(tmp_path / "f", {"n": np.arange(10)})
    with settings(spark, {"spark.sql.python.filterPushdown.enabled": "true"}):
        df = read(spark, path)
        assert (df.where("n > 7").count(), df.count(), df.where("n < 2").union(df.where("n = 5")).count()) == (2, 10, 3)


def test_values_stay_in_the_mapped_file(tmp_path: Path) -> None:
    path = write(tmp_path / "f.arrow", {"n": np.arange(1000), "s": ["abc"] * 1000})
    reader = source(path).reader(source(path).schema())
    with sa.ipc.open_file(path):
        (split,) = reader.partitions()
        (batch,) = reader.read(split)
        assert file_of(np.asarray(batch["n"])) == path


@pytest.mark.parametrize(
    ("path", "kind", "said"),
    [
        ("hdfs://host/x", sa.ObjectNotFound, "hdfs://host/x"),
        ("/tmp/\ud800", sa.InvalidArgument, r"'/tmp/\\ud800' cannot be encoded as a path"),
        ("shm:no-such-object", sa.ObjectNotFound, "shm:no-such-object"),
        ("/no/*/match", sa.ObjectNotFound, r"no file matches '/no/\*/match'"),
        ("nul\0", sa.InvalidArgument, "NUL"),
        (None, sa.InvalidArgument, r"nothing to read: give a path"),
        ("/dev/null", sa.StorageError, "/dev/null"),
    ],
)
def test_paths_that_lead_nowhere(path: Any, kind: Any, said: str) -> None:
    with pytest.raises(kind, match=said):
        source(path).schema()


@pytest.mark.parametrize(
    ("rows", "options", "kind", "said"),
    [
        ({"a": [1]}, {"columns": ""}, sa.FieldNotFound, "no field is named ''"),
        ({"a": [1]}, {"trust": "perhaps"}, sa.InvalidArgument, "option 'trust' must be true or false"),
        ({"a": [1]}, {"maxPartitionBytes": "x"}, sa.InvalidArgument, "must be a number of bytes"),
        (sa.record_batch([[1], [2]], ["a", "a"]), {}, sa.Unsupported, "several columns are named 'a'.*columns"),
        ({"u": by_name("dense-union").array()}, {}, sa.Unsupported, r"column 'u'.*columns"),
        ("PAR1....PAR1", {}, sa.InvalidData, r"a Parquet file.*read_parquet"),
        ("a,b\n1,2\n", {}, sa.InvalidData, r"text, such as CSV.*read_csv"),
        ("ARROW1", {}, sa.InvalidData, "f"),
    ],
)
def test_what_cannot_be_read(rows: Any, options: Any, kind: Any, said: str, tmp_path: Path) -> None:
    path = tmp_path / "f"
    if isinstance(rows, str):
        path.write_text(rows)
    else:
        write(path, rows)
    made = source(path, **options)
    with pytest.raises(kind, match=said):
        made.reader(made.schema())


def test_schemas_that_a_file_does_not_fit(tmp_path: Path) -> None:
    path = write(tmp_path / "f", {"n": [1, None, 1 << 40], "t": sa.array([0, 1, 2], sa.timestamp("us"))})
    for ddl, kind, said in [
        ("n string", sa.InvalidType, "column 'n': int64 has no exact cast"),
        ("n int", sa.InvalidData, "n.*1099511627776"),
        ("n long not null", sa.InvalidData, "'n'"),
        ("m long not null", sa.InvalidData, "'m'.*lacks it"),
        ("t timestamp", sa.InvalidType, "column 't' has times without a time zone"),
    ]:
        with pytest.raises(kind, match=said):
            rows_of(source(path), struct_of(ddl))
    assert rows_of(source(path), struct_of("m long")) == [{"m": None}] * 3
    assert rows_of(source(path), struct_of("n decimal(20,0)"))[2] == {"n": 1 << 40}


def test_errors_reach_the_driver(spark: Any, tmp_path: Path) -> None:
    path = Path(write(tmp_path / "a\nb", {"n": [1]}))
    df = read(spark, str(path))
    assert [tuple(row) for row in df.collect()] == [(1,)]
    planned = source(path).reader(source(path).schema())
    splits = planned.partitions()
    write(path, {"n": [1, 2]})
    with pytest.raises(sa.StorageError, match="was changed after the query was planned; run the query again"):
        list(planned.read(splits[0]))
    path.unlink()
    with pytest.raises(sa.ObjectNotFound, match="the query was planned while it was there"):
        list(planned.read(splits[0]))
    with pytest.raises(Exception, match=r"ObjectNotFound: .*a\\nb"):
        read(spark, str(path)).collect()


# --- writing ----------------------------------------------------------------------------------------------------


def save(df: Any, where: Any, mode: str = "append", **options: str) -> None:
    df.write.format("shmarrow").mode(mode).options(**options).save(str(where))


def numbers(where: Path) -> list[int]:
    """The numbers that any Arrow program finds, in order."""
    found: list[int] = dataset.dataset(where, format="arrow").to_table()["id"].to_pylist()
    return sorted(found)


def left(where: Path) -> set[str]:
    """List a directory without its files of rows."""
    return {path.name for path in where.iterdir()} - {path.name for path in where.glob("part-*.arrow")}


def test_append_and_overwrite(spark: Any, tmp_path: Path) -> None:
    where = tmp_path / "new" / "rows"
    save(spark.range(0, 10, 1, 2), where)
    save(spark.range(10, 15, 1, 1), where, compression="zstd")
    assert numbers(where) == list(range(15)) == sorted(row["id"] for row in rows_of(source(where)))
    assert {re.sub("-[0-9a-f-]{36}[.]", "-.", path.name) for path in where.glob("part-*")} == {
        "part-00000-.arrow", "part-00001-.arrow",
    }  # fmt: skip
    save(read(spark, str(where)).where("id < 3"), where, "overwrite")  # of what is replaced
    assert numbers(where) == [0, 1, 2]
    assert left(where) == {"_SUCCESS"}
    with pytest.raises(Exception, match=r"InvalidType: cannot append to .*Nothing was changed: cast or select"):
        save(spark.range(3).selectExpr("id AS other"), where)
    save(spark.range(0, 40_000, 1, 5), where, "overwrite")
    assert len(list(where.glob("part-*"))) == 5
    assert numbers(where) == list(range(40_000))
    save(spark.range(0), where, "overwrite")
    assert numbers(where) == []
    for mode, said in (("error", 'use either the "Append" or "Overwrite"'), ("ignore", "use either")):
        with pytest.raises(Exception, match=said):
            save(spark.range(3), where, mode)
    assert left(where) == {"_SUCCESS"}


def test_what_others_have_written_is_added_to_and_replaced(spark: Any, tmp_path: Path) -> None:
    ids = pa.table({"s": pa.array(["a"], pa.large_string()), "id": pa.array([7], pa.int64())})
    with pa.ipc.new_file(tmp_path / "pyarrow.arrow", ids.schema) as writer:
        writer.write_table(ids)
    pytest.importorskip("polars").DataFrame({"id": [8], "s": ["b"]}).write_ipc(tmp_path / "polars.arrow")
    df = spark.range(3).selectExpr("id", "'x' AS s")
    save(df, tmp_path)
    assert sorted(row["id"] for row in rows_of(source(tmp_path))) == [0, 1, 2, 7, 8]
    (tmp_path / "day=1").mkdir()
    write(tmp_path / "day=1" / "f", {"id": [9], "s": ["c"]})
    (tmp_path / "link").symlink_to(tmp_path.parent)
    (tmp_path / ".kept").touch()
    save(df, tmp_path, "overwrite")
    assert sorted(row["id"] for row in rows_of(source(tmp_path))) == [0, 1, 2]
    assert left(tmp_path) == {"_SUCCESS", ".kept"}
    assert tmp_path.parent.is_dir()


def test_statistics_are_written(spark: Any, tmp_path: Path) -> None:
    df = spark.range(0, 100, 1, 1).selectExpr("id", "string(id) AS s")
    for said, expected in [("true", ["id", "s"]), ("id", ["id"]), ("false", [])]:
        save(df, tmp_path / said, statistics=said)
        (path,) = (tmp_path / said).glob("part-*")
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
    where = tmp_path / "rows"
    save(spark.range(3), where)
    for mode in ("append", "overwrite"):
        with pytest.raises(Exception, match="no such luck"):
            save(spark.range(0, 10, 1, 2).mapInArrow(fails, "id long"), where, mode)
        assert numbers(where) == [0, 1, 2]
        assert left(where) == {"_SUCCESS"}


def job(where: Path, ids: Any, overwrite: bool = False) -> tuple[Any, list[Any]]:
    """A writer, and what its tasks have told it, as Spark has them before the commit."""
    from shmarrow.spark.source.writer import Writer, Written

    made = Writer({"path": str(where)}, struct_of("id long"), overwrite)
    folder = made.files.temporary(made.job)
    parts = np.array_split(np.asarray(ids), 2)
    paths = [made.files.write_rows(folder, iter([pa.record_batch({"id": part})])) for part in parts]
    made.files.write(folder, [pa.record_batch({"id": [1000]})])  # of an attempt that failed
    return made, [Written(i, path) for i, path in enumerate(paths)]


def test_jobs_at_the_same_time(tmp_path: Path) -> None:
    """Appends do not disturb each other, and an overwrite removes what was there when it was committed."""
    jobs = [job(tmp_path, range(i * 10, i * 10 + 10)) for i in range(3)]
    replacing, written = job(tmp_path, range(100, 110), overwrite=True)
    jobs[0][0].commit(jobs[0][1])
    jobs[1][0].abort(jobs[1][1])
    replacing.commit(written)
    assert numbers(tmp_path) == list(range(100, 110))
    jobs[2][0].commit(jobs[2][1])
    assert numbers(tmp_path) == [*range(20, 30), *range(100, 110)]
    assert left(tmp_path) == {"_SUCCESS"}
    late, _ = job(tmp_path, range(3))
    late.abort([])
    with pytest.raises(sa.ObjectNotFound, match="Either the job has ended without this task, or the path is not on"):
        late.files.write(late.files.temporary(late.job), [])


def test_a_commit_that_is_killed_loses_nothing(tmp_path: Path) -> None:
    """An overwrite that is killed before any of its lines leaves all old rows or all new ones, and can be repeated."""
    old, new = list(range(10)), list(range(100, 110))
    for point in range(0, 1000, 4):
        where = tmp_path / str(point)
        for ids in (old[:5], old[5:]):
            first, messages = job(where, ids)
            first.commit(messages)

        def commit() -> None:
            made, messages = job(where, new, overwrite=True)  # noqa: B023
            spark_kills.kill_at(tmp_path / "notes", point)  # noqa: B023
            made.commit(messages)

        status = ended(forked(commit))
        found = numbers(where)
        assert set(old) <= set(found) or set(new) <= set(found), point
        again, messages = job(where, new, overwrite=True)
        again.commit(messages)
        assert numbers(where) == new
        if status == 0:
            break
        assert status == -signal.SIGKILL
    assert point > 20, "the commit was killed in several places"


def test_a_link_in_the_place_of_the_marker_is_not_followed(tmp_path: Path) -> None:
    """Whoever may write into the directory cannot have other files of its writer emptied."""
    victim, where = tmp_path / "victim", tmp_path / "where"
    victim.write_text("precious")
    where.mkdir()
    for overwrite in (False, True):
        (where / "_SUCCESS").unlink(missing_ok=True)
        (where / "_SUCCESS").symlink_to(victim)
        made, messages = job(where, range(10), overwrite)
        made.commit(messages)
        assert (victim.read_text(), (where / "_SUCCESS").read_bytes()) == ("precious", b"")
    assert left(where) == {"_SUCCESS"}


def test_directories_that_are_not_written(tmp_path: Path) -> None:
    from shmarrow.spark.source.writer import Writer

    def begin(path: Any, ddl: str = "id long", overwrite: bool = False, **options: str) -> None:
        Writer({"path": str(path), **options}, struct_of(ddl), overwrite)

    (tmp_path / "others").mkdir()
    (tmp_path / "others" / "a.txt").write_text("a,b")
    with pytest.raises(sa.InvalidData, match=r"a\.txt"):
        begin(tmp_path / "others")
    with pytest.raises(sa.InvalidArgument, match="expected a directory, found a file"):
        begin(tmp_path / "others" / "a.txt")
    (tmp_path / "parts" / "Day=1").mkdir(parents=True)
    write(tmp_path / "parts" / "Day=1" / "f", {"day": [1]})
    with pytest.raises(sa.InvalidType, match="the names of directories in it give the column 'day'"):
        begin(tmp_path / "parts", "day long")
    with sa.Store(tmp_path / "store"):
        for overwrite in (False, True):
            with pytest.raises(sa.InvalidArgument, match="it is a store"):
                begin(tmp_path / "store", overwrite=overwrite)
    for path, said in [
        ("shm:x", "it is a store"),
        ("hdfs://host/x", "mounted file systems"),
        ("", "path of a directory"),
    ]:
        with pytest.raises(sa.InvalidArgument, match=said):
            begin(path)
    with pytest.raises(sa.InvalidArgument, match="compression must be one of"):
        begin(tmp_path / "new", compression="gzip")
    with pytest.raises(sa.Unsupported, match=r"the DataFrame, field 'id' is interval month, .*cast it to int"):
        begin_months(tmp_path / "new")
    assert not (tmp_path / "new").exists()


def begin_months(path: Path) -> None:
    from pyspark.sql.types import StructField, YearMonthIntervalType

    from shmarrow.spark.source.writer import Writer

    Writer({"path": str(path)}, StructType([StructField("id", YearMonthIntervalType(1, 1))]), True)
