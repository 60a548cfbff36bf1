"""Sharing Spark's partitions: real Spark, several Python workers, values beside Spark's own.

Rules kept here: one Java process serves the whole file; workers are really killed; each test looks into shared memory
for what it left.
"""

from __future__ import annotations

import errno
import os
import pickle
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import SHM, shm_entries
from spark_lab import BATCH_ROWS

import shmarrow as sa
from shmarrow import segment
from shmarrow import spark as sas
from shmarrow.cli.reader import mapped_ranges
from shmarrow.spark.frame import MANIFEST, Task

pa = pytest.importorskip("pyarrow")
pytestmark = [
    pytest.mark.filterwarnings("ignore:PySpark does not yet:FutureWarning"),  # of the newest pandas
]

PARTITIONS = 4


@pytest.fixture
def prefix(shm_name: str) -> Iterator[str]:
    """A prefix for objects; the test has to release them all."""
    yield shm_name
    assert names_under(shm_name) == []


def names_under(prefix: str) -> list[str]:
    return sorted(name for name in shm_entries() if name.startswith(prefix.removeprefix("shm:")))


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


def test_every_type_survives(spark: Any, prefix: str) -> None:
    df = spark.range(0, 2_500, 1, PARTITIONS).selectExpr(*EVERYTHING)
    expected = df.toArrow()
    # What Spark sends to workers is in the session's time zone; what it collects says UTC. The instants are the same.
    local = pa.field("timestamp", pa.timestamp("us", "Europe/Oslo"), nullable=False)
    at = expected.schema.get_field_index("timestamp")
    expected = expected.cast(expected.schema.set(at, local))
    with sas.share(df, prefix) as frame:
        table = frame.read_all()
        assert frame.schema.to_pyarrow() == expected.schema
        assert table.to_pyarrow().equals(expected)
        assert table.to_pylist() == expected.to_pylist()
        table.validate(full=True)
        assert [handle.partition for handle in frame.handles] == [0, 1, 2, 3]
        assert [handle.num_rows for handle in frame.handles] == [625] * 4
        assert frame.num_rows == len(table) == 2_500
        assert frame.size == sum((SHM / name).stat().st_size for name in names_under(prefix))
        assert os.getpid() not in {handle.pid for handle in frame.handles}


@pytest.mark.parametrize(("target_bytes", "batches"), [(1, 5), (2 * 8 * BATCH_ROWS, 3), (1 << 20, 1)])
def test_batches_are_put_together_and_aligned(spark: Any, prefix: str, target_bytes: int, batches: int) -> None:
    df = spark.range(0, 5 * BATCH_ROWS, 1, 1)  # 5 batches of 8 bytes a row
    with sas.share(df, prefix, target_bytes=target_bytes) as frame, frame.attach(0) as reader:
        assert frame.handles[0].num_record_batches == reader.num_record_batches == batches
        assert np.concatenate([batch["id"].to_numpy() for batch in reader]).tolist() == list(range(5 * BATCH_ROWS))
        addresses = [buffer.address for batch in reader for buffer in batch["id"].buffers() if buffer is not None]
        assert {address % 64 for address in addresses} == {0}


def encoded(batches: Iterator[Any]) -> Iterator[Any]:
    """Two columns that Spark has no type for: each batch with a dictionary of its own."""
    for batch in batches:
        words = pa.array([None if i % 5 == 0 else f"w{i // 300}" for i in batch["id"].to_pylist()]).dictionary_encode()
        offsets = pa.array(range(len(words) + 1), pa.int32())
        yield pa.record_batch({"word": words, "list": pa.ListArray.from_arrays(offsets, words)})


def test_dictionaries_that_differ_between_batches(spark: Any, prefix: str) -> None:
    expected = [None if i % 5 == 0 else f"w{i // 300}" for i in range(5_000)]
    with sas.share(spark.range(0, 5_000, 1, 2), prefix, function=encoded, target_bytes=4_000) as frame:
        table = frame.read_all()
        assert table.schema.field("word").type == sa.dictionary(sa.int32(), sa.string())
        assert table["word"].to_pylist() == expected
        assert table["list"].to_pylist() == [[word] for word in expected]
        assert all(handle.num_record_batches > 1 for handle in frame.handles)


def count_and_place(table: sa.Table) -> sa.RecordBatch:
    """What a worker sees of its partition, and the object that the kernel says its array lies in."""
    values = table["value"].chunk(0).to_numpy()
    (name,) = [
        name
        for name, (start, end) in mapped_ranges(f"shm:{path.name}" for path in SHM.iterdir()).items()
        if start <= values.ctypes.data and values.ctypes.data + values.nbytes <= end
    ]
    return sa.record_batch({"rows": [len(values)], "sum": [int(values.sum())], "name": [name]})


def test_handles_travel_to_another_job(spark: Any, prefix: str) -> None:
    df = spark.range(0, 20_000, 1, PARTITIONS).selectExpr("id * id AS value")
    (expected,) = df.selectExpr("count(*)", "sum(value)").collect()
    with sas.share(df, prefix) as frame:
        again = pickle.loads(pickle.dumps(frame))
        found = again.map(spark, count_and_place, "rows int, sum long, name string")
        assert {row["name"] for row in found.collect()} == {handle.name for handle in frame.handles}
        assert found.selectExpr("sum(rows)", "sum(sum)").collect() == [expected]


