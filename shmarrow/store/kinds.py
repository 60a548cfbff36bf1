"""What a store holds: for each kind of object how it is written, and how it is known and read again.

Every object is what Arrow has for it, so others can read it without this package: a file for batches, tables, arrays
and chunked arrays (a stream where batches have different dictionaries, which a file cannot hold), a Tensor or
SparseTensor message for tensors and ndarrays. Rules kept here:

* what is read is told by its bytes; which of two kinds that share a format it was, by the key ``shmarrow:kind`` in the
  metadata of the file, of a stream's first batch or of the tensor;
* what comes back has the values and the type of what was put, or it was refused;
* a row of :data:`KINDS` is all that a store knows of a kind.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator, Mapping
from os import PathLike
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np

from shmarrow import foreign
from shmarrow.batch import RecordBatch
from shmarrow.build import array
from shmarrow.chunked import ChunkedArray
from shmarrow.errors import DEFAULT_LIMITS, InvalidData, InvalidType, as_limits, full_name
from shmarrow.ipc.batch.encode import dictionaries_of, encode_batch
from shmarrow.ipc.file.footer import MAGIC
from shmarrow.ipc.file.reader import RecordBatchFileReader
from shmarrow.ipc.file.writer import RecordBatchFileWriter
from shmarrow.ipc.message.decode import read_message
from shmarrow.ipc.options import DEFAULT_OPTIONS, IpcWriteOptions
from shmarrow.ipc.schema.cache import read_schema
from shmarrow.ipc.schema.encode import encode_schema, schema_message
from shmarrow.ipc.stream.reader import MappedStreamReader
from shmarrow.ipc.stream.writer import RecordBatchStreamWriter
from shmarrow.ipc.tensor.bundle import BUNDLE_KEY, Bundle, load_tensors, save_tensors
from shmarrow.ipc.tensor.reader import read_tensor
from shmarrow.ipc.tensor.writer import get_tensor_size, write_tensor
from shmarrow.layout import Array
from shmarrow.layout.listing import walk
from shmarrow.segment import Segment, SegmentWriter
from shmarrow.sources import open_sink, open_source
from shmarrow.tables import RecordBatchReader, Table, table
from shmarrow.tensor import SparseTensor, Tensor
from shmarrow.tensor.convert import as_tensor, may_be_tensor
from shmarrow.tensor.element import is_column
from shmarrow.types import DataType, DateType, DictionaryType, ExtensionType, Field, Metadata, Schema

if TYPE_CHECKING:
    import numpy.typing as npt

_PREFIX = struct.Struct("<ii")

KIND = b"shmarrow:kind"
RECORD_BATCH = {KIND: b"record_batch"}
ARRAY = {KIND: b"array"}
CHUNKED_ARRAY = {KIND: b"chunked_array"}
NDARRAY = {KIND: b"ndarray"}
COLUMN = "values"
"""The name of the column that an array lies in."""

Options = IpcWriteOptions | None
Stored: TypeAlias = "RecordBatch | Table | Array | ChunkedArray | Tensor | SparseTensor | Bundle | npt.NDArray[Any]"
"""What a store gives back."""


class Description(NamedTuple):
    """What an object is, without its values.

    Attributes
    ----------
    kind : str
        ``"record_batch"``, ``"table"``, ``"array"``, ``"chunked_array"``, ``"tensor"``, ``"sparse_tensor"``,
        ``"ndarray"`` or ``"bundle"``.
    schema : Schema or None
        Of batches and tables.
    num_rows : int or None
        Of batches and tables; of arrays and chunked arrays their length.
    num_batches : int or None
        Of batches and tables; of arrays and chunked arrays the number of chunks.
    type : DataType or None
        Of arrays and chunked arrays, and of the elements of tensors and ndarrays.
    shape : tuple of int or None
        Of tensors and ndarrays; of bundles how many tensors they have.
    """

    kind: str
    schema: Schema | None = None
    num_rows: int | None = None
    num_batches: int | None = None
    type: DataType | None = None
    shape: tuple[int, ...] | None = None


class Kind(NamedTuple):
    """A kind of object.

    Attributes
    ----------
    name : str
        As it is called in a :class:`Description`.
    classes : tuple of type
        The classes of its objects.
    write : callable
        Writes an object and publishes it.
    size : callable
        How many bytes an object takes at least, without compression.
    """

    name: str
    classes: tuple[type, ...]
    write: Callable[[Any, SegmentWriter, Options], Any]
    size: Callable[[Any], int]


def _write_batch(
    batch: RecordBatch, writer: SegmentWriter, options: Options, metadata: Metadata = RECORD_BATCH
) -> None:
    with RecordBatchFileWriter(open_sink(writer), batch.schema, options, metadata) as file:
        file.write_batch(batch)


def _write_table(table: Table, writer: SegmentWriter, options: Options, metadata: Metadata | None = None) -> None:
    if _one_dictionary_each(table):
        with RecordBatchFileWriter(open_sink(writer), table.schema, options, metadata) as file:
            file.write_table(table)
        return
    with RecordBatchStreamWriter(open_sink(writer), table.schema, options) as stream:
        for batch in table.batches:
            stream.write_batch(batch, None if metadata is None else {**(batch.metadata or {}), **metadata})


def _write_array(values: Array, writer: SegmentWriter, options: Options) -> None:
    _write_batch(_batch_of(values), writer, options, ARRAY)


def _write_chunked_array(values: ChunkedArray, writer: SegmentWriter, options: Options) -> None:
    _write_table(_table_of(values), writer, options, CHUNKED_ARRAY)


def _batch_of(values: Array) -> RecordBatch:
    """An array as the only column of a batch."""
    return RecordBatch(Schema([Field(COLUMN, values.type)]), len(values), [values])


def _table_of(values: ChunkedArray) -> Table:
    """A chunked array as the only column of a table, which has a batch for each chunk."""
    return Table(Schema([Field(COLUMN, values.type)]), list(map(_batch_of, values.chunks)))


def _one_dictionary_each(table: Table) -> bool:
    """Whether all batches have the same dictionaries, as those of a file must."""
    if len(table.batches) < 2:
        return True
    first, *others = [dictionaries_of(batch.columns) for batch in table.batches]
    return all(one is other or one.equals(other) for found in others for one, other in zip(first, found, strict=True))


def _write_tensor(tensor: Tensor | SparseTensor, writer: SegmentWriter, options: Options) -> None:
    with writer:
        write_tensor(tensor, writer, options)


def _write_ndarray(values: Any, writer: SegmentWriter, options: Options) -> None:
    _write_tensor(Tensor.from_numpy(values, metadata=NDARRAY), writer, options)


def _write_bundle(tensors: Mapping[str, Any], writer: SegmentWriter, options: Options) -> None:
    metadata = tensors.metadata if isinstance(tensors, Bundle) else None
    save_tensors(tensors, writer, metadata, options)


def _batch_size(batch: RecordBatch) -> int:
    return encode_batch(batch, DEFAULT_OPTIONS).size


def _table_size(table: Table) -> int:
    return sum(map(_batch_size, table.batches))


def _bundle_size(tensors: Mapping[str, Any]) -> int:
    return sum([get_tensor_size(as_tensor(value)) for value in tensors.values()])


KINDS = (
    Kind("record_batch", (RecordBatch,), _write_batch, _batch_size),
    Kind("table", (Table,), _write_table, _table_size),
    Kind("array", (Array,), _write_array, lambda values: _batch_size(_batch_of(values))),
    Kind("chunked_array", (ChunkedArray,), _write_chunked_array, lambda values: _table_size(_table_of(values))),
    Kind("tensor", (Tensor,), _write_tensor, get_tensor_size),
    Kind("sparse_tensor", (SparseTensor,), _write_tensor, get_tensor_size),
    Kind("ndarray", (np.ndarray, np.generic), _write_ndarray, lambda values: int(values.nbytes)),
    Kind("bundle", (Mapping,), _write_bundle, _bundle_size),
)


def storable(value: Any) -> tuple[Any, Kind]:
    """A value as a store takes it, and its kind.

    Raises
    ------
    InvalidType
        If a store has no kind for it.
    """
    for kind in KINDS:
        if isinstance(value, kind.classes):
            _check(value)
            return value, kind
    name = full_name(value)
    if isinstance(value, (RecordBatchReader, RecordBatchFileReader)) or name == "pandas.DataFrame":
        return storable(table(value))
    if type(value).__name__ == "RecordBatch" and foreign.has_data(value):
        return storable(foreign.read("record_batch", value))
    step = "" if foreign.has_data(value) else foreign.next_step(value)
    if step:
        raise InvalidType(f"a store takes data, found {name}{step}")
    if is_column(value):
        _check_index(value)
        return storable(foreign.read("chunked_array", value) if name.endswith(".ChunkedArray") else array(value))
    if foreign.has_data(value):
        return storable(table(value))
    try:
        return storable(as_tensor(value))
    except InvalidType as error:
        reason = f": {error}" if may_be_tensor(value) else ""
        raise InvalidType(
            "a store takes a RecordBatch, a Table, an Array, a ChunkedArray, a tensor, an ndarray, or a mapping of "
            f"names to tensors, found {name}{reason}{_instead(value)}"
        ) from None


def _instead(value: Any) -> str:
    """What to do with a value that a store does not take, as the end of a message."""
    if isinstance(value, (str, PathLike)):
        return "; put_file(name, path) stores an Arrow file"
    if isinstance(value, (list, tuple)):
        rows = bool(value) and (isinstance(value[0], RecordBatch) or hasattr(value[0], "columns"))
        return "; put shmarrow.table(batches)" if rows else "; put shmarrow.array(values)"
    if hasattr(value, "read"):
        return "; put_file(name, path) stores an Arrow file"
    if isinstance(value, Iterator):
        return "; put shmarrow.table(batches), or shmarrow.array(values)"
    return "; put(name, value) takes the name first" if value is None else ""


def _check(value: Any) -> None:
    """Refuse what would come back with another type, and what is no tensor in a mapping."""
    if type(value) is dict and any(isinstance(each, (list, tuple, str)) for each in value.values()):
        raise InvalidType(
            "a store keeps a mapping as a bundle of tensors, found one with lists: put shmarrow.table(mapping) to keep "
            "columns, or ndarrays as values"
        )
    if isinstance(value, (Array, ChunkedArray)):
        _check_type(value.type)
    elif isinstance(value, np.ndarray) and (_has_no_tensor(value.dtype) or isinstance(value, np.ma.MaskedArray)):
        raise InvalidType(
            f"a store keeps an ndarray as a tensor, which has numbers and no nulls, found {full_name(value)} of "
            f"{value.dtype}: put shmarrow.array(values) instead"
        )


def _has_no_tensor(dtype: np.dtype[Any]) -> bool:
    """Whether elements of a dtype are none of a tensor's: objects, text, structs, and units of time such as hours."""
    kind = dtype.kind
    if kind in "Mm":
        return np.datetime_data(dtype) not in _UNITS[kind]
    return kind in "OSTU" or dtype.names is not None


