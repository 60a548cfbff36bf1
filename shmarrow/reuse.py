# SPDX-License-Identifier: Apache-2.0
"""Objects of a store that share buffers with others: what ``Store.put(..., reuse=True)`` writes, and how it is read.

A buffer that is a view of another object of the store is not written again. The new object's file is an Arrow file (or
stream) of the other buffers; the files of the objects that it shares with get second names, hard links, and become its
*parts*. So the kernel keeps the pages of a file as long as any object needs them, whatever becomes of the others.

Invariants:

* references lead to files, never to other references: what a value was read from is a file, which is linked again. So
  the number of steps to a buffer does not grow with the number of objects in between;
* each range of a part is checked against the size of its file before a view is made of it;
* a part is opened and mapped when a buffer in it is first used, so that opening an object costs the same for 100 parts
  as for one. As long as an object is attached, its parts keep their names, even if it was removed.
"""

from __future__ import annotations

import os
from bisect import bisect_right
from collections.abc import Callable
from contextlib import suppress
from typing import Any
from weakref import ref

from shmarrow.buffer import Bytes
from shmarrow.errors import InvalidArgument
from shmarrow.ipc.options import IpcWriteOptions, as_options
from shmarrow.memory import Mapping
from shmarrow.memory.split import FILE_STRIDE, SplitBody
from shmarrow.objects.encode import Encoded, encode


class SharedFiles:
    """The files that an attached object shares with others, its parts.

    Parameters
    ----------
    count : int
        Their number.
    attach : callable
        Maps a part, by its number from 1 on.

    Notes
    -----
    Thread safety: may be shared. Threads that first use a part at the same time may map it twice; one mapping is kept.
    """

    __slots__ = ("_attach", "_attached", "count")

    def __init__(self, count: int, attach: Callable[[int], Bytes]) -> None:
        self.count = count
        self._attach = attach
        self._attached: dict[int, Bytes] = {}

    def data(self, number: int) -> Bytes:
        """Return all bytes of a part, a view."""
        mapped = self._attached.get(number)
        return self._attached.setdefault(number, self._attach(number)) if mapped is None else mapped

    def body(self, own: Bytes) -> SplitBody:
        """Return the body of a message that has the bytes ``own`` in the object's own file."""
        return SplitBody(own, self)


_PAGE = 4096
"""Minimum number of bytes of a file that are shared rather than copied."""


class _Source:
    """A file of the store: an open descriptor, and how many bytes of it are used."""

    __slots__ = ("fd", "number", "used")

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self.number = self.used = 0


class Sources:
    """The files that a new object shares with others; closed at the end of a ``with`` block.

    Parameters
    ----------
    mapped : set of weak references to Mapping
        The files of the store that are mapped in this process, which grows as columns are read. Buffers are recognised
        by their addresses, so they may have been through other libraries.
    most : int
        Maximum number of files to share.
    """

    def __init__(self, mapped: set[ref[Mapping]], most: int) -> None:
        self._mapped = mapped
        self._most = most
        self._mappings: list[Mapping] = []
        self._starts: list[int] = []
        self._known: dict[tuple[int, int], _Source | None] = {}
        self._linked: list[_Source] = []

    @property
    def descriptors(self) -> list[int]:
        """Descriptors of the files that become parts of the object, in the order of their numbers from 1 on."""
        return [source.fd for source in self._linked]

    def encode(self, value: Any, options: IpcWriteOptions | None) -> Encoded:
        """Encode a value without its buffers in these files.

        Files of which less than a page is used are not worth a name, nor are those of which least is used if there are
        too many: their buffers are written.

        Raises
        ------
        InvalidArgument
            If the options ask for compression or for big-endian values, which are never shared.
        """
        options = as_options(options)
        if options.compression is not None or options.endianness != "little":
            raise InvalidArgument("reuse=True shares buffers as they are: options cannot compress them or swap bytes")
        while True:
            for source in self._linked:
                source.number = source.used = 0
            self._linked = []
            encoded = encode(value, options, self._locate)
            used = sorted(self._linked, key=lambda source: source.used, reverse=True)
            spare = [source for at, source in enumerate(used) if at >= self._most or source.used < _PAGE]
            if not spare:
                return encoded
            for source in spare:
                self._exclude(source)

    def exclude(self, number: int) -> None:
        """Let the buffers of a part be written that could not be linked."""
        self._exclude(self._linked[number - 1])

    def _exclude(self, source: _Source) -> None:
        self._known = {key: None if other is source else other for key, other in self._known.items()}
        os.close(source.fd)

    def _locate(self, data: Bytes) -> int | None:
        """The offset of a buffer in a body of several files; None if it is in none of them."""
        address: int = data.__array_interface__["data"][0]
        place = self._mapping_at(address)
        if place is None and len(self._mapped) > len(self._mappings):  # reading this column has mapped another file
            self._look()
            place = self._mapping_at(address)
        if place is None:
            return None
        start, mapping = place
        if address + len(data) > start + len(mapping):
            return None
        key = mapping.identity[:2]
        if key not in self._known:
            fd = _descriptor(mapping)
            self._known[key] = None if fd is None else _Source(fd)
        source = self._known[key]
        if source is None:
            return None
        if not source.number:
            self._linked.append(source)
            source.number = len(self._linked)
        source.used += len(data)
        return source.number * FILE_STRIDE + address - start

    def _look(self) -> None:
        """Take all files that are mapped now."""
        mappings = [mapping for each in list(self._mapped) if (mapping := each()) is not None]
        self._mappings = sorted(mappings, key=lambda mapping: mapping.address)
        self._starts = [mapping.address for mapping in self._mappings]

    def _mapping_at(self, address: int) -> tuple[int, Mapping] | None:
        """The mapping that contains an address, and where it starts."""
        at = bisect_right(self._starts, address) - 1
        if at < 0 or address >= self._starts[at] + len(self._mappings[at]):
            return None
        return self._starts[at], self._mappings[at]

    def __enter__(self) -> Sources:
        return self

    def __exit__(self, *_: object) -> None:
        for source in self._known.values():
            if source is not None:
                with suppress(OSError):
                    os.close(source.fd)


def _descriptor(mapping: Mapping) -> int | None:
    """Open a file that can be linked; None if it has no name any more, or cannot be opened.

    As a part of another object it may have another name in the directory of the store than when it was mapped.
    """
    with suppress(OSError):
        fd = mapping.descriptor()
        if fd is None and mapping.location is not None:
            with os.scandir(os.path.dirname(mapping.location)) as entries:
                names = [entry.path for entry in entries if entry.inode() == mapping.identity[1]]
            fd = next((fd for name in names if (fd := mapping.descriptor(name)) is not None), None)
        if fd is None or os.fstat(fd).st_nlink:
            return fd
        os.close(fd)
    return None
