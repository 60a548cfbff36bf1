"""The classes of the data source ``shmarrow``, called as Spark's processes do: planning, reading, writing, committing.

What only Spark shows is in ``test_spark_source.py`` and ``test_spark_stream.py``.
"""

from __future__ import annotations

import datetime as dt
import itertools
import os
import pickle
import signal
from contextlib import nullcontext
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import spark_kills
import spark_types
from cases.table import case as by_name
from processes import ended, forked
from spark_maps import file_of
from spark_source import Batch, Job, add, batches_in, left, numbers, rows_of, source, struct_of, write

import shmarrow as sa

pa = pytest.importorskip("pyarrow")
pytest.importorskip("pyspark")

from pyspark.sql.types import StructField, StructType, YearMonthIntervalType  # noqa: E402

pytestmark = pytest.mark.processes


def test_types_that_this_pyspark_lacks(tmp_path: Path) -> None:
    from pyspark.sql import types

    path = write(tmp_path / "f.arrow", {"n": [1], "t": sa.array([0], sa.time64("us"))})
    if hasattr(types, "TimeType"):
        assert source(path).schema()["t"].dataType == types.TimeType(6)
    else:
        with pytest.raises(sa.Unsupported, match=r"column 't': pyspark 4\.0\.\d+ has no type for time\(6\)"):
            source(path).schema()
        assert rows_of(source(path), struct_of("n long")) == [{"n": 1}]


def test_the_page_of_types_is_up_to_date() -> None:
    pytest.importorskip("pyarrow", minversion="26")
    pytest.importorskip("pyspark", minversion="4.3")
    assert spark_types.PAGE.read_text(encoding="utf-8") == spark_types.page(), "run make docs"


# --- what is read -----------------------------------------------------------------------------------------------------


def names(path: Any) -> list[str]:
    return [row["name"] for row in rows_of(source(path))]


def test_what_paths_lead_to(tmp_path: Path, shm_name: str) -> None:
    """Files and streams, in directories and by patterns, shared memory, and objects of stores."""
    for name in ("2.arrow", "1.arrows", "_hidden", "in/4.arrow", "_temporary/job/5.arrow"):
        (tmp_path / name).parent.mkdir(exist_ok=True, parents=True)
        write(tmp_path / name, {"name": [name]}, stream=name.endswith("s"))
    assert names(tmp_path) == names(tmp_path / "**" / "*.arrow*") == ["1.arrows", "2.arrow", "in/4.arrow"]
    write(shm_name, {"name": ["m"]})
    assert names(shm_name) == ["m"]
    sa.segment.delete(shm_name)
    path = tmp_path / "store"
    with sa.Store(path) as store:
        for name in ("day/1", "day/2", "other"):
            store.put(name, sa.table({"name": [name]}))
        assert (names(path / "other"), names(path / "day")) == (["other"], ["day/1", "day/2"])
        assert (names(path / "*1"), names(path)) == (["day/1"], ["day/1", "day/2", "other"])
        planned = source(path / "other").reader(source(path / "other").schema())
        (split,) = pickle.loads(pickle.dumps(planned.partitions()))
        store.put("other", sa.table({"name": ["new"]}), overwrite=True)
        with pytest.raises(sa.StorageError, match="was changed after the query was planned"):
            list(planned.read(split))
        store.put("array", np.arange(3))
        with pytest.raises(sa.InvalidData, match="array is a tensor, which has no rows"):
            source(path / "array").schema()


def test_schemas_of_several_files(tmp_path: Path) -> None:
    write(tmp_path / "1", {"a": [1], "b": ["x"]})
    write(tmp_path / "2", {"b": ["y"], "c": [2.5]})
    assert rows_of(source(tmp_path)) == [{"a": 1, "b": "x"}, {"a": None, "b": "y"}]
    assert rows_of(source(tmp_path, mergeSchema="true")) == [
        {"a": 1, "b": "x", "c": None},
        {"a": None, "b": "y", "c": 2.5},
    ]
    assert rows_of(source(tmp_path), struct_of("b string")) == [{"b": "x"}, {"b": "y"}]
    write(tmp_path / "3", {"A": [1]})
    with pytest.raises(sa.InvalidType, match="3: columns 'a' and 'A' of several files are one for Spark"):
        source(tmp_path, mergeSchema="true").schema()
    (tmp_path / "3").unlink()
    write(tmp_path / "2", {"a": ["1"], "b": ["y"]})
    with pytest.raises(sa.InvalidType, match=r"2: column 'a': string has no exact cast to int64"):
        rows_of(source(tmp_path))


