"""The data source ``shmarrow``: Arrow files, streams and objects of stores, read by Spark.

What Spark calls in processes of its own, making the source, planning and reading, is also called here directly where a
job would show no more.
"""

from __future__ import annotations

import gzip
import os
import re
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import spark_types
from spark_lab import INTERPRETED, settings
from test_for_consumer import plain

import shmarrow as sa
from shmarrow.testing.definition import Case
from shmarrow.testing.table import CASES
from shmarrow.testing.table import case as by_name

pa = pytest.importorskip("pyarrow", minversion="26")
pytest.importorskip("pyspark", minversion="4.3")

from pyspark.errors import AnalysisException  # noqa: E402

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
    """What Spark's workers would read."""
    reader = made.reader(made.schema() if schema is None else schema)
    return [row for split in reader.partitions() for batch in reader.read(split) for row in batch.to_pylist()]


# --- types ------------------------------------------------------------------------------------------------------

LONG = '"long enough to lie outside of its view"'
JSON = {
    "dense-union": ["1", '"a"', "2", '"b"', "3", LONG],
    "sparse-union-codes-nulls": ['"a"', None, "1", None, "2", None, '"b"'],
    "union-nested": ["[1]", "5", '"a"', "[]"],
    "struct-union": ['{"u": 1}', '{"u": "a"}', '{"u": 3}'],
    "interval-day-time": ["[0, 0]", "[-1, 86400000]", "[1, -5]"],
    "interval-month-day-nano-nulls": ["[0, 0, 0]", None, "[-1, 31, 4611686018427387904]", None, "[1, -5, -1]"],
}
"""What becomes of values that Spark has no type for."""
NOT_SENT = re.compile(r".*union|interval-(day|month-day)|dictionary-dictionary|struct-duplicate|.*-(all-null|empty)$")
"""Other cases of these types, those that no file holds or Spark reads, and those of nulls only or of nothing."""
IN_SPARK = {
    "bool": "boolean", "int8": "tinyint", "uint8": "smallint", "uint16": "int", "uint32": "bigint",
    "uint64": "decimal(20,0)", "float16": "float", "float64": "double", "decimal32": "decimal(9,2)",
    "decimal128-negative-scale": "decimal(8,0)", "decimal256": "double", "date64": "date", "time32-s": "time(6)",
    "timestamp-ns": "timestamp_ntz", "timestamp-s-zone": "timestamp", "interval-month": "int",
    "large-string": "string", "binary-view": "binary", "fixed-size-binary": "binary", "union-nested": "string",
    "struct": "struct<x:int,y:double>", "map": "map<string,int>", "fixed-size-list": "array<float>",
    "dictionary-struct": "struct<x:int,y:double>", "ree-list": "array<tinyint>", "list-view-struct":
    "array<struct<x:int,y:double>>",
}  # fmt: skip
"""Types of Spark's for some cases."""


def test_every_type_goes_through_spark_with_equal_values(spark: Any, tmp_path: Path) -> None:
    """One file or stream for each length of the cases; Spark reads all columns of all files, with nulls for missing."""
    lengths: dict[int, list[Case]] = {}
    names = {case.name for case in CASES}
    for case in CASES:
        if case.name in JSON or not (NOT_SENT.match(case.name) or f"{case.name}-nulls" in names):
            lengths.setdefault(len(case.array()), []).append(case)
    for i, length in enumerate(sorted(lengths)):
        cases = lengths[length]
        batch = sa.record_batch([case.array() for case in cases], [case.name for case in cases])
        codec = [None, "lz4", "zstd"][i % 3]
        write(tmp_path / f"{length:03}", batch, stream=i % 2 == 1, codec=codec)
    df = read(spark, str(tmp_path), mergeSchema="true", lossy="decimal256", unsupported="string")
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
            values, wanted = plain(sa.ChunkedArray.from_pyarrow(mine).to_pylist()), plain(case.values)
            if case.name in JSON:
                wanted = JSON[case.name]
            elif case.type == sa.decimal256(76, 20):
                wanted = [None if value is None else float(value) for value in wanted]
            if values != wanted:
                failures.append(f"{case.name}: {case.type} as {types[case.name]}: {values} is not {wanted}")
        start += length
    assert not failures, "\n".join(failures)


