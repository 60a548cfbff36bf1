"""Sources and sinks: a path, a ``shm:NAME``, a file object, or bytes.

The one file of ``ipc`` that opens anything. A path or a name is mapped and its bytes are never copied; what is written
to one appears whole when the writer is closed, or not at all.
"""

from __future__ import annotations

import mmap
import os
import stat
from collections.abc import Sequence
from typing import Any

from shmarrow import segment
from shmarrow.buffer import Bytes, as_bytes
from shmarrow.errors import InvalidType, storage_error
from shmarrow.sources.pieces import joined


class Source:
    """Bytes to read from: all of them at once, or a file object that gives them piece by piece.

    Attributes
    ----------
    name : str
        What the bytes are, for error messages.
    data : uint8 ndarray or None
        All bytes, where they can be had without reading them; a read-only view.
    file : file object or None
        Where the bytes come from otherwise.
    mapped : bool
        Whether ``data`` is a mapping of a file or of shared memory.
    """

    __slots__ = ("_segment", "data", "file", "mapped", "name")

    def __init__(self, source: Any, memory_map: bool = True) -> None:
        self.data: Bytes | None = None
        self.file: Any = None
        self._segment: segment.Segment | None = None
        self.mapped = False
        if isinstance(source, segment.Segment):
            self.name, self.data, self.mapped = source.name, source.data, True
        elif segment.is_location(source):
            self._open(source, memory_map)
        elif hasattr(source, "read") and not isinstance(source, mmap.mmap):
            self.name = _name_of(source)
            self._from_file(source)
        else:
            self.name = (
                f"{len(memoryview(source).cast('B'))} bytes" if isinstance(source, (bytes, bytearray)) else "a buffer"
            )
            self.data = as_bytes(source)

    def _open(self, location: segment.Location, memory_map: bool) -> None:
        found = segment.attach(location)
        self.name = found.name
        if memory_map or self.name.startswith(segment.SHM_SCHEME):
            self.data = self._map(found)
            return
        with found:
            self.data = found.data.copy()
        self.data.flags.writeable = False

    def _map(self, found: segment.Segment) -> Bytes:
        """Take the bytes from a segment that was attached here."""
        self._segment, self.mapped = found, True
        return found.data

    def _from_file(self, source: Any) -> None:
        try:
            in_memory = source.getbuffer()
        except (AttributeError, ValueError, TypeError):
            self.file = source
            return
        # A view would keep the file object from growing or closing for as long as an array lives.
        self.data = as_bytes(in_memory.tobytes()[source.tell() :])

    @property
    def identity(self) -> tuple[int, int, int, int] | None:
        """Which file the bytes are mapped from, and when it changed; None where they are not mapped."""
        return None if self._segment is None else self._segment.identity

    @property
    def mode(self) -> int:
        """The permission bits of the file that the bytes are mapped from."""
        assert self._segment is not None
        return self._segment.mode

    def all(self) -> Bytes:
        """All bytes, read from the file object where there is one."""
        if self.data is None:
            self.data = self._map_or_read()
        return self.data

    def _map_or_read(self) -> Bytes:
        source = self.file
        try:
            number = source.fileno()
            regular = stat.S_ISREG(os.fstat(number).st_mode)
            position = source.tell()
        except (AttributeError, OSError, ValueError):
            regular, position, number = False, 0, -1
        if regular and position == 0 and os.path.exists("/proc/self/fd"):
            return self._map(segment.attach(f"/proc/self/fd/{number}"))
        try:
            return as_bytes(source.read())
        except OSError as error:
            raise storage_error(error, "read", self.name) from None

    def read_into(self, target: Any) -> int:
        """Fill a writable uint8 ndarray from the file object; gives how many bytes there were."""
        done = 0
        view = memoryview(target)
        size = len(view)
        read_into = getattr(self.file, "readinto", None)
        while done < size:
            try:
                if read_into is not None:
                    got = read_into(view[done:])
                else:
                    part = self.file.read(size - done)
                    got = len(part)
                    view[done : done + got] = part
            except OSError as error:
                raise storage_error(error, "read", self.name) from None
            if got is None:
                raise InvalidType(f"{self.name} is non-blocking; use the push parser, StreamDecoder")
            if not got:
                break
            done += got
        return done

    def close(self) -> None:
        """Let go of what was opened here; arrays keep their mapping alive."""
        if self._segment is not None:
            self._segment.close()
            self._segment = None
        self.data = None


def _name_of(file: Any) -> str:
    name = getattr(file, "name", None)
    return name if isinstance(name, str) else f"a {type(file).__name__}"


class Sink:
    """Where a writer's bytes go, one after another.

    Attributes
    ----------
    name : str
        What is written to, for error messages.
    position : int
        Bytes written so far.
    """

    __slots__ = ("_file", "_segment", "name", "position")

    def __init__(
        self,
        sink: Any,
        *,
        overwrite: bool = False,
        mode: int = 0o400,
        durable: bool = False,
        replacing: tuple[int, int, int, int] | None = None,
    ) -> None:
        self.position = 0
        self._file: Any = None
        self._segment: segment.SegmentWriter | None = None
        if isinstance(sink, segment.SegmentWriter):
            self._segment, self.name, self.position = sink, sink.name, sink.size
        elif segment.is_location(sink):
            self.name = os.fspath(sink)
            self._segment = segment.create(sink, mode=mode, overwrite=overwrite, durable=durable, replacing=replacing)
        elif hasattr(sink, "write"):
            self._file, self.name = sink, _name_of(sink)
        else:
            raise InvalidType(f"a sink is a path, a shm: name or a file object, found {type(sink).__name__}")

    def write(self, pieces: Sequence[Any]) -> None:
        """Write all pieces, each bytes or a C-contiguous uint8 ndarray."""
        fewer = joined(pieces)
        if self._segment is not None:
            self.position += self._segment.write(fewer)
            return
        for piece in fewer:
            self._write_one(memoryview(piece))

    def _write_one(self, view: memoryview) -> None:
        done = 0
        try:
            while done < len(view):
                written = self._file.write(view[done:] if done else view)
                # Buffered files say nothing or all; raw ones may take a part.
                done = len(view) if written is None else done + written
        except OSError as error:
            raise storage_error(error, "write to", self.name) from None
        self.position += len(view)

    def allocate(self, size: int) -> Bytes:
        """Room for the next ``size`` bytes, writable, to be filled in place; zeros until then.

        Raises
        ------
        InvalidType
            If the sink is a file object, which has no memory to hand out.
        """
        if self._segment is None:
            raise InvalidType(f"to be filled in place, {self.name} must be a path or a shm: name, found a file object")
        start = self.position
        self.position += size
        return self._segment.map(self.position)[start:]

    def finish(self) -> None:
        """Everything is written: publish it where it has a name, flush it where it is a file object."""
        if self._segment is not None:
            self._segment.publish()
        elif hasattr(self._file, "flush"):
            self._file.flush()

    def abort(self) -> None:
        """Give up: nothing is published."""
        if self._segment is not None:
            self._segment.discard()
