"""Decoding of stored objects.

Invariants:

* only ``bytes``, ``bytearray`` and scalars are copied; everything else is a view that keeps the segment mapped;
* a mark is an untrusted hint, only used if it matches its object;
* cached entries are keyed by their bytes, immutable and bounded.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from shmarrow.batch import RecordBatch
from shmarrow.buffer import Bytes
from shmarrow.errors import DEFAULT_LIMITS, InvalidData, Limits, as_limits
from shmarrow.ipc.batch.decode import open_batch
from shmarrow.ipc.file.footer import END, HEAD, MAGIC, footer_holes
from shmarrow.ipc.file.reader import RecordBatchFileReader
from shmarrow.ipc.message.decode import Message, message_at
from shmarrow.ipc.message.template import Known
from shmarrow.ipc.schema.lazy import LazySchema
from shmarrow.ipc.tensor import BUNDLE_KEY
from shmarrow.ipc.tensor.decode import DenseHeader, SparseHeader, read_header
from shmarrow.objects.kinds import BYTES, KIND, SCALARS, Stored
from shmarrow.segment import Segment
from shmarrow.segment.mappings import shared_of, version_of
from shmarrow.sources import open_source
from shmarrow.types import DateType, Metadata, Schema
from shmarrow.types.extension import generation

if TYPE_CHECKING:
    import numpy.typing as npt

    from shmarrow.tables import Table
    from shmarrow.tensor import SparseTensor, Tensor

_TRUSTING = as_limits(DEFAULT_LIMITS, True)


def decode(segment: Segment, trust: bool = False) -> Stored:
    """Decode the value in a segment, zero-copy.

    Parameters
    ----------
    segment : Segment
        An object written by :func:`encode`, or any Arrow file, stream or tensor.
    trust : bool
        Export arrays to other libraries without checking their values first.

    Raises
    ------
    InvalidData
        If the bytes are not Arrow, or invalid.
    """
    data = segment.data
    if data.data[: len(MAGIC)] != MAGIC:
        return _message(segment, trust)
    limits = _TRUSTING if trust is True else as_limits(DEFAULT_LIMITS, trust)
    found = _known_file(data, segment.name, limits)
    if found is not None:
        batch, metadata = found
        return _taken(batch.schema, [batch], metadata or {})
    reader = RecordBatchFileReader(open_source(segment), limits)
    metadata = reader.metadata or {}
    if BUNDLE_KEY in metadata:
        from shmarrow.ipc.tensor.bundle import load_tensors

        return load_tensors(segment)
    _remember(reader, limits)
    return _taken(reader.schema, list(reader), metadata)


# --- files of one batch -----------------------------------------------------------------------------------------

_FOOTERS = Known()
"""Schema and metadata of files without dictionaries, by all of their footer but where the batch is."""


def _known_file(data: Bytes, name: str, limits: Limits) -> tuple[RecordBatch, Metadata | None] | None:
    """The batch of a file and the footer's metadata, if the footer of a similar file was read before."""
    view, size = data.data, len(data)
    length, tail = END.unpack_from(view, size - END.size) if size >= HEAD + END.size else (0, b"")
    end = size - END.size - length
    if tail != MAGIC or length <= 0 or end < HEAD:
        return None
    found = _FOOTERS.find(view[end : end + length].tobytes(), (limits, generation()))
    if found is None:
        return None
    (schema, metadata), (offset, head, body) = found
    if not 0 <= head < 1 << 31:  # 32 bits, and padding that may be anything
        return None
    where = f"{name}: batch 0"
    located = message_at(data[:end], offset, where, limits, block=(head, body))
    assert located is not None
    body, shared = data[located.body : located.end], shared_of(data)
    body = body if shared is None else shared.body(body)
    return open_batch(located.message, body, schema, {}, where, limits, (version_of(data), 0)), metadata


