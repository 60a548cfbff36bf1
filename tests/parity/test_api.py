"""Each public name of pyarrow that is in scope is here, or has its place in the tables of what differs."""

from __future__ import annotations

import io
import types
from functools import cache, reduce
from typing import Any

import api
import numpy as np
import pyarrow as pa
import pyarrow.ipc
import pyarrow.types
import pytest
from api_kinds import INSIDE, Class, Instead, Out
from cases.compare import exact

import shmarrow as sa

pytestmark = pytest.mark.skipif(
    int(pa.__version__.partition(".")[0]) < 26, reason="the tables compare with pyarrow 26, which is newer"
)


@cache
def names(library: Any) -> dict[str, Any]:
    """Return the objects that calls refer to, made by one of the libraries."""
    found = {"pa": library, "np": np, "io": io}
    exec(api.NAMES, found)
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
OTHERS = [
    pytest.param(entry.theirs, entry.ours, id=f"{section or 'pa'}.{name}")
    for section, table in api.SECTIONS.items()
    for name, entry in table.items()
    if isinstance(entry, Instead)
]
KINDS = [pytest.param(entry, id=entry.theirs) for entry in api.MODULE.values() if isinstance(entry, Class)]


@pytest.mark.parametrize("call", ARGUMENTS)
def test_arguments_have_the_names_that_they_have_in_pyarrow(call: str) -> None:
    assert plain(evaluated(sa, call)) == plain(evaluated(pa, call))


@pytest.mark.parametrize(("call", "ours"), OTHERS)
def test_another_call_gives_what_pyarrow_gives(call: str, ours: str) -> None:
    assert plain(evaluated(sa, ours)) == plain(evaluated(pa, call))


@pytest.mark.parametrize("entry", KINDS)
def test_a_class_stands_for_one_of_pyarrow(entry: Class) -> None:
    assert isinstance(evaluated(pa, entry.example), getattr(pa, entry.theirs))
    assert isinstance(evaluated(sa, entry.example), evaluated(sa, f"pa.{entry.ours}"))


def public(place: Any) -> set[str]:
    """The public names of a class or module; of a named tuple, those of its values."""
    inherited = dir(tuple) if isinstance(place, type) and issubclass(place, tuple) else []
    return {name for name in dir(place) if not name.startswith("_")} - {*inherited}


def part_of(library: Any, path: str) -> Any:
    """A class or module of a library by its path, the library itself if that is empty; None if it does not exist."""
    return reduce(lambda place, name: getattr(place, name, None), path.split("."), library) if path else library


HERE = {
    "RecordBatchReader": "table.to_reader()",
    "ipc.RecordBatchStreamReader": "pa.ipc.open_stream(stream)",
    "ipc.ReadStats": "pa.ipc.IpcStats",
    "ipc.WriteStats": "pa.ipc.IpcStats",
}
"""What has the members of some classes here: an object, where they are no attributes of its class."""


def has(section: str, name: str) -> bool:
    """Whether a name of a class or module of pyarrow is here."""
    entry = api.MODULE.get(section)
    example = entry.example if isinstance(entry, Class) else HERE.get(section)
    return hasattr(evaluated(sa, example) if example else part_of(sa, section), name)


@pytest.mark.parametrize("section", list(api.SECTIONS), ids=lambda section: section or "pa")
def test_every_public_name_of_pyarrow_is_here_or_has_its_place(section: str) -> None:
    place = part_of(pa, section)
    names = public(place)
    for base in place.__mro__[1:] if isinstance(place, type) else ():
        names -= public(base) if base.__name__ in api.SECTIONS else set()
    names -= {name for name in names if isinstance(getattr(place, name), types.ModuleType)}  # which others imported
    table = api.SECTIONS[section]
    assert sorted(name for name in names if api.find(table, name) is None and not has(section, name)) == []
    known = public(place)
    assert sorted(name for name in table if "*" not in name and "(" not in name and name not in known) == []


@pytest.mark.parametrize("section", [*api.SECTIONS], ids=lambda section: section or "pa")
def test_what_is_left_out_is_not_there(section: str) -> None:
    place = part_of(sa, section)
    if place is not None:
        left = [name for name, entry in api.SECTIONS[section].items() if isinstance(entry, Out) and entry is not INSIDE]
        assert [name for name in left if hasattr(place, name)] == []


def test_every_member_of_a_class_of_pyarrow_is_here_or_has_its_place() -> None:
    """Those of classes that are left out as a whole need none."""
    left: dict[str, list[str]] = {}
    for module in ("", "ipc"):
        for name, kind in vars(part_of(pa, module)).items():
            left_out = name.startswith("_") or isinstance(api.find(api.SECTIONS[module], name), Out)
            if left_out or not isinstance(kind, type):
                continue
            section = f"{module}.{name}".strip(".")
            sections = {section, *[base.__name__ for base in kind.__mro__]}
            tables = [api.SECTIONS[each] for each in sections if each in api.SECTIONS]
            missing = [each for each in public(kind) if not any(api.find(table, each) for table in tables)]
            missing = [each for each in missing if not has(section, each)]
            left |= {name: missing} if missing else {}
    assert left == {}


def test_the_page_is_that_of_the_tables() -> None:
    assert api.PAGE.read_text(encoding="utf-8") == api.page(), "run make docs"
