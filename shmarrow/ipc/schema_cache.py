"""Schemas that were read before, by their bytes and by their files.

Rules kept here:

* a schema that is seen once is read where it lies and not kept here; one that comes again is copied, and kept;
* one that is found by the file that it came from is found without comparing bytes, so that is done only for files that
  nobody may write to.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from shmarrow.buffer import U1, Bytes
from shmarrow.errors import InvalidData, Limits
from shmarrow.extension import generation
from shmarrow.ipc.flatbuf import Reader
from shmarrow.ipc.message import read_key_values
from shmarrow.ipc.quick import Footer, SchemaHeader, schema_header
from shmarrow.ipc.wire_schema import WireSchema, wire_schema
from shmarrow.types import Schema

Identity = tuple[int, int, int, int]
"""Device, inode, size and time of change (ns) of the file that bytes are mapped from."""

_BY_BYTES: dict[Any, list[tuple[bytearray, Schema]]] = {}
_BY_FILE: dict[Any, KnownFile] = {}
_SEEN: set[int] = set()
_CACHE_BYTES = 64 << 20
_CACHE_FILES = 4096
_MOST_SEEN = 65536
_RACY_NS, _RACY_SECONDS_NS = 100_000_000, 2_100_000_000
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
        metadata, source = None, WireSchema(reader, limits, first - start, fields, borrowed=borrowed)
    else:
        table = reader.table("Schema", position - start)
        metadata, source = read_key_values(table["custom_metadata"]), wire_schema(table, limits, borrowed)
    if start:
        source.check_reach()
    elif not borrowed:
        source.scan()
    return Schema(metadata=metadata, source=source)


class KnownFile:
    """What opening a file found.

    Attributes
    ----------
    footer, footer_size : int
        Where its footer is.
    root : tuple or None
        The footer's root.
    schema : Schema
        The schema.
    """

    __slots__ = ("footer", "footer_size", "root", "schema")

    def __init__(self, footer: int, footer_size: int, root: Footer | None, schema: Schema) -> None:
        self.footer = footer
        self.footer_size = footer_size
        self.root = root
        self.schema = schema


def known_file(identity: Identity | None, limits: Limits) -> KnownFile | None:
    """What was found in a file before, if nobody may have written to it since."""
    return None if identity is None else _BY_FILE.get((identity, limits, generation()))


def remember_file(identity: Identity | None, limits: Limits, found: KnownFile) -> None:
    """Remember what is in a file that nobody may write to, unless the schema borrows its bytes.

    A file that had not changed for a while before its schema was read cannot change without another time of change.
    """
    source = found.schema.source
    assert isinstance(source, WireSchema)
    if identity is None or source.borrowed:
        return
    whole_seconds = not identity[3] % 1_000_000_000
    if time.time_ns() - identity[3] <= (_RACY_SECONDS_NS if whole_seconds else _RACY_NS):
        return
    if len(_BY_FILE) >= _CACHE_FILES:
        _BY_FILE.clear()
    _BY_FILE[identity, limits, generation()] = found
