"""Sources in memory: ``io.BytesIO`` and objects with the buffer protocol.

Nothing is mapped, read or copied. Arrays are views that keep the object alive; changing its bytes changes the arrays. A
``BytesIO`` can be written to and closed afterwards: it copies its bytes then.
"""

from __future__ import annotations

import io
import mmap
from typing import Any

from shmarrow.buffer import as_bytes
from shmarrow.errors import InvalidType, full_name
from shmarrow.sources.base import Source


class PositionedSource(Source):
    """The bytes of a ``BytesIO`` or an ``mmap`` from its current position, which advances on reading."""

    __slots__ = ("_file", "_start")

    def __init__(self, name: str, file: Any, data: Any) -> None:
        self._file = file
        self._start = min(file.tell(), len(data))
        super().__init__(name, as_bytes(data)[self._start :])

    def advance(self, position: int) -> None:
        if not self._file.closed:
            self._file.seek(self._start + position)


def open_bytes_io(file: Any, sequential: bool) -> Source | None:
    """Open a ``BytesIO``; None for anything else, including subclasses that override reading."""
    if not isinstance(file, io.BytesIO) or any(
        getattr(type(file), name) != getattr(io.BytesIO, name) for name in _METHODS
    ):
        return None
    # Share the object's bytes; a view of it would prevent it from growing or closing.
    data = file.getvalue()
    return PositionedSource(_described(data), file, data) if sequential else Source(_described(data), as_bytes(data))


_METHODS = ("read", "readinto", "getvalue", "tell", "seek")


def open_buffer(source: Any, sequential: bool) -> Source:
    """Open an object with the buffer protocol."""
    try:
        memoryview(source).release()
    except TypeError:
        if hasattr(type(source), "read_all"):
            hint = ", which is a reader already"
        else:
            hint = "; open it first, by a with block" if hasattr(source, "__enter__") else ""
        raise InvalidType(
            "a source must be a path, a shm: name, a Segment, a file object, a socket or bytes, "
            f"found {full_name(source)}{hint}"
        ) from None
    data = as_bytes(source)
    name = _described(source) if isinstance(source, (bytes, bytearray)) else "a buffer"
    return PositionedSource(name, source, data) if sequential and isinstance(source, mmap.mmap) else Source(name, data)


def _described(data: bytes | bytearray) -> str:
    return f"{len(data)} bytes"
