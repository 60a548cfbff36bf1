"""Schemas that were read before, by their bytes.

Rules kept here:

* a schema that is seen once is read where it lies and not kept here; one that comes again is copied, and kept;
* what is kept is immutable to those who are given it, and bounded by the memory that it takes: the bytes, and the
  fields that were made of them since. What was not used for longest goes first;
* the cache may be used by many threads, and a forked child goes on with it.
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
from shmarrow.states import fork_safe_lock
from shmarrow.types import Schema
from shmarrow.types.extension import generation

CACHE_BYTES = 64 << 20
"""Memory that the cached schemas of a process take at most."""
_ENTRY_BYTES, _COLUMN_BYTES = 4096, 64
_MOST_SEEN = 65536


class _Entry:
    """A schema, its bytes, and the memory that both take."""

    __slots__ = ("data", "key", "schema", "size")

    def __init__(self, key: Hashable, data: bytearray, schema: Schema) -> None:
        self.key = key
        self.data = data
        self.schema = schema
        self.size = len(data) + _ENTRY_BYTES + _COLUMN_BYTES * len(schema)


class SchemaCache:
    """Schemas by a key that several may share, and by their bytes.

    Parameters
    ----------
    capacity : int
        Bytes of memory that all of them take at most, by a careful estimate.

    Notes
    -----
    Thread safety: may be shared. The lock is one that its owner may take again, as freeing memory may run anything; a
    fork waits for it, so that a child has a whole cache and a free lock.
    """

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._lock = fork_safe_lock()
        self._entries: dict[Hashable, tuple[_Entry, ...]] = {}  # tuples are replaced, so they can be read at any time
        self._order: OrderedDict[_Entry, None] = OrderedDict()
        self._held = 0

    @property
    def held(self) -> int:
        """Bytes of memory that the schemas take."""
        return self._held

    def __len__(self) -> int:
        return len(self._order)

    def find(self, key: Hashable, data: memoryview) -> Schema | None:
        """The schema with these bytes."""
        for entry in self._entries.get(key, ()):
            if entry.data == data:  # by memcmp, for a bytearray on the left
                with self._lock:
                    if entry in self._order:
                        self._order.move_to_end(entry)
                return entry.schema
        return None

    def add(self, key: Hashable, data: bytearray, schema: Schema, source: LazySchema) -> None:
        """Keep a schema; its source tells of the memory that it takes from now on."""
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
        """Drop what was not used for longest until the rest fits; its memory is freed when the lock is, too."""
        dropped = []
        with self._lock:
            while self._held > self._capacity and self._order:
                entry, _ = self._order.popitem(last=False)
                self._held -= entry.size
                left = tuple([other for other in self._entries[entry.key] if other is not entry])
                if left:
                    self._entries[entry.key] = left
                else:
                    del self._entries[entry.key]
                dropped.append(entry)
        for entry in dropped:  # which would hold itself, until the collector of cycles runs
            entry.schema.source.grown = ignore_growth  # type: ignore[union-attr]


_CACHE = SchemaCache(CACHE_BYTES)
_SEEN: set[int] = set()


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

    Raises
    ------
    InvalidData
        If the bytes break the format.
    Unsupported
        If the schema makes use of a feature that is not known.
    """
    start = 0
    if footer:
        vtable, _ = FlatBuffer(data, where, limits).table_at("Schema", position)
        start = min(position, vtable) & ~7
    region = data[start:]
    key = (len(region), position - start, limits, generation(), region[:64].tobytes(), region[-64:].tobytes())
    known = _CACHE.find(key, region.data)
    if known is not None:
        return known
    if mapped and (seen := hash(key)) not in _SEEN:
        if len(_SEEN) >= _MOST_SEEN:
            _SEEN.clear()
        _SEEN.add(seen)
        return _parse(data, position, 0, where, limits, True)[0]
    own = bytearray(region)
    kept = np.frombuffer(own, U1)
    kept.flags.writeable = False
    try:
        schema, source = _parse(kept, position, start, where, limits, False)
    except InvalidData:
        whole = data.copy()
        whole.flags.writeable = False
        return _parse(whole, position, 0, where, limits, False)[0]
    _CACHE.add(key, own, schema, source)
    return schema


def _parse(
    data: Bytes, position: int, start: int, where: str, limits: Limits, borrowed: bool
) -> tuple[Schema, LazySchema]:
    """The schema whose table is at ``position``, where ``data`` begins at ``start``, and its source."""
    table = Reader(data, where, limits).table("Schema", position - start)
    source = lazy_schema(table, borrowed)
    if start:
        source.check_reach()
    elif not borrowed:
        source.scan()
    return Schema(metadata=read_key_values(table["custom_metadata"], table.reader), source=source), source
