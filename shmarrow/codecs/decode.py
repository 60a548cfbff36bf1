"""Values from the bytes of a segment; what came from there is known by its bytes and its mark.

Rules kept here:

* nothing is copied but ``bytes``, ``bytearray`` and single values; all else are views, which keep the segment mapped;
* a mark is a hint from whoever wrote the object: it counts where it fits what it marks;
* what is remembered of objects is found by their own bytes, is immutable, and bounded.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from shmarrow.batch import RecordBatch
from shmarrow.codecs.kinds import BYTES, KIND, SCALARS, Stored
from shmarrow.errors import DEFAULT_LIMITS, InvalidData, as_limits
from shmarrow.ipc.file.footer import MAGIC
from shmarrow.ipc.file.known_forms import find_batch, remember
from shmarrow.ipc.file.reader import RecordBatchFileReader
from shmarrow.ipc.message.decode import read_message
from shmarrow.ipc.stream.reader import MappedStreamReader
from shmarrow.ipc.tensor.bundle import BUNDLE_KEY, load_tensors
from shmarrow.ipc.tensor.reader import read_tensor
from shmarrow.segment import Segment
from shmarrow.sources import open_source
from shmarrow.tables import Table
from shmarrow.tensor import SparseTensor, Tensor
from shmarrow.types import DataType, DateType, Metadata, Schema, uint8

if TYPE_CHECKING:
    import numpy.typing as npt

_TRUSTING = as_limits(DEFAULT_LIMITS, True)
_PREFIX = struct.Struct("<ii")


class Description(NamedTuple):
    """What an object is, without its values.

    Attributes
    ----------
    kind : str
        ``"record_batch"``, ``"table"``, ``"array"``, ``"chunked_array"``, ``"tensor"``, ``"sparse_tensor"``,
        ``"ndarray"``, ``"bundle"``, ``"bytes"``, ``"bytearray"``, ``"memoryview"``, ``"str"``, ``"int"``,
        ``"float"`` or ``"bool"``.
    schema : Schema or None
        Of batches and tables.
    num_rows : int or None
        Of batches and tables; of arrays and chunked arrays their length.
    num_batches : int or None
        Of batches and tables; of arrays and chunked arrays the number of chunks.
    type : DataType or None
        Of arrays, chunked arrays and single values; of the elements of tensors, ndarrays and bytes.
    shape : tuple of int or None
        Of tensors, ndarrays and bytes; of bundles how many tensors they have.
    """

    kind: str
    schema: Schema | None = None
    num_rows: int | None = None
    num_batches: int | None = None
    type: DataType | None = None
    shape: tuple[int, ...] | None = None


def decode(segment: Segment, trusted: bool = False) -> Stored:
    """The value whose bytes a segment has; its arrays lie there.

    Parameters
    ----------
    segment : Segment
        An object that :func:`encode` made, or any Arrow file, stream or tensor.
    trusted : bool
        Hand its arrays to other libraries without checking their values first.

    Raises
    ------
    InvalidData
        If the bytes are none of Arrow's, or break the format.
    """
    known = _ARRAYS.get(_metadata_of(segment))
    if known is not None and known.size == segment.size:
        return known.make(np.ndarray(known.shape, known.dtype, segment.data, known.offset, known.strides))
    limits = _TRUSTING if trusted is True else as_limits(DEFAULT_LIMITS, trusted)
    found = find_batch(segment.data, segment.name, limits)
    if found is not None:
        batch, metadata = found
        return _taken(batch.schema, [batch], metadata or {})
    form = _form(segment)
    if form == "tensor":
        return _tensor(segment)
    if form == "stream":
        table = MappedStreamReader(open_source(segment), limits).read_all()
        return _taken(table.schema, table.batches, _first_metadata(table.batches))
    reader = RecordBatchFileReader(open_source(segment), limits)
    metadata = reader.metadata or {}
    if BUNDLE_KEY in metadata:
        return load_tensors(segment)
    remember(reader, limits)
    return _taken(reader.schema, list(reader), metadata)


def describe(segment: Segment) -> Description:
    """What the object in a segment is; the errors are those of :func:`decode`."""
    form = _form(segment)
    if form == "tensor":
        tensor = read_tensor(segment)
        return Description(_tensor_kind(tensor), type=tensor.type, shape=tuple(tensor.shape))
    if form == "stream":
        table = MappedStreamReader(open_source(segment), DEFAULT_LIMITS).read_all()
        metadata = _first_metadata(table.batches)
    else:
        reader = RecordBatchFileReader(open_source(segment), DEFAULT_LIMITS)
        metadata = reader.metadata or {}
        if BUNDLE_KEY in metadata:
            return Description("bundle", shape=(reader.num_rows,))
        table = reader.read_all()
    kind = _kind(metadata, table.schema, table.batches)
    if kind in ("record_batch", "table"):
        return Description(kind, table.schema, table.num_rows, len(table.batches))
    type = table.schema.field(0).type
    if kind in SCALARS:
        return Description(kind, type=type)
    return Description(kind, None, table.num_rows, len(table.batches), type)


def _form(segment: Segment) -> str:
    """Which form of Arrow's the bytes are: ``file``, ``stream`` or ``tensor``."""
    data = segment.data
    if data[: len(MAGIC)].tobytes() == MAGIC:
        return "file"
    found = read_message(data, 0, segment.name, DEFAULT_LIMITS)
    if found is None:
        raise InvalidData(f"{segment.name}: expected a file, a stream or a tensor of Arrow's, found none of them")
    return "stream" if found[0].kind == "Schema" else "tensor"


