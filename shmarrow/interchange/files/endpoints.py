"""Input, output and options of a conversion."""

from __future__ import annotations

import errno
import io
import os
import shlex
import stat
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np

from shmarrow import segment
from shmarrow.buffer import U1, Bytes
from shmarrow.errors import InvalidArgument, ObjectNotFound, storage_error
from shmarrow.segment.location import is_planted, resolve
from shmarrow.sources import open_sink
from shmarrow.sources.formats import HEAD
from shmarrow.writer import Sink

T = TypeVar("T")

PREFIX = "shmarrow-convert-"
"""Name prefix of temporary files and directories, which shows their origin."""


@dataclass(frozen=True)
class Options:
    """Options of a conversion.

    Attributes
    ----------
    columns : sequence of str, optional
        The columns or tensors to convert, in this order.
    rows_per_batch : int, optional
        Rows per batch (row group).
    compression : str, optional
        One of the format's codecs, or ``"none"``; the format's default if omitted.
    level : int, optional
        Compression level.
    types : mapping of str to DataType
        Types of columns that would otherwise be inferred from text.
    nulls : sequence of str
        Strings that mean null in CSV, in addition to empty fields.
    """

    columns: Sequence[str] | None = None
    rows_per_batch: int | None = None
    compression: str | None = None
    level: int | None = None
    types: Mapping[str, Any] = field(default_factory=dict)
    nulls: Sequence[str] = ()


def is_special(name: str) -> bool:
    """Whether a path is a pipe or a device, which is read or written in place: never mapped, never replaced."""
    if name.startswith(segment.SHM_SCHEME):
        return False
    try:
        mode = os.stat(name).st_mode
    except (OSError, ValueError):
        return False
    return not stat.S_ISREG(mode) and not stat.S_ISDIR(mode)


def _open(name: str, mode: str) -> Any:
    try:
        return open(name, mode, buffering=0)
    except OSError as error:
        raise storage_error(error, "open", name) from None


@contextmanager
def temporary_errors() -> Iterator[None]:
    """Wrap writing to temporary files; errors name their directory."""
    try:
        yield
    except OSError as error:
        where = tempfile.gettempdir()
        raise storage_error(error, "write temporary files in", where, "TMPDIR names another directory") from None


def _standard(name: str) -> Any:
    """Return standard input or output as a binary file."""
    file = getattr(sys, name)
    if file is None:
        raise storage_error(OSError(errno.EBADF, "it is closed"), "use", f"standard {name.removeprefix('std')}put")
    return file.buffer


# --- input ------------------------------------------------------------------------------------------------------


class _Stream(io.RawIOBase):
    """A pipe from its start, including the first bytes, which have been read already.

    Attributes
    ----------
    name : str
        Name for messages.
    done : int
        Bytes read so far.
    """

    def __init__(self, file: Any, head: bytes, name: str) -> None:
        self.name = name
        self._file = file
        self._head = head
        self.done = 0

    def readable(self) -> bool:
        return True

    def readinto(self, room: Any) -> int:
        view = memoryview(room).cast("B")
        if self._head:
            size = min(len(view), len(self._head))
            view[:size] = self._head[:size]
            self._head = self._head[size:]
        else:
            size = self._file.readinto(view)
        self.done += size
        return size


class Input:
    """The input: a mapped file, or a pipe; made by :func:`open_input`.

    Attributes
    ----------
    name : str
        Name for messages.
    data : ndarray or None
        The mapped bytes; None for a pipe until :meth:`whole` is called.
    head : bytes
        The first bytes, at most 64.
    is_standard : bool
        Whether it is standard input.
    """

    def __init__(
        self, name: str, stack: ExitStack, data: Bytes | None, file: Any = None, is_standard: bool = False
    ) -> None:
        self.name = name
        self.is_standard = is_standard
        self.data = data
        self._stack = stack
        self._path = None if data is None else name
        self.head = data[:HEAD].tobytes() if data is not None else _first(file)
        self._stream = None if data is not None else _Stream(file, self.head, name)

    def whole(self) -> Bytes:
        """Return all bytes, mapped; a pipe is copied to a temporary file first."""
        if self.data is None:
            self.data = segment.attach(self.path()).data
        return self.data

    def path(self) -> str:
        """Return a path or ``shm:`` name of the bytes; for a pipe, the path of a temporary file."""
        if self._path is None:
            file = self.keep(tempfile.NamedTemporaryFile(prefix=PREFIX))  # noqa: SIM115
            stream = self.stream()
            while piece := stream.read(1 << 20):
                with temporary_errors():
                    file.write(piece)
            with temporary_errors():
                file.flush()
            self._path = file.name
        return self._path

    def file_path(self) -> str:
        """Return :meth:`path` with a ``shm:`` name resolved to the path of its file."""
        return resolve(self.path())[1]

    def keep(self, resource: AbstractContextManager[T]) -> T:
        """Enter a context, which is exited when the input is closed."""
        return self._stack.enter_context(resource)

    def stream(self) -> _Stream:
        """Return the pipe as a stream."""
        assert self._stream is not None
        return self._stream


