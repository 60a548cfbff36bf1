"""Shared frames: what handles reach, in other jobs, in other processes, and after a release."""

from __future__ import annotations

import errno
import pickle
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from conftest import SHM

import shmarrow as sa
from shmarrow import spark as sas
from shmarrow.cli.reader import mapped_ranges

pa = pytest.importorskip("pyarrow")
pytestmark = [
    pytest.mark.filterwarnings("ignore:PySpark does not yet:FutureWarning"),  # of the newest pandas
]

PARTITIONS = 4


def count_and_place(table: sa.Table) -> sa.RecordBatch:
    """What a worker sees of its partition, and the file that the kernel says its array lies in."""
    values = table["value"].chunk(0).to_numpy()
    (name,) = [
        name
        for name, (start, end) in mapped_ranges(f"shm:{path.relative_to(SHM)}" for path in SHM.glob("*/*")).items()
        if start <= values.ctypes.data and values.ctypes.data + values.nbytes <= end
    ]
    return sa.record_batch({"rows": [len(values)], "sum": [int(values.sum())], "name": [name]})


def test_handles_travel_to_another_job(spark: Any, home: str) -> None:
    df = spark.range(0, 20_000, 1, PARTITIONS).selectExpr("id * id AS value")
    (expected,) = df.selectExpr("count(*)", "sum(value)").collect()
    with sas.share(df, home) as frame:
        again = pickle.loads(pickle.dumps(frame))
        found = again.map(spark, count_and_place, "rows int, sum long, name string")
        files = {str(Path(sa.Store(home).info(handle.name).path).relative_to(SHM)) for handle in frame.handles}
        assert {row["name"].removeprefix("shm:") for row in found.collect()} == files
        assert found.selectExpr("sum(rows)", "sum(sum)").collect() == [expected]


def test_a_function_that_gives_other_columns(spark: Any, home: str) -> None:
    with sas.share(spark.range(3), home) as frame:
        with pytest.raises(Exception, match=r"the function gave \(id: int64\), expected \(n: int64\)"):
            frame.map(spark, lambda table: table, "n long").collect()
        with pytest.raises(Exception, match="must give a RecordBatch or a Table, found int"):
            frame.map(spark, len, "n long").collect()


def test_a_plain_process_attaches_when_spark_is_done(spark: Any, home: str, tmp_path: Path) -> None:
    with sas.share(spark.range(0, 1_000, 1, 2), home) as frame:
        path = tmp_path / "handles"
        path.write_bytes(pickle.dumps(frame.handles))
        code = (
            "import pickle, sys; handles = pickle.load(open(sys.argv[1], 'rb'));"
            "print([int(handle.attach()['id'].to_numpy().sum()) for handle in handles],"
            "      'pyspark' in sys.modules, 'pyarrow' in sys.modules)"
        )
        said = subprocess.run([sys.executable, "-c", code, path], capture_output=True, text=True, check=True).stdout
    assert said == f"[{sum(range(500))}, {sum(range(500, 1_000))}] False False\n"


def test_memory_outlives_its_names(spark: Any, home: str) -> None:
    frame = sas.share(spark.range(100), home)
    table = frame.read_all()
    frame.release()
    frame.release()
    assert sa.Store(home).names() == []
    assert sum(table["id"].to_pylist()) == sum(range(100))
    with pytest.raises(sa.ObjectNotFound, match=f"partition 0, .*released.*process {frame.handles[0].pid} on host"):
        frame.attach(0)


def test_another_host_is_told(spark: Any, home: str) -> None:
    with sas.share(spark.range(10), home) as frame:
        far = replace(frame.handles[0], store_id="0" * 32, host="far")
        with pytest.raises(
            sa.StorageError, match=r"its store .* on host 'far' is not visible in this process"
        ) as caught:
            far.attach()
        assert caught.value.errno == errno.EREMOTE
