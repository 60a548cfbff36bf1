"""Shared frames: what handles reach, in other jobs, in other processes, and after they are destroyed."""

from __future__ import annotations

import errno
import pickle
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from environment import torch_or_skip
from processes import ended, forked
from spark_maps import file_of

import shmarrow as sa
from shmarrow import spark as sas

pa = pytest.importorskip("pyarrow")
pytest.importorskip("pyspark")
from pyspark.ml.linalg import Vectors, VectorUDT  # noqa: E402
from pyspark.sql.types import LongType, StructField, StructType  # noqa: E402

pytestmark = [
    pytest.mark.filterwarnings("ignore:PySpark does not yet:FutureWarning"),  # of the newest pandas
]

PARTITIONS = 4


def count_and_place(table: sa.Table) -> sa.RecordBatch:
    """A worker's view of its partition, and the file of its array according to the kernel."""
    values = table["value"].chunk(0).to_numpy()
    return sa.record_batch({"rows": [len(values)], "sum": [int(values.sum())], "name": [file_of(values)]})


def test_handles_travel_to_another_job(spark: Any, home: str) -> None:
    df = spark.range(0, 20_000, 1, PARTITIONS).selectExpr("id * id AS value")
    (expected,) = df.selectExpr("count(*)", "sum(value)").collect()
    with sas.share(df, home) as frame:
        again = pickle.loads(pickle.dumps(frame))
        found = again.map(count_and_place, "rows int, sum long, name string", spark)
        files = {str(sa.Store(home).info(handle.name).path) for handle in frame.handles}
        assert {row["name"] for row in found.collect()} == files
        assert found.selectExpr("sum(rows)", "sum(sum)").collect() == [expected]


def halves(table: sa.Table) -> Iterator[Any]:
    for batch in table.batches:
        yield batch.slice(0, 5)
        yield pa.record_batch(batch.slice(5))


def test_functions_that_yield_batches(spark: Any, home: str) -> None:
    """What else functions may return is in ``test_spark_results.py``."""
    schema = StructType([StructField("id", LongType(), False)])
    with sas.share(spark.range(0, 30, 1, 3), home) as frame:
        both = frame.map(halves, schema, spark)
        assert both.schema == schema
        assert [row.id for row in both.collect()] == list(range(30))


def test_mistakes_that_need_no_job(spark: Any, home: str) -> None:
    with sas.share(spark.range(3).where("id > 5"), home) as frame:
        for function, schema, error, message in [
            (len, "long", sa.InvalidType, "schema: expected names and types.*found 'long', which is the type bigint"),
            (len, 5, sa.InvalidType, "schema: expected .* or a StructType, found int"),
            (len, "a int, a long", sa.InvalidType, "schema: 2 columns are named 'a'"),
            (len, "a int, b interval month", sa.InvalidType, "column 'b': .* no type for interval month"),
            (3, "a int", sa.InvalidType, "expected a function, found int"),
        ]:
            with pytest.raises(error, match=message):
                frame.map(function, schema, spark)  # type: ignore[arg-type]
        for call in (frame.map, frame.with_columns):
            with pytest.raises(sa.InvalidType, match=rf"call frame\.{call.__name__}\(function, schema\)"):
                call(spark, len, "a int")  # type: ignore[arg-type,call-arg]
        with pytest.raises(sa.InvalidType, match=r"is optional: call frame\.to_df\(columns\)"):
            frame.to_df(spark)
        for columns, error in [(["x"], sa.FieldNotFound), ("id", sa.InvalidType)]:
            with pytest.raises(error):
                frame.to_df(columns)
        with pytest.raises(sa.InvalidType, match="expected a SparkSession, found int"):
            frame.map(len, "a int", 3)  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", ["spark", "connect"])