def test_options_without_a_meaning_are_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "f", {"id": [1]})
    for name in ("filter", "filters", "column", "mode", "maxRecordsPerFile", "maxFilesPerTrigger", "compression"):
        with pytest.raises(sa.InvalidArgument, match=f"'{name}' is no option of read: expected .*pathGlobFilter"):
            source(path, **{name: "1"}).reader(struct_of("id long")).partitions()
    for name in ("filter", "modifiedAfter", "checkpointLocation"):
        with pytest.raises(sa.InvalidArgument, match=f"'{name}' is no option of readStream: expected .*maxFiles"):
            source(path, **{name: "1"}).streamReader(struct_of("id long"))
        with pytest.raises(sa.InvalidArgument, match=f"'{name}' is no option of write: expected compression, path"):
            source(tmp_path / "out", **{name: "1"}).writer(struct_of("id long"), False)
    with pytest.raises(sa.InvalidArgument, match="'mergeSchema' is no option of writeStream"):
        source(tmp_path / "out", mergeSchema="1").streamWriter(struct_of("id long"), False)
    with pytest.raises(sa.InvalidArgument, match="'filter' is no option of read or readStream"):
        source(path, filter="1").schema()
    with pytest.raises(sa.InvalidArgument, match="use CREATE TEMPORARY VIEW"):
        source(path, provider="shmarrow").schema()
    source(tmp_path / "out", checkpointLocation="x", queryName="y").streamWriter(struct_of("id long"), False)


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("*.arrow", "a.arrow b1.arrow b2.arrow"), ("b?.arrow", "b1.arrow b2.arrow"), ("b[13].arrow", "b1.arrow"),
        ("b[^1]*", "b2.arrow"), ("b[!1]*", "b2.arrow"), ("{a,b[1-9]}.{arrow,x}", "a.arrow b1.arrow b2.arrow"),
        ("*", "a.arrow b1.arrow b2.arrow c,d [x]"), ("c,d", "c,d"), (r"\[x\]", "[x]"), ("in", ""), ("A*", ""),
    ],
)  # fmt: skip
def test_names_are_chosen_as_by_sparks_own_formats(tmp_path: Path, pattern: str, expected: str) -> None:
    (tmp_path / "in").mkdir()
    for name in ("a.arrow", "b1.arrow", "in/b2.arrow", "c,d", "[x]"):
        write(tmp_path / name, {"name": [Path(name).name]})
    found = source(tmp_path, pathGlobFilter=pattern)
    assert sorted(row["name"] for row in rows_of(found, struct_of("name string"))) == sorted(expected.split())
    with pytest.raises(sa.InvalidArgument, match="'pathGlobFilter' is no pattern of names"):
        rows_of(source(tmp_path, pathGlobFilter="{a"))


def test_files_are_chosen_by_the_time_of_their_last_change(tmp_path: Path) -> None:
    for hour in (1, 2, 3):
        os.utime(write(tmp_path / str(hour), {"id": [hour]}), (0, hour * 3600 + 0.0009))
    for after, before, zone, expected in [
        ("1970-01-01T02:00:00Z", None, None, [3]), ("1970-01-01T01:59:59.999+00:00", None, None, [2, 3]),
        (None, "1970-01-01T03:00:00", "UTC", [1, 2]), (None, "1970-01-01 11:30:00", "Asia/Tokyo", [1, 2]),
        ("1970-01-01", "1970-01-01T02:30:00", "UTC", [1, 2]), ("1970-01-01T02:00:00Z", None, "Asia/Tokyo", [3]),
    ]:  # fmt: skip
        given = {"modifiedAfter": after, "modifiedBefore": before, "timeZone": zone}
        made = source(tmp_path, **{name: value for name, value in given.items() if value is not None})
        assert [row["id"] for row in rows_of(made)] == expected
    for options, said in [
        ({"modifiedAfter": "1970-01-01T02:00:00"}, "has no time zone, and Spark does not tell"),
        ({"modifiedAfter": "yesterday"}, "must be a time such as"),
        ({"modifiedAfter": "1970-01-01", "timeZone": "Nowhere/X"}, "must be a time such as"),
    ]:
        with pytest.raises(sa.InvalidArgument, match=said):
            source(tmp_path, **options).schema()


