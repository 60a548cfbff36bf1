"""Where the parts of files lie that were opened before, for those who open them again.

Rules kept here:

* a file is recognised by device, inode, size and time of change. That is enough only while nobody has permission to
  write to it, as stores through a mapping leave the time of change as it is; and not for a file that changed moments
  ago, as another change could leave the same time;
* every position was checked against a footer of the same size, so that bytes which changed all the same are no danger;
* entries are immutable, few, and hold no memory that counts: the schema belongs to the cache of schemas.
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
    """Where the parts of a file lie.

    Attributes
    ----------
    footer, footer_size : int
        Where the footer starts in the file, and its bytes.
    root : tuple
        The footer's root: its position in the footer, that of its vtable, and the offsets of its slots.
    blocks : tuple of int
        Where the first block of a record batch is in the footer, and how many there are.
    schema : weakref to Schema
        The schema, for as long as somebody holds it.
    """

    footer: int
    footer_size: int
    root: tuple[int, int, Offsets]
    blocks: tuple[int, int]
    schema: Reference


_KNOWN: dict[Hashable, FileParts] = {}


def key_of(source: Source, limits: Limits) -> Hashable | None:
    """What a file is recognised by; None where it may not be remembered."""
    mode = source.mode
    return None if mode is None or mode & _WRITABLE else (source.identity, limits, generation())


def find(key: Hashable | None) -> tuple[FileParts, Schema] | None:
    """What is known of a file, and its schema."""
    parts = None if key is None else _KNOWN.get(key)
    schema = None if parts is None else parts.schema()
    return None if parts is None or schema is None else (parts, schema)


def remember(key: Hashable | None, source: Source, parts: FileParts, schema: Schema) -> None:
    """Remember a file, unless it changed moments ago, or its schema borrows the file's own bytes."""
    if key is None or not isinstance(schema.source, LazySchema) or schema.source.borrowed:
        return
    assert source.identity is not None
    changed = source.identity[3]
    whole_seconds = not changed % 1_000_000_000
    if time.time_ns() - changed <= (_SETTLED_SECONDS_NS if whole_seconds else _SETTLED_NS):
        return
    if len(_KNOWN) >= _MOST:
        _KNOWN.clear()
    _KNOWN[key] = parts
