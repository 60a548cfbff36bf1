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
import struct
from collections.abc import Iterable
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from shmarrow import types
from shmarrow.batch import RecordBatch
from shmarrow.buffer import Bytes
from shmarrow.chunked import ChunkedArray
from shmarrow.errors import InvalidArgument, InvalidType, Unsupported
from shmarrow.interchange.partner import needed
from shmarrow.layout.array import Array
from shmarrow.layout.listing import LISTING, walk_types
from shmarrow.layout.making import make_array
from shmarrow.layout.memory import EMPTY, read_only
from shmarrow.layout.validation import make_safe
from shmarrow.tables import Table
from shmarrow.types import DataType, Field, Metadata, Schema
from shmarrow.types.descriptors import ALL, parse_format, simple_types
from shmarrow.types.extension import NAME_KEY, ExtensionType, extension_type, storage_field


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


# --- types and fields -------------------------------------------------------------------------------------------

_capsule_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_capsule_pointer.restype = ctypes.c_void_p
_capsule_pointer.argtypes = (ctypes.py_object, ctypes.c_char_p)

_C_SCHEMA = struct.Struct("PPPqqPP")
_ORDERED, _KEYS_SORTED = 1, 4


class _CSchema(NamedTuple):
    """``ArrowSchema`` of the C data interface: addresses, flags, and the number of children."""

    format: int
    name: int
    metadata: int
    flags: int
    num_children: int
    children: int
    dictionary: int

    @classmethod
    def at(cls, address: int) -> _CSchema:
        return cls(*_C_SCHEMA.unpack(ctypes.string_at(address, _C_SCHEMA.size)))

    def child_addresses(self) -> tuple[int, ...]:
        pointers = struct.Struct(f"{self.num_children}P")
        return pointers.unpack(ctypes.string_at(self.children, pointers.size)) if self.num_children else ()

    def key_values(self) -> Metadata:
        """The metadata."""
        at = self.metadata

        def number() -> int:
            nonlocal at
            at += 4
            return ctypes.c_int32.from_address(at - 4).value

        def string() -> bytes:
            nonlocal at
            size = number()
            at += size
            return ctypes.string_at(at - size, size)

        return {string(): string() for _ in range(number())} if at else {}


@cache
def _simple_to() -> dict[DataType, Any]:
    """The types without children and with few parameters, ours to theirs."""
    made = {type: getattr(partner(), type.descriptor.call(type)[0], None) for type in simple_types().values()}
    return {type: make(*type.descriptor.call(type)[1]) for type, make in made.items() if make is not None}


@cache
def _simple_from() -> dict[Any, DataType]:
    return {theirs: ours for ours, theirs in _simple_to().items()}


def _type_from(type: Any, address: int) -> DataType:
    """The type that is pyarrow's ``type``, which pyarrow described at an address."""
    found = _CSchema.at(address)
    if isinstance(type, partner().BaseExtensionType):  # some of which have no hash
        return extension_type(_type_from(type.storage_type, address), found.key_values())[0]
    simple = _simple_from().get(type)
    if simple is not None:
        return simple
    children = [_field_from(type.field(i), child) for i, child in enumerate(found.child_addresses())]
    text = ctypes.string_at(found.format).decode()
    try:
        made: DataType = parse_format(text, children, keys_sorted=bool(found.flags & _KEYS_SORTED))
    except InvalidArgument:
        raise Unsupported(f"no shmarrow type for pyarrow's {type}") from None
    if found.dictionary:
        return types.DictionaryType(made, _type_from(type.value_type, found.dictionary), bool(found.flags & _ORDERED))
    return made


def _field_from(field: Any, address: int) -> Field:
    type, metadata = field.type, field.metadata
    if isinstance(type, partner().BaseExtensionType):
        # The types that pyarrow has in C++ give their parameters through the C data interface only.
        type, metadata = type.storage_type, {**(metadata or {}), **_CSchema.at(address).key_values()}
    logical, metadata = extension_type(_type_from(type, address), metadata)
    return Field(field.name, logical, field.nullable, metadata)


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
    capsule = type.__arrow_c_schema__()
    return _type_from(type, _capsule_pointer(capsule, b"arrow_schema"))