def test_files_that_are_missing_or_broken(tmp_path: Path) -> None:
    """They are an error that names the option, or left out, when a query is planned and when it runs."""
    for name in ("00", "11", "22"):
        path = Path(write(tmp_path / name, {"s": [name]}))
        path.write_bytes(path.read_bytes().replace(b"11", b"\xff\xfe"))
    lenient = {"ignoreMissingFiles": "true", "ignoreCorruptFiles": "true"}
    splits = {}
    for options in ({}, lenient):
        reader = source(tmp_path, maxPartitionBytes="1", **options).reader(struct_of("s string"))
        splits[reader] = pickle.loads(pickle.dumps(reader.partitions()))
    (tmp_path / "00").unlink()
    strict, reader = splits
    for partition, kind, said in zip(
        splits[strict], [sa.ObjectNotFound, sa.InvalidData, None], ["ignoreMissingFiles", "ignoreCorruptFiles", ""],
        strict=True,
    ):  # fmt: skip
        with pytest.raises(kind, match=said) if kind else nullcontext():
            list(strict.read(partition))
    rows = [row["s"] for part in splits[reader] for batch in reader.read(part) for row in batch.to_pylist()]
    assert rows == ["22"]
    (tmp_path / "README.md").write_text("# Not Arrow")
    (tmp_path / "11").write_bytes(b"x" * 99)
    for options in ({}, {"ignoreMissingFiles": "true"}):
        with pytest.raises(sa.InvalidData, match=r"pathGlobFilter.*ignoreCorruptFiles"):
            rows_of(source(tmp_path, **options), struct_of("s string"))
    assert rows_of(source(tmp_path, ignoreCorruptFiles="true")) == [{"s": "22"}]
    (tmp_path / "a=1").mkdir()
    write(tmp_path / "a=1" / "3", {"s": ["3"]})
    merged = source(tmp_path, **lenient, recursiveFileLookup="true", mergeSchema="true")
    assert rows_of(merged) == [{"s": "22"}, {"s": "3"}]


@pytest.mark.parametrize(
    ("text", "kind", "value"),
    [
        ("1.5", "double", 1.5), ("true", "boolean", True), ("-9223372036854775808", "long", -(1 << 63)),
        ("99999999999999999999", "decimal(20,0)", Decimal(10**20 - 1)), ("abc", "binary", b"abc"),
        ("2024-01-01 12%3A00%3A00", "timestamp_ntz", dt.datetime(2024, 1, 1, 12)), ("007", "string", "007"),
        ("2024-01-01T12:00:00Z", "timestamp", dt.datetime(2024, 1, 1, 12, tzinfo=dt.UTC)),
        ("2024-01-01T12:00:00", "timestamp", None), ("300", "byte", None), ("x", "integer", None),
    ],
)  # fmt: skip
def test_keys_of_directories_take_any_type_that_the_schema_gives(
    tmp_path: Path, text: str, kind: str, value: Any
) -> None:
    """Exactly, or they are refused; times without a zone are no instants."""
    (tmp_path / f"k={text}").mkdir()
    write(tmp_path / f"k={text}" / "f", {"n": [1]})
    with pytest.raises(sa.InvalidData, match="column 'k'") if value is None else nullcontext():
        assert rows_of(source(tmp_path), struct_of(f"k {kind}")) == [{"k": value}]


def test_splits_fall_along_batches(tmp_path: Path) -> None:
    path = write(tmp_path / "f.arrow", {"n": np.arange(1 << 20)}, batches=8)
    reader = source(path, maxPartitionBytes=str(2 << 20)).reader(source(path).schema())
    splits = reader.partitions()
    assert len(splits) in (4, 8)  # of one or two MiB
    parts = [[row for batch in reader.read(split) for row in batch["n"].to_pylist()] for split in splits]
    assert [row for part in parts for row in part] == list(range(1 << 20))
    empty = write(tmp_path / "empty.arrow", {"n": pa.array([], pa.int64())})
    assert rows_of(source(empty)) == []


