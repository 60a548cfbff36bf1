# SPDX-License-Identifier: Apache-2.0
"""Sources whose bytes are all in memory: mapped files, ``io.BytesIO``, and objects with the buffer protocol.

A path, ``shm:NAME``, a Segment, ``io.FileIO`` or a buffered reader of one is mapped read-only; nothing is read or
copied. Truncating a mapped file kills its readers (SIGBUS). With ``memory_map=False`` the whole file is read into
memory once.

A buffer is used in place: arrays are views that keep the object alive, and changing its bytes changes the arrays. A
``BytesIO`` can be written to and closed afterwards: it copies its bytes then.
"""

from __future__ import annotations

import io
import mmap
import os
import stat
from typing import Any

from shmarrow.buffer import as_bytes
from shmarrow.errors import InvalidType, StorageError, full_name, storage_error
from shmarrow.memory.attached import has_holes, read_whole
from shmarrow.memory.mappings import map_file
from shmarrow.memory.source import Source, name_of


class PositionedSource(Source):
    """The bytes of a ``BytesIO`` or an ``mmap`` from its current position, which advances on reading."""

    positioned = True

    __slots__ = ("_file", "_start")

    def __init__(self, name: str, file: Any, data: Any) -> None:
        self._file = file
        self._start = min(file.tell(), len(data))
        super().__init__(name, as_bytes(data)[self._start :])

    def advance(self, position: int) -> None:
        if not self._file.closed:
            self._file.seek(self._start + position)


def open_file_io(file: Any, memory_map: bool) -> Source | None:
    """Open a regular file given as ``io.FileIO`` or a buffered reader of one; None for anything else.

    Also None for a subclass that overrides reading, seeking or the descriptor, such as a decrypting one. The file
    object's lock and position are not touched.
    """
    raw = file.raw if _is_own(file, io.BufferedReader) or _is_own(file, io.BufferedRandom) else file
    if not _is_own(raw, io.FileIO):
        return None
    name = name_of(file)
    try:
        if isinstance(file, io.BufferedRandom):
            file.flush()  # include buffered writes
        status = os.fstat(raw.fileno())
        if not stat.S_ISREG(status.st_mode):
            return None
        if memory_map := memory_map and not has_holes(raw.fileno(), status):
            path = os.path.abspath(raw.name) if isinstance(raw.name, str) else None
            data = map_file(raw.fileno(), status.st_size, path, status)
        else:
            data = read_whole(raw.fileno(), status.st_size, name)
    except StorageError:
        raise
    except OSError as error:
        raise storage_error(error, "read", name) from None
    return Source(name, data, mapped=memory_map)


def open_bytes_io(file: Any, sequential: bool) -> Source | None:
    """Open a ``BytesIO``; None for anything else, including subclasses that override reading."""
    if not _is_own(file, io.BytesIO):
        return None
    # Share the object's bytes; a view of it would prevent it from growing or closing.
    data = file.getvalue()
    return PositionedSource(_described(data), file, data) if sequential else Source(_described(data), as_bytes(data))


_METHODS = (
    "read", "read1", "readinto", "readinto1", "readall", "seek", "tell", "fileno", "raw", "getvalue",
)  # fmt: skip


def _is_own(file: Any, kind: type) -> bool:
    """Whether a file object is of an ``io`` class, or a subclass that does not override its methods."""
    cls = type(file)
    return cls is kind or (
        isinstance(file, kind) and all(getattr(cls, method, None) == getattr(kind, method, None) for method in _METHODS)
    )


def open_buffer(source: Any, sequential: bool) -> Source:
    """Open an object with the buffer protocol."""
    try:
        memoryview(source).release()
    except TypeError:
        hint = None
        if hasattr(type(source), "read_all"):
            hint = "it is a reader already"
        elif hasattr(source, "__enter__"):
            hint = "open it first, by a with block"
        text = "a source must be a path, a shm: name, a Segment, a file object, a socket or bytes"
        raise InvalidType(f"{text}, found {full_name(source)}", hint=hint) from None
    data = as_bytes(source)
    name = _described(source) if isinstance(source, (bytes, bytearray)) else "a buffer"
    return PositionedSource(name, source, data) if sequential and isinstance(source, mmap.mmap) else Source(name, data)


def _described(data: bytes | bytearray) -> str:
    return f"{len(data)} bytes"
