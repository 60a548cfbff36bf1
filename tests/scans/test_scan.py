"""Scans: what is found, when it is read, how sources are brought to one schema, and what is refused."""

from __future__ import annotations

import datetime as dt
import os
import pickle
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
import pytest

import shmarrow as sa

duckdb = pytest.importorskip("duckdb")
pl = pytest.importorskip("polars")


def write(path: Path | str, data: Any, make: Any = sa.ipc.new_file, **options: Any) -> str:
    table = sa.table(data)
    if isinstance(path, Path):
        path.parent.mkdir(parents=True, exist_ok=True)
    with make(path, table.schema, **options) as writer:
        for batch in table.batches:
            writer.write(batch)
    return str(path)


def xs(scan: Any) -> list[Any]:
    return [row["x"] for row in scan.to_table().to_pylist()]


# --- what is found ------------------------------------------------------------------------------------------------


def test_directory_in_the_order_of_paths(tmp_path: Path) -> None:
    for name, x in {"b.arrow": 3, "a/z.arrow": 2, "a/b/c.arrow": 1}.items():
        write(tmp_path / name, {"x": [x]})
    for hidden in ("_SUCCESS", ".b.arrow.crc", "_temporary/part.arrow", "a/.x"):
        (tmp_path / hidden).parent.mkdir(exist_ok=True)
        (tmp_path / hidden).write_bytes(b"no Arrow data")
    assert xs(sa.scan(tmp_path)) == [1, 2, 3] == ds.dataset(str(tmp_path), format="ipc").to_table()["x"].to_pylist()
    assert xs(sa.scan(f"{tmp_path}/**/*.arrow")) == [1, 2, 3]


def test_patterns_lists_streams_and_compression(tmp_path: Path) -> None:
    first = write(tmp_path / "a-1.arrow", {"x": [1]})
    write(tmp_path / "a-2.arrow", {"x": [2, 3]}, sa.ipc.new_stream)
    lz4, zstd = sa.ipc.IpcWriteOptions("lz4"), sa.ipc.IpcWriteOptions("zstd")
    write(tmp_path / "a-3" / "x.arrow", {"x": [4]}, options=lz4)
    write(tmp_path / "a-3" / "y.arrow", {"x": [5]}, sa.ipc.new_stream, options=zstd)
    write(tmp_path / "b.arrow", {"x": [6]})
    assert xs(sa.scan(f"{tmp_path}/a-*")) == [1, 2, 3, 4, 5]
    assert xs(sa.scan(f"{tmp_path}/**/?.arrow")) == [4, 5, 6]
    table = sa.table({"x": [7]})
    with sa.ipc.open_file(first) as reader:
        assert xs(sa.scan([Path(first), [f"{tmp_path}/b.arrow"], table, reader])) == [1, 6, 7, 1]


def test_a_name_with_the_characters_of_a_pattern_is_itself(tmp_path: Path) -> None:
    write(tmp_path / "a[1].arrow", {"x": [1]})
    write(tmp_path / "a1.arrow", {"x": [2]})
    assert xs(sa.scan(f"{tmp_path}/a[1].arrow")) == [1]
    assert xs(sa.scan(f"{tmp_path}/a[12].arrow")) == [2]