def test_the_page_of_types_is_up_to_date() -> None:
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


def test_directories_globs_and_shared_memory(spark: Any, tmp_path: Path, shm_name: str) -> None:
    for name in ("2.arrow", "1.arrows", "_hidden", ".hidden", "3.txt", "sub/4.arrow"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        write(tmp_path / name, {"name": [name]}, stream=name.endswith("s"))
    found = {row["name"] for row in read(spark, str(tmp_path), recursiveFileLookup="true").collect()}
    assert found == {"2.arrow", "1.arrows", "3.txt", "sub/4.arrow"}

    def names(path: Any, **options: str) -> list[str]:
        return [row["name"] for row in rows_of(source(path, **options))]

    assert names(tmp_path, recursiveFileLookup="true", pathGlobFilter="*.arrow*") == [
        "1.arrows",
        "2.arrow",
        "sub/4.arrow",
    ]
    assert names(tmp_path / "*.arrow*") == ["1.arrows", "2.arrow"]
    assert names(tmp_path / "[12].a*") == ["1.arrows", "2.arrow"]
    assert names(tmp_path / "_hidden") == ["_hidden"]
    (tmp_path / "[12].arrow").write_bytes((tmp_path / "3.txt").read_bytes())
    assert names(tmp_path / "[12].arrow") == ["3.txt"]
    write(shm_name, {"name": ["shm"]})
    assert names(shm_name) == names(shm_name[:-1] + "?") == ["shm"]
    (tmp_path / "sub").rename(tmp_path / "a=1")
    with pytest.raises(sa.StorageError, match=r"the values in names such as 'a=1' do not become columns"):
        names(tmp_path)
    (tmp_path / "a=1").rename(tmp_path / "sub")
    with pytest.raises(sa.StorageError, match=r"contains directories \(the first is 'sub'\); .*recursiveFileLookup"):
        names(tmp_path)


def test_objects_of_stores(spark: Any, shm_name: str) -> None:
    with sa.Store(shm_name) as store:
        store.put("day/1", sa.table({"x": [1, None]}))
        store.put("day/2", sa.record_batch({"x": [3]}))
        store.put("other", sa.record_batch({"y": [3]}))
        df = read(spark, ["day/*"], store=shm_name)
        assert [row["x"] for row in df.collect()] == [1, None, 3]
        assert rows_of(source("day/2", store=store.path)) == [{"x": 3}]
        assert rows_of(source("day", store=shm_name)) == [{"x": 1}, {"x": None}, {"x": 3}]
        with pytest.raises(sa.ObjectNotFound, match=rf"the store '{shm_name}' has no object 'night/\*'"):
            source("night/*", store=shm_name).schema()
        with pytest.raises(sa.InvalidArgument, match=r"is a store: give it as .option\(\"store\", ...\)"):
            source(shm_name).schema()
        store.put("tensor", np.ones(3))
        with pytest.raises(sa.Unsupported, match=rf"tensor in the store {shm_name}.*Tensor message"):
            source("tensor", store=shm_name).schema()
        made = source("day/1", store=shm_name)
        reader = made.reader(made.schema())
        splits = reader.partitions()
        store.delete("day/1")
        with pytest.raises(sa.ObjectNotFound, match=r"'day/1'.*the query was planned on host .*removed meanwhile"):
            list(reader.read(splits[0]))


def test_schemas_of_several_files(tmp_path: Path) -> None:
    item = sa.field("i", sa.int64(), False)
    fields = [sa.field("a", sa.int64(), False), sa.field("b", sa.string_view()), sa.field("l", sa.list_(item))]
    write(tmp_path / "1", sa.record_batch({"a": [1], "b": ["x"], "l": [[1]]}, sa.schema(fields)))
    lists = sa.array([[None]], sa.large_list(sa.int64()))
    write(tmp_path / "2", sa.record_batch({"l": lists, "b": ["y"], "a": sa.array([None], "int64")}))
    both = source(tmp_path)
    assert both.schema().simpleString() == "struct<a:bigint,b:string,l:array<bigint>>"
    assert [field.nullable for field in both.schema()] == [True, True, True]
    assert both.schema()["l"].dataType.containsNull
    assert not source(tmp_path / "1").schema()["l"].dataType.containsNull
    assert rows_of(both) == [{"a": 1, "b": "x", "l": [1]}, {"a": None, "b": "y", "l": [None]}]

    write(tmp_path / "3", {"a": [3], "b": ["z"], "new": [True]})
    with pytest.raises(sa.InvalidType, match=rf"{tmp_path}/3 has no column 'l', which {tmp_path}/1 has; .*mergeSchema"):
        both.schema()
    merged = source(tmp_path, mergeSchema="true")
    assert merged.schema().fieldNames() == ["a", "b", "l", "new"]
    assert rows_of(merged)[1:] == [
        {"a": None, "b": "y", "l": [None], "new": None}, {"a": 3, "b": "z", "l": None, "new": True}
    ]  # fmt: skip
    assert rows_of(source(tmp_path, mergeSchema="true", columns="new,a"))[0] == {"new": None, "a": 1}
    write(tmp_path / "4", {"a": ["text"], "b": ["z"], "l": [[1]]})
    with pytest.raises(
        sa.InvalidType, match=rf"{tmp_path}/4: column 'a' is string in Spark, and bigint in {tmp_path}/1"
    ):
        source(tmp_path, mergeSchema="true").schema()


def test_rows_without_columns_and_files_without_rows(spark: Any, tmp_path: Path) -> None:
    none = write(tmp_path / "none", sa.Table.from_batches([sa.record_batch({"a": [1, 2, 3]}).select([])]))
    assert (read(spark, none).columns, read(spark, none).count()) == ([], 3)
    schema = sa.schema([sa.field("a", sa.uint64(), False)])
    empty = str(tmp_path / "empty")
    sa.ipc.new_stream(empty, schema).close()
    assert read(spark, empty).schema.simpleString() == "struct<a:decimal(20,0)>"
    assert rows_of(source(empty)) == []
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "_SUCCESS").touch()
    folder = str(tmp_path / "folder")
    with pytest.raises(
        sa.InvalidType, match=r"there are no files in '.*folder' to take a schema from; give one with .schema"
    ):
        source(folder).schema()
    assert spark.read.format("shmarrow").schema("a int").load(folder).collect() == []


