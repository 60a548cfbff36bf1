"""Description of an object, without its values."""

from __future__ import annotations

from typing import NamedTuple

from shmarrow.errors import DEFAULT_LIMITS
from shmarrow.ipc.file.footer import MAGIC
from shmarrow.ipc.file.reader import RecordBatchFileReader
from shmarrow.ipc.message.decode import Message
from shmarrow.ipc.tensor import BUNDLE_KEY
from shmarrow.objects.decode import first_metadata, header_of, kind_of, read_first_tensor, read_stream, tensor_kind
from shmarrow.segment import Segment
from shmarrow.sources import open_source
from shmarrow.tensor import Tensor
from shmarrow.types import DataType, Schema, bool_, large_string

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
    if segment.data.data[: len(MAGIC)] != MAGIC:
        header = header_of(segment.data, segment.name)[0]
        if not isinstance(header, Message) or header.kind != "Schema":
            tensor = read_first_tensor(segment)
            kind = tensor_kind(tensor) if isinstance(tensor, Tensor) else "sparse_tensor"
            if kind in _TYPES:
                return Description(kind, type=_TYPES[kind] or tensor.type)
            return Description(kind, type=tensor.type, shape=tuple(tensor.shape))
        table = read_stream(segment, DEFAULT_LIMITS)
        metadata = first_metadata(table.batches)
    else:
        reader = RecordBatchFileReader(open_source(segment), DEFAULT_LIMITS)
        metadata = reader.metadata or {}
        if BUNDLE_KEY in metadata:
            return Description("bundle", shape=(reader.num_rows,))
        table = reader.read_all()
    kind = kind_of(metadata, table.schema, table.batches)
    if kind in ("record_batch", "table"):
        return Description(kind, table.schema, table.num_rows, len(table.batches))
    type = table.schema.field(0).type
    return Description(kind, None, table.num_rows, len(table.batches), type)
