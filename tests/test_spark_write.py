"""`df.write.format("shmarrow")`, by real Spark: what is written, what is refused, and what is left of what fails.

Which files count, and when, is tested without Spark in ``test_spark_directory.py``.
"""

from __future__ import annotations

import fcntl
import json
import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import lab
import pytest
from spark_lab import BATCH_ROWS, INTERPRETED, settings, wait_until

import shmarrow as sa

pa = pytest.importorskip("pyarrow")
st = pytest.importorskip("pyspark.sql.types")
dataset = pytest.importorskip("pyarrow.dataset")
pytestmark = [
    pytest.mark.filterwarnings("ignore:PySpark does not yet:FutureWarning"),  # of the newest pandas
]

from shmarrow.spark.source import commit, directory  # noqa: E402
from shmarrow.spark.source.writer import SPARK_SCHEMA, arrow_schema, make_writer, rechunked  # noqa: E402

KINDS = (
    "id",
    "id % 2 = 0 AS bool",
    "CAST(id % 100 AS byte) AS byte",
    "IF(id % 3 = 0, NULL, CAST(id AS int)) AS `int.null`",
    "CAST(id / 7 AS float) AS ` `",
    "CAST(id / 8 AS decimal(38, 3)) AS `decimal``38`",
    "IF(id % 4 = 0, NULL, repeat('æ', CAST(id % 5 AS int))) AS string",
    "CAST(repeat('c', CAST(id % 5 AS int)) AS varchar(5)) AS varchar",
    "CAST(CAST(id AS string) AS binary) AS binary",
    "IF(id % 7 = 0, NULL, date_add(DATE'1969-12-30', CAST(id AS int))) AS date",
    "timestamp_micros(id * 1000003) AS timestamp",
    "CAST(timestamp_micros(id) AS timestamp_ntz) AS timestamp_ntz",
    "TIME'12:34:56' AS time",
    "make_dt_interval(0, 0, 0, id) AS interval",
    "NULL AS void",
    "parse_json(concat('[', id, ', null]')) AS variant",
    "IF(id % 3 = 1, NULL, array(timestamp_micros(id), NULL)) AS list",
    "map(CAST(id AS string), array(id / 2)) AS map",
    "named_struct('a', id, 'b', IF(id % 2 = 0, NULL, array(named_struct('c', CAST(id AS string))))) AS struct",
)


@pytest.fixture
def where(tmp_path: Path) -> str:
    return str(tmp_path / "new" / "data")


def save(df: Any, where: str, mode: str = "append", **options: str) -> None:
    df.write.format("shmarrow").mode(mode).options(**options).save(where)


def load(spark: Any, where: str) -> Any:
    return spark.read.format("shmarrow").load(where)


def files(where: str) -> list[Any]:
    """The tables of the files that count, read by pyarrow."""
    return [
        pa.ipc.open_file(pa.OSFile(os.path.join(where, file.name))).read_all() for file in directory.data_files(where)
    ]


def left(where: str) -> set[str]:
    """What there is beside the files that count."""
    counts = {file.name for file in directory.data_files(where)}
    found = {str(path.relative_to(where)) for path in Path(where).rglob("*")}
    return found - counts - {"_shmarrow", "_shmarrow/lock", "_shmarrow/manifest.json"}


def numbers(where: str) -> list[int]:
    return [n for table in files(where) for n in table["id"].to_pylist()]


def put(where: str, *parts: list[int]) -> None:
    """A whole overwrite without Spark, of one file for each part."""
    schema = sa.schema({"id": sa.int64()})
    job = commit.begin(where, schema, True)
    written = []
    for number, part in enumerate(parts):
        path = f"{job.folder}/{number}"
        with sa.ipc.new_file(path, schema) as writer:
            writer.write_batch(sa.record_batch({"id": part}, schema=schema))
        written.append(directory.DataFile(str(number), os.path.getsize(path), len(part)))
    commit.commit(job, written, schema, overwrite=True)


def nullable(table: Any, schema: Any) -> Any:
    """The same values under the types of a schema, which may differ in nullability only, and without metadata."""
    return table.cast(schema).replace_schema_metadata(None)


