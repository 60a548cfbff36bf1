"""Sinks: a path, ``shm:NAME``, a SegmentWriter, a file object, a socket.

Pieces are written with ``pwritev`` to a path or name, with ``write`` to a file object, and with ``sendall`` to a
socket. Only small adjacent pieces are copied, to join them.

A path or a name is published atomically when the sink is finished. An existing path is replaced then, and its readers
keep the old version; a ``shm:`` name is only replaced on request.

Return values of a file object's ``write``:

* a count: the remaining bytes are written again, until all are accepted;
* 0, or None from a raw stream (``io.RawIOBase``), which means the same: an error, as retrying might never end;
* None from any other object: all bytes were accepted, as usual for wrapper objects.
"""

from __future__ import annotations

import errno
import io
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NoReturn, TypeVar

from shmarrow import segment
from shmarrow.buffer import Bytes
from shmarrow.errors import Failed, InvalidType, StorageError
from shmarrow.segment.location import is_shm, resolve
from shmarrow.sources.base import name_of
from shmarrow.sources.pieces import joined
from shmarrow.sources.sequential import check_file, raise_io_error

R = TypeVar("R")

_SHM_MODE = 0o400


class Sink:
    """The sequential output of one writer; made by :func:`open_sink`.

    Attributes
    ----------
    name : str
        Name for error messages.
    position : int
        Bytes written so far.

    Notes
    -----
    Thread safety: none; a sink belongs to one writer, which serializes its calls.
    """

    __slots__ = ("_failure", "name", "position")

    def __init__(self, name: str, position: int = 0) -> None:
        self.name = name
        self.position = position
        self._failure = ""

    def write(self, pieces: Sequence[Any]) -> None:
        """Write pieces, each bytes or a C-contiguous uint8 ndarray.

        Raises
        ------
        StorageError
            If not all are accepted. ``position`` stays that before the call.
        Failed
            After such an error; some of the pieces may have been written.
        Closed
            If the sink was finished, or the file object is closed.
        """
        self.position += self._unless_failed(self._write, joined(pieces))

    def write_each(self, pieces: Iterable[Any], size: int) -> None:
        """Write an iterable of pieces with ``size`` bytes in total; errors are those of :meth:`write`."""
        for piece in pieces:
            self.write([piece])

    def _write(self, pieces: list[Any]) -> int:
        raise NotImplementedError

    def _unless_failed(self, call: Callable[..., R], *given: Any) -> R:
        if self._failure:
            raise Failed(f"writing to {self.name} failed before and cannot go on; the first error was {self._failure}")
        try:
            return call(*given)
        except BaseException as error:
            self._failure = f"{type(error).__name__}: {error}"
            raise

    def allocate(self, size: int) -> Bytes:
        """Allocate the next ``size`` bytes, writable and zeroed, to be filled in place.

        Raises
        ------
        InvalidType
            If the sink is a file object.
        """
        raise InvalidType(f"to be filled in place, {self.name} must be a path or a shm: name, found a file object")

    def finish(self) -> None:
        """Publish a path or name, or flush a file object."""
        self._unless_failed(self._finish)

    def _finish(self) -> None:
        raise NotImplementedError

    def abort(self) -> None:
        """Discard the output. Safe to call again, and after :meth:`finish`."""

    def __reduce__(self) -> NoReturn:
        raise InvalidType(f"the writer of {self.name} cannot be copied or pickled")


class SegmentSink(Sink):
    """A new object, published when the sink is finished."""

    __slots__ = ("writer",)

    def __init__(self, writer: segment.SegmentWriter) -> None:
        super().__init__(writer.name, writer.size)
        self.writer = writer

    def _write(self, pieces: list[Any]) -> int:
        return self.writer.write(pieces)

    def _finish(self) -> None:
        self.writer.publish()

    def allocate(self, size: int) -> Bytes:
        start = self.position
        room = self.writer.map(start + size)[start:]
        self.position += size
        return room

    def abort(self) -> None:
        self.writer.discard()


class FileSink(Sink):
    """A file object or a socket; it stays open."""

    __slots__ = ("_accept", "_file", "_none_is_all")

    def __init__(self, file: Any) -> None:
        super().__init__(name_of(file))
        self._file = file
        self._accept = file.write if hasattr(file, "write") else file.sendall
        self._none_is_all = not isinstance(file, io.RawIOBase)

    def _write(self, pieces: list[Any]) -> int:
        done = 0
        for piece in pieces:
            done += self._write_all(memoryview(piece), done)
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
            f"cannot write to {self.name!r}: after {self.position} bytes, it accepted {done} more and then none; pass "
            "a file object in blocking mode",
        )

    def _finish(self) -> None:
        if hasattr(self._file, "flush"):
            try:
                self._file.flush()
            except BlockingIOError as error:
                raise self._stuck(0) from error
            except Exception as error:
                raise_io_error(error, "flush", self.name)


def open_sink(
    sink: Any,
    *,
    overwrite: bool | None = None,
    mode: int | None = None,
    durable: bool = False,
    replacing: tuple[int, int, int, int] | None = None,
) -> Sink:
    """Open a sink: a path, ``shm:NAME``, SegmentWriter, file object or socket.

    ``overwrite``, ``mode``, ``durable`` and the errors are those of :func:`shmarrow.ipc.new_file`; ``replacing`` is the
    identity of the only file that may be replaced. A file object is never closed.
    """
    if isinstance(sink, segment.SegmentWriter):
        return SegmentSink(sink)
    if segment.is_location(sink):
        shared = is_shm(resolve(sink)[0])
        return SegmentSink(
            segment.create(
                sink,
                mode=_SHM_MODE if mode is None and shared and replacing is None else mode,
                overwrite=not shared if overwrite is None else overwrite,
                durable=durable,
                replacing=replacing,
            )
        )
    if not (hasattr(sink, "write") or hasattr(sink, "sendall")):
        raise InvalidType(f"a sink must be a path, a shm: name or a file object, found {type(sink).__name__}")
    check_file(sink, "wb")
    return FileSink(sink)
