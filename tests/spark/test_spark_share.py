"""Sharing the partitions of DataFrames: what is shared, beside what Spark says that it is.

Invariants: expected values are Spark's own or written down; nothing is left in a test's store.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from spark_lab import BATCH_ROWS, settings

import shmarrow as sa
from shmarrow import spark as sas
from shmarrow.spark._pyspark import parallelism
from shmarrow.spark.sharing import OVERHEAD, rechunked

pa = pytest.importorskip("pyarrow")
pytestmark = [
    pytest.mark.filterwarnings("ignore:PySpark does not yet:FutureWarning"),  # of the newest pandas
]

PARTITIONS = 4

EVERYTHING = (
    "id",
    "id % 2 = 0 AS bool",
    "CAST(id % 100 AS byte) AS byte",
    "CAST(id AS short) AS short",
    "IF(id % 3 = 0, NULL, CAST(id AS int)) AS int",
    "CAST(id / 7 AS float) AS float",
    "IF(id % 5 = 0, NULL, id / 7) AS double",
    "CAST(id / 8 AS decimal(20, 3)) AS decimal",
    "IF(id % 4 = 0, NULL, repeat('æ', CAST(id % 5 AS int))) AS string",
    "CAST(CAST(id AS string) AS binary) AS binary",
    "IF(id % 7 = 0, NULL, date_add(DATE'1969-12-30', CAST(id AS int))) AS date",
    "timestamp_micros(id * 1000003) AS timestamp",
    "CAST(timestamp_micros(id) AS timestamp_ntz) AS timestamp_ntz",
    "make_dt_interval(0, 0, 0, id) AS interval",
    "CAST(NULL AS int) AS nothing",
    "IF(id % 3 = 1, NULL, array(id, NULL, -id)) AS list",
    "map(CAST(id AS string), id / 2) AS map",
    "named_struct('a', id, 'b', IF(id % 2 = 0, NULL, array(named_struct('c', CAST(id AS string))))) AS struct",
)


def test_every_type_survives(spark: Any, home: str) -> None:
    df = spark.range(0, 2_500, 1, PARTITIONS).selectExpr(*EVERYTHING)
    expected = df.toArrow()
    # What Spark sends to workers is in the session's time zone; what it collects says UTC. The instants are the same.
    local = pa.field("timestamp", pa.timestamp("us", "Europe/Oslo"), nullable=False)
    at = expected.schema.get_field_index("timestamp")
    expected = expected.cast(expected.schema.set(at, local))
    with sas.share(df, home) as frame:
        table = frame.read_all()
        assert frame.schema.to_pyarrow() == expected.schema
        assert table.to_pyarrow().equals(expected)
        assert table.to_pylist() == expected.to_pylist()
        table.validate(full=True)
        assert [handle.partition for handle in frame.handles] == [0, 1, 2, 3]
        assert [handle.num_rows for handle in frame.handles] == [625] * 4
        assert frame.num_rows == len(table) == 2_500
        store = sa.Store(home)
        assert sorted(store.names()) == [f".{frame.name}", *[handle.name for handle in frame.handles]]
        assert [os.stat(store.info(handle.name).path).st_size for handle in frame.handles] == [
            handle.size for handle in frame.handles
        ]
        assert frame.size == sum(handle.size for handle in frame.handles)
        assert all(store.info(handle.name).protected for handle in frame.handles)  # never evicted
        assert os.getpid() not in {handle.pid for handle in frame.handles}


def test_any_names(spark: Any, home: str) -> None:
    names = ["a.b", "a.b", "A.B", "", "c`d", "æ 日本", "a", "a"]
    df = spark.range(0, 6, 1, 2).selectExpr(*["id"] * len(names)).toDF(*names)
    with sas.share(df, home) as frame:
        assert frame.schema.names == names
        assert [column.to_pylist() for column in frame.read_all().columns] == [list(range(6))] * len(names)


def test_rows_without_columns(spark: Any, home: str) -> None:
    with sas.share(spark.range(0, 5, 1, 2).select(), home) as frame:
        assert (frame.num_rows, len(frame.read_all()), frame.schema.names) == (5, 5, [])
        assert [handle.num_rows for handle in frame.handles] == [2, 3]
        df = frame.to_df(spark=spark)
        assert (df.columns, df.count()) == ([], 5)


def test_intervals_of_months_are_refused(spark: Any, home: str) -> None:
    for sql, where in [
        ("INTERVAL '2-3' YEAR TO MONTH", ""),
        ("array(named_struct('m', INTERVAL 1 MONTH))", ", field 'm'"),
    ]:
        with pytest.raises(sa.Unsupported, match=rf"column 'x\.y'{where} is interval .*cast it to int"):
            sas.share(spark.sql(f"SELECT {sql} AS `x.y`"), home)


def test_batches_are_put_together_and_aligned(spark: Any, home: str) -> None:
    df = spark.range(0, 5 * BATCH_ROWS, 1, 1)  # 5 batches of 8 bytes a row
    for target_bytes, batches in [(1, 5), (2 * (8 * BATCH_ROWS + OVERHEAD), 3), (1 << 20, 1)]:
        with sas.share(df, home, target_bytes=target_bytes) as frame:
            table = frame.attach(0)
            assert frame.handles[0].num_record_batches == len(table.batches) == batches
            assert np.concatenate([batch["id"].to_numpy() for batch in table.batches]).tolist() == [*range(5_000)]
            buffers = [buffer for batch in table.batches for buffer in batch["id"].buffers() if buffer is not None]
            assert {buffer.address % 64 for buffer in buffers} == {0}


def test_many_small_batches_are_held_within_bounds() -> None:
    def made(count: int, rows: int) -> Iterator[Any]:
        return (pa.record_batch({"n": pa.array([i] * rows, pa.int64())}) for i in range(count))

    before = pa.total_allocated_bytes()
    most, found = 0, []
    for batch in rechunked(next(made(1, 0)), made(20_000, 1), 1 << 20):
        most = max(most, pa.total_allocated_bytes() - before)
        found += batch["n"].to_pylist()
        assert batch.num_rows <= (1 << 20) // OVERHEAD
    assert found == list(range(20_000))
    assert most < 2 << 20
    assert list(rechunked(next(made(1, 0)), made(1_000, 0), 1)) == []
    alive: list[weakref.ref[Any]] = []

    def watched() -> Iterator[Any]:
        for batch in made(1_000, 0):
            alive.append(weakref.ref(batch))
            yield batch

    assert [batch.num_rows for batch in rechunked(next(made(1, 3)), watched(), 1 << 20)] == [3]
    assert len(alive) == 1_000
    assert sum(each() is not None for each in alive) <= 2


def encoded(batches: Iterator[Any]) -> Iterator[Any]:
    """Two columns that Spark has no type for: each batch with a dictionary of its own."""
    for batch in batches:
        words = pa.array([None if i % 5 == 0 else f"w{i // 300}" for i in batch["id"].to_pylist()]).dictionary_encode()
        offsets = pa.array(range(len(words) + 1), pa.int32())
        yield pa.record_batch({"word": words, "list": pa.ListArray.from_arrays(offsets, words)})


def test_dictionaries_that_differ_between_batches(spark: Any, home: str) -> None:
    expected = [None if i % 5 == 0 else f"w{i // 300}" for i in range(5_000)]
    with sas.share(spark.range(0, 5_000, 1, 2), home, function=encoded, target_bytes=4_000) as frame:
        table = frame.read_all()
        assert table.schema.field("word").type == sa.dictionary(sa.int32(), sa.string())
        assert table["word"].to_pylist() == expected
        assert table["list"].to_pylist() == [[word] for word in expected]
        assert all(handle.num_record_batches > 1 for handle in frame.handles)


def test_no_rows(spark: Any, home: str) -> None:
    some = spark.range(10).selectExpr(*EVERYTHING)
    df = some.where("id < 0")
    utc = {"spark.sql.session.timeZone": "UTC"}  # before 4.2, Python is told no other
    with settings(spark, utc), sas.share(some, home) as full, sas.share(df, home) as frame:
        assert frame.schema == full.schema
        assert (len(frame), frame.num_rows, frame.size) == (0, 0, 0)
        assert frame.read_all().to_pydict() == {name: [] for name in some.columns}
        assert frame.map(lambda table: table, "n long", spark).collect() == []
    with sas.share(df, home, function=encoded) as frame:
        assert frame.schema.names == ["word", "list"]


def test_partitions_without_rows_have_no_object(spark: Any, home: str) -> None:
    with sas.share(spark.range(0, 40, 1, 4).where("id >= 10 AND id < 30"), home) as frame:
        assert [handle.partition for handle in frame.handles] == [1, 2]
        assert frame.read_all()["id"].to_pylist() == list(range(10, 30))


def rows_of(batches: Iterator[Any]) -> Iterator[Any]:
    """Nothing for partition 1, else two batches."""
    for partition in [number for batch in batches for number in batch["id"].to_pylist()]:
        if partition != 1:
            numbers = pa.array([0], pa.uint16())
            yield pa.record_batch({"partition": pa.array([partition], pa.int8()), "number": numbers})
            yield {"partition": np.array([partition], "i1"), "number": np.array([1], "u2")}
            yield None


def test_rows_that_a_function_makes(spark: Any, home: str) -> None:
    with sas.share(spark.range(0, 3, 1, 3), home, function=rows_of) as frame:
        assert frame.read_all().to_pydict() == {"partition": [0, 0, 2, 2], "number": [0, 1, 0, 1]}
        assert frame.schema == sa.schema([("partition", sa.int8()), ("number", sa.uint16())])
        assert frame.spark_schema is None
    with sas.share(spark.range(1), home, function=lambda _: iter(())) as frame:
        assert (frame.num_rows, frame.schema.names, len(frame.read_all())) == (0, [], 0)


def renamed(batches: Iterator[Any]) -> Iterator[Any]:
    for batch in batches:
        yield batch.rename_columns([f"c{batch['id'][0].as_py()}"])


def test_batches_that_disagree(spark: Any, home: str) -> None:
    with pytest.raises(sa.InvalidType, match=r"2 different schemas.*with partition 0, partition 1 has .*'c1'"):
        sas.share(spark.range(0, 2, 1, 2), home, function=renamed)
    with pytest.raises(sa.InvalidType, match=r"a batch has \(c1000: int64\), expected \(c0: int64\) as before"):
        sas.share(spark.range(0, 2 * BATCH_ROWS, 1, 1), home, function=renamed)


def test_a_store_in_a_directory(spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with sas.share(spark.range(0, 10, 1, 2), Path("kept")) as frame:
        assert {handle.store.where for handle in frame.handles} == {str(tmp_path / "kept")}
        assert frame.read_all()["id"].to_pylist() == list(range(10))
        paths = [sa.Store(tmp_path / "kept").info(handle.name).path for handle in frame.handles]
        found = pa.concat_tables([pa.ipc.open_file(pa.memory_map(path)).read_all() for path in paths])
        assert found["id"].to_pylist() == list(range(10))
    assert sa.Store(tmp_path / "kept").names() == []


def test_what_has_no_room_in_the_store(spark: Any, home: str) -> None:
    store = sa.Store(home, capacity=1 << 20)
    with pytest.raises(sa.StoreFull, match=r"no room for .*capacity 1048576, .*store="):
        sas.share(spark.range(0, 250_000, 1, 1), store, target_bytes=1 << 18)
    assert store.names() == []


class Counting:
    """Says in a file how often it was called."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        with open(self.path, "a") as file:
            file.write("x")
        yield from batches