_UNITS = {"m": [(unit, 1) for unit in ("s", "ms", "us", "ns")]}
_UNITS["M"] = [("D", 1), *_UNITS["m"]]


def _check_type(type: DataType) -> None:
    """Refuse types that a reader would take for others, as it knows extension types by no more than their names."""
    if not any(isinstance(each, ExtensionType) for each in walk([type], _parts_of)):
        return
    found = _as_read(Field(COLUMN, type)).type
    if found != type:
        raise InvalidType(
            f"an array of {type} would come back as one of {found}; "
            "register the type with shmarrow.register_extension_type, or put a batch, which keeps its name"
        )


def _parts_of(type: Any) -> list[DataType]:
    parts = [field.type for field in type.fields]
    if isinstance(type, DictionaryType):
        parts.append(type.value_type)
    return parts


def _as_read(field: Field) -> Field:
    """The field that a reader makes of the message of a field."""
    data = schema_message(encode_schema(Schema([field]), DEFAULT_OPTIONS), DEFAULT_OPTIONS)
    found = read_message(np.frombuffer(data, np.uint8), 0, "schema", DEFAULT_LIMITS)
    assert found is not None
    header = found[0].header
    return read_schema(header.reader.data, header.position, "schema", DEFAULT_LIMITS).field(0)