def test_every_type_from_sessions_with_other_settings(spark: Any, where: str) -> None:
    df = spark.range(0, 300, 1, 2).selectExpr(*KINDS)
    other = {"spark.sql.session.timeZone": "America/Lima", "spark.sql.execution.arrow.useLargeVarTypes": "true"}
    with settings(spark, INTERPRETED):
        expected = df.toArrow()
        save(df, where)
        with settings(spark, other):
            save(df, where, compression="zstd", batchBytes="2k", maxFileBytes="16k")

    one, *more = found = files(where)
    assert len(more) > 3  # files of 16 KiB
    assert len({table.schema for table in found}) == 1
    assert all(field.nullable for field in one.schema)
    assert one.schema.field("timestamp").type == pa.timestamp("us", "UTC")
    schema = one.schema.remove_metadata()
    rows = pa.concat_tables([nullable(table, schema) for table in found])
    assert rows.equals(nullable(pa.concat_tables([expected] * 2), schema))
    assert st.StructType.fromJson(json.loads(one.schema.metadata[SPARK_SCHEMA])) == df.schema
    manifest = directory.read_manifest(where)
    assert manifest is not None
    assert [file.rows for file in manifest.files] == [len(table) for table in found]
    assert [file.size for file in manifest.files] == [
        os.path.getsize(f"{where}/{file.name}") for file in manifest.files
    ]
    assert manifest.files[-1].size < 32_000
    assert left(where) == set()
    assert dataset.dataset(where, format="arrow").count_rows() == 600  # what other programs see
    with sa.ipc.open_file(f"{where}/{manifest.files[2].name}") as reader:
        assert all(batch.num_rows < 50 for batch in reader)
        assert reader.num_record_batches > 1


def test_overwrite_from_what_is_overwritten(spark: Any, where: str) -> None:
    put(where, [0, 1, 2, 3, 4], [5, 6, 7, 8, 9])
    df = load(spark, where)
    assert [(field.name, field.dataType.simpleString()) for field in df.schema] == [("id", "bigint")]
    save(df.where("id >= 5"), where, "overwrite", durable="true", keepReplaced="false")
    assert numbers(where) == [5, 6, 7, 8, 9]
    assert left(where) == set()
    save(spark.range(0), where, "overwrite")
    assert numbers(where) == []
    assert [table.schema.names for table in files(where)] == [["id"]]
    assert load(spark, where).columns == ["id"]


BATCHES = 120


def stalled(folder: str, batches: Iterator[Any]) -> Iterator[Any]:
    """The same rows; the first attempt at partition 0 goes on after half of them when there is a file ``go``."""
    from pyspark import TaskContext

    context = TaskContext.get()
    assert context is not None
    for number, batch in enumerate(batches):
        yield batch
        if number == BATCHES // 4 and context.partitionId() == 0 and context.attemptNumber() == 0:
            Path(folder, "ready").touch()
            deadline = time.monotonic() + 60
            while not Path(folder, "go").exists() and time.monotonic() < deadline:
                time.sleep(0.02)


def stalling(spark: Any, folder: Path) -> Any:
    """As many rows as Spark does not keep in its buffers, in 2 partitions, the first of which waits."""
    where = str(folder)
    return spark.range(0, BATCHES * BATCH_ROWS, 1, 2).mapInArrow(lambda batches: stalled(where, batches), "id long")


