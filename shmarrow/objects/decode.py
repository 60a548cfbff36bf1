# SPDX-License-Identifier: Apache-2.0
"""Decoding of stored objects, and their description without their values.

Invariants:

* only ``bytes``, ``bytearray`` and scalars are copied; everything else is a view that keeps the segment mapped;
* a mark is an untrusted hint, only used if it matches its object.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from shmarrow.buffer import Bytes
from shmarrow.columns import RecordBatch
from shmarrow.errors import DEFAULT_LIMITS, InvalidData, as_limits
from shmarrow.ipc.contents import contents, first_message, is_file
from shmarrow.ipc.file.footer import BUNDLE_KEY
from shmarrow.ipc.file.reader import FileBatches
from shmarrow.ipc.tensor.decode import DenseHeader, SparseHeader, read_header
from shmarrow.memory import Segment, Source, open_source
from shmarrow.objects.kinds import BYTES, KIND, NUMBERS, Stored
from shmarrow.types import DataType, DateType, Metadata, Schema, bool_, large_string

if TYPE_CHECKING:
    from shmarrow.tensor import SparseTensor

_TRUSTING = as_limits(DEFAULT_LIMITS, True)


def decode(segment: Segment, unchecked: bool = False) -> Stored:
    """Decode the value in a segment, zero-copy.

    Parameters
    ----------
    segment : Segment
        An object written by :func:`encode`, or any Arrow file, stream or tensor.
    unchecked : bool
        Export arrays to other libraries without checking their values first.

    Raises
    ------
    InvalidData
        If the bytes are not Arrow, or invalid.
    """
    data, name = segment.data, segment.name
    if not is_file(data):
        header, _, body, end = first_message(data, name, read_header)
        if isinstance(header, DenseHeader):
            return _of_tensor(data, name, header, body)
        if isinstance(header, SparseHeader):
            sparse: SparseTensor = header.over(data[body:end])
            return sparse
        from shmarrow.ipc.stream.reader import MappedStreamReader

        table = MappedStreamReader(open_source(segment), as_limits(DEFAULT_LIMITS, unchecked)).read_all()
        return _taken(table.schema, table.batches, first_metadata(table.batches))
    limits = _TRUSTING if unchecked is True else as_limits(DEFAULT_LIMITS, unchecked)
    file = FileBatches(Source(name, data, mapped=True), limits)
    metadata = file.footer.metadata
    if BUNDLE_KEY in metadata:
        from shmarrow.ipc.tensor.bundle import load_tensors

        return load_tensors(segment)
    batches: list[Any] = [file.batch(number) for number in range(file.count())]
    return _taken(file.schema, batches, metadata)


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
        fits = kind == "array" and len(batches) == 1 and len(schema) == 1
    return kind if fits else "table"


def _taken(schema: Schema, batches: Sequence[RecordBatch], metadata: Metadata) -> Stored:
    """The value encoded as these rows."""
    kind = kind_of(metadata, schema, batches)
    if kind == "record_batch":
        return batches[0]
    if kind in ("table", "chunked_array"):
        from shmarrow.columns import Table

        table = Table(schema, batches)
        return table if kind == "table" else table.column(0)
    return batches[0].column(0)


# --- tensors ----------------------------------------------------------------------------------------------------


def _of_tensor(data: Bytes, name: str, header: DenseHeader, start: int) -> Stored:
    """Decode a dense tensor whose body begins at ``start``."""
    make = _MAKE[tensor_kind(header)] if header.metadata else None
    if make is None:
        return header.over(data[start:])
    array = np.ndarray(header.shape, header.dtype, data, start + header.offset, header.strides)
    if header.element.ml_dtype is not None:
        array = array.view(header.element.numpy_dtype)
    elif isinstance(header.element.type, DateType):  # days have 64 bits in numpy, 32 in a tensor
        array = array.astype("M8[D]")
    try:
        value: Stored = make(array)
    except UnicodeDecodeError as error:
        text = f"{name}: the bytes of a str are not UTF-8: {error.reason} at {error.start}"
        raise InvalidData(text) from None
    return value


def tensor_kind(tensor: Any) -> str:
    """The kind in the metadata of a dense tensor or header if it matches; else tensor."""
    kind = _TENSORS.get(tensor.metadata.get(KIND), "tensor") if tensor.metadata else "tensor"
    if kind in BYTES:
        fits = tensor.dtype == np.uint8 and len(tensor.shape) == 1
    else:
        fits = kind not in NUMBERS or (tensor.shape == (1,) and tensor.dtype in _DTYPES[kind])
    return kind if fits else "tensor"


_MAKE: dict[str, Callable[[Any], Any] | None] = {
    "tensor": None,
    "ndarray": np.asarray,
    "memoryview": memoryview,
    **BYTES,
    "int": lambda array: array[0].item(),
    "float": lambda array: array[0].item(),
    "bool": lambda array: bool(array[0]),
}
"""Conversions from an ndarray, by kind."""
_DTYPES = {kind: [type.storage for type in types] for kind, types in NUMBERS.items()}
_TENSORS: dict[bytes | None, str] = {kind.encode(): kind for kind in _MAKE}


# --- descriptions -----------------------------------------------------------------------------------------------

_TYPES = {"str": large_string(), "bool": bool_(), "int": None, "float": None}
"""The types of single values; None if it is that of their elements."""


class Description(NamedTuple):
    """Description of an object, without its values.

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
        Of tensors, ndarrays and bytes; of bundles the number of tensors.
    """

    kind: str
    schema: Schema | None = None
    num_rows: int | None = None
    num_batches: int | None = None
    type: DataType | None = None
    shape: tuple[int, ...] | None = None


def describe(segment: Segment) -> Description:
    """Describe the object in a segment; errors are those of :func:`decode`."""
    _, found, content = contents(open_source(segment))
    if found == "bundle":
        return Description(found, shape=(len(content),))
    if found in ("tensor", "sparse tensor"):
        kind = tensor_kind(content) if found == "tensor" else "sparse_tensor"
        shape = None if kind in _TYPES else tuple(content.shape)
        return Description(kind, type=_TYPES.get(kind) or content.type, shape=shape)
    table = content.read_all()
    metadata = first_metadata(table.batches) if found == "stream" else content.metadata or {}
    kind = kind_of(metadata, table.schema, table.batches)
    if kind in ("record_batch", "table"):
        return Description(kind, table.schema, table.num_rows, len(table.batches))
    type = table.schema.field(0).type
    return Description(kind, None, table.num_rows, len(table.batches), type)
