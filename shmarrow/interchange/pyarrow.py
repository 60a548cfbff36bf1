"""To and from pyarrow: types, fields, schemas, arrays, record batches and tables, without copying a buffer.

Rules kept here:

* a buffer is handed over as it is, with the array's offset beside it, in both directions; its owner lives as long as
  either side does. Only children of structs and sparse unions need care: pyarrow hands them out cut to the slots of
  their parent, while ours, as those of the C data interface, do not share their parent's offset;
* an array is checked by structure before pyarrow's native code has it, and for what makes that code abort;
* an extension type goes over by name and parameters, as IPC has it: it is an extension type on each side where one is
  registered under the name, else its storage with both in the metadata of the field;
* pyarrow is imported when it is first needed.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterable
from functools import cache
from typing import Any

import numpy as np

from shmarrow import types
from shmarrow.batch import RecordBatch
from shmarrow.buffer import Bytes
from shmarrow.errors import InvalidData, InvalidType, Unsupported
from shmarrow.extension import NAME_KEY, ExtensionType, extension_type, storage_field
from shmarrow.interchange.partner import needed
from shmarrow.layout.array import Array, make_array
from shmarrow.layout.listing import LISTING
from shmarrow.layout.memory import EMPTY
from shmarrow.tables import ChunkedArray, Table
from shmarrow.types import DataType, Field, Metadata, Schema


@cache
def partner() -> Any:
    """The module ``pyarrow``; MissingExtra where it is not installed."""
    with needed("pyarrow", "arrow"):
        import pyarrow
    return pyarrow


@cache
def _classes(*kinds: str) -> tuple[Any, ...]:
    return tuple([getattr(partner(), kind) for kind in kinds])


def _expect(value: Any, *kinds: str) -> None:
    if not isinstance(value, _classes(*kinds)):
        raise InvalidType(f"expected a pyarrow.{' or '.join(kinds)}, found {value.__class__.__name__}")


# --- types ------------------------------------------------------------------------------------------------------

_PLAIN: tuple[tuple[str, str | None], ...] = (
    *[
        (name, None)
        for name in (
            "null", "bool_", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64",
            "float16", "float32", "float64", "date32", "date64", "month_day_nano_interval",
            "binary", "string", "large_binary", "large_string", "binary_view", "string_view",
        )
    ],
    *[("time32", unit) for unit in ("s", "ms")],
    *[("time64", unit) for unit in ("us", "ns")],
    *[("duration", unit) for unit in types.TIME_UNITS],
)  # fmt: skip
"""Factories that both sides have under one name, and the unit that they take."""


@cache
def _pairs() -> tuple[tuple[Any, DataType], ...]:
    """The types without further parameters, theirs and ours."""
    pa = partner()
    calls = [(name, () if unit is None else (unit,)) for name, unit in _PLAIN]
    return tuple([(getattr(pa, name)(*unit), getattr(types, name)(*unit)) for name, unit in calls])


@cache
def _plain_from() -> dict[Any, DataType]:
    return dict(_pairs())


@cache
def _plain_to() -> dict[DataType, Any]:
    return {ours: theirs for theirs, ours in _pairs()}


def _fields_from(type: Any) -> list[Field]:
    return [field_from_pyarrow(type.field(i)) for i in range(type.num_fields)]


_FROM: dict[str, Callable[[Any], DataType]] = {
    "DECIMAL32": lambda type: types.DecimalType(32, type.precision, type.scale),
    "DECIMAL64": lambda type: types.DecimalType(64, type.precision, type.scale),
    "DECIMAL128": lambda type: types.DecimalType(128, type.precision, type.scale),
    "DECIMAL256": lambda type: types.DecimalType(256, type.precision, type.scale),
    "FIXED_SIZE_BINARY": lambda type: types.FixedSizeBinaryType(type.byte_width),
    "TIMESTAMP": lambda type: types.TimestampType(type.unit, type.tz),
    "LIST": lambda type: types.ListType(*_fields_from(type)),
    "LARGE_LIST": lambda type: types.LargeListType(*_fields_from(type)),
    "LIST_VIEW": lambda type: types.ListViewType(*_fields_from(type)),
    "LARGE_LIST_VIEW": lambda type: types.LargeListViewType(*_fields_from(type)),
    "FIXED_SIZE_LIST": lambda type: types.FixedSizeListType(field_from_pyarrow(type.field(0)), type.list_size),
    "MAP": lambda type: types.MapType(field_from_pyarrow(type.field(0)), type.keys_sorted),
    "STRUCT": lambda type: types.StructType(_fields_from(type)),
    "SPARSE_UNION": lambda type: types.UnionType("sparse", _fields_from(type), type.type_codes),
    "DENSE_UNION": lambda type: types.UnionType("dense", _fields_from(type), type.type_codes),
    "DICTIONARY": lambda type: types.DictionaryType(
        type_from_pyarrow(type.index_type), type_from_pyarrow(type.value_type), type.ordered
    ),
    "RUN_END_ENCODED": lambda type: types.RunEndEncodedType(*_fields_from(type)),
}


@cache
def _readers() -> dict[int, Callable[[Any], DataType]]:
    lib = partner().lib
    return {getattr(lib, f"Type_{name}"): read for name, read in _FROM.items() if hasattr(lib, f"Type_{name}")}


def type_from_pyarrow(type: Any) -> DataType:
    """The type that is pyarrow's ``type``; of an extension type that is not registered here its storage type.

    Raises
    ------
    InvalidType
        If ``type`` is no pyarrow DataType.
    Unsupported
        If it is of a kind unknown here.
    """
    _expect(type, "DataType")
    if isinstance(type, partner().BaseExtensionType):
        return extension_type(type_from_pyarrow(type.storage_type), _extension_metadata(type))[0]
    found = _plain_from().get(type)
    if found is not None:
        return found
    read = _readers().get(type.id)
    if read is None:
        raise Unsupported(f"no shmarrow type for pyarrow's {type}")
    return read(type)


def _fields_to(type: DataType) -> list[Any]:
    return [field_to_pyarrow(field) for field in type.fields]


_TO: dict[type[DataType], Callable[[Any], Any]] = {
    types.DecimalType: lambda type: getattr(partner(), f"decimal{type.bits}")(type.precision, type.scale),
    types.FixedSizeBinaryType: lambda type: partner().binary(type.width),
    types.TimestampType: lambda type: partner().timestamp(type.unit, type.tz),
    types.ListType: lambda type: partner().list_(*_fields_to(type)),
    types.LargeListType: lambda type: partner().large_list(*_fields_to(type)),
    types.ListViewType: lambda type: partner().list_view(*_fields_to(type)),
    types.LargeListViewType: lambda type: partner().large_list_view(*_fields_to(type)),
    types.FixedSizeListType: lambda type: partner().list_(*_fields_to(type), type.list_size),
    types.MapType: lambda type: partner().map_(
        field_to_pyarrow(type.key_field.with_nullable(False)), field_to_pyarrow(type.item_field), type.keys_sorted
    ),
    types.StructType: lambda type: partner().struct(_fields_to(type)),
    types.UnionType: lambda type: partner().union(_fields_to(type), type.mode, type.type_codes),
    types.DictionaryType: lambda type: partner().dictionary(
        type_to_pyarrow(type.index_type), type_to_pyarrow(type.value_type), type.ordered
    ),
    types.RunEndEncodedType: lambda type: partner().run_end_encoded(
        *map(type_to_pyarrow, (type.run_end_type, type.value_type))
    ),
}


def type_to_pyarrow(type: DataType) -> Any:
    """The ``pyarrow.DataType`` that is ``type``; of an extension type that pyarrow does not know its storage type.

    pyarrow names the entries of a map, and the children of a run-end encoded type, itself, and has no nullable keys.

    Raises
    ------
    Unsupported
        If pyarrow has no such type.
    """
    found = _plain_to().get(type)
    if found is not None:
        return found
    if isinstance(type, ExtensionType):
        return field_to_pyarrow(Field("", type)).type
    make = _TO.get(type.__class__)
    if make is None:
        raise Unsupported(f"pyarrow has no type for {type}")
    return make(type)


# --- fields and schemas -----------------------------------------------------------------------------------------


class _CSchema(ctypes.Structure):
    """The first members of ``ArrowSchema`` of the C data interface."""

    _fields_ = (("format", ctypes.c_char_p), ("name", ctypes.c_char_p), ("metadata", ctypes.c_void_p))


_capsule_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_capsule_pointer.restype = ctypes.c_void_p
_capsule_pointer.argtypes = (ctypes.py_object, ctypes.c_char_p)


def _extension_metadata(type: Any) -> Metadata:
    """Name and parameters of a pyarrow extension type, as the metadata of a field hold them.

    The types that pyarrow has in C++ give their parameters through the C data interface only.
    """
    capsule = type.__arrow_c_schema__()
    at = _CSchema.from_address(_capsule_pointer(capsule, b"arrow_schema")).metadata

    def read() -> bytes:
        nonlocal at
        size = ctypes.c_int32.from_address(at).value
        value = ctypes.string_at(at + 4, size)
        at += 4 + size
        return value

    count = ctypes.c_int32.from_address(at).value
    at += 4
    return {read(): read() for _ in range(count)}


def field_from_pyarrow(field: Any) -> Field:
    """The field that is pyarrow's ``field``; metadata tell of an extension type that is not registered here."""
    _expect(field, "Field")
    type, metadata = field.type, field.metadata
    if isinstance(type, partner().BaseExtensionType):
        metadata = {**(metadata or {}), **_extension_metadata(type)}
        type = type.storage_type
    logical, metadata = extension_type(type_from_pyarrow(type), metadata)
    return Field(field.name, logical, field.nullable, metadata)