def test_values_stay_in_the_mapped_file(tmp_path: Path) -> None:
    path = write(tmp_path / "f.arrow", {"n": np.arange(100_000), "s": ["abc"] * 100_000})
    reader = source(path).reader(source(path).schema())
    with sa.ipc.open_file(path):
        (split,) = reader.partitions()
        (batch,) = reader.read(split)
        assert file_of(np.asarray(batch["n"])) == path


@pytest.mark.parametrize(
    ("path", "kind", "said"),
    [
        ("hdfs://host/x", sa.ObjectNotFound, "hdfs://host/x"),
        ("/tmp/\ud800", sa.InvalidArgument, r"'/tmp/\\ud800' cannot be encoded as a path"),
        (None, sa.InvalidArgument, r"nothing to read: give a path"),
    ],
)
def test_paths_that_lead_nowhere(path: Any, kind: Any, said: str) -> None:
    with pytest.raises(kind, match=said):
        source(path).schema()


@pytest.mark.parametrize(
    ("rows", "options", "kind", "said"),
    [
        ({"a": [1]}, {"unchecked": "perhaps"}, sa.InvalidArgument, "option 'unchecked' must be true or false"),
        ({"a": [1]}, {"maxPartitionBytes": "x"}, sa.InvalidArgument, "must be a number of bytes"),
        (sa.record_batch([[1], [2]], ["a", "a"]), {}, sa.Unsupported, r"several columns are named 'a'.*\.schema\("),
        ({"u": by_name("dense-union").array()}, {}, sa.Unsupported, r"column 'u'.*\.schema\("),
    ],
)
def test_what_cannot_be_read(rows: Any, options: Any, kind: Any, said: str, tmp_path: Path) -> None:
    made = source(write(tmp_path / "f", rows), **options)
    with pytest.raises(kind, match=said):
        made.reader(made.schema())


def test_schemas_that_a_file_does_not_fit(tmp_path: Path) -> None:
    path = write(tmp_path / "f", {"n": [1, None, 1 << 40], "t": sa.array([0, 1, 2], sa.timestamp("us"))})
    for ddl, kind, said in [
        ("n string", sa.InvalidType, "column 'n': int64 has no exact cast"),
        ("n int", sa.InvalidData, "n.*1099511627776"),
        ("n long not null", sa.InvalidData, "'n'"),
        ("m long not null", sa.InvalidData, "'m'.*lacks it"),
        ("t timestamp", sa.InvalidType, "column 't' has times without a time zone"),
    ]:
        with pytest.raises(kind, match=said):
            rows_of(source(path), struct_of(ddl))
    assert rows_of(source(path), struct_of("m long")) == [{"m": None}] * 3
    assert rows_of(source(path), struct_of("n decimal(20,0)"))[2] == {"n": 1 << 40}


# --- what is written --------------------------------------------------------------------------------------------------


def test_jobs_at_the_same_time(tmp_path: Path) -> None:
    """An overwrite replaces what was there when it was planned: what others commit later stays, whoever is first."""
    Job(tmp_path, range(5)).commit()
    jobs = [Job(tmp_path, range(i * 10, i * 10 + 10)) for i in range(3)]
    replacing = [Job(tmp_path, range(i, i + 10), overwrite=True) for i in (100, 200)]
    jobs[0].commit()
    jobs[1].writer.abort(jobs[1].messages)
    replacing[0].commit()
    assert numbers(tmp_path) == [*range(10), *range(100, 110)]
    replacing[1].commit()
    jobs[2].commit()
    expected = [*range(10), *range(20, 30), *range(100, 110), *range(200, 210)]
    assert numbers(tmp_path) == sorted(row["id"] for row in rows_of(source(tmp_path))) == expected
    assert left(tmp_path) == {"_SUCCESS"}
    late = Job(tmp_path, range(3)).writer
    late.abort([])
    with pytest.raises(sa.ObjectNotFound, match="Either the job has ended without this task, or the path is not on"):
        late.files.write(late.files.temporary(late.job), [])
    Job(tmp_path, range(3), overwrite=True).commit()
    assert (numbers(tmp_path), len(list(tmp_path.iterdir()))) == ([0, 1, 2], 2)


