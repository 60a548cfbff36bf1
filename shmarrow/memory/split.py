# SPDX-License-Identifier: Apache-2.0
"""Bytes that are in several files, as one body: its buffers are told by their places.

A place is an offset in the body: ``n`` in its own bytes, ``k * FILE_STRIDE + n`` in the k-th other file. So say record
batches of objects that share memory with others (:mod:`shmarrow.reuse`), and handles.
"""

from __future__ import annotations

from typing import Protocol

from shmarrow.buffer import Bytes
from shmarrow.errors import InvalidData

FILE_STRIDE = 1 << 48
"""The places of one file; no file that is mapped is as large."""


class NumberedFiles(Protocol):
    """Files by their numbers, from 1 on, which are mapped on first use."""

    @property
    def count(self) -> int:
        """Their number."""

    def data(self, number: int, /) -> Bytes:
        """All bytes of a file."""


class SplitBody:
    """A body in several files: a sequence of bytes, read by slices within one file.

    Attributes
    ----------
    own : uint8 ndarray
        The bytes that come first, in no other file.
    """

    __slots__ = ("_files", "own")

    def __init__(self, own: Bytes, files: NumberedFiles) -> None:
        self.own = own
        self._files = files

    def __len__(self) -> int:
        return (self._files.count + 1) * FILE_STRIDE

    def __getitem__(self, part: slice) -> Bytes:
        number, start = divmod(part.start, FILE_STRIDE)
        stop = part.stop - number * FILE_STRIDE
        data = self._files.data(number) if number else self.own
        if not start <= stop <= len(data):
            where = f"part {number} of the object" if number else "the body"
            raise InvalidData(f"a buffer needs [{start}, {stop}) of {where}, which has {len(data)} bytes")
        return data[start:stop]
