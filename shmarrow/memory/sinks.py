# SPDX-License-Identifier: Apache-2.0
"""Sinks: a path, ``shm:NAME``, a SegmentWriter, a file object, a socket.

A path or a name is written with ``pwritev`` and published atomically when the sink is closed. An existing path is
replaced then, and its readers keep the old version; a ``shm:`` name is only replaced on request. A file object is
written to with ``write`` and a socket with ``sendall``; closing flushes it and leaves it open.

Return values of a file object's ``write``:

* a count: the remaining bytes are written again, until all are accepted;
* 0, or None from a raw stream (``io.RawIOBase``), which means the same: an error, as retrying might never end;
* None from any other object: all bytes were accepted, as usual for wrapper objects.
"""

from __future__ import annotations

import errno
import io
from collections.abc import Sequence
from typing import Any

from shmarrow.errors import InvalidArgument, InvalidType, StorageError
from shmarrow.memory.formats import FOREIGN
from shmarrow.memory.life_cycle import Sink
from shmarrow.memory.location import is_location, is_shm, resolve
from shmarrow.memory.segment_writer import create_at
from shmarrow.memory.sequential import check_file, raise_io_error
from shmarrow.memory.source import name_of
from shmarrow.memory.unnamed_file import joined

_SHM_MODE = 0o400


class FileSink(Sink):
    """A file object or a socket; stays open."""

    def __init__(self, file: Any) -> None:
        self.name = name_of(file)
        self.size = 0
        self._file = file
        self._accept = file.write if hasattr(file, "write") else file.sendall
        self._none_is_all = not isinstance(file, io.RawIOBase)

    def write(self, pieces: Sequence[Any]) -> int:
        """Write pieces in order; returns the number of bytes.

        Raises
        ------
        StorageError
            If not all are accepted; some of the pieces may have been written. ``size`` stays that before the call.
        Closed
            If the file object is closed.
        """
        done = 0
        for piece in joined(pieces):
            done += self._write_all(memoryview(piece), done)
        self.size += done
        return done

    def _write_all(self, view: memoryview, before: int) -> int:
        size = len(view)
        done = 0
        while done < size:
            try:
                taken = self._accept(view[done:] if done else view)
            except BlockingIOError as error:
                raise self._stuck(before + done + error.characters_written) from error
            except Exception as error:
                raise_io_error(error, "write to", self.name)
            if taken is None and self._none_is_all:
                return size
            if taken is None or (type(taken) is int and taken == 0):
                raise self._stuck(before + done)
            if not isinstance(taken, int) or isinstance(taken, bool) or not 0 <= taken <= size - done:
                raise InvalidType(
                    f"write() of {self.name} must return None or an int from 0 to {size - done}, found {taken!r}"
                )
            done += taken
        return size

    def _stuck(self, done: int) -> StorageError:
        return StorageError(
            errno.EAGAIN,
            f"cannot write to {self.name!r}: after {self.size} bytes, it accepted {done} more and then none; pass "
            "a file object in blocking mode",
        )

    def publish(self) -> None:
        """Flush the file object."""
        if hasattr(self._file, "flush"):
            try:
                self._file.flush()
            except BlockingIOError as error:
                raise self._stuck(0) from error
            except Exception as error:
                raise_io_error(error, "flush", self.name)

    def drop(self) -> None:
        """Leave it open, and use it no more."""
        self._file = None


def open_sink(
    sink: Any,
    *,
    overwrite: bool | None = None,
    mode: int | None = None,
    durable: bool = False,
    is_arrow: bool = True,
) -> Sink:
    """Open a sink: a path, ``shm:NAME``, SegmentWriter, file object or socket.

    ``overwrite``, ``mode``, ``durable`` and the errors are those of :func:`shmarrow.ipc.new_file`; ``is_arrow``
    tells whether the bytes are Arrow's. A file object is never closed.
    """
    if isinstance(sink, Sink):
        return sink
    if is_location(sink):
        name, path = resolve(sink)
        shared = is_shm(name)
        if is_arrow and name.lower().endswith(FOREIGN):
            raise InvalidArgument(
                f"cannot write Arrow data as {name!r}, whose suffix is that of another format",
                hint="name it .arrow (a stream .arrows, tensors .tensors); shmarrow.convert writes other formats",
            )
        if mode is None and shared:
            mode = _SHM_MODE
        return create_at(name, path, mode, not shared if overwrite is None else overwrite, durable)
    if not (hasattr(sink, "write") or hasattr(sink, "sendall")):
        raise InvalidType(f"a sink must be a path, a shm: name or a file object, found {type(sink).__name__}")
    check_file(sink, "wb")
    return FileSink(sink)