def field_to_pyarrow(field: Field) -> Any:
    """The ``pyarrow.Field`` that is ``field``; metadata tell of an extension type that pyarrow does not know."""
    pa = partner()
    field = storage_field(field)
    nullable = field.nullable or field.type.layout == "null"  # pyarrow refuses a null type that is not nullable
    made = pa.field(field.name, type_to_pyarrow(field.type), nullable, field.metadata)
    if NAME_KEY not in (field.metadata or {}):
        return made
    try:  # only what reads messages looks extension types up
        return pa.ipc.read_schema(pa.schema([made]).serialize()).field(0)
    except pa.ArrowException:  # a type of this name that does not fit
        return made


def schema_from_pyarrow(schema: Any) -> Schema:
    """The schema that is pyarrow's ``schema``, with the metadata of each level."""
    _expect(schema, "Schema")
    return Schema([field_from_pyarrow(field) for field in schema], schema.metadata)


def schema_to_pyarrow(schema: Schema) -> Any:
    """The ``pyarrow.Schema`` that is ``schema``, with the metadata of each level."""
    return partner().schema([field_to_pyarrow(field) for field in schema], schema.metadata)


# --- arrays -----------------------------------------------------------------------------------------------------

Dictionaries = dict[tuple[Any, ...], Array]
"""Dictionaries met already, by type, length, offset and addresses: what pyarrow shares between chunks stays shared."""