# --- splits -----------------------------------------------------------------------------------------------------


def test_splits_fall_along_batches_and_large_batches_are_divided(spark: Any, tmp_path: Path) -> None:
    from pyspark.sql.functions import spark_partition_id

    rows = {"id": list(range(40_000))}  # 320,000 bytes of values
    write(tmp_path / "1", rows, batches=20)
    write(tmp_path / "2", rows, stream=True)
    write(tmp_path / "3", rows)
    df = read(spark, str(tmp_path), maxPartitionBytes="100k", batchBytes="16k")
    found = df.select(spark_partition_id().alias("task"), "id").toArrow()
    assert sorted(found["id"].to_pylist()) == sorted(rows["id"] * 3)
    tasks = found["task"].to_pylist()
    assert tasks == sorted(tasks)
    starts = [0, *[i for i in range(1, len(tasks)) if tasks[i] != tasks[i - 1]]]
    in_first = [start for start in starts if start < 40_000]
    assert len(in_first) >= 3
    assert all(start % 2_000 == 0 for start in in_first), "a task begins with a batch"
    assert all(not 40_000 < start < 80_000 for start in starts), "a stream is read by one task"
    assert len([start for start in starts if start > 80_000]) >= 3, "one large batch is read by several"

    made = source(tmp_path / "1", batchBytes="16k")
    reader = made.reader(made.schema())
    sizes = [batch.num_rows for split in reader.partitions() for batch in reader.read(split)]
    assert (sum(sizes), max(sizes)) == (40_000, 2_000)

    (tmp_path / "compressed").mkdir()
    made = source(write(tmp_path / "compressed" / "1", rows, codec="zstd"), maxPartitionBytes="100k", batchBytes="16k")
    reader = made.reader(made.schema())
    assert len(reader.partitions()) >= 3
    found = [[batch.column("id").to_pylist() for batch in reader.read(split)] for split in reader.partitions()]
    assert [value for split in found for values in split for value in values] == rows["id"]
    assert {len(values) for split in found for values in split[1:-1]} == {2_048}
    (tmp_path / "compressed" / "1").unlink()
    (tmp_path / "compressed").rmdir()
    assert len(source(tmp_path).reader(source(tmp_path).schema()).partitions()) <= 2, "small files share a task"


