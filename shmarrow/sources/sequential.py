"""Sources that are read piece by piece: pipes, sockets, decompressing files, any object that can only read.

Mapped: nothing. Read: as many bytes as the next message needs, never more, so that whoever reads on finds the rest.
Copied: nothing, where the object has ``readinto`` or ``recv_into``; once, where it has ``read`` alone.
"""

from __future__ import annotations

import errno
import io
from typing import Any, NoReturn

import numpy as np

from shmarrow.buffer import U1, Bytes
from shmarrow.errors import Closed, InvalidType, ShmarrowError, StorageError, storage_error
from shmarrow.sources.base import Source, name_of

_DECOMPRESSING = {
    ("gzip", "GzipFile"),
    ("bz2", "BZ2File"),
    ("lzma", "LZMAFile"),
    ("compression.zstd._zstdfile", "ZstdFile"),
    ("zipfile", "ZipExtFile"),
    ("fsspec.compression", "SnappyFile"),
}
"""Classes that seek by decompressing all that lies before; by their names, as few processes import them."""

_FIRST_PART = 1 << 16
_MOST_PART = 1 << 26


def is_decompressing(file: Any) -> bool:
    """Whether seeking in a file object costs as much as reading it."""
    return any((kind.__module__, kind.__qualname__) in _DECOMPRESSING for kind in type(file).__mro__)


def check_readable(file: Any) -> None:
    """Refuse a file object that bytes cannot be read from.

    Raises
    ------
    InvalidType
        If it is a text file, or was opened for writing.
    Closed
        If it is closed.
    """
    name = name_of(file)
    if isinstance(file, io.TextIOBase):
        raise InvalidType(f"expected a binary file, found the text file {name}; open it with mode 'rb'")
    if getattr(file, "closed", False) is True:
        raise Closed(f"the file object {name} is closed; open it again")
    readable = getattr(file, "readable", None)
    if callable(readable) and not readable():
        raise InvalidType(f"{name} is open for writing only; open it with mode 'rb'")


def raise_io_error(error: Exception, action: str, name: str) -> NoReturn:
    """Raise our error for what a file object raised; an error of ours goes on as it is."""
    if isinstance(error, ShmarrowError):
        raise error
    if isinstance(error, BlockingIOError):
        raise _non_blocking(name) from error
    if isinstance(error, OSError):
        raise storage_error(error, action, name) from error
    if isinstance(error, ValueError) and "closed" in str(error):
        raise Closed(f"cannot {action} {name!r}: {error}") from error
    code = errno.ENOMEM if isinstance(error, MemoryError) else errno.EIO
    raise StorageError(code, f"cannot {action} {name!r}: {type(error).__name__}: {error}") from error


def _non_blocking(name: str) -> InvalidType:
    return InvalidType(f"{name} is non-blocking and has no bytes yet; feed what comes to StreamDecoder")


class Reader:
    """Reads from a file object or a socket, and checks what it says it did."""

    __slots__ = ("_file", "_name", "_read_into")

    def __init__(self, file: Any, name: str) -> None:
        self._file = file
        self._name = name
        self._read_into = getattr(file, "readinto", None) or getattr(file, "recv_into", None) or self._by_read

    def _by_read(self, view: memoryview) -> int | None:
        found = self._file.read(len(view))
        if found is None:
            return None
        if isinstance(found, str):
            raise InvalidType(f"expected a binary file, found the text file {self._name}; open it with mode 'rb'")
        try:
            part = memoryview(found).cast("B")
        except TypeError:
            raise InvalidType(f"read() of {self._name} should give bytes, found {type(found).__name__}") from None
        if len(part) <= len(view):
            view[: len(part)] = part
        return len(part)

    def read_into(self, target: Any) -> int:
        """Fill a writable buffer; returns fewer bytes only at the end."""
        view = memoryview(target).cast("B")
        size = len(view)
        done = 0
        while done < size:
            try:
                got = self._read_into(view[done:] if done else view)
            except Exception as error:
                raise_io_error(error, "read", self._name)
            if got is None:
                raise _non_blocking(self._name)
            if not isinstance(got, int) or isinstance(got, bool) or not 0 <= got <= size - done:
                raise InvalidType(f"{self._name} should say how many of {size - done} bytes it has read, found {got!r}")
            if not got:
                break
            done += got
        return done

    def read(self, size: int) -> Bytes:
        """``size`` bytes, or fewer at the end; memory grows with what comes, not with what is asked for."""
        parts: list[Bytes] = []
        part = min(size, _FIRST_PART)
        left = size
        while left:
            part = min(part, left)
            room = np.empty(part, U1)
            got = self.read_into(room)
            parts.append(room[:got])
            left -= got
            if got < part:
                break
            part = min(2 * part, _MOST_PART)
        whole = parts[0] if len(parts) == 1 else np.concatenate([np.empty(0, U1), *parts])
        whole.flags.writeable = False
        return whole


class SequentialSource(Source):
    """A file object or a socket that is read from where it stands."""

    __slots__ = ("_reader",)

    def __init__(self, file: Any) -> None:
        super().__init__(name_of(file), None)
        self._reader: Reader | None = Reader(file, self.name)

    def read_into(self, view: Any) -> int:
        reader = self._reader
        if reader is None:
            raise self._closed_error()
        return reader.read_into(view)

    def read_all(self) -> Source:
        """All bytes up to the end, in memory."""
        assert self._reader is not None
        return Source(self.name, self._reader.read(1 << 62))

    def close(self) -> None:
        super().close()
        self._reader = None