def test_objects_of_a_store(shm_name: str) -> None:
    with sa.Store(shm_name) as store:
        big = np.arange(3000)
        for name, x in {"train/1": [1], "train/2": big, "test": [2]}.items():
            store.put(name, sa.table({"x": x}))
        expected = [1, *big.tolist()]
        assert xs(sa.scan(f"{shm_name}/train/*")) == expected == xs(sa.scan(f"{shm_name}/train"))
        assert xs(sa.scan(store, names="train/*")) == expected
        assert xs(sa.scan(store, names=["test", "train/1"])) == [2, 1]
        assert xs(pickle.loads(pickle.dumps(sa.scan(store)))) == [2, *expected]
        with pytest.raises(sa.ObjectNotFound, match=r"no object in the store .* matches 'valid' among 3 names"):
            sa.scan(f"{shm_name}/valid")
        store.put("_hidden", np.zeros(10000))
        store.put("train/.hidden", np.zeros(10000))
        assert xs(sa.scan(store)) == [2, *expected]
        assert xs(sa.scan(f"{shm_name}/train")) == expected == xs(sa.scan(store, names="train/*"))
        store.put("_parts/1", sa.table({"x": [3]}))  # what is before the first wildcard was asked for
        assert xs(sa.scan(f"{shm_name}/_parts/*")) == [3] == xs(sa.scan(f"{shm_name}/_parts"))
        store.put("tensor", np.zeros(10000))
        with pytest.raises(sa.InvalidData, match=r"/tensor is a tensor, which has no rows"):
            sa.scan(store, names="t*").to_table()
        store.destroy()


def test_shared_memory(shm_name: str) -> None:
    names = [write(f"{shm_name}-{i}", {"x": [i]}) for i in range(3)]
    assert xs(sa.scan(f"{shm_name}-*")) == [0, 1, 2]
    assert xs(sa.scan(names[1])) == [1]
    for name in names:
        sa.segment.delete(name)


def test_what_is_not_found_or_no_source(tmp_path: Path) -> None:
    with pytest.raises(sa.ObjectNotFound, match="no file matches"):
        sa.scan(f"{tmp_path}/*.arrow")
    with pytest.raises(sa.ObjectNotFound, match=r"none\.arrow"):
        sa.scan(tmp_path / "none.arrow")
    with pytest.raises(sa.ObjectNotFound, match="no files to take a schema from"):
        sa.scan(tmp_path)
    assert sa.scan(tmp_path, schema=sa.schema({"x": "int8"})).to_table().num_rows == 0
    (tmp_path / "x.csv").write_text("a,b\n1,2\n")
    with pytest.raises(sa.InvalidData, match=r"x\.csv: expected Arrow data, found text, such as CSV"):
        sa.scan(tmp_path)
    with pytest.raises(sa.InvalidType, match="can be read only once"):
        sa.scan(sa.table({"x": [1]}).to_reader())
    with pytest.raises(sa.InvalidType, match="found dict"):
        sa.scan({"x": [1]})
    with pytest.raises(sa.InvalidArgument, match="names select objects of a store"):
        sa.scan(tmp_path / "x.csv", names="a")
    (tmp_path / "loop").mkdir()
    (tmp_path / "loop" / "back").symlink_to(tmp_path)
    with pytest.raises(sa.StorageError, match="is a link to a directory that it is in"):
        sa.scan(tmp_path)


# --- when it is read ----------------------------------------------------------------------------------------------


def test_only_what_is_asked_for_is_opened(tmp_path: Path) -> None:
    for i in range(5):
        write(tmp_path / f"{i}.arrow", {"x": [i] * 10})
    for i in range(2, 5):
        (tmp_path / f"{i}.arrow").write_bytes(b"broken")
    scan = sa.scan(tmp_path)
    assert scan.schema.names == ["x"]
    assert scan.head(15).to_pydict() == {"x": [0] * 10 + [1] * 5}
    with pytest.raises(sa.InvalidData, match=r"2\.arrow"):
        scan.head(21)


def test_a_column_that_no_one_asks_for_is_not_read(tmp_path: Path) -> None:
    path = write(tmp_path / "a.arrow", {"x": [1, 2], "y": ["a", "b"]})
    data = bytearray(Path(path).read_bytes())
    at = data.index(np.array([0, 1, 2], "<i4").tobytes())
    data[at : at + 12] = np.array([0, 1000, 2], "<i4").tobytes()
    Path(path).write_bytes(data)
    assert xs(sa.scan(path, columns=["x"], filters=[("x", ">", 1)])) == [2]
    assert xs(sa.scan(path, columns=["x"], filters=[("x", ">", 2), ("y", "=", "a")])) == []
    with pytest.raises(sa.InvalidData):
        sa.scan(path, filters=[("y", "=", "a")]).count_rows()


