"""Sinks: a path, ``shm:NAME``, a SegmentWriter, a file object, a socket.

Written: the pieces as they are, to a path or name with ``pwritev``, to a file object with ``write``, to a socket with
``sendall``. Copied: only small neighbouring pieces, which are joined.

A path or a name appears whole when the sink is finished, or not at all. What a path had before is replaced at that
moment, and its readers keep it; a ``shm:`` name is not replaced unless that is asked for.

What a file object says of a ``write``:

* a count: what is left is written again, until all of it is accepted;
* 0 bytes accepted, and None from a raw stream (``io.RawIOBase``), which means the same: an error, as trying again might
  never end;
* None from any other object: everything is accepted, as is the habit of objects that only wrap another.
"""

from __future__ import annotations

import errno
import io
import os
from collections.abc import Sequence
from typing import Any, NoReturn

from shmarrow import segment
from shmarrow.buffer import Bytes
from shmarrow.errors import Closed, Failed, InvalidType, StorageError
from shmarrow.segment.location import is_shm
from shmarrow.sources.base import name_of
from shmarrow.sources.pieces import joined
from shmarrow.sources.sequential import raise_io_error

_SHM_MODE = 0o400


class Sink:
    """Where the bytes of one writer go, one after another; made by :func:`open_sink`.

    Attributes
    ----------
    name : str
        What is written to, for error messages.
    position : int
        Bytes written so far.

    Notes
    -----
    Thread safety: none; a sink belongs to one writer, which takes care that its calls do not overlap.
    """

    __slots__ = ("name", "position")

    def __init__(self, name: str, position: int = 0) -> None:
        self.name = name
        self.position = position

    def write(self, pieces: Sequence[Any]) -> None:
        """Write all pieces, each bytes or a C-contiguous uint8 ndarray.

        Raises
        ------
        StorageError
            If not all of them are accepted. ``position`` says how many bytes were before this call.
        Failed
            After such an error: a part of the pieces may have been written.
        Closed
            If the sink was finished, or the file object is closed.
        """
        raise NotImplementedError

    def allocate(self, size: int) -> Bytes:
        """Room for the next ``size`` bytes, writable, to be filled in place; zeros until then.

        Raises
        ------
        InvalidType
            If the sink is a file object, which has no memory to hand out.
        """
        raise InvalidType(f"to be filled in place, {self.name} must be a path or a shm: name, found a file object")

    def finish(self) -> None:
        """Everything is written: publish it where it has a name, flush it where it is a file object."""
        raise NotImplementedError

    def abort(self) -> None:
        """Give up: nothing is published. Safe to call again, and after :meth:`finish`."""

    def __reduce__(self) -> NoReturn:
        raise InvalidType(f"what writes to {self.name} cannot be copied or pickled")


class SegmentSink(Sink):
    """A new object, which gets its name when the sink is finished."""

    __slots__ = ("_failure", "_writer")

    def __init__(self, writer: segment.SegmentWriter) -> None:
        super().__init__(writer.name, writer.size)
        self._writer = writer
        self._failure = ""

    def write(self, pieces: Sequence[Any]) -> None:
        if self._failure:
            raise _failed(self.name, self._failure)
        try:
            self.position += self._writer.write(joined(pieces))
        except BaseException as error:
            self._failure = f"{type(error).__name__}: {error}"
            raise

    def allocate(self, size: int) -> Bytes:
        start = self.position
        room = self._writer.map(start + size)[start:]
        self.position += size
        return room

    def finish(self) -> None:
        if self._failure:
            self._writer.discard()
            raise _failed(self.name, self._failure)
        self._writer.publish()

    def abort(self) -> None:
        self._writer.discard()


class FileSink(Sink):
    """A file object or a socket; it stays open."""

    __slots__ = ("_failure", "_file", "_none_is_all", "_write")

    def __init__(self, file: Any) -> None:
        super().__init__(name_of(file))
        self._file = file
        self._write = file.write if hasattr(file, "write") else file.sendall
        self._none_is_all = not isinstance(file, io.RawIOBase)
        self._failure = ""

    def write(self, pieces: Sequence[Any]) -> None:
        if self._failure:
            raise _failed(self.name, self._failure)
        done = 0
        try:
            for piece in joined(pieces):
                done += self._write_all(memoryview(piece), done)
        except BaseException as error:
            self._failure = f"{type(error).__name__}: {error}"
            raise
        self.position += done

    def _write_all(self, view: memoryview, before: int) -> int:
        size = len(view)
        done = 0
        while done < size:
            try:
                taken = self._write(view[done:] if done else view)
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
                    f"write() of {self.name} should give None or an int from 0 to {size - done}, found {taken!r}"
                )
            done += taken
        return size

    def _stuck(self, done: int) -> StorageError:
        return StorageError(
            errno.EAGAIN,
            f"cannot write to {self.name!r}: after {self.position} bytes, it accepted {done} more and then none; give "
            "a file object in blocking mode",
        )

    def finish(self) -> None:
        if self._failure:
            raise _failed(self.name, self._failure)
        flush = getattr(self._file, "flush", None)
        if flush is None:
            return
        try:
            flush()
        except Exception as error:
            self._failure = f"{type(error).__name__}: {error}"
            raise_io_error(error, "flush", self.name)


def open_sink(
    sink: Any,
    *,
    overwrite: bool | None = None,
    mode: int | None = None,
    durable: bool = False,
    replacing: tuple[int, int, int, int] | None = None,
) -> Sink:
    """Open what is to be written.

    Parameters
    ----------
    sink : path, ``shm:NAME``, SegmentWriter, file object or socket
        Where the bytes go. A file object or socket that is given is never closed here.
    overwrite : bool, optional
        Whether to replace what has the name. Not given, a path is replaced and a ``shm:`` name is not.
    mode : int, optional
        The permission bits of the published file. Not given, those of the file that a path replaces, or 0o666 without
        the bits of the umask; 0o400 for a ``shm:`` name.
    durable : bool
        True syncs the file and its directory before it is published.
    replacing : tuple of int, optional
        The identity of the one file that may be replaced.

    Raises
    ------
    ObjectExists
        If the name is taken and not to be overwritten.
    InvalidType
        If it is nothing that bytes can be written to: a text file, a file opened for reading, another kind of object.
    Closed
        If the file object is closed.
    """
    if isinstance(sink, segment.SegmentWriter):
        return SegmentSink(sink)
    if segment.is_location(sink):
        shared = is_shm(os.fsdecode(sink))
        return SegmentSink(
            segment.create(
                sink,
                mode=_SHM_MODE if mode is None and shared else mode,
                overwrite=not shared if overwrite is None else overwrite,
                durable=durable,
                replacing=replacing,
            )
        )
    if not (hasattr(sink, "write") or hasattr(sink, "sendall")):
        raise InvalidType(f"a sink is a path, a shm: name or a file object, found {type(sink).__name__}")
    _check_writable(sink)
    return FileSink(sink)


def _check_writable(file: Any) -> None:
    name = name_of(file)
    if isinstance(file, io.TextIOBase):
        raise InvalidType(f"expected a binary file, found the text file {name}; open it with mode 'wb'")
    if getattr(file, "closed", False) is True:
        raise Closed(f"the file object {name} is closed; open it again")
    writable = getattr(file, "writable", None)
    if callable(writable) and not writable():
        raise InvalidType(f"{name} is open for reading only; open it with mode 'wb'")


def _failed(name: str, failure: str) -> Failed:
    return Failed(f"writing to {name} failed before and cannot go on; the first error was {failure}")