def _check_index(value: Any) -> None:
    """Refuse a pandas Series with an index that is more than positions."""
    index = getattr(value, "index", None)
    if hasattr(index, "equals") and not np.array_equal(np.asarray(index), np.arange(len(value))):
        raise InvalidType(
            "a store does not keep the index of a Series: put shmarrow.array(series), or a pyarrow.Table of both"
        )


# --- reading ----------------------------------------------------------------------------------------------------


def read(segment: Segment, trusted: bool = False) -> Stored:
    """The object that was put; its arrays lie in the segment. ``trusted`` ones are handed out without checks."""
    limits = as_limits(DEFAULT_LIMITS, trusted)
    known = _ARRAYS.get(_metadata_of(segment))
    if known is not None and known.size == segment.size:
        return np.ndarray(known.shape, known.dtype, segment.data, known.offset, known.strides)
    form = _form(segment)
    if form == "file":
        reader = RecordBatchFileReader(open_source(segment), limits)
        metadata = reader.metadata or {}
        if BUNDLE_KEY in metadata:
            return load_tensors(segment)
        return _taken(reader.read_all(), metadata)
    if form == "stream":
        table = MappedStreamReader(open_source(segment), limits).read_all()
        return _taken(table, _first_metadata(table.batches))
    tensor = read_tensor(segment)
    return _ndarray(segment, tensor) if _is_ndarray(tensor.metadata) else tensor


