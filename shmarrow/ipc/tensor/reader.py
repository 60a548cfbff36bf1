# SPDX-License-Identifier: Apache-2.0
"""Readers of dense and sparse tensors.

Invariants:

* messages are contiguous, except for zero padding up to the next 64-byte boundary;
* messages of other kinds between tensors are skipped;
* a file object is left at the end of the last message read.
"""

from __future__ import annotations

from typing import Any, Self

from shmarrow.buffer import ALIGNMENT, Bytes
from shmarrow.errors import DEFAULT_LIMITS, InvalidData, Limits, as_limits, printable
from shmarrow.ipc.message.decode import CONTINUATION, Message, message_at, read_prefix
from shmarrow.ipc.tensor.decode import read_header
from shmarrow.memory import CLOSE, SEQUENTIAL, NotCopied, Source, StateMachine, open_source
from shmarrow.tensor import SparseTensor, Tensor

_PART = 1 << 26
"""Chunk size for skipping bodies."""


def read_tensor(source: Any, *, limits: Limits = DEFAULT_LIMITS, memory_map: bool = True) -> Tensor | SparseTensor:
    """Read the tensor, dense or sparse, in the first message of a source.

    Parameters
    ----------
    source : path, ``shm:NAME``, Segment, file object or bytes-like
        A path or a name is mapped, and the tensor is a view that keeps the mapping alive. A file object is read from
        its current position up to the end of the message.
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
        If the source does not exist.
    StorageError
        If the source cannot be read.
    InvalidData
        If there is no tensor message, or it is truncated or invalid.
    """
    limits = as_limits(limits)
    opened = open_source(source, memory_map, sequential=True)
    try:
        return MessageCursor(opened, limits).read_first()
    finally:
        opened.close()


def read_tensors(source: Any, *, limits: Limits = DEFAULT_LIMITS, memory_map: bool = True) -> TensorReader:
    """Iterate over the tensors of a source.

    Messages of other kinds are skipped. Parameters and errors are those of :func:`read_tensor`.

    Returns
    -------
    TensorReader
        A lazy iterator.
    """
    limits = as_limits(limits)
    return TensorReader(open_source(source, memory_map, sequential=True), limits)


class MessageCursor:
    """A position in a source that advances with each message read."""

    def __init__(self, source: Source, limits: Limits) -> None:
        self._source = source
        self._limits = limits
        self._position = 0

    def read_first(self) -> Tensor | SparseTensor:
        """Read a tensor from the first message; a message of another kind is an error."""
        tensor = self._read_message()
        if tensor is None or isinstance(tensor, Message):
            raise InvalidData(
                f"{self._source.name}: expected a Tensor or a SparseTensor message, "
                f"found {'the end of the stream' if tensor is None else f'a {tensor.kind}'}; "
                "ipc.read_tensors finds tensors among other messages"
            )
        self._source.advance(self._position)
        return tensor

    def _read_message(self) -> Tensor | SparseTensor | Message | None:
        """Read the next message: a tensor, or the message itself if of another kind; None at the end."""
        source, limits = self._source, self._limits
        name = source.name
        while True:
            start = self._position
            head = self._take(4).tobytes()
            if head == CONTINUATION:
                head += self._take(4).tobytes()
            elif head == bytes(4) and start % ALIGNMENT:
                if self._take(-self._position % ALIGNMENT).any():
                    raise InvalidData(f"{name}: expected a message, or zeros up to a multiple of 64, at {start}")
                continue
            where = f"{name}: the message at {start}"
            if source.data is not None:
                located = message_at(source.data, start, name, limits, parse=read_header)
                if located is None:
                    return None
                self._position = located.end
                body = source.data[located.body : located.end]
                return located.message if isinstance(located.message, Message) else located.message.over(body)
            prefix = read_prefix(head, 0, where, limits)
            if prefix is None:
                return None
            header = read_header(self._take(prefix[1], f"the metadata at {start}"), where, limits)
            if not isinstance(header, Message):
                return header.over(self._take(header.body_length, f"the body of the message at {start}"))
            left = header.body_length
            while left:
                left -= len(self._take(min(left, _PART), f"the body of the message at {start}"))
            return header

    def _take(self, size: int, what: str = "") -> Bytes:
        """Read the next ``size`` bytes; fewer at the end, unless ``what`` names a part that must be complete."""
        start, source = self._position, self._source
        data = source.data
        taken = source.take(size) if data is None else data[start : start + size]
        self._position += len(taken)
        if what and len(taken) < size:
            raise InvalidData(
                f"{source.name}: {what} needs [{start}, {start + size}) but there are {self._position} bytes"
            )
        return taken


class TensorReader(NotCopied, MessageCursor):
    """An iterator over the tensors of a source, and a context manager; made by :func:`read_tensors`.

    After an error, the reader raises :class:`shmarrow.Failed`, which quotes the first error.

    Notes
    -----
    Thread safety: may be shared; each tensor is returned to one thread. A forked child can only close its copy.
    """

    def __init__(self, source: Source, limits: Limits) -> None:
        super().__init__(source, limits)
        self._states = StateMachine(f"the reader of {source.name}", SEQUENTIAL)

    def __repr__(self) -> str:
        return f"<TensorReader of {printable(self._source.name)}: {self._states.state}>"

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Tensor | SparseTensor:
        tensor = self._states.read(self._next)
        if tensor is None:
            raise StopIteration
        return tensor

    def _next(self) -> Tensor | SparseTensor | None:
        message = self._read_message()
        while isinstance(message, Message):
            message = self._read_message()
        self._source.advance(self._position)
        return message

    def close(self) -> None:
        """Release the source; existing tensors keep their memory."""
        self._states.go(CLOSE)
        self._source.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
