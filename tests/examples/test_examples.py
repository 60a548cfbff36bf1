"""The examples, on small data, in the session of the other Spark tests; what they find beside numpy's own.

Invariants: examples are loaded as the files that they are; nothing that they share is left over.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from environment import ROOT, torch_or_skip

import shmarrow as sa

EXAMPLES = ROOT / "examples"
pytestmark = pytest.mark.filterwarnings("ignore:PySpark does not yet:FutureWarning")  # of the newest pandas


@pytest.fixture
def example(request: pytest.FixtureRequest) -> Iterator[ModuleType]:
    """The example that a test is parametrized with, whose functions travel to workers as they are."""
    from spark_lab import functions_by_value

    if request.param == "training":
        torch_or_skip()
    spec = importlib.util.spec_from_file_location(request.param, EXAMPLES / f"{request.param}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, request.param, module)
        spec.loader.exec_module(module)
        with functions_by_value(module):
            yield module


def of(name: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("example", [name], indirect=True)


@of("embeddings")
def test_embeddings(example: ModuleType, spark: Any) -> None:
    table = np.random.default_rng(5).standard_normal((50, 8)).astype(np.float32)
    tokens = [[number % 50, number * 7 % 50, *[3] * (number % 2)] for number in range(40)]
    texts = spark.createDataFrame([(i, each) for i, each in enumerate(tokens)], "id long, tokens array<int>")
    query = table[7] + table[49]
    means = np.stack([table[each].mean(axis=0) for each in tokens])
    cosine = means @ query / np.linalg.norm(means, axis=1)
    assert example.nearest(spark, texts, table, query, 4) == np.argsort(-cosine)[:4].tolist()


@of("training")
def test_training(example: ModuleType, spark: Any) -> None:
    with example.share(example.features(spark, 8_000)) as frame:
        assert frame.num_rows == 8_000
        weights = example.train(frame, epochs=8, workers=1)
        assert weights == pytest.approx([2, -1, 1.5, 3], abs=0.1)
        assert example.train_with_distributor(frame, epochs=16) == pytest.approx([2, -1, 1.5, 3], abs=0.1)


@of("explore")
def test_explore(example: ModuleType, spark: Any, tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.compute as pc

    path = tmp_path / "rides.arrow"
    example.write_rides(path, batches=3, rows=1_000)
    table = pa.ipc.open_file(path).read_all()
    expected = table.group_by("city").aggregate([([], "count_all"), ("distance", "max")]).sort_by("city")
    assert example.summary(spark, path) == [tuple(row.values()) for row in expected.to_pylist()]
    ride = example.longest(path)
    assert ride == 1_500 == table["ride"][pc.index(table["distance"], 40_000.0).as_py()].as_py()
    assert example.around(path, ride)["distance"].to_pylist()[2] == 40_000.0
    assert example.around(path, 0, rows=1)["ride"].to_pylist() == [0, 1, 2]


@of("handover")
def test_handover(example: ModuleType, spark: Any, tmp_path: Path) -> None:
    hours = np.arange(4_000) * 3_600_000_000
    columns = {"arr_delay": sa.array([5, None, -3, 10] * 1_000, "int32"), "distance": np.full(4_000, 100, "int32")}
    flights = sa.table(
        {"origin": ["EWR", "JFK"] * 2_000, **columns, "time_hour": sa.array(hours, sa.timestamp("us", "UTC"))}
    )
    expected = [("EWR", 2_000, 2_000, 2_000, 200_000, hours[-2]), ("JFK", 2_000, 1_000, 10_000, 200_000, hours[-1])]
    with sa.Store(tmp_path / "store") as store:
        lines, found = example.table_to_workers(spark, store, flights)
        assert found == [expected, expected]
        assert lines[0] == "The driver's table of 4,000 rows to a job of Spark Python workers"
        lines, totals = example.array_to_workers(spark, store, tmp_path, 2, (4_000, 256))
        assert totals == {float(np.random.default_rng(0).random((4_000, 256), dtype=np.float32).sum(dtype="float64"))}
        frame = example.sa_spark.share(spark.range(100), store)
        names = [str(store.info(handle.name).path) for handle in frame.handles]
        lines, sums = example.attached(names, example.pickled(frame, tmp_path), 1)
        assert sums == {sum(range(100))}
        assert [line.split("  ")[1] for line in lines[2:5]] == list(example.OPENERS)