_NO_VALIDITY = {layout for layout, row in LISTING.items() if not row.has_validity}
"""Layouts without validity, where pyarrow keeps the place of its buffer."""

_CHILDREN: dict[str, Callable[[Any], list[Any]]] = {
    "list": lambda array: [array.values],
    "large_list": lambda array: [array.values],
    "list_view": lambda array: [array.values],
    "large_list_view": lambda array: [array.values],
    "fixed_size_list": lambda array: [array.values],
    "map": lambda array: [array.values],
    "struct": lambda array: [array.field(i) for i in range(array.type.num_fields)],
    "sparse_union": lambda array: [array.field(i) for i in range(array.type.num_fields)],
    "dense_union": lambda array: [array.field(i) for i in range(array.type.num_fields)],
    "run_end_encoded": lambda array: [array.run_ends, array.values],
}
_CUT = {"struct", "sparse_union"}
"""Layouts whose children pyarrow hands out cut to the slots of their parent."""


def view_of(buffer: Any) -> Bytes:
    """The bytes of a pyarrow buffer, which lives as long as they are used."""
    if not buffer.is_cpu:
        raise Unsupported(f"the buffer at {buffer.address:#x} lies in the memory of a device: copy it to the CPU first")
    if not buffer.size:
        return EMPTY
    view = np.frombuffer(buffer, np.uint8)
    view.flags.writeable = False
    return view