# --- rows -------------------------------------------------------------------------------------------------------


def _first_metadata(batches: Sequence[RecordBatch]) -> Metadata:
    """The metadata of the first of several batches, where a stream has its mark."""
    return (batches[0].metadata if batches else None) or {}


def _kind(metadata: Metadata, schema: Schema, batches: Sequence[RecordBatch]) -> str:
    """The kind that the metadata say, where it fits; else that of a table."""
    kind = metadata.get(KIND, b"").decode("ascii", "replace")
    if kind == "record_batch":
        fits = len(batches) == 1
    elif kind == "chunked_array":
        fits = len(schema) == 1
    else:
        fits = (kind == "array" or kind in SCALARS) and len(batches) == 1 and len(schema) == 1
    if fits and kind in SCALARS:
        column = batches[0].column(0)
        fits = column.type in SCALARS[kind] and len(column) == 1 and not column.null_count
    return kind if fits else "table"


def _taken(schema: Schema, batches: Sequence[RecordBatch], metadata: Metadata) -> Stored:
    """What was encoded as these rows."""
    kind = _kind(metadata, schema, batches)
    if kind == "record_batch":
        return batches[0]
    if kind in ("table", "chunked_array"):
        table = Table(schema, batches)
        return table if kind == "table" else table.column(0)
    column: Any = batches[0].column(0)
    return column if kind == "array" else column.to_pylist()[0]  # type: ignore[no-any-return]


# --- tensors ----------------------------------------------------------------------------------------------------


def _tensor_kind(tensor: Tensor | SparseTensor) -> str:
    """The kind that the metadata say, where it fits; else that of a tensor."""
    if isinstance(tensor, SparseTensor):
        return "sparse_tensor"
    kind = (tensor.metadata or {}).get(KIND, b"").decode("ascii", "replace")
    is_bytes = tensor.type == _BYTE and tensor.ndim == 1 and tensor.ml_dtype is None
    return kind if kind in ("ndarray", "memoryview") or (kind in BYTES and is_bytes) else "tensor"


_BYTE = uint8()


def _tensor(segment: Segment) -> Stored:
    tensor: Any = read_tensor(segment)
    kind = _tensor_kind(tensor)
    if kind in ("tensor", "sparse_tensor"):
        return tensor  # type: ignore[no-any-return]
    array = tensor.to_numpy()
    if isinstance(tensor.type, DateType):  # numpy's days have 64 bits, those of a tensor 32
        return array.astype("M8[D]")  # type: ignore[no-any-return]
    _remember(segment, array, _MAKE[kind])
    made: Stored = _MAKE[kind](array)
    return made


def _as_it_is(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    return array


_MAKE: dict[str, Callable[[Any], Any]] = {"ndarray": _as_it_is, "memoryview": memoryview, **BYTES}
"""By the kinds of tensors that are marked, what makes the value of an ndarray."""


class _Known(NamedTuple):
    """Where the elements of an ndarray lie in an object whose metadata are known, and what is made of it."""

    size: int
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    offset: int
    strides: tuple[int, ...]
    make: Callable[[Any], Stored]


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


def _remember(segment: Segment, array: npt.NDArray[Any], make: Callable[[Any], Stored]) -> None:
    """Remember where the elements of an ndarray lie, for others like it."""
    metadata = _metadata_of(segment)
    offset = _address(array) - _address(segment.data)
    if metadata and 0 <= offset < segment.size and array.nbytes:
        if len(_ARRAYS) >= _MOST_ARRAYS:
            _ARRAYS.clear()
        _ARRAYS[metadata] = _Known(segment.size, array.shape, array.dtype, offset, array.strides, make)


def _address(array: Any) -> int:
    """Where the first element is; the attribute ``ctypes`` takes a hundred microseconds the first time."""
    place: int = array.__array_interface__["data"][0]
    return place