def _remember(reader: RecordBatchFileReader, limits: Limits) -> None:
    """Keep the footer of a file of one batch without dictionaries, if its schema is cached."""
    file = reader._opened()
    source = file.schema._source
    one = len(file.batches) == 1 and not len(file.blocks("dictionaries"))
    if one and isinstance(source, LazySchema) and not source.borrowed:
        key, found = (limits, generation()), (file.schema, reader.metadata)
        _FOOTERS.add(file.footer.reader.data.tobytes(), footer_holes(file.footer), found, key)


# --- rows -------------------------------------------------------------------------------------------------------


def first_metadata(batches: Sequence[RecordBatch]) -> Metadata:
    """The metadata of the first batch, which holds a stream's mark."""
    return (batches[0].metadata if batches else None) or {}


def kind_of(metadata: Metadata, schema: Schema, batches: Sequence[RecordBatch]) -> str:
    """The kind in the metadata if it matches; else table."""
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
    """The value encoded as these rows."""
    kind = kind_of(metadata, schema, batches)
    if kind == "record_batch":
        return batches[0]
    if kind in ("table", "chunked_array"):
        from shmarrow.tables import Table

        table = Table(schema, batches)
        return table if kind == "table" else table.column(0)
    column: Any = batches[0].column(0)
    return column if kind == "array" else column.to_pylist()[0]


# --- messages ---------------------------------------------------------------------------------------------------


def header_of(segment: Segment) -> tuple[DenseHeader | SparseHeader | Message, int]:
    """The header of a segment's first message, and its body's offset."""
    found = message_at(segment.data, 0, segment.name, parse=read_header)
    if found is None:
        raise InvalidData(f"{segment.name}: expected an Arrow file, stream or tensor, found none of them")
    return found.message, found.body


def read_stream(segment: Segment, limits: Limits) -> Table:
    """Read all batches of the stream in a segment."""
    from shmarrow.ipc.stream.reader import MappedStreamReader

    return MappedStreamReader(open_source(segment), limits).read_all()


def read_first_tensor(segment: Segment) -> Tensor | SparseTensor:
    """Read the tensor in a segment of one message."""
    from shmarrow.ipc.tensor.reader import read_tensor

    return read_tensor(segment)


def _message(segment: Segment, trust: bool) -> Stored:
    """Decode a segment that begins with a message: a tensor, or a stream's schema."""
    header, start = header_of(segment)
    if isinstance(header, Message) and header.kind == "Schema":
        table = read_stream(segment, as_limits(DEFAULT_LIMITS, trust))
        return _taken(table.schema, table.batches, first_metadata(table.batches))
    return _of_tensor(segment, header, start) if isinstance(header, DenseHeader) else read_first_tensor(segment)


def _of_tensor(segment: Segment, header: DenseHeader, start: int) -> Stored:
    """Decode a dense tensor whose body begins at ``start``."""
    data = segment.data
    make = _MAKE[tensor_kind(header)] if header.metadata else None
    if make is None:
        return header.over(data[start:])
    array = np.ndarray(header.shape, header.dtype, data, start + header.offset, header.strides)
    if header.element.ml_dtype is not None:
        array = array.view(header.element.numpy_dtype)
    elif isinstance(header.element.type, DateType):  # days have 64 bits in numpy, 32 in a tensor
        array = array.astype("M8[D]")
    made: Stored = make(array)
    return made


def tensor_kind(tensor: Any) -> str:
    """The kind in the metadata of a dense tensor or header if it matches; else tensor."""
    kind = _TENSORS.get(tensor.metadata.get(KIND), "tensor") if tensor.metadata else "tensor"
    fits = kind not in BYTES or (tensor.dtype == np.uint8 and len(tensor.shape) == 1)
    return kind if fits else "tensor"


def _as_it_is(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    return array


_MAKE: dict[str, Callable[[Any], Any] | None] = {
    "tensor": None,
    "ndarray": _as_it_is,
    "memoryview": memoryview,
    **BYTES,
}
"""Conversions from an ndarray, by kind."""
_TENSORS: dict[bytes | None, str] = {kind.encode(): kind for kind in _MAKE}