def test_a_function_that_gives_other_columns(spark: Any, prefix: str) -> None:
    with sas.share(spark.range(3), prefix) as frame:
        with pytest.raises(Exception, match=r"the function gave \(id: int64\), expected \(n: int64\)"):
            frame.map(spark, lambda table: table, "n long").collect()
        with pytest.raises(Exception, match="must give a RecordBatch or a Table, found int"):
            frame.map(spark, len, "n long").collect()


def test_a_plain_process_attaches_when_spark_is_done(spark: Any, prefix: str, tmp_path: Path) -> None:
    with sas.share(spark.range(0, 1_000, 1, 2), prefix) as frame:
        path = tmp_path / "handles"
        path.write_bytes(pickle.dumps(frame.handles))
        code = (
            "import pickle, sys; handles = pickle.load(open(sys.argv[1], 'rb'));"
            "print([int(handle.attach().read_all()['id'].to_numpy().sum()) for handle in handles],"
            "      'pyspark' in sys.modules, 'pyarrow' in sys.modules)"
        )
        said = subprocess.run([sys.executable, "-c", code, path], capture_output=True, text=True, check=True).stdout
    assert said == f"[{sum(range(500))}, {sum(range(500, 1_000))}] False False\n"


def test_remove_takes_all_frames_of_a_prefix(spark: Any, prefix: str) -> None:
    for _ in range(2):
        sas.share(spark.range(0, 10, 1, 2), prefix)
    assert len(names_under(prefix)) == 2 * (1 + 2)
    sas.remove(prefix)
    assert names_under(prefix) == []


def test_memory_outlives_its_names(spark: Any, prefix: str) -> None:
    frame = sas.share(spark.range(100), prefix)
    table = frame.read_all()
    frame.release()
    frame.release()
    assert names_under(prefix) == []
    assert sum(table["id"].to_pylist()) == sum(range(100))
    with pytest.raises(sa.ObjectNotFound, match=f"process {frame.handles[0].pid} on host .* as partition 0"):
        frame.attach(0)


# --- tasks that fail ---


class KilledOnce:
    """Kills its worker at the first attempt at partition 1: before the object is whole, or when it is published."""

    def __init__(self, task: Any, published: bool) -> None:
        self.task, self.published = task, published

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        dies = context.partitionId() == 1 and context.attemptNumber() == 0
        for i, batch in enumerate(self.task(batches)):
            if dies and (self.published or i == 1):
                os.kill(os.getpid(), signal.SIGKILL)
            yield batch


def test_a_killed_worker_is_tried_again(spark: Any, prefix: str) -> None:
    df = spark.range(0, 8 * BATCH_ROWS, 1, 2)
    with sas.share(df, prefix, function=KilledOnce(iter, False)) as frame:
        assert frame.read_all()["id"].to_pylist() == list(range(8 * BATCH_ROWS))
        assert len(names_under(prefix)) == 1 + len(frame) == 3  # nothing of the killed attempt


def test_what_a_killed_attempt_published_is_released_too(spark: Any, prefix: str) -> None:
    with segment.create(f"{prefix}-x"):
        pass
    task = KilledOnce(Task(f"{prefix}-x", None, 1 << 20, 0o400, boot()), True)
    rows = spark.range(0, 100, 1, 2).mapInArrow(task, f"{MANIFEST}, schema binary").collect()
    assert len({row["name"] for row in rows}) == len(rows) == 2
    assert len(names_under(prefix)) == 1 + 3
    sas.remove(f"{prefix}-x")


def boot() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def slow_but_the_first(batches: Iterator[Any]) -> Iterator[Any]:
    from pyspark import TaskContext

    context = TaskContext.get()
    assert context is not None
    if context.partitionId() == 0:
        raise ValueError("no such luck")
    time.sleep(1.5)
    yield from batches


def test_a_job_that_fails_leaves_nothing(spark: Any, prefix: str) -> None:
    with pytest.raises(Exception, match="no such luck"):
        sas.share(spark.range(0, 100, 1, 2), prefix, function=slow_but_the_first)
    assert names_under(prefix) == []
    time.sleep(2)  # the other task may have gone on
    assert names_under(prefix) == []


def test_who_publishes_after_the_release_takes_it_back(spark: Any, prefix: str) -> None:
    task = Task(f"{prefix}-gone", None, 1 << 20, 0o400, boot())
    with pytest.raises(Exception, match=r"cannot share '.*-gone-00000-.*released, in the meantime"):
        spark.range(0, 100, 1, 1).mapInArrow(task, f"{MANIFEST}, schema binary").collect()
    assert names_under(prefix) == []