def test_the_session_is_optional(kind: str, request: pytest.FixtureRequest, home: str) -> None:
    """A frame has the session that made it; other data get the active one."""
    session = request.getfixturevalue(kind)
    with sas.share(session.range(0, 4, 1, 2), home) as frame:
        with pytest.raises(sa.InvalidArgument, match=r"schema 'n lon': Spark cannot parse it: .*LON"):
            frame.map(len, "n lon")
        with pytest.raises(Exception, match=r"InvalidType: the function returned .* it lacks 'n'"):
            frame.map(lambda table: table, "n long").collect()
        with pytest.raises(Exception, match=r"InvalidType: expected from the function: .* found None; it may lack a"):
            frame.map(lambda table: None, "n long").collect()
        with pytest.raises(sa.InvalidType, match=r"expected from the function: .* found None; it may lack a `return`"):
            sas.share(session.range(3), home, function=lambda batches: None)
        found = frame.map(lambda table: table, "id long")
        assert found.sparkSession is session
        assert sorted(row.id for row in found.collect()) == [0, 1, 2, 3]
        assert frame.to_df().sparkSession is session
        with frame.with_columns(lambda table: {"n": [1] * len(table)}, "n int") as wider:
            assert wider.to_df(["n"]).columns == ["n"]
            assert [tuple(row) for row in wider.to_df(["n", 0]).collect()] == [(1, i) for i in range(4)]
        if kind == "spark":
            again = pickle.loads(pickle.dumps(frame))
            assert again.map(lambda table: table, "id long").sparkSession is type(session).active()
            with sas.share_table(sa.table({"x": [1, 2]}), store=home) as table, sas.broadcast(7, store=home) as value:
                assert table.to_df().toPandas()["x"].tolist() == [1, 2]
                assert value.value == 7


def test_partitions_beside_those_of_another_frame(spark: Any, home: str) -> None:
    """Of equally many by one key; partitions without rows in one of them, or in both, are there, too."""
    left = spark.range(0, 40).where("id % 7 < 5").repartition(13, "id")
    right = spark.range(0, 60, 3).selectExpr("id", "id * 2 AS twice").repartition(13, "id")

    def inner(mine: sa.Table, theirs: sa.Table) -> dict[str, Any]:
        twice = dict(zip(theirs["id"].to_pylist(), theirs["twice"].to_pylist(), strict=True))
        ids = [number for number in mine["id"].to_pylist() if number in twice]
        return {"id": ids, "twice": [twice[number] for number in ids]}

    with sas.share(left, home) as one, sas.share(right, home) as two, sas.share(left.repartition(3), home) as other:
        assert (one.num_partitions, two.num_partitions) == (13, 13)
        assert len(one) < 13
        found = one.map(inner, "id long, twice long", beside=two)
        assert sorted(found.collect()) == sorted(left.join(right, "id").collect())
        counts = two.map(lambda mine, theirs: {"n": [len(theirs)]}, "n long", beside=one)
        assert sum(row.n for row in counts.collect()) == left.count()
        with one.with_columns(lambda table: {"n": table["id"]}, "n long") as wider:
            assert wider.num_partitions == 13
            assert wider.map(inner, "id long, twice long", beside=two).count() == found.count()
        with pytest.raises(sa.InvalidArgument, match="beside: it has 3 partitions, expected 13 as this frame"):
            one.map(inner, "id long, twice long", beside=other)
        with pytest.raises(sa.InvalidType, match=r"beside: expected a shared frame, found .*DataFrame"):
            one.map(inner, "id long, twice long", beside=left)


# --- back to Spark ----------------------------------------------------------------------------------------------

RARE = (
    "make_dt_interval(0, 0, 0, id) AS days",
    "parse_json(concat('{\"a\":', id, '}')) AS variant",
    "IF(id % 2 = 0, NULL, ST_GeomFromWKB(X'0101000000000000000000F03F0000000000000040')) AS geometry",
    "NULL AS void",
    "collate(CAST(id AS string), 'UNICODE_CI') AS collated",
    "map(id, map('a', array(id, NULL))) AS maps",
    "named_struct('x.y', id, '', 2) AS odd",
    "array(timestamp'1800-01-01 00:00:00.000001', timestamp_micros(id), timestamp'9999-12-30') AS times",
    "CAST(timestamp_micros(id) AS timestamp_ntz) AS local",
    "array(date'0001-01-01', NULL, date'9999-12-31') AS dates",
    "CAST(id AS decimal(38,18)) AS decimal",
    "CAST('ab' AS varchar(5)) AS varchar",
    "id AS `a.b`",
    "id + 1 AS `a.b`",
)


