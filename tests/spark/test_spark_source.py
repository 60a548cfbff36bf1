"""The data source ``shmarrow``: Arrow files, streams and objects of stores, read by Spark, and directories it writes.

What Spark calls in processes of its own, making the source, planning and reading, is also called here directly where a
job would show no more.
"""

from __future__ import annotations

import json
import os
import re
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import spark_kills
import spark_types
from cases.definition import Case
from cases.table import CASES
from cases.table import case as by_name
from parts import plain
from processes import ended, forked
from spark_lab import INTERPRETED, settings
from spark_maps import file_of

import shmarrow as sa

pa = pytest.importorskip("pyarrow")
dataset = pytest.importorskip("pyarrow.dataset")
pytest.importorskip("pyspark")

from pyspark.sql.types import StructType  # noqa: E402

import pyspark_shmarrow  # noqa: E402


def write(path: Path, rows: Any, batches: int = 1, stream: bool = False, codec: str | None = None) -> str:
    """A file or a stream of rows, in so many batches of as many rows each."""
    table = sa.table(rows)
    options = sa.ipc.IpcWriteOptions(codec)
    with (sa.ipc.new_stream if stream else sa.ipc.new_file)(path, table.schema, options) as writer:
        for i in range(batches):
            bounds = table.num_rows * i // batches, table.num_rows * (i + 1) // batches
            for batch in table.slice(bounds[0], bounds[1] - bounds[0]).to_batches():
                writer.write_batch(batch)
    return str(path)


def read(spark: Any, path: Any = None, **options: str) -> Any:
    made = spark.read.format("shmarrow").options(**options)
    return made.load() if path is None else made.load(path)


def source(path: Any = None, **options: str) -> Any:
    """The source as Spark makes it."""
    return pyspark_shmarrow.DefaultSource(options if path is None else {"path": str(path), **options})


def rows_of(made: Any, schema: Any = None) -> list[dict[str, Any]]:
    """Return what Spark's workers would read."""
    reader = made.reader(made.schema() if schema is None else schema)
    return [row for split in reader.partitions() for batch in reader.read(split) for row in batch.to_pylist()]


# --- types ------------------------------------------------------------------------------------------------------

NOT_SENT = re.compile(
    r".*union|decimal256|interval-(day|month-day)|dictionary-dictionary|struct-duplicate|.*-(all-null|empty)$"
)
"""Other cases of these types, those that no file holds or Spark reads, and those of nulls only or of nothing."""
IN_SPARK = {
    "bool": "boolean", "int8": "tinyint", "uint8": "smallint", "uint16": "int", "uint32": "bigint",
    "uint64": "decimal(20,0)", "float16": "float", "float64": "double", "decimal32": "decimal(9,2)",
    "decimal128-negative-scale": "decimal(8,0)", "date64": "date", "time32-s": "time(6)",
    "timestamp-ns": "timestamp_ntz", "timestamp-s-zone": "timestamp", "interval-month": "int",
    "large-string": "string", "binary-view": "binary", "fixed-size-binary": "binary",
    "struct": "struct<x:int,y:double>", "map": "map<string,int>", "fixed-size-list": "array<float>",
    "dictionary-struct": "struct<x:int,y:double>", "ree-list": "array<tinyint>", "list-view-struct":
    "array<struct<x:int,y:double>>",
}  # fmt: skip
"""Types of Spark's for some cases."""