def test_rows_that_grow_when_they_are_cast_are_sent_in_pieces(tmp_path: Path) -> None:
    values = sa.array(["x" * 1000]).dictionary_encode()
    column = sa.DictionaryArray.from_arrays(sa.array([0] * 5_000, "int8"), values.dictionary)
    path = write(tmp_path / "f", {"d": column})
    made = source(path, batchBytes="100k")
    reader = made.reader(made.schema())
    batches = [batch for split in reader.partitions() for batch in reader.read(split)]
    assert sum(batch.num_rows for batch in batches) == 5_000
    assert max(batch.nbytes for batch in batches) <= 200 * 1024


def test_large_values_of_dictionaries_are_repeated_for_a_few_rows_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    values = sa.array(["x" * 300_000]).dictionary_encode()
    column = sa.DictionaryArray.from_arrays(sa.array([0] * 1_000, "int8"), values.dictionary)
    made = source(write(tmp_path / "f", {"d": column}))
    reader = made.reader(made.schema())
    sizes = [(batch.num_rows, batch.nbytes) for split in reader.partitions() for batch in reader.read(split)]
    assert sum(rows for rows, _ in sizes) == 1_000
    assert max(nbytes for _, nbytes in sizes) < 5 << 20
    monkeypatch.setattr(sa.layout.repeats, "REPEATED_BYTES", 0)  # more than 4 values are too many now
    found = [batch.column("d") for split in reader.partitions() for batch in reader.read(split)]
    assert sum(map(len, found)) == 1_000
    assert max(map(len, found)) == 4
    assert found[-1].to_pylist() == ["x" * 300_000] * len(found[-1])


def test_values_stay_in_the_mapped_file(tmp_path: Path) -> None:
    path = write(tmp_path / "f", {**NUMBERS, "z": sa.array([1, 2, 3, 4], sa.timestamp("us", "Asia/Tokyo"))})
    made = source(path)
    schema = made.schema()
    reader = made.reader(schema)
    batch = next(reader.read(reader.partitions()[0]))
    maps = [line.split() for line in Path("/proc/self/maps").read_text().splitlines() if line.endswith(path)]
    ranges = [tuple(int(part, 16) for part in line[0].split("-")) for line in maps]
    for column in batch.columns:
        address = column.buffers()[-1].address
        assert any(start <= address < end for start, end in ranges), column.type
    assert batch.schema.field("z").type == pa.timestamp("us", "UTC")


# --- what goes wrong --------------------------------------------------------------------------------------------


def test_errors_of_the_plan_and_of_tasks_reach_the_driver(spark: Any, tmp_path: Path) -> None:
    path = write(tmp_path / "f", {"u": by_name("sparse-union").array(), "t": sa.array([1_001] * 5, sa.timestamp("ns"))})
    with pytest.raises(AnalysisException, match=r"Unsupported: .*/f: column 'u': Spark has no type for sparse_union"):
        read(spark, path)
    assert read(spark, path, unsupported="drop").columns == ["t"]
    with pytest.raises(Exception, match=r"InvalidData: .*/f: column 't': .*lossy='timestamp' drops fractions"):
        read(spark, path, unsupported="drop").collect()
    df = read(spark, path, unsupported="string", lossy="timestamp")
    assert [row["u"] for row in df.collect()] == ["1", '"a"', "2", '"b"', "3"]
    with pytest.raises(AnalysisException, match=r"ObjectNotFound: cannot read: there is no '/no/such/file' on host"):
        read(spark, "/no/such/file")
    for name, said in (
        (b"x\xff.arrow", r"x\\(x|udc)ff\.arrow"),
        (b"nl\nshmarrow.errors.StoreFull: forged\x1b[31m.arrow", r"nl\\nshmarrow\.errors\.StoreFull: forged\\x1b\[31m"),
    ):
        folder = tempfile.mkdtemp(dir=tmp_path)
        Path(folder, os.fsdecode(name)).write_text("no Arrow file")
        with pytest.raises(
            AnalysisException,
            match=rf"shmarrow\.errors\.InvalidData: .*/{said}.*: expected an Arrow message at 0, found text",
        ):
            read(spark, folder)