def test_a_scan_is_a_value(tmp_path: Path) -> None:
    for i in range(3):
        write(tmp_path / f"{i}.arrow", {"x": [i], "y": ["a"]})
    scan = sa.scan(tmp_path, filters=[("x", ">", 0)])
    other = scan.select(["y", "x"]).where([("x", "<", 2)])
    assert scan.schema.names == ["x", "y"]
    assert [xs(scan), xs(other), xs(scan), other.count_rows(), scan.count_rows()] == [[1, 2], [1], [1, 2], 1, 2]
    assert [batch.num_rows for batch in scan] == [1, 1] == [batch.num_rows for batch in scan]
    again = pickle.loads(pickle.dumps(other))
    assert again.to_table().equals(other.to_table())
    for path in tmp_path.iterdir():
        path.unlink()
    assert xs(scan) == [1, 2], "what was reached stays mapped"
    with pytest.raises(sa.ObjectNotFound):
        again = pickle.loads(pickle.dumps(scan)).to_table()


def test_rows_are_views_of_the_file(tmp_path: Path) -> None:
    path = write(tmp_path / "a.arrow", {"x": np.arange(100_000), "y": np.arange(100_000)})
    table = sa.scan(path, filters=[("x", ">=", 50), ("x", "<", 90)]).to_table()
    assert table["y"].to_numpy().tolist() == list(range(50, 90))
    assert not table["y"].chunk(0).to_numpy().flags.owndata
    with sa.ipc.open_file(path) as reader:
        assert np.shares_memory(sa.scan(reader).to_table()["x"].to_numpy(), reader[0]["x"].to_numpy())


# --- one schema ---------------------------------------------------------------------------------------------------


def test_missing_extra_and_other_columns(tmp_path: Path) -> None:
    required = sa.schema([sa.field("x", sa.int64(), nullable=False), sa.field("y", sa.string())])
    write(tmp_path / "a.arrow", sa.table({"x": [1], "y": ["a"]}, schema=required))
    write(tmp_path / "b.arrow", {"z": [0.5], "x": np.array([2], np.int8)})
    write(tmp_path / "c.arrow", {"y": sa.array(["c"]).dictionary_encode()})
    scan = sa.scan(tmp_path)
    assert scan.schema.equals(sa.schema({"x": "int64", "y": "string"}))
    rows = [{"x": 1, "y": "a"}, {"x": 2, "y": None}, {"x": None, "y": "c"}]
    assert scan.to_table().to_pylist() == rows
    assert scan.where([("y", "!=", "a")]).to_table().to_pylist() == rows[2:]
    narrow = sa.scan(tmp_path, schema=sa.schema({"z": "float32", "x": "uint8"}))
    assert narrow.to_table().to_pylist() == [{"z": None, "x": 1}, {"z": 0.5, "x": 2}, {"z": None, "x": None}]
    with pytest.raises(sa.InvalidData, match=r"c\.arrow: column 'x': the source lacks it, and it must not be null"):
        sa.scan(tmp_path, schema=required).to_table()
    write(tmp_path / "d.arrow", {"x": ["one"]})
    scan = sa.scan(tmp_path)
    with pytest.raises(sa.InvalidType, match=r"d\.arrow: column 'x': .*string"):
        scan.to_table()
    write(tmp_path / "d.arrow", {"x": [300]})
    with pytest.raises(sa.InvalidData, match=r"d\.arrow: column 'x': .*300"):
        sa.scan(tmp_path, schema=sa.schema({"x": "uint8"})).to_table()


def test_columns_of_one_name(tmp_path: Path) -> None:
    table = sa.table([[1], [2]], names=["x", "x"])
    write(tmp_path / "a.arrow", table)
    write(tmp_path / "b.arrow", table)
    assert [batch.column(1).to_pylist() for batch in sa.scan(tmp_path)] == [[2], [2]]
    with pytest.raises(sa.FieldNotFound):
        sa.scan(tmp_path, filters=[("x", "=", 1)])


