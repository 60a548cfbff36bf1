# SPDX-License-Identifier: Apache-2.0
"""Sources to read from and sinks to write to: what is mapped, and what is read.

=======================================  ==================================  ======================
what is opened                           to read at random                   to read in sequence
=======================================  ==================================  ======================
a path, ``shm:NAME``                     mapped (``memory_map=False``:       the same
                                         read as a whole)
a :class:`~shmarrow.segment.Segment`     its mapping                         the same
``io.FileIO``, and a buffered reader     mapped (``memory_map=False``:       read piece by piece
of one, over a regular file              read as a whole)
``io.BytesIO``, ``mmap``, bytes-like     used in place                       the same
a gzip, bz2 or lzma file, a pipe, a      read as a whole                     read piece by piece
socket, anything not seekable
any other file object that can seek,     ranges of it are read when they     read piece by piece
such as one of ``fsspec``                are asked for
=======================================  ==================================  ======================

Random access covers the whole file object, regardless of its position, and leaves the position unspecified; only
unseekable ones are read from their current position. Sequential access reads from the current position and advances it.

The docstrings of ``buffers``, ``ranges``, ``sequential`` and ``sinks`` list what is mapped, read and copied.
"""

from __future__ import annotations

import mmap
import sys
from typing import Any

from shmarrow.buffer import Bytes
from shmarrow.errors import InvalidArgument, Unsupported, full_name
from shmarrow.memory.attached import Segment, map_object, read_object
from shmarrow.memory.buffers import open_buffer, open_bytes_io, open_file_io
from shmarrow.memory.location import Location, is_location, resolve
from shmarrow.memory.source import Source


def open_source(
    source: Any, memory_map: bool = True, *, sequential: bool = False, survive: bool = False, small: int = 0
) -> Source:
    """Open a source as in the table above.

    Parameters
    ----------
    source : path, ``shm:NAME``, Segment, file object, socket or bytes-like
        The source. The caller's file object or socket is never closed.
    memory_map : bool
        False reads paths, names and files into memory instead of mapping them, which protects against truncation. A
        Segment is always mapped.
    sequential : bool
        Whether to read sequentially, from a file object's current position.
    survive : bool
        Whether views keep their values if the file is truncated; see :mod:`shmarrow.memory.lease`.
    small : int
        The size in bytes up to which a path or a name is read instead of mapped.

    Raises
    ------
    ObjectNotFound
        If the source does not exist.
    StorageError
        If the bytes cannot be read.
    InvalidType
        If it is not a readable source, such as a text-mode file or a file opened for writing.
    Closed
        If the file object is closed.
    """
    if is_location(source):
        if not memory_map:
            return Source(*read_object(source))
        if survive:
            return Source(*surviving(source), mapped=True, own=True)
        name, _, data, status = map_object(*resolve(source), small)
        return Source(name, data, mapped=data.base is not None, own=True, status=status)
    if survive:
        raise InvalidArgument(f"survive=True is for files, by their paths; found {full_name(source)}")
    if isinstance(source, Segment):
        return Source(source.name, source.data, mapped=True)
    if _is_file(source):
        return _open_file(source, memory_map, sequential)
    return open_buffer(source, sequential)


def surviving(where: Location) -> tuple[str, Bytes]:
    """Map a file by a lease; Unsupported on platforms that have none."""
    if sys.platform != "linux":
        raise Unsupported("survive=True needs Linux", hint="memory_map=False reads the file")
    from shmarrow.memory.lease import map_surviving

    return map_surviving(where)


def _is_file(source: Any) -> bool:
    if isinstance(source, (bytes, bytearray, memoryview, mmap.mmap)):
        return False
    return hasattr(source, "read") or hasattr(source, "readinto") or hasattr(source, "recv_into")


def _open_file(file: Any, memory_map: bool, sequential: bool) -> Source:
    from shmarrow.memory.sequential import SequentialSource, check_file

    check_file(file, "rb")
    opened = open_bytes_io(file, sequential)
    if opened is None and not sequential:
        from shmarrow.memory.ranges import open_ranges

        opened = open_file_io(file, memory_map) or open_ranges(file)
    if opened is not None:
        return opened
    stream = SequentialSource(file)
    return stream if sequential else stream.read_all()
