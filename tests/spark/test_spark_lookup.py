"""Lookups in shared frames, beside Spark's own left join."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest

import shmarrow as sa
from shmarrow import spark as sas

pa = pytest.importorskip("pyarrow")
pytest.importorskip("pyspark")
pd = pytest.importorskip("pandas")

LEFT = """SELECT id AS row, IF(id % 7 = 0, NULL, id % 50) AS n, CAST(id % 3 AS tinyint) AS small,
    IF(id % 11 = 0, NULL, concat('key ', id % 60)) AS word, CAST(id % 40 AS decimal(20, 2)) AS d,
    timestamp_seconds(id % 30) AS t, date_add(DATE'2020-01-01', CAST(id % 20 AS int)) AS day
    FROM range(0, 1000, 1, 3)"""
RIGHT = """SELECT id AS n, CAST(id % 3 AS int) AS small, concat('key ', id) AS word, CAST(id AS decimal(20, 2)) AS d,
    timestamp_seconds(id) AS t, date_add(DATE'2020-01-01', CAST(id AS int)) AS day,
    IF(id % 5 = 0, NULL, id * 1.5D) AS value, array(id, NULL) AS `list.of`, concat('value ', id) AS text
    FROM range(0, 45, 1, 4)"""


@pytest.mark.parametrize("on", [["n"], ["d", "t"], ["word", "day", "small"]])
def test_beside_a_join(spark: Any, home: str, on: list[str]) -> None:
    left, right = spark.sql(LEFT), spark.sql(RIGHT)
    added = ["value", "list.of", "text"]
    with sas.share(right, home, target_bytes=100) as frame:
        found = sas.lookup(left, frame, on, added)
        quoted = [f"`{name}`" for name in added]
        expected = left.join(right.select(*on, *quoted), on, "left").select(*left.columns, *quoted)
        assert found.columns == expected.columns
        assert found.dtypes == expected.dtypes
        rows = found.collect()
        assert sorted(map(tuple, rows)) == sorted(map(tuple, expected.collect()))
        assert found.rdd.getNumPartitions() == 3
        assert len([name for name in sa.Store(home).names() if "/index-" in name]) == 1
        again = sas.lookup(found.drop("text"), frame, on, ["text"])  # the index is there
        assert again.where("text = 'value 3'").count() == sum(row.text == "value 3" for row in rows) > 0
        assert len([name for name in sa.Store(home).names() if "/index-" in name]) == 1


def test_a_table_of_the_driver(spark: Any, store: sa.Store) -> None:
    """Types that Spark does not have are compared as those that they become, and other names are given as a mapping."""
    table = pa.table({
        "key": pa.array(["a", "b", None, "a.b"]).dictionary_encode(),
        "when": pa.array([0, 1000, 2000, 3000], pa.timestamp("ns", "UTC")),
        "small": pa.array([1, 2, 3, 4], pa.uint8()),
    })  # fmt: skip
    df = spark.createDataFrame([("a", 1), ("a.b", 4), ("z", 2), (None, 3)], "`the.key` string, n long")
    with sas.share_table(table, spark, store, partitions=2) as frame:
        by_text = sas.lookup(df, frame, {"the.key": "key"}, ["small"])
        assert [(row[0], row.small) for row in by_text.collect()] == [("a", 1), ("a.b", 4), ("z", None), (None, None)]
        by_number = sas.lookup(df, frame, {"n": "small"}, ["key"])
        assert [tuple(row)[1:] for row in by_number.collect()] == [(1, "a"), (4, "a.b"), (2, "b"), (3, None)]
        every = sas.lookup(df.select("n"), frame, {"n": "small"})
        assert every.dtypes == [("n", "bigint"), ("key", "string"), ("when", "timestamp")]
    with sas.share_table(table.slice(0, 0), spark, store) as frame:
        assert [row.small for row in sas.lookup(df, frame, {"the.key": "key"}, ["small"]).collect()] == [None] * 4


@pytest.mark.parametrize("how", ["left", "inner", "semi", "anti"])
def test_every_kind_of_join(spark: Any, home: str, how: str) -> None:
    """Also with a filter on a column that was looked up, which Spark must not compute twice."""
    left, right = spark.sql(LEFT), spark.sql(RIGHT).select("n", "value", "text")
    with sas.share(right, home) as frame:
        found = sas.lookup(left, frame, "n", how=how)
        expected = left.join(right, "n", how).select(found.columns)
        if how in ("left", "inner"):
            found, expected = (each.where("value > 20 OR value IS NULL") for each in (found, expected))
        assert found.dtypes == expected.dtypes
        assert sorted(map(str, found.collect())) == sorted(map(str, expected.collect()))
        plan = found._jdf.queryExecution().executedPlan().toString()
        assert plan.count("looked_up(") == 1
        assert found.count() == expected.count()


def test_integers_of_any_sizes(spark: Any, home: str) -> None:
    large = [1 << 63, 5, (1 << 64) - 1]
    with sas.share_table(pa.table({"u": pa.array(large, pa.uint64()), "v": ["a", "b", "c"]}), spark, home) as frame:
        found = sas.lookup(spark.sql("SELECT explode(array(5L, -1L, 0L, NULL)) AS id"), frame, {"id": "u"})
        assert [row.v for row in found.collect()] == ["b", None, None, None]
        decimals = spark.sql("SELECT explode(array(18446744073709551615BD, CAST(5 AS decimal(20,0)))) AS id")
        assert [row.v for row in sas.lookup(decimals, frame, {"id": "u"}).collect()] == ["c", "b"]


def test_rows_of_any_size_come_in_pieces(spark: Any, home: str) -> None:
    """In Spark, two thousand rows of 300 kB; beside that, pieces of columns of all layouts."""
    with sas.share_table(pa.table({"k": [1, 2], "v": [b"x" * 300_000, b""]}), spark, home) as frame:
        found = sas.lookup(spark.range(0, 2000, 1, 1).selectExpr("1 AS k"), frame, "k")
        assert found.selectExpr("sum(length(v))").first()[0] == 2000 * 300_000
    long = "x" * 100_000
    text = pa.array([long, "a"])
    for values in (text, text.cast(pa.string_view()), text.dictionary_encode(), pa.array([[long], []])):
        with sas.share_table(pa.table({"k": [1, 2], "v": values}), spark, home) as frame:
            index = frame.index("k")
            pieces = list(index.pieces(index.find([1] * 500 + [2] * 500 + [3])))
            assert sum(map(len, pieces)) == 1001
            assert 10 <= len(pieces) <= 20


def test_an_index_in_functions(spark: Any, home: str) -> None:
    """In every kind of function of Spark, in this process, and no longer than its frame."""
    from pyspark.sql.functions import pandas_udf

    right = spark.sql("SELECT id * 3 AS k, concat('v', id) AS v, id / 2 AS w FROM range(0, 100, 1, 3)")
    wanted = [f"v{i // 3}" if i % 3 == 0 else None for i in range(50)]
    with sas.share(right, home) as frame:
        index = frame.index("k")
        assert len(pickle.dumps(index)) < 400
        assert index.take(range(50), columns=["v"])["v"].to_pylist() == wanted
        assert index.find([3, 4, None]).tolist() == [frame.read_all()["k"].to_pylist().index(3), -1, -1]

        def in_arrow(batches: Iterator[Any]) -> Iterator[Any]:
            for batch in batches:
                yield pa.record_batch({"v": pa.array(index.take(batch["id"], columns=["v"])["v"].combine_chunks())})

        @pandas_udf("string")
        def in_pandas(ids: pd.Series) -> pd.Series:
            return index.take(ids)["v"].to_pandas()

        df = spark.range(0, 50, 1, 2)
        assert [row.v for row in df.mapInArrow(in_arrow, "v string").collect()] == wanted
        assert [row[0] for row in df.select(in_pandas("id")).collect()] == wanted
        with sas.share(df, home) as keys:
            rows = keys.map(lambda part: {"v": index.take(part["id"])["v"]}, "v string").collect()
        assert [row.v for row in rows] == wanted
        numbers = df.rdd.mapPartitions(lambda rows: iter(index.find([row.id for row in rows]).tolist())).collect()
        assert [number >= 0 for number in numbers] == [value is not None for value in wanted]
        assert len([name for name in sa.Store(home).names() if "/index-" in name]) == 1
        for call, message in [
            (lambda: index.find([1], [2]), "the key is 'k': expected an array for each, found 2"),
            (lambda: frame.index([]), "on must name the columns of the key"),
        ]:
            with pytest.raises(sa.InvalidArgument, match=message):
                call()
        with pytest.raises(sa.InvalidType, match="column 'w': double is no type of keys"):
            frame.index("w")
    with pytest.raises(sa.ObjectNotFound, match="its frame was destroyed"):
        index.find([1])


def test_spark_connect(connect: Any, home: str) -> None:
    right = connect.sql("SELECT id, id * 2 AS twice FROM range(10)")
    with sas.share(right, home) as frame:
        found = sas.lookup(connect.range(8, 12, 1, 2), frame, "id")
        assert [tuple(row) for row in found.collect()] == [(8, 16), (9, 18), (10, None), (11, None)]


def test_keys_that_are_not_unique(spark: Any, home: str) -> None:
    with sas.share(spark.sql("SELECT id % 4 AS k, id AS v FROM range(0, 5, 1, 1)"), home) as frame:
        for call in (partial(sas.lookup, spark.range(3), frame, {"id": "k"}), partial(frame.index, "k")):
            with pytest.raises(sa.InvalidData, match=r"rows 0 and 4 have the same key \(0\), expected each key once"):
                call()


def test_what_is_refused(spark: Any, home: str) -> None:
    df = spark.createDataFrame([(1, "a", 1.0)], "id long, word string, x double")
    right = spark.createDataFrame([(1, "a", 1.0, 2.0, True)], "id int, word string, x double, X2 double, flag boolean")
    with sas.share(right, home) as frame:
        for on, columns, error, message in [
            ("id", None, sa.InvalidArgument, "the DataFrame has a column 'word', too: rename it, or choose others"),
            ("id", ["X2", "X2"], sa.InvalidArgument, "has a column 'X2', too"),
            ("id", [], sa.InvalidArgument, "there is no column to add"),
            ([], ["X2"], sa.InvalidArgument, r"on must name the columns of the key, found \[\]"),
            ("id", ["none"], sa.FieldNotFound, "none"),
            ({"id": "none"}, ["X2"], sa.FieldNotFound, "none"),
            (
                {"id": "word"},
                ["X2"],
                sa.InvalidType,
                "key 'id': it is bigint in the DataFrame, and string in the frame",
            ),
            ("x", ["X2"], sa.InvalidType, "column 'x': double is no type of keys; expected integers, text, binary"),
        ]:
            with pytest.raises(error, match=message):
                sas.lookup(df, frame, on, columns)  # type: ignore[arg-type]
        with pytest.raises(Exception, match="none"):
            sas.lookup(df, frame, {"none": "id"}, ["X2"])
        with pytest.raises(
            sa.InvalidArgument, match="how: expected one of 'left', 'inner', 'semi', 'anti', found 'out"
        ):
            sas.lookup(df, frame, "id", how="outer")
        with pytest.raises(sa.InvalidArgument, match="how='semi' adds no columns, but columns= names some"):
            sas.lookup(df, frame, "id", ["X2"], how="semi")
        with pytest.raises(
            sa.InvalidType, match=r"takes a DataFrame of Spark and a shared frame, found .*SharedFrame and"
        ):
            sas.lookup(frame, df, "id")  # type: ignore[arg-type]
