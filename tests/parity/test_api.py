"""Each public name of pyarrow that is in scope is here, or the page on what differs names it.

The page is data: the examples in its tables are evaluated with both libraries, where ``pa`` is one of them.
"""

from __future__ import annotations

import io
import re
import types
from fnmatch import fnmatchcase
from functools import cache, reduce
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.ipc
import pyarrow.types
import pytest
from cases.compare import exact
from environment import ROOT

import shmarrow as sa

pytestmark = pytest.mark.skipif(
    int(pa.__version__.partition(".")[0]) < 26, reason="the page compares with pyarrow 26, which is newer"
)

DIFFERENT, CLASSES, ABSENT = (
    [[cell.strip() for cell in line.split("|")[1:-1]] for line in part.splitlines() if line.startswith("| `")]
    for part in (ROOT / "docs" / "pyarrow.md").read_text(encoding="utf-8").split("\n## ")[1:]
)
"""The rows of the page's three tables."""

INSIDE = [
    "BuildInfo", "CppBuildInfo", "DictionaryMemo", "RuntimeInfo", "VersionInfo", "build_info", "cpp_*", "cpu_count",
    "create_library_symlinks", "enable_signal_handlers", "get_include", "get_libraries", "get_library_dirs",
    "io_thread_count", "is_opentelemetry_enabled", "runtime_info", "set_cpu_count", "set_io_thread_count",
    "set_timezone_db_path", "show_info", "show_versions", "types.IntEnum", "types.TypesEnum",
    "types.doc", "ipc.MetadataVersion", "ipc.Alignment", "MonthDayNano.n_*", "MonthDayNano.count", "MonthDayNano.index",
]  # fmt: skip
"""Parts of pyarrow's build, its runtime and its inside, which nobody looks for here."""


def quoted(cell: str) -> list[str]:
    """What a cell has in backticks."""
    return re.findall("`([^`]+)`", cell)


def paths(table: list[list[str]]) -> list[str]:
    """The names in the first column of a table, without arguments."""
    return [name.partition("(")[0] for row in table for name in quoted(row[0])]


OBJECTS = """\
numbers = pa.array([3, None, 1, 1], pa.int8())
words = pa.array(["a", None, "b", "a"])
lists = pa.array([[1, 2], None, [], [3]], pa.list_(pa.int16()))
pairs = pa.array([[1, 2], None, [3, 4]], pa.list_(pa.int16(), 2))
maps = pa.array([[("a", 1)], None, [("b", 2), ("c", None)]], pa.map_(pa.string(), pa.int8()))
structs = pa.array([{"x": 1, "y": "a"}, None, {"x": None, "y": "b"}], pa.struct([("x", pa.int8()), ("y", pa.string())]))
mask = pa.array([True, None, False, True])
masked = pa.array([True, False])
encoded = words.dictionary_encode()
chunks = pa.chunked_array([[1, None], [], [2, 1]], pa.int32())
schema = pa.schema([pa.field("n", pa.int8(), metadata={"unit": "m"}), pa.field("s", pa.string())], metadata={"k": "v"})
field = pa.field("n", pa.int8(), nullable=False, metadata={"unit": "m"})
batch = pa.record_batch([numbers, words], schema=schema)
table = pa.Table.from_batches([batch, batch.slice(1, 2)])
stream = io.BytesIO()
with pa.ipc.new_stream(stream, schema) as writer:
    writer.write_batch(batch)
    writer.write_table(table)
file = io.BytesIO()
with pa.ipc.new_file(file, schema) as writer:
    writer.write(batch)
    writer.write(table)
stream, file = stream.getvalue(), file.getvalue()
tensor = pa.Tensor.from_numpy(np.arange(6, dtype="f4").reshape(2, 3), dim_names=["row", "column"])
ones, names = np.array([1.5, 2.5]), ["row", "column"]
coo = pa.SparseCOOTensor.from_numpy(ones, np.array([[0, 1], [1, 0]]), (2, 3), names)
csr = pa.SparseCSRMatrix.from_numpy(ones, np.array([0, 1, 2]), np.array([1, 0]), (2, 3), names)
csc = pa.SparseCSCMatrix.from_numpy(ones, np.array([0, 1, 2, 2]), np.array([1, 0]), (2, 3), names)
csf = pa.SparseCSFTensor.from_numpy(
    ones, [np.array([0, 1, 2])], [np.array([0, 1]), np.array([1, 0])], (2, 3), [0, 1], names
)
"""
"""The objects that the calls refer to."""


@cache
def names(library: Any) -> dict[str, Any]:
    """Return the objects that calls refer to, made by one of the libraries."""
    found = {"pa": library, "np": np, "io": io}
    exec(OBJECTS, found)
    return found


def evaluated(library: Any, call: str) -> Any:
    """The value of a call, where ``pa`` is one of the libraries."""
    return eval(call, names(library))