def array_from_pyarrow(array: Any) -> Any:
    """The array, or chunked array, over the buffers of pyarrow's ``array``; copies nothing.

    Raises
    ------
    Unsupported
        If the type is unknown here, or the buffers lie in the memory of a device.
    """
    _expect(array, "Array", "ChunkedArray")
    type = type_from_pyarrow(array.type)
    known: Dictionaries = {}
    if isinstance(array, partner().ChunkedArray):
        return ChunkedArray([_from_pyarrow(chunk, type, known) for chunk in array.chunks], type)
    return _from_pyarrow(array, type, known)


def _from_pyarrow(array: Any, type: Any, known: Dictionaries) -> Any:
    if isinstance(array, partner().ExtensionArray):
        array = array.storage
    layout = type.layout
    rows, variadic = LISTING[layout]
    first = layout in _NO_VALIDITY
    theirs = array.buffers()
    theirs = theirs[first:] if variadic else theirs[first : first + len(rows)]
    buffers = [None if buffer is None else view_of(buffer) for buffer in theirs]
    if not first:
        buffers[1:] = [EMPTY if data is None else data for data in buffers[1:]]
    nulls = -1 if buffers and not first and buffers[0] is not None else 0
    children = [
        _from_pyarrow(child, field.type, known)
        for child, field in zip(_CHILDREN[layout](array) if type.fields else (), type.fields, strict=True)
    ]
    offset = array.offset
    if offset and layout in _CUT:
        children = [_uncut(child, offset) for child in children]
    dictionary = None
    if layout == "dictionary":
        storage: Any = type.storage_type if isinstance(type, ExtensionType) else type
        dictionary = _dictionary(array.dictionary, storage.value_type, known)
    return make_array(type, len(array), buffers, nulls, offset, children, dictionary)


def _uncut(child: Any, offset: int) -> Any:
    """A child from its first slot on, which a parent with this offset does not show."""
    nulls = 0 if child._null_count == 0 else -1
    return child._with(offset=child.offset - offset, length=len(child) + offset, null_count=nulls)


def _dictionary(values: Any, type: Any, known: Dictionaries) -> Array:
    if _has_dictionary(type):  # whose addresses pyarrow does not tell
        return _from_pyarrow(values, type, known)  # type: ignore[no-any-return]
    addresses = [0 if buffer is None else buffer.address for buffer in values.buffers()]
    key = (type, len(values), values.offset, *addresses)
    if key not in known:
        known[key] = _from_pyarrow(values, type, known)
    return known[key]


def _has_dictionary(type: DataType) -> bool:
    return type.layout == "dictionary" or any(_has_dictionary(field.type) for field in type.fields)


def array_to_pyarrow(array: Array) -> Any:
    """The ``pyarrow.Array`` over the buffers of an array; copies nothing.

    Raises
    ------
    InvalidData
        If the array breaks the format's rules in a way that leads pyarrow out of its buffers: its structure, offsets,
        views, indices, type ids, run ends. Text and ranges of values are not looked at.
    Unsupported
        If pyarrow has no such type.
    """
    return _to_pyarrow(array, type_to_pyarrow(array.type))


