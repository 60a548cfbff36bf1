"""Encoding of record batches ("RecordBatch message"), driven by the buffer listing.

A payload holds the metadata and references to the body's buffers, so its size is known before anything is copied;
writing it copies each byte once.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain, compress
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from shmarrow.batch import RecordBatch
from shmarrow.buffer import ALIGNMENT, EMPTY, PADDING, Bytes
from shmarrow.errors import InvalidType, Unsupported
from shmarrow.ipc.compression import CODECS
from shmarrow.ipc.flatbuffers.tables import ENUMS
from shmarrow.ipc.message.encode import batch_message
from shmarrow.ipc.options import IpcWriteOptions
from shmarrow.layout.listing import LISTING, swapped, swapped_views, walk
from shmarrow.layout.primitive import PrimitiveArray
from shmarrow.types import Metadata, Schema
from shmarrow.types.schema import difference
from shmarrow.types.unify import same_values

if TYPE_CHECKING:
    import numpy.typing as npt


class IpcPayload(NamedTuple):
    """An encoded message: its framed metadata, and the buffers of its body with their padding."""

    metadata: bytes
    pieces: list[Any]
    body_length: int

    @property
    def size(self) -> int:
        """Size of the message in bytes."""
        return len(self.metadata) + self.body_length


def encode_batch(
    batch: RecordBatch, options: IpcWriteOptions, metadata: Metadata | None = None, start: int = 0
) -> IpcPayload:
    """Encode a RecordBatch message without copying the body."""
    values, pieces, size = _plan_body(batch.columns, batch.num_rows, options)
    return IpcPayload(batch_message(values, size, metadata, options, start), pieces, size)


def encode_dictionary(id: int, values: Any, delta: bool, options: IpcWriteOptions, start: int = 0) -> IpcPayload:
    """Encode a DictionaryBatch message."""
    data, pieces, size = _plan_body([values], len(values), options)
    return IpcPayload(batch_message(data, size, None, options, start, (id, delta)), pieces, size)


def _plan_body(columns: Sequence[Any], length: int, options: IpcWriteOptions) -> tuple[dict[str, Any], list[Any], int]:
    """The values of a RecordBatch table, the body's buffers with padding, and the body's size."""
    values: dict[str, Any] = {"length": length}
    flat = _flat_data(columns, length, options) if len(columns) > _FEW else None
    if flat is None:
        nodes: list[int] = []
        buffers: list[Bytes] = []
        variadic: list[int] = []
        swap = options.endianness == "big"
        for column in columns:
            if column.__class__ is PrimitiveArray and not (swap or column._null_count or column._offset):
                data: Any = column._buffers[1]
                if data.size == column._length * column._type.storage.itemsize:  # nothing to trim
                    nodes += (column._length, 0)
                    buffers += (EMPTY, data)
                    continue
            _flatten(column, nodes, buffers, variadic, options)
        values["nodes"] = np.array(nodes, "<i8").view(_NODE)
        values["variadicBufferCounts"] = np.array(variadic, "<i8") if variadic else None
        if options.compression is not None:
            from shmarrow.ipc.batch.codecs import compress as compress_buffers

            buffers = compress_buffers(buffers, options)
            values["compression"] = {"codec": ENUMS["CompressionType"][CODECS[options.compression].member]}
        if len(buffers) <= 4 * _FEW:
            return values, *_lay_out(buffers, values, options.alignment)
        sizes = np.fromiter(map(len, buffers), np.int64, len(buffers))
        filled = list(compress(buffers, (sizes > 0).tolist()))
    else:  # for each column no validity bitmap, and the values
        values["nodes"] = np.array([(length, 0)], _NODE).repeat(len(columns))
        filled, data_sizes = flat
        sizes = np.zeros(2 * len(filled), np.int64)
        sizes[1::2] = data_sizes
    room = (sizes + (options.alignment - 1)) & -options.alignment
    table = np.empty((len(sizes), 2), "<i8")
    table[:, 0] = np.cumsum(room) - room
    table[:, 1] = sizes
    values["buffers"] = table.reshape(-1).view(_BUFFER)
    gaps = (room - sizes)[sizes > 0].tolist()
    padding = {gap: bytes(gap) for gap in set(gaps)}
    pieces: list[Any] = list(chain.from_iterable(zip(filled, map(padding.__getitem__, gaps), strict=True)))
    return values, [piece for piece in pieces if len(piece)] if 0 in padding else pieces, int(room.sum())


def _lay_out(buffers: list[Bytes], values: dict[str, Any], alignment: int) -> tuple[list[Any], int]:
    """Lay out a body of few buffers; many are laid out with array operations."""
    rows: list[int] = []
    pieces: list[Any] = []
    end = 0
    for data in buffers:
        size = len(data)
        rows += (end, size)
        if size:
            pieces.append(data)
            gap = -size & (alignment - 1)
            if gap:
                pieces.append(PADDING[:gap] if gap <= ALIGNMENT else bytes(gap))
            end += size + gap
    values["buffers"] = np.array(rows, "<i8").view(_BUFFER)
    return pieces, end


def _flat_data(
    columns: Sequence[Any], length: int, options: IpcWriteOptions
) -> tuple[list[Bytes], npt.NDArray[np.int64]] | None:
    """The values buffer and size of each column, if all are primitive, without nulls, unsliced and trimmed.

    Wide batches are mostly of this form and are written with a few array operations.
    """
    if not length or options.endianness != "little" or options.compression is not None:
        return None
    if set(map(type, columns)) != {PrimitiveArray} or {c._null_count or c._offset for c in columns} != {0}:
        return None
    types = [column._type for column in columns]
    data = [column._buffers[1] for column in columns]
    sizes = np.fromiter([each.size for each in data], np.int64, len(data))
    distinct = dict(zip(map(id, types), types, strict=True))
    needed = {key: length * type.storage.itemsize for key, type in distinct.items()}
    exact: Any = next(iter(needed.values()))
    if len(set(needed.values())) > 1:
        exact = np.fromiter(map(needed.__getitem__, map(id, types)), np.int64, len(types))
    return (data, sizes) if sizes.all() and (sizes == exact).all() else None


_FEW = 32
"""Up to this many columns are written faster one by one."""
_NODE = np.dtype([("length", "<i8"), ("null_count", "<i8")])
_BUFFER = np.dtype([("offset", "<i8"), ("length", "<i8")])


def _flatten(array: Any, nodes: list[int], buffers: list[Bytes], variadic: list[int], options: IpcWriteOptions) -> None:
    """Append an array's node and trimmed buffers, then its children's."""
    kept = array.trim()
    type = kept._type
    null_count = kept.null_count
    nodes.append(kept._length)
    nodes.append(null_count)
    layout = LISTING[type.layout]
    if options.metadata_version == "V4" and layout.v4_validity:
        buffers.append(EMPTY)
    own = kept._buffers
    if options.endianness == "big":
        own = [
            data if data is None else swapped_views(data, True) if row.role == "views" else swapped(row, type, data)
            for row, data in zip(layout.buffers, own, strict=False)
        ] + own[len(layout.buffers) :]
    if layout.has_validity and not null_count:
        own = [EMPTY, *own[1:]]
    for data in own:
        buffers.append(EMPTY if data is None else data)
    if layout.variadic:
        variadic.append(len(own) - len(layout.buffers))
    for child in kept._children:
        _flatten(child, nodes, buffers, variadic, options)


def dictionaries_of(columns: Sequence[Any]) -> list[Any]:
    """All dictionaries of a batch in id order: a field's own, then those nested in its values.

    Every dictionary-encoded field has its own id.
    """
    found: list[Any] = []
    for array in walk([column for column in columns if column.__class__ is not PrimitiveArray], _below):
        values = array._dictionary
        if values is None:
            continue
        if values._dictionary is not None:
            raise Unsupported(
                f"{array.type}: Arrow messages cannot hold a dictionary "
                "whose values are themselves dictionary-encoded; decode one of them"
            )
        found.append(values)
    return found


def _below(array: Any) -> Sequence[Any]:
    """The children of an array, or of its dictionary's values."""
    values = array if array._dictionary is None else array._dictionary
    return values._children  # type: ignore[no-any-return]


def in_schema(batch: RecordBatch, schema: Schema, adapt: bool) -> RecordBatch:
    """Return the batch with the fields of the writer's schema.

    Parameters
    ----------
    batch : RecordBatch
        The batch to write.
    schema : Schema
        The writer's schema.
    adapt : bool
        Whether to cast string, binary and list columns of another layout (for batches of libraries that choose the
        layout), and nullable fields without nulls.

    Raises
    ------
    InvalidType
        If the fields differ.
    InvalidData
        If a non-nullable field has nulls, or the data exceeds 32-bit offsets.
    """
    if batch.schema.equals(schema):
        return batch
    if adapt and batch.schema.names == schema.names and all(map(same_values, batch.schema.types, schema.types)):
        return batch.cast(schema)
    raise InvalidType(f"the batch does not fit the writer's schema: {difference(batch.schema, schema)}")
