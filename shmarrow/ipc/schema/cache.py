"""Cache of decoded schemas, keyed by their bytes.

Invariants:

* a schema is parsed in place and not cached when first seen; it is copied and cached the second time;
* cached schemas are immutable and bounded in memory, including fields parsed lazily; evicted in LRU order;
* the cache is thread-safe, and stays usable after a fork.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from functools import partial

import numpy as np

from shmarrow.buffer import U1, Bytes
from shmarrow.errors import InvalidData, Limits
from shmarrow.ipc.flatbuffers.reader import FlatBuffer, Reader
from shmarrow.ipc.message.decode import read_key_values
from shmarrow.ipc.schema.lazy import LazySchema, ignore_growth, lazy_schema
from shmarrow.state_machine import fork_safe_lock
from shmarrow.types import Schema, generation

CACHE_BYTES = 64 << 20
"""Maximum memory of a process's cached schemas, in bytes."""
_ENTRY_BYTES, _COLUMN_BYTES = 4096, 64
_MOST_SEEN = 65536


class _Entry:
    """A schema, its bytes, and their memory."""

    __slots__ = ("data", "key", "schema", "size")

    def __init__(self, key: Hashable, data: bytearray, schema: Schema) -> None:
        self.key = key
        self.data = data
        self.schema = schema
        self.size = len(data) + _ENTRY_BYTES + _COLUMN_BYTES * len(schema)


class SchemaCache:
    """Schemas by a (not necessarily unique) key and their bytes.

    Parameters
    ----------
    capacity : int
        Maximum memory in bytes, by a conservative estimate.

    Notes
    -----
    Thread safety: may be shared. The lock is re-entrant, as freeing memory may run finalizers; a fork waits for it, so
    the child gets a consistent cache and a free lock.
    """

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._lock = fork_safe_lock()
        self._entries: dict[Hashable, tuple[_Entry, ...]] = {}  # tuples are replaced as a whole, for lock-free reads
        self._order: OrderedDict[_Entry, None] = OrderedDict()
        self._held = 0

    @property
    def held(self) -> int:
        """Memory of the cached schemas in bytes."""
        return self._held

    def __len__(self) -> int:
        return len(self._order)

    def find(self, key: Hashable, data: memoryview) -> Schema | None:
        """Return the schema with these bytes, if cached."""
        for entry in self._entries.get(key, ()):
            if entry.data == data:  # memcmp, as the left side is a bytearray
                with self._lock:
                    if entry in self._order:
                        self._order.move_to_end(entry)
                return entry.schema
        return None

    def add(self, key: Hashable, data: bytearray, schema: Schema, source: LazySchema) -> None:
        """Cache a schema; its source reports later growth."""
        entry = _Entry(key, data, schema)
        source.grown = partial(self._grow, entry)
        with self._lock:
            self._order[entry] = None
            self._entries[key] = (*self._entries.get(key, ()), entry)
            self._held += entry.size
        self._shrink()

    def _grow(self, entry: _Entry, size: int) -> None:
        with self._lock:
            if entry not in self._order:
                return
            entry.size += size
            self._held += size
        if self._held > self._capacity:
            self._shrink()

    def _shrink(self) -> None:
        """Evict least recently used schemas down to the capacity; their memory is freed after the lock is released."""
        with self._lock:
            dropped = self._evict()
        for entry in dropped:  # break the reference cycle
            entry.schema._source.grown = ignore_growth  # type: ignore[union-attr]

    def _evict(self) -> list[_Entry]:
        """Remove the entries beyond the capacity, with the lock held."""
        dropped = []
        while self._held > self._capacity and self._order:
            entry, _ = self._order.popitem(last=False)
            self._held -= entry.size
            left = tuple([other for other in self._entries[entry.key] if other is not entry])
            if left:
                self._entries[entry.key] = left
            else:
                del self._entries[entry.key]
            dropped.append(entry)
        return dropped


_CACHE = SchemaCache(CACHE_BYTES)
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
    cached = _CACHE.find(key, region.data)
    if cached is not None:
        return cached
    if mapped and (seen := hash(key)) not in _SEEN:
        if len(_SEEN) >= _MOST_SEEN:
            _SEEN.clear()
        _SEEN.add(seen)
        return _parse(data, position, 0, where, limits, True)[0]
    own = bytearray(region)
    copy = np.frombuffer(own, U1)
    copy.flags.writeable = False
    try:
        schema, source = _parse(copy, position, start, where, limits, False)
    except InvalidData:
        whole = data.copy()
        whole.flags.writeable = False
        return _parse(whole, position, 0, where, limits, False)[0]
    _CACHE.add(key, own, schema, source)
    return schema


def schema_region(schema: Schema) -> int:
    """The number of bytes at the end of a footer that a cached schema was read from; 0 if it is not cached."""
    source = LazySchema.of(schema)
    return 0 if source.grown is ignore_growth else source.size


def _parse(
    data: Bytes, position: int, start: int, where: str, limits: Limits, borrowed: bool
) -> tuple[Schema, LazySchema]:
    """Parse the Schema table at ``position``, for data that begins at ``start``; also returns the source."""
    table = Reader(data, where, limits).table("Schema", position - start)
    source = lazy_schema(table, borrowed)
    if start:
        source.check_reach()
    elif not borrowed:
        source.flat_starts()
    return Schema(metadata=read_key_values(table["custom_metadata"], table.reader), source=source), source