def test_directories_give_columns(tmp_path: Path) -> None:
    for day in ("2024-01-01", "2024-02-29", "__HIVE_DEFAULT_PARTITION__"):
        for part in ("1", "02"):
            for place in ("a%20b", "c"):
                at = tmp_path / f"day={day}" / f"part={part}" / f"place={place}" / "x.arrow"
                write(at, {"x": [int(part)]})
    scan = sa.scan(tmp_path)
    assert scan.schema.equals(sa.schema({"x": "int64", "day": "date32", "part": "int64", "place": "string"}))
    leap = scan.where([("day", "=", dt.date(2024, 2, 29)), ("place", "!=", "c")])
    expected = {"day": dt.date(2024, 2, 29), "place": "a b"}
    assert leap.to_table().to_pylist() == [{"x": 2, "part": 2, **expected}, {"x": 1, "part": 1, **expected}]
    assert (len(scan.sources), len(leap.sources)) == (12, 2)
    assert scan.where([("day", "not in", [dt.date(2024, 1, 1)])]).count_rows() == 4, "null matches nothing"
    assert scan.where([[("part", ">", 5)], [("day", "<", dt.date(2024, 2, 1))]]).count_rows() == 4
    assert sa.scan(tmp_path, partitioning=None).schema.names == ["x"]
    assert sa.scan(f"{tmp_path}/day=2024*/part=1/*").schema.names == ["x", "day", "part", "place"]
    assert sa.scan(f"{tmp_path}/day=2024-01-01").schema.names == ["x", "part", "place"]
    missing = sa.scan(f"{tmp_path}/day=__*/*/*/*", schema=sa.schema({"day": "date32"}))
    assert missing.to_table()["day"].to_pylist() == [None] * 4
    text = sa.scan(tmp_path, schema=sa.schema({"part": "string"}))
    assert set(text.to_table()["part"].to_pylist()) == {"1", "02"}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("k=", ""),
        ("k==v", "=v"),
        ("k=a%3Db%2Fc", "a=b/c"),
        ("k=%00", "\0"),
        ("k=*", "*"),
        ("k=-", "-"),
        ("k=2024-02-30", "2024-02-30"),
        ("k=99999999999999999999", "99999999999999999999"),
        ("=v", None),
    ],
)
def test_strange_names_of_directories(name: str, value: str | None, tmp_path: Path) -> None:
    write(tmp_path / name / "a.arrow", {"x": [1]})
    row = {"x": 1} if value is None else {"x": 1, "k": value}
    assert sa.scan(tmp_path).to_table().to_pylist() == [row]


@pytest.mark.parametrize(("name", "where"), [(b"k=\xff", "column 'k'"), (b"\xff=1", "field name")])
def test_directories_that_are_no_text_are_files_without_keys(name: bytes, where: str, tmp_path: Path) -> None:
    directory = tmp_path / os.fsdecode(name)
    write(directory / "a.arrow", {"x": [1]})
    with pytest.raises(sa.ShmarrowError, match=where):
        sa.scan(tmp_path)
    assert sa.scan(tmp_path, partitioning=None).to_table().to_pylist() == [{"x": 1}]


def test_a_directory_says_more_than_a_file(tmp_path: Path) -> None:
    for k in (1, 2):
        write(tmp_path / f"k={k}" / "x.arrow", {"k": ["?"], "x": [k]})
    assert sa.scan(tmp_path).to_table().to_pylist() == [{"k": 1, "x": 1}, {"k": 2, "x": 2}]


def test_sources_without_filters_are_not_opened_for_directories(tmp_path: Path) -> None:
    for k in range(3):
        write(tmp_path / f"k={k}" / "x.arrow", {"x": [k]})
    (tmp_path / "k=1" / "x.arrow").write_bytes(b"broken")
    assert xs(sa.scan(tmp_path, filters=[("k", "in", [0, 2])])) == [0, 2]