def test_to_df_is_what_was_shared(spark: Any, home: str) -> None:
    spark.conf.set("spark.sql.geospatial.enabled", True)  # which 4.1 has off
    vectors = spark.createDataFrame(
        [(3, Vectors.dense([1.0, 2.0])), (4, None), (5, Vectors.sparse(3, [1], [2.0]))],
        StructType([StructField("id", LongType()), StructField("vector", VectorUDT())]),
    )
    df = spark.range(0, 6, 1, 2).join(vectors, "id", "left").selectExpr("vector", *RARE)
    with sas.share(df, home) as frame:
        again = frame.to_df(spark=spark)
        assert again.schema == df.schema
        columns = [f"c{i}" for i in range(len(df.columns))]

        def rows(each: Any) -> list[Any]:  # Spark compares no variants and geometries
            return [repr(row) for row in sorted(each.toDF(*columns).collect(), key=lambda row: row["c13"])]

        assert rows(again) == rows(df)


@pytest.mark.parametrize("kind", ["spark", "connect"])
def test_columns_keep_their_metadata(kind: str, request: pytest.FixtureRequest, home: str) -> None:
    """Comments, labels of pyspark.ml and all else, in each frame that has rows of the DataFrame."""
    spark = request.getfixturevalue(kind)
    said = {"comment": "a & b", "ml_attr": {"vals": ["x", "y"], "type": "nominal"}}
    df = spark.range(4).selectExpr("id", "id AS kind").withMetadata("kind", said)
    more = StructType([StructField("more", LongType(), False, {"unit": "m"})])

    def metadata(frame: Any) -> dict[str, Any]:
        return {field.name: field.metadata for field in frame.to_df().schema if field.metadata}

    with sas.share(df, home) as frame, sas.share(df, home, function=iter) as computed:
        for each in (frame, computed, pickle.loads(pickle.dumps(frame))):
            assert metadata(each) == {"kind": said}
            with each.with_columns(lambda table: {"more": table["id"]}, more) as wider:
                assert metadata(wider) == {"kind": said, "more": {"unit": "m"}}
            with each.with_columns(lambda table: {"kind": table["id"]}, "kind long") as other:
                assert metadata(other) == {}
        with frame.with_columns(lambda table: {"more": table["id"]}, more) as wider:
            assert wider.to_df().schema == StructType([*df.schema, *more])
    with sas.share_table(df.toArrow(), spark, home) as frame:
        assert metadata(frame) == {"kind": said}


def test_to_df_of_what_spark_has_not_seen(spark: Any, home: str) -> None:
    def made(batches: Iterator[Any]) -> Any:
        (partition,) = [number for batch in batches for number in batch["id"].to_pylist()]
        words = pa.array(["a", "b", "a"]).dictionary_encode()
        return pa.table(
            {"word": words, "n": pa.array([1, partition, 3], pa.uint16()), "x": pa.array([None] * 3, pa.float16())}
        )

    with sas.share(spark.range(0, 2, 1, 2), home, function=made) as frame:
        df = frame.to_df(spark=spark)
        assert df.dtypes == [("word", "string"), ("n", "int"), ("x", "float")]
        assert [tuple(row) for row in df.collect()] == [
            (word, n, None) for partition in (0, 1) for word, n in zip("aba", (1, partition, 3), strict=True)
        ]
    intervals = spark.sql("SELECT make_interval(1, 2) AS `i.j` WHERE false")
    with (
        sas.share(intervals, home) as frame,
        pytest.raises(sa.InvalidType, match=r"column 'i\.j': Spark's Arrow code has no type for interval"),
    ):
        frame.to_df(spark=spark)


