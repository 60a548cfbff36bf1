"""Lookups in shared frames, beside Spark's own left join."""

from __future__ import annotations

from typing import Any

import pytest

import shmarrow as sa
from shmarrow import spark as sas

pa = pytest.importorskip("pyarrow")
pytest.importorskip("pyspark")

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


def test_spark_connect(connect: Any, home: str) -> None:
    right = connect.sql("SELECT id, id * 2 AS twice FROM range(10)")
    with sas.share(right, home) as frame:
        found = sas.lookup(connect.range(8, 12, 1, 2), frame, "id")
        assert [tuple(row) for row in found.collect()] == [(8, 16), (9, 18), (10, None), (11, None)]


def test_keys_that_are_not_unique(spark: Any, home: str) -> None:
    with sas.share(spark.sql("SELECT id % 4 AS k, id AS v FROM range(0, 5, 1, 1)"), home) as frame:
        found = sas.lookup(spark.range(3), frame, {"id": "k"})
        with pytest.raises(
            Exception, match=r"InvalidData: rows 0 and 4 have the same key \(0\), expected each key once"
        ):
            found.collect()


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
            ("x", ["X2"], sa.InvalidType, "key 'x': double is no type of keys; expected integers or binary, boolean"),
        ]:
            with pytest.raises(error, match=message):
                sas.lookup(df, frame, on, columns)  # type: ignore[arg-type]
        with pytest.raises(Exception, match="none"):
            sas.lookup(df, frame, {"none": "id"}, ["X2"])
        with pytest.raises(
            sa.InvalidType, match=r"takes a DataFrame of Spark and a shared frame, found .*SharedFrame and"
        ):
            sas.lookup(frame, df, "id")  # type: ignore[arg-type]