def theirs(value: Any) -> Any:
    """Our object as pyarrow's."""
    for kind in (sa.Array, sa.ChunkedArray, sa.RecordBatch, sa.Table, sa.Schema, sa.Field, sa.DataType):
        if isinstance(value, kind):
            return value.to_pyarrow()
    return value


def metadata(found: Any) -> Any:
    return None if not found else dict(found)


def plain(value: Any) -> Any:
    """Return the result of a call as Python values, with the names and types of its parts."""
    value = theirs(value)
    if isinstance(value, pa.Scalar):
        return exact(value.as_py())
    if isinstance(value, pa.DataType):
        return ("type", str(value), [plain(value.field(i)) for i in range(value.num_fields)])
    if isinstance(value, pa.Field):
        return ("field", value.name, plain(value.type), value.nullable, metadata(value.metadata))
    if isinstance(value, pa.Schema):
        return ("schema", [plain(field) for field in value], metadata(value.metadata))
    if isinstance(value, pa.Array):
        return ("array", plain(value.type), exact(value.to_pylist()))
    if isinstance(value, pa.ChunkedArray):
        return ("chunks", plain(value.type), exact(value.to_pylist()))
    if isinstance(value, pa.RecordBatch):
        return ("batch", plain(value.schema), [plain(column) for column in value.columns])
    if isinstance(value, pa.Table):
        return ("table", plain(value.schema), [exact(column.to_pylist()) for column in value.columns])
    if isinstance(value, (list, tuple, types.GeneratorType)):
        return [plain(item) for item in value]
    if hasattr(value, "items") and not isinstance(value, pa.Array):
        return {key: plain(item) for key, item in value.items()}
    return exact(value)


ARGUMENTS = [
    "pa.array((n for n in [1.5, None]), size=2)",
    'pa.array([1, 2], type="int16", mask=np.array([False, True]), safe=True)',
    "pa.array(np.array([1.0, np.nan]), from_pandas=True)",
    "pa.nulls(2, type=pa.list_(pa.string()))",
    'pa.concat_tables([table, pa.table({"n": pa.array([1], pa.int8())})], promote_options="default")',
    'pa.schema({"a": "int8"}, metadata={"k": "v"})',
    'pa.field("a", type=pa.null(), nullable=True)',
    'pa.unify_schemas([schema, pa.schema([("t", pa.int8())])], promote_options="default")',
    'pa.time32(unit="ms")',
    'pa.timestamp("us", tz="+07:30")',
    "pa.decimal256(precision=5, scale=1)",
    "pa.map_(pa.string(), pa.int8(), keys_sorted=True)",
    'pa.union([field], mode="sparse", type_codes=[5])',
    'pa.fixed_shape_tensor(pa.int8(), (2, 3), dim_names=["a", "b"], permutation=[1, 0])',
    "numbers.cast(target_type=pa.int16(), safe=True)",
    'words.dictionary_encode(null_encoding="mask")',
    "numbers.equals(other=numbers.slice(1))",
    "mask.fill_null(fill_value=True)",
    'numbers.filter(mask, null_selection_behavior="emit_null")',
    "pa.Array.from_buffers(lists.type, 4, lists.buffers()[:2], null_count=1, children=[lists.values])",
    "pa.Array.from_buffers(type=pa.string(), length=4, buffers=words.buffers(), offset=0)",
    "pa.Array.from_pandas([1, None], mask=np.array([True, False]), type=pa.int8())",
    "words.to_pandas(strings_to_categorical=True)",
    "pa.array([1.0, float('nan'), None]).is_null(nan_is_null=True)",
    "numbers.slice(offset=1, length=9)",
    "lists.take(indices=np.array([2, 0]))",
    "words.to_numpy(zero_copy_only=False)",
    "chunks.chunk(i=0)",
    "chunks.to_numpy(zero_copy_only=False)",
    "batch.cast(target_schema=schema, safe=True)",
    "batch.equals(batch.replace_schema_metadata(), check_metadata=True)",
    "batch.to_pandas(integer_object_nulls=True)",
    'pa.RecordBatch.from_arrays([numbers], names=["a"], metadata={"k": "w"})',
    'pa.RecordBatch.from_pydict({"s": ["a"], "n": [1]}, schema=schema)',
    'pa.RecordBatch.from_pylist([{"a": 1}], metadata={"k": "w"})',
    "pa.Table.from_pandas(table.to_pandas(), preserve_index=True).schema.names",
    "pa.Table.from_pandas(table.to_pandas().set_index('n'), preserve_index=False, columns=['s']).to_pydict()",
    "pa.Table.from_pylist([{'s': 'a', 'n': 1}, {}], schema=schema)",
    "table.to_batches(max_chunksize=3)",
    "[b.num_rows for b in table.to_reader(max_chunksize=3)]",
    "field.equals(field.remove_metadata(), check_metadata=True)",
    "pa.ListArray.from_arrays([0, 1], pa.array([1], pa.int8()), type=pa.list_(pa.field('x', pa.int8())))",
    "pa.ListViewArray.from_arrays([0, 1], [2, 2], pa.array([1, 2, 3]), mask=masked)",
    "pa.FixedSizeListArray.from_arrays(pa.array([1, 2]), type=pa.list_(pa.int64(), 1), mask=masked)",
    'pa.MapArray.from_arrays(pa.array([0, 1, 2], pa.int32()), ["a", "b"], [1, 2], mask=masked)',
    "pa.StructArray.from_arrays([words], fields=[pa.field('a', pa.string())], mask=pa.array([True, False] * 2))",
    "pa.StructArray.from_arrays([numbers, words], type=structs.type)",
    "pa.DictionaryArray.from_arrays(np.array([0, 2]), words, mask=np.array([True, False]), ordered=True, safe=True)",
    "[(w.write(batch), w.write_table(table, 1), list(w.stats)) for w in [pa.ipc.new_stream(io.BytesIO(), schema)]]",
    'pa.ipc.IpcWriteOptions(compression="zstd", use_threads=False, use_legacy_format=True).compression',
    "pa.RecordBatchReader.from_stream(table, schema=schema).read_all()",
    "pa.ipc.open_stream(stream).cast(pa.schema([('n', pa.int64()), ('s', pa.large_string())])).read_all()",
    'pa.Tensor.from_numpy(np.eye(2), dim_names=["x", "y"]).to_numpy().tolist()',
]
"""Calls that show the names and the order of arguments; what their results are is the matter of other tests."""
EXAMPLES = [quoted(row[2]) for row in DIFFERENT if row[2]]
"""Pairs of calls, ours and pyarrow's."""


