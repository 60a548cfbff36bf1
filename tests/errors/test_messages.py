"""Messages of errors: the class, what was expected, what was found, and what to do instead.

Each case is a call that somebody new to the library has written, and parts that its message must have.
"""

from __future__ import annotations

import bz2
import gzip
import inspect
import io
import lzma
import pickle
import re
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from forms import file_of, message_of, stream_of
from remote import Counted

import shmarrow
from shmarrow.ipc import IpcWriteOptions as Options

sa: Any = shmarrow  # untyped, as most calls here are wrong on purpose

BATCH = sa.record_batch({"a": [1, 2, 3], "id": [4, 5, 6]})
TABLE = sa.Table.from_batches([BATCH, BATCH])
COLUMN = BATCH["a"]
MASK = np.array([True, False, True])


def archive(name: str) -> bytes:
    sink = io.BytesIO()
    with zipfile.ZipFile(sink, "w") as file:
        file.writestr(name, b"data")
    return sink.getvalue()


def tar() -> bytes:
    sink = io.BytesIO()
    with tarfile.open(fileobj=sink, mode="w") as file:
        file.addfile(tarfile.TarInfo("a.arrow"))
    return sink.getvalue()


def npy() -> bytes:
    sink = io.BytesIO()
    np.save(sink, np.arange(3))
    return sink.getvalue()


FILE, STREAM, TENSOR = file_of(BATCH), stream_of(BATCH), message_of(sa.Tensor.from_numpy(np.eye(2)))

# --- formats ----------------------------------------------------------------------------------------------------
# The magic words are those that each format's specification gives; where Python writes the format, it wrote the bytes.