# --- to torch ---------------------------------------------------------------------------------------------------


def test_ranks_and_lost_partitions(spark: Any, home: str) -> None:
    torch = torch_or_skip()
    from torch.utils.data import DataLoader

    from shmarrow.torch import BatchDataset, collate

    df = spark.range(0, 10, 1, 3).selectExpr("id", "id / 2 AS half", "concat('w', id) AS word")
    with sas.share(df, home) as frame:
        whole = BatchDataset(frame, columns=["id", "half"])
        assert whole[:]["id"].tolist() == list(range(10))
        assert set(whole[0]) == {"id", "half"}
        parts = [BatchDataset(frame, rank=rank, world_size=4) for rank in range(4)]
        assert [part[:]["id"].tolist() for part in parts] == [[0, 1, 2], [2, 3, 4], [5, 6, 7], [7, 8, 9]]
        loader = DataLoader(BatchDataset(frame, rank=1, world_size=2), batch_size=2, num_workers=2, collate_fn=collate)
        assert torch.cat([batch["id"] for batch in loader]).tolist() == [5, 6, 7, 8, 9]
        assert frame.read_rows(2, 7)["word"].to_pylist() == ["w2", "w3", "w4", "w5", "w6"]
        for start, stop in [(-1, 2), (3, 2), (0, 11)]:
            with pytest.raises(sa.IndexOutOfRange, match="the frame has 10"):
                frame.read_rows(start, stop)
        # Rows 0 to 3 stay.
        store = sa.Store(home)
        for handle in frame.handles[1:]:
            store.delete(handle.name)
        assert BatchDataset(frame, rank=0, world_size=4)[:]["id"].tolist() == [0, 1, 2]
        with pytest.raises(sa.ObjectNotFound, match=r"partition 1: .*destroyed"):
            BatchDataset(frame, rank=1, world_size=4)
        with pytest.raises(sa.ObjectNotFound, match=r"2 of 3 partitions cannot .* numbers 1 .*, 2 .*destroyed"):
            BatchDataset(frame)
        elsewhere = frame.store._replace(id="0" * 32)
        far = [replace(frame.handles[0], store=elsewhere, host="far"), *frame.handles[1:]]
        with pytest.raises(sa.StorageError, match=r"3 of 3 partitions .* is not on this host") as caught:
            sas.SharedFrame(frame.store, frame.name, frame.schema, far).read_all()
        assert caught.value.errno == errno.EREMOTE
        with pytest.raises(sa.StorageError, match=r"partition 0: .* on host 'far', .* is not on this host"):
            far[0].attach()


def test_rows_of_this_host_are_as_many_as_on_the_others(spark: Any, home: str) -> None:
    with sas.share(spark.range(0, 10, 1, 3), home) as frame:  # 3, 3 and 4 rows
        assert frame.local()["id"].to_pylist() == list(range(10))
        elsewhere = frame.store._replace(id="0" * 32)

        def local(*far: int) -> list[int]:
            handles = [
                replace(handle, store=elsewhere, host="far") if handle.partition in far else handle
                for handle in frame.handles
            ]
            found: list[int] = sas.SharedFrame(frame.store, frame.name, frame.schema, handles).local()["id"].to_pylist()
            return found

        assert local(2) == [0, 1, 2, 3]
        assert local(0) == [3, 4, 5]
        assert local(0, 1) == [6, 7, 8, 9]
        with pytest.raises(sa.StorageError, match=r"no partition of the frame is on host .*: they are on 'far'"):
            local(0, 1, 2)
    with sas.share(spark.range(0), home) as frame:
        assert frame.local().num_rows == 0


# --- the end of a frame -----------------------------------------------------------------------------------------


