"""Cache of footer locations, to reopen files faster.

Invariants:

* files are identified by device, inode, size and ctime. That is valid only for files without write permission, as
  writes through a mapping may not update ctime, and not for files changed moments ago, as another change could leave
  the same ctime;
* every position was checked against a footer of the same size, so it stays in bounds even if the bytes do change;
* entries are immutable, few and small: schemas are owned by the schema cache.
"""

from __future__ import annotations

import time
import weakref
from collections.abc import Hashable
from typing import TYPE_CHECKING, NamedTuple

from shmarrow.errors import Limits
from shmarrow.ipc.flatbuffers.reader import Offsets
from shmarrow.ipc.schema.lazy import LazySchema
from shmarrow.sources.base import Source
from shmarrow.types import Schema
from shmarrow.types.extension import generation

if TYPE_CHECKING:
    Reference = weakref.ref[Schema]

_MOST = 1024
_SETTLED_NS, _SETTLED_SECONDS_NS = 100_000_000, 2_100_000_000
_WRITABLE = 0o222


class FileParts(NamedTuple):
    """Locations in a file.

    Attributes
    ----------
    footer, footer_size : int
        The footer's offset and size.
    root : tuple
        The footer's root table: its position and its vtable's in the footer, and its slot offsets.
    blocks : tuple of int
        Position of the first record batch block in the footer, and the number of blocks.
    schema : weakref to Schema
        The schema, while referenced elsewhere.
    """

    footer: int
    footer_size: int
    root: tuple[int, int, Offsets]
    blocks: tuple[int, int]
    schema: Reference


_KNOWN: dict[Hashable, FileParts] = {}


def key_of(source: Source, limits: Limits) -> Hashable | None:
    """The cache key of a file; None if it must not be cached."""
    mode = source.mode
    return None if mode is None or mode & _WRITABLE else (source.identity, limits, generation())


def find(key: Hashable | None) -> tuple[FileParts, Schema] | None:
    """The cached locations of a file, and its schema."""
    parts = None if key is None else _KNOWN.get(key)
    schema = None if parts is None else parts.schema()
    return None if parts is None or schema is None else (parts, schema)


def remember(key: Hashable | None, source: Source, parts: FileParts, schema: Schema) -> None:
    """Cache a file, unless it changed moments ago or its schema borrows the file's bytes."""
    if key is None or not isinstance(schema._source, LazySchema) or schema._source.borrowed:
        return
    assert source.identity is not None
    changed = source.identity[3]
    whole_seconds = not changed % 1_000_000_000
    if time.time_ns() - changed <= (_SETTLED_SECONDS_NS if whole_seconds else _SETTLED_NS):
        return
    if len(_KNOWN) >= _MOST:
        _KNOWN.clear()
    _KNOWN[key] = parts
