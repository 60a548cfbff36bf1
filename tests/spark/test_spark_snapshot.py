"""A frame keeps its rows, whatever happens to its source, Spark's cache or its executors."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import shmarrow as sa
from shmarrow import spark as sas

pytest.importorskip("pyspark")


def ids(table: sa.Table) -> sa.Table:
    return table.select(["id"])


def twice(table: sa.Table) -> dict[str, Any]:
    return {"twice": table["id"].to_numpy() * 2}


def append(spark: Any, path: str) -> None:
    spark.range(10, 20, 1, 2).write.mode("append").parquet(path)


def overwrite(spark: Any, path: str) -> None:
    spark.range(100, 105, 1, 1).write.mode("overwrite").parquet(path)


def clear_cache(spark: Any, path: str) -> None:
    spark.catalog.clearCache()


@pytest.mark.parametrize("kind", ["classic", "connect"])
@pytest.mark.parametrize("change", [append, overwrite, clear_cache])
def test_what_happens_to_the_source_does_not_change_the_rows(
    kind: str, change: Callable[[Any, str], None], request: pytest.FixtureRequest, home: str, tmp_path: Path
) -> None:
    spark = request.getfixturevalue("spark" if kind == "classic" else "connect")
    path = str(tmp_path / "source")
    spark.range(0, 10, 1, 2).write.parquet(path)
    with sas.share(spark.read.parquet(path), home) as frame:
        lazily = frame.map(ids, "id long", spark)
        objects = sa.Store(home).names()
        change(spark, path)
        assert sorted(frame.read_all()["id"].to_pylist()) == list(range(10))
        for rows in (lazily, frame.map(ids, "id long", spark), frame.to_df(spark=spark)):
            assert sorted(row["id"] for row in rows.collect()) == list(range(10))
        with frame.with_columns(twice, "twice long", spark) as wider:
            change(spark, path)
            assert sorted(wider.read_all()["twice"].to_pylist()) == list(range(0, 20, 2))
            assert sorted(row["twice"] for row in wider.to_df(spark=spark).collect()) == list(range(0, 20, 2))
        assert sa.Store(home).names() == objects


def test_an_insert_into_the_table_does_not_change_the_rows(spark: Any, home: str, tmp_path: Path) -> None:
    spark.sql(f"CREATE TABLE shmarrow_rides (id LONG) USING parquet LOCATION '{tmp_path}/table'")
    try:
        spark.sql("INSERT INTO shmarrow_rides SELECT id FROM range(10)")
        with sas.share(spark.table("shmarrow_rides"), home) as frame:
            spark.sql("INSERT INTO shmarrow_rides SELECT id FROM range(10, 20)")
            assert frame.num_rows == frame.map(ids, "id long", spark).count() == frame.to_df(spark=spark).count() == 10
    finally:
        spark.sql("DROP TABLE shmarrow_rides")