def field_from_pyarrow(field: Any) -> Field:
    """The field that is pyarrow's ``field``; metadata tell of an extension type that is not registered here."""
    _expect(field, "Field")
    capsule = field.__arrow_c_schema__()
    return _field_from(field, _capsule_pointer(capsule, b"arrow_schema"))


def type_to_pyarrow(type: DataType) -> Any:
    """The ``pyarrow.DataType`` that is ``type``; of an extension type that pyarrow does not know its storage type.

    pyarrow names the entries of a map, and the children of a run-end encoded type, itself, and has no nullable keys.

    Raises
    ------
    Unsupported
        If pyarrow has no such type.
    """
    found = _simple_to().get(type)
    if found is not None:
        return found
    if isinstance(type, ExtensionType):
        return field_to_pyarrow(Field("", type)).type
    name, arguments = type.descriptor.call(type)
    make = getattr(partner(), name, None)
    if make is None:
        raise Unsupported(f"pyarrow has no type for {type}")
    if type.layout == "map":
        arguments[0] = arguments[0].with_nullable(False)
    return make(*[_argument(argument) for argument in arguments])


def _argument(value: Any) -> Any:
    """An argument of a factory, with what is ours in it as pyarrow's."""
    if isinstance(value, tuple):
        return [_argument(item) for item in value]
    if isinstance(value, Field):
        return field_to_pyarrow(value)
    return type_to_pyarrow(value) if isinstance(value, DataType) else value


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
    capsule = schema.__arrow_c_schema__()
    addresses = _CSchema.at(_capsule_pointer(capsule, b"arrow_schema")).child_addresses()
    fields = [_field_from(field, address) for field, address in zip(schema, addresses, strict=True)]
    return Schema(fields, schema.metadata)


def schema_to_pyarrow(schema: Schema) -> Any:
    """The ``pyarrow.Schema`` that is ``schema``, with the metadata of each level."""
    return partner().schema([field_to_pyarrow(field) for field in schema], schema.metadata)


# --- arrays -----------------------------------------------------------------------------------------------------

Dictionaries = dict[tuple[Any, ...], Array]
"""Dictionaries met already, by type, length, offset and addresses: what pyarrow shares between chunks stays shared."""

_NO_VALIDITY = {layout for layout, row in LISTING.items() if not row.has_validity}
"""Layouts without validity, where pyarrow keeps the place of its buffer."""


def _children_of(array: Any, type: DataType) -> list[Any]:
    """The children of a pyarrow array."""
    names = type.descriptor.children
    if names == ALL:
        return [array.field(i) for i in range(len(type.fields))]
    return [getattr(array, name if hasattr(array, name) else "values") for name in names]


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
    rows, variadic, *_ = LISTING[layout]
    first = layout in _NO_VALIDITY
    theirs = array.buffers()
    theirs = theirs[first:] if variadic else theirs[first : first + len(rows)]
    buffers = [None if buffer is None else view_of(buffer) for buffer in theirs]
    if not first:
        buffers[1:] = [EMPTY if data is None else data for data in buffers[1:]]
    if layout in ("binary", "large_binary") and not len(array):
        _, offsets, data = buffers
        if offsets is not None and offsets.any() and not (data is not None and len(data)):
            buffers[1] = read_only(np.zeros(len(offsets), np.uint8))  # they lead into data that pyarrow has left out
    nulls = -1 if buffers and not first and buffers[0] is not None else 0
    children = [
        _from_pyarrow(child, field.type, known)
        for child, field in zip(_children_of(array, type), type.fields, strict=True)
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
    return any(each.layout == "dictionary" for each in walk_types(type))


def array_to_pyarrow(array: Array) -> Any:
    """The ``pyarrow.Array`` over the buffers of an array; copies nothing.

    Raises
    ------
    InvalidData
        If the array breaks the format's rules in a way that leads pyarrow out of its buffers: its structure, offsets,
        views, indices, type ids, run ends, UTF-8. Ranges of values are not looked at.
    Unsupported
        If pyarrow has no such type.
    """
    return _to_pyarrow(array, type_to_pyarrow(array.type))


def _to_pyarrow(array: Array, type: Any) -> Any:
    return _hand_over(make_safe(array), type)


def _hand_over(array: Array, type: Any) -> Any:
    pa = partner()
    if isinstance(type, pa.BaseExtensionType):
        return type.wrap_array(_hand_over(array, type.storage_type))
    layout = array.type.layout
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