class _Mark(NamedTuple):
    """What the mark of an object says of a table: how many batches and columns it has, and what of it was put."""

    num_batches: int | None
    num_columns: int | None
    take: Callable[[Table], RecordBatch | Array | ChunkedArray]


_MARKS = {
    RECORD_BATCH[KIND]: _Mark(1, None, lambda table: table.batches[0]),
    ARRAY[KIND]: _Mark(1, 1, lambda table: table.batches[0].column(0)),
    CHUNKED_ARRAY[KIND]: _Mark(None, 1, lambda table: table.column(0)),
}


def _mark(metadata: Metadata, num_batches: int, num_columns: int) -> bytes:
    """The mark of an object, where it is one that fits; else that of a table."""
    found = metadata.get(KIND, b"")
    mark = _MARKS.get(found)
    fits = mark is not None and mark.num_batches in (None, num_batches) and mark.num_columns in (None, num_columns)
    return found if fits else b"table"


def _taken(table: Table, metadata: Metadata) -> RecordBatch | Table | Array | ChunkedArray:
    found = _mark(metadata, len(table.batches), table.num_columns)
    return _MARKS[found].take(table) if found in _MARKS else table


def _first_metadata(batches: Iterable[RecordBatch]) -> Metadata:
    """The metadata of the first of several batches, where a stream has its mark."""
    return next((batch.metadata for batch in batches), None) or {}


class _Known(NamedTuple):
    """Where the elements of an ndarray lie in an object whose metadata are known."""

    size: int
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    offset: int
    strides: tuple[int, ...]


_ARRAYS: dict[bytes, _Known] = {}
"""Messages of ndarrays by the bytes of their metadata: the same bytes mean the same, and are not parsed again."""
_MOST_ARRAYS = 1000
_LARGEST = 1 << 12


def _metadata_of(segment: Segment) -> bytes:
    """The metadata of the message that an object begins with; nothing where it begins with none, or a large one."""
    data = segment.data
    if segment.size < 8:
        return b""
    marker, size = _PREFIX.unpack_from(data.data)
    return data[: 8 + size].tobytes() if marker == -1 and 0 < size <= _LARGEST else b""


def _ndarray(segment: Segment, tensor: Any) -> Any:
    """An ndarray; where its elements lie is remembered for others like it."""
    array = tensor.to_numpy()
    if isinstance(tensor.type, DateType):  # numpy's days have 64 bits, those of a tensor 32
        return array.astype("M8[D]")
    metadata = _metadata_of(segment)
    offset = _address(array) - _address(segment.data)
    if metadata and 0 <= offset < segment.size and array.nbytes:
        if len(_ARRAYS) >= _MOST_ARRAYS:
            _ARRAYS.clear()
        _ARRAYS[metadata] = _Known(segment.size, array.shape, array.dtype, offset, array.strides)
    return array


def _address(array: Any) -> int:
    """Where the first element is; the attribute ``ctypes`` takes a hundred microseconds the first time."""
    place: int = array.__array_interface__["data"][0]
    return place


def describe(segment: Segment) -> Description:
    """What the object is."""
    form = _form(segment)
    if form in ("file", "stream"):
        reader: Any = (RecordBatchFileReader if form == "file" else MappedStreamReader)(
            open_source(segment), DEFAULT_LIMITS
        )
        batches = list(reader)
        rows = sum([batch.num_rows for batch in batches])
        metadata = (reader.metadata or {}) if form == "file" else _first_metadata(batches)
        if BUNDLE_KEY in metadata:
            return Description("bundle", shape=(rows,))
        kind = _mark(metadata, len(batches), len(reader.schema)).decode()
        if kind in ("array", "chunked_array"):
            return Description(kind, None, rows, len(batches), reader.schema.field(0).type)
        return Description(kind, reader.schema, rows, len(batches))
    tensor = read_tensor(segment)
    kind = "sparse_tensor" if isinstance(tensor, SparseTensor) else "tensor"
    return Description("ndarray" if _is_ndarray(tensor.metadata) else kind, type=tensor.type, shape=tuple(tensor.shape))


def _form(segment: Segment) -> str:
    """Which form of Arrow's the bytes are: ``file``, ``stream`` or ``tensor``."""
    data = segment.data
    if data[: len(MAGIC)].tobytes() == MAGIC:
        return "file"
    found = read_message(data, 0, segment.name, DEFAULT_LIMITS)
    if found is None:
        raise InvalidData(f"{segment.name}: expected a file, a stream or a tensor of Arrow's, found none of them")
    return "stream" if found[0].kind == "Schema" else "tensor"


def _is_ndarray(metadata: Metadata | None) -> bool:
    return (metadata or {}).get(KIND) == NDARRAY[KIND]