def test_every_type_goes_through_spark_with_equal_values(spark: Any, tmp_path: Path) -> None:
    """One file or stream for each length of the cases; Spark reads all columns of all files, with nulls for missing."""
    pytest.importorskip("pyarrow", minversion="26")
    pytest.importorskip("pyspark", minversion="4.3")
    lengths: dict[int, list[Case]] = {}
    names = {case.name for case in CASES}
    for case in CASES:
        if not (NOT_SENT.match(case.name) or f"{case.name}-nulls" in names):
            lengths.setdefault(len(case.array()), []).append(case)
    for i, length in enumerate(sorted(lengths)):
        cases = lengths[length]
        batch = sa.record_batch([case.array() for case in cases], [case.name for case in cases])
        codec = [None, "lz4", "zstd"][i % 3]
        write(tmp_path / f"{length:03}", batch, stream=i % 2 == 1, codec=codec)
    df = read(spark, str(tmp_path), mergeSchema="true")
    types = {field.name: field.dataType.simpleString() for field in df.schema}
    assert {name: types.get(f"{name}-nulls", types.get(name)) for name in IN_SPARK} == IN_SPARK
    with settings(spark, INTERPRETED):
        found = df.toArrow()
    assert found.num_rows == sum(lengths)
    failures, start = [], 0
    for length in sorted(lengths):
        for case in lengths[length]:
            column = found.column(case.name)
            mine = column.slice(start, length)
            assert column.null_count - mine.null_count == found.num_rows - length, case
            values, wanted = plain(sa.chunked_array(mine).to_pylist()), plain(case.values)
            if values != wanted:
                failures.append(f"{case.name}: {case.type} as {types[case.name]}: {values} is not {wanted}")
        start += length
    assert not failures, "\n".join(failures)


def test_types_that_this_pyspark_lacks(tmp_path: Path) -> None:
    from pyspark.sql import types

    path = write(tmp_path / "f.arrow", {"n": [1], "t": sa.array([0], sa.time64("us"))})
    if hasattr(types, "TimeType"):
        assert source(path).schema()["t"].dataType == types.TimeType(6)
    else:
        with pytest.raises(sa.Unsupported, match=r"column 't': pyspark 4\.0\.\d+ has no type for time\(6\)"):
            source(path).schema()
        assert rows_of(source(path, columns="n")) == [{"n": 1}]


def test_the_page_of_types_is_up_to_date() -> None:
    pytest.importorskip("pyarrow", minversion="26")
    pytest.importorskip("pyspark", minversion="4.3")
    assert spark_types.PAGE.read_text(encoding="utf-8") == spark_types.page(), "run make docs"


# --- what is read -----------------------------------------------------------------------------------------------

NUMBERS = {"id": [1, 2, 3, 4], "s": ["a", None, "c", "d"], "v": [0.5, 1.5, None, 2.5]}


def test_columns_are_chosen_and_ordered_and_others_are_not_looked_at(spark: Any, tmp_path: Path) -> None:
    batch = sa.record_batch({"a.b": [1, 2], "bad": ["xx", "yy"], "c,d": [True, None], "`": [1.5, 2.5]})
    path = Path(write(tmp_path / "f.arrow", batch))
    path.write_bytes(path.read_bytes().replace(b"xxyy", b"\xff\xfe\xff\xfe"))
    df = read(spark, path.as_uri(), columns='["`", "a.b", "c,d"]')
    assert df.columns == ["`", "a.b", "c,d"]
    assert [tuple(row) for row in df.collect()] == [(1.5, 1, True), (2.5, 2, None)]
    asked = spark.read.format("shmarrow").schema("`c,d` boolean, `a.b` bigint").load([str(path), str(path)])
    assert [tuple(row) for row in asked.collect()] == [(True, 1), (None, 2)] * 2
    with pytest.raises(Exception, match=r"InvalidData: .*f.arrow.*'bad'.*UTF-8"):
        read(spark, str(path)).collect()