@pytest.mark.parametrize("overwrite", [False, True])
def test_a_commit_that_is_killed_is_seen_as_a_whole_or_not_at_all(tmp_path: Path, overwrite: bool) -> None:
    """Killed before any of its lines, it leaves the rows before or those after; then a job reads and replaces them."""
    old, new = list(range(10)), list(range(100, 110))
    before, after = old, new if overwrite else old + new
    seen = set()
    for point in range(0, 1000, 3):
        where = tmp_path / str(point)
        Job(where, old[:5]).commit()
        Job(where, old[5:]).commit()

        def commit() -> None:
            job = Job(where, new, overwrite)  # noqa: B023
            spark_kills.kill_at(tmp_path / "notes", point)  # noqa: B023
            job.commit()

        status = ended(forked(commit))
        found = sorted(row["id"] for row in rows_of(source(f"{where}//")))
        assert found in (before, after), point
        Job(where, [1000]).commit()
        assert numbers(where) == [*found, 1000], point
        Job(where, numbers(where), overwrite=True).commit()
        assert numbers(where) == [*found, 1000], point
        seen.add((found == after, status))
        if status == 0:
            break
    assert seen == {(False, -signal.SIGKILL), (True, -signal.SIGKILL), (True, 0)}


def test_a_link_in_the_place_of_the_marker_is_not_followed(tmp_path: Path) -> None:
    """Whoever may write into the directory cannot have other files of its writer emptied."""
    victim, where = tmp_path / "victim", tmp_path / "where"
    victim.write_text("precious")
    where.mkdir()
    for overwrite in (False, True):
        (where / "_SUCCESS").unlink(missing_ok=True)
        (where / "_SUCCESS").symlink_to(victim)
        Job(where, range(10), overwrite).commit()
        assert (victim.read_text(), (where / "_SUCCESS").read_bytes()) == ("precious", b"")
    assert left(where) == {"_SUCCESS"}


def test_directories_that_are_not_written(tmp_path: Path) -> None:
    (tmp_path / "others").mkdir()
    (tmp_path / "others" / "a.txt").write_text("a,b")
    (tmp_path / "parts" / "Day=1").mkdir(parents=True)
    write(tmp_path / "parts" / "Day=1" / "f", {"day": [1]})
    sa.Store(tmp_path / "store").close()
    for path, error, said in [
        (tmp_path / "others", sa.InvalidData, r"a\.txt"),
        (tmp_path / "others" / "a.txt", sa.InvalidArgument, "expected a directory, found a file"),
        (tmp_path / "parts", sa.InvalidType, "the names of directories give the column 'Day': append to .*Day=1'"),
        (tmp_path / "store", sa.InvalidArgument, "it is a store"),
        ("shm:x", sa.InvalidArgument, "it is a store"),
        ("hdfs://host/x", sa.InvalidArgument, "mounted file systems"),
        ("", sa.InvalidArgument, "path of a directory"),
    ]:
        with pytest.raises(error, match=said):
            source(path).writer(struct_of("day long"), False)
    with pytest.raises(sa.InvalidArgument, match="it is a store"):
        source(tmp_path / "store").writer(struct_of("day long"), True)
    with pytest.raises(sa.InvalidArgument, match="compression must be one of"):
        source(tmp_path / "new", compression="gzip").writer(struct_of("id long"), False)
    months = StructType([StructField("id", YearMonthIntervalType(1, 1))])
    with pytest.raises(sa.Unsupported, match=r"the DataFrame, field 'id' is interval month, .*cast it to int"):
        source(tmp_path / "new").writer(months, True)
    assert not (tmp_path / "new").exists()


# --- streams ----------------------------------------------------------------------------------------------------------