@pytest.mark.parametrize("kind", ["spark", "connect"])
def test_partitions_are_computed_once(kind: str, request: pytest.FixtureRequest, home: str, tmp_path: Path) -> None:
    session = request.getfixturevalue(kind)
    calls = tmp_path / "calls"
    with sas.share(session.range(0, 100, 1, 4), home, function=Counting(calls)) as frame:
        found = frame.map(lambda table: {"n": [len(table)]}, "n long", session)
        assert [row.n for row in found.collect()] == [25] * 4
        before = sa.Store(home).names()
        session.catalog.clearCache()
        both = (
            frame.to_df(spark=session).union(frame.to_df(spark=session)).coalesce(1)
        )  # several partitions in one task
        assert sorted(row.id for row in both.collect()) == sorted([*range(100)] * 2)
        assert calls.read_text() == "xxxx"
        assert sa.Store(home).names() == before
    assert sa.Store(home).names() == []
    with pytest.raises(Exception, match=r"ObjectNotFound: .* was destroyed, .*collect or write them"):
        both.collect()
    assert sa.Store(home).names() == []


def test_parallelism_is_known_without_a_job(spark: Any, connect: Any) -> None:
    assert parallelism(spark) == parallelism(connect) == 2


def test_wrong_arguments(spark: Any, home: str) -> None:
    df = spark.range(1)
    for source, given, error, message in [
        (df, {"target_bytes": 0}, sa.InvalidArgument, "target_bytes must be at least 1, found 0"),
        (df, {"function": "x"}, sa.InvalidType, "function must be callable, found str"),
        (spark, {}, sa.InvalidType, r"share takes a DataFrame: call share\(spark\.range\(n\), function=\.\.\.\)"),
        (spark.sparkContext, {}, sa.InvalidType, r"takes a DataFrame of Spark, found pyspark.*SparkContext$"),
        (pa.table({"a": [1]}), {}, sa.InvalidType, r"found pyarrow\.Table; share_table takes it"),
    ]:
        with pytest.raises(error, match=message):
            sas.share(source, home, **given)


def test_names_that_c_would_cut(spark: Any, home: str) -> None:
    for df, function, message in [
        (spark.range(1).toDF("a\0b"), None, "the DataFrame has a column named 'a.x00b'"),
        (spark.sql("SELECT named_struct('a\\0b', 1) AS s"), None, "column 's' has a field named 'a.x00b'"),
        (spark.range(1), lambda _: [pa.table({"a\0b": [1]})], "the function returned a column named 'a.x00b'"),
    ]:
        with pytest.raises(sa.InvalidType, match=rf"{message}: names in Arrow end at NUL"):
            sas.share(df, home, function=function)


def test_workers_without_the_package(spark: Any, home: str) -> None:
    def imports(batches: Iterator[Any]) -> Iterator[Any]:
        raise ModuleNotFoundError("No module named 'shmarrow'")

    with pytest.raises(sa.MissingExtra, match=r"workers does not have shmarrow; set os\.environ\[.PYSPARK_PYTHON"):
        sas.share(spark.range(1), home, function=imports)
