"""Cache of decoded schemas, keyed by their bytes.

Invariants:

* a schema is parsed in place and not cached when first seen; it is copied and cached the second time;
* cached schemas are immutable, and bounded in memory by their bytes: parsed fields take at most a multiple of these,
  see :mod:`~shmarrow.ipc.schema.lazy`. All of them are dropped when there are too many;
* the cache changes by single steps, so threads may share it, and it stays usable after a fork.
"""

from __future__ import annotations

from collections.abc import Hashable

import numpy as np

from shmarrow.buffer import U1, Bytes
from shmarrow.errors import InvalidData, Limits
from shmarrow.ipc.flatbuffers.reader import FlatBuffer, Reader
from shmarrow.ipc.message.decode import read_key_values
from shmarrow.ipc.schema.lazy import LazySchema, lazy_schema
from shmarrow.types import Schema, generation

CACHE_BYTES = 4 << 20
"""Maximum size of a process's cached schemas, in bytes; once parsed, all fields take up to 32 times as much."""
MOST_CACHED = 1024
_MOST_SEEN = 65536
_CACHE: dict[Hashable, tuple[bytearray, Schema]] = {}
_SEEN: set[int] = set()


def read_schema(
    data: Bytes, position: int, where: str, limits: Limits, mapped: bool = False, footer: bool = False
) -> Schema:
    """Read the schema in a Schema table; equal bytes share one object.

    FlatBuffers are built back to front, so all that a Schema table refers to is normally between the table and the end
    of the FlatBuffer; those bytes are the cache key. For other builders, the whole FlatBuffer is parsed each time.

    Parameters
    ----------
    data : uint8 ndarray
        The FlatBuffer.
    position : int
        Position of the Schema table.
    where : str
        Describes the bytes in error messages.
    limits : Limits
        Bounds on what is accepted.
    mapped : bool
        Whether the bytes are in a mapping. The schema then borrows them until cached or detached.
    footer : bool
        Whether the FlatBuffer is the footer of a file.

    Raises
    ------
    InvalidData
        If the bytes are invalid.
    Unsupported
        If the schema uses an unknown feature.
    """
    start = 0
    if footer:
        vtable, _ = FlatBuffer(data, where, limits).table_at("Schema", position)
        start = min(position, vtable) & ~7
    region = data[start:]
    key = (len(region), position - start, limits, generation(), region[:64].tobytes(), region[-64:].tobytes())
    cached = _CACHE.get(key)
    if cached is not None and cached[0] == region.data:  # memcmp, as the left side is a bytearray
        return cached[1]
    if mapped and (seen := hash(key)) not in _SEEN:
        if len(_SEEN) >= _MOST_SEEN:
            _SEEN.clear()
        _SEEN.add(seen)
        return _parse(data, position, 0, where, limits, True)
    own = bytearray(region)
    copy = np.frombuffer(own, U1)
    copy.flags.writeable = False
    try:
        schema = _parse(copy, position, start, where, limits, False)
    except InvalidData:
        whole = data.copy()
        whole.flags.writeable = False
        return _parse(whole, position, 0, where, limits, False)
    _add(key, own, schema)
    LazySchema.of(schema).cached = True
    return schema


def _add(key: Hashable, data: bytearray, schema: Schema) -> None:
    """Cache a schema instead of any other with this key."""
    held = sum([len(other) for other, _ in list(_CACHE.values())])
    if held + len(data) > CACHE_BYTES or len(_CACHE) >= MOST_CACHED:
        _CACHE.clear()
    if len(data) <= CACHE_BYTES:
        _CACHE[key] = data, schema


def schema_region(schema: Schema) -> int:
    """The number of bytes at the end of a footer that a schema was read from; 0 if it was not copied to be cached."""
    source = LazySchema.of(schema)
    return source.size if source.cached else 0


def _parse(data: Bytes, position: int, start: int, where: str, limits: Limits, borrowed: bool) -> Schema:
    """Parse the Schema table at ``position``, for data that begins at ``start``."""
    table = Reader(data, where, limits).table("Schema", position - start)
    source = lazy_schema(table, borrowed)
    if start:
        source.check_reach()
    elif not borrowed:
        source.flat_starts()
    return Schema(metadata=read_key_values(table["custom_metadata"], table.reader), source=source)
