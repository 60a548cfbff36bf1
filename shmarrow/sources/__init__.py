"""Where bytes come from and where they go.

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
socket, whatever cannot seek
any other file object that can seek,     ranges of it are read when they     read piece by piece
such as one of ``fsspec``                are asked for
=======================================  ==================================  ======================

At random, a file object counts as a whole, wherever its position is, and the position that it is left at is not
specified; only what cannot seek is read from where it stands. In sequence, it is read from its position on, which
advances with what is read.

``mapped``, ``buffers``, ``ranges``, ``sequential`` and ``sinks`` each open with what is mapped, read and copied there.
"""

from __future__ import annotations

import mmap
from typing import TYPE_CHECKING, Any

from shmarrow import segment
from shmarrow.sources.base import Source
from shmarrow.sources.mapped import open_location, open_segment

if TYPE_CHECKING:
    from shmarrow.sources.sinks import Sink


def open_source(source: Any, memory_map: bool = True, *, sequential: bool = False) -> Source:
    """Open what is to be read; the table above says how.

    Parameters
    ----------
    source : path, ``shm:NAME``, Segment, file object, socket or bytes-like
        What to read. A file object or socket that is given is never closed here.
    memory_map : bool
        False reads paths, names and files into memory instead of mapping them, so that nobody who truncates the file
        later can harm the process. A Segment is mapped already.
    sequential : bool
        Whether a stream is read, from the position of a file object on.

    Raises
    ------
    ObjectNotFound
        If there is nothing of this name.
    StorageError
        If the operating system or the file object does not give the bytes.
    InvalidType
        If it is nothing that bytes can be read from: a text file, a file opened for writing, another kind of object.
    Closed
        If the file object is closed.
    """
    if segment.is_location(source):
        return open_location(source, memory_map)
    if isinstance(source, segment.Segment):
        return open_segment(source)
    if _is_file(source):
        return _open_file(source, memory_map, sequential)
    from shmarrow.sources.buffers import open_buffer

    return open_buffer(source, sequential)


def _is_file(source: Any) -> bool:
    reads = hasattr(source, "read") or hasattr(source, "readinto") or hasattr(source, "recv_into")
    return reads and not isinstance(source, (mmap.mmap, memoryview))


def _open_file(file: Any, memory_map: bool, sequential: bool) -> Source:
    from shmarrow.sources import buffers, mapped, ranges
    from shmarrow.sources import sequential as in_sequence

    in_sequence.check_readable(file)
    opened = buffers.open_bytes_io(file, sequential)
    if opened is None and not sequential:
        opened = mapped.open_file_io(file, memory_map) or ranges.open_ranges(file)
    if opened is not None:
        return opened
    stream = in_sequence.SequentialSource(file)
    return stream if sequential else stream.read_all()


def open_sink(
    sink: Any,
    *,
    overwrite: bool | None = None,
    mode: int | None = None,
    durable: bool = False,
    replacing: tuple[int, int, int, int] | None = None,
) -> Sink:
    """Open what is to be written; see :func:`shmarrow.sources.sinks.open_sink`."""
    from shmarrow.sources.sinks import open_sink

    return open_sink(sink, overwrite=overwrite, mode=mode, durable=durable, replacing=replacing)