@pytest.mark.parametrize("call", ARGUMENTS)
def test_arguments_have_the_names_that_they_have_in_pyarrow(call: str) -> None:
    assert plain(evaluated(sa, call)) == plain(evaluated(pa, call))


@pytest.mark.parametrize(("ours", "call"), EXAMPLES)
def test_another_call_gives_what_pyarrow_gives(ours: str, call: str) -> None:
    assert plain(evaluated(sa, ours)) == plain(evaluated(pa, call))


def part_of(library: Any, path: str) -> Any:
    """A class or module of a library by its path, the library itself if that is empty; None if it does not exist."""
    return reduce(lambda place, name: getattr(place, name, None), path.split("."), library) if path else library


HERE = {
    name: f"pa.{f'types.{name}' if row[1].startswith('the same') else quoted(row[1])[0]}"
    for row in CLASSES
    for name in quoted(row[0])
} | {
    "FixedShapeTensorType": "pa.fixed_shape_tensor(pa.int8(), [2])",
    "OpaqueType": 'pa.opaque(pa.int8(), "a", "b")',
    "RecordBatchReader": "table.to_reader()",
    "ipc.RecordBatchStreamReader": "pa.ipc.open_stream(stream)",
    "ipc.ReadStats": "pa.ipc.IpcStats",
    "ipc.WriteStats": "pa.ipc.IpcStats",
}
"""What has the members of classes that are not the same here: a class, or an object that has them as attributes."""


def public(place: Any) -> set[str]:
    """The public names of a class or module, without modules that others imported."""
    return {
        name
        for name in dir(place)
        if not name.startswith("_") and not isinstance(getattr(place, name), types.ModuleType)
    }


def is_named(path: str, patterns: list[str]) -> bool:
    return any(fnmatchcase(path, pattern) for pattern in patterns)


def test_every_public_name_of_pyarrow_is_here_or_on_the_page() -> None:
    """Members of classes that are left out as a whole need no place."""
    left_out = paths(ABSENT) + INSIDE
    named = paths(DIFFERENT) + paths(CLASSES) + left_out
    missing = []
    places = {"": pa, "types": pa.types, "ipc": pa.ipc}
    for module in ("", "ipc"):
        for name, kind in vars(part_of(pa, module)).items():
            path = f"{module}.{name}".strip(".")
            if isinstance(kind, type) and name[0] != "_" and not is_named(path, left_out):
                places[path] = kind
    for path, place in places.items():
        ours = evaluated(sa, HERE[path]) if path in HERE else part_of(sa, path)
        owners = [path, *[base.__name__ for base in getattr(place, "__mro__", ())]]
        for name in public(place):
            known = any(is_named(f"{owner}.{name}".strip("."), named) for owner in owners)
            if not known and not hasattr(ours, name):
                missing.append(f"{path}.{name}")
    assert missing == []


def test_the_page_names_what_pyarrow_has_and_leaves_out_what_is_not_here() -> None:
    for path in paths(DIFFERENT) + paths(CLASSES) + paths(ABSENT):
        place, _, name = path.rpartition(".")
        if "*" not in name:
            assert hasattr(part_of(pa, place), name), path
            assert path not in paths(ABSENT) or not hasattr(part_of(sa, place), name), path