# --- filters ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("values", "condition", "expected"),
    [
        ([0.0, -0.0, float("nan"), None], ("in", [float("nan"), 0.0]), [0, 1, 2]),
        (["a", None, "b"], ("in", []), []),
        (["a\0", "a", "a\0\0", "a\0b"], (">", "a\0"), [2, 3]),
        (["x" * 20 + end for end in ("", "a", "b")], (">=", "x" * 20 + "a"), [1, 2]),
        (sa.array([None, None], sa.string()).dictionary_encode(), ("!=", "a"), []),
        (np.array([0.1, 0.5], np.float16), ("=", 0.5), [1]),
    ],
)
def test_exact_comparisons(values: Any, condition: tuple[str, Any], expected: list[int]) -> None:
    """Cases that ``test_random_scans`` does not make."""
    table = sa.table({"v": values, "i": np.arange(len(values))})
    assert sa.scan(table, columns=["i"], filters=[("v", *condition)]).to_table()["i"].to_pylist() == expected


REFUSED = [
    ([("i8", "=", 300)], sa.InvalidData, "a filter on column 'i8': .*300"),
    ([("i8", "=", 1.5)], sa.InvalidData, "not a whole number"),
    ([("f", "=", (1 << 53) + 1)], sa.InvalidData, "not exact"),
    ([("i8", "=", "a")], sa.InvalidType, "cannot convert 'a'"),
    ([("s", "=", 1)], sa.InvalidType, "cannot convert 1"),
    ([("s", "in", "ab")], sa.InvalidType, "'in' needs a list of values"),
    ([("s", "=", None)], sa.InvalidArgument, "a null matches nothing"),
    ([("t", ">", np.datetime64("NaT", "s"))], sa.InvalidArgument, "a null matches nothing"),
    ([("t", "in", [np.datetime64(0, "s"), None])], sa.InvalidArgument, "a null matches nothing"),
    ([("s", "like", "a%")], sa.InvalidArgument, "expected one of =, !=, .* found 'like'"),
    ([("l", "=", [1])], sa.InvalidType, "list.*no order"),
    ([("?", "=", 1)], sa.FieldNotFound, "no field is named"),
    (("s", "=", 1), sa.InvalidArgument, "expected filters like"),
    ("s = 1", sa.InvalidType, "expected a list of filters"),
]  # fmt: skip


@pytest.mark.parametrize(("filters", "error", "message"), REFUSED)
def test_filters_that_make_no_sense(filters: Any, error: type[Exception], message: str) -> None:
    times = np.array([0], "datetime64[s]")
    table = sa.table({"i8": np.array([1], np.int8), "f": [0.5], "s": ["a"], "l": [[1]], "t": times})
    with pytest.raises(error, match=message):
        sa.scan(table, filters=filters)


# --- other libraries ----------------------------------------------------------------------------------------------


def test_other_libraries_read_a_scan_any_number_of_times(tmp_path: Path) -> None:
    for i in range(3):
        write(tmp_path / f"k={i}" / "x.arrow", {"x": [i, None], "s": ["a", "b"]})
    scan = sa.scan(tmp_path, filters=[("k", ">", 0)])
    expected = [{"x": 1, "s": "a", "k": 1}, {"x": None, "s": "b", "k": 1},
                {"x": 2, "s": "a", "k": 2}, {"x": None, "s": "b", "k": 2}]  # fmt: skip
    for _ in range(2):
        assert pa.table(scan).to_pylist() == expected
        assert pl.DataFrame(scan).to_dicts() == expected
        assert duckdb.sql("SELECT s, sum(x) FROM scan GROUP BY s ORDER BY s").fetchall() == [("a", 3), ("b", None)]
    assert scan.to_table().to_pandas()["k"].tolist() == [1, 1, 2, 2]


def test_a_table_among_the_sources_is_named() -> None:
    with pytest.raises(sa.InvalidType, match=r"^<shmarrow.Table of 1 row, 1 column>: column 'x': there is no cast"):
        sa.scan([sa.table({"x": [1]}), sa.table({"x": ["a"]})]).to_table()


# --- one source of any kind ---------------------------------------------------------------------------------------