def test_errors_of_workers_keep_their_class(spark: Any, prefix: str) -> None:
    long = f"{prefix}{'x' * (245 - len(prefix) + len('shm:'))}"  # room for the frame's name, not for the objects'
    with pytest.raises(sa.InvalidArgument, match=r"1 to 254 bytes .*, whose NAME has 26\d bytes"):
        sas.share(spark.range(0, 10, 1, 1), long)


def test_a_folder_that_goes_away(spark: Any, tmp_path: Path) -> None:
    folder = tmp_path / "gone"
    folder.mkdir()

    def function(batches: Iterator[Any]) -> Iterator[Any]:
        shutil.rmtree(folder, ignore_errors=True)  # the second attempt finds it gone
        yield from batches

    with pytest.raises(sa.ObjectNotFound, match=r"make the directory .*gone' first") as caught:
        sas.share(spark.range(0, 10, 1, 1), folder / "x", function=function)
    assert caught.value.errno == errno.ENOENT


def test_partitions_that_disagree(spark: Any, prefix: str) -> None:
    def function(batches: Iterator[Any]) -> Iterator[Any]:
        for batch in batches:
            yield batch.rename_columns([f"c{batch['id'][0].as_py()}"])

    with pytest.raises(sa.InvalidType, match="2 different schemas"):
        sas.share(spark.range(0, 2, 1, 2), prefix, function=function)


# --- where and how ---


def test_no_rows(spark: Any, prefix: str) -> None:
    some = spark.range(10).selectExpr(*EVERYTHING)
    df = some.where("id < 0")
    with sas.share(some, prefix) as full, sas.share(df, prefix) as frame:
        assert frame.schema == full.schema
        assert (len(frame), frame.num_rows, frame.size) == (0, 0, 0)
        assert frame.read_all().to_pydict() == {name: [] for name in some.columns}
        assert frame.map(spark, lambda table: table, "n long").collect() == []
    with sas.share(df, prefix, function=encoded) as frame:
        assert frame.schema.names == ["word", "list"]


def test_partitions_without_rows_have_no_object(spark: Any, prefix: str) -> None:
    with sas.share(spark.range(0, 40, 1, 4).where("id >= 10 AND id < 30"), prefix) as frame:
        assert [handle.partition for handle in frame.handles] == [1, 2]
        assert frame.read_all()["id"].to_pylist() == list(range(10, 30))


def test_share_to_files(spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with sas.share(spark.range(0, 10, 1, 2), Path("kept"), mode=0o444) as frame:
        paths = [Path(handle.name) for handle in frame.handles]
        assert [path.parent for path in paths] == [tmp_path] * 2
        assert [path.stat().st_mode & 0o777 for path in paths] == [0o444] * 2
        found = pa.concat_tables([pa.ipc.open_file(pa.memory_map(str(path))).read_all() for path in paths])
        assert found["id"].to_pylist() == list(range(10))
        elsewhere = replace(frame.handles[0], boot="another", host="far")
        assert elsewhere.attach().read_all()["id"].to_pylist() == list(range(5))  # a path may be shared by hosts
    assert list(tmp_path.iterdir()) == []


def test_another_host_is_told(spark: Any, prefix: str) -> None:
    frame = sas.share(spark.range(10), prefix)
    far = replace(frame.handles[0], boot="another", host="far")
    with pytest.raises(sa.StorageError, match=r"in the memory of host 'far' \(boot another\).*on that host") as caught:
        far.attach()
    assert caught.value.errno == errno.EREMOTE
    with pytest.raises(sa.StorageError, match=r"lie in the memory of 1 other hosts, far: call shmarrow\.spark\.remove"):
        sas.SharedFrame(frame.prefix, frame.schema, [far]).release()
    assert names_under(prefix) == []


@pytest.mark.parametrize("target_bytes", [0, -1])
def test_a_target_is_positive(spark: Any, prefix: str, target_bytes: int) -> None:
    with pytest.raises(sa.InvalidArgument, match=f"target_bytes is at least 1, found {target_bytes}"):
        sas.share(spark.range(1), prefix, target_bytes=target_bytes)


def test_without_pyspark(tmp_path: Path) -> None:
    (tmp_path / "pyspark.py").write_text("raise ImportError('none here')")
    code = "from shmarrow import spark; spark.local_session()"
    environment = {**os.environ, "PYTHONPATH": f"{tmp_path}:{os.environ.get('PYTHONPATH', '')}"}
    ran = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)
    assert ran.returncode == 1
    assert ran.stderr.splitlines()[-1] == (
        "shmarrow.errors.MissingExtra: Spark is needed here: pip install 'shmarrow[spark]' (none here)"
    )


def test_without_java(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    program = tmp_path / "bin" / "java"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\necho 'openjdk version \"11.0.2\" 2019-01-15' >&2\n")
    program.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(sa.MissingExtra, match=r'Java 17 or newer.*found openjdk version "11\.0\.2"'):
        sas.check_java()
    monkeypatch.delenv("JAVA_HOME")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(sa.MissingExtra, match=r"install it \(Debian.*found java: No such file"):
        sas.check_java()


def test_local_session_needs_a_worker() -> None:
    with pytest.raises(sa.InvalidArgument, match="at least 1 worker, found 0"):
        sas.local_session(0)
