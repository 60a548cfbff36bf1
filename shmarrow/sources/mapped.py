"""Sources over local files: a path, ``shm:NAME``, a Segment, ``io.FileIO`` or a buffered reader of one.

The whole file is mapped read-only; nothing is read or copied. Truncating a mapped file kills its readers (SIGBUS).
With ``memory_map=False`` the whole file is read into memory once.
"""

from __future__ import annotations

import io
import os
import stat
from typing import Any

from shmarrow import segment
from shmarrow.buffer import Bytes
from shmarrow.errors import StorageError, storage_error
from shmarrow.segment.attached import EMPTY, read_object, read_whole
from shmarrow.segment.location import became_smaller
from shmarrow.segment.mappings import map_file
from shmarrow.sources.base import Source, name_of


class SegmentSource(Source):
    """A segment: closed with the source if attached here, but not the caller's."""

    __slots__ = ("_given", "_segment")

    def __init__(self, attached: segment.Segment, given: bool = False) -> None:
        super().__init__(attached.name, attached.data, mapped=True)
        self._segment = attached
        self._given = given

    @property
    def location(self) -> str | None:
        return None if self._given else self._segment.location

    @property
    def identity(self) -> tuple[int, int, int, int]:
        return self._segment.identity

    @property
    def mode(self) -> int:
        return self._segment.mode

    def close(self) -> None:
        super().close()
        if not self._given:
            self._segment.close()


def open_location(where: segment.Location, memory_map: bool) -> Source:
    """Open a path or ``shm:NAME``."""
    return SegmentSource(segment.attach(where)) if memory_map else Source(*read_object(where))


def open_segment(given: segment.Segment) -> Source:
    """Open the caller's segment, without closing it."""
    return SegmentSource(given, given=True)


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
        data = _map(raw, status, name) if memory_map else read_whole(raw.fileno(), status.st_size, name)
    except StorageError:
        raise
    except OSError as error:
        raise storage_error(error, "read", name) from None
    return Source(name, data, mapped=memory_map)


_METHODS = ("read", "read1", "readinto", "readinto1", "readall", "seek", "fileno", "raw")


def _is_own(file: Any, kind: type) -> bool:
    """Whether a file object is of an ``io`` class, or a subclass that does not override its methods."""
    found = type(file)
    return found is kind or (
        isinstance(file, kind)
        and all(getattr(found, method, None) == getattr(kind, method, None) for method in _METHODS)
    )


def _map(file: io.FileIO, status: os.stat_result, name: str) -> Bytes:
    size = status.st_size
    if not size:
        return EMPTY
    path = os.path.abspath(file.name) if isinstance(file.name, str) else None
    try:
        return map_file(file.fileno(), size, path, status)
    except ValueError:
        raise became_smaller("map", name, size) from None