def test_open_whichever_it_is(tmp_path: Path, shm_name: str) -> None:
    table = sa.table({"x": [1]})
    assert isinstance(sa.open(write(tmp_path / "file", table)), sa.ipc.RecordBatchFileReader)
    assert isinstance(sa.open(write(tmp_path / "stream", table, sa.ipc.new_stream)), sa.ipc.MappedStreamReader)
    with open(tmp_path / "tensor", "wb") as file:
        sa.ipc.write_tensor(sa.Tensor.from_numpy(np.arange(6).reshape(2, 3)), file)
    assert sa.open(tmp_path / "tensor").to_numpy().tolist() == [[0, 1, 2], [3, 4, 5]]
    sa.save_tensors({"w": np.arange(3)}, tmp_path / "bundle")
    assert sa.open(tmp_path / "bundle")["w"].to_numpy().tolist() == [0, 1, 2]
    assert sa.open((tmp_path / "file").read_bytes()).num_rows == 1
    with open(tmp_path / "file", "rb") as file:
        assert sa.open(file).num_rows == 1
    for name in ("file", "stream"):
        with tarfile.open(tmp_path / "tar", "w") as tar:
            tar.add(tmp_path / name, name)
        with tarfile.open(tmp_path / "tar") as tar, tar.extractfile(name) as part:  # type: ignore[union-attr]
            assert sa.open(part).read_all().to_pylist() == [{"x": 1}]  # read by ranges
    with pytest.raises(sa.InvalidData, match="bundle is a bundle, which has no rows"):
        sa.scan(tmp_path / "bundle")
    with sa.Store(shm_name) as store:
        store.put("a", table)
        assert sa.open(f"{shm_name}/a").read_all().to_pylist() == [{"x": 1}]
        store.destroy()
    (tmp_path / "empty").touch()
    (tmp_path / "parquet").write_bytes(b"PAR1" + bytes(20))
    for name, message in {"empty": "an empty file", "parquet": "found a Parquet file"}.items():
        with pytest.raises(sa.InvalidData, match=message):
            sa.open(tmp_path / name)
    with pytest.raises(sa.InvalidArgument, match=r"leads to 7 sources; shmarrow\.scan reads them as one table"):
        sa.open(tmp_path)


def test_many_sources_hold_no_descriptors(tmp_path: Path) -> None:
    first = write(tmp_path / "00000.arrow", {"x": [1]})
    for i in range(1, 3000):
        os.link(first, tmp_path / f"{i:05}.arrow")
    scan = sa.scan(tmp_path)
    assert len(scan.sources) == 3000
    assert scan.count_rows() == 3000
    assert len(os.listdir("/proc/self/fd")) < 500


def test_a_column_without_a_type_takes_that_of_a_later_file(tmp_path: Path) -> None:
    for name, columns in (
        ("1", {"a": sa.nulls(2), "b": [1, 2], "c": sa.nulls(2)}),
        ("2", {"b": [3], "a": sa.nulls(1), "c": sa.nulls(1)}),
        ("3", {"a": ["x", "y"], "b": [4, 5], "c": sa.nulls(2)}),
    ):
        sa.write(sa.record_batch(columns), tmp_path / f"{name}.arrow", statistics=True)
    scan = sa.scan(tmp_path)
    assert scan.schema == sa.schema({"a": sa.string(), "b": sa.int64(), "c": sa.null()})
    rows = {"a": [None, None, None, "x", "y"], "b": [1, 2, 3, 4, 5], "c": [None] * 5}
    for one in (scan, pickle.loads(pickle.dumps(scan))):
        assert one.to_table().to_pydict() == rows
    assert scan.where([("a", "=", "y")]).to_table().to_pydict() == {"a": ["y"], "b": [5], "c": [None]}
    assert scan.where([("a", "is null")]).select(["b"]).to_table().to_pydict() == {"b": [1, 2, 3]}
    assert scan.select(["c", "a"]).head(4).to_pydict() == {"c": [None] * 4, "a": rows["a"][:4]}
