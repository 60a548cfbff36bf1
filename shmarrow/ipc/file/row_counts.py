"""Row counts of the batches of a file, read from the metadata of all batches with array operations."""

from __future__ import annotations

from typing import Any

import numpy as np

from shmarrow.buffer import Bytes, Indices, NDArray
from shmarrow.ipc.flatbuffers.tables import ENUMS, UNIONS
from shmarrow.ipc.message.decode import READ_VERSIONS

_AT_ONCE = 1 << 16
_PREFIX = 8
_RECORD_BATCH = UNIONS["MessageHeader"].index("RecordBatch") + 1
_VERSIONS = [ENUMS["MetadataVersion"][name] for name in READ_VERSIONS]
_U1, _U2, _U4, _I2, _I4, _I8 = map(np.dtype, ("u1", "<u2", "<u4", "<i2", "<i4", "<i8"))


def row_counts(data: Bytes, blocks: NDArray) -> Indices:
    """Number of rows of the batch of each block, shape (n,); -1 for a message to be read, or refused, by itself.

    Parameters
    ----------
    data : uint8 ndarray
        The bytes that blocks refer to.
    blocks : ndarray of Block
        The blocks of a footer.
    """
    parts = [_Messages(data, blocks[i : i + _AT_ONCE]).rows() for i in range(0, len(blocks), _AT_ONCE)]
    return np.concatenate([np.empty(0, np.int64), *parts])


class _Messages:
    """The metadata of some messages, as arrays with an item for each.

    Whatever is out of bounds, or not as expected, clears the ``good`` flag of its message; its numbers mean nothing.
    """

    def __init__(self, data: Bytes, blocks: NDArray) -> None:
        self._data = data
        self._start: Any = blocks["offset"]
        size, self._body = blocks["metaDataLength"].astype(np.int64), blocks["bodyLength"]
        self.good = (self._start >= 0) & (size >= 2 * _PREFIX) & (self._body >= 0) & (self._start <= len(data) - size)
        self._end = np.where(self.good, self._start + size, 0)
        self.good &= self._body <= len(data) - self._end

    def rows(self) -> Indices:
        start = self._start
        self.good &= self._numbers(start, _U4) == 0xFFFFFFFF
        self.good &= self._numbers(start + 4, _I4) == self._end - start - _PREFIX
        message = _Table(self, start + _PREFIX)
        self.good &= np.isin(message.slot(0, _I2), _VERSIONS) & (message.slot(1, _U1) == _RECORD_BATCH)
        self.good &= (message.place(2) > 0) & (message.slot(3, _I8) == self._body)
        found = _Table(self, message.place(2)).slot(0, _I8)
        return np.where(self.good, found, -1)

    def _numbers(self, places: Any, dtype: Any) -> Any:
        """The numbers at some places in the metadata."""
        self.good &= (places >= self._start) & (places <= self._end - dtype.itemsize)
        bytes = self._data[np.where(self.good, places, 0)[:, None] + np.arange(dtype.itemsize)]
        return bytes.view(dtype)[:, 0].astype(np.int64)


class _Table:
    """A table of each message, which the offsets at some places refer to."""

    def __init__(self, messages: _Messages, offsets: Any) -> None:
        self._messages = messages
        self._at = offsets + messages._numbers(offsets, _U4)
        self._vtable = self._at - messages._numbers(self._at, _I4)
        self._slots = (messages._numbers(self._vtable, _U2) - 4) // 2

    def place(self, number: int) -> Any:
        """The places of a slot's values; 0 where absent."""
        there = self._slots > number
        offset = self._messages._numbers(np.where(there, self._vtable + 4 + 2 * number, self._at), _U2)
        self._messages.good &= ~there | (offset == 0) | (offset >= 4)
        return np.where(there & (offset > 0), self._at + offset, 0)

    def slot(self, number: int, dtype: Any) -> Any:
        """The numbers in a slot; 0 where absent."""
        place = self.place(number)
        return np.where(place > 0, self._messages._numbers(np.where(place > 0, place, self._at), dtype), 0)