def _first(file: Any) -> bytes:
    """Read the first bytes of a pipe, which may return fewer per call."""
    head = b""
    while len(head) < HEAD and (found := file.read(HEAD - len(head))):
        head += found
    return head


def download(name: str) -> str:
    """Return a shell command that downloads a URL to standard output; empty if ``name`` is not a URL."""
    scheme, separator, _ = name.partition("://")
    if not separator or name.startswith(segment.SHM_SCHEME) or os.path.exists(name):
        return ""
    known = {"http": "curl -sL {}", "https": "curl -sL {}", "s3": "aws s3 cp {} -", "gs": "gsutil cat {}"}
    return known.get(scheme, "...").format(shlex.quote(name))


def _refuse_several(name: str) -> None:
    """Refuse URLs and patterns, with the command line to use instead."""
    command = download(name)
    if command:
        raise InvalidArgument(f"{name!r} is a URL, and files are read; {command} | shmarrow convert - OUT")
    if any(char in name for char in "*?[") and not os.path.exists(name):
        raise ObjectNotFound(
            errno.ENOENT, f"no file is named {name!r}, and one file is converted at a time: for f in ...; do shmarrow "
            'convert "$f" "${f%.*}.arrow"; done'
        )  # fmt: skip


@contextmanager
def open_input(name: str) -> Iterator[Input]:
    """Open an input: a path, ``shm:NAME``, or ``-`` for standard input.

    Raises
    ------
    ObjectNotFound
        If it does not exist.
    StorageError
        If it cannot be opened.
    """
    with ExitStack() as stack:
        if name == "-":
            yield Input("standard input", stack, None, _standard("stdin"), True)
        elif is_special(name):
            yield Input(name, stack, None, stack.enter_context(_open(name, "rb")))
        else:
            _refuse_several(name)
            with segment.attach(name) as found:
                data = found.data
            yield Input(name, stack, data)


# --- output -----------------------------------------------------------------------------------------------------


class Output:
    """The output; made by :func:`open_output`.

    Attributes
    ----------
    sink : Sink
        The destination, published at the end of :func:`open_output`.
    """

    def __init__(self, name: str, sink: Sink) -> None:
        self.name = name
        self.sink = sink

    @property
    def size(self) -> int:
        """Bytes written."""
        return self.sink.size

    def file(self) -> io.RawIOBase:
        """The sink as a binary file object."""
        return _SinkFile(self.sink)


class _SinkFile(io.RawIOBase):
    """A sink as a binary file object that cannot seek."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self._error: Exception | None = None

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        if self._error is not None:
            raise self._error  # libraries keep writing during cleanup; report the first error
        view = memoryview(data).cast("B")
        try:
            self._sink.write([np.frombuffer(view, U1)])
        except Exception as error:
            self._error = error
            raise
        return len(view)

    def tell(self) -> int:
        return self._sink.size


def _refuse_planted(name: str) -> None:
    """Refuse to write to another user's file in a sticky world-writable directory, which may be planted."""
    for path in (name, os.path.realpath(name)):
        found = os.lstat(path)
        if is_planted(path, found):
            error = OSError(errno.EACCES, f"it belongs to user {found.st_uid}, in a world-writable directory")
            raise storage_error(error, "write to", name, "write to a file, or to a pipe of your own")


@contextmanager
def open_output(name: str, overwrite: bool) -> Iterator[Output]:
    """Open an output: a path, ``shm:NAME``, or ``-`` for standard output.

    Writing to a path or a name is atomic: an exception in the block discards the output.

    Raises
    ------
    ObjectExists
        If the name exists and ``overwrite`` is False.
    """
    with ExitStack() as stack:
        target: Any = name
        if name == "-":
            target = _standard("stdout")
        elif is_special(name):
            _refuse_planted(name)
            target = stack.enter_context(_open(name, "wb"))
        yield Output(name, stack.enter_context(open_sink(target, overwrite=overwrite)))