def _to_pyarrow(array: Array, type: Any) -> Any:
    array.validate_references()
    return _hand_over(array, type)


def _hand_over(array: Array, type: Any) -> Any:
    pa = partner()
    if isinstance(type, pa.BaseExtensionType):
        return type.wrap_array(_hand_over(array, type.storage_type))
    layout = array.type.layout
    if layout == "map":
        _check_entries(array)
    buffers = [None if data is None else pa.py_buffer(data) for data in array._buffers]
    if layout in _NO_VALIDITY:
        buffers.insert(0, None)
    # pyarrow sizes its results by the number of nulls, and what a file says of it may be wrong: let it count.
    nulls, offset = (-1 if array._null_count else 0), array.offset
    if layout == "dictionary":
        assert array._dictionary is not None
        dictionary = _to_pyarrow(array._dictionary, type.value_type)
        return pa.DictionaryArray.from_buffers(type, len(array), buffers, dictionary, nulls, offset)
    children = [_hand_over(child, type.field(i).type) for i, child in enumerate(array.children)]
    return pa.Array.from_buffers(type, len(array), buffers, nulls, offset, children)


def _check_entries(array: Array) -> None:
    """Maps whose entries or keys hold nulls, even where no map has them, make pyarrow end the process."""
    (entries,) = array.children
    for what, part in (("entries", entries), ("keys", entries.children[0])):
        if part.null_count:
            raise InvalidData(f"{array.type}: the {what} of a map are not null, found {part.null_count} nulls")


def chunked_array_to_pyarrow(array: ChunkedArray) -> Any:
    """The ``pyarrow.ChunkedArray`` over the buffers of a chunked array; copies nothing."""
    type = type_to_pyarrow(array.type)
    return partner().chunked_array([_to_pyarrow(chunk, type) for chunk in array.chunks], type)


# --- record batches and tables ----------------------------------------------------------------------------------


def _batch_from(batch: Any, schema: Schema, known: Dictionaries) -> RecordBatch:
    columns = [
        _from_pyarrow(column, field.type, known) for column, field in zip(batch.columns, schema.fields, strict=True)
    ]
    return RecordBatch(schema, batch.num_rows, columns)


def record_batch_from_pyarrow(batch: Any) -> RecordBatch:
    """The record batch over the buffers of pyarrow's ``batch``; copies nothing."""
    _expect(batch, "RecordBatch")
    return _batch_from(batch, schema_from_pyarrow(batch.schema), {})


def table_from_pyarrow(table: Any) -> Table:
    """The table over the buffers of pyarrow's ``table``; copies nothing.

    Where its columns have different chunks, batches end wherever a chunk of any column ends.
    """
    _expect(table, "Table")
    schema = schema_from_pyarrow(table.schema)
    known: Dictionaries = {}
    return Table(schema, [_batch_from(batch, schema, known) for batch in table.to_batches()])


def _batch_to(batch: RecordBatch, schema: Any) -> Any:
    pa = partner()
    if not len(schema):  # only a struct without fields gives pyarrow a number of rows without columns
        rows = pa.Array.from_buffers(pa.struct([]), batch.num_rows, [None])
        return pa.RecordBatch.from_struct_array(rows).replace_schema_metadata(schema.metadata)
    columns: Iterable[Any] = zip(batch.itercolumns(), schema.types, strict=True)
    return pa.RecordBatch.from_arrays([_to_pyarrow(column, type) for column, type in columns], schema=schema)


def record_batch_to_pyarrow(batch: RecordBatch) -> Any:
    """The ``pyarrow.RecordBatch`` over the buffers of a batch; copies nothing."""
    return _batch_to(batch, schema_to_pyarrow(batch.schema))


def table_to_pyarrow(table: Table) -> Any:
    """The ``pyarrow.Table`` over the buffers of a table, one chunk of each column for each batch; copies nothing."""
    schema = schema_to_pyarrow(table.schema)
    return partner().Table.from_batches([_batch_to(batch, schema) for batch in table.batches], schema)
