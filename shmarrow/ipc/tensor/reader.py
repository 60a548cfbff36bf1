"""Reading tensors, dense and sparse, from a source that holds one or many of them.

Rules kept here:

* a message starts where the one before it ends; between messages there may be zeros up to the next 64-byte boundary;
* messages of other kinds may stand between those of tensors; where bytes can be skipped, their bodies are not read;
* a file object is left at the end of the last message that was read.
"""

from __future__ import annotations

import _thread
from types import TracebackType
from typing import Any, Self

import numpy as np

from shmarrow.buffer import ALIGNMENT, Bytes
from shmarrow.errors import DEFAULT_LIMITS, InvalidData, LimitExceeded, Limits
from shmarrow.ipc.message.decode import Message
from shmarrow.ipc.message.framing import CONTINUATION, read_prefix
from shmarrow.ipc.tensor.decode import read_header
from shmarrow.sources import open_source
from shmarrow.sources.base import Source
from shmarrow.states import CLOSE, CLOSED, END, ENDED, FAIL, FAILED, OPEN, READ, NotCopied, StateMachine

STATES = {
    OPEN: {READ: OPEN, END: ENDED, FAIL: FAILED, CLOSE: CLOSED},
    ENDED: {READ: ENDED, CLOSE: CLOSED},
    FAILED: {CLOSE: CLOSED},
    CLOSED: {CLOSE: CLOSED},
}
"""Of a :class:`TensorReader`."""


def read_tensor(source: Any, *, limits: Limits = DEFAULT_LIMITS, memory_map: bool = True) -> Any:
    """Read the tensor, dense or sparse, whose message is the first of a source.

    Parameters
    ----------
    source : path, ``shm:NAME``, Segment, file object or bytes-like
        A path or a name is mapped, and the tensor is a view of the mapping, which lives as long as the tensor. A file
        object is read from its position on, and left at the end of the message.
    limits : Limits, optional
        Bounds on what is accepted.
    memory_map : bool
        False reads into memory instead of mapping.

    Returns
    -------
    Tensor or SparseTensor

    Raises
    ------
    ObjectNotFound
        If there is nothing of this name.
    StorageError
        If the source cannot be read.
    InvalidData
        If there is no message of a tensor, or it is cut or breaks the format.
    """
    opened = open_source(source, memory_map, sequential=True)
    try:
        cursor = MessageCursor(opened, limits)
        found = cursor.next()
        if found is None:
            raise InvalidData(f"{opened.name}: expected the message of a tensor, found the end of the stream")
        if isinstance(found, Message):
            raise InvalidData(
                f"{opened.name}: expected a Tensor or a SparseTensor message, found a {found.kind}; "
                "ipc.read_tensors finds tensors among other messages"
            )
        opened.advance(cursor.position)
        return found
    finally:
        opened.close()


def read_tensors(source: Any, *, limits: Limits = DEFAULT_LIMITS, memory_map: bool = True) -> TensorReader:
    """Read the tensors of a source one after another.

    Messages of other kinds between them are skipped. The parameters and errors are those of :func:`read_tensor`.

    Returns
    -------
    TensorReader
        An iterator, which reads a message when it comes to it.
    """
    return TensorReader(open_source(source, memory_map, sequential=True), limits)


class TensorReader(NotCopied):
    """An iterator over the tensors of a source, and a context manager; made by :func:`read_tensors`.

    An error fails the reader: it raises :class:`shmarrow.Failed` from then on, which names that first error.

    Notes
    -----
    Thread safety: threads may share a reader; each tensor goes to one of them. A forked child can only close its copy.
    """

    def __init__(self, source: Source, limits: Limits) -> None:
        self._source = source
        self._cursor = MessageCursor(source, limits)
        self._states = StateMachine(f"the reader of {source.name}", STATES)
        self._lock = _thread.allocate_lock()

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Any:
        self._states.go(READ)
        with self._lock:
            self._states.go(READ)  # another thread may have closed it in the meantime, or failed
            if self._states.state == ENDED:
                raise StopIteration
            try:
                found = self._cursor.next()
                while isinstance(found, Message):
                    found = self._cursor.next()
                self._source.advance(self._cursor.position)
            except BaseException as error:
                self._states.fail(error)
                raise
            if found is None:
                self._states.go(END)
                raise StopIteration
            return found

    def close(self) -> None:
        """Release the source; tensors that were handed out keep their memory."""
        self._states.go(CLOSE)
        self._source.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class MessageCursor:
    """A position in a source, which moves on with each message that is read."""

    __slots__ = ("_limits", "_source", "position")

    def __init__(self, source: Source, limits: Limits) -> None:
        self._source = source
        self._limits = limits
        self.position = 0

    def next(self) -> Any:
        """What the next message holds: a tensor, or the message itself if it is of another kind; None at the end."""
        source, limits = self._source, self._limits
        while True:
            start = self.position
            head = self._take(4).tobytes()
            if head == CONTINUATION:
                head += self._take(4).tobytes()
            elif head == bytes(4) and start % ALIGNMENT:
                if self._take(-self.position % ALIGNMENT).any():
                    raise InvalidData(f"{source.name}: expected a message, or zeros up to a multiple of 64, at {start}")
                continue
            where = f"{source.name}: the message at {start}"
            prefix = read_prefix(head, 0, where, limits)
            if prefix is None:
                return None
            header = read_header(self._take(prefix[1], "the metadata", start), where, limits)
            if isinstance(header, Message):
                self._skip(header.body_length, start)
                return header
            return header.over(self._take(header.body_length, "the body of the message", start))

    def _take(self, size: int, what: str = "", message: int = 0) -> Bytes:
        """The next ``size`` bytes; fewer at the end, unless ``what`` says what must be whole."""
        start = self.position
        data = self._source.data
        taken = self._receive(size) if data is None else data[start : start + size]
        self.position += len(taken)
        if what and len(taken) < size:
            self._cut(what, message, start, size)
        return taken

    def _receive(self, size: int) -> Bytes:
        """The next ``size`` bytes of a sequential source, fewer at its end."""
        try:
            target = np.empty(size, np.uint8)
        except (MemoryError, ValueError):
            raise LimitExceeded(
                f"{self._source.name}: the message at {self.position} asks for {size} bytes of memory"
            ) from None
        got = self._source.read_into(target)
        target.flags.writeable = False
        return target[:got]

    def _skip(self, size: int, message: int) -> None:
        """Move on over the body of a message that is not asked for."""
        start = self.position
        if self._source.size is not None:
            self.position = min(start + size, self._source.size)
        else:
            while (left := start + size - self.position) and len(self._take(min(left, 1 << 20))):
                pass
        if self.position < start + size:
            self._cut("the body of the message", message, start, size)

    def _cut(self, what: str, message: int, start: int, size: int) -> None:
        raise InvalidData(
            f"{self._source.name}: {what} at {message} needs [{start}, {start + size}) "
            f"but there are {self.position} bytes"
        )


read_sparse_tensor = read_tensor
