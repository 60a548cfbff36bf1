"""What a store holds: for each kind of object how it is written, and how it is known and read again.

Every object is what Arrow has for it, so others can read it without this package: a file for batches and tables (a
stream where a table's batches have different dictionaries, which a file cannot hold), a Tensor or SparseTensor message
for arrays. Rules kept here:

* what is read is told by its bytes; which of two kinds that share a format it was, by the key ``shmarrow:kind`` of its
  metadata;
* a row of :data:`KINDS` is all that a store knows of a kind.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from shmarrow.batch import RecordBatch
from shmarrow.errors import DEFAULT_LIMITS, InvalidData, InvalidType
from shmarrow.ipc.batch.encode import dictionaries_of, encode_batch
from shmarrow.ipc.file.footer import MAGIC
from shmarrow.ipc.file.reader import RecordBatchFileReader
from shmarrow.ipc.file.writer import RecordBatchFileWriter
from shmarrow.ipc.message.decode import read_message
from shmarrow.ipc.options import DEFAULT_OPTIONS, IpcWriteOptions
from shmarrow.ipc.stream.reader import MappedStreamReader
from shmarrow.ipc.stream.writer import RecordBatchStreamWriter
from shmarrow.ipc.tensor.bundle import BUNDLE_KEY, Bundle, load_tensors, save_tensors
from shmarrow.ipc.tensor.io import get_tensor_size, read_tensor, write_tensor
from shmarrow.segment import Segment, SegmentWriter
from shmarrow.sources import open_sink, open_source
from shmarrow.tables import Table
from shmarrow.tensor import SparseTensor, Tensor
from shmarrow.tensor.convert import as_tensor
from shmarrow.types import Metadata, Schema

_PREFIX = struct.Struct("<ii")

KIND = b"shmarrow:kind"
RECORD_BATCH = {KIND: b"record_batch"}
NDARRAY = {KIND: b"ndarray"}

Options = IpcWriteOptions | None


class Description(NamedTuple):
    """What an object is, without its values.

    Attributes
    ----------
    kind : str
        ``"record_batch"``, ``"table"``, ``"tensor"``, ``"sparse_tensor"``, ``"ndarray"`` or ``"bundle"``.
    schema : Schema or None
        Of batches and tables.
    num_rows : int or None
        Of batches and tables.
    num_batches : int or None
        Of batches and tables.
    type : DataType or None
        Of the elements of tensors and arrays.
    shape : tuple of int or None
        Of tensors and arrays; of bundles how many tensors they have.
    """

    kind: str
    schema: Schema | None = None
    num_rows: int | None = None
    num_batches: int | None = None
    type: Any = None
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


def _write_batch(batch: RecordBatch, writer: SegmentWriter, options: Options) -> None:
    with RecordBatchFileWriter(open_sink(writer), batch.schema, options, RECORD_BATCH) as file:
        file.write_batch(batch)


def _write_table(table: Table, writer: SegmentWriter, options: Options) -> None:
    form = RecordBatchFileWriter if _one_dictionary_each(table) else RecordBatchStreamWriter
    with form(open_sink(writer), table.schema, options) as file:
        file.write_table(table)


def _one_dictionary_each(table: Table) -> bool:
    """Whether all batches have the same dictionaries, as those of a file must."""
    if len(table.batches) < 2:
        return True
    first, *others = [dictionaries_of(batch.columns) for batch in table.batches]
    return all(one is other or one.equals(other) for found in others for one, other in zip(first, found, strict=True))


def _write_tensor(tensor: Tensor | SparseTensor, writer: SegmentWriter, options: Options) -> None:
    with writer:
        write_tensor(tensor, writer, options)


def _write_ndarray(array: Any, writer: SegmentWriter, options: Options) -> None:
    _write_tensor(Tensor.from_numpy(array, metadata=NDARRAY), writer, options)


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
    Kind("tensor", (Tensor,), _write_tensor, get_tensor_size),
    Kind("sparse_tensor", (SparseTensor,), _write_tensor, get_tensor_size),
    Kind("ndarray", (np.ndarray,), _write_ndarray, lambda array: int(array.nbytes)),
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
            return value, kind
    if type(value).__module__.partition(".")[0] == "pyarrow" and hasattr(value, "schema"):
        return storable((RecordBatch if hasattr(value, "__arrow_c_array__") else Table).from_pyarrow(value))
    if hasattr(value, "__arrow_c_stream__"):
        raise InvalidType(f"a {type(value).__name__} goes into a store as a pyarrow.Table: pyarrow.table(...)")
    try:
        return storable(as_tensor(value))
    except InvalidType:
        raise InvalidType(
            "a store takes a RecordBatch, a Table, a tensor, an ndarray, or a mapping of names to tensors, "
            f"found {type(value).__name__}"
        ) from None


# --- reading ----------------------------------------------------------------------------------------------------


def read(segment: Segment) -> Any:
    """The object that was put; its arrays lie in the segment."""
    known = _ARRAYS.get(_metadata_of(segment))
    if known is not None and known.size == segment.size:
        return np.ndarray(known.shape, known.dtype, segment.data, known.offset, known.strides)
    form = _form(segment)
    if form == "file":
        reader = RecordBatchFileReader(open_source(segment), DEFAULT_LIMITS)
        metadata = reader.metadata or {}
        if BUNDLE_KEY in metadata:
            return load_tensors(segment)
        return reader.get_batch(0) if _is_batch(reader, metadata) else reader.read_all()
    if form == "stream":
        return MappedStreamReader(open_source(segment), DEFAULT_LIMITS).read_all()
    tensor = read_tensor(segment)
    return _known_array(segment, tensor.to_numpy()) if _is_ndarray(tensor.metadata) else tensor


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


def _known_array(segment: Segment, array: Any) -> Any:
    """An ndarray, which is remembered for others like it."""
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
        rows = sum([batch.num_rows for batch in reader])
        metadata = (reader.metadata or {}) if form == "file" else {}
        if BUNDLE_KEY in metadata:
            return Description("bundle", shape=(rows,))
        kind = "record_batch" if _is_batch(reader, metadata) else "table"
        return Description(kind, reader.schema, rows, reader.num_record_batches)
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


def _is_batch(reader: RecordBatchFileReader, metadata: Metadata) -> bool:
    return reader.num_record_batches == 1 and metadata.get(KIND) == RECORD_BATCH[KIND]


def _is_ndarray(metadata: Metadata | None) -> bool:
    return (metadata or {}).get(KIND) == NDARRAY[KIND]