PADDING = bytes(100)
FORMATS: dict[str, tuple[bytes, str, str]] = {
    "ring": (b"shmaring" + PADDING, "a ring of frames", "shmarrow.Ring"),
    "parquet": (b"PAR1" + PADDING + b"PAR1", "a Parquet file", "pyarrow.parquet.read_table or polars.read_parquet"),
    "feather v1": (b"FEA1" + PADDING, "a Feather file of version 1", "pyarrow.feather.read_table"),
    "orc": (b"ORC\n\x06" + PADDING, "an ORC file", "pyarrow.orc.read_table"),
    "avro": (b"Obj\x01\x04" + PADDING, "an Avro file", "polars.read_avro"),
    "npy": (npy(), "a NumPy array (.npy)", "numpy.load"),
    "npz": (archive("arr_0.npy"), "a NumPy archive (.npz)", "numpy.load"),
    "torch": (archive("model/data.pkl"), "a PyTorch checkpoint", "torch.load"),
    "xlsx": (archive("[Content_Types].xml"), "an Excel workbook", "pandas.read_excel"),
    "zip": (archive("a.txt"), "a ZIP archive", "unpack it"),
    "tar": (tar(), "a tar archive", "unpack it"),
    "gzip": (gzip.compress(FILE), "gzip data", "gzip.open(path)"),
    "bzip2": (bz2.compress(FILE), "bzip2 data", "bz2.open(path)"),
    "xz": (lzma.compress(FILE), "xz data", "lzma.open(path)"),
    "zstd": (b"\x28\xb5\x2f\xfd\x60" + PADDING, "Zstandard data", "zstandard.open(path)"),
    "lz4": (b"\x04\x22\x4d\x18\x68" + PADDING, "an LZ4 frame", "lz4.frame.open(path)"),
    "safetensors": (b"\x38" + bytes(7) + b'{"a":{"dtype":"I64"}}' + PADDING, "a safetensors file", "shmarrow convert"),
    "hdf5": (b"\x89HDF\r\n\x1a\n" + PADDING, "an HDF5 file", "h5py.File"),
    "sqlite": (b"SQLite format 3\0" + PADDING, "an SQLite database", "sqlite3.connect"),
    "duckdb": (bytes(8) + b"DUCK" + PADDING, "a DuckDB database", "duckdb.connect"),
    "pickle": (pickle.dumps(list(range(100)), 4), "a pickle", "pickle.load"),
    "csv": (b"a,b\n1,2\n3,4\n5,6\n7,8\n", "text, such as CSV", "polars.read_csv"),
    "tsv": (b"\xef\xbb\xbfa\tb\n1\t2\n3\t4\n5\t6\n", "text, such as CSV", "pyarrow.csv.read_csv"),
    "json lines": (b'{"a": 1}\n{"a": 2}\n{"a": 3}\n', "JSON text", "polars.read_ndjson"),
    "html": (b"<!DOCTYPE html><html>502 Bad Gateway</html>", "HTML or XML text", "error page"),
    "lfs": (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n", "a Git LFS pointer", "git lfs pull"),
}


@pytest.mark.parametrize("name", FORMATS)
def test_another_format_is_named_with_what_reads_it(name: str, tmp_path: Path) -> None:
    data, what, reader = FORMATS[name]
    path = tmp_path / "data"
    path.write_bytes(data)
    calls: list[Callable[[], Any]] = [
        lambda: sa.ipc.open_file(path),
        lambda: sa.ipc.open_file(data),
        lambda: sa.load_tensors(path),
    ]
    if name != "duckdb":  # its first four bytes are zeros, an end of stream
        calls += [
            lambda: sa.ipc.open_stream(path),
            lambda: sa.ipc.read_tensor(path),
            lambda: next(sa.ipc.read_tensors(path)),
            lambda: sa.Store(tmp_path / "store").put_file("x", path),
        ]
    for call in calls:
        with pytest.raises(sa.InvalidData) as caught:
            call()
        assert f"found {what}" in str(caught.value)
        assert reader in str(caught.value)
        assert len(str(caught.value).replace(str(path), "data")) < 300


def test_a_large_remote_file_is_named_by_its_start() -> None:
    with pytest.raises(sa.InvalidData, match="expected an Arrow file, found a Parquet file; pyarrow"):
        sa.ipc.open_file(Counted(b"PAR1" + bytes(1 << 20) + b"PAR1"))


def test_text_in_a_pipe_is_named() -> None:
    source: Any = io.BufferedReader(Counted(b"a,b\n" * 10))
    with pytest.raises(sa.InvalidData, match="expected an Arrow message at 0, found text"):
        sa.ipc.open_stream(source)


FORMS: dict[str, tuple[Callable[[], Any], str]] = {
    "stream as file": (lambda: sa.ipc.open_file(STREAM), "found an Arrow stream or tensor; ipc.open_stream or"),
    "file as stream": (lambda: sa.ipc.open_stream(FILE), "found an Arrow file; ipc.open_file reads it"),
    "tensor as file": (lambda: sa.ipc.open_file(TENSOR), "found an Arrow stream or tensor; ipc.open_stream or"),
    "file as tensor": (lambda: sa.ipc.read_tensor(FILE), "found an Arrow file; ipc.open_file reads it"),
    "file as bundle": (lambda: sa.load_tensors(FILE), "not a bundle of tensors; open it with ipc.open_file"),
    "anything": (lambda: sa.ipc.open_file(b"\x01" * 50), "expected an Arrow file, found bytes that start with b'\\x01"),
    "any stream": (
        lambda: sa.ipc.open_stream(b"\xfe" * 50),
        "expected an Arrow message at 0, found bytes that start with b'\\xfe",
    ),
}


@pytest.mark.parametrize("form", FORMS)
def test_the_forms_of_arrow_are_told_apart(form: str) -> None:
    call, message = FORMS[form]
    with pytest.raises(sa.InvalidData, match=re.escape(message)):
        call()


# --- places -----------------------------------------------------------------------------------------------------

PLACES: dict[str, tuple[Any, type[Exception], str]] = {
    "missing": ("nothing.arrow", sa.ObjectNotFound, "cannot open 'nothing.arrow': No such .*; the current"),
    "directory": ("no/such/x.arrow", sa.ObjectNotFound, "there is no directory 'no/such'"),
    "pattern": ("*.arrow", sa.ObjectNotFound, "patterns are not expanded"),
    "file URL": ("file:///data/x.arrow", sa.ObjectNotFound, "a URL is not a path; pass '/data/x.arrow'"),
    "s3": ("s3://bucket/x", sa.ObjectNotFound, r"such as fsspec\.open\('s3://bucket/x'\)\.open\(\)"),
    "http": ("https://a.org/x", sa.ObjectNotFound, "a URL is not a path; pass a file object"),
    "shm": ("shm:nobody-made-this", sa.ObjectNotFound, "cannot attach to 'shm:nobody-made-this'.*never published"),
    "a directory": (".", sa.InvalidArgument, "expected a file, and '.' is a directory; pass one of the files in it"),
    "a folder": ("folder", sa.StorageError, "found a directory; pass one of the files in it;"),
    "number": (5, sa.InvalidType, "a source must be a path, a shm: name, a Segment, a file object, .*, found int"),
    "nothing": (None, sa.InvalidType, "found NoneType"),
    "table": (TABLE, sa.InvalidType, "found shmarrow.Table"),
    "objects": (np.array([None]), sa.InvalidType, "an ndarray of object, which holds references"),
    "text file": (io.StringIO("a"), sa.InvalidType, "expected a binary file, found the text file"),
}


@pytest.mark.parametrize("place", PLACES)
def test_what_is_not_there(place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    where, kind, message = PLACES[place]
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    for open_ in (sa.ipc.open_file, sa.ipc.open_stream, sa.load_tensors, sa.ipc.read_tensor):
        with pytest.raises(kind, match=message):
            open_(where)


def test_the_home_directory_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    with sa.ipc.new_file("~/a.arrow", BATCH.schema) as writer:
        writer.write(BATCH)
    assert (tmp_path / "a.arrow").stat().st_size > 500
    assert sa.ipc.open_file("~/a.arrow")[0].equals(BATCH)
    with sa.Store("~/store") as store:
        store.put("x", BATCH)
        assert store.path == f"{tmp_path}/store"
    with pytest.raises(sa.ObjectNotFound, match=re.escape(f"make the directory '{tmp_path}/none' first")):
        sa.ipc.new_file("~/none/a.arrow", BATCH.schema)


# --- calls ------------------------------------------------------------------------------------------------------


def writer() -> Any:
    return sa.ipc.new_stream(io.BytesIO(), BATCH.schema)


def new(options: Any) -> Any:
    return sa.ipc.new_file(io.BytesIO(), BATCH.schema, options)


def file(**options: Any) -> Any:
    return sa.ipc.open_file(FILE, **options)


A, T, F, R = sa.InvalidArgument, sa.InvalidType, sa.FieldNotFound, sa.IndexOutOfRange
CALLS: dict[str, tuple[Callable[[], Any], type[Exception], str]] = {
    # options
    "options by name": (lambda: new("lz4"), T, "found str; pass IpcWriteOptions(compression='lz4')"),
    "options as a dict": (lambda: new({}), T, "options must be a shmarrow.ipc.IpcWriteOptions, found dict"),
    "codec": (lambda: Options("snappy"), A, "compression must be one of (None, 'lz4', 'zstd'), found 'snappy'"),
    "level of lz4": (lambda: Options("lz4", 100), A, "compression_level of lz4 must be from -65536 to 16, found 100"),
    "level of none": (lambda: Options(None, 3), A, "compression_level 3 needs a compression, found None"),
    "codecs": (lambda: Options(["lz4"]), T, "numbers and strings"),
    "level as text": (lambda: Options("lz4", "high"), T, "compression_level cannot be 'high'"),
    "threads": (lambda: Options(use_threads=1), T, "use_threads cannot be 1"),
    "version": (lambda: Options(metadata_version="V3"), A, "metadata_version must be"),
    "byte order": (lambda: Options(endianness="middle"), A, "endianness must be"),
    "savings": (lambda: Options(min_space_savings=2.0), A, "min_space_savings must be"),
    "codec of a later version": (lambda: Options("zstd", metadata_version="V4"), A, "V4"),
    # readers
    "batch by text": (lambda: file().get_batch("0"), T, "the index of a batch must be an int, found str"),
    "batch beyond": (lambda: file().get_batch(5), R, "no batch 5: "),
    "slice of a reader": (lambda: file()[0:1], T, "the index of a batch must be an int, found slice"),
    "stream by text": (lambda: sa.ipc.open_stream(STREAM).get_batch("0"), T, "index of a batch must be an int, found"),
    "one included": (lambda: file(included_fields="id"), T, "names, found 'id'; write ['id'] for one"),
    "number included": (lambda: file(included_fields=3), T, "found 3; write [3] for one"),
    "unknown included": (lambda: file(included_fields=["x"]), F, "named 'x'; the schema has 2 fields: ['a', 'id']"),
    "one included of a stream": (lambda: sa.ipc.open_stream(STREAM, included_fields="id"), T, "write ['id'] for one"),
    # writers
    "write values": (lambda: writer().write({"a": [1]}), T, "data frame, found dict; shmarrow.record_batch(...)"),
    "write a list": (lambda: writer().write([BATCH]), T, "found list; shmarrow.record_batch(...) makes a batch of val"),
    "write nothing": (lambda: writer().write(None), T, "a table, a reader or a data frame, found NoneType"),
    "schema as a number": (lambda: sa.ipc.new_file(io.BytesIO(), 5), T, "expected a shmarrow.Schema, found int"),
    "sink": (lambda: sa.ipc.new_file(5, BATCH.schema), T, "a sink must be a path, a shm: name or a file object, found"),
    "mode": (lambda: sa.ipc.new_file("x", BATCH.schema, mode="w"), A, "permission bits from 0 to 0o777, found 'w'"),
    "rows of a batch as text": (lambda: writer().write_table(TABLE, "1"), T, "int, found"),
    # schemas and types
    "names alone": (lambda: sa.schema(["a"]), T, "found 'a'; a field needs a type, as in ('a', 'int64')"),
    "schema of text": (lambda: sa.schema("a"), T, "expected fields, (name, type) tuples, or a mapping, found 'a'"),
    "schemas": (lambda: sa.unify_schemas(None), T, "expected a list of shmarrow.Schema, found None"),
    "misspelt type": (lambda: COLUMN.cast("int46"), A, "no type is named 'int46'; did you mean 'int64'"),
    "decimal by name": (lambda: COLUMN.cast("decimal128(5, 2)"), A, "parametric types have factory functions"),
    "class int": (lambda: sa.array([1], int), T, "the name of one, found <class 'int'>; write 'int64'"),
    "class float": (lambda: COLUMN.cast(float), T, "write 'float64'"),
    "number for a type": (lambda: sa.array([1], 8), T, "expected a DataType or the name of one, found 8"),
    "type of pyarrow": (lambda: sa.types.is_string(pa.string()), T, "shmarrow.types.as_type(...) converts it"),
    # values
    "text as values": (lambda: sa.array("abc"), T, "expected an ndarray or an iterable of values, found str"),
    "mixed": (lambda: sa.array([1, "a"]), T, "row 1: no single type fits all values, which are of the types int, str"),
    "rows of an ndarray": (lambda: sa.table(np.eye(2)), T, "of an ndarray are not columns: pass list(array.T)"),
    "table of a dict": (lambda: sa.Table({"a": [1]}), T, "Schema, found dict; shmarrow.table() takes values"),
    "chunks of values": (lambda: sa.ChunkedArray([[1]]), T, "found list; shmarrow.chunked_array() takes values"),
    "batches as text": (lambda: sa.Table(BATCH.schema, "a"), T, "a list of shmarrow.RecordBatch, found 'a'"),
    "one batch": (lambda: sa.Table.from_batches(BATCH), T, "record batches, found one shmarrow.RecordBatch"),
    "nothing to join": (lambda: sa.concat_arrays([]), A, "expected at least one array"),
    "two types": (lambda: sa.concat_arrays([COLUMN, sa.array(["a"])]), T, "cannot concatenate int64 and string"),
    # casts
    "text of numbers": (lambda: COLUMN.cast("string"), T, "int64 to string; format or parse the values in Python"),
    "structs of lists": (
        lambda: sa.array([[1]]).cast(sa.struct({"a": "int8"})),
        T,
        "no cast from list<item: int64> to",
    ),
    # selecting
    "mask of a batch": (lambda: BATCH[MASK], T, "ndarray; use select([...]) for several columns, filter(mask)"),
    "several columns": (lambda: TABLE[["a", "id"]], T, "found list; use select([...]) for several columns"),
    "missing column": (lambda: BATCH["x"], F, "no field is named 'x'; the schema has 2 fields: ['a', 'id']"),
    "no field": (lambda: BATCH.column(9), R, "no field 9: the schema has 2"),
    "index beyond": (lambda: COLUMN[3], R, "index 3 is out of range: the array has 3 values"),
    "select nothing": (lambda: TABLE.select(None), T, "expected a list of positions and names, found None"),
    "rename by text": (lambda: TABLE.rename_columns("ab"), T, "found 'ab'; write ['ab'] for one"),
    "take text": (lambda: COLUMN.take("a"), T, "indices must be integers, found 'a'"),
    "float slice": (lambda: BATCH.slice(1.5), T, "expected a slice of ints, found offset 1.5"),
    # handing out
    "numpy with nulls": (lambda: sa.array([1, None]).to_numpy(), sa.CopyRequired, "to_numpy(zero_copy_only=False)"),
    "numpy of text": (lambda: sa.array(["a"]).to_numpy(), sa.CopyRequired, "call to_numpy(zero_copy_only=False)"),
    # tensors
    "tensor of text": (lambda: sa.save_tensors({"a": "x"}, io.BytesIO()), T, "tensor 'a': expected a tensor or an arr"),
    "tensors in a list": (lambda: sa.save_tensors([np.eye(2)], io.BytesIO()), T, "names to tensors, found list"),
    "number as name": (lambda: sa.save_tensors({1: MASK}, io.BytesIO()), T, "a tensor must be a string, found 1"),
    "element type": (lambda: sa.Tensor.from_numpy(np.eye(2), type=5), T, "expected a"),
    "new tensor": (lambda: sa.ipc.new_tensor(io.BytesIO(), 5, (2,)), T, "expected"),
    "dimension": (lambda: sa.Tensor.from_numpy(np.eye(2)).dim_name(None), A, "no dimension None: the tensor has 2"),
}


@pytest.mark.parametrize("case", CALLS)
def test_a_mistake_says_what_to_do(case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    call, kind, message = CALLS[case]
    with pytest.raises(sa.ShmarrowError) as caught:
        call()
    assert type(caught.value) is kind
    assert message in str(caught.value)
    assert len(str(caught.value)) < 400
    assert list(tmp_path.iterdir()) == []


# --- arguments of any kind --------------------------------------------------------------------------------------

JUNK: list[Any] = [
    None, 5, -1, 1.5, float("nan"), True, "text", b"bytes", [], ["a"], [1, "a", None], (1, 2), {}, {"a": 1}, {1}, 2**70,
    range(3), slice(0, 1), int, object(), np.array(3), np.array(["x"], object), np.datetime64("NaT"), sa.int8(), COLUMN,
    BATCH.schema, BATCH.schema.field(0), lambda: 1,
]  # fmt: skip

FUNCTIONS = [
    sa.array, sa.chunked_array, sa.record_batch, sa.table, sa.schema, sa.field, sa.struct, sa.list_, sa.map_,
    sa.concat_arrays, sa.concat_batches, sa.concat_tables, sa.unify_schemas, sa.nulls, sa.timestamp, sa.decimal128,
    sa.dictionary, sa.load_tensors, sa.save_tensors, sa.unregister_extension_type, sa.ipc.open_file,
    sa.ipc.open_stream, sa.ipc.read_tensor, sa.ipc.new_tensor, sa.ipc.new_file, sa.ipc.new_stream,
]  # fmt: skip
ROWS = (
    "column slice select take filter rename_columns drop_columns set_column add_column append_column remove_column "
    "cast to_batches replace_schema_metadata __getitem__"
)
METHODS: list[tuple[Any, str]] = [
    (BATCH, ROWS),
    (TABLE, ROWS),
    (COLUMN, "cast take filter slice fill_null __getitem__ to_numpy"),
    (TABLE["a"], "cast take filter slice chunk __getitem__"),
    (BATCH.schema, "field insert set remove append with_metadata index_of __getitem__"),
]


def junk_arguments(call: Callable[..., Any]) -> list[tuple[Any, ...]]:
    """One kind of junk for all positional arguments that the call needs, or for the first."""
    parameters = inspect.signature(call).parameters.values()
    needed = [each for each in parameters if each.kind <= each.POSITIONAL_OR_KEYWORD and each.default is each.empty]
    return [(value,) * max(1, len(needed)) for value in JUNK]


def test_no_argument_gives_another_librarys_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    calls = [(call.__name__, call) for call in FUNCTIONS]
    for held, names in METHODS:
        calls += [(f"{type(held).__name__}.{name}", getattr(held, name)) for name in names.split()]
    wrong = []
    for name, call in calls:
        for arguments in junk_arguments(call):
            try:
                call(*arguments)
            except sa.ShmarrowError:
                pass
            except Exception as error:
                wrong.append(f"{name}{arguments!r}: {type(error).__name__}: {error}")
    assert wrong == []


@pytest.mark.parametrize("limits", [None, {"depth": 3}, sa.Limits])
def test_limits_of_another_type(limits: Any) -> None:
    for call in (
        lambda: sa.ipc.open_file(FILE, limits=limits),
        lambda: sa.ipc.open_stream(STREAM, limits=limits),
        lambda: sa.ipc.StreamDecoder(limits),
        lambda: sa.ipc.read_tensor(STREAM, limits=limits),
        lambda: sa.ipc.read_tensors(STREAM, limits=limits),
        lambda: sa.load_tensors(FILE, limits=limits),
    ):
        with pytest.raises(sa.InvalidType, match=r"limits must be a shmarrow\.Limits, found"):
            call()
    with pytest.raises(sa.InvalidArgument, match="depth must be an int"):
        sa.Limits(depth=True)


def test_missing_arguments_are_those_of_the_method() -> None:
    for call, match in (
        (lambda: sa.array([1]).to_pandas(True), r"to_pandas\(\) takes 1"),
        (lambda: sa.table({"a": [1]}).to_pandas(True), r"to_pandas\(\) takes 1"),
        (lambda: sa.Table.from_pandas(), r"from_pandas\(\) missing"),
    ):
        with pytest.raises(TypeError, match=match):
            call()