def cut_short(path: Path) -> None:
    write(path, NUMBERS)
    path.write_bytes(path.read_bytes()[:-40])


def of_type(type: Any, *values: Any) -> Any:
    return lambda path: write(path, {"c": sa.array(values, type)})


TWICE = sa.struct([("x", sa.int8()), ("x", sa.int8())])
PLANNED = {
    "two columns of a name": (
        lambda path: write(path, sa.record_batch([[1], [2]], ["a", "a"])), {},
        sa.Unsupported, r"/f: 2 columns are named 'a', and Spark cannot read that .*\"columns\"",
    ),
    "two fields of a name": (
        of_type(sa.list_(TWICE), []), {}, sa.Unsupported, r"/f: 2 fields of column 'c' are named 'x'"
    ),
    "empty": (lambda path: path.touch(), {}, sa.InvalidData, r"/f: expected an Arrow file, found an empty file"),
    "cut short": (cut_short, {}, sa.InvalidData, r"/f: the file is truncated"),
    "no Arrow": (
        lambda path: path.write_bytes(b"PAR1" * 9), {}, sa.InvalidData,
        r"/f.* found a Parquet file; spark\.read\.parquet\(path\)",
    ),
    "compressed": (
        lambda path: path.write_bytes(gzip.compress(b"x")), {}, sa.InvalidData,
        r"/f.* found gzip data; decompress it first$",
    ),
    "CSV": (
        lambda path: path.write_text("a,b\n1,2\n"), {}, sa.InvalidData,
        r"/f.* found text, such as CSV; spark.read.csv\(path\) reads it$",
    ),
    "unsupported": (
        of_type(sa.month_day_nano_interval(), None), {}, sa.Unsupported,
        r"/f: column 'c': Spark has no type for month_day_nano_interval; .option\(\"unsupported\", \"drop\"\)",
    ),
    "needs lossy": (
        of_type(sa.decimal256(50, -2)), {}, sa.Unsupported, r"/f: column 'c': .*; lossy='decimal256' makes it float64"
    ),
    "lossy": (of_type(sa.int8()), {"lossy": "decimals"}, sa.InvalidArgument, r"lossy='decimals': .*did you mean"),
    "no column": (of_type(sa.int8()), {"columns": "a,c"}, sa.FieldNotFound, r"/f has no column 'a', .* are 'c'"),
    "dropped column": (
        of_type(sa.month_day_nano_interval(), None), {"columns": "c", "unsupported": "drop"}, sa.Unsupported,
        "column 'c' is dropped, as Spark has no type for it",
    ),
    "no columns": (of_type(sa.int8()), {"columns": " , "}, sa.InvalidArgument, r"must be names .* found ' , '"),
    "columns twice": (of_type(sa.int8()), {"columns": "c,c"}, sa.InvalidArgument, r"none twice; found 'c,c'"),
    "other case": (of_type(sa.int8()), {"columns": "C"}, sa.FieldNotFound, r"no column 'C'.*did you mean 'c'\?"),
    "misspelt": (of_type(sa.int8()), {"colums": "c"}, sa.InvalidArgument, r"no option 'colums'; did .* 'columns'"),
    "size": (
        of_type(sa.int8()), {"maxPartitionBytes": "many"}, sa.InvalidArgument,
        r"option 'maxPartitionBytes' must be a number of bytes .*found 'many'",
    ),
    "flag": (of_type(sa.int8()), {"trust": "yes"}, sa.InvalidArgument, r"must be true or false, found 'yes'"),
    "choice": (of_type(sa.int8()), {"unsupported": "x"}, sa.InvalidArgument, r"must be error, drop or string"),
    "metadata": (
        lambda path: write(path, sa.record_batch([[1]], sa.schema([
            sa.field("c", sa.int64(), metadata={"SPARK::metadata::json": "{"})
        ]))), {}, sa.InvalidData, r"/f: column 'c': the metadata 'SPARK::metadata::json' are not JSON",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", PLANNED)
def test_what_is_wrong_is_said_when_the_schema_is_made(name: str, tmp_path: Path) -> None:
    make, options, kind, said = PLANNED[name]
    make(tmp_path / "f")
    with pytest.raises(kind, match=said):
        source(tmp_path / "f", **options).schema()


@pytest.mark.parametrize(
    ("path", "kind", "said"),
    [
        ("hdfs://host/x", sa.InvalidArgument, "only files of mounted file systems .* found the scheme 'hdfs'"),
        ("file://host/x", sa.InvalidArgument, "only files of mounted file systems.* 'file' and the host 'host'"),
        ("file://[::1/x", sa.InvalidArgument, "only files of mounted file systems"),
        ("file:///tmp/a%00b", sa.ObjectNotFound, "there is no '/tmp/a%00b'"),
        ("/tmp/\ud800", sa.InvalidArgument, r"'/tmp/\\ud800' cannot be encoded as a path"),
        ("shm:", sa.InvalidArgument, "NAME has 1 to 254 bytes"),
        ("shm:.", sa.InvalidArgument, "NAME has 1 to 254 bytes"),
        ("shm:..", sa.InvalidArgument, "NAME has 1 to 254 bytes"),
        ("shm:no-such-object", sa.ObjectNotFound, "there is no 'shm:no-such-object' on host"),
        ("shm:a/b", sa.InvalidArgument, "NAME has 1 to 254 bytes and no '/'"),
        ("/no/*/match", sa.ObjectNotFound, r"nothing matches '/no/\*/match'"),
        ("nul\0", sa.InvalidArgument, "NUL"),
        (None, sa.InvalidArgument, r"nothing to read: give a path"),
        ("/dev/null", sa.StorageError, "/dev/null"),
    ],
)
def test_paths_that_lead_nowhere(path: Any, kind: Any, said: str) -> None:
    with pytest.raises(kind, match=said):
        source(path).schema()


def test_schemas_that_a_file_does_not_fit(tmp_path: Path) -> None:
    from pyspark.sql.types import ArrayType, LongType, StringType, StructField, StructType, YearMonthIntervalType

    path = write(tmp_path / "f", {"n": [2**40, None], "d": [[1], [None]], "s": ["a", "b"], "i": [1, 2]})

    def refused(name: str, kind: Any, nullable: bool = True) -> str:
        with pytest.raises((sa.InvalidType, sa.FieldNotFound)) as caught:
            source(path).reader(StructType([StructField(name, kind, nullable)])).partitions()
        return str(caught.value)

    assert "column 'n' may hold nulls, but the schema that was given says" in refused("n", LongType(), False)
    assert "items of column 'd' may hold nulls" in refused("d", ArrayType(LongType(), False))
    assert f"{path}: column 'n': the given schema wants string, the file has int64, which has" in refused(
        "n", StringType()
    )
    assert f"{path}: it has no column 'N', its columns are 'n', 'd', 's', 'i'; did you mean 'n'?" in refused(
        "N", LongType()
    )
    assert "Spark's Arrow code has no type for interval year to month" in refused("n", YearMonthIntervalType())
    narrow = StructType().add("i", "short").add("n", "decimal(20,2)")
    assert rows_of(source(path), narrow) == [{"i": 1, "n": 2**40}, {"i": 2, "n": None}]
    with pytest.raises(sa.InvalidData, match=r"/f: column 'n': .*1099511627776"):
        rows_of(source(path), StructType().add("n", "integer"))


def test_times_with_and_without_a_zone_are_not_mixed(tmp_path: Path) -> None:
    from pyspark.sql.types import ArrayType, StructType, TimestampNTZType, TimestampType

    plain, zoned = sa.timestamp("us"), sa.timestamp("us", "Europe/Oslo")
    made = source(write(tmp_path / "f", {
        "t": sa.array([0], plain), "z": sa.array([0], zoned), "l": sa.array([[0]], sa.list_(plain)),
        "n": sa.array([None]), "d": sa.array([0], sa.date32()),
    }))  # fmt: skip
    for name, kind, said in (
        ("t", TimestampType(), r"column 't' has no time zone in the file, .*: declare it timestamp_ntz, and let Spark"),
        ("l", ArrayType(TimestampType()), "column 'l' has no time zone in the file"),
        ("d", TimestampType(), r"column 'd' has no time zone in the file, .*: declare it date, and"),
        ("z", TimestampNTZType(), r"column 'z' has a time zone in the file, .*: declare it timestamp, and let Spark"),
    ):
        with pytest.raises(sa.InvalidType, match=said):
            made.reader(StructType().add(name, kind)).partitions()
    kinds = StructType().add("t", TimestampNTZType()).add("z", TimestampType()).add("n", TimestampType())
    (row,) = rows_of(made, kinds)
    assert (str(row["t"]), row["z"].timestamp(), row["n"]) == ("1970-01-01 00:00:00", 0.0, None)


def test_streams_are_refused_with_what_to_do_instead(spark: Any, tmp_path: Path) -> None:
    with pytest.raises(sa.Unsupported, match=r"cannot be read as a stream; .* spark\.read"):
        source(tmp_path).streamReader(None)
    rate = spark.readStream.format("rate").load().writeStream.format("shmarrow")
    with pytest.raises(Exception, match=r"Unsupported: .*cannot be written as a stream; .*foreachBatch\("):
        rate.option("checkpointLocation", str(tmp_path / "c")).start(str(tmp_path / "out")).awaitTermination(60)


def planned(path: Any) -> Any:
    """A read that is planned, as a function that does it."""
    made = source(path)
    reader = made.reader(made.schema())
    splits = reader.partitions()
    return lambda: [row for split in splits for batch in reader.read(split) for row in batch.to_pylist()]


def test_files_that_change_after_the_plan_are_an_error(tmp_path: Path) -> None:
    path = tmp_path / "f"
    write(path, {"x": [1, 2]})
    read = planned(path)
    assert read() == [{"x": 1}, {"x": 2}]
    write(path, {"x": [3, 4]})
    with pytest.raises(sa.StorageError, match=r"/f was changed after the query was planned on host .*; run the query"):
        read()
    write(path, {"x": [3, 4, 5], "y": [1, 2, 3]})
    with pytest.raises(sa.StorageError, match=r"it had \d+ bytes and has \d+"):
        read()
    path.unlink()
    with pytest.raises(sa.ObjectNotFound, match=r"/f'.*the query was planned on host .*, which had it"):
        read()


def test_files_that_change_while_they_are_read_are_an_error(tmp_path: Path) -> None:
    path = tmp_path / "f"
    write(path, {"x": list(range(20_000))}, batches=2)
    made = source(path)
    reader = made.reader(made.schema())
    splits = reader.partitions()
    batches = reader.read(splits[0])
    next(batches)
    with path.open("r+b") as file:
        file.seek(-1, os.SEEK_END)
        last = file.read(1)
        file.seek(-1, os.SEEK_END)
        file.write(last)
    with pytest.raises(sa.StorageError, match="was changed while it was read"):
        list(batches)
    batches = made.reader(made.schema()).read(reader.partitions()[0])
    next(batches)
    write(path, {"x": [1]})  # replaced: the mapping keeps what it was
    assert sum(batch.num_rows for batch in batches) == 20_000 - 8_192


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
def test_files_that_may_not_be_read() -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(write(Path(folder) / "f", NUMBERS))
        os.chmod(folder, 0o711)
        path.chmod(0o600)
        read = planned(path)
        os.seteuid(65534)
        try:
            for attempt in (read, source(path).schema):
                with pytest.raises(sa.StorageError, match=r"cannot open '.*/f': Permission denied"):
                    attempt()
            with pytest.raises(sa.StorageError, match=r"cannot list '.*': Permission denied"):
                source(folder).schema()
        finally:
            os.seteuid(0)
