# SPDX-License-Identifier: Apache-2.0
"""Encoding of record batches ("RecordBatch message"), driven by the buffer listing.

A payload holds the metadata and references to the body's buffers, so its size is known before anything is copied;
writing it copies each byte once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from shmarrow.buffer import ALIGNMENT, EMPTY, PADDING, Bytes
from shmarrow.columns import RecordBatch
from shmarrow.errors import InvalidType, Unsupported
from shmarrow.ipc.compression import CODECS
from shmarrow.ipc.flatbuffers.tables import ENUMS
from shmarrow.ipc.message.encode import Payload, PlannedBody, batch_message
from shmarrow.ipc.options import IpcWriteOptions
from shmarrow.layout.listing import LISTING, swapped, swapped_views, walk
from shmarrow.layout.parts import take_apart
from shmarrow.layout.primitive import PrimitiveArray
from shmarrow.types import Metadata, Schema
from shmarrow.types.base import names_other_values
from shmarrow.types.schema import difference
from shmarrow.types.unify import same_values

Locate: TypeAlias = Callable[[Bytes], int | None]
"""Says where a buffer lies that is not written, as an offset beyond the body's own bytes; None for one that is."""


def encode_batch(
    columns: Sequence[Any],
    num_rows: int,
    options: IpcWriteOptions,
    metadata: Metadata | None = None,
    start: int = 0,
    locate: Locate | None = None,
    dictionary: tuple[int, bool] | None = None,
) -> Payload:
    """Encode a RecordBatch message, or a DictionaryBatch of an id that is a delta or not, without copying the body."""
    body = plan_body(columns, options, locate)
    message = batch_message(num_rows, body, metadata, options, start, dictionary)
    return Payload(message, body.pieces, body.size)


def plan_body(columns: Sequence[Any], options: IpcWriteOptions, locate: Locate | None) -> PlannedBody:
    """Lay out the body of a batch or a dictionary."""
    nodes: list[int] = []
    buffers: list[Bytes] = []
    starts: list[int] = []
    variadic: list[int] = []
    swap = options.endianness == "big"
    for column in columns:
        starts.append(len(buffers))
        if column.__class__ is PrimitiveArray and not (swap or column._null_count or column._offset):
            data: Any = column._buffers[1]
            if data.size == column._length * column._type.storage.itemsize:  # nothing to trim
                nodes += (column._length, 0)
                buffers += (EMPTY, data)
                continue
        for part in take_apart([column], trim=True):
            _add(part, nodes, buffers, variadic, options)
    codec = None
    if options.compression is not None:
        from shmarrow.ipc.batch import codecs

        buffers = codecs.compress(buffers, starts, options)
        codec = ENUMS["CompressionType"][CODECS[options.compression].member]
    places: list[int] = []
    pieces: list[Any] = []
    end = 0
    for data in buffers:
        size = len(data)
        if not size:
            places += (end, 0)
            continue
        if locate is not None and (elsewhere := locate(data)) is not None:
            places += (elsewhere, size)
            continue
        places += (end, size)
        pieces.append(data)
        gap = -size % ALIGNMENT
        if gap:
            pieces.append(PADDING[:gap])
        end += size + gap
    return PlannedBody(nodes, places, variadic, codec, pieces, end)


def _add(part: Any, nodes: list[int], buffers: list[Bytes], variadic: list[int], options: IpcWriteOptions) -> None:
    """Append the node and the buffers of a trimmed array."""
    type, null_count = part._type, part.null_count
    nodes += (part._length, null_count)
    layout = LISTING[type.layout]
    if options.metadata_version == "V4" and layout.v4_validity:
        buffers.append(EMPTY)
    own = [EMPTY if data is None else data for data in part._buffers]
    if options.endianness == "big":
        for i, (spec, data) in enumerate(zip(layout.buffers, own, strict=False)):
            own[i] = swapped_views(data, True) if spec.role == "views" else swapped(spec, type, data)
    if layout.has_validity and not null_count:
        own[0] = EMPTY
    buffers += own
    if layout.variadic:
        variadic.append(len(own) - len(layout.buffers))


def dictionaries_of(columns: Sequence[Any]) -> list[Any]:
    """All dictionaries of a batch in id order: a field's own, then those nested in its values.

    Every dictionary-encoded field has its own id.
    """
    found: list[Any] = []
    others = [column for column in columns if column.__class__ is not PrimitiveArray]
    for array in others and walk(others, _below):
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
    return values._children


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
    if batch._schema.equals(schema):
        return batch
    found = batch.schema
    if adapt and found.names == schema.names:
        pairs = list(zip(found, schema, strict=True))
        differ = [not same_values(own.type, its.type) or names_other_values(own, its) for own, its in pairs]
        if not any(differ):
            return batch.cast(schema)
        # The error names what differs, not what would be cast.
        found = Schema([own if other else its for (own, its), other in zip(pairs, differ, strict=True)])
    raise InvalidType(f"the batch does not fit the writer's schema: {difference(found, schema)}")
