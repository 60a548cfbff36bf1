"""Schemas that were read before, by their bytes.

Rules kept here:

* a schema that is seen once is read where it lies and not kept here; one that comes again is copied, and kept.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from shmarrow.buffer import U1, Bytes
from shmarrow.errors import InvalidData, Limits
from shmarrow.extension import generation
from shmarrow.ipc.flatbuffers.reader import Reader
from shmarrow.ipc.message.decode import read_key_values
from shmarrow.ipc.schema.fast_decode import SchemaHeader, schema_header
from shmarrow.ipc.schema.lazy import LazySchema, lazy_schema
from shmarrow.types import Schema

_BY_BYTES: dict[Any, list[tuple[bytearray, Schema]]] = {}
_SEEN: set[int] = set()
_CACHE_BYTES = 64 << 20
_MOST_SEEN = 65536
_cached_bytes = 0


def read_schema(
    data: Bytes, position: int, where: str, limits: Limits, mapped: bool = False, footer: bool = False
) -> Schema:
    """The schema in a Schema table; the same object for the same bytes.

    A footer has more before its schema. What a Schema table refers to lies between it and the end of the FlatBuffer
    when that was built as FlatBuffers are, from the back; then that run of bytes is the cache's key. Where a builder
    did otherwise, the whole FlatBuffer is parsed, each time anew.

    Parameters
    ----------
    data : uint8 ndarray
        The FlatBuffer.
    position : int
        Where the Schema table is.
    where : str
        What the bytes are, for error messages.
    limits : Limits
        Bounds on what is accepted.
    mapped : bool
        Whether the bytes lie in a mapping. The schema then borrows them, until it is seen a second time or kept.
    footer : bool
        Whether the FlatBuffer is the footer of a file.
    """
    global _cached_bytes
    header = schema_header(data.data, position, len(data))
    start = 0
    if footer:
        lowest = Reader(data, where, limits).table("Schema", position).lowest if header is None else header[0]
        start = lowest & ~7
    region = data[start:]
    key = (len(region), position - start, limits, generation(), region[:64].tobytes(), region[-64:].tobytes())
    for known, schema in _BY_BYTES.get(key, ()):
        if known == region.data:  # by memcmp, for a bytearray on the left
            return schema
    if mapped and (seen := hash(key)) not in _SEEN:
        if len(_SEEN) >= _MOST_SEEN:
            _SEEN.clear()
        _SEEN.add(seen)
        return _parse(data, position, 0, where, limits, header, True)
    own = bytearray(region)
    kept = np.frombuffer(own, U1)
    kept.flags.writeable = False
    try:
        schema = _parse(kept, position, start, where, limits, header, False)
    except InvalidData:
        whole = data.copy()
        whole.flags.writeable = False
        return _parse(whole, position, 0, where, limits, header, False)
    if _cached_bytes > _CACHE_BYTES:
        _BY_BYTES.clear()
        _cached_bytes = 0
    _cached_bytes += len(own)
    _BY_BYTES.setdefault(key, []).append((own, schema))
    return schema


def _parse(
    data: Bytes, position: int, start: int, where: str, limits: Limits, header: SchemaHeader | None, borrowed: bool
) -> Schema:
    """The schema whose table is at ``position``, where ``data`` begins at ``start``."""
    reader = Reader(data, where, limits)
    if header is not None:
        _, first, fields = header
        metadata, source = None, LazySchema(reader, limits, first - start, fields, borrowed=borrowed)
    else:
        table = reader.table("Schema", position - start)
        metadata, source = read_key_values(table["custom_metadata"]), lazy_schema(table, limits, borrowed)
    if start:
        source.check_reach()
    elif not borrowed:
        source.scan()
    return Schema(metadata=metadata, source=source)
