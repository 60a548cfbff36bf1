# SPDX-License-Identifier: Apache-2.0
"""The common interface of sources."""

from __future__ import annotations

import os
from stat import S_IMODE
from typing import Any, NoReturn

from shmarrow.buffer import Bytes
from shmarrow.errors import Closed, InvalidData, InvalidType
from shmarrow.memory.mappings import Mapping


class Source:
    """A source of bytes with random or sequential access; made by :func:`shmarrow.memory.open_source`.

    Attributes
    ----------
    name : str
        Name for error messages.
    data : uint8 ndarray or None
        All bytes, read-only, if in memory: a mapping, a buffer, or a file read as a whole.
    size : int or None
        Size in bytes; None for a sequential source.
    mapped : bool
        Whether ``data`` is a mapping of a file or of shared memory.
    mapping : Mapping or None
        That mapping.
    status : os.stat_result or None
        The status of the file when it was opened by its name; None for other sources.
    location : str or None
        The ``shm:`` name or absolute path to reopen it; None if unknown.

    Notes
    -----
    Thread safety: the attributes change only in :meth:`close`. :meth:`read` may be called from several threads; a
    sequential source belongs to one reader, which serializes its calls.
    """

    positioned = False
    """Whether :meth:`advance` has an effect."""

    __slots__ = ("closed", "data", "location", "mapped", "mapping", "name", "size", "status")

    def __init__(
        self,
        name: str,
        data: Bytes | None,
        mapped: bool = False,
        size: int | None = None,
        own: bool = False,
        status: os.stat_result | None = None,
    ) -> None:
        self.name = name
        self.data = data
        self.mapped = mapped
        mapping = data.base if mapped and data is not None else None
        self.mapping = mapping if isinstance(mapping, Mapping) else None
        self.status = status if self.mapping is None else self.mapping.status
        self.location = self.mapping.location if own and self.mapping is not None else None
        self.size = size if data is None else len(data)
        self.closed = False

    @property
    def identity(self) -> tuple[int, int, int, int] | None:
        """Identity of the mapped file, as :attr:`shmarrow.segment.Segment.identity`; None if not mapped."""
        return None if self.mapping is None else self.mapping.identity

    @property
    def mode(self) -> int | None:
        """Permission bits of the mapped file; None if not mapped."""
        return None if self.mapping is None or self.mapping.status is None else S_IMODE(self.mapping.status.st_mode)

    def read(self, start: int, stop: int) -> Bytes:
        """Return the bytes from ``start`` to ``stop``: a view if in memory, else read.

        Raises `InvalidData` if out of range, `StorageError` if they cannot be read.
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

    def read_into(self, view: Any) -> int:
        """Fill a writable buffer with the next bytes; returns their number, fewer only at the end.

        Raises `StorageError` if the file object fails, and `InvalidType` if it is not a blocking binary file. The
        number of bytes consumed by then is unknown.
        """
        raise InvalidType(f"{self.name} is read at random, not in sequence")

    def take(self, size: int) -> Bytes:
        """Read the next ``size`` bytes, or fewer at the end; errors are those of :meth:`read_into`.

        Memory grows with the bytes received, not with ``size``.
        """
        if self.closed:
            raise self._closed_error()
        raise InvalidType(f"{self.name} is read at random, not in sequence")

    def advance(self, position: int) -> None:
        """Move a file object's position to ``position``, relative to where it was opened; no effect on other sources.

        Only sequential sources have such a position.
        """

    def close(self) -> None:
        """Release everything opened or cached here; the caller's file object stays open.

        Existing arrays keep their memory.
        """
        self.closed = True
        self.data = self.mapping = None

    def _closed_error(self) -> Closed:
        return Closed(f"{self.name} is closed; open it again")

    def __reduce__(self) -> NoReturn:
        raise InvalidType(
            f"the reader of {self.name} cannot be copied or pickled; pass its name on, and open that again"
        )


_STANDARD = {"<stdin>": "standard input", 0: "standard input", "<stdout>": "standard output", 1: "standard output"}


def name_of(file: Any) -> str:
    """The name of a file object in messages, such as ``"standard input"``."""
    for attribute in ("name", "path"):
        try:
            name = getattr(file, attribute, None)
        except Exception:  # such as a buffered reader with a detached raw file
            continue
        if isinstance(name, (str, int)) and name in _STANDARD:
            return _STANDARD[name]
        if isinstance(name, str) and name:
            return name
    return f"a {type(file).__name__}"
