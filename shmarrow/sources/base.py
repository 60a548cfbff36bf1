"""What every source offers, however its bytes are held."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NoReturn

from shmarrow.buffer import Bytes
from shmarrow.errors import Closed, InvalidData, InvalidType


class Source:
    """Bytes to read from, at random or in sequence; made by :func:`shmarrow.sources.open_source`.

    Attributes
    ----------
    name : str
        What the bytes are, for error messages.
    data : uint8 ndarray or None
        All bytes, read-only, where they are in memory: a mapping, a buffer, or a file that was read as a whole.
    size : int or None
        How many bytes there are; None for a sequential source.
    mapped : bool
        Whether ``data`` is a mapping of a file or of shared memory.

    Notes
    -----
    Thread safety: the attributes change only in :meth:`close`. :meth:`read` and :meth:`fetch` may be called from
    several threads; a sequential source belongs to one reader, which takes care that its calls do not overlap.
    """

    __slots__ = ("closed", "data", "mapped", "name", "size")

    def __init__(self, name: str, data: Bytes | None, mapped: bool = False, size: int | None = None) -> None:
        self.name = name
        self.data = data
        self.mapped = mapped
        self.size = size if data is None else len(data)
        self.closed = False

    @property
    def location(self) -> str | None:
        """The ``shm:`` name or absolute path that it can be opened by again; None where only its opener knows."""
        return None

    @property
    def identity(self) -> tuple[int, int, int, int] | None:
        """Which file the bytes are mapped from, as :attr:`shmarrow.segment.Segment.identity`; None for other bytes."""
        return None

    @property
    def mode(self) -> int | None:
        """The permission bits of the file that the bytes are mapped from; None for other bytes."""
        return None

    def read(self, start: int, stop: int) -> Bytes:
        """The bytes from ``start`` to ``stop``: a view where they are in memory, and read where they are not.

        Raises `InvalidData` if there are not that many, `StorageError` if they cannot be read.
        """
        data = self.data
        if data is None:
            if self.closed:
                raise self._closed_error()
            return self._read(start, stop)
        if not 0 <= start <= stop <= len(data):
            raise InvalidData(f"{self.name}: expected the bytes [{start}, {stop}), found {len(data)} bytes")
        return data[start:stop]

    def _read(self, start: int, stop: int) -> Bytes:
        raise InvalidType(f"{self.name} is read in sequence, not at random")

    def fetch(self, ranges: Sequence[tuple[int, int]]) -> None:
        """Get (start, stop) ranges now, for which :meth:`read` will ask; nothing is done where they are in memory."""

    def read_into(self, view: Any) -> int:
        """Fill a writable buffer from where the last call ended; returns how many bytes, fewer only at the end.

        Raises `StorageError` if the file object fails, and `InvalidType` if it is no binary file in blocking mode. How
        many bytes it had given by then is not known.
        """
        raise InvalidType(f"{self.name} is read at random, not in sequence")

    def take(self, size: int) -> Bytes:
        """The next ``size`` bytes, or fewer at the end, as :meth:`read_into` reads them.

        Memory grows with what comes, not with what is asked for.
        """
        if self.closed:
            raise self._closed_error()
        raise InvalidType(f"{self.name} is read at random, not in sequence")

    def advance(self, position: int) -> None:
        """Move a file object's position to ``position`` bytes after where it was opened; a no-op for other sources.

        Only a source that was opened as sequential has such a position.
        """

    def close(self) -> None:
        """Let go of all that was opened or cached here; a file object that was given stays open.

        Arrays that were handed out keep their memory.
        """
        self.closed = True
        self.data = None

    def _closed_error(self) -> Closed:
        return Closed(f"{self.name} is closed; open it again")

    def __reduce__(self) -> NoReturn:
        raise InvalidType(
            f"the reader of {self.name} cannot be copied or pickled; pass its name on, and open that again"
        )


def name_of(file: Any) -> str:
    """What a file object is called in messages."""
    for attribute in ("name", "path"):
        try:
            name = getattr(file, attribute, None)
        except Exception:  # as of a buffered reader whose raw file was detached
            continue
        if isinstance(name, str) and name:
            return name
    return f"a {type(file).__name__}"
