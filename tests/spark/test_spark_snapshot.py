"""A frame keeps its rows, whatever happens to its source, Spark's cache or its executors."""

from __future__ import annotations

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


@pytest.mark.parametrize("kind", ["spark", "connect"])
def test_what_happens_to_the_source_does_not_change_the_rows(
    kind: str, request: pytest.FixtureRequest, home: str, tmp_path: Path
) -> None:
    spark = request.getfixturevalue(kind)
    path = str(tmp_path / "source")
    spark.range(0, 10, 1, 2).write.parquet(path)
    with sas.share(spark.read.parquet(path), home) as frame:
        lazily = frame.map(ids, "id long", spark)
        objects = sa.Store(home).names()
        with frame.with_columns(twice, "twice long", spark) as wider:
            for change in (append, overwrite, clear_cache):
                change(spark, path)
                for rows in (lazily, frame.map(ids, "id long", spark), frame.to_df(spark=spark)):
                    assert sorted(row["id"] for row in rows.collect()) == list(range(10)), change
            assert sorted(row["twice"] for row in wider.to_df(spark=spark).collect()) == list(range(0, 20, 2))
            assert sorted(wider.read_all()["twice"].to_pylist()) == list(range(0, 20, 2))
        assert sorted(frame.read_all()["id"].to_pylist()) == list(range(10))
        assert sa.Store(home).names() == objects
