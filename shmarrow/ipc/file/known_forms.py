"""Fast path for single-batch files whose footer equals a cached one except for the batch's location.

Invariants:

* footers and messages are keyed by all of their bytes, so checks of one hold for all, without trusting the file; the
  batch's location is checked each time;
* entries are immutable and bounded: small footers and messages, and the footers' schemas. A full cache is cleared.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

import numpy as np

from shmarrow.batch import RecordBatch
from shmarrow.buffer import U1, Bytes
from shmarrow.errors import Limits
from shmarrow.ipc.batch.header import Header
from shmarrow.ipc.batch.open import decode_metadata, open_batch
from shmarrow.ipc.file.footer import END, HEAD, MAGIC
from shmarrow.ipc.file.reader import RecordBatchFileReader
from shmarrow.ipc.schema.lazy import LazySchema
from shmarrow.types import Metadata, Schema
from shmarrow.types.extension import generation

_BLOCK = struct.Struct("<qi4xq")
_MOST, _MOST_PLACES, _LARGEST = 256, 7, 1 << 13


class _Form(NamedTuple):
    """The contents of a footer, except the batch's location."""

    schema: Schema
    metadata: Metadata | None


_Key = tuple[int, bytes, bytes, Limits, int]

_FORMS: dict[_Key, _Form] = {}
_PLACES: dict[int, tuple[int, ...]] = {}
"""Possible positions of the single batch's block, by footer size."""
_HEADERS: dict[bytes, Header] = {}


def find_batch(data: Bytes, name: str, limits: Limits) -> tuple[RecordBatch, Metadata | None] | None:
    """The batch of a file and the footer's metadata, if :func:`remember` cached a similar file.

    Parameters
    ----------
    data : uint8 ndarray
        All bytes of the candidate file.
    name : str
        Describes the file in error messages.
    limits : Limits
        Bounds on what is accepted.
    """
    view, size = data.data, len(data)
    if size < HEAD + END.size:
        return None
    length, tail = END.unpack_from(view, size - END.size)
    end = size - END.size - length
    places = _PLACES.get(length)
    if places is None or tail != MAGIC or end < HEAD or view[: len(MAGIC)] != MAGIC:
        return None
    footer = view[end : end + length].tobytes()
    for place in places:
        form = _FORMS.get((place, footer[:place], footer[place + _BLOCK.size :], limits, generation()))
        if form is not None:
            offset, metadata_length, body_length = _BLOCK.unpack_from(footer, place)
            body = offset + metadata_length
            stop = body + body_length
            if not (offset >= HEAD and 8 <= metadata_length <= _LARGEST and body_length >= 0 and stop <= end):
                return None
            header = _header(view[offset:body].tobytes(), name, limits)
            if header is None or header.body_length != body_length:
                return None
            return open_batch(header, data[body:stop], form.schema, {}, f"{name}: batch 0", limits), form.metadata
    return None


def _header(message: bytes, name: str, limits: Limits) -> Header | None:
    """The header of a plain batch message; None to take the slow path, which raises any errors."""
    known = _HEADERS.get(message)
    if known is None:
        found = decode_metadata(np.frombuffer(message, U1), f"{name}: batch 0", limits)
        if not isinstance(found, Header):
            return None
        known = found
        if len(_HEADERS) >= _MOST:
            _HEADERS.clear()
        _HEADERS[message] = known
    return known


def remember(reader: RecordBatchFileReader, limits: Limits) -> None:
    """Cache the footer of a single-batch file without dictionaries, unless it is large or its schema is not cached."""
    file = reader._opened()
    footer, source = file.footer, file.schema._source
    buffer = footer.reader
    data = buffer.data.tobytes() if buffer.size <= _LARGEST else b""
    if not data or len(file.batches) != 1 or len(file.blocks("dictionaries")):
        return
    if not isinstance(source, LazySchema) or source.borrowed:
        return
    place = buffer.follow(footer.offset_of("recordBatches"), "Footer", "recordBatches") + 4
    if len(_FORMS) >= _MOST:
        _FORMS.clear()
        _PLACES.clear()
    key = place, data[:place], data[place + _BLOCK.size :], limits, generation()
    _FORMS[key] = _Form(file.schema, reader.metadata)
    places = _PLACES.get(len(data), ())
    if place not in places:
        _PLACES[len(data)] = (*places[-_MOST_PLACES:], place)