def test_memory_outlives_its_names(spark: Any, home: str) -> None:
    frame = sas.share(spark.range(100), home)
    table = frame.read_all()
    store = sa.Store(home)
    others = ["frame", f"{frame.name}0", f"{frame.name}0/00000-0", "other"]
    for name in others:
        store.put(name, b"")
    with frame:  # a child that leaves the block removes nothing
        ended(forked(lambda: frame.__exit__(None, None, None)))
        assert len(frame.read_all()) == 100
    frame.destroy()
    assert store.names() == others
    for index in (2, -3):
        with pytest.raises(sa.IndexOutOfRange, match=f"partition {index} is out of range: the frame has 2"):
            frame.attach(index)
    with pytest.raises(sa.InvalidType):
        frame.attach("a")  # type: ignore[arg-type]
    for wrong in ["", "other", f"{frame.name}0", frame.name[:-1]]:
        with pytest.raises(sa.InvalidArgument, match="16 hexadecimal digits, found"):
            sas.SharedFrame(frame.store, wrong, frame.schema, [])
    store.clear()
    assert sum(table["id"].to_pylist()) == sum(range(100))
    with pytest.raises(sa.ObjectNotFound, match=r"partition 0: .*destroyed"):
        frame.attach(0)


def doubled(table: sa.Table) -> sa.RecordBatch:
    values = table["value"].to_numpy(zero_copy_only=False)
    return sa.record_batch({"double": values * 2, "value": values + 1, "partition": [values[0]] * len(values)})


def too_short(table: sa.Table) -> sa.RecordBatch:
    return sa.record_batch({"double": [0]})


ADDED = "double long, value long, partition long"


def test_a_frame_with_columns_more_writes_only_these(spark: Any, home: str) -> None:
    """One new column that replaces another, two that come after; the first frame may end before the second."""
    df = spark.range(0, 40_000, 1, PARTITIONS).selectExpr("id", "id * id AS value", "cast(id AS string) AS text")
    store = sa.Store(home)
    with sas.share(df, home) as frame:
        before = frame.read_all().to_pydict()
        for given in (frame, pickle.loads(pickle.dumps(frame))):
            wider = given.with_columns(doubled, ADDED, spark)
            assert [wider.schema.names, wider.num_rows] == [["id", "value", "text", "double", "partition"], 40_000]
            for handle, first in zip(wider.handles, frame.handles, strict=True):
                info = store.info(handle.name)
                assert list(info.sources) == [first.name]
                assert info.allocated < 3 * 8 * handle.num_rows + 65_536
            wider.destroy()
        wider = frame.with_columns(doubled, ADDED, spark)
    with wider:
        found = wider.read_all().to_pydict()
        assert found["id"] == before["id"]
        assert found["text"] == before["text"]
        assert found["value"] == [value + 1 for value in before["value"]]
        assert found["double"] == [value * 2 for value in before["value"]]
        total = wider.map(count_rows, "rows long", spark).agg({"rows": "sum"}).first()[0]
        assert total == 40_000
        assert wider.to_df(spark=spark).selectExpr("sum(double)").first()[0] == sum(found["double"])
    assert store.names("frame-") == []


def count_rows(table: sa.Table) -> sa.RecordBatch:
    return sa.record_batch({"rows": [table.num_rows]})


def test_frames_with_columns_that_do_not_fit(spark: Any, home: str) -> None:
    with sas.share(spark.range(0, 100, 1, 2).selectExpr("id AS value"), home) as frame:
        names = sa.Store(home).names()
        with pytest.raises(Exception, match="the new columns have 1 row, expected 50 as in the partition"):
            frame.with_columns(too_short, "double long", spark)
        assert sa.Store(home).names() == names
        with pytest.raises(sa.InvalidType, match="expected a function"):
            frame.with_columns(3, "double long", spark)
    with sas.share(spark.range(0, 0, 1, 2).selectExpr("id AS value"), home) as empty:
        wider = empty.with_columns(doubled, ADDED, spark)
        assert wider.schema.names == ["value", "double", "partition"]
        wider.destroy()
