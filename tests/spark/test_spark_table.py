"""Tables of the driver as shared frames, on one host; others are in ``test_spark_cluster.py`` and the like."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest
from spark_maps import file_of

import shmarrow as sa
from shmarrow import spark as sas

pa = pytest.importorskip("pyarrow")
pd = pytest.importorskip("pandas")
pytestmark = [pytest.mark.filterwarnings("ignore:PySpark does not yet:FutureWarning")]

ROWS = 1_001


def rows() -> Any:
    numbers = np.arange(ROWS)
    text = pa.array([None if i % 7 == 0 else f"n{i % 5}" for i in range(ROWS)])
    return pa.table({"x": numbers, "s": text, "d": text.dictionary_encode()})


def test_from_every_library(spark: Any, store: sa.Store) -> None:
    expected = rows()
    for value in (
        sa.record_batch(expected.combine_chunks().to_batches()[0]),
        pa.concat_tables([expected.slice(0, 10), expected.slice(10)]),
        expected.to_reader(100),
    ):
        with sas.share_table(value, spark, store, partitions=3) as frame:
            assert [handle.num_rows for handle in frame.handles] == [333, 334, 334]
            assert [handle.partition for handle in frame.handles] == [0, 1, 2]
            assert frame.num_rows == ROWS
            assert frame.read_all().to_pydict() == expected.to_pydict()
            assert store.names() == [f"{frame.name}/{i:05d}" for i in range(3)]
            assert frame.size == sum(each.nbytes for each in store.scan())
        assert store.names() == []
    polars = pytest.importorskip("polars").DataFrame({"x": [1, None, 3], "s": ["a", "b", None]})
    with sas.share_table(polars, spark, store) as shared:
        assert len(shared) == 1  # less than a MiB
        assert shared.read_all().to_pydict() == polars.to_dict(as_series=False)
    pandas = pd.DataFrame({"x": [1.5, 2.5]}, index=pd.Index(["a", "b"], name="key"))
    with sas.share_table(pandas, spark, store, partitions=2) as shared:
        assert len(shared) == 2
        assert shared.read_all().to_pandas().equals(pandas)


def test_how_rows_are_split(spark: Any, store: sa.Store) -> None:
    def counts(table: Any, partitions: int | None = None) -> list[int]:
        with sas.share_table(table, spark, store, partitions=partitions) as frame:
            assert frame.schema.names == table.schema.names
            assert frame.read_all().num_rows == table.num_rows
            return [handle.num_rows for handle in frame.handles]

    assert counts(pa.table({"x": np.zeros(1 << 18)})) == [1 << 17] * 2  # as many as tasks at a time
    assert counts(pa.table({"x": np.zeros(3 << 16)})) == [3 << 16]
    assert counts(pa.table({"x": [1, 2]}), 5) == [1, 1]
    assert counts(pa.table({"x": pa.array([], pa.int64())}), 5) == []
    assert counts(pa.RecordBatch.from_struct_array(pa.array([{}] * 5, pa.struct([]))), 2) == [2, 3]


def test_what_is_refused(spark: Any, store: sa.Store, shm_name: str) -> None:
    for value in (None, pa.array([1])):
        with pytest.raises((sa.InvalidType, sa.InvalidArgument)):
            sas.share_table(value, spark, store)
    for partitions in (0, 1.5):
        with pytest.raises((sa.InvalidType, sa.InvalidArgument), match="partitions"):
            sas.share_table(rows(), spark, store, partitions=partitions)  # type: ignore[arg-type]
    with pytest.raises(sa.InvalidType, match=r"DataFrame of Spark: share\(df\)"):
        sas.share_table(spark.range(1), spark, store)
    with pytest.raises(sa.InvalidType, match="a store is in a directory or at shm:NAME, found 4"):
        sas.share_table(rows(), spark, 4)  # type: ignore[arg-type]
    with pytest.raises(sa.InvalidType, match=r"not the first argument, and is optional: call share_table\(data\)"):
        sas.share_table(spark, rows())
    small = sa.Store(f"{shm_name}-small", capacity=1 << 19)
    with pytest.raises(sa.StoreFull, match=r"524,?288"):
        sas.share_table(pa.table({"x": np.zeros(1 << 17)}), spark, small, partitions=4)
    assert small.names() == []
    small.destroy()


def test_workers_use_it_in_place(spark: Any, store: sa.Store) -> None:
    expected = rows()
    frame = sas.share_table(expected, spark, store, partitions=3)

    def total(table: Any) -> Any:
        numbers = table["x"].to_numpy()
        return {"total": [int(numbers.sum())], "file": [file_of(numbers)]}

    found = frame.map(total, "total long, file string", spark).collect()
    assert sum(row["total"] for row in found) == ROWS * (ROWS - 1) // 2
    assert {row["file"] for row in found} == {store.info(name).path for name in store.names()}
    attached = frame.attach(0)
    assert type(pickle.loads(pickle.dumps(frame))) is sas.SharedFrame
    frame.destroy()
    frame.destroy()
    assert attached["x"].to_pylist() == list(range(333))
    with pytest.raises(sa.ObjectNotFound, match="3 of 3 partitions"):
        frame.read_all()