def test_directories_globs_and_shared_memory(tmp_path: Path, shm_name: str) -> None:
    for name in ("2.arrow", "1.arrows", "_hidden", ".hidden", "3.txt", "day=1/4.arrow"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        write(tmp_path / name, {"name": [name]}, stream=name.endswith("s"))

    def names(path: Any, **options: str) -> list[str]:
        return [row["name"] for row in rows_of(source(path, **options))]

    with pytest.raises(
        sa.StorageError, match=r"contains directories \(the first is 'day=1'\).*partitionBy.*not read as"
    ):
        names(tmp_path)
    assert names(tmp_path, recursiveFileLookup="true") == ["1.arrows", "2.arrow", "3.txt", "day=1/4.arrow"]
    found = names(tmp_path, recursiveFileLookup="true", pathGlobFilter="*.arrow*")
    assert found == ["1.arrows", "2.arrow", "day=1/4.arrow"]
    assert names(tmp_path / "*.arrow*") == names(tmp_path / "[12].a*") == ["1.arrows", "2.arrow"]
    assert names(tmp_path / "_hidden") == ["_hidden"]
    write(f"shm:{shm_name.removeprefix('shm:')}", {"name": ["m"]})  # type: ignore[arg-type]
    assert names(shm_name) == ["m"]
    sa.segment.delete(shm_name)


def test_objects_of_stores(tmp_path: Path) -> None:
    with sa.Store(tmp_path / "store") as store:
        for name in ("day/1", "day/2", "other"):
            store.put(name, sa.table({"name": [name]}))
        for given, expected in [("other", ["other"]), ("day", ["day/1", "day/2"]), ("*1", ["day/1"])]:
            assert [row["name"] for row in rows_of(source(given, store=str(store.path)))] == expected
        with pytest.raises(sa.ObjectNotFound, match="has no object 'x'"):
            source("x", store=str(store.path)).schema()
        with pytest.raises(sa.InvalidArgument, match=r"is a store: give it as \.option"):
            source(store.path).schema()
        store.put("array", np.arange(3))
        with pytest.raises(sa.Unsupported, match=r"array: .*a Tensor message"):
            source("array", store=str(store.path)).schema()


def test_schemas_of_several_files(tmp_path: Path) -> None:
    write(tmp_path / "1", {"a": [1], "b": ["x"]})
    write(tmp_path / "2", {"b": ["y"], "c": [2.5]})
    with pytest.raises(sa.InvalidType, match=r"1 has a column 'a', which .*2 lacks; .*mergeSchema"):
        source(tmp_path).schema()
    assert rows_of(source(tmp_path, mergeSchema="true")) == [
        {"a": 1, "b": "x", "c": None},
        {"a": None, "b": "y", "c": 2.5},
    ]
    assert rows_of(source(tmp_path, columns="b")) == [{"b": "x"}, {"b": "y"}]
    write(tmp_path / "2", {"a": ["1"], "b": ["y"]})
    with pytest.raises(sa.InvalidType, match=r"2: column 'a' is string in Spark, and bigint in .*1"):
        source(tmp_path).schema()
    with pytest.raises(sa.FieldNotFound, match=r"no field is named 'A'; .*'a'"):
        source(tmp_path / "1", columns="A").schema()


def test_splits_fall_along_batches(tmp_path: Path) -> None:
    path = write(tmp_path / "f.arrow", {"n": np.arange(1 << 20)}, batches=8)
    reader = source(path, maxPartitionBytes="2m").reader(source(path).schema())
    splits = reader.partitions()
    assert len(splits) in (4, 8)  # of one or two MiB
    parts = [[row for batch in reader.read(split) for row in batch["n"].to_pylist()] for split in splits]
    assert [row for part in parts for row in part] == list(range(1 << 20))
    empty = write(tmp_path / "empty.arrow", {"n": pa.array([], pa.int64())})
    assert rows_of(source(empty)) == []


def test_values_stay_in_the_mapped_file(tmp_path: Path) -> None:
    path = write(tmp_path / "f.arrow", {"n": np.arange(1000), "s": ["abc"] * 1000})
    reader = source(path).reader(source(path).schema())
    with sa.ipc.open_file(path):
        (split,) = reader.partitions()
        (batch,) = reader.read(split)
        assert file_of(np.asarray(batch["n"])) == path


@pytest.mark.parametrize(
    ("path", "kind", "said"),
    [
        ("hdfs://host/x", sa.InvalidArgument, "only files of mounted file systems .* found the scheme 'hdfs'"),
        ("/tmp/\ud800", sa.InvalidArgument, r"'/tmp/\\ud800' cannot be encoded as a path"),
        ("shm:", sa.InvalidArgument, "NAME has 1 to 254 bytes"),
        ("shm:no-such-object", sa.ObjectNotFound, "there is no 'shm:no-such-object' on host"),
        ("/no/*/match", sa.ObjectNotFound, r"nothing matches '/no/\*/match'"),
        ("nul\0", sa.InvalidArgument, "NUL"),
        (None, sa.InvalidArgument, r"nothing to read: give a path"),
        ("/dev/null", sa.StorageError, "/dev/null"),
    ],
)
def test_paths_that_lead_nowhere(path: Any, kind: Any, said: str) -> None:
    with pytest.raises(kind, match=said):
        source(path).schema()


@pytest.mark.parametrize(
    ("rows", "options", "kind", "said"),
    [
        ({"a": [1]}, {"columns": ""}, sa.InvalidArgument, "option 'columns' must be names"),
        ({"a": [1]}, {"maxPartitionByte": "1"}, sa.InvalidArgument, "did you mean 'maxPartitionBytes'"),
        ({"a": [1]}, {"trust": "perhaps"}, sa.InvalidArgument, "option 'trust' must be true or false"),
        ({"a": [1]}, {"maxPartitionBytes": "x"}, sa.InvalidArgument, "must be a number of bytes"),
        (sa.record_batch([[1], [2]], ["a", "a"]), {}, sa.Unsupported, "several columns are named 'a'.*columns"),
        ({"u": by_name("dense-union").array()}, {}, sa.Unsupported, r"column 'u'.*columns"),
        ("PAR1....PAR1", {}, sa.InvalidData, r"a Parquet file.*read_parquet"),
        ("a,b\n1,2\n", {}, sa.InvalidData, r"text, such as CSV.*read_csv"),
        ("ARROW1", {}, sa.InvalidData, "f"),
    ],
)
def test_what_cannot_be_read(rows: Any, options: Any, kind: Any, said: str, tmp_path: Path) -> None:
    path = tmp_path / "f"
    if isinstance(rows, str):
        path.write_text(rows)
    else:
        write(path, rows)
    with pytest.raises(kind, match=said):
        source(path, **options).schema()


def test_schemas_that_a_file_does_not_fit(tmp_path: Path) -> None:
    path = write(tmp_path / "f", {"n": [1, None, 1 << 40], "t": sa.array([0, 1, 2], sa.timestamp("us"))})
    for ddl, kind, said in [
        ("m long", sa.FieldNotFound, "no field is named 'm'"),
        ("n string", sa.InvalidType, "column 'n': int64 has no exact cast"),
        ("n int", sa.InvalidData, "n.*1099511627776"),
        ("n long not null", sa.InvalidData, "'n'"),
        ("t timestamp", sa.InvalidType, "column 't' has times without a time zone"),
    ]:
        with pytest.raises(kind, match=said):
            rows_of(source(path), struct_of(ddl))
    assert rows_of(source(path), struct_of("n decimal(20,0)"))[2] == {"n": 1 << 40}


def struct_of(ddl: str) -> StructType:
    names = {"long": "long", "int": "integer", "string": "string", "timestamp": "timestamp"}
    name, kind, *rest = ddl.split()
    field = {"name": name, "type": names.get(kind, kind), "nullable": not rest, "metadata": {}}
    return StructType.fromJson({"type": "struct", "fields": [field]})


def test_errors_reach_the_driver_and_streams_are_refused(spark: Any, tmp_path: Path) -> None:
    path = Path(write(tmp_path / "a\nb", {"n": [1]}))
    df = read(spark, str(path))
    assert [tuple(row) for row in df.collect()] == [(1,)]
    planned = source(path).reader(source(path).schema())
    splits = planned.partitions()
    write(path, {"n": [1, 2]})
    with pytest.raises(sa.StorageError, match="was changed after the query was planned; run the query again"):
        list(planned.read(splits[0]))
    path.unlink()
    with pytest.raises(sa.ObjectNotFound, match="the query was planned while it was there"):
        list(planned.read(splits[0]))
    with pytest.raises(Exception, match=r"ObjectNotFound: cannot read: there is no '.*a\\nb'"):
        read(spark, str(path)).collect()
    with pytest.raises(sa.Unsupported, match=r"cannot be read as a stream; .* spark\.read"):
        source(tmp_path).streamReader(None)
    with pytest.raises(sa.Unsupported, match=r"cannot be written as a stream; .*foreachBatch\("):
        source(tmp_path).streamWriter(None, False)


# --- writing ----------------------------------------------------------------------------------------------------


def save(df: Any, where: Any, mode: str = "append", **options: str) -> None:
    df.write.format("shmarrow").mode(mode).options(**options).save(str(where))


def numbers(where: Path) -> list[int]:
    """The rows that count, read without Spark."""
    empty = not json.loads((where / "_shmarrow" / "manifest.json").read_text())["files"]
    return [] if empty else [row["id"] for row in rows_of(source(where))]


def left(where: Path) -> set[str]:
    """List a directory without the files that count."""
    manifest = json.loads((where / "_shmarrow" / "manifest.json").read_text())
    others = {path.name for path in where.iterdir()} - set(manifest["files"])
    return others | {path.name for path in (where / "_shmarrow").iterdir()}


IDLE = {"_shmarrow", "manifest.json", "lock"}


def test_append_and_overwrite(spark: Any, tmp_path: Path) -> None:
    where = tmp_path / "new" / "rows"
    save(spark.range(0, 10, 1, 2), where)
    save(spark.range(10, 15, 1, 1), where, compression="zstd")
    assert numbers(where) == list(range(15))
    assert dataset.dataset(where, format="arrow").count_rows() == 15  # what other programs see
    save(read(spark, str(where)).where("id < 3"), where, "overwrite")  # of what is replaced
    assert numbers(where) == [0, 1, 2]
    assert left(where) == IDLE
    with pytest.raises(Exception, match=r"InvalidType: cannot append to .*Nothing was changed: cast or select"):
        save(spark.range(3).selectExpr("id AS other"), where)
    save(spark.range(0, 40_000, 1, 5), where, "overwrite")
    assert len(list(where.glob("part-*"))) == 5
    assert numbers(where) == list(range(40_000))
    save(spark.range(0), where, "overwrite")
    assert numbers(where) == []
    for mode, said in (("error", 'use either the "Append" or "Overwrite"'), ("ignore", "use either")):
        with pytest.raises(Exception, match=said):
            save(spark.range(3), where, mode)
    assert left(where) == IDLE


def fails(batches: Any) -> Any:
    from pyspark import TaskContext

    context = TaskContext.get()
    assert context is not None
    yield from batches
    if context.partitionId() == 1:
        if context.attemptNumber() == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        raise ValueError("no such luck")


def test_a_job_that_fails(spark: Any, tmp_path: Path) -> None:
    where = tmp_path / "rows"
    save(spark.range(3), where)
    with pytest.raises(Exception, match="no such luck"):
        save(spark.range(0, 10, 1, 2).mapInArrow(fails, "id long"), where)
    assert numbers(where) == [0, 1, 2]
    assert left(where) == IDLE


def test_a_batch_that_is_repeated_changes_nothing(spark: Any, tmp_path: Path) -> None:
    where = tmp_path / "rows"
    for batch in (0, 1, 1, 0, 2, 2):
        save(spark.range(batch * 10, batch * 10 + 10, 1, 2), where, txnAppId="q", txnVersion=str(batch))
    assert numbers(where) == list(range(30))
    save(spark.range(100, 101), where, txnAppId="another", txnVersion="1")
    save(spark.range(101, 102), where)
    assert numbers(where) == [*range(30), 100, 101]
    assert left(where) == IDLE
    with pytest.raises(Exception, match="'txnAppId' and 'txnVersion' belong together"):
        save(spark.range(3), where, txnAppId="q")
    with pytest.raises(Exception, match="'txnVersion' must be a whole number"):
        save(spark.range(3), where, txnAppId="q", txnVersion="x")


def written(directory: Path, first: int, version: int) -> Any:
    """A writer with the files of one task, as Spark has it before the commit."""
    from shmarrow.spark.source import writer

    options = {"path": str(directory), "txnAppId": "q", "txnVersion": str(version)}
    made = writer.make_writer(options, struct_of("id long"), False)
    made._write_file("0", [pa.record_batch({"id": np.arange(first, first + 10)}).cast(made.target)])
    return made, [writer.Written(0, "0")]


def test_a_stream_that_is_killed_and_restarted_fifty_times(tmp_path: Path) -> None:
    """Each commit is killed before another line, and its batch is repeated, as Spark does after a restart."""
    where, killed = tmp_path / "rows", 0
    version, point = 0, 0
    while killed < 50:

        def commit() -> None:
            made, messages = written(where, version * 10, version)  # noqa: B023
            spark_kills.kill_at(tmp_path / "notes", point)  # noqa: B023
            made.commit(messages)

        status = ended(forked(commit))
        assert status in (0, -signal.SIGKILL)
        if status == 0:
            version, point = version + 1, 0
            assert numbers(where) == list(range(version * 10))
        else:
            killed, point = killed + 1, point + 3
            found = numbers(where) if (where / "_shmarrow" / "manifest.json").exists() else []
            assert found in ([*range(version * 10)], [*range(version * 10 + 10)])
    made, messages = written(where, version * 10, version)
    made.commit(messages)
    assert numbers(where) == list(range(version * 10 + 10))
    assert left(where) == IDLE  # also of the jobs that were killed


def test_directories_that_are_not_written(tmp_path: Path) -> None:
    from shmarrow.spark.source.manifest import Manifest, opened_state, write_manifest
    from shmarrow.spark.source.writer import make_writer

    def begin(path: Path, ddl: str = "id long") -> None:
        make_writer({"path": str(path)}, struct_of(ddl), True)

    (tmp_path / "others").mkdir()
    (tmp_path / "others" / "a.txt").touch()
    with pytest.raises(sa.InvalidArgument, match=r"it has 'a\.txt', and no manifest, so Spark did not write it"):
        begin(tmp_path / "others")
    with pytest.raises(sa.InvalidArgument, match="expected a directory, found a file"):
        begin(tmp_path / "others" / "a.txt")
    (tmp_path / "link").mkdir()
    (tmp_path / "link" / "_shmarrow").symlink_to(tmp_path / "others")
    with pytest.raises(sa.StorageError, match="_shmarrow"):
        begin(tmp_path / "link")
    state = tmp_path / "bad" / "_shmarrow"
    state.mkdir(parents=True)
    for text, kind, said in [
        ('{"version": 9}', sa.Unsupported, r"manifest\.json: expected version 2, found 9"),
        ("[", sa.InvalidData, "expected JSON"),
        ('{"version": 2, "files": ["../x"], "transactions": {}}', sa.InvalidData, "expected the names of files"),
        ('{"version": 2, "files": [], "transactions": {"a": "b"}}', sa.InvalidData, "expected numbers"),
    ]:
        (state / "manifest.json").write_text(text)
        with pytest.raises(kind, match=said):
            begin(tmp_path / "bad")
        with pytest.raises(kind, match=said):
            source(tmp_path / "bad").schema()
    with opened_state(str(tmp_path / "bad")) as opened, pytest.raises(sa.StorageError, match="which nobody could read"):
        write_manifest(opened, Manifest((), {"x" * (1 << 26): 1}), False)
    with pytest.raises(sa.InvalidArgument, match="it names a store"):
        make_writer({"path": "shm:x"}, struct_of("id long"), True)
    with pytest.raises(sa.Unsupported, match=r"the DataFrame, field 'id' is interval month, .*cast it to int"):
        begin_months(tmp_path / "new")
    assert not (tmp_path / "new").exists()


def begin_months(path: Path) -> None:
    from pyspark.sql.types import StructField, YearMonthIntervalType

    from shmarrow.spark.source.writer import make_writer

    make_writer({"path": str(path)}, StructType([StructField("id", YearMonthIntervalType(1, 1))]), True)
