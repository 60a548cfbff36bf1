# SPDX-License-Identifier: Apache-2.0
"""Sequential sources: pipes, sockets, decompressing files, and other unseekable objects.

Reads exactly the next message, never more, so that the caller can continue after it. Copies nothing if the object has
``readinto`` or ``recv_into``, and once if it only has ``read``.
"""

from __future__ import annotations

import errno
import io
from functools import partial
from typing import Any, NoReturn

import numpy as np

from shmarrow.buffer import EMPTY, U1, Bytes
from shmarrow.errors import Closed, InvalidType, ShmarrowError, StorageError, storage_error
from shmarrow.memory.source import Source, name_of

_DECOMPRESSING = {
    ("gzip", "GzipFile"),
    ("bz2", "BZ2File"),
    ("lzma", "LZMAFile"),
    ("compression.zstd._zstdfile", "ZstdFile"),
    ("zipfile", "ZipExtFile"),
    ("fsspec.compression", "SnappyFile"),
}
"""Names of classes that seek by decompressing everything before; names, to avoid imports."""

_FIRST_PART = 1 << 16
_MOST_PART = 1 << 26


def is_decompressing(file: Any) -> bool:
    """Whether seeking in a file object costs as much as reading it."""
    return any((kind.__module__, kind.__qualname__) in _DECOMPRESSING for kind in type(file).__mro__)


def check_file(file: Any, mode: str) -> None:
    """Reject text-mode and closed files, and files not open in the direction of ``mode``."""
    name = name_of(file)
    if isinstance(file, io.TextIOBase):
        raise _is_text(name, mode)
    try:
        closed = getattr(file, "closed", False)
        able = getattr(file, "readable" if mode == "rb" else "writable", None)
        refused = closed is not True and callable(able) and not able()
    except Exception as error:
        raise_io_error(error, "use", name)
    if closed is True:
        raise Closed(f"the file object {name} is closed; open it again")
    if refused:
        raise InvalidType(f"{name} is open for {'writing' if mode == 'rb' else 'reading'} only; open it as {mode!r}")


def _is_text(name: str, mode: str) -> InvalidType:
    return InvalidType(f"expected a binary file, found the text file {name}; open it as {mode!r}")


def raise_io_error(error: Exception, action: str, name: str) -> NoReturn:
    """Convert an exception of a file object to a shmarrow error; shmarrow errors are re-raised."""
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
    return InvalidType(f"{name} is non-blocking and has no bytes yet; use ipc.StreamDecoder")


class SequentialSource(Source):
    """A file object or a socket, read from its current position."""

    __slots__ = ("_read_into",)

    def __init__(self, file: Any) -> None:
        super().__init__(name_of(file), None)
        self._read_into = _own_readinto(file) or partial(_read_into, file, self.name)

    def read_into(self, view: Any) -> int:
        view = memoryview(view).cast("B")
        left = len(view)
        while left:
            read_into = self._read_into
            if read_into is None:
                raise self._closed_error()
            try:
                got = read_into(view[-left:])
            except Exception as error:
                raise_io_error(error, "read", self.name)
            if got is None:
                raise _non_blocking(self.name)
            if not isinstance(got, int) or isinstance(got, bool) or not 0 <= got <= left:
                raise InvalidType(f"{self.name} must return how many of {left} bytes it has read, found {got!r}")
            if not got:
                break
            left -= got
        return len(view) - left

    def take(self, size: int, part: int = _MOST_PART) -> Bytes:
        parts: list[Bytes] = []
        while size:
            part = min(part, size)
            room = np.empty(part, U1)
            got = self.read_into(room)
            parts.append(room[:got])
            size = size - got if got == part else 0
            part = min(2 * part, _MOST_PART)
        whole = parts[0] if len(parts) == 1 else np.concatenate([EMPTY, *parts])
        whole.flags.writeable = False
        return whole

    def read_all(self) -> Source:
        """Read everything up to the end into memory."""
        return Source(self.name, self.take(1 << 62, _FIRST_PART))

    def close(self) -> None:
        super().close()
        self._read_into = None


def _own_readinto(file: Any) -> Any:
    """A file object's ``readinto`` or ``recv_into``; None if a subclass only overrides ``read``."""
    for kind in type(file).__mro__:
        if not vars(kind).keys().isdisjoint(("readinto", "recv_into")):
            break
        if "read" in vars(kind):
            return None
    return getattr(file, "readinto", None) or getattr(file, "recv_into", None)


def _read_into(file: Any, name: str, view: memoryview) -> int | None:
    """Emulate ``readinto`` with ``read``."""
    data = file.read(len(view))
    if data is None:
        return None
    if isinstance(data, str):
        raise _is_text(name, "rb")
    try:
        part = memoryview(data).cast("B")
    except TypeError:
        raise InvalidType(f"read() of {name} should give bytes, found {type(data).__name__}") from None
    if len(part) <= len(view):
        view[: len(part)] = part
    return len(part)