def test_what_a_stream_reads(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    with pytest.raises(sa.InvalidType, match=r"there are no files in .* give one with \.schema\(\.\.\.\)"):
        source(tmp_path / "in").schema()
    reader = source(tmp_path / "in").streamReader(struct_of("id long"))
    assert reader.latestOffset() == reader.initialOffset() == {}
    add(tmp_path, "0", "1")
    end = reader.latestOffset()
    assert list(end) == [str(tmp_path / "in" / name) for name in ("0", "1")]
    add(tmp_path, "2")  # while the batch is planned: of the next one
    splits = reader.partitions({}, end)
    assert [n for split in splits for batch in reader.read(split) for n in batch["id"].to_pylist()] == list(range(20))
    assert reader.partitions(end, end) == []
    (tmp_path / "in" / "1").unlink()
    with pytest.raises(sa.ObjectNotFound, match=r"1 is gone: it was there when the batch .*ignoreMissingFiles"):
        reader.partitions({}, end)
    lenient = source(tmp_path / "in", ignoreMissingFiles="true").streamReader(struct_of("id long"))
    (partition,) = lenient.partitions({}, end)
    assert [split.source for split in partition.value] == [str(tmp_path / "in" / "0")]


def test_a_file_that_is_missing_in_one_listing_is_not_read_again(tmp_path: Path) -> None:
    add(tmp_path, "0", "1")
    reader = source(tmp_path / "in").streamReader(struct_of("id long"))
    first = reader.latestOffset({}, None)
    (tmp_path / "in" / "1").rename(tmp_path / "away")
    assert reader.latestOffset(first, None) == first
    add(tmp_path, "2")
    second = reader.latestOffset(first, None)
    (tmp_path / "away").rename(tmp_path / "in" / "1")
    add(tmp_path, "3")
    third = reader.latestOffset(second, None)
    assert [Path(name).name for name in third if name not in second] == ["3"]
    (tmp_path / "in" / "1").unlink()
    for i in range(4, 20):
        add(tmp_path, str(i))
        third = reader.latestOffset(third, None)
    assert str(tmp_path / "in" / "1") not in third


def test_a_batch_of_a_stream_takes_so_many_files(tmp_path: Path) -> None:
    limits = pytest.importorskip("pyspark.sql.streaming.datasource")
    add(tmp_path, *map(str, range(5)))
    for i in range(5):
        os.utime(tmp_path / "in" / str(i), (0, 100 - i))
    reader = source(tmp_path / "in", maxFilesPerTrigger="2").streamReader(struct_of("id long"))
    assert reader.getDefaultReadLimit() == limits.ReadMaxFiles(2)
    reader.prepareForTriggerAvailableNow()
    add(tmp_path, "7")
    offsets: list[dict[str, int]] = [{}]
    while len(offsets) < 3 or offsets[-1] != offsets[-2]:
        offsets.append(reader.latestOffset(offsets[-1], reader.getDefaultReadLimit()))
    new = [sorted(Path(name).name for name in b if name not in a) for a, b in itertools.pairwise(offsets)]
    assert new == [["3", "4"], ["1", "2"], ["0"], []]
    assert source(tmp_path / "in").streamReader(struct_of("id long")).getDefaultReadLimit() == limits.ReadAllAvailable()
    with pytest.raises(sa.InvalidArgument, match="'maxFilesPerTrigger' must be a number of files"):
        source(tmp_path / "in", maxFilesPerTrigger="0").streamReader(struct_of("id long"))


def test_a_directory_of_another_stream_is_not_written(tmp_path: Path) -> None:
    Batch(tmp_path, 1).commit()  # as if its first one had had no rows
    for number, said in [(0, r"has 'batch=1', which is not of this query"), (1, r"batch=1' has '.*q\.arrow'")]:
        with pytest.raises(sa.StorageError, match=said):
            Batch(tmp_path, number, "other").commit()
    assert [row["id"] for row in rows_of(source(tmp_path))] == list(range(10, 20))
    with pytest.raises(sa.InvalidArgument, match="cannot write the column 'Batch' of a stream"):
        source(tmp_path).streamWriter(struct_of("Batch long"), False)


def test_a_commit_of_a_stream_that_is_killed_fifty_times(tmp_path: Path) -> None:
    """Each commit is killed before another line, and its batch is repeated, as Spark does after a restart."""
    killed = number = point = 0
    while killed < 50:

        def commit() -> None:
            batch = Batch(tmp_path / "out", number)  # noqa: B023
            spark_kills.kill_at(tmp_path / "notes", point)  # noqa: B023
            batch.commit()

        status = ended(forked(commit))
        assert status in (0, -signal.SIGKILL)
        there = any((tmp_path / "out").glob("batch=*"))
        found = [n for ids in batches_in(tmp_path).values() for n in ids] if there else []
        if status == 0:
            number, point = number + 1, 0
            assert found == list(range(number * 10))
        else:
            killed, point = killed + 1, point + 2
            assert found in ([*range(number * 10)], [*range(number * 10 + 10)])
    for _ in range(2):
        Batch(tmp_path / "out", number).commit()
    assert batches_in(tmp_path) == {i: list(range(i * 10, i * 10 + 10)) for i in range(number + 1)}
    assert all(path.name.startswith("batch=") for path in (tmp_path / "out").iterdir())