def processes(start: str) -> list[int]:
    """The other processes that have something open whose name begins with this."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            opened = [os.readlink(link) for link in (path / "fd").iterdir()]
        except OSError:
            continue
        if path.name != str(os.getpid()) and any(name.startswith(start) for name in opened):
            found.append(int(path.name))
    return found


class Background:
    """A save in a thread."""

    def __init__(self, spark: Any, df: Any, where: str, **options: str) -> None:
        self.error: BaseException | None = None

        def run() -> None:
            try:
                # Spark looks for sources of Python in the session of the thread.
                spark._jvm.org.apache.spark.sql.classic.SparkSession.setActiveSession(spark._jsparkSession)
                spark.sparkContext.setJobGroup(where, "", interruptOnCancel=True)
                save(df, where, **options)
            except BaseException as error:
                self.error = error

        self.thread = threading.Thread(target=run)
        self.thread.start()

    def end(self) -> BaseException | None:
        self.thread.join(60)
        assert not self.thread.is_alive()
        return self.error


def test_a_killed_worker_is_tried_again(spark: Any, where: str, tmp_path: Path) -> None:
    saving = Background(spark, stalling(spark, tmp_path), where, batchBytes=str(8 * BATCH_ROWS))
    wait_until(lambda: (tmp_path / "ready").exists(), "the task waits")
    (owner,) = Path(where).glob("_shmarrow/job-*/owner.json")
    assert json.loads(owner.read_text())["pid"] == spark.sparkContext._gateway.proc.pid
    for pid in wait_until(lambda: processes(f"{where}/_shmarrow/job-"), "a file is being written"):
        os.kill(pid, signal.SIGKILL)
    (tmp_path / "go").touch()
    assert saving.end() is None
    assert numbers(where) == list(range(BATCHES * BATCH_ROWS))
    assert left(where) == set()


def test_a_job_that_is_cancelled_leaves_nothing(spark: Any, where: str, tmp_path: Path) -> None:
    saving = Background(spark, stalling(spark, tmp_path), where, batchBytes=str(8 * BATCH_ROWS))
    wait_until(lambda: (tmp_path / "ready").exists(), "the task waits")
    wait_until(lambda: list(Path(where).glob("_shmarrow/job-*/00001-*")), "the other task is done")
    spark.sparkContext.cancelJobGroup(where)
    assert "cancelled" in str(saving.end())
    assert not os.path.exists(os.path.dirname(where))


def test_a_commit_that_is_killed(spark: Any, where: str) -> None:
    """It waits for the lock, when the tasks are done. What is killed later is tested without Spark."""
    put(where, list(range(10)))
    with open(f"{where}/_shmarrow/lock") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        saving = Background(spark, spark.range(3), where)
        (pid,) = wait_until(lambda: processes(f"{where}/_shmarrow/lock"), "the commit waits")
        os.kill(pid, signal.SIGKILL)
    assert saving.end() is not None
    assert numbers(where) == list(range(10))
    assert left(where) == set()


def removed(where: str, batches: Iterator[Any]) -> Iterator[Any]:
    """What the task of a job finds that has ended without it."""
    import shutil

    for folder in Path(where).glob("_shmarrow/job-*"):
        shutil.rmtree(folder)
    yield from batches


def test_a_task_that_comes_too_late(spark: Any, where: str) -> None:
    df = spark.range(0, 10, 1, 1).mapInArrow(lambda batches: removed(where, batches), "id long")
    with pytest.raises(
        Exception, match=r"shmarrow\.errors\.ObjectNotFound: cannot write to .* on host .* the job has ended"
    ):
        save(df, where)
    assert not os.path.exists(os.path.dirname(where))


def test_no_space(spark: Any, tmp_path: Path) -> None:
    with lab.small_tmpfs(tmp_path / "small", 1 << 20) as folder:
        where = str(folder / "data")
        put(where, list(range(10)))
        with pytest.raises(
            Exception, match=r"StoreFull: cannot write to '.*No space left.*has 1048576 bytes \(1 MiB\)"
        ):
            save(spark.range(0, 1 << 18, 1, 2), where, "overwrite")
        assert numbers(where) == list(range(10))
        assert left(where) == set()


def slow(folder: str, batches: Iterator[Any]) -> Iterator[Any]:
    """The same rows, when there is a file ``go``."""
    for batch in batches:
        Path(folder, f"ready-{os.getpid()}").touch()
        deadline = time.monotonic() + 60
        while not Path(folder, "go").exists() and time.monotonic() < deadline:
            time.sleep(0.02)
        yield batch


def test_a_query_that_was_planned_before_an_overwrite(spark: Any, where: str, tmp_path: Path) -> None:
    """Two of its four tasks read when the files are replaced already."""
    put(where, [0], [1], [2], [3])
    folder = str(tmp_path)
    df = spark.read.format("shmarrow").option("maxPartitionBytes", "1").load(where)
    assert df.rdd.getNumPartitions() == 4
    df = df.mapInArrow(lambda batches: slow(folder, batches), "id long")
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.extend(row["id"] for row in df.collect()))
    thread.start()
    wait_until(lambda: list(tmp_path.glob("ready-*")), "the first tasks read")
    put(where, [7], [8])
    (tmp_path / "go").touch()
    thread.join(60)
    assert sorted(found) == [0, 1, 2, 3]
    assert numbers(where) == [7, 8]


def test_connect(connect: Any, where: str) -> None:
    save(connect.range(0, 10, 1, 2), where)
    assert numbers(where) == list(range(10))
    assert [row["id"] for row in load(connect, where).where("id > 7").collect()] == [8, 9]


def test_what_spark_refuses_by_itself(spark: Any, where: str) -> None:
    df = spark.range(3)
    for mode in ("errorifexists", "ignore"):
        with pytest.raises(Exception, match='use either the "Append" or "Overwrite" mode instead'):
            save(df, where, mode)
    with pytest.raises(Exception, match="partitioning or clustering columns do not match"):
        df.write.format("shmarrow").mode("append").partitionBy("id").save(where)
    with pytest.raises(Exception, match=r"shmarrow\.errors\.InvalidArgument: cannot write a DataFrame without columns"):
        save(df.select(), where)
    assert not os.path.exists(os.path.dirname(where))


# --- without a session ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ddl", "kind", "message"),
    [
        ("", sa.InvalidArgument, "cannot write a DataFrame without columns"),
        ("a int, a string", sa.InvalidArgument, "the DataFrame has two fields named 'a'; rename one"),
        ("a array<struct<b int, b int>>", sa.InvalidArgument, "column 'a', elements has two fields named 'b'"),
        ("a int, b interval year to month", sa.Unsupported, r"column 'b' is interval year to month.* number of months"),
        (
            "a struct<nul\0x int>",
            sa.InvalidArgument,
            r"column 'a' has a field named 'nul\\x00x'; Arrow's names end at NUL",
        ),
        ("a map<int, struct<c interval year>>", sa.Unsupported, r"'a', values, field 'c' is .* a number of years"),
    ],
)
def test_columns_that_are_refused(where: str, ddl: str, kind: type[Exception], message: str) -> None:
    with pytest.raises(kind, match=message):
        make_writer({"path": where}, schema_of(ddl), False)
    assert not os.path.exists(where)


def schema_of(ddl: str) -> Any:
    """A few types in Spark's notation; Spark's own parser needs Java."""
    month, year = st.YearMonthIntervalType(), st.YearMonthIntervalType(0, 0)
    return st.StructType(
        {
            "": [],
            "a int, a string": [st.StructField("a", st.IntegerType()), st.StructField("a", st.StringType())],
            "a struct<nul\0x int>": [st.StructField("a", st.StructType([st.StructField("nul\0x", st.IntegerType())]))],
            "a array<struct<b int, b int>>": [
                st.StructField("a", st.ArrayType(st.StructType([st.StructField("b", st.IntegerType())] * 2)))
            ],
            "a int, b interval year to month": [st.StructField("a", st.IntegerType()), st.StructField("b", month)],
            "a map<int, struct<c interval year>>": [
                st.StructField("a", st.MapType(st.IntegerType(), st.StructType([st.StructField("c", year)])))
            ],
        }[ddl]
    )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "expected the path of a directory, found none: call save.*CREATE TABLE"),
        ({"path": "shm:x"}, "names a store"),
        (
            {"path": "x", "compression": "gzip"},
            "option 'compression' must be one of none, uncompressed, lz4, zstd, found 'gzip'",
        ),
        ({"path": "x", "batchBytes": "-1"}, "option 'batchBytes' must be a number of bytes"),
        ({"path": "x", "durable": "yes"}, "option 'durable' must be true or false, found 'yes'"),
        ({"path": "x", "compresion": "lz4"}, "no option 'compresion'; did you mean 'compression'"),
    ],
)
def test_options_that_are_refused(options: dict[str, str], message: str) -> None:
    with pytest.raises(sa.InvalidArgument, match=message):
        make_writer(options, st.StructType([st.StructField("a", st.IntegerType())]), False)
    assert not os.path.exists("x")


def test_batches_of_about_a_size() -> None:
    schema = arrow_schema(st.StructType([st.StructField("a", st.StringType(), False)]))
    small, large = ["x"] * 10, ["y" * 1000, "z" * 5000, *["w"] * 100]
    given = [pa.record_batch({"a": pa.array(values)}) for values in (small, small, large, [], small)]
    found = list(rechunked(iter(given), schema, 2000))
    assert [value for batch in found for value in batch["a"].to_pylist()] == [*small, *small, *large, *small]
    assert {batch.schema for batch in found} == {schema}
    assert all(batch.nbytes <= 2000 or batch.num_rows == 1 for batch in found)
    assert len(found) == 3


def test_many_small_batches_take_little_memory() -> None:
    schema = arrow_schema(st.StructType([st.StructField("a", st.ByteType())]))
    one, none = (pa.record_batch({"a": pa.array([1] * rows, pa.int8())}) for rows in (1, 0))
    count = 20_000

    def given() -> Iterator[Any]:
        for _ in range(count):
            yield pa.record_batch([one["a"]], ["a"])
            yield none

    def resident() -> int:
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    before = resident()
    (found,) = rechunked(given(), schema, 4 << 20)
    assert (found.num_rows, sum(found["a"].to_pylist())) == (count, count)
    assert resident() - before < 16 << 20
